"""Choose, and see what it costs: which loops run as one kernel, which borders lengths are padded
to.

In:  a loop graph of a few loops, or the lengths of requests and some borders.
Out: `Choose`: a widget with a box to tick for each choice, where widgets live; in a saved notebook
     one combination as a picture, and all of them as text. Each is computed beforehand, by the real
     scheduler: nobody is asked while one chooses.
In PyTorch there is no such thing; `TORCH_LOGS=fusion` tells one of these combinations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from itertools import compress, groupby, pairwise, product
from pathlib import Path
from typing import Any

from course_lib.scheduling import No, Schedule, can_fuse, schedule
from course_lib.viz.kit.arguments import attributes, wholes
from course_lib.viz.kit.style import SMALL, Picture, human_bytes, plural
from course_lib.viz.kit.svg import Svg, shorten
from course_lib.viz.kit.tables import columns
from course_lib.viz.pictures.guards.buckets import buckets
from course_lib.viz.pictures.lowering.loop_formulas import is_extern, label_of
from course_lib.viz.widgets.live import Live, widget_class

SCRIPT = Path(__file__).with_name("choose.js")
MOST = 5
"""Choices: each doubles the number of drawings."""
BOX, TALL = 92.0, 44.0
"""px: the width and the height of a loop."""
GAP = 50.0
"""px: between two loops."""
LEFT, TOP, BOX_TOP = 10.0, 0.0, 10
"""px: where the drawing begins, and from there down to the loops."""
MIDDLE = TOP + BOX_TOP + TALL / 2
"""px: the height at which names and arrows between loops stand."""
MEMORY = 94
"""px: the middle of the cylinders of memory, below the loops."""


class Choose(Live):
    """Boxes to tick.

    `frames` and `said` have a drawing and its words for each combination: choice n is bit n of the
    number. `chosen` is the number of the combination that is shown first."""

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
        self.question = question
        self.choices = list(choices)
        self.chosen = chosen

        # `product` counts with the last place fastest; here choice 0 is the lowest bit.
        drawings = [draw(bits[::-1]) for bits in product((False, True), repeat=len(choices))]
        self.frames = [frame for frame, _ in drawings]
        self.said = [caption for _, caption in drawings]

    @property
    def picture(self) -> Picture:
        """What a reader of the saved file sees."""
        rows = [
            (*self.ticks(number), caption_of_choice)
            for number, caption_of_choice in enumerate(self.said)
        ]
        text = columns(rows, (*self.choices, self.question))
        caption = f"{self.question} Here: {self.said[self.chosen]} (Run the cell to choose.)"
        return Picture(
            f'<div class="cl-scroll">{self.frames[self.chosen]}</div>', caption, caption, text
        )

    def ticks(self, number: int) -> list[str]:
        """For each choice, whether it is ticked in this combination."""
        chosen = [bool(number >> n & 1) for n in range(len(self.choices))]
        return ["×" if tick else "" for tick in chosen]

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


# ---- fusion --------------------------------------------------------------------------------------


def choose_fusion(graph: Any) -> Choose:
    """Which neighbours among the loops of a `LoopGraph` may be one kernel?

    What is legal is for the scheduler to say."""
    attributes(
        graph,
        ("nodes", "buffers"),
        "choose_fusion expects a LoopGraph (trace.of(events.Lowered)[0].graph)",
    )
    if len(graph.nodes) < 2:
        raise ValueError(
            f"choose_fusion needs two loops or more to put together; this graph has {len(graph.nodes)}"
        )
    # In the order of the scheduler only neighbours can be joined
    alone = schedule(graph, keep_all_apart).alone
    nodes = [group.nodes[0] for group in alone]
    names = [label_of(node) for node in nodes]
    joints = [f"{first} + {second}" for first, second in pairwise(names)]

    def draw(chosen: tuple[bool, ...]) -> tuple[str, str]:
        schedule = schedule_as_chosen(graph, nodes, chosen)
        words = in_words(schedule)
        return kernels_in_a_row(schedule, nodes, names, words), words

    all_chosen = (1 << len(joints)) - 1  # every bit is set: all boxes are ticked
    return Choose("Which loops should be one kernel?", joints, draw, all_chosen)


NOT_CHOSEN = "not chosen"
"""The reason for keeping two loops apart whose box is not ticked."""


def keep_all_apart(producer: Any, consumer: Any) -> No:
    """A `can_fuse` that refuses everything."""
    return No(NOT_CHOSEN)


def schedule_as_chosen(graph: Any, nodes: Sequence[Any], chosen: Sequence[bool]) -> Schedule:
    """What the scheduler makes of the loops if it may fuse neighbours with a ticked box between
    them."""
    # Loops of one run have ticked boxes between all of them. A run has the number of empty boxes
    # before it.
    run_of = {node: chosen[:n].count(False) for n, node in enumerate(nodes)}

    def fuse(producer: Any, consumer: Any) -> Any:
        runs = {run_of.get(node) for node in (*producer.nodes, *consumer.nodes)}
        if len(runs) > 1:
            return No(NOT_CHOSEN)
        return can_fuse(producer, consumer)

    return schedule(graph, fuse)


def in_words(schedule: Schedule) -> str:
    """The number of kernels, the traffic, and the first pair that the scheduler refused although it
    was chosen."""
    count = plural(len(schedule.kernels), "kernel")
    words = f"{count}, {human_bytes(schedule.bytes_after)} through memory."

    for decision in schedule.decisions:
        answer = decision.answer
        if isinstance(answer, No) and answer.reason != NOT_CHOSEN:
            pair = f"{short_name(decision.producer)} and {short_name(decision.consumer)}"
            return f"{words} Refused, {pair}: {answer.reason}."
    return words


def short_name(loop: str) -> str:
    """'mm' of 'aten.mm.default (extern) over [4, 4]'."""
    return loop.split(" over ")[0].removesuffix(".default (extern)").removeprefix("aten.")


def kernels_in_a_row(
    schedule: Schedule, nodes: Sequence[Any], names: Sequence[str], words: str
) -> str:
    """The loops from left to right, a frame round those of one kernel; between two kernels, what
    the first writes."""
    kernel_of = {node: n for n, group in enumerate(schedule.groups) for node in group.nodes}
    svg = Svg(len(nodes) * (BOX + GAP) - GAP + 24, TOP + TALL + 84)

    # Behind: the frames of kernels that have several loops.
    x = LEFT
    for _, run in groupby(nodes, kernel_of.__getitem__):
        several = len(list(run))
        wide = several * (BOX + GAP)
        if several > 1:
            frame = (x - 7, TOP + 2, wide - GAP + 14, TALL + 16)
            svg.box(*frame, "scheduling", radius=6, strength=0.1, line=3)
        x += wide

    # In front: the loops, and what leads from each to the next.
    for n, (node, name) in enumerate(zip(nodes, names, strict=True)):
        x = LEFT + n * (BOX + GAP)
        draw_loop(svg, x, name, is_extern(node))

        is_last = n + 1 == len(nodes)
        if is_last:
            continue
        kernel = kernel_of[node]
        if kernel == kernel_of[nodes[n + 1]]:
            start, end = (x + BOX + 2, MIDDLE), (x + BOX + GAP - 2, MIDDLE)
            svg.arrow([start, end], stage="scheduling", line=1.4)
        else:
            bytes_written = sum(buffer.nbytes for buffer in schedule.kernels[kernel].buffers)
            draw_memory(svg, x, human_bytes(bytes_written))
    return svg.render(words)


def draw_loop(svg: Svg, x: float, name: str, library: bool) -> None:
    """A loop as a box, a library call with a thicker line."""
    stage = "eager" if library else "lowering"
    line = 2.4 if library else 1.5
    svg.box(x, TOP + BOX_TOP, BOX, TALL, stage, radius=3, strength=0.16, line=line)
    svg.text(x + BOX / 2, MIDDLE + 4, shorten(name, BOX - 10), anchor="middle", tip=name)


def draw_memory(svg: Svg, x: float, size: str) -> None:
    """Between the loop at `x` and the next one: an arrow down into memory, and one up again."""
    middle = x + BOX + GAP / 2
    bottom = TOP + MEMORY
    svg.cylinder(middle - 20, bottom - 10, 40, 20, "runtime")

    under_loop = x + BOX / 2
    down = [(under_loop, TOP + BOX_TOP + TALL), (under_loop, bottom), (middle - 22, bottom)]
    svg.arrow(down, line=1.2)

    # Left of the next loop's middle, where its own arrow goes down
    under_next = x + BOX + GAP + BOX / 2 - 12
    up = [(middle + 22, bottom), (under_next, bottom), (under_next, TOP + BOX_TOP + 2 + TALL)]
    svg.arrow(up, line=1.2)

    svg.text(middle, bottom + 26, size, SMALL, anchor="middle")


# ---- buckets -------------------------------------------------------------------------------------


def choose_buckets(lengths: Sequence[int], borders: Iterable[int]) -> Choose:
    """Which borders should lengths be padded up to?

    The longest is always one; each further one is one more compile."""
    lengths = wholes(lengths, "lengths is a list of the lengths of requests")
    if not lengths:
        raise ValueError("choose_buckets needs at least one length")
    borders = wholes(borders, "borders is a list of lengths to pad to")
    top = max(lengths)
    # The longest length is a border in any case
    several = sorted({border for border in borders if border < top})
    if not several:
        raise ValueError(
            f"choose_buckets needs a border below the longest length, {top}; {top} itself is always one"
        )

    def draw(chosen: tuple[bool, ...]) -> tuple[str, str]:
        ticked = list(compress(several, chosen))
        picture = buckets(lengths, [*ticked, top])
        return picture.body, picture.alt

    question = "Which borders should lengths be padded up to?"
    all_chosen = (1 << len(several)) - 1  # every bit is set: all boxes are ticked
    return Choose(question, list(map(str, several)), draw, all_chosen)
