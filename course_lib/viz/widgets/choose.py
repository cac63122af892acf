"""Choose, and see what it costs: which loops run as one kernel, which borders lengths are padded to.

In:  a loop graph of a few loops, or the lengths of requests and some borders.
Out: `Choose`: a widget with a box to tick for each choice, where widgets live; in a saved notebook one combination as a picture,
     and all of them as text. Each is computed beforehand, by the real scheduler: nobody is asked while one chooses.
In PyTorch there is no such thing; `TORCH_LOGS=fusion` tells one of these combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import groupby, pairwise, product
from pathlib import Path
from typing import Any

from course_lib.scheduling import No, Schedule, can_fuse, schedule
from course_lib.viz.kit.asked import attributes, wholes
from course_lib.viz.kit.style import SMALL, Picture, human_bytes, plural
from course_lib.viz.kit.svg import Svg, shorten
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.guards.buckets import buckets
from course_lib.viz.pictures.lowering.loop_formulas import is_extern, label_of
from course_lib.viz.widgets.live import Live, widget_class

SCRIPT = Path(__file__).with_name("choose.js")
MOST = 5
"""Choices: each doubles the number of drawings."""
BOX, TALL, GAP, TOP = 92.0, 44.0, 50.0, 0.0


class Choose(Live):
    """Boxes to tick. `frames` and `said` have a drawing and its words for each combination: choice n is bit n of the number."""

    def __init__(
        self,
        question: str,
        choices: Sequence[str],
        draw: Callable[[tuple[bool, ...]], tuple[str, str]],
        chosen: int,
    ) -> None:
        if not choices:
            raise ValueError("there is nothing to choose: an example needs at least one choice")
        if len(choices) > MOST:
            raise ValueError(f"1 to {MOST} choices, not {len(choices)}: take a smaller example")
        self.question, self.choices, self.chosen = question, list(choices), chosen
        combinations = [bits[::-1] for bits in product((False, True), repeat=len(choices))]
        self.frames, self.said = (list(one) for one in zip(*map(draw, combinations), strict=True))

    @property
    def picture(self) -> Picture:
        """What a reader of the saved file sees."""
        ticks = lambda number: ["×" if number >> n & 1 else "" for n in range(len(self.choices))]
        text = columns(
            [(*ticks(n), said) for n, said in enumerate(self.said)], (*self.choices, self.question)
        )
        caption = f"{self.question} Here: {self.said[self.chosen]} (Run the cell to choose.)"
        return Picture(
            f'<div class="cl-scroll">{self.frames[self.chosen]}</div>', caption, caption, text
        )

    @cached_property
    def widget(self) -> Any:
        """The live form. Raises ImportError without `anywidget`."""
        import traitlets

        base: Any = widget_class(SCRIPT, "predict")

        class ChooseWidget(base):
            """Everything happens in choose.js."""

            question = traitlets.Unicode().tag(sync=True)
            choices: Any = traitlets.List().tag(sync=True)
            frames: Any = traitlets.List().tag(sync=True)
            said: Any = traitlets.List().tag(sync=True)
            chosen = traitlets.Int(0).tag(sync=True)

        return ChooseWidget(
            question=self.question,
            choices=self.choices,
            frames=self.frames,
            said=self.said,
            chosen=self.chosen,
        )

    def __repr__(self) -> str:
        return self.picture.text


# ---- fusion ---------------------------------------------------------------------------------------------------------


def choose_fusion(graph: Any) -> Choose:
    """Which neighbours among the loops of a `LoopGraph` may be one kernel? What is legal is for the scheduler to say."""
    attributes(
        graph,
        ("nodes", "buffers"),
        "choose_fusion expects a LoopGraph (trace.of(events.Lowered)[0].graph)",
    )
    if len(graph.nodes) < 2:
        raise ValueError(
            f"choose_fusion needs two loops or more to put together; this graph has {len(graph.nodes)}"
        )
    alone = schedule(graph, lambda producer, consumer: No("not chosen")).alone
    nodes = [group.nodes[0] for group in alone]
    names = [label_of(node) for node in nodes]
    joints = [f"{first} + {second}" for first, second in pairwise(names)]

    def draw(chosen: tuple[bool, ...]) -> tuple[str, str]:
        # which run of ticked joints a loop is in
        block = [sum(not tick for tick in chosen[:n]) for n in range(len(nodes))]
        where = dict(zip(nodes, block, strict=True))

        def fuse(producer: Any, consumer: Any) -> Any:
            together = {where.get(node) for node in (*producer.nodes, *consumer.nodes)}
            return can_fuse(producer, consumer) if len(together) == 1 else No("not chosen")

        found = schedule(graph, fuse)
        pairs = (
            (d.producer, d.consumer, d.answer.reason)
            for d in found.decisions
            if isinstance(d.answer, No)
        )
        refused = next((pair for pair in pairs if pair[2] != "not chosen"), None)
        words = f"{plural(len(found.kernels), 'kernel')}, {human_bytes(found.bytes_after)} through memory."
        if refused:
            shown = [
                one.split(" over ")[0].removesuffix(".default (extern)").removeprefix("aten.")
                for one in refused[:2]
            ]
            words += f" Refused, {' and '.join(shown)}: {refused[2]}."
        return kernels_in_a_row(found, nodes, names, words), words

    return Choose("Which loops should be one kernel?", joints, draw, (1 << len(joints)) - 1)


def kernels_in_a_row(
    found: Schedule, nodes: Sequence[Any], names: Sequence[str], words: str
) -> str:
    """The loops from left to right, a frame round those of one kernel; between two kernels, what the first writes."""
    kernel_of = {node: n for n, group in enumerate(found.groups) for node in group.nodes}
    svg = Svg(len(nodes) * (BOX + GAP) - GAP + 24, TOP + TALL + 84)
    middle, place = TOP + 10 + TALL / 2, 10.0
    for _, run in groupby(nodes, kernel_of.get):
        several = len(list(run))
        if several > 1:
            wide = several * (BOX + GAP) - GAP + 14
            svg.box(
                place - 7, TOP + 2, wide, TALL + 16, "scheduling", radius=6, strength=0.1, line=3
            )
        place += several * (BOX + GAP)
    for n, (node, name) in enumerate(zip(nodes, names, strict=True)):
        x, library = 10 + n * (BOX + GAP), is_extern(node)
        after = x + BOX
        svg.box(
            x,
            TOP + 10,
            BOX,
            TALL,
            "eager" if library else "lowering",
            radius=3,
            strength=0.16,
            line=2.4 if library else 1.5,
        )
        svg.text(x + BOX / 2, middle + 4, shorten(name, BOX - 10), anchor="middle", tip=name)
        if n + 1 < len(nodes) and kernel_of.get(node) == kernel_of.get(nodes[n + 1]):
            svg.arrow(
                [(after + 2, middle), (after + GAP - 2, middle)], stage="scheduling", line=1.4
            )
        elif n + 1 < len(nodes):
            size = human_bytes(
                sum(buffer.nbytes for buffer in found.kernels[kernel_of[node]].buffers)
            )
            svg.cylinder(after + GAP / 2 - 20, TOP + 84, 40, 20, "runtime")
            svg.arrow(
                [
                    (x + BOX / 2, TOP + 10 + TALL),
                    (x + BOX / 2, TOP + 94),
                    (after + GAP / 2 - 22, TOP + 94),
                ],
                line=1.2,
            )
            right = after + GAP + BOX / 2
            svg.arrow(
                [
                    (after + GAP / 2 + 22, TOP + 94),
                    (right - 12, TOP + 94),
                    (right - 12, TOP + 12 + TALL),
                ],
                line=1.2,
            )
            svg.text(after + GAP / 2, TOP + 120, size, SMALL, anchor="middle")
    return svg.render(words)


# ---- buckets --------------------------------------------------------------------------------------------------------


def choose_buckets(lengths: Sequence[int], borders: Iterable[int]) -> Choose:
    """Which borders should lengths be padded up to? The longest is always one; each further one is one more compile."""
    lengths = wholes(lengths, "lengths is a list of the lengths of requests")
    if not lengths:
        raise ValueError("choose_buckets needs at least one length")
    borders, top = wholes(borders, "borders is a list of lengths to pad to"), max(lengths)
    several = sorted({border for border in borders if border < top})
    if not several:
        raise ValueError(
            f"choose_buckets needs a border below the longest length, {top}; {top} itself is always one"
        )

    def draw(chosen: tuple[bool, ...]) -> tuple[str, str]:
        picture = buckets(
            lengths, [*(border for border, tick in zip(several, chosen, strict=True) if tick), top]
        )
        return picture.body, picture.alt

    return Choose(
        "Which borders should lengths be padded up to?",
        list(map(str, several)),
        draw,
        (1 << len(several)) - 1,
    )
