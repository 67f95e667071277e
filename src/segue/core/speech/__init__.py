"""Rules that read what a text does: sentences, acts and goodbyes."""
