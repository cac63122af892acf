"""What the compiler tells about itself: one small record for each thing that happens.

The compiler never draws and never prints. It calls `emit(SomeEvent(...))`, for whoever listens (a
`Recording`, a log, nobody).
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
    """Base of all records, which are dataclasses.

    They hold plain data or the compiler's own objects, never pictures."""

    def __init_subclass__(cls) -> None:
        # Two events are never equal, though they may say the same.
        dataclass(eq=False)(cls)


# --- capture


class FrameSeen(Event):
    """The hook met a frame for which it has no compiled code that fits."""

    name: str
    where: str
    code: Any = field(repr=False, default=None)


class InstructionRun(Event):
    """The symbolic interpreter ran one instruction."""

    offset: int
    op: str
    arg: str
    function: str
    filename: str
    line: int
    # How many inlined calls deep
    depth: int
    # The stack, as a list of short texts
    before: tuple[str, ...]
    after: tuple[str, ...]
    # Name of the FX node that this instruction added, if any
    node: str = ""


class GraphBroke(Event):
    """Capture stopped. `problem` is the `Unsupported` with reason, place and hint."""

    problem: Any
    # The program got it as an error (`fullgraph=True`): nothing runs in the frame's place
    raised: bool = False


class GraphCaptured(Event):
    """Capture finished. `result` is the `CaptureResult`: graph, guards, head."""

    result: Any


# --- guards and the cache


class GuardsMade(Event):
    """What must hold for compiled code to be used again: the `Check`."""

    check: Any


class GuardFailed(Event):
    """A call did not fit an entry.

    `guard` is the first that failed, and `got` says what was found instead."""

    name: str
    guard: Any
    got: str


class Recompiled(Event):
    """A code object that had entries got one more."""

    name: str
    entries: int


class FellBack(Event):
    """Something runs in eager after all, and why."""

    what: str
    why: str


class SizesAreSymbols(Event):
    """A graph is compiled once for all sizes.

    `sizes` is the `Sizes`: the symbols, their hints, and what was asked about them."""

    sizes: Any


class SizesAreNumbers(Event):
    """A graph with symbolic sizes is compiled for each set of sizes by itself, and why."""

    why: str


# --- from graph to kernels


class JointTraced(Event):
    """Autograd ran ahead of time: forward and backward in one graph, with a `Signature` in its
    `meta`."""

    graph: Any


class Partitioned(Event):
    """A joint graph was cut in two: the `Partition`."""

    partition: Any


class AtenTraced(Event):
    """The captured graph in core ATen operators."""

    graph: Any


class Lowered(Event):
    """The ATen graph as loops: the `LoopGraph`."""

    graph: Any


class Scheduled(Event):
    """Loops were grouped into kernels (`schedule.kernels`), with every fusion decision
    (`schedule.decisions`)."""

    schedule: Any


class MemoryPlanned(Event):
    """Which buffer lives where and when: the `MemoryPlan`."""

    plan: Any


class KernelsBuilt(Event):
    """Source became machine code: the `CompiledGraph`."""

    compiled: Any


class CacheEntry(Event):
    """The cache on disk was asked for a built file."""

    path: Path
    # It was found there (a hit); else it was built now (a miss)
    cached: bool


class Autotuned(Event):
    """What is fastest was found by measuring: the tile of a kernel, or which library computes a
    product."""

    # The generated kernel's name, or the product's `ExternKernel`
    kernel: Any
    choice: str
    # What was tried, and how long each took
    seconds: dict[str, float]
    # The most bytes that the whole program holds with each, where that was looked at
    peak_bytes: dict[str, int] = field(default_factory=dict)


class CudaGraphRecorded(Event):
    """A CUDA graph was recorded: the `number`-th of `program`."""

    program: Any
    number: int
    # How many of its inputs are copied in each call
    copied: int


class StageTimed(Event):
    """A stage took `seconds`."""

    stage: str
    seconds: float


# --- who listens

Words = Callable[[Any, Any], str]
"""(world, value) → how a listener wants a value of the interpreted program put."""

_listeners: list[tuple[Callable[[Event], None], Words | None]] = []
"""Who is told of each event, and what words it wants; the last one came last."""

StageWriter = Callable[[Callable[..., Any], bool], Callable[..., Any]]
"""(backend, with a diagram?) → the same backend, whose stages are written to files as it
compiles."""


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
    """Values of the interpreted program, as the last listener that has words wants them put; () if
    none does."""
    wanted = [words for _, words in _listeners if words]
    if not wanted:
        return ()

    words = wanted[-1]
    return tuple(words(world, value) for value in values)


@contextlib.contextmanager
def listener(function: Callable[[Event], None], words: Words | None = None) -> Iterator[None]:
    """Call `function` with every event within the block.

    `words` says what stands on the interpreter's stack."""
    _listeners.append((function, words))
    try:
        yield
    finally:
        _listeners.remove((function, words))


def stage(name: str, event: Any, function: Callable[..., Any], *args: Any) -> Any:
    """Run one stage of the pipeline, and tell how long it took and (`event`, a class) what it
    made."""
    start = time.perf_counter()
    try:
        result = function(*args)
    finally:
        emit(StageTimed(name, time.perf_counter() - start))
    if event:
        emit(event(result))
    return result
