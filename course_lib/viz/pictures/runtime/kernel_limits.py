"""What each kernel of a program has to do, how long it takes, and so where it stands under the
roofline.

In:  a `Recording`, and the two limits of a machine.
Out: `works_of`: operations and bytes of each kernel, counted in its formulas. `measure`: seconds of
     each kernel, read off the lines of the generated wrapper while it runs. `kernel_roofline`: both
     as one `Picture`.

An operation is one `add`, `mul`, `exp`, ... on one element, also a step of a reduction;
comparisons, conversions and choices are not counted. What a library computes is counted by the
rules of `torch.utils.flop_counter`. Bytes are those that the scheduler counted.
In PyTorch: `torch.utils.flop_counter`, `torch._inductor.utils.count_flops`, and Nsight Compute's
roofline of measured kernels.
"""

from __future__ import annotations

import ast
import contextlib
import linecache
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.utils.flop_counter import flop_registry

from course_lib import events
from course_lib.lowering.ops import BINARY, BOOLEAN, UNARY
from course_lib.scheduling.expressions import Expr, trees_of
from course_lib.viz.kit.arguments import RECORDED, positive, several, takes
from course_lib.viz.kit.roofline import Point, lower, roofline
from course_lib.viz.kit.style import Picture, human_bytes, human_seconds, plural
from course_lib.viz.kit.tables import breakable, columns, html_table
from course_lib.viz.pictures.graphs.fx_graphs import bare, op_name
from course_lib.viz.pictures.lowering.loop_formulas import is_extern

ARITHMETIC = frozenset((*UNARY, *BINARY)) - BOOLEAN
"""The virtual operations that are counted."""
HOUSEKEEPING = frozenset(
    ("empty_strided", "empty_cuda", "as_strided", "zeros", "check", "laid_out")
)
"""What a wrapper calls beside kernels."""
MARK = getattr(torch._C._profiler, "_RecordFunctionFast", torch.profiler.record_function)
"""Names a stretch of time in torch's profile. The first costs a tenth of the second (torch's own
kernels use it), and not every torch has it."""
WARM_UP = 2
"""Runs before kernels are timed: the first ones fetch code and memory."""


@dataclass(frozen=True)
class Work:
    """One kernel: the operations it computes and the bytes it reads and writes."""

    name: str
    operations: int
    bytes: int
    is_library: bool


def works_of(recording: Any, index: int = 0) -> list[Work]:
    """What each kernel of one compiled graph has to do, in the order in which they run."""
    schedule = recording.of(events.Scheduled)[index].schedule
    graph = recording.of(events.Lowered)[index].graph
    buffers = dict(graph.buffers)
    for kernel in schedule.kernels:
        buffers |= {buffer.name: buffer for buffer in every_buffer(kernel)}

    works = []
    for kernel, group in zip(schedule.kernels, schedule.groups, strict=True):
        if is_extern(kernel):
            name = op_name(kernel.origins[0]) if kernel.origins else kernel.label
            operations = sum(map(library_operations, kernel.origins))
            if not kernel.is_library:
                name = kernel.name
            works.append(Work(bare(name), operations, group.traffic, kernel.is_library))
        else:
            operations = operations_of(kernel, buffers)
            works.append(Work(kernel.name, operations, group.traffic, False))
    return works


def every_buffer(kernel: Any) -> Sequence[Any]:
    """What a kernel writes, to memory or not."""
    if is_extern(kernel):
        return kernel.buffers
    return [step.buffer for step in kernel.steps]


def operations_of(kernel: Any, buffers: Mapping[str, Any]) -> int:
    """The operations of a generated kernel: what its formulas say, times the elements that they are
    computed for. What two formulas share is computed once."""
    # A kernel with a reduction does some work once a row, and the rest in each cell of the row.
    rows = math.prod(loop.size for loop in kernel.rows)
    cells = math.prod(loop.size for loop in kernel.loops)
    trees, _ = trees_of(kernel, buffers)
    visited: set[Expr] = set()
    total = 0
    for step, tree in trees.items():
        new = [node for node in tree.walk() if node not in visited]
        visited.update(new)

        # Each step of a reduction combines once more.
        operations_per_element = sum(node.op in ARITHMETIC for node in new) + step.is_reduction
        once_a_row = step.level == "row" and not step.is_reduction
        total += operations_per_element * (rows if once_a_row else cells)
    return total


