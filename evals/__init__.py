"""Evals: measured quality of deciders, follow-ups and memory search."""
