"""Special cases of capture: each module adds rules to the tables of the spine, which knows none of them.

A reader of lesson 02 and 03 may skip this folder. In PyTorch: the long tail of `torch/_dynamo/variables/`.

`own_operations.py`: an `autograd.Function`, a custom operator, a function with a cache. `reading.py`: what their code does.
"""

from course_lib.capture.corners import (
    checkpoint,
    inference,
    loaded_modules,
    numpy,
    own_operations,
    python,
    random,
    reading,
    rebuilding,
    refusals,
    switches,
    tensors,
    torch_functions,
    torch_warnings,
    warn,
)

__all__ = [
    "checkpoint",
    "inference",
    "loaded_modules",
    "numpy",
    "own_operations",
    "python",
    "random",
    "reading",
    "rebuilding",
    "refusals",
    "switches",
    "tensors",
    "torch_functions",
    "torch_warnings",
    "warn",
]
