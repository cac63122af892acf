"""What a Triton kernel will look like, decided before a line of it is printed.

In:  a `FusedKernel` and its steps as trees.
Out: a `TritonPlanner`: which rows each program walks along, how large its tile is
     (`choose_tiling`), what is done in each pass over the columns (`plan_passes`), and how a matrix
     product is summed (`plan_product`).

`codegen.triton` prints what is decided here. The numbers below were measured:
docs/measurements/gpu.md.
In PyTorch: `torch/_inductor/choices.py`, `InductorChoices.should_use_persistent_reduction`;
`torch/_inductor/codegen/simd.py`, `SIMDScheduling.select_tiling`.
"""

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import sympy
import torch

from course_lib.codegen.loops import Phase, iterations, phases, reduction
from course_lib.codegen.tilings import LARGEST_TILE, PRODUCT_STEP, STEP, ProductTiling, Tiling
from course_lib.lowering.indexing import Linear
from course_lib.lowering.ir import Buffer, Product
from course_lib.lowering.reduction_kinds import MAX, SUM
from course_lib.scheduling.expressions import Expr, TreeBuilder, loads, symbols_of
from course_lib.scheduling.kernel import FusedKernel, Loop, Step
from course_lib.scheduling.products import allows_tf32
from course_lib.scheduling.split import rows_are_neighbours
from course_lib.sizes import hint, is_symbolic, quotient, surely

# Longest row that is held in registers
PERSISTENT = 16 * 1024
# The same where rows are neighbours, if a row is walked more than once
PERSISTENT_ACROSS = 512
# From here on numbers need 64 bits: the last tile counts on behind the end
LARGEST = 2**31 - LARGEST_TILE


class Directions(NamedTuple):
    """The loops over the batch, down the rows and across the columns of a product's result."""

    batch: list[Loop]
    down: list[Loop]
    across: list[Loop]


@dataclass(frozen=True)
class ProductPlan:
    """How the sum along k of a matrix product is made."""

    # The loop over the columns of the left operand, and the same loop down the rows of the right
    # one
    k: Loop
    k_down: Loop
    left: Expr
    right: Expr
    # Must a tile say which of its elements are inside?
    is_masked: bool
    # How `tl.dot` rounds float32; empty where the operands are halves
    precision: str


class Softmax(NamedTuple):
    """The maximum of x along a row, and the sum of exp(x - maximum)."""

    best: Step
    total: Step


@dataclass(frozen=True)
class TritonPass:
    """What a program does with the columns in one phase."""

    phase: Phase
    # True if it computes anything there
    walks: bool = True
    # True in the first pass over a row that is held in registers: it says which columns these are
    names_columns: bool = False
    # Two passes in one, if they can be
    softmax: Softmax | None = None


