"""What the picture of fusion shows: loops before, kernels after, and the buffers between them.

In:  a `Schedule`, with the `LoopGraph` that it was made of if that is known.
Out: `Sides`: the items before and after; and `Buffers`: what lies between them. `fusion_drawing`
     draws them, `fused_loops` puts them in words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from course_lib.viz.kit.style import human_bytes, plural
from course_lib.viz.pictures.lowering.loop_formulas import is_extern, label_of, reads


@dataclass(frozen=True)
class Loop:
    """A loop's ranges ('8×4, reducing 64'; 'library call' for one), and what it does."""

    ranges: str
    label: str


@dataclass
class Item:
    """Something that runs as one: a loop, a kernel, or a library call.

    `reads` and `writes` are names of buffers."""

    name: str
    loops: list[Loop]
    reads: list[str]
    writes: list[str]
    extern: bool = False

    # What follows is where the drawing puts it.
    top: float = 0.0
    height: float = 0.0
    arrive: dict[str, float] = field(default_factory=dict)
    """Buffer read through a lane → where its line meets the box."""
    small: list[str] = field(default_factory=list)
    """Inputs too small to draw: they are named in the box."""
    beside: dict[str, float] = field(default_factory=dict)
    """Buffer drawn beside the box → the middle of its cylinder."""


@dataclass
class Buffers:
    """sizes: bytes of each. kept: those that still reach memory after fusion. results: those that
    the graph returns."""

    sizes: dict[str, float]
    kept: set[str]
    results: set[str]

    def size(self, name: str) -> float:
        return self.sizes.get(name, 0)

    def in_words(self, name: str) -> str:
        """'1.2 MB'."""
        return human_bytes(self.size(name))

    def moved(self, items: Iterable[Item]) -> int:
        """Bytes that cross memory when each item runs alone."""
        names = [name for item in items for name in [*item.reads, *item.writes]]
        return int(sum(map(self.size, names)))


@dataclass
class Side:
    """One column of the picture: what runs, and the bytes that it moves."""

    title: str
    items: list[Item]
    bytes: int
    saved: int = 0

    @property
    def total(self) -> str:
        """'1.2 MB through memory (800 KB less)'."""
        less = ""
        if self.saved > 0:
            less = f" ({human_bytes(self.saved)} less)"
        return f"{human_bytes(self.bytes)} through memory{less}"


@dataclass
class Sides:
    """Before and after fusion."""

    before: Side
    after: Side

    def __iter__(self) -> Iterator[Side]:
        return iter((self.before, self.after))


def sides(before: list[Item], after: list[Item], bytes_before: int, bytes_after: int) -> Sides:
    """Both columns with their headings."""
    return Sides(
        Side(f"Before: {plural(len(before), 'loop')}, each alone", before, bytes_before),
        Side(
            f"After: {plural(len(after), 'kernel')}", after, bytes_after, bytes_before - bytes_after
        ),
    )


# ---- from the schedule ---------------------------------------------------------------------------


def nodes_of(kernel: Any) -> Sequence[Any]:
    """The loops of a kernel; a library call is its own."""
    return getattr(kernel, "nodes", None) or (kernel,)


def item_of_node(node: Any) -> Item:
    """A loop that runs alone, or a library call."""
    written_names = [buffer.name for buffer in node.buffers]
    return Item(label_of(node), [loop_of(node)], reads(node), written_names, is_extern(node))


def item_of_kernel(kernel: Any) -> Item:
    """A kernel of the schedule."""
    if is_extern(kernel):
        return item_of_node(kernel)

    # What one loop of the kernel hands to another need not reach memory: only what does is shown.
    read: dict[str, None] = {}
    written_names = []
    for node in kernel.nodes:
        read.update(dict.fromkeys(name for name in reads(node) if name in kernel.reads))
        written_names += [buffer.name for buffer in node.buffers if buffer.name in kernel.stores]
    return Item(kernel.name, list(map(loop_of, kernel.nodes)), list(read), written_names)


def loop_of(node: Any) -> Loop:
    """A loop in words."""
    if is_extern(node):
        # (A kernel that is written as a whole, such as attention, is no library's.)
        return Loop("library call" if node.is_library else node.space, label_of(node))

    ranges = "×".join(map(str, node.ranges)) or "1"
    reduced = "×".join(map(str, getattr(node, "reduced", ())))
    if reduced:
        ranges += f", reducing {reduced}"
    return Loop(ranges, label_of(node))


def buffers_of(schedule: Any, graph: Any, after: Iterable[Item]) -> Buffers:
    """What is known of the buffers; `graph` may be None, then no result is told apart."""
    views = [view for view in getattr(graph, "outputs", ()) if hasattr(view, "buffer")]
    kept_names = {name for item in after for name in item.writes}
    return Buffers(buffer_sizes(schedule, graph), kept_names, {view.buffer.name for view in views})


def buffer_sizes(schedule: Any, graph: Any) -> dict[str, float]:
    """Buffer → bytes."""
    buffers: dict[str, Any] = dict(graph.buffers) if graph is not None else {}
    for kernel in schedule.kernels:
        for node in nodes_of(kernel):
            buffers.update({buffer.name: buffer for buffer in node.buffers})

    constants = getattr(graph, "constants", {})
    sizes: dict[str, float] = {name: tensor.nbytes for name, tensor in constants.items()}
    for name, buffer in buffers.items():
        try:
            sizes[name] = float(buffer.nbytes)
        except TypeError:  # a size that is not known yet
            sizes[name] = 0.0
    return sizes
