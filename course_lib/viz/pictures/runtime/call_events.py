"""What happens in a call of compiled code: guards are asked, kernels launched, CUDA graphs
replayed.

In:  a block in which somebody records. Out: `GuardsChecked`, `KernelLaunched` and
     `CudaGraphReplayed` among the events.

Compiled code tells nothing while it runs: a test in each wrapper would cost every call of every
user. So what tells is put in its place for as long as a recording lasts: a wrapper with a clock
around each kernel (`told_wrapper`), another body for each check of guards (`watch`). When the last
recording ends, all is what it was: nobody pays for what nobody reads.

Seconds are the host's. A kernel on the CPU has ended by then; one on a GPU has only been started.
In PyTorch: `torch.profiler`, and `TORCH_LOGS="cudagraphs"`.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from types import CodeType, FunctionType
from typing import Any
from unittest.mock import patch

from course_lib import compiler, events
from course_lib.guards import Check
from course_lib.runtime import CompiledGraph, cudagraphs
from course_lib.runtime.compiled import on_device
from course_lib.viz.pictures.runtime.kernel_limits import kernel_lines


class GuardsChecked(events.Event):
    """The hook asked whether an entry for the function `name` fits: it does if `held`."""

    name: str
    check: Check
    held: bool
    seconds: float

    @property
    def repeat_key(self) -> Hashable:
        """What it has in common with those of other calls (see `viz.recording`)."""
        return GuardsChecked, self.check, self.held


class KernelLaunched(events.Event):
    """A program called its `number`-th kernel: a generated one ('fused_add') or a library
    ('torch.addmm')."""

    name: str
    program: CompiledGraph
    number: int
    seconds: float

    @property
    def repeat_key(self) -> Hashable:
        """What it has in common with the launches of this kernel in other calls."""
        return KernelLaunched, self.program, self.number

    @property
    def kernel(self) -> Any:
        """The `FusedKernel` or `ExternKernel`, which knows the operations it came from."""
        return self.program.schedule.kernels[self.number]


class CudaGraphReplayed(events.Event):
    """All kernels of a program were started at once, from a CUDA graph recorded before."""

    program: Any
    seconds: float

    @property
    def repeat_key(self) -> Hashable:
        """What it has in common with the other replays of this program."""
        return CudaGraphReplayed, self.program


# ---- launches ------------------------------------------------------------------------------------

_told: weakref.WeakKeyDictionary[CompiledGraph, Callable[..., Any]] = weakref.WeakKeyDictionary()
"""Program → what runs in its place while somebody records."""


def call_told(program: CompiledGraph, *inputs: Any) -> tuple[Any, ...]:
    """Stands in for `CompiledGraph.__call__`."""
    if program not in _told:
        _told[program] = told_wrapper(program)
    result: tuple[Any, ...] = _told[program](*inputs)
    return result


def told_wrapper(program: CompiledGraph) -> Callable[..., Any]:
    """The program's wrapper with a clock around each kernel, in the same namespace."""
    outer: Any = program.run
    # On a GPU `outer` is made by `on_device`. It closes over the wrapper itself, as `run`.
    closed_over = inspect.getclosurevars(outer).nonlocals
    wrapper: FunctionType = closed_over.get("run", outer)

    # Line → the number of the kernel that it starts, for lines that start one
    lines = kernel_lines(program.wrapper_source)
    numbers = {line: number for number, line in enumerate(lines) if lines[line]}
    tree = ast.parse(program.wrapper_source)
    function = next(node for node in tree.body if isinstance(node, ast.FunctionDef))

    # Two more parameters for the clock. Their defaults are set below, on the function itself.
    function.args.kwonlyargs = [ast.arg("_now"), ast.arg("_tell")]
    function.args.kw_defaults = [None, None]

    # each line that starts a kernel, between two lines of the clock
    body: list[ast.stmt] = []
    for statement in function.body:
        number = numbers.get(statement.lineno)
        if number is None:
            body.append(statement)
        else:
            body += ast.parse("_start = _now()").body
            body.append(statement)
            body += ast.parse(f"_tell({number}, _now() - _start)").body
    function.body = body

    module = compile(ast.fix_missing_locations(tree), wrapper.__code__.co_filename, "exec")
    code = next(constant for constant in module.co_consts if isinstance(constant, CodeType))
    names = list(lines.values())

    # `_told` has the program as a weak key: what it holds must not keep the program alive.
    behind = weakref.ref(program)

    def tell(number: int, seconds: float) -> None:
        if (alive := behind()) is not None:
            events.emit(KernelLaunched(names[number], alive, number, seconds))

    timed_wrapper = FunctionType(code, wrapper.__globals__, wrapper.__name__)
    timed_wrapper.__kwdefaults__ = {"_now": time.perf_counter, "_tell": tell}
    if "device" in closed_over:
        return on_device(closed_over["device"], timed_wrapper)
    return timed_wrapper


