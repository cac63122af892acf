"""Keeps the learner's names and switches away from the course's cells, while a notebook runs.

In:  the names of a notebook that runs (a dict), and before each cell what ended and what comes.
Out: the names and torch's switches as the course left them while one of its cells runs; as the
learner left them while one of the learner's runs.

A learner may write `sum = 0`, `check = ...`, `x = 3`, `%reset -f`, `torch.set_default_dtype(...)`
in any cell. That must take no points of answers that are right. So each cell of the course (given
code, checks) finds

- what the course's own cells bound, where the cell needs that name, or where the name was a
  function, a class or a module;
- Python's builtins, but for a function or class of that name that the learner wrote and no cell of
  the course needs;
- the learner's own answers, where a variable took the name of one of them;
- every switch as the last cell of the course left it.

Afterwards the learner's values come back. What a cell of the course binds itself stays.
This file is also sent as text into the kernel that runs a submission, so it imports nothing of the
course.
PyTorch has no counterpart. nbgrader and otter-grader run checks among the learner's names.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import gc
import inspect
import os
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

# IPython's own: the history of what was typed and shown
_HISTORY = re.compile(r"_+|_i*\d*|_\d+|_[dio]h|_exit_code|In|Out|_grader_\w+")
_NOTHING = object()


# ---- switches ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Switch:
    """A setting of the whole process.

    `moves_with_use`: it moves with each use (random numbers), so no cell leaves it on purpose."""

    get: Callable[[], Any]
    put: Callable[[Any], Any]
    moves_with_use: bool = False


def switches() -> list[Switch]:
    """Every switch that is kept. Those of torch are there once torch is imported."""
    all_switches = [
        Switch(sys.getrecursionlimit, sys.setrecursionlimit),
        Switch(gc.isenabled, _put_gc),
        Switch(sys.gettrace, sys.settrace),
        Switch(os.getcwd, os.chdir),
        Switch(_environment, _put_environment),
        Switch(_path, _put_path),
        Switch(_filters, _put_filters),
        Switch(_builtins, _put_builtins),
        Switch(_config, _put_config),
        Switch(random.getstate, random.setstate, moves_with_use=True),
    ]
    if "numpy" in sys.modules:
        import numpy as np

        all_switches.append(Switch(np.geterr, _put_numpy_errors))
        all_switches.append(Switch(np.random.get_state, np.random.set_state, moves_with_use=True))
    if "torch" in sys.modules:
        all_switches += torch_switches()
    return all_switches


def torch_switches() -> list[Switch]:
    import torch

    return [
        Switch(_modes, _put_modes),
        Switch(torch.get_default_dtype, torch.set_default_dtype),
        Switch(torch.is_grad_enabled, torch._C._set_grad_enabled),
        Switch(_deterministic, _put_deterministic),
        Switch(torch.get_num_threads, torch.set_num_threads),
        Switch(_autocast, _put_autocast),
        Switch(_anomaly, _put_anomaly),
        Switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        Switch(torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
        Switch(_print_options, _put_print_options),
        Switch(_random_state, _put_random_state, moves_with_use=True),
    ]


def _put_gc(on: bool) -> None:
    (gc.enable if on else gc.disable)()


def _environment() -> dict[str, str]:
    return dict(os.environ)


def _put_environment(wanted: dict[str, str]) -> None:
    for name in set(os.environ) - set(wanted):
        del os.environ[name]
    os.environ.update(wanted)


def _path() -> list[str]:
    return list(sys.path)


def _put_path(wanted: list[str]) -> None:
    sys.path[:] = wanted


def _filters() -> list[Any]:
    return list(warnings.filters)


def _put_filters(wanted: list[Any]) -> None:
    warnings.filters[:] = wanted  # type: ignore[index]
    # what was shown once is remembered by the version of the filters
    getattr(warnings, "_filters_mutated", _filters)()


def _builtins() -> dict[str, Any]:
    return {name: value for name, value in vars(builtins).items() if not name.startswith("_")}


def _put_builtins(wanted: dict[str, Any]) -> None:
    vars(builtins).update(wanted)


def _config() -> dict[str, Any]:
    """The settings of course_lib's compiler."""
    config = sys.modules.get("course_lib.config")
    plain = (bool, int, float, str, type(None))
    if config:
        return {k: v for k, v in vars(config).items() if type(v) in plain}
    return {}


