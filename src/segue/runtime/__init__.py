"""The runtime: workers that read the clock and hold state, on top of the pure core."""
