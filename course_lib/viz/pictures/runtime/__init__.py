"""Running: kernels under the roofline, calls in order, times side by side, a server's queue."""