def _put_config(wanted: dict[str, Any]) -> None:
    if config := sys.modules.get("course_lib.config"):
        vars(config).update(wanted)


def _put_numpy_errors(wanted: Any) -> None:
    import numpy as np

    np.seterr(**wanted)


def _modes() -> tuple[list[Any], list[Any], Any]:
    """Modes that stand around everything: the default device is one of torch's function modes."""
    import torch
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    device = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return (
        list(_get_current_function_mode_stack()),
        list(_get_current_dispatch_mode_stack()),
        device,
    )


def _put_modes(wanted: tuple[list[Any], list[Any], Any]) -> None:
    """Take off all modes that are on, and put on those that `_modes` found, the outermost first."""
    import torch
    from torch.overrides import _len_torch_function_stack, _pop_mode, _push_mode
    from torch.utils import _python_dispatch as dispatch

    functions, dispatches, device = wanted
    for _ in range(_len_torch_function_stack()):
        _pop_mode()
    for mode in functions:
        _push_mode(mode)
    for _ in dispatch._get_current_dispatch_mode_stack():
        dispatch._pop_mode()
    for mode in dispatches:
        dispatch._push_mode(mode)
    torch._GLOBAL_DEVICE_CONTEXT.device_context = device


def _deterministic() -> tuple[bool, bool]:
    import torch

    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.are_deterministic_algorithms_enabled(), warn_only


def _put_deterministic(wanted: tuple[bool, bool]) -> None:
    import torch

    torch.use_deterministic_algorithms(wanted[0], warn_only=wanted[1])


