"""Which types belong to which family of stand-ins.

In:  a type. Out: how its instances are copied, or that they cannot be.
"""

import collections
import functools
import logging
import types
from typing import Any

import torch

from course_lib.capture import classes
from course_lib.capture.classes import BELOW_TORCH, MISSING, member_of

SEQUENCES = (list, tuple, set, frozenset, collections.deque)
MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict)
SCALARS = (int, float, complex, str, bytes)
BY_VALUE = (range, slice, types.MethodDescriptorType, types.WrapperDescriptorType)
"""Types whose instances cannot change, and are guarded by value."""
ITERATED: tuple[Any, ...] = ([], (), range(0), range(2**64), "", "\u2013", b"", bytearray())
"""One of each kind that has an iterator of its own. (Two kinds of ranges, and of texts.)"""
ITERATORS = {enumerate, zip, *map(type, map(iter, ITERATED)), type(reversed([]))}
"""Iterators that can tell what they are going to give."""

# Keys with these methods are equal to no other key
BY_IDENTITY = {object.__eq__, object.__hash__, torch.Tensor.__eq__, torch.Tensor.__hash__}

HANDLES = set(
    """_io io threading _thread logging random socket multiprocessing asyncio subprocess tempfile weakref""".split()
)
"""Modules whose instances are more than their attributes: files, locks, sources of randomness."""


def solid_base(cls: type) -> Any:
    """The builtin type that instances of `cls` are built on."""
    bases = (tuple, list, collections.deque, types.SimpleNamespace, *MAPPINGS)
    return next((base for base in cls.__mro__ if base in bases), object)


@functools.lru_cache(256)
def can_copy(cls: Any) -> bool:
    """May an instance be copied attribute by attribute?

    Its class must be written in Python, and must not notice the copy."""
    # an adapter is a plain pair of attributes, though it comes from a module in HANDLES
    bases = [base for base in cls.__mro__ if base is not logging.LoggerAdapter]
    if any(base.__module__.split(".")[0] in HANDLES for base in bases):
        return False

    # code of torch that is not interpreted would be given the copy
    below = f"{cls.__module__}.".startswith(BELOW_TORCH)
    if below and not issubclass(cls, torch.nn.Module):
        return False

    # `__del__` would run for the copy, too
    if member_of(cls, "__del__") is not MISSING or issubclass(
        cls, (BaseException, types.ModuleType, type)
    ):
        return False
    return cls is types.SimpleNamespace or classes.makes_bare(solid_base(cls), cls)
