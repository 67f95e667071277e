"""Replays of past conversations under other settings."""
