"""Warnings of torch's own operations: the kernels that run later are not the ones that warn.

In:  what an operation warned of while it ran on fake tensors; or, for a few, what it would warn of
     on real ones.
Out: `Warned`, which the head shows in the line that calls the operation.

torch shows some of its warnings once in a process, others at every call (all of them after
`torch.set_warn_always(True)`): where a second run on fake tensors is silent, the head shows the
warning at its first call only.
In PyTorch there is no counterpart: such warnings are lost there, or shown while a graph is
compiled.
"""

import itertools
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from course_lib.capture.corners.refusals import LARGE, elements, known
from course_lib.capture.corners.warn import place, refuse_own_filters
from course_lib.capture.guard_tests import SwitchIs
from course_lib.capture.sources import FRAME
from course_lib.capture.world import Place, Warned, World, listeners

ROOT = f"{Path(os.path.abspath(__file__)).parents[2]}{os.sep}"
"""The folder of `course_lib`. A warning at the line that calls an operation names a file in it, for
here `course_lib` is the caller."""
IN_KERNELS = "(Triggered internally at"  # What torch writes behind a warning of its C++
CASTS = "to float double half bfloat16 int long short char byte type type_as copy setitem".split()
"""Operations that warn where they make real numbers of complex ones."""
SPREADS = "var std var_mean std_mean".split()
"""Operations that warn where there are too few numbers for a variance."""
OF_THE_CALLER = 3
"""The default `_stacklevel` of `torch.nn.functional`: the line that calls, say, `F.softmax`."""
FUNCTIONAL = os.path.join("torch", "nn", "functional.py")


def listen(
    world: World, function: Any, args: Any, kwargs: dict[str, Any], result: Any, caught: list[Any]
) -> None:
    """Take down what an operation of torch's warns of."""
    name = getattr(function, "__name__", "").strip("_")
    # fake tensors have nothing to cast, or to count: a few operations warn only of real ones
    rehearsed = name in SPREADS or (name in CASTS and casts_complex(args, result))

    torch_warnings = [w for w in caught if IN_KERNELS in str(w.message) or is_ours(w.filename)]
    if rehearsed:
        torch_warnings += rehearse(function, args, kwargs)

    # torch may have warned in an earlier capture of this line, and be silent now
    heard = world.shapes.history.heard
    asked = args[1] if function is getattr else None
    operation = world.builder.location, name, asked
    if not torch_warnings and operation not in heard:
        return

    refuse_own_filters(world)
    always = torch.is_warn_always_enabled()
    world.assume(FRAME, "state", SwitchIs("torch.is_warn_always_enabled", always))
    if torch_warnings:
        warnings_again = []
        if rehearsed:
            warnings_again += rehearse(function, args, kwargs)
        warnings_again += run_again(world, function, args, kwargs)
        loud = {str(w.message) for w in warnings_again}
        heard[operation] = [
            warned(world, w, str(w.message) in loud, args, kwargs) for w in torch_warnings
        ]
    world.warned += heard[operation]
    world.builder.has_warned = True


def warned(world: World, warning: Any, loud: bool, args: Any, kwargs: dict[str, Any]) -> Warned:
    """What the head shows, with numbers for sizes; at each call if it is `loud`."""
    text = str(warning.message)
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    for tensor in tensors:
        for size in tensor.shape:
            if type(size) is torch.SymInt:
                symbol = re.escape(str(size))
                text = re.sub(rf"\b{symbol}\b", str(int(size)), text)

    # What torch says once, the head says in its first call only.
    calls = None
    if not loud:
        calls = itertools.count()
    levels = kwargs.get("_stacklevel", OF_THE_CALLER)
    return Warned(text, warning.category, place_of(world, warning, levels), calls=calls)


def is_ours(filename: str) -> bool:
    """Does a warning name the line that called the operation, or one of `torch.nn.functional`?"""
    return filename.startswith(ROOT) or filename.endswith(FUNCTIONAL)


def run_again(world: World, function: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """What the operation warns of the second time.

    (What writes is not run twice: it counts as always loud.)"""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if any(tensor._version for tensor in tensors) or "out" in kwargs:
        return []
    with world.builder.fake_world() as caught:
        function(*args, **kwargs)
    return list(caught)


def casts_complex(args: Any, result: Any) -> bool:
    """True if the operation makes real numbers of complex ones by a cast."""
    tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
    if not tensors or not any(tensor.is_complex() for tensor in tensors):
        return False
    changed = result
    if result is None:
        changed = tensors[0]
    return not changed.is_complex()


def rehearse(function: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """What the operation warns of on real tensors of zeros: fake ones have nothing to cast, or to
    count."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if sum(map(elements, tensors)) > LARGE:
        return []
    with (
        warnings.catch_warnings(record=True) as caught,
        torch._C.DisableTorchFunction(),
        torch.no_grad(),
    ):
        warnings.simplefilter("always")
        real_args, real_kwargs = tree_map(zeros_like, (args, kwargs))
        function(*real_args, **real_kwargs)
    return list(caught)


def zeros_like(value: Any) -> Any:
    """A real tensor like a fake one; a number for a size."""
    if not isinstance(value, torch.Tensor):
        return known(value)
    return torch.zeros([*map(known, value.shape)], dtype=value.dtype, device="cpu")


def place_of(world: World, warning: Any, levels: int) -> Place | int:
    """The line that a warning names: of torch's file, or the one that is interpreted.

    `levels`: the `_stacklevel` that a function of `torch.nn.functional` was given."""
    if not warning.filename.startswith(ROOT):
        for module in list(sys.modules.values()):
            if getattr(module, "__file__", None) == warning.filename:
                return Place(warning.filename, warning.lineno, vars(module))
    # `place` counts from the interpreted code: level 1 is the line that calls torch's function.
    return place(world, levels - OF_THE_CALLER + 1)


listeners.append(listen)