def library_operations(node: fx.Node) -> int:
    """The operations of a product, a convolution or an attention; 0 for others."""
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    # torch counts attention only by its operators for GPUs.
    name = name.replace("_for_cpu", "")
    rule = flop_registry.get(getattr(torch.ops.aten, name, None))
    if rule is None:
        return 0

    def value_of(one: fx.Node) -> Any:
        return one.meta["val"]

    args, kwargs = fx.map_arg(node.args, value_of), fx.map_arg(node.kwargs, value_of)
    return int(rule(*args, **kwargs, out_val=value_of(node)))


# ---- seconds -------------------------------------------------------------------------------------


def measure(recording: Any, index: int = 0, rounds: int = 15) -> list[float]:
    """Seconds that each kernel of one compiled graph takes: the median of several runs of its
    wrapper on made-up inputs.

    Raises LookupError if the graph's inputs cannot be made up."""
    compiled = recording.of(events.KernelsBuilt)[index].compiled
    graph = recording.of(events.Lowered)[index].graph
    if None in graph.inputs:
        raise LookupError("this graph has an input that is no tensor: it cannot be run alone")

    inputs = [made_up(buffer) for buffer in graph.inputs]
    lines = kernel_lines(compiled.wrapper_source)
    for _ in range(WARM_UP):
        compiled(*inputs)
    runs = [line_times(compiled, inputs) for _ in range(rounds)]
    return [statistics.median(run.get(line, 0.0) for run in runs) for line in lines]


def made_up(buffer: Any) -> torch.Tensor:
    """A tensor like a buffer. Whole numbers are 0: they may be indices."""
    tensor = torch.empty_strided(
        buffer.shape, buffer.stride, dtype=buffer.dtype, device=buffer.device
    )
    if buffer.dtype.is_floating_point:
        return tensor.normal_()
    return tensor.zero_()


def kernel_lines(source: str) -> dict[int, str]:
    """Line of a wrapper that calls a kernel → what it calls: 'fused_add', 'torch.addmm'; '' for a
    kernel with nothing to do (the wrapper has a `pass` for it)."""
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
    kernel_of_line = {}
    for statement in function.body:
        calls = [
            ast.unparse(node.func) for node in ast.walk(statement) if isinstance(node, ast.Call)
        ]
        if isinstance(statement, ast.Pass) or (calls and not HOUSEKEEPING.intersection(calls)):
            kernel_of_line[statement.lineno] = calls[0] if calls else ""
    return kernel_of_line


@contextlib.contextmanager
def at_each_line(hear: Callable[[str, int], None]) -> Iterator[None]:
    """Within, `hear(file, line)` is called when a generated wrapper comes to a line; 0 when it is
    through.

    It is Python's own tracing of this thread: a debugger's is put aside for as long."""

    def at_line(frame: Any, event: str, _: Any) -> Any:
        if event in ("line", "return"):
            hear(frame.f_code.co_filename, frame.f_lineno if event == "line" else 0)
        return at_line

    def at_call(frame: Any, *_: Any) -> Any:
        is_wrapper = frame.f_code.co_filename.startswith("<course_lib program")
        return at_line if is_wrapper else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        yield
    finally:
        sys.settrace(before)


def line_times(compiled: Any, inputs: Sequence[torch.Tensor]) -> dict[int, float]:
    """One run: line of the wrapper → seconds, with the time that a GPU needs for it."""
    on_gpu = any(x.is_cuda for x in inputs)
    seconds_of_line: dict[int, float] = {}
    # The line that runs now, and when it began. (What is counted for line 0, before the first one,
    # is no kernel's.)
    line = 0
    since = 0.0

    def take_time(_: str, next_line: int) -> None:
        nonlocal line, since
        if on_gpu:
            torch.cuda.synchronize()
        seconds_of_line[line] = seconds_of_line.get(line, 0.0) + time.perf_counter() - since
        line = next_line
        since = time.perf_counter()

    with at_each_line(take_time):
        compiled(*inputs)
    return seconds_of_line


@contextlib.contextmanager
def kernels_in_profile() -> Iterator[None]:
    """Within, torch's profiler hears of generated kernels by their names; by itself it knows only
    operators and GPU kernels."""
    lines: dict[str, dict[int, str]] = {}
    # The mark of the kernel that runs now, or nothing
    running: list[Any] = []

    def mark_kernel(file: str, line: int) -> None:
        if running:
            running.pop().__exit__(None, None, None)
        if file not in lines:
            lines[file] = kernel_lines("".join(linecache.getlines(file)))
        name = lines[file].get(line, "")
        # An operator of torch ('torch.addmm') is in the profile by itself.
        if name and "." not in name:
            running.append(MARK(name))
            running[-1].__enter__()

    with at_each_line(mark_kernel):
        yield


