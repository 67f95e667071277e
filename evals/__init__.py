"""Evals: how good a thing is, measured and not believed."""
