"""What C code calls back: `map(f, items)`, `sorted(items, key=f)`.

In:  arguments for a function written in C.
Out: the same arguments; in place of what it is going to call, something that asks the interpreter.

A function written in Python comes back to the interpreter by itself, through the frame hook. A
function written in C (`map(getattr, ...)`) would be shown stand-ins, whose attributes are not
filled in.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

CALLED_FIRST = "map filter reduce starmap takewhile dropwhile filterfalse iter".split()
CALLED_BY_NAME = "sorted min max sort bisect_left bisect_right insort_right".split()
CALLED: dict[str, int | None] = dict.fromkeys(CALLED_FIRST, 0)
CALLED |= {"accumulate": 1, "groupby": 1}
CALLED |= dict.fromkeys(CALLED_BY_NAME, None)
"""C code that calls an argument → which one by position. All of these call `key=` and `func=`."""


def call_back(world: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
    """What C code calls in place of `function`: the interpreter knows what that is to do."""
    return world.inliner.caller.call_function(function, list(args), kwargs)


def with_callbacks(
    it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments for C code, which may call one of them."""
    name = getattr(function, "__name__", "")
    if name not in CALLED:
        return args, kwargs

    def wrapped(arg: Any) -> Any:
        if callable(arg):
            return functools.partial(call_back, it.world, arg)
        return arg

    listed = list(args)
    place = CALLED[name]
    if place is not None and place < len(listed):
        listed[place] = wrapped(listed[place])

    keyword_arguments = dict(kwargs)
    for key in ("key", "func"):
        if key in keyword_arguments:
            keyword_arguments[key] = wrapped(keyword_arguments[key])
    return listed, keyword_arguments
