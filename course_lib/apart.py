"""A compile in the middle of a run, apart from what is active around it.

In:  the state of the thread: hooks for saved tensors, filters of warnings, the collector.
Out: a context in which the compiler may run torch's operators and change nothing of that state.

In PyTorch: `torch/_dynamo/convert_frame.py` (`compile_lock`, `preserve_global_state`).
"""

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch

from course_lib import config

COMPILING = threading.RLock()
"""One thread compiles at a time: `make_fx` patches torch itself."""


@contextlib.contextmanager
def apart_from_hooks() -> Iterator[None]:
    """Compile on one thread at a time, and save no tensors for hooks (of `checkpoint`, say) that
    are active around it."""
    hooks: Any = contextlib.nullcontext()
    if torch._C._autograd._top_saved_tensors_default_hooks(True) is not None:
        hooks = torch.autograd.graph.saved_tensors_hooks(as_it_is, as_it_is)

    with COMPILING, hooks, config.collector_paused(), filters_unchanged():
        yield


def as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    """The hook that changes nothing: it keeps hooks of the user's from being asked."""
    return tensor


@contextlib.contextmanager
def filters_unchanged() -> Iterator[None]:
    """Let `catch_warnings` inside not count as a change of the filters: Python would forget which
    warnings were shown.

    `catch_warnings` calls a function of `warnings` that counts the change. Inside, it does
    nothing."""
    # Since 3.14 the code is in the second module, and the function has the second name.
    modules = [sys.modules[name] for name in ("warnings", "_py_warnings") if name in sys.modules]
    names = ("_filters_mutated", "_filters_mutated_lock_held")
    before = [
        (module, name, vars(module)[name])
        for module in modules
        for name in names
        if name in vars(module)
    ]

    for module, name, _ in before:
        setattr(module, name, nothing)
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


def nothing() -> None:
    """In the place of the function that counts changes."""