class TritonPlanner:
    """Decides about one kernel."""

    def __init__(
        self, kernel: FusedKernel, trees: Mapping[Step, Expr], buffers: Mapping[str, Buffer]
    ) -> None:
        self.kernel, self.trees = kernel, trees
        self.phases = phases(kernel, trees, keep=False)
        self.product = next((step for step in trees if isinstance(step.node, Product)), None)
        self.walked = self.loops_to_walk()

        # Along k a product counts by itself.
        counted_loops = kernel.loops
        if self.product:
            counted_loops = kernel.rows
        self.needs_64_bits = is_any_large(
            [iterations(counted_loops), *(buffer.extent for buffer in buffers.values())]
        )

    def loops_to_walk(self) -> tuple[Loop, ...]:
        """The rows over which sums are gathered on the way: each program walks along its chunk of
        them."""
        gathered: set[sympy.Symbol] = set()
        for step in self.trees:
            if step.level == "across":
                for formula in step.rindex:
                    gathered |= formula.free_symbols
        return tuple(loop for loop in self.kernel.rows if loop.symbol in gathered)

    # --- the tile

    def choose_tiling(self) -> Tiling:
        """One tile for each program: of elements, of rows that fit in registers, or of a part of a
        long row."""
        # The rows that one program walks along, or all of them
        rows = iterations(self.walked or self.kernel.rows)
        if not self.kernel.columns:
            return Tiling(rows, columns=0)
        if self.product:
            return self.tiling_of_product(self.product)

        columns: Any = iterations(self.kernel.columns)
        if not is_symbolic(columns):
            columns = max(1, columns)

        if self.walked:
            chunks = iterations(self.kernel.rows) // rows
            return Tiling(rows, columns, persistent=True, chunks=chunks)

        longest = PERSISTENT
        across_rows = self.rows_are_neighbours()
        if across_rows:
            # A row that is walked once needs no registers.
            passes = [phase for phase in self.phases if phase.columns]
            longest = PERSISTENT_ACROSS if len(passes) > 1 else STEP

        # Registers are given out when a kernel is compiled. Of a symbolic length nobody knows how
        # many it takes.
        fits = not is_symbolic(columns) and columns <= longest
        return Tiling(rows, columns, persistent=fits, across=across_rows)

    def tiling_of_product(self, product: Step) -> ProductTiling:
        """A tile of the result for each program."""
        batch, down, across = self.directions(product)
        return ProductTiling(
            rows=iterations(down),
            columns=iterations(across),
            batch=iterations(batch),
            depth=iterations(self.kernel.columns),
        )

    def directions(self, product: Step) -> Directions:
        """Which loop is which of a product's."""
        rows = self.kernel.rows
        m, n = (formula.free_symbols for formula in product.index[-2:])
        return Directions(
            batch=[loop for loop in rows if loop.symbol not in m and loop.symbol not in n],
            down=[loop for loop in rows if loop.symbol in m],
            across=[loop for loop in rows if loop.symbol in n],
        )

    def rows_are_neighbours(self) -> bool:
        """True if most of what is read lies row beside row in memory, not along the row."""
        loops = {loop.symbol for loop in self.kernel.loops}
        reads = []
        for tree in self.trees.values():
            reads += [Linear.of(index, loops) for _, index in loads(tree)]

        rows = [loop.symbol for loop in self.kernel.rows]
        columns = [loop.symbol for loop in self.kernel.columns]
        return rows_are_neighbours(reads, rows, columns)

    # --- passes over the columns

    def plan_passes(self, persistent: bool) -> list[TritonPass]:
        """What is done in each phase.

        `persistent`: rows are held in registers, so a pass walks along nothing."""
        plans: list[TritonPass] = []
        steps_done: set[Step] = set()
        for number, phase in enumerate(self.phases):
            softmax = None
            if not persistent:
                softmax = self.softmax_from(number)
            if softmax:
                steps_done.update(softmax)

            # The second pass of a softmax has gathered its sum in the first.
            is_done = bool(phase.reductions) and steps_done.issuperset(phase.reductions)
            names_columns = persistent and number == 1 and not self.walked
            walks = bool(phase.columns) and not is_done
            plans.append(TritonPass(phase, walks, names_columns, softmax))
        return plans

    def softmax_from(self, number: int) -> Softmax | None:
        """The reductions of a softmax, if this pass finds the maximum of x, the next one the sum of
        exp(x - maximum), and neither does anything else. Then one pass can do both."""
        pair = self.phases[number : number + 2]
        if len(pair) < 2 or not all(only_reduces(phase) for phase in pair):
            return None

        best, total = pair[0].reductions[0], pair[1].reductions[0]
        kinds = reduction(best).combines, reduction(total).combines
        if kinds != (MAX, SUM) or best.buffer.dtype != torch.float32:
            return None

        # Is it the exp of a difference, and from this maximum?
        exp = self.through(self.trees[total])
        if exp.op != "exp":
            return None
        difference = self.through(exp.args[0])
        if difference.op != "sub" or difference.args[1].detail is not best:
            return None

        # And of the same elements?
        x = self.through(difference.args[0])
        if x is not self.through(self.trees[best]):
            return None
        return Softmax(best, total)

    def through(self, expr: Expr) -> Expr:
        """The formula behind a name: a `value_of` node stands for the value of another step, and
        the tree of that step is returned. A reduction, or what is known once a row, stays a
        name."""
        while expr.op == "value_of":
            step = expr.detail
            if step.is_reduction or step.level != "column":
                break
            expr = self.trees[step]
        return expr

    # --- a matrix product

    def plan_product(self, product: Step, builder: TreeBuilder) -> ProductPlan:
        """The operands, and whether their tiles need masks."""
        (k,) = self.kernel.columns
        k_down = k._replace(symbol=sympy.Symbol(f"{k.symbol}_down"))

        # The right operand once more, with another name for k: it runs down there.
        left = self.trees[product].args[0]
        right = replace(product, rindex=(k_down.symbol,)).value(builder).args[1]
        if are_halves(left, right):
            # multiplied as they are, and summed in float32
            left, right = left.args[0], right.args[0]

        # No mask is needed where every tile along k is full, and outside of the result nothing is
        # read that counts.
        _, down, across = self.directions(product)
        operands_spread = (
            self.spreads(left, down)
            and self.spreads(left, [k])
            and self.spreads(right, [k_down])
            and self.spreads(right, across)
        )
        is_masked = k.size % PRODUCT_STEP != 0 or not operands_spread

        precision = ""
        if left.dtype == torch.float32:
            precision = "tf32" if allows_tf32() else "ieee"
        return ProductPlan(k, k_down, left, right, is_masked, precision)

    def spreads(self, tree: Expr, loops: Sequence[Loop]) -> bool:
        """True if a value differs along one of the loops."""
        symbols = symbols_of(tree, self.trees)
        return not symbols.isdisjoint(loop.symbol for loop in loops)


def is_any_large(counts: Iterable[Any]) -> bool:
    """Does one of these numbers need 64 bits?

    Of a symbolic one the answer is a guard, if it is not surely the smaller of two."""
    known: list[Any] = []
    for count in sorted(counts, key=hint, reverse=True):
        if any(is_no_larger(count, other) for other in known):
            continue
        if count >= LARGEST:
            return True
        known.append(count)
    return False


def is_no_larger(count: Any, other: Any) -> bool:
    """True if `other` is `count` times something, or `count` and something, for all sizes."""
    times = quotient(other, count)
    is_part = times is not None and surely(operator.ge, times, 1)
    return is_part or surely(operator.ge, other - count, 0)


def only_reduces(phase: Phase) -> bool:
    """True if a pass has one reduction, and stores nothing beside."""
    others = {*phase.columns} - {*phase.reductions}
    return len(phase.reductions) == 1 and not phase.stored & others


def are_halves(left: Expr, right: Expr) -> bool:
    """True if both are the same kind of halves, converted."""
    if left.op != "to_dtype" or right.op != "to_dtype":
        return False
    dtypes = {left.args[0].dtype, right.args[0].dtype}
    return dtypes in ({torch.float16}, {torch.bfloat16})
