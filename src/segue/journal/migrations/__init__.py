"""Numbered SQL files, one folder per database, applied in order and never changed."""
