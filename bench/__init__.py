"""Benchmarks: what a thing costs, next to a peer in the same run."""
