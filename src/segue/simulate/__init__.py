"""Simulation: a scenario of days or weeks, run on a virtual clock in seconds."""
