"""The gallery: every picture once, made from real traces (`course gallery`).

In:  a folder. Out: `gallery.md` in it, and the drawings as SVG files in `pictures/gallery/`. What
     is no drawing is shown as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import fx

import course_lib as cl
from course_lib import events, viz
from course_lib.bench.measure import Samples, interleaved
from course_lib.bench.models import TinyBlock
from course_lib.bench.pictures import spread
from course_lib.bench.roofline import ceilings, recorded_kernels
from course_lib.frames.resume import Resume
from course_lib.lessons.museum import STAGES
from course_lib.lowering import lower
from course_lib.lowering.ir import ExternKernel, LoopGraph
from course_lib.scheduling.products import as_loops
from course_lib.viz.kit.style import Picture, standalone_svg
from course_lib.viz.pictures.autograd.pipes import pipes
from course_lib.viz.pictures.capture.resume_code import resume_code
from course_lib.viz.pictures.codegen.lanes import lanes
from course_lib.viz.pictures.codegen.warps import coalescing, tile_layout
from course_lib.viz.pictures.guards.buckets import buckets
from course_lib.viz.pictures.guards.symbolic_sizes import two_lives
from course_lib.viz.pictures.lowering.views import collapse, index_map
from course_lib.viz.pictures.pipeline.owners import owners
from course_lib.viz.pictures.runtime.kernel_limits import measure
from course_lib.viz.pictures.runtime.request_queue import Handled, latencies, queue
from course_lib.viz.pictures.scheduling.mask_blocks import mask_blocks
from course_lib.viz.pictures.scheduling.order import order
from course_lib.viz.pictures.scheduling.running_softmax import running_softmax
from course_lib.viz.widgets.choose import choose_fusion
from course_lib.viz.widgets.move_tile import move_tile

HEAD = """# Gallery

Every picture that `course_lib.viz` draws, made from real traces by `course gallery`. Each is a function on a recording
(`with cl.record() as trace:`) or on plain data; in a notebook it follows the light or dark theme, and has a plain form.
Widgets (`trace.stepper()`, `cl.explore`, `viz.Predict`, `viz.choose_fusion`, `viz.move_tile`) and the
trace report (`course report script.py`) are for trying.
"""


DAY = [
    Handled(0, 3, 4, 0, 40, 4),
    Handled(6, 5, 8, 44, 40, 8),
    Handled(12, 4, 4, 92, 0, 4),
    Handled(18, 8, 8, 96, 0, 8),
]
LATE = [one.latency for one in DAY]
"""How long requests took, as `DAY` has them."""
LIVES = [("n", 12, "s", ""), ("half = n // 2", 6, "s // 2", ""), ("if n > 10:", True, "", "s > 10")]
"""Lines of a function: source, its value, its symbol, and the guard that it makes."""
PARTS = [
    ("capture", "MyInterpreter", "yours"),
    ("guards", "make_check", "given"),
    ("scheduling", "fuse_all", "ours"),
]
"""Stages that were replaced: by what, and whose it is."""
LENGTHS = [5, 12, 17, 20, 24, 30, 31, 33, 40, 48, 60, 66, 70, 90, 128]
"""Lengths of sequences, to be put into buckets."""
CUT = {"x": 64, "h": 256, "y": 64}, {"h": ["x"], "y": ["h"]}, {"h", "y"}, {"h", "y"}, ["x"]
"""The arguments of `viz.pipes`: bytes, what each is computed from, what backward needs, what it may
compute again, inputs."""
NEEDS = {"relu": (), "matmul (library)": ("relu",), "add": ("relu", "matmul (library)")}
"""Operation → what must run before it."""
ROW = [1, 3, 2, 5, 4, 0, 5, 2]
"""The scores of one row of attention."""
WRONG = {"eager": "", "aot_eager": "call 1: the result", "inductor": "call 1: the result"}
"""Backend → where its result differs from eager's, '' for nowhere."""
TRIES = [(5, False), (8, True), (6, False), (7, True)]
"""Tries of a search: how many stages were exchanged, and whether the result was right."""
MODEL = "A model of a product's tiles, not measured; the stronger the tint, the faster. The best is framed."
TRITON = {"codegen": "triton"}
MOST_LINES = 24
"""How many lines are shown of a picture that is text."""


