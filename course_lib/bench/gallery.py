"""The gallery: every picture once, made from real traces (`course gallery`).

In:  a folder. Out: `gallery.md` in it, and the drawings as SVG files in `pictures/gallery/`. What is no drawing is shown as text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

import course_lib as cl
from course_lib import viz
from course_lib.bench.measure import interleaved
from course_lib.bench.models import TinyBlock
from course_lib.bench.museum import STAGES
from course_lib.viz.serving import Handled, latencies, queue
from course_lib.viz.style import Picture, standalone_svg
from course_lib.viz.views import collapse, index_map

HEAD = """# Gallery

Every picture that `course_lib.viz` draws, made from real traces by `course gallery`. Each is a function on a recording
(`with cl.record() as trace:`) or on plain data; in a notebook it follows the light or dark theme, and has a plain form.
Widgets (`trace.stepper()`, `cl.explore`, `viz.Predict`) and the trace report (`course report script.py`) are for trying.
"""


DAY = [Handled(0, 3, 4, 0, 40, 4), Handled(6, 5, 8, 44, 40, 8), Handled(12, 4, 4, 92, 0, 4), Handled(18, 8, 8, 96, 0, 8)]
LATE = [one.latency for one in DAY]


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


def pictures() -> Iterator[tuple[str, str, Callable[[], Picture]]]:
    """(name, the code that makes it, how to make it), in the order of the pipeline."""
    torch.manual_seed(0)
    cl.reset()
    model, x = TinyBlock(64, 4), torch.randn(32, 64)
    with cl.record() as trace:
        cl.compile(model)(x).sum().backward()
    with cl.record() as broken:
        compiled = viz.each_call(cl.compile(branchy))
        for scale in (2, 2, 3, 2):
            compiled(torch.ones(8), scale)
    with torch.no_grad(), cl.record() as triton:
        cl.compile(softmax, options={"codegen": "triton"})(torch.randn(1000, 300), torch.randn(300))
    with torch.no_grad(), cl.record() as large:
        cl.compile(stack, backend="eager")([TinyBlock(8, 2) for _ in range(6)], torch.randn(2, 8))
    with torch.no_grad():
        fast = cl.compile(model)
        calls: dict[str, Callable[[], torch.Tensor]] = {"eager": lambda: model(x), "course_lib": lambda: fast(x)}
        wide, bias = torch.randn(2048, 1024), torch.randn(1024)
        ours = cl.compile(softmax)
        times = interleaved({"eager": lambda: softmax(wide, bias), "course_lib": lambda: ours(wide, bias)})
        faster = times["eager"].median / times["course_lib"].median
        ran = {name: viz.launches(call) for name, call in calls.items()}
    yield "pipeline", "trace.show()", trace.show
    yield "bytecode", "trace.bytecode()", lambda: broken.bytecode("branchy")
    yield "graph", "trace.graph()", trace.graph
    yield "modules", "trace.graph(by_module=True)", lambda: large.graph(by_module=True)
    yield "break", "trace.break_card()", broken.break_card
    yield "cut", "trace.cut()", lambda: broken.cut("branchy")
    yield "guards", "trace.guards_tree()", broken.guards_tree
    yield "timeline", "trace.timeline()", lambda: broken.timeline("branchy")
    yield "aten", "trace.aten()", trace.aten
    yield "joint", "trace.joint()", trace.joint
    yield "loops", "trace.loops()", trace.loops
    yield "index-map", "viz.views.index_map(...)", lambda: index_map({"x": (a := torch.arange(12).view(3, 4)), "x.T": a.T})
    yield "collapse", "viz.views.collapse(...)", lambda: collapse(torch.arange(12.0).view(3, 4), 1)
    yield "fusion", "trace.fusion()", trace.fusion
    yield "memory", "trace.memory()", lambda: trace.memory().picture
    yield "code", "trace.code(kernel=0)", lambda: trace.code(kernel=0)
    yield "tiles", "trace.tiles()", triton.tiles
    yield "launches", "viz.launch_timeline(...)", lambda: viz.launch_timeline(ran)
    yield "speed-ups", "viz.speedup_bars(...)", lambda: viz.speedup_bars({"softmax(x + bias)": {"course_lib": faster}})
    yield "queue", "viz.serving.queue(...)", lambda: queue(DAY)
    yield "latencies", "viz.serving.latencies(...)", lambda: latencies({"eager": [9.0, 8.0, 11.0, 9.5], "compiled": LATE})
    yield "compile-time", "trace.compile_time()", trace.compile_time
    yield "mirror", "cl.mirror(f, x)", lambda: cl.mirror(softmax, torch.randn(4, 8), torch.randn(8)).picture
    wrong = {"eager": "", "aot_eager": "call 1: the result", "inductor": "call 1: the result"}
    yield "ladder", "viz.ladder({backend: what differs})", lambda: viz.ladder(wrong)
    tries = [(5, False), (8, True), (6, False), (7, True)]
    yield "bisection", "viz.bisection(stages, tries)", lambda: viz.bisection(STAGES, tries)
    yield "ablation", "viz.ablation(f, x)", lambda: viz.ablation(softmax, torch.randn(512, 512), torch.randn(512)).picture


def gallery(folder: Path) -> Path:
    """Write the gallery into `folder`; the page's path comes back."""
    drawings = folder / "pictures" / "gallery"
    drawings.mkdir(parents=True, exist_ok=True)
    parts = [HEAD]
    for name, code, make in pictures():
        picture = make()
        parts.append(f"## `{code}`\n\n{picture.caption}\n")
        if svg := re.search(r"<svg.*?</svg>", picture.body, flags=re.S):
            (drawings / f"{name}.svg").write_text(standalone_svg(svg[0]), encoding="utf-8")
            alt = " ".join(picture.alt.replace("[", "(").replace("]", ")").split())
            parts.append(f"![{alt}](pictures/gallery/{name}.svg)\n")
        else:
            lines = [line.rstrip() for line in picture.text.splitlines()]
            more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
            parts.append("\n".join(["```text", *lines[:MOST_LINES], *more, "```", ""]))
    page = folder / "gallery.md"
    page.write_text("\n".join(parts), encoding="utf-8")
    return page


MOST_LINES = 24
"""Of what is shown as text."""
