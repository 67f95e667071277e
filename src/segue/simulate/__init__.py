"""Weeks of a scenario in seconds, and past conversations under other settings."""
