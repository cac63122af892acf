"""May this compiled code be used for this call?

In:  the `Guard`s of one capture (`capture/guard_tests.py`), and the parameters of the frame.
Out: a `Check`: one Python function that is called before each use, and the reason when it says no.

Read in this order: `check.py` (what a check is, why one fails), `writing.py` (its source text),
`tensors.py` (all that is asked of a tensor, in C: `_tensors.c`). `corners/` holds what makes checks
of large models short.
In PyTorch: `torch/_dynamo/guards.py` (`CheckFunctionManager`, `GuardBuilder`),
`torch/csrc/dynamo/guards.cpp`.
"""

from course_lib.guards import corners
from course_lib.guards.check import Check, Failure
