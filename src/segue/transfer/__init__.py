"""Export to and import from lines of JSON. docs/export.md has the format."""
