"""Dtypes for which eager has no kernel: `softmax` of integers, `lerp` of bools, `xlogy` of complex
numbers. Fake tensors take them, and loops would compute something.

In:  an operation that has run on fake tensors, one of which does not hold floating-point numbers
     (or all of which do, though the operation is made for the bits of integers).
Out: `Unsupported` where a rehearsal on real tensors of zeros raises (`refusals.rehearse`): the
     operation then runs in eager, which says what is wrong.

Nearly every operation has kernels for floating-point numbers, so these are not rehearsed.
In PyTorch there is no counterpart: `torch.compile` computes something there.
"""

import types
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from course_lib.capture.corners.refusals import (
    FLOAT,
    LARGE,
    elements,
    is_plain,
    kind_of_dtype,
    rehearse,
)
from course_lib.capture.of_data import symbols_of_data
from course_lib.capture.world import World, listeners
from course_lib.failing import BY_INDEX, CHECKED, CHECKED_NAMES, is_torchs, name_of

OF_C = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
IN_PYTHON = ("torch.nn.functional", "torch.functional", "torch._tensor")
"""Modules whose Python functions are operations, too. (Others may do more than compute.)"""
ZEROS_ARE_RIGHT = {"entropy", "nll", "margin", "embedding", "gather", "scatter", "take", "index"}
"""Words in the names of operations that look at the data, and never refuse zeros."""
FOR_INTEGERS = set("and or xor iand ior ixor invert lshift rshift ilshift irshift bitwise".split())
"""Words in the names of operations on the bits of integers, for which floats have no kernel."""
ABOUT_GRADIENTS = {"backward", "register_hook", "retain_grad", "requires_grad_", "detach_"}
"""Methods that ask for, or change, what zeros do not have: a graph behind them."""


def listen(
    world: World, function: Any, args: Any, kwargs: dict[str, Any], result: Any, caught: list[Any]
) -> None:
    """Rehearse an operation on other numbers than floating-point ones.

    Raises Unsupported if eager has no kernel for them."""
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    dtypes = [leaf for leaf in leaves if isinstance(leaf, torch.dtype)]
    kinds = {kind_of_dtype(dtype) for dtype in [*dtypes, *(tensor.dtype for tensor in tensors)]}
    name = name_of(function)
    is_usual = kinds <= {FLOAT} and not set(name.strip("_").split("_")) & FOR_INTEGERS
    if is_usual or not is_operation(function):
        return

    # Zeros need sizes: what only the data says is not known here.
    if symbols_of_data((args, kwargs, result)):
        return
    if looks_at_data(name) and not takes_zeros(name, tensors):
        return

    results = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
    if not all(map(is_plain, [*tensors, *results])):
        return
    if sum(map(elements, tensors)) <= LARGE:
        rehearse(function, args, kwargs)


def is_operation(function: Any) -> bool:
    """Is this an operation of torch's that does nothing but compute?"""
    if not is_torchs(function) or name_of(function) in ABOUT_GRADIENTS:
        return False
    return isinstance(function, OF_C) or getattr(function, "__module__", "") in IN_PYTHON


def looks_at_data(name: str) -> bool:
    """May an operation of this name refuse some data?"""
    if name in CHECKED_NAMES or name.strip("_") in BY_INDEX:
        return True
    return bool(set(name.split("_")) & CHECKED)


def takes_zeros(name: str, tensors: list[torch.Tensor]) -> bool:
    """Does an operation that looks at its data take zeros? The index 0 is right, unless a tensor
    has no elements."""
    return bool(set(name.split("_")) & ZEROS_ARE_RIGHT) and all(map(elements, tensors))


listeners.append(listen)