def modelled() -> dict[tuple[int, int], float]:
    """Seconds by rows and columns of a tile: the number of tiles, times what memory or arithmetic
    takes for one."""
    seconds_of_tile = {}
    for rows in (16, 32, 64):
        for columns in (16, 32, 64, 128):
            # of a result of 4096 × 1024; 40 and 3000 are chosen so that now memory is what a tile
            # waits for, and now arithmetic
            tiles = (4096 // rows) * (1024 // columns)
            seconds_for_one = max((rows + columns) / 40, rows * columns / 3000)
            seconds_of_tile[rows, columns] = 1e-6 * tiles * seconds_for_one
    return seconds_of_tile


def stack(blocks: list[TinyBlock], x: torch.Tensor) -> torch.Tensor:
    """Several blocks, one after the other."""
    for block in blocks:
        x = block(x)
    return x


def branchy(x: torch.Tensor, scale: int) -> torch.Tensor:
    """A branch that depends on data, and a number that changes."""
    y = torch.sin(x) * scale
    if y.sum() > 0:
        y = y + 1
    return y.relu()


def softmax(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x + bias, -1)


def rows(x: torch.Tensor) -> torch.Tensor:
    """Code that differs by size."""
    return x + 1 if x.shape[0] > 10 else x - 1


def product_in_loops(gm: fx.GraphModule) -> LoopGraph:
    """Lowering with the products as loops of our own, as measuring has it where ours are faster (on
    a GPU; lesson 11)."""
    loops = lower(gm)
    nodes: list[Any] = []
    for node in loops.nodes:
        nodes += as_loops(node) if isinstance(node, ExternKernel) else [node]
    return replace(loops, nodes=nodes)


class Measured:
    """The numbers that were measured when the gallery was last made.

    They are kept beside the drawings.

    So the same code draws the same pictures. It measures again with `anew`, and where the compiler
    has other stages by now.
    """

    def __init__(self, path: Path, anew: bool = False) -> None:
        self.path = path
        self.kept: dict[str, Any] = {}
        if path.exists() and not anew:
            self.kept = json.loads(path.read_text())
        self.used: dict[str, Any] = {}

    def __call__(self, name: str, measure: Callable[[], Any]) -> Any:
        """Numbers that `measure` gives, in a form that JSON knows."""
        self.used[name] = self.kept[name] if name in self.kept else measure()
        return self.used[name]

    def stages(self, name: str, trace: viz.Trace) -> viz.Trace:
        """The trace with the stage times that are kept."""
        now = [[event.stage, event.seconds] for event in trace.of(events.StageTimed)]
        kept_times = self(name, lambda: now)
        if [stage for stage, _ in kept_times] != [stage for stage, _ in now]:
            # By now the compiler has other stages.
            kept_times = now
            self.used[name] = now

        seconds = (stage_seconds for _, stage_seconds in kept_times)
        for number, event in enumerate(trace.events):
            if isinstance(event, events.StageTimed):
                trace.events[number] = replace(event, seconds=next(seconds))
        return trace

    def save(self) -> None:
        self.path.write_text(json.dumps(self.used, indent=1) + "\n")


def traces(measured: Measured) -> dict[str, viz.Trace]:
    """The recordings that are drawn."""
    trace_by_name = {}
    model, x = TinyBlock(64, 4), torch.randn(32, 64)
    # What is only done once a process does not count.
    cl.compile(torch.nn.Linear(2, 2))(torch.randn(2, 2)).sum().backward()

    with cl.record() as trace_by_name["block"]:
        cl.compile(model)(x).sum().backward()

    with cl.record() as trace_by_name["broken"]:
        compiled = viz.each_call(cl.compile(branchy))
        for scale in (2, 2, 3, 2):
            compiled(torch.ones(8), scale)

    with torch.no_grad(), cl.record() as trace_by_name["triton"]:
        cl.compile(softmax, options=TRITON)(torch.randn(1000, 300), torch.randn(300))

    with cl.record() as trace_by_name["walk"]:
        norm = cl.compile(torch.nn.LayerNorm(256), options=TRITON)
        norm(torch.randn(3000, 256, requires_grad=True)).sum().backward()

    ours = cl.Pipeline().replace(lower=product_in_loops)
    with torch.no_grad(), cl.record() as trace_by_name["product"]:
        product = cl.compile(lambda a, b: torch.relu(a @ b), pipeline=ours, options=TRITON)
        product(torch.randn(200, 96), torch.randn(96, 150))

    with torch.no_grad(), cl.record() as trace_by_name["large"]:
        blocks = [TinyBlock(8, 2) for _ in range(6)]
        cl.compile(stack, backend="eager")(blocks, torch.randn(2, 8))

    with cl.record() as trace_by_name["sizes"]:
        sized = cl.compile(rows, backend="eager")
        for size in (5, 6, 11, 12, 10, 20):
            sized(torch.randn(size))

    return {name: measured.stages(name, trace) for name, trace in trace_by_name.items()}


Entry = tuple[str, str, Callable[[], Picture]]
"""A picture's name, the code that makes it, and how to make it."""


def pictures(measured: Measured) -> Iterator[Entry]:
    """All of them, in the order of the pipeline."""
    torch.manual_seed(0)
    cl.reset()
    trace_by_name = traces(measured)

    yield from front_half(trace_by_name)
    yield from back_half(trace_by_name)
    yield from measured_pictures(measured, trace_by_name["block"])
    yield from around_the_compiler()


def front_half(trace_by_name: dict[str, viz.Trace]) -> Iterator[Entry]:
    """From Python to guards."""
    trace, broken, sizes = trace_by_name["block"], trace_by_name["broken"], trace_by_name["sizes"]
    yield "pipeline", "trace.show()", trace.show
    yield "bytecode", "trace.bytecode()", lambda: broken.bytecode("branchy")
    yield "disassembly", "viz.disassembly(f)", lambda: viz.disassembly(softmax)
    yield "graph", "trace.graph()", trace.graph
    large = trace_by_name["large"]
    yield "modules", "trace.graph(by_module=True)", lambda: large.graph(by_module=True)

    yield "break", "trace.break_card()", broken.break_card
    yield "cut", "trace.cut()", lambda: broken.cut("branchy")
    resume = first_resume(broken)
    yield "resume", "viz.resume_code(resume)", lambda: resume_code(resume)

    yield "guards", "trace.guards_tree()", broken.guards_tree
    yield "guards-table", "trace.guards_table()", lambda: broken.guards_table(0)
    yield "timeline", "trace.timeline()", lambda: broken.timeline("branchy")
    shapes = {"x.shape[0]": range(1, 21)}
    yield "shape-map", "trace.shape_map(f, sizes)", lambda: sizes.shape_map(rows, shapes)
    yield "two-lives", "viz.two_lives(rows)", lambda: two_lives(LIVES)
    yield "buckets", "viz.buckets(lengths, borders)", lambda: buckets(LENGTHS, (32, 64, 128))


def back_half(trace_by_name: dict[str, viz.Trace]) -> Iterator[Entry]:
    """From ATen to kernels."""
    trace, triton = trace_by_name["block"], trace_by_name["triton"]
    yield "aten", "trace.aten()", trace.aten
    yield "joint", "trace.joint()", trace.joint
    yield "pipes", "viz.pipes(...)", lambda: pipes(*CUT)

    yield "loops", "trace.loops()", trace.loops
    matrix = torch.arange(12).view(3, 4)
    yield "index-map", "viz.index_map(...)", lambda: index_map({"x": matrix, "x.T": matrix.T})
    yield "collapse", "viz.collapse(...)", lambda: collapse(torch.arange(12.0).view(3, 4), 1)

    yield "fusion", "trace.fusion()", trace.fusion
    yield "order", "viz.order(needs, together)", lambda: order(NEEDS, ("relu", "add"))
    yield "running-softmax", "viz.running_softmax(numbers, 2)", lambda: running_softmax(ROW, 2)
    causal = torch.ones(24, 24).tril().bool()
    yield "mask-blocks", "viz.mask_blocks(mask, 4, 3)", lambda: mask_blocks(causal, 4, 3)
    loops = triton.of(events.Lowered)[0].graph
    yield "choose", "viz.choose_fusion(graph)", lambda: choose_fusion(loops).picture
    yield "memory", "trace.memory()", lambda: trace.memory().picture

    yield "code", "trace.code(kernel=0)", lambda: trace.code(kernel=0)
    yield "lanes", "viz.lanes(30, 4, threads=2)", lambda: lanes(30, 4, threads=2)
    yield "tiles", "trace.tiles()", triton.tiles
    yield "tiles-walk", "trace.tiles(1)", lambda: trace_by_name["walk"].tiles(1)
    yield "tiles-product", "trace.tiles() of a matrix product", trace_by_name["product"].tiles
    yield "move-tile", "viz.move_tile((4, 20), (2, 8))", lambda: move_tile((4, 20), (2, 8)).picture
    yield "layout", "viz.tile_layout(...)", lambda: tile_layout(1024, per_thread=4, warps=4)
    yield "coalescing", "viz.coalescing([1, 2, 8])", lambda: coalescing([1, 2, 8])
    yield "compile-time", "trace.compile_time()", trace.compile_time


def around_the_compiler() -> Iterator[Entry]:
    """A server, a learner's own parts, and the search for a fault."""
    yield "queue", "viz.queue(...)", lambda: queue(DAY)
    waits = {"eager": [9.0, 8.0, 11.0, 9.5], "compiled": LATE}
    yield "latencies", "viz.latencies(...)", lambda: latencies(waits)

    def mirrored() -> Picture:
        return cl.mirror(softmax, torch.randn(4, 8), torch.randn(8)).picture

    yield "mirror", "cl.mirror(f, x)", mirrored
    yield "owners", "viz.owners(parts)", lambda: owners(PARTS)
    yield "ladder", "viz.ladder({backend: what differs})", lambda: viz.ladder(WRONG)
    yield "bisection", "viz.bisection(stages, tries)", lambda: viz.bisection(STAGES, TRIES)

    def without_parts() -> Picture:
        return viz.ablation(softmax, torch.randn(512, 512), torch.randn(512)).picture

    yield "ablation", "viz.ablation(f, x)", without_parts


def first_resume(trace: viz.Trace) -> Resume:
    """The first resume function that a head calls."""
    for result in trace.captures:
        for name in result.head.names.values():
            if isinstance(name, Resume):
                return name
    raise LookupError("no graph of the recording breaks")


def measured_pictures(measured: Measured, trace: viz.Trace) -> Iterator[Entry]:
    """Those that are about times of kernels and calls."""
    with torch.no_grad():
        ran = launches_of_a_block(measured)
        times = times_of_softmax(measured)
    yield "launches", "viz.launch_timeline(...)", lambda: viz.launch_timeline(ran)

    title = "softmax(x + bias)"
    faster = times["eager"].median / times["course_lib"].median
    speedups = {title: {"course_lib": faster}}
    yield "speed-ups", "viz.speedup_bars(...)", lambda: viz.speedup_bars(speedups)
    medians = {name: samples.median for name, samples in times.items()}
    yield "bars", "viz.bars({name: seconds}, 's')", lambda: viz.bars(medians, "s", title)
    yield "spread", "bench.pictures.spread(samples)", lambda: spread(times, title)

    bandwidth, peak = measured("ceilings", ceilings)
    seconds = measured("kernels", lambda: measure(trace))

    def roofline() -> Picture:
        return trace.roofline(bandwidth, peak, seconds=seconds)

    yield "roofline", "trace.roofline(bandwidth, peak)", roofline
    yield "roofline-gpu", "bench.roofline.recorded_kernels()", recorded_kernels
    code = "viz.landscape({(rows, columns): seconds})"
    yield "landscape", code, lambda: viz.landscape(modelled(), caption=MODEL)


def launches_of_a_block(measured: Measured) -> dict[str, list[viz.Launch]]:
    """When which kernels of one call ran, in eager and compiled."""
    model, x = TinyBlock(64, 4).eval(), torch.randn(32, 64)
    fast = cl.compile(model)
    fast(x)
    calls: dict[str, Callable[[], torch.Tensor]] = {
        "eager": lambda: model(x),
        "course_lib": lambda: fast(x),
    }

    def look() -> dict[str, list[Any]]:
        return {name: list(map(astuple, viz.launches(call))) for name, call in calls.items()}

    measurements = measured("launches", look)
    return {
        name: [viz.Launch(*launch) for launch in several] for name, several in measurements.items()
    }


def times_of_softmax(measured: Measured) -> dict[str, Samples]:
    """Eager and compiled, in turn."""
    x, bias = torch.randn(2048, 1024), torch.randn(1024)
    compiled = cl.compile(softmax)
    calls = {"eager": lambda: softmax(x, bias), "course_lib": lambda: compiled(x, bias)}

    def look() -> dict[str, Any]:
        return {name: samples.seconds for name, samples in interleaved(calls).items()}

    seconds_by_name = measured("softmax", look)
    return {name: Samples(tuple(seconds)) for name, seconds in seconds_by_name.items()}


# Which library is faster differs from machine to machine.
@mock.patch.object(cl.config, "measure_products", False)
def gallery(folder: Path, anew: bool = False) -> Path:
    """Write the gallery into `folder`; the page's path comes back.

    `anew`: measure all times again."""
    drawings = folder / "pictures" / "gallery"
    drawings.mkdir(parents=True, exist_ok=True)
    measured = Measured(drawings / "measured.json", anew)

    parts = [HEAD]
    for name, code, make in pictures(measured):
        picture = make()
        parts.append(f"## `{code}`\n\n{picture.caption}\n")

        svg = re.search(r"<svg.*?</svg>", picture.body, flags=re.S)
        if svg:
            (drawings / f"{name}.svg").write_text(standalone_svg(svg[0]), encoding="utf-8")
            alt = " ".join(picture.alt.replace("[", "(").replace("]", ")").split())
            parts.append(f"![{alt}](pictures/gallery/{name}.svg)\n")
        # The table of a roofline says what its points are.
        if not svg or name.startswith("roofline"):
            parts.append(as_text(picture))
    measured.save()

    page = folder / "gallery.md"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


def as_text(picture: Picture) -> str:
    """The first lines of a picture's plain form."""
    lines = [line.rstrip() for line in picture.text.splitlines()]
    shown = lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        shown.append(f"… {len(lines) - MOST_LINES} more lines")
    return "\n".join(["```text", *shown, "```", ""])
