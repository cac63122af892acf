"""The switches of Python, NumPy, torch and course_lib, as the course or the learner left them.

In:  nothing; `Switches` reads the settings of this process.
Out: an object that puts the course's settings in force before a cell of the course, and the
     learner's own after it.

A learner may write `torch.set_default_dtype(...)`, `os.chdir(...)` or `random.seed(0)` in any cell,
and forget it. That must take no points of answers that are right.
This file is also sent as text into the kernel that runs a submission, so it imports nothing of the
course. There it shares one namespace with `keeper.py`.
PyTorch has no counterpart.
"""

from __future__ import annotations

import builtins
import contextlib
import copy
import gc
import os
import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_UNREADABLE = object()
"""Stands for a switch that could not be read."""


@dataclass(frozen=True)
class Switch:
    """A setting of the whole process.

    `moves_with_use`: it moves with each use (random numbers), so no cell leaves it on purpose."""

    get: Callable[[], Any]
    put: Callable[[Any], Any]
    moves_with_use: bool = False


class Switches:
    """The switches of this process, with what the course and the learner made of each."""

    def __init__(self) -> None:
        self.all: list[Switch] = []
        # The number of a switch → its setting as the course left it, and as the learner left it
        self.wanted: dict[int, Any] = {}
        self.theirs: dict[int, Any] = {}
        self.look()

    def look(self) -> None:
        """Find the switches of torch and NumPy, too, once these have been imported.

        The settings of that moment are the course's, all of them: an import changes some of the
        others as well (the environment, the filters of warnings)."""
        # Once a package is imported it stays, so there are never fewer switches than before.
        all_switches = switches()
        if len(all_switches) > len(self.all):
            self.all = all_switches
            self.wanted = {n: _got(switch) for n, switch in enumerate(all_switches)}

    def put(self) -> None:
        """As the course left them."""
        self.look()
        self.theirs = {n: _got(switch) for n, switch in enumerate(self.all)}
        for n, switch in enumerate(self.all):
            _put(switch, self.theirs[n], self.wanted[n])

    def take(self, of_course: bool) -> None:
        """Note what a cell of the course left, if it may (`of_course`), and put back what the
        learner had set."""
        for n, switch in enumerate(self.all):
            before, now = self.wanted[n], _got(switch)
            if of_course or switch.moves_with_use:
                self.wanted[n] = now
            # A switch that this cell brought, by importing torch, has no setting of the learner's.
            if switch.moves_with_use or n not in self.theirs:
                continue

            # What the course's cell set on purpose stays for the learner, too.
            changed = of_course and not _same(before, now)
            _put(switch, now, now if changed else self.theirs[n])

    def put_but_for_random(self) -> None:
        """As the course left them, but for those that move with each use: random numbers go on from
        where they are."""
        for n, switch in enumerate(self.all):
            if not switch.moves_with_use:
                _put(switch, _got(switch), self.wanted[n])


def _got(switch: Switch) -> Any:
    """The setting now, as a copy that does not change with it."""
    try:
        return copy.copy(switch.get())
    except Exception:
        # A folder that is gone, or a switch that this version has not
        return _UNREADABLE


def _put(switch: Switch, now: Any, wanted: Any) -> None:
    """Set it, if it is not so already and can be."""
    if wanted is _UNREADABLE or _same(now, wanted):
        return
    with contextlib.suppress(Exception):
        switch.put(wanted)


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except Exception:
        # Arrays and tensors: not known to be the same
        return False


# ---- which there are -----------------------------------------------------------------------------


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
    """Those of torch, random numbers last."""
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


# ---- how each is read and set --------------------------------------------------------------------


def _put_gc(on: bool) -> None:
    if on:
        gc.enable()
    else:
        gc.disable()


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
    # Python remembers which warnings it has shown, until it is told that the filters have changed.
    # Where this version has no such function, `_filters` is called, which does nothing.
    getattr(warnings, "_filters_mutated", _filters)()


def _builtins() -> dict[str, Any]:
    """Python's functions by name, which a learner may hide (`print = ...`).

    Names that begin with `_` (`__import__`) are Python's own, and left out."""
    return {name: value for name, value in vars(builtins).items() if not name.startswith("_")}


def _put_builtins(wanted: dict[str, Any]) -> None:
    """Each has its old meaning again; a name that was added stays."""
    vars(builtins).update(wanted)


def _config() -> dict[str, Any]:
    """The settings of course_lib's compiler."""
    config = sys.modules.get("course_lib.config")
    # The file's functions, classes and modules are no settings.
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
