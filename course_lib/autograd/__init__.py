"""From torch operations to ATen operations, forward (and, from lesson 06 on, backward).

In PyTorch: `torch/_functorch/aot_autograd.py`.
"""

from course_lib.autograd.trace import mutated_inputs, trace

__all__ = ["mutated_inputs", "trace"]