def _autocast() -> list[Any]:
    import torch

    kinds = ("cpu", "cuda")
    return [(k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds]


def _put_autocast(wanted: list[Any]) -> None:
    import torch

    for kind, on, dtype in wanted:
        torch.set_autocast_enabled(kind, on)
        torch.set_autocast_dtype(kind, dtype)


def _anomaly() -> tuple[bool, bool]:
    import torch

    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _put_anomaly(wanted: tuple[bool, bool]) -> None:
    import torch

    torch._C._set_anomaly_enabled(*wanted)


def _print_options() -> dict[str, Any]:
    import torch

    return dict(vars(torch._tensor_str.PRINT_OPTS))


def _put_print_options(wanted: dict[str, Any]) -> None:
    import torch

    vars(torch._tensor_str.PRINT_OPTS).update(wanted)


def _random_state() -> Any:
    import torch

    return torch.random.default_generator.get_state()


def _put_random_state(wanted: Any) -> None:
    import torch

    torch.random.default_generator.set_state(wanted)


# ---- names ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ended:
    """The cell that just ran.

    `binds`: what its text binds; `defines`: of these, by def, class or import."""

    role: str  # "given", "checks", "answer", "own"
    number: int = 0  # in the learner's notebook, from 1
    binds: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Habits:
    """What the learner's cells do with names, seen from their text.

    `answers`: names that the course asks the learner for."""

    defines: frozenset[str] = frozenset()
    assigns: frozenset[str] = frozenset()
    reads_as_data: frozenset[str] = frozenset()
    answers: frozenset[str] = frozenset()


class Keeper:
    """Stands between the cells of one notebook: `step(ended, comes, needs)` before each cell and
    after the last."""

    def __init__(self, names: dict[str, Any], habits: Habits) -> None:
        self.names, self.habits = names, habits
        self.builtins = dict(vars(builtins))
        self.course = self.snapshot()  # name → what the course bound to it
        self.answers: dict[str, Any] = {}  # name → the function or class of an answer
        self.unnamed: set[str] = set()  # names that came by `import *`: no text of a cell has them
        self.mine: dict[str, int] = {}  # name → the learner's cell that bound it last
        self.seen = self.snapshot()
        self.lent: dict[
            str, tuple[Any, Any]
        ] = {}  # name → the learner's value, what stands there now
        self.watched: set[str] = set()  # names that stand as the course bound them, now
        self.switches: list[Switch] = []
        self.wanted: dict[int, Any] = {}  # switch → as the course left it
        self.theirs: dict[int, Any] = {}  # switch → as the learner left it
        self.look_at_switches()

    def step(self, ended: Ended | None, comes: str, needs: Iterable[str] = ()) -> None:
        """One cell ended, and one of the role `comes` is next ("" after the last); it and what it
        calls read `needs`."""
        if ended:
            self.note(ended)
        self.bring_back_what_vanished()
        if comes in ("given", "checks"):
            self.put_switches()
            self.lend(frozenset(needs))
        self.seen = self.snapshot()

    def take(self, step: dict[str, Any]) -> None:
        """`step` with plain values, as the text of a cell can hold them."""
        ended = step["ended"]
        self.step(ended and Ended(*ended), step["comes"], step["needs"])
        self.watched = {n for n, v in self.course.items() if self.names.get(n, _NOTHING) is v}

    def after_checks(self) -> None:
        """Switches as the course left them, so that the grader's own look at the checks is not
        under the learner's."""
        for n, switch in enumerate(self.switches):
            if not switch.moves_with_use:
                _put(switch, _got(switch), self.wanted[n])

    def snapshot(self) -> dict[str, Any]:
        return {name: v for name, v in self.names.items() if not _HISTORY.fullmatch(name)}

    def shadows(self) -> dict[str, int]:
        """Names of Python or of the course that a learner's cell bound last, with the number of
        that cell."""
        known = self.builtins.keys() | self.course.keys()
        return {name: number for name, number in self.mine.items() if name in known}

    # -- after a cell

    def note(self, ended: Ended) -> None:
        changed = {
            name
            for name, value in self.snapshot().items()
            if value is not self.seen.get(name, _NOTHING)
        }
        # a cell may bind the same object anew; one that failed on the way did not come to all
        rebound_names = {name for name in ended.binds if name in self.names}
        if ended.role in ("given", "checks"):
            # of the learner's names only what both imported is the course's, too: it is the same
            # thing
            both = {name for name in ended.defines if _is_imported(self.names.get(name))}
            theirs = rebound_names - (self.mine.keys() - both)
            self.note_course(changed | theirs, ended)
        else:
            self.note_learner(changed | rebound_names, ended)

    def note_course(self, changed: set[str], ended: Ended) -> None:
        for name in changed:
            # what stands there may be a learner's: functions of an answer may set globals while
            # checks run
            if name in ended.binds or ended.role == "given":
                self.course[name] = self.names[name]
                self.mine.pop(name, None)
                self.lent.pop(name, None)

        for name, (before, stood) in self.lent.items():
            if self.names.get(name, _NOTHING) is stood:
                self.set(name, before)

        self.lent.clear()
        self.take_switches(ended.role == "given")

    def note_learner(self, changed: set[str], ended: Ended) -> None:
        for name in changed:
            value = self.names[name]
            self.mine[name] = ended.number
            (self.unnamed.discard if name in ended.binds else self.unnamed.add)(name)
            if name in self.habits.answers:
                self.course.pop(name, None)
            if ended.role == "answer" and (inspect.isroutine(value) or inspect.isclass(value)):
                self.answers[name] = value
            elif name in ended.defines:
                self.answers.pop(name, None)

    def bring_back_what_vanished(self) -> None:
        """After `%reset -f` or `del`: what was there before stands there again."""
        for name, value in self.seen.items():
            if name not in self.names and name not in self.lent:
                self.names[name] = value

    # -- before a cell of the course

    def lend(self, needs: frozenset[str]) -> None:
        for name in self.snapshot().keys() | (self.course.keys() & needs):
            value = self.names.get(name, _NOTHING)
            better = self.better(name, value, needs)
            if better is not value:
                self.lent[name] = (value, better)
                self.set(name, better)

    def better(self, name: str, value: Any, needs: frozenset[str]) -> Any:
        """What a cell of the course should find under this name: `value` as it is, another value,
        or nothing at all."""
        if name in self.course:
            return self.of_course(name, value, name in needs)
        if name in self.answers and (not callable(value) or name in self.unnamed):
            return self.answers[name]
        if name in self.builtins and value is not self.builtins[name]:
            if self.hides(name, value, name in needs):
                return _NOTHING
            return value
        return value

    def of_course(self, name: str, value: Any, needed: bool) -> Any:
        theirs = self.course[name]
        if value is theirs or needed:
            return theirs
        if not _is_code(theirs):
            return value

        # If the learner defined or imported a function of this name, the learner's cells mean that
        # one. # A plain value that was assigned to the name later does not count.
        if name in self.habits.defines and _is_code(value):
            return value
        return theirs

    def hides(self, name: str, value: Any, needed: bool) -> bool:
        """Whether to put the builtin back: this value has its name, but the code that runs next
        means the builtin."""
        habits = self.habits
        if needed:
            return True
        if name in habits.defines or (name in habits.assigns and callable(value)):
            return False
        return name not in habits.reads_as_data or name not in habits.assigns

    def set(self, name: str, value: Any) -> None:
        if value is _NOTHING:
            self.names.pop(name, None)
        else:
            self.names[name] = value

    # -- switches

    def look_at_switches(self) -> None:
        """What is new (torch was imported since) counts as the course's."""
        all_switches = switches()
        if len(all_switches) > len(self.switches):
            self.switches, old = all_switches, self.wanted
            now = {n: _got(switch) for n, switch in enumerate(all_switches)}
            self.wanted = now if len(old) != len(now) else old

    def put_switches(self) -> None:
        """As the course left them."""
        self.look_at_switches()
        self.theirs = {n: _got(switch) for n, switch in enumerate(self.switches)}
        for n, switch in enumerate(self.switches):
            _put(switch, self.theirs[n], self.wanted[n])

    def take_switches(self, of_course: bool) -> None:
        """Note what a cell of the course left, if it may (`of_course`), and put back what the
        learner had set."""
        for n, switch in enumerate(self.switches):
            before, now = self.wanted[n], _got(switch)
            if of_course or switch.moves_with_use:
                self.wanted[n] = now
            if switch.moves_with_use or n not in self.theirs:
                continue
            changed = of_course and not _same(before, now)
            _put(switch, now, now if changed else self.theirs[n])


def _is_code(value: Any) -> bool:
    return inspect.isroutine(value) or inspect.isclass(value) or inspect.ismodule(value)


def _is_imported(value: Any) -> bool:
    """A module, or a function or class of one: not what a cell of the notebook made."""
    if inspect.ismodule(value):
        return True
    return _is_code(value) and getattr(value, "__module__", "__main__") != "__main__"


def _got(switch: Switch) -> Any:
    try:
        return copy.copy(switch.get())
    except Exception:  # a folder that is gone, a switch that this version has not
        return _NOTHING


def _put(switch: Switch, now: Any, wanted: Any) -> None:
    if wanted is _NOTHING or _same(now, wanted):
        return
    with contextlib.suppress(Exception):
        switch.put(wanted)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:  # arrays and tensors: not known to be the same
        return False


def no_exit(shell: Any) -> None:
    """`exit()` and `quit()` end the cell in which they stand, not the process that the other cells
    need."""

    def ask_exit(self: Any) -> None:
        raise SystemExit("exit() ends this cell only")

    shell.ask_exit = types.MethodType(ask_exit, shell)
