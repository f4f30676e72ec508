"""Metrics, lift with confidence intervals, and the gate: numpy and pandas only, no torch."""
