"""What one eager call costs, layer by layer and size by size: the measurements and pictures of
lesson 01.

In:  nothing but this machine. Out: `Samples`, rates, and `Picture`s.

`ladder` times calls that each go one layer deeper into PyTorch than the one before: into C++,
through the dispatcher, to a kernel, with a fresh result, with a record for backward. On four
elements the sums take no time: what is measured is the way.
In PyTorch: `torch/csrc/autograd/generated/python_torch_functions_*.cpp` (binding),
`aten/src/ATen/core/dispatch/Dispatcher.h`, `torch/csrc/autograd/generated/VariableType_*.cpp`,
`aten/src/ATen/native/cpu/BinaryOpsKernel.cpp`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from course_lib.bench.measure import Call, Samples, human_time, interleaved
from course_lib.viz.kit.style import NORMAL, SMALL, Picture, human_bytes, plural
from course_lib.viz.kit.svg import Svg, text_width


@dataclass(frozen=True)
class Rung:
    """One layer of an eager call: what is timed, what that adds to the rung above, and what happens
    there."""

    code: str
    layer: str
    adds: str


RUNGS = (
    Rung("nothing(x, y)", "Python", "looks up the name, makes a frame"),
    Rung("x.is_floating_point()", "binding", "into C++ and back: unpack, wrap"),
    Rung("x.detach()", "dispatcher", "keys choose a kernel; a new tensor"),
    Rung("torch.add(x, y, out=z)", "kernel", "shapes, dtypes, strides; then 4 sums"),
    Rung("torch.add(x, y)", "+ allocation", "memory for the result"),
    Rung("torch.add(w, y)", "+ autograd", "first, a node for backward"),
)
"""Each costs what the one before costs and more. `z` is a buffer that is there already."""
WAY = 4
"""The first four are the way down; the others do more on the same way."""


def nothing(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The shortest Python function of two arguments."""
    return x


def ladder(elements: int = 4, rounds: int = 60, min_time: float = 0.0003) -> dict[str, Samples]:
    """Time the calls of `RUNGS` on tensors of `elements` float32 numbers.

    Returns the code of each → its samples."""
    x, y, z = torch.randn(elements), torch.randn(elements), torch.empty(elements)
    w = torch.randn(elements, requires_grad=True)
    add = torch.add  # looked up once: only the calls are timed

    calls: tuple[Call, ...] = (
        lambda: nothing(x, y),
        lambda: x.is_floating_point(),
        lambda: x.detach(),
        lambda: add(x, y, out=z),
        lambda: add(x, y),
        lambda: add(w, y),
    )
    call_by_code = {rung.code: call for rung, call in zip(RUNGS, calls, strict=True)}
    with torch.enable_grad():
        return interleaved(call_by_code, rounds, min_time)


