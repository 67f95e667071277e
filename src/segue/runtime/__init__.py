"""The doers: what reads the clock and holds state, on top of the pure core."""
