"""What one eager call costs, layer by layer and size by size: the measurements and pictures of lesson 01.

In:  nothing but this machine. Out: `Samples`, rates, and `Picture`s.

`ladder` times calls that each go one layer deeper into PyTorch than the one before: into C++, through the dispatcher, to a
kernel, with a fresh result, with a record for backward. On four elements the sums take no time: what is measured is the way.
In PyTorch: `torch/csrc/autograd/generated/python_torch_functions_*.cpp` (binding), `aten/src/ATen/core/dispatch/Dispatcher.h`,
`torch/csrc/autograd/generated/VariableType_*.cpp`, `aten/src/ATen/native/cpu/BinaryOpsKernel.cpp`.
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
    """One layer of an eager call: what is timed, what that adds to the rung above, and what happens there."""

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
    """Time the calls of `RUNGS` on tensors of `elements` float32 numbers. Returns the code of each → its samples."""
    x, y, z = torch.randn(elements), torch.randn(elements), torch.empty(elements)
    w = torch.randn(elements, requires_grad=True)
    add = torch.add
    calls: tuple[Call, ...] = (
        lambda: nothing(x, y),
        lambda: x.is_floating_point(),
        lambda: x.detach(),
        lambda: add(x, y, out=z),
        lambda: add(x, y),
        lambda: add(w, y),
    )
    with torch.enable_grad():
        return interleaved(
            {rung.code: call for rung, call in zip(RUNGS, calls, strict=True)}, rounds, min_time
        )


def copy_bandwidth(megabytes: int = 256, rounds: int = 7) -> float:
    """Bytes/s that a plain copy between two buffers reads and writes: the most that a memory-bound kernel can hope for.

    Both buffers are far larger than any cache, and both were written to before: no page of them is touched for the first time."""
    source = torch.ones(megabytes * 1_000_000 // 4)
    target = torch.zeros_like(source)
    samples = interleaved({"copy": lambda: target.copy_(source)}, rounds, min_time=0)["copy"]
    return 2 * source.nbytes / samples.median


def matmul_peak(size: int = 1024, rounds: int = 7) -> float:
    """FLOP/s of the library's matrix product: the arithmetic that this machine gives in practice, not on its data sheet."""
    a, b, out = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
    samples = interleaved({"matmul": lambda: torch.mm(a, b, out=out)}, rounds, min_time=0)["matmul"]
    return 2 * size**3 / samples.median


# ---- the way down, as a picture --------------------------------------------------------------------------------------

LAYER, WHAT, CODE, BAR, STEP = 108, 286, 164, 104, 46


def call_stack(samples: Mapping[str, Samples]) -> Picture:
    """The layers of one eager call from top to bottom, and how long a call takes that goes down to each."""
    x_code, x_bar = LAYER + WHAT + 14, LAYER + WHAT + CODE + 20
    svg = Svg(x_bar + BAR + 76, 30 + STEP * len(RUNGS) + 4)
    for x, heading in (
        (2, "layer"),
        (LAYER + 10, "what happens there"),
        (x_code, "a call that goes so far"),
        (x_bar, "takes in all"),
    ):
        svg.text(x, 16, heading, SMALL, dim=True)
    longest = max(samples[rung.code].median for rung in RUNGS)
    for i, rung in enumerate(RUNGS):
        y = 26 + STEP * i
        svg.box(
            2, y, LAYER + WHAT - 4, STEP - 8, "eager", radius=4, strength=0.08 + 0.05 * i, line=1.4
        )
        svg.text(12, y + 24, rung.layer, bold=True)
        svg.text(LAYER + 10, y + 24, rung.adds, NORMAL)
        svg.text(x_code, y + 24, rung.code, 12, mono=True)
        took = samples[rung.code].median
        svg.box(
            x_bar,
            y + 8,
            max(2.0, BAR * took / longest),
            STEP - 24,
            "eager",
            radius=3,
            strength=0.45,
        )
        svg.text(x_bar + BAR * took / longest + 8, y + 24, human_time(took))
        if 0 < i < WAY:
            svg.arrow([(LAYER - 6, y - 9), (LAYER - 6, y + 7)], line=1.4)
    rows = [
        f"{rung.layer:<13} {rung.code:<23} {human_time(samples[rung.code].median)}"
        for rung in RUNGS
    ]
    alt = (
        "The layers of one eager call, from Python to the kernel: "
        + "; ".join(f"{r.layer}: {r.adds}" for r in RUNGS)
        + "."
    )
    caption = "One eager call, layer by layer. Each bar is a whole call that goes down to that layer; at most four sums are done."
    return Picture(svg.render(alt), caption, alt, "\n".join(rows))