def copy_bandwidth(megabytes: int = 256, rounds: int = 7) -> float:
    """Bytes/s that a plain copy between two buffers reads and writes: the most that a memory-bound
    kernel can hope for.

    Both buffers are far larger than any cache, and both were written to before: no page of them is
    touched for the first time."""
    # 4 bytes a number; each copy reads all of them and writes all of them
    source = torch.ones(megabytes * 1_000_000 // 4)
    target = torch.zeros_like(source)
    samples = interleaved({"copy": lambda: target.copy_(source)}, rounds, min_time=0)["copy"]
    return 2 * source.nbytes / samples.median


def matmul_peak(size: int = 1024, rounds: int = 7) -> float:
    """FLOP/s of the library's matrix product: the arithmetic that this machine gives in practice,
    not on its data sheet."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    samples = interleaved({"matmul": lambda: torch.mm(a, b, out=out)}, rounds, min_time=0)["matmul"]
    # one multiplication and one addition for each of size³ pairs
    return 2 * size**3 / samples.median


# ---- the way down, as a picture ------------------------------------------------------------------

LAYER, WHAT, CODE, BAR, STEP = 108, 286, 164, 104, 46
"""px: how wide the columns are, and how tall a layer is."""
X_LAYER, X_WHAT = 2, LAYER + 10
X_CODE = LAYER + WHAT + 14
X_BAR = LAYER + WHAT + CODE + 20
"""px: where the columns begin."""


def call_stack(samples: Mapping[str, Samples]) -> Picture:
    """The layers of one eager call from top to bottom, and how long a call takes that goes down to
    each."""
    median_of_rung = {rung: samples[rung.code].median for rung in RUNGS}
    longest = max(median_of_rung.values())

    svg = Svg(X_BAR + BAR + 76, 30 + STEP * len(RUNGS) + 4)
    svg.text(X_LAYER, 16, "layer", SMALL, dim=True)
    svg.text(X_WHAT, 16, "what happens there", SMALL, dim=True)
    svg.text(X_CODE, 16, "a call that goes so far", SMALL, dim=True)
    svg.text(X_BAR, 16, "takes in all", SMALL, dim=True)

    rows = []
    for number, rung in enumerate(RUNGS):
        seconds = median_of_rung[rung]
        draw_rung(svg, number, rung, BAR * seconds / longest, human_time(seconds))
        rows.append(f"{rung.layer:<13} {rung.code:<23} {human_time(seconds)}")

    layers_in_words = "; ".join(f"{rung.layer}: {rung.adds}" for rung in RUNGS)
    alt = f"The layers of one eager call, from Python to the kernel: {layers_in_words}."
    caption = "One eager call, layer by layer. Each bar is a whole call that goes down to that layer; at most four sums are done."
    return Picture(svg.render(alt), caption, alt, "\n".join(rows))


def draw_rung(svg: Svg, number: int, rung: Rung, bar: float, time_text: str) -> None:
    """A layer: what happens there, a call that goes so far, and a bar of its time, `bar` px
    long."""
    y = 26 + STEP * number
    # The deeper the layer, the darker its box
    layer = (X_LAYER, y, LAYER + WHAT - 4, STEP - 8)
    svg.box(*layer, "eager", radius=4, strength=0.08 + 0.05 * number, line=1.4)
    svg.text(12, y + 24, rung.layer, bold=True)
    svg.text(X_WHAT, y + 24, rung.adds, NORMAL)
    svg.text(X_CODE, y + 24, rung.code, 12, mono=True)

    svg.box(X_BAR, y + 8, max(2.0, bar), STEP - 24, "eager", radius=3, strength=0.45)
    svg.text(X_BAR + bar + 8, y + 24, time_text)

    # A call comes to this layer through the one above it.
    if 0 < number < WAY:
        svg.arrow([(LAYER - 6, y - 9), (LAYER - 6, y + 7)], line=1.4)


# ---- trips through memory ------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One operation of a chain: what it does, the buffers that it reads, and the one that it
    writes."""

    label: str
    reads: tuple[str, ...]
    writes: str


OP, BETWEEN, DEEP = 74, 88, 176
"""px: how wide an operation is, the gap to the next, and how tall a row is."""


def round_trips(chain: Sequence[Step], nbytes: Mapping[str, int]) -> Picture:
    """A chain twice: each operation alone, so that every result goes out to memory and back, and
    all of it as one kernel.

    Each step reads what the step before wrote, and perhaps inputs besides. The last step's buffer
    is the result."""
    alone = [name for step in chain for name in (*dict.fromkeys(step.reads), step.writes)]
    results = {step.writes for step in chain}
    inputs = dict.fromkeys(name for step in chain for name in step.reads if name not in results)
    fused = [*inputs, chain[-1].writes]
    headings = [
        trips_in_words("eager", len(chain), alone, nbytes),
        trips_in_words("fused", 1, fused, nbytes),
    ]

    svg = Svg(BETWEEN + (OP + BETWEEN) * len(chain) + 8, 2 * DEEP + 44)
    for row, heading in enumerate(headings):
        top = row * (DEEP + 24)
        svg.text(2, 16 + top, heading, bold=True)
        draw_lane(svg, chain, nbytes, 28 + top, fused=row == 1)

    alt = f"{'. '.join(headings)}."
    caption = "Memory above, the processor below, time to the right. Each arrow is a trip; eager sends every t out and back."
    return Picture(svg.render(alt), caption, alt, "\n".join(headings))


def trips_in_words(
    name: str, kernels: int, buffers: Sequence[str], nbytes: Mapping[str, int]
) -> str:
    """'eager: 3 kernels, 7 trips, 1.2 MB through memory'; a trip for each of `buffers`."""
    bytes_moved = human_bytes(sum(nbytes[buffer] for buffer in buffers))
    return (
        f"{name}: {plural(kernels, 'kernel')}, {len(buffers)} trips, {bytes_moved} through memory"
    )


def draw_lane(
    svg: Svg, chain: Sequence[Step], nbytes: Mapping[str, int], top: float, fused: bool
) -> None:
    """One row: cylinders in memory, boxes below, an arrow for each trip."""
    lane = Lane(svg, chain, nbytes, top, fused)
    if fused:
        wide = (OP + BETWEEN) * len(chain) - BETWEEN + 28
        low = lane.bottom - 58
        svg.box(BETWEEN - 14, low, wide, 68, lane.stage, strength=0.08, line=3.5)

    for i in range(len(chain)):
        lane.draw_operation(i)
        lane.draw_other_inputs(i)
        if i == 0:
            lane.draw_first_input()
        if i == 0 or not fused:
            lane.draw_trip_down(i)
        if i == len(chain) - 1 or not fused:
            lane.draw_trip_up(i)
        else:
            lane.draw_staying(i)


@dataclass(frozen=True)
class Lane:
    """The chain in one row: each operation as a kernel of its own, or all of it as one
    (`fused`)."""

    svg: Svg
    chain: Sequence[Step]
    nbytes: Mapping[str, int]
    top: float
    fused: bool

    @property
    def stage(self) -> str:
        return "scheduling" if self.fused else "eager"

    @property
    def bottom(self) -> float:
        return self.top + DEEP - 30

    @property
    def middle(self) -> float:
        """px: the middle of the operations."""
        return self.bottom - 24

    def left(self, i: int) -> float:
        """px: where an operation begins."""
        return BETWEEN + (OP + BETWEEN) * i

    def before(self, i: int) -> str | None:
        """The buffer that the operation before wrote; None for the first operation."""
        return self.chain[i - 1].writes if i else None

    def draw_operation(self, i: int) -> None:
        stage, line = ("lowering", 1.5) if self.fused else (self.stage, 3)
        x = self.left(i)
        self.svg.box(x, self.bottom - 48, OP, 48, stage, radius=4, line=line)
        label = self.chain[i].label
        self.svg.text(x + OP / 2, self.middle + 5, label, bold=True, anchor="middle")

    def draw_other_inputs(self, i: int) -> None:
        """Inputs that join on the way come from memory, straight down."""
        if i == 0:
            return
        x = self.left(i) + OP / 2
        # The arrow ends above the operation, or above the frame around all of them.
        end = self.bottom - (60 if self.fused else 51)
        for name in dict.fromkeys(self.chain[i].reads):
            if name != self.before(i):
                buffer(self.svg, x, self.top, name, self.nbytes[name], "eager")
                trip(self.svg, [(x, self.top + 40), (x, end)], self.nbytes[name], self.stage, 8)

    def draw_first_input(self) -> None:
        name = self.chain[0].reads[0]
        buffer(self.svg, self.left(0) - BETWEEN / 2, self.top, name, self.nbytes[name], "eager")

    def draw_trip_down(self, i: int) -> None:
        """An arrow from memory into the operation."""
        x = self.left(i)
        down = x - BETWEEN / 2
        if i:
            # the same gap holds the arrow up from the operation before
            down += 18
        end = x - (17 if self.fused else 3)

        read = self.before(i) or self.chain[i].reads[0]
        size = self.nbytes[read]
        way = [(down, self.top + 40), (down, self.middle), (end, self.middle)]
        trip(self.svg, way, size, self.stage, 6)

    def draw_trip_up(self, i: int) -> None:
        """An arrow from the operation to its result in memory."""
        end = self.left(i) + OP
        column = end + BETWEEN / 2
        # the same gap holds the arrow down into the next operation
        up = column - 18 if i < len(self.chain) - 1 else column
        name = self.chain[i].writes
        size = self.nbytes[name]
        buffer(self.svg, column, self.top, name, size, self.stage)

        start = end + (16 if self.fused else 2)
        way = [(start, self.middle), (up, self.middle), (up, self.top + 42)]
        trip(self.svg, way, size, self.stage, -6)

    def draw_staying(self, i: int) -> None:
        """A result that the next operation of the kernel takes from a register."""
        end = self.left(i) + OP
        way = [(end + 2, self.middle), (end + BETWEEN - 3, self.middle)]
        self.svg.arrow(way, stage=self.stage, line=1.4)
        label = f"{self.chain[i].writes} stays here"
        self.svg.text(end + BETWEEN / 2, self.middle - 8, label, SMALL, anchor="middle", dim=True)


def buffer(svg: Svg, middle: float, top: float, name: str, size: int, stage: str) -> None:
    """A cylinder with its name."""
    tip = f"{name}: {human_bytes(size)}"
    svg.cylinder(middle - 17, top + 8, 34, 28, stage, strength=0.3, tip=tip)
    svg.text(middle, top + 28, name, SMALL, anchor="middle", bold=True)


def trip(svg: Svg, points: list[tuple[float, float]], size: int, stage: str, side: float) -> None:
    """An arrow through memory with its bytes beside the upright part, `side` px to the right."""
    svg.arrow(points, stage=stage if stage != "eager" else None, line=3, opacity=0.7)

    # The upright part comes first on the way down, and last on the way up.
    (first_x, first_y), (last_x, last_y) = points[0], points[-1]
    x, anchor = (first_x, "start") if side > 0 else (last_x, "end")
    svg.text(x + side, (first_y + last_y) / 2, human_bytes(size), SMALL, anchor=anchor)


# ---- time per element against size ---------------------------------------------------------------

X0, Y0, WIDTH, HEIGHT = 92.0, 34.0, 515.0, 270.0
"""px: where the plot lies, and how large it is."""
SECONDS = (1e-10, 1e-4)
"""The vertical axis, the same on every machine, so that pictures compare."""


@dataclass(frozen=True)
class Plane:
    """Sizes to the right, seconds per element upwards, both logarithmic."""

    smallest: int
    largest: int

    def x(self, size: float) -> float:
        left, right = math.log10(self.smallest), math.log10(self.largest)
        return X0 + 14 + (WIDTH - 28) * (math.log10(size) - left) / (right - left)

    def y(self, seconds: float) -> float:
        """px; a value beyond the axis stands at its end."""
        low, high = map(math.log10, SECONDS)
        power = min(max(math.log10(seconds), low), high)
        return Y0 + HEIGHT * (high - power) / (high - low)


def time_per_element(sizes: Sequence[int], seconds: Mapping[str, Sequence[float]]) -> Picture:
    """A line for each name: seconds per element against the number of elements, both logarithmic.

    Eager is grey."""
    plane = Plane(sizes[0], sizes[-1])
    svg = Svg(X0 + WIDTH + 150, Y0 + HEIGHT + 46)
    draw_axes(svg, plane, sizes)
    for name, line in seconds.items():
        draw_line(svg, plane, name, sizes, line)
    for number, name in enumerate(seconds):
        draw_in_legend(svg, name, Y0 + 20 + 24 * number)

    rows = []
    for name, line in seconds.items():
        for size, seconds_of_call in zip(sizes, line, strict=True):
            rows.append(f"{name:<12} {size:>12,} elements: {human_time(seconds_of_call)} a call")
    alt = f"Time for each element of {' and '.join(seconds)}, from {sizes[0]} to {sizes[-1]:,} elements: steep, then flatter."
    caption = (
        "On the slope a call costs the same whatever it does; behind it each element has its price."
    )
    return Picture(svg.render(alt), caption, alt, "\n".join(rows))


def draw_axes(svg: Svg, plane: Plane, sizes: Sequence[int]) -> None:
    """The frame, a line for each power of ten and for each size, and what limits a call at either
    end."""
    right, bottom = X0 + WIDTH, Y0 + HEIGHT
    svg.text(X0, 16, "time for each element", SMALL, dim=True)

    # Up the plane, seconds: one line for each power of ten
    low, high = (round(math.log10(limit)) for limit in SECONDS)
    for power in range(low, high + 1):
        y = plane.y(10.0**power)
        svg.path(f"M{X0} {y:.1f} H{right}", line=1, opacity=0.14)
        svg.text(X0 - 8, y + 4, axis_time(10.0**power), SMALL, anchor="end")

    # Along it, numbers of elements: those that were measured
    for size in sizes:
        x = plane.x(size)
        svg.path(f"M{x:.1f} {Y0} V{bottom}", line=1, opacity=0.14)
        svg.text(x, bottom + 18, short_count(size), SMALL, anchor="middle")

    svg.path(f"M{X0} {Y0} V{bottom} H{right}", line=1.2, opacity=0.7)
    svg.text(X0 + WIDTH / 2, bottom + 40, "elements", SMALL, anchor="middle", dim=True)

    first, last = plane.x(sizes[0]) + 8, plane.x(sizes[-1]) - 8
    svg.text(first, bottom - 10, "◂ overhead-bound", SMALL, dim=True)
    svg.text(last, Y0 + 16, "memory-bound ▸", SMALL, anchor="end", dim=True)


def stage_of(name: str) -> str:
    """Eager is grey."""
    if "eager" in name:
        return "eager"
    return "codegen"


def draw_point(svg: Svg, x: float, y: float, stage: str, tip: str = "") -> None:
    """A round one for eager, a square one for the others."""
    radius = 4.5 if stage == "eager" else 1
    svg.box(x - 4.5, y - 4.5, 9, 9, stage, radius=radius, strength=0.7, tip=tip)


def draw_line(
    svg: Svg, plane: Plane, name: str, sizes: Sequence[int], seconds: Sequence[float]
) -> None:
    """The calls of one name; `seconds`: how long a call took, for each size."""
    stage = stage_of(name)
    points = []
    for size, seconds_of_call in zip(sizes, seconds, strict=True):
        points.append((plane.x(size), plane.y(seconds_of_call / size)))

    way = " L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    svg.path(f"M{way}", stage=stage, line=2.4, opacity=1)
    for (x, y), seconds_of_call in zip(points, seconds, strict=True):
        draw_point(svg, x, y, stage, f"{name}: {human_time(seconds_of_call)} a call")


def draw_in_legend(svg: Svg, name: str, y: float) -> None:
    stage, left = stage_of(name), X0 + WIDTH + 14
    svg.path(f"M{left} {y} h30", stage=stage, line=2.4, opacity=1)
    draw_point(svg, left + 15, y, stage)
    svg.text(left + 38, y + 4, name)


def axis_time(seconds: float) -> str:
    """A power of ten with its unit: '100 ns'."""
    for unit, size in (("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        # a power of ten may come out a little too small
        if seconds >= 0.99 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 1e-9:.1f} ns"


def short_count(count: int) -> str:
    """4096 → '4k', 16777216 → '16M' (powers of two, as sizes are)."""
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if count >= size:
            return f"{count / size:g}{unit}"
    return str(count)


def text_fits() -> bool:
    """Every explanation fits its box (held by a test)."""
    return all(text_width(rung.adds) <= WHAT - 16 for rung in RUNGS)