# ---- the picture ---------------------------------------------------------------------------------


@takes(recording=RECORDED)
def kernel_roofline(
    recording: Any,
    bandwidth: float,
    peak: float,
    index: int = 0,
    seconds: Sequence[float] | None = None,
) -> Picture:
    """Each kernel of one compiled graph as a point under the limits of a machine: `bandwidth` in
    bytes/s, `peak` in FLOP/s.

    `seconds` are times measured elsewhere, one for each kernel in order; without them the kernels
    are run and timed here. A kernel that computes nothing stands in the table only."""
    positive(bandwidth, "bandwidth, in bytes/s,")
    positive(peak, "peak, in FLOP/s,")
    if not recording.of(events.KernelsBuilt):
        raise LookupError("no kernel was built while recording: there is nothing to time")
    # What a kernel has to do is counted from its loops, not measured
    works = works_of(recording, index)
    if seconds is None:
        times = measure(recording, index)
    else:
        checked_seconds = several(seconds, "seconds is a list of numbers")
        times = [
            positive(time_of_kernel, "the seconds of a kernel")
            for time_of_kernel in checked_seconds
        ]
    if len(times) != len(works):
        raise ValueError(f"{len(works)} kernels need as many times, not {len(times)}")

    points = []
    for work, seconds_of_kernel in zip(works, times, strict=True):
        point = Point(work.name, work.operations, work.bytes, seconds_of_kernel)
        points.append((point, work.is_library))
    return drawn(points, bandwidth, peak)


def drawn(
    points: Sequence[tuple[Point, bool]], bandwidth: float, peak: float, caption: str = ""
) -> Picture:
    """Points and a table of them. The text has no times: they differ from run to run."""
    # Both axes are logarithmic: 0 has no place on them.
    placed = [point for point, _ in points if point.flops and point.bytes and point.seconds]
    if not placed:
        raise LookupError(
            "no kernel of this graph computes anything: there is nothing to place under a roofline"
        )

    # Many names would cover each other: then their numbers in the table must do.
    named_points = placed
    if len(placed) > MOST_NAMES:
        named_points = []
        for number, (point, _) in enumerate(points, 1):
            if point in placed:
                named_points.append(replace(point, name=str(number)))
    picture = roofline(named_points, bandwidth, peak, caption or CAPTION)

    rows, plain_rows = [], []
    for number, (point, is_library) in enumerate(points, 1):
        name = f"{point.name} (library)" if is_library else point.name
        work = work_in_words(point)
        waits_for = "–"
        if point.bytes:
            waits_for = lower(point, bandwidth, peak)
        time_text = human_seconds(point.seconds)
        share = share_of_roof(point, bandwidth, peak)
        cells = (str(number), name, *work, time_text, share, waits_for)
        rows.append([breakable(cell) for cell in cells])
        plain_rows.append((name, *work, waits_for))

    # Flush right: all columns but the name's
    body = picture.body + html_table(rows, HEADER, numbers=(0, 2, 3, 4, 5, 6))
    text = columns(plain_rows, ("kernel", "operations", "bytes", "FLOP/B", "waits for"))
    kernels_in_words = "; ".join(f"{row[0]} waits for {row[-1]}" for row in plain_rows)
    alt = f"Roofline of {plural(len(points), 'kernel')}: {kernels_in_words}."
    return Picture(f'<div class="cl-scroll">{body}</div>', picture.caption, alt, text)


def work_in_words(point: Point) -> tuple[str, str, str]:
    """Operations, bytes, and operations for each byte."""
    intensity = "–"
    if point.bytes:
        intensity = f"{point.intensity:.3g}"
    return count(point.flops), human_bytes(point.bytes), intensity


def share_of_roof(point: Point, bandwidth: float, peak: float) -> str:
    """'37 %': the least time in which the machine could run this kernel, as a share of the time
    that the kernel took."""
    if not point.seconds:
        return "–"
    least = max(point.bytes / bandwidth, point.flops / peak)
    return f"{100 * least / point.seconds:.0f} %"


MOST_NAMES = 6
"""How many kernels get their name in the drawing."""
CAPTION = (
    "Each point is a kernel that was run and timed; above the slope, its data were still in the caches; above the flat roof, "
    "the machine was busy while its peak was measured."
)
HEADER = ("", "kernel", "operations", "bytes", "FLOP/B", "time", "of the roof", "waits for")


def count(number: float) -> str:
    """1048576 → '1.05 M'."""
    for scale, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= scale:
            return f"{number / scale:.3g} {unit}"
    return f"{number:.0f}"
