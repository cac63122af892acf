"""Running: kernels under the roofline, calls in order, times side by side, a server's queue.

call_events.py, launches.py          what happens in a call, and when
kernel_limits.py                     each kernel under the roofline
speedups.py                          times side by side
request_queue.py                     a server and its requests
"""