# ---- trips through memory --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """One operation of a chain: what it does, the buffers that it reads, and the one that it writes."""

    label: str
    reads: tuple[str, ...]
    writes: str


OP, BETWEEN, DEEP = 74, 88, 176


def round_trips(chain: Sequence[Step], nbytes: Mapping[str, int]) -> Picture:
    """A chain twice: each operation alone, so that every result goes out to memory and back, and all of it as one kernel.

    Each step reads what the step before wrote, and perhaps inputs besides. The last step's buffer is the result."""
    made = {step.writes for step in chain}
    alone = [(name, step) for step in chain for name in (*dict.fromkeys(step.reads), step.writes)]
    inputs = dict.fromkeys(name for step in chain for name in step.reads if name not in made)
    totals = {
        "eager": sum(nbytes[name] for name, _ in alone),
        "fused": sum(nbytes[n] for n in (*inputs, chain[-1].writes)),
    }
    trips = {"eager": len(alone), "fused": len(inputs) + 1}
    svg = Svg(BETWEEN + (OP + BETWEEN) * len(chain) + 8, 2 * DEEP + 44)
    headings = []
    for row, (name, kernels) in enumerate((("eager", len(chain)), ("fused", 1))):
        heading = f"{name}: {plural(kernels, 'kernel')}, {trips[name]} trips, {human_bytes(totals[name])} through memory"
        headings.append(heading)
        svg.text(2, 16 + row * (DEEP + 24), heading, bold=True)
        draw_lane(svg, chain, nbytes, 28 + row * (DEEP + 24), fused=name == "fused")
    caption = "Memory above, the processor below, time to the right. Each arrow is a trip; eager sends every t out and back."
    return Picture(
        svg.render(". ".join(headings) + "."),
        caption,
        ". ".join(headings) + ".",
        "\n".join(headings),
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
    """The chain in one row: each operation as a kernel of its own, or all of it as one (`fused`)."""

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
        """The buffer that the operation before wrote."""
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
        end = self.bottom - (60 if self.fused else 51)
        for name in dict.fromkeys(self.chain[i].reads):
            if name != self.before(i):
                buffer(self.svg, x, self.top, name, self.nbytes[name], "eager")
                trip(self.svg, [(x, self.top + 40), (x, end)], self.nbytes[name], self.stage, 8)

    def draw_first_input(self) -> None:
        name = self.chain[0].reads[0]
        buffer(self.svg, self.left(0) - BETWEEN / 2, self.top, name, self.nbytes[name], "eager")

    def draw_trip_down(self, i: int) -> None:
        """From memory into the operation. Behind the first it runs beside the trip up of the one before."""
        x = self.left(i)
        down = x - BETWEEN / 2
        if i:
            down += 18
        end = x - (17 if self.fused else 3)
        size = self.nbytes[self.before(i) or self.chain[i].reads[0]]
        way = [(down, self.top + 40), (down, self.middle), (end, self.middle)]
        trip(self.svg, way, size, self.stage, 6)

    def draw_trip_up(self, i: int) -> None:
        """From the operation to its result in memory."""
        end = self.left(i) + OP
        column = end + BETWEEN / 2
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
        said = f"{self.chain[i].writes} stays here"
        self.svg.text(end + BETWEEN / 2, self.middle - 8, said, SMALL, anchor="middle", dim=True)


def buffer(svg: Svg, middle: float, top: float, name: str, size: int, stage: str) -> None:
    """A cylinder with its name."""
    svg.cylinder(
        middle - 17, top + 8, 34, 28, stage, strength=0.3, tip=f"{name}: {human_bytes(size)}"
    )
    svg.text(middle, top + 28, name, SMALL, anchor="middle", bold=True)


def trip(svg: Svg, points: list[tuple[float, float]], size: int, stage: str, side: float) -> None:
    """An arrow through memory with its bytes beside the upright part."""
    svg.arrow(points, stage=stage if stage != "eager" else None, line=3, opacity=0.7)
    x = points[0][0] if side > 0 else points[-1][0]
    svg.text(
        x + side,
        (points[0][1] + points[-1][1]) / 2,
        human_bytes(size),
        SMALL,
        anchor="start" if side > 0 else "end",
    )


# ---- time per element against size -----------------------------------------------------------------------------------

PLOT = (92.0, 34.0, 515.0, 270.0)
SECONDS = (1e-10, 1e-4)
"""The vertical axis, the same on every machine, so that pictures compare."""


def time_per_element(sizes: Sequence[int], seconds: Mapping[str, Sequence[float]]) -> Picture:
    """A line for each name: seconds per element against the number of elements, both logarithmic. Eager is grey."""
    x0, y0, width, height = PLOT
    left, right = math.log10(sizes[0]), math.log10(sizes[-1])
    low, high = math.log10(SECONDS[0]), math.log10(SECONDS[1])
    at_x = lambda size: x0 + 14 + (width - 28) * (math.log10(size) - left) / (right - left)
    at_y = lambda time: y0 + height * (high - min(max(math.log10(time), low), high)) / (high - low)
    svg = Svg(x0 + width + 150, y0 + height + 46)
    svg.text(x0, 16, "time for each element", SMALL, dim=True)
    for power in range(round(low), round(high) + 1):
        y = at_y(10.0**power)
        svg.path(f"M{x0} {y:.1f} H{x0 + width}", line=1, opacity=0.14)
        svg.text(x0 - 8, y + 4, axis_time(10.0**power), SMALL, anchor="end")
    for size in sizes:
        svg.path(f"M{at_x(size):.1f} {y0} V{y0 + height}", line=1, opacity=0.14)
        svg.text(at_x(size), y0 + height + 18, short_count(size), SMALL, anchor="middle")
    svg.path(f"M{x0} {y0} V{y0 + height} H{x0 + width}", line=1.2, opacity=0.7)
    svg.text(x0 + width / 2, y0 + height + 40, "elements", SMALL, anchor="middle", dim=True)
    svg.text(at_x(sizes[0]) + 8, y0 + height - 10, "◂ overhead-bound", SMALL, dim=True)
    svg.text(at_x(sizes[-1]) - 8, y0 + 16, "memory-bound ▸", SMALL, anchor="end", dim=True)
    for name, line in seconds.items():
        stage = "eager" if "eager" in name else "codegen"
        points = [(at_x(size), at_y(took / size)) for size, took in zip(sizes, line, strict=True)]
        svg.path(
            "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in points), stage=stage, line=2.4, opacity=1
        )
        for (x, y), took in zip(points, line, strict=True):
            svg.box(
                x - 4.5,
                y - 4.5,
                9,
                9,
                stage,
                radius=4.5 if stage == "eager" else 1,
                strength=0.7,
                tip=f"{name}: {human_time(took)} a call",
            )
    for i, name in enumerate(seconds):
        stage, y = "eager" if "eager" in name else "codegen", y0 + 20 + 24 * i
        svg.path(f"M{x0 + width + 14} {y} h30", stage=stage, line=2.4, opacity=1)
        svg.box(
            x0 + width + 24.5,
            y - 4.5,
            9,
            9,
            stage,
            radius=4.5 if stage == "eager" else 1,
            strength=0.7,
        )
        svg.text(x0 + width + 52, y + 4, name)
    rows = [
        f"{name:<12} {size:>12,} elements: {human_time(t)} a call"
        for name, line in seconds.items()
        for size, t in zip(sizes, line, strict=True)
    ]
    alt = f"Time for each element of {' and '.join(seconds)}, from {sizes[0]} to {sizes[-1]:,} elements: steep, then flatter."
    caption = (
        "On the slope a call costs the same whatever it does; behind it each element has its price."
    )
    return Picture(svg.render(alt), caption, alt, "\n".join(rows))


def axis_time(seconds: float) -> str:
    """A power of ten with its unit: '100 ns'."""
    for unit, size in (("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
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
