"""Warnings: shown by the head, with the place that Python would name.

In:  a call of `warnings.warn(message, category, stacklevel)` that is interpreted.
Out: a `Warned` among the world's effects. The head shows it at each call, by Python's own filters
     and the registry of the user's module, so that it is shown as often as in eager.

`stacklevel` counts frames. Those that are interpreted are known; above them are the callers of the
captured frame, which Python finds when the head runs: the library's own frames are hidden from it
(`frames/_framehook.c`).
In PyTorch: `torch/_dynamo/variables/functions.py` (`warnings.warn` is left out or breaks the
graph).
"""

import sys
import warnings
from typing import Any

from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.machine import Machine
from course_lib.capture.sources import HELPERS, Unsupported
from course_lib.capture.world import Place, Warned
from course_lib.frames.hook import WRAPPER, marked


def warn(it: Machine, message: Any, category: Any = None, stacklevel: int = 1, source: Any = None,
         *, skip_file_prefixes: Any = ()) -> None:  # fmt: skip
    """`warnings.warn`: an effect of the head."""
    if isinstance(message, Warning):
        category = type(message)
    if category is None:
        category = UserWarning
    if not (isinstance(category, type) and issubclass(category, Warning)):
        raise Unsupported("warns with a category that is no class of warnings")
    if skip_file_prefixes or type(stacklevel) is not int:
        raise Unsupported("warns with `skip_file_prefixes`, or with a `stacklevel` that is no int")
    refuse_own_filters(it.world)
    it.world.warned.append(Warned(message, category, place(it.world, stacklevel), source))


def refuse_own_filters(world: Any) -> None:
    """Raise Unsupported where the program has looked at the filters of warnings, or has changed
    them.

    The head shows warnings by the filters that hold when it runs. Those of a `catch_warnings`
    inside the program would not hold."""
    if any(known.real is warnings.filters for known in world.known.values()):
        raise Unsupported("warns after it has looked at the filters of warnings")
    if any(stored.holder is vars(warnings) for stored in world.stored.values()):
        raise Unsupported("warns after it has changed how warnings are shown")


def place(world: Any, stacklevel: int) -> Place | int:
    """The place that `stacklevel` names; a number: so many frames above the captured one."""
    frames = [
        Place(machine.code.co_filename, at.line, machine.globals)
        for machine, at in zip(world.running, world.lines, strict=True)
    ]
    # the innermost first, so that the depths of the others stay right
    for left_out in reversed(world.left_out):
        frames.insert(left_out.depth, left_out.place)
    if marked(world.running[0].code) == WRAPPER:  # it calls a function of torch's
        frames = frames[1:]

    above = max(stacklevel, 1) - len(frames)
    if above > 0:
        return above
    return frames[-max(stacklevel, 1)]


def may_raise(*categories: type[Warning]) -> bool:
    """May one of these warnings become an error?

    Then eager runs the frame: a program may catch it."""
    context = context_of_warnings()
    filters = warnings.filters if context is None else context._filters
    actions = [(action, cls) for action, _, cls, *_ in filters if action == "error"]
    return any(issubclass(mine, cls) for _, cls in actions for mine in categories)


def may_be_noticed(*lists: list[Any]) -> bool:
    """May the program see that a warning was shown, before its frame ends?

    It may where `catch_warnings(record=True)` adds the warning to one of these `lists`, which the
    program reads, and where a function of the user's shows warnings. Then eager runs the frame."""
    if warnings.showwarning is not warnings._showwarning_orig:  # type: ignore[attr-defined]
        return True

    context = context_of_warnings()
    recorded = [
        getattr(warnings._showwarnmsg_impl, "__self__", None),  # type: ignore[attr-defined]
        getattr(context, "log", None),
    ]
    return any(one is record for one in lists for record in recorded)


def context_of_warnings() -> Any:
    """What Python 3.14 and newer keep for each context (`-X context_aware_warnings`)."""
    get = getattr(warnings, "_get_context", None)
    return get() if get else None


def show(message: Any, category: Any, filename: str, line: int, names: dict[str, Any],
         source: Any = None) -> None:  # fmt: skip
    """Show a warning of this place, if the filters say so.

    `names`: the global variables there, where Python remembers it."""
    registry = names.setdefault("__warningregistry__", {})
    module = names.get("__name__") or "<string>"
    warnings.warn_explicit(message, category, filename, line, module, registry, None, source)


def show_above(message: Any, category: Any, levels: int, source: Any = None) -> None:
    """Show a warning of a place so many frames above the one whose head calls this."""
    # A level above this is above all frames, as any larger one is. With 2 more it must fit into a C
    # integer.
    levels = min(levels, sys.maxsize >> 32)
    # Two frames more: this one, and the head's
    warnings.warn(message, category, levels + 2, source)


FUNCTIONS[warnings.warn] = warn
HELPERS |= {
    "show": show,
    "show_above": show_above,
    "may_raise": may_raise,
    "may_be_noticed": may_be_noticed,
}
