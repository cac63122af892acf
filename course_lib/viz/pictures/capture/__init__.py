"""Capture: what the symbolic interpreter ran, and where it had to stop."""