def play_told(
    recording: cudagraphs.Recording,
    inputs: Any,
    play: Callable[..., Any] = cudagraphs.Recording.play,
) -> Any:
    """Stands in for `cudagraphs.Recording.play`."""
    start = time.perf_counter()
    result = play(recording, inputs)
    events.emit(CudaGraphReplayed(recording.program, time.perf_counter() - start))
    return result


# ---- guards --------------------------------------------------------------------------------------

_watched: dict[Check, CodeType] = {}
"""A check that tells → its own body, to be put back."""


def watch(check: Check) -> None:
    """Let a check tell each time it is asked.

    The hook holds its function, so the function stays and gets another body.

    A function of somebody else's (an exercise's answer) is left alone: other code may call it."""
    # Our own checks run in a namespace of theirs, `names`.
    namespace = getattr(check, "names", None)
    own = isinstance(check.function, FunctionType) and check.function.__globals__ is namespace
    if check in _watched or not own:
        return
    _watched[check] = check.function.__code__
    original = FunctionType(check.function.__code__, check.function.__globals__)

    def tell(*args: Any) -> bool:
        start = time.perf_counter()
        held: bool = original(*args)
        events.emit(GuardsChecked(check.name, check, held, time.perf_counter() - start))
        return held

    check.function.__globals__["__told"] = tell
    check.function.__code__ = TOLD.__code__


def TOLD(*args: Any) -> bool:
    """The body of a check that tells; `__told` is its own."""
    return __told(*args)  # type: ignore[name-defined]  # noqa: F821


def watch_new(event: events.Event) -> None:
    """A listener: checks that are made from now on tell, too."""
    if isinstance(event, events.GuardsMade):
        watch(event.check)


def watch_all() -> None:
    """Watch every check that some compiled function has."""
    for live_compiler in list(compiler.live):
        for state in list(live_compiler.codes.values()):
            for entry in state.entries:
                watch(entry.check)


def watch_none() -> None:
    """Every check as it was."""
    for check, code in _watched.items():
        check.function.__code__ = code
        del check.function.__globals__["__told"]
    _watched.clear()


# ---- while somebody records ----------------------------------------------------------------------

_lock = threading.Lock()
_recordings = 0
"""How many recordings last at this moment. The first one changes all; the last one puts it back."""


@contextlib.contextmanager
def telling() -> Iterator[None]:
    """Within, calls of compiled code are events, on all threads."""
    global _recordings, _inside
    with _lock:
        _recordings += 1
        if _recordings == 1:
            _inside = contextlib.ExitStack()
            _inside.enter_context(patch.object(CompiledGraph, "__call__", call_told))
            _inside.enter_context(patch.object(cudagraphs.Recording, "play", play_told))
            _inside.enter_context(events.listener(watch_new))
            _inside.callback(watch_none)
            watch_all()
    try:
        yield
    finally:
        with _lock:
            _recordings -= 1
            if _recordings == 0:
                _inside.close()


_inside = contextlib.ExitStack()
"""What is changed while somebody records: closed, it undoes that."""
