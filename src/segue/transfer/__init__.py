"""Conversations as lines of JSON, out of a journal and into one. docs/export.md has the format."""
