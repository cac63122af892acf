"""What a stream is: a kernel that walks along rows in blocks, as a node of the program (`streams`
makes it, a printer writes it).

A stream has leaves (`scores`: products whose tiles are computed on the way), reductions that run
while the columns come, and ends: products that sum over the columns, and numbers of each row that
others need, too. No matrix of rows x columns is stored.
"""

from dataclasses import dataclass
from typing import ClassVar

import sympy
import torch

from course_lib.lowering.ir import Buffer, ExternKernel, Node
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.kernel import Loop
from course_lib.scheduling.rescaling import Powers, Split

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
HALVES = (torch.float16, torch.bfloat16)
# On a GPU a stream stores several things (as training needs it) where no row of an operand is
# longer: longer ones were not measured there yet
LONGEST_WITH_SEVERAL = 64


@dataclass(frozen=True)
class Factor:
    """An operand of a product: one element of it as a tree, over the symbols of the batch and of
    the two loops."""

    tree: Expr
    rows: Loop
    columns: Loop


@dataclass(frozen=True)
class Scores:
    """A product whose tiles are computed on the way: `leaf` stands for its elements in the
    trees."""

    leaf: Expr
    left: Factor
    right: Factor


@dataclass(frozen=True, eq=False)
class End:
    """A product that sums over the columns."""

    # The left operand, computed on the way, and what becomes of the totals
    split: Split
    # The right operand
    values: Factor
    # The buffer that the result goes to, and the index of an element in it
    out: Buffer
    place: sympy.Expr


@dataclass(frozen=True)
class OfRow:
    """A number of each row that is stored. It is known when the row ends."""

    tree: Expr
    out: Buffer
    place: sympy.Expr


@dataclass(frozen=True, eq=False)
class Stream:
    """All that a printer needs to know: trees over the symbols of the batch, `row` and `column`."""

    batch: tuple[Loop, ...]
    row: Loop
    column: Loop
    scores: tuple[Scores, ...]
    # Reductions over the columns: maxima first, then sums, with how these change when a maximum
    # does
    maxima: tuple[Expr, ...]
    sums: tuple[tuple[Expr, Powers], ...]
    # What is stored: products, and numbers of each row. At least one of them
    ends: tuple[End, ...]
    of_rows: tuple[OfRow, ...] = ()
    # Everything that is read from memory
    reads: tuple[str, ...] = ()

    # Most streams have one end, and Triton prints no others: its fields, under short names

    @property
    def split(self) -> Split:
        """`End.split` of a stream with one end. Raises ValueError if there are several."""
        (end,) = self.ends
        return end.split

    @property
    def values(self) -> Factor:
        """`End.values` of a stream with one end. Raises ValueError if there are several."""
        (end,) = self.ends
        return end.values

    @property
    def place(self) -> sympy.Expr:
        """`End.place` of a stream with one end. Raises ValueError if there are several."""
        (end,) = self.ends
        return end.place

    @property
    def cores(self) -> list[Expr]:
        """What each end sums over the columns: the left operands of its product (`Split.cores`),
        end by end."""
        return [core for end in self.ends for core in end.split.cores]

    @property
    def trees(self) -> list[Expr]:
        """All trees of the stream: whoever looks for loads walks through them."""
        found = []
        for product in self.scores:
            found += [product.left.tree, product.right.tree]

        # Of a reduction over the columns: the tree whose values are compared or summed
        found += [maximum.detail.term for maximum in self.maxima]
        found += [total.detail.term for total, _ in self.sums]

        for end in self.ends:
            found += [*end.split.cores, end.split.finish, end.values.tree]
        found += [stored.tree for stored in self.of_rows]
        return found


@dataclass(eq=False, kw_only=True, repr=False)
class Streamed(ExternKernel):
    """A stream as a node of the program. To the scheduler it is as closed as a library call."""

    stream: Stream
    # The names of the operations that it is made of
    labels: tuple[str, ...] = ()
    is_library: ClassVar[bool] = False

    @property
    def reads(self) -> set[str]:
        return set(self.stream.reads)

    @property
    def acts(self) -> bool:
        return False

    @property
    def label(self) -> str:
        return "·".join(self.labels)

    @property
    def name(self) -> str:
        return "_".join(["streamed", *self.labels])

    @property
    def space(self) -> str:
        """The loops in words."""
        rows = [loop.size for loop in (*self.stream.batch, self.stream.row)]
        return f"{rows}, columns [{self.stream.column.size}] in blocks"

    def __str__(self) -> str:
        return f"{self.label} over {self.space}"

    def __repr__(self) -> str:
        return f"Streamed({self})"


def label_of(node: Node) -> str:
    """What a node is called: `bmm`, `amax`, ..."""
    if not isinstance(node, ExternKernel):
        return node.label or node.buffer.name
    if hasattr(node.op, "overloadpacket"):
        return node.op.overloadpacket.__name__
    return node.label
