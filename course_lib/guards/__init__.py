"""May this compiled code be used for this call?

In:  the `Guard`s of a capture.
Out: `Check`: one Python function, generated from them, that is true when all hold; and, when it is not, which test failed and
     what was found instead.
In PyTorch: `torch/_dynamo/guards.py` (`CheckFunctionManager`, `GuardBuilder`) and `torch/csrc/dynamo/guards.cpp`.
"""

from course_lib.guards.check import Check, Failure

__all__ = ["Check", "Failure"]
