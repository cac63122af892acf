"""Scheduling: what was fused, in which order kernels run, and how much memory they hold."""
