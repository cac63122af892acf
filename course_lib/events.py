"""What the compiler tells about itself: one small record for each thing that happens.

The compiler never draws and never prints. It calls `emit(SomeEvent(...))`, for whoever listens (a `Recording`, a log, nobody).
In PyTorch: `torch._logging` (artifacts and `trace_structured`), read by `tlparse`.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Event:
    """Base of all records, which are dataclasses. They hold plain data or the compiler's own objects, never pictures."""

    def __init_subclass__(cls) -> None:
        dataclass(eq=False)(cls)


class FrameSeen(Event):  # The hook met a frame for which it has no compiled code that fits
    name: str
    where: str
    code: Any = field(repr=False, default=None)


class InstructionRun(Event):  # The symbolic interpreter ran one instruction
    offset: int
    op: str
    arg: str
    function: str
    filename: str
    line: int
    depth: int  # How many inlined calls deep
    before: tuple[str, ...]  # The stack, as a list of short texts
    after: tuple[str, ...]
    node: str = ""  # Name of the FX node that this instruction added, if any


class GraphBroke(Event):
    problem: Any  # Capture stopped: the `Unsupported` with reason, place and hint
    # The program got it as an error (`fullgraph=True`): nothing runs in the frame's place
    raised: bool = False


class GraphCaptured(Event):
    result: Any  # Capture finished: the `CaptureResult` (graph, guards, head)


class GuardsMade(Event):
    check: Any  # What must hold for compiled code to be used again: the `Check`


# A call did not fit an entry: `guard` is the first that failed, `got` says what was found instead
class GuardFailed(Event):
    name: str
    guard: Any
    got: str


class Recompiled(Event):  # A code object that had entries got one more
    name: str
    entries: int


class FellBack(Event):  # Something runs in eager after all, and why
    what: str
    why: str


class JointTraced(Event):
    # Autograd ran ahead of time: forward and backward in one, with a `Signature` in its `meta`
    graph: Any


class Partitioned(Event):
    partition: Any  # A joint graph was cut in two: the `Partition`


class AtenTraced(Event):
    graph: Any  # The captured graph in core ATen operators


class Lowered(Event):
    graph: Any  # The ATen graph as loops


class Scheduled(Event):
    # Loops grouped into kernels (`schedule.kernels`), with every fusion decision (`schedule.decisions`)
    schedule: Any


class MemoryPlanned(Event):
    plan: Any  # Which buffer lives where and when


class KernelsBuilt(Event):
    compiled: Any  # Source became machine code: the `CompiledGraph`


class CacheEntry(Event):  # The cache on disk was asked for a built file
    path: Path
    cached: bool  # It was found there (a hit); else it was built now (a miss)


# What is fastest was found by measuring: the tile of a kernel, or which library computes a product
class Autotuned(Event):
    kernel: Any  # The generated kernel's name, or the product's `ExternKernel`
    choice: str
    seconds: dict[str, float]  # What was tried, and how long each took


class CudaGraphRecorded(Event):  # A CUDA graph was recorded: the `number`-th of `program`
    program: Any
    number: int
    copied: int  # How many of its inputs are copied in each call


class StageTimed(Event):  # A stage took `seconds`
    stage: str
    seconds: float


# (world, value) → how a listener wants a value of the interpreted program put
Words = Callable[[Any, Any], str]
_listeners: list[tuple[Callable[[Event], None], Words | None]] = []


StageWriter = Callable[[Callable[..., Any], bool], Callable[..., Any]]
"""(backend, with a diagram?) → the same backend, whose stages are written to files as it compiles."""


def nobody_writes(backend: Callable[..., Any], diagram: bool) -> Callable[..., Any]:
    """The backend as it is."""
    return backend


write_stages: StageWriter = nobody_writes
"""What `trace.enabled` asks for. The compiler knows no pictures: `course_lib/__init__.py` puts the
writer of `viz` in this place."""


def listening() -> bool:
    """Is anybody interested? Ask before building an expensive record."""
    return bool(_listeners)


def emit(event: Event) -> None:
    """Tell every listener."""
    for tell, _ in _listeners:
        tell(event)


def in_words(world: Any, values: Iterable[Any]) -> tuple[str, ...]:
    """Values of the interpreted program, as the last listener that has words wants them put; () if none does."""
    words = [words for _, words in _listeners if words]
    return tuple(words[-1](world, value) for value in values) if words else ()


@contextlib.contextmanager
def listener(function: Callable[[Event], None], words: Words | None = None) -> Iterator[None]:
    """Call `function` with every event within the block. `words` says what stands on the interpreter's stack."""
    _listeners.append((function, words))
    try:
        yield
    finally:
        _listeners.remove((function, words))


def stage(name: str, event: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Run one stage of the pipeline, and tell how long it took and (`event`, a class) what it made."""
    start = time.perf_counter()
    try:
        result = function(*args)
    finally:
        emit(StageTimed(name, time.perf_counter() - start))
    if event:
        emit(event(result))
    return result
