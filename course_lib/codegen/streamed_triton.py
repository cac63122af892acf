"""A stream as Triton: each program has a block of rows and walks along the columns, block by block.

In:  a `Streamed` node: products, what is computed of their elements, reductions along a row, a last
     product.
Out: one `@triton.jit` function (and a small one before it, where a mask hides whole blocks).

    queries = a block of rows                                  once for each program
    for each block of columns that the mask does not hide
        scores = tl.dot(queries, keys)
        the maximum of each row grows; `factor` rescales what was summed
        weights = 2 ** (...)
        total = tl.dot(weights, values, total * factor)
    result = total / sum, or whatever the program says

Blocks that a mask leaves whole have a loop of their own, in which no mask is computed
(`stream_walks`).
In PyTorch: `torch/_inductor/kernel/flex/templates/flex_attention.py.jinja` (a template; mask and
scores are put in).
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
import torch

from course_lib.codegen.printer import Line
from course_lib.codegen.stream_block import INFINITY, BlockOps
from course_lib.codegen.stream_plan import ENDS, plan_stream
from course_lib.codegen.stream_trees import StreamTrees, is_exponential_of
from course_lib.codegen.stream_walks import LEAST_SIDE, is_same_factor
from course_lib.codegen.streamed_ops import symbol_like
from course_lib.codegen.triton import TritonSource
from course_lib.codegen.triton_ops import HELPERS, RESERVED
from course_lib.lowering.indexing import power_of_two
from course_lib.lowering.ir import Buffer
from course_lib.lowering.ops import substitute
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.kernel import FusedKernel
from course_lib.scheduling.stream_nodes import OfRow, Streamed

NAMES = """program matrix block first last free_from free_to n0 place finite shown is_finite
    turn is_empty begin end columns_down rows_are_finite""".split()
"""Names that the lines below write themselves: no value of the program gets one of them."""


@dataclass(frozen=True)
class StreamSource(TritonSource):
    """The source of a stream, with what it is given beside the buffers."""

    # The kernel that looks whether all values are finite: its source, and how many flags it writes
    look: TritonSource | None = None
    flags: int = 0
    # The walk of each block of rows
    table: tuple[int, ...] = ()


class StreamedTriton(BlockOps):
    """Walks along one stream. (Methods called `print_<op>` are a printer's way to spell an
    operation: these here `write`.)"""

    def __init__(self, node: Streamed, buffers: Mapping[str, Buffer], name: str) -> None:
        nothing = FusedKernel(name, (), (), frozenset(), frozenset())
        super().__init__(nothing, buffers, name, [*RESERVED, *HELPERS, *NAMES, name])
        self.plan = plan_stream(node, buffers)
        self.stream = node.stream
        written = (buffer.name for buffer in node.buffers)
        self.touched = self.passed = (*self.stream.reads, *written)
        self.masks = {}

        loops = [*self.stream.batch, self.stream.row, self.stream.column]
        loops += [end.values.columns for end in self.stream.ends]
        loops += [each.left.columns for each in self.stream.scores]
        self.taken |= {str(loop.symbol) for loop in loops}
        # The columns of the matrix are the rows of keys and values: there their symbol runs down.
        self.column_down = symbol_like(self.stream.column.symbol, "_down")
        self.taken.add(str(self.column_down))

        # Names that are given while lines are written (`BlockOps` and `StreamedOps` say whose)
        self.kept = {}
        self.totals = {}
        self.queries = {}
        self.depths = {}
        self.widths = {}
        self.loaded = {}
        self.shifts = {}

    def print(self) -> StreamSource:
        """The whole kernel, and what is needed above it."""
        self.pointers = {name: self.unique(name) for name in self.passed}
        look = self.look()
        with self.block(""):  # its opening is known when the rest is
            self.write_place()
            self.write_queries()
            self.write_kept()
            self.write_finite_rows()
            self.write_turns()
            self.write_results()

        # Behind the buffers: flags of the small kernel, and the table of walks
        behind = []
        if look:
            behind.append("finite")
        if self.plan.has_table:
            behind.append("shown")
        given = [*(self.pointers[name] for name in self.passed), *behind]
        self.lines[:1] = self.opening(self.name, given, ["ROWS", "COLUMNS"])
        if look:
            self.lines[:0] = [Line(0, text) for text in look.source.splitlines()]
        self.lines[:0] = [Line(0, text) for text in self.header()]

        source, line_of = self.layout("    ")
        # The small kernel stands in the same source, so both are compiled from it.
        looking, flags = None, 0
        if look:
            looking = replace(look, source=source)
            flags = self.plan.tiling.matrices * self.plan.flags_of_matrix

        table: tuple[int, ...] = ()
        if self.plan.has_table:
            table = tuple(self.plan.tiling.table)
        types = [*self.types_of(self.passed), *["*i32"] * len(behind)]
        return StreamSource(
            name=self.name,
            language="triton",
            source=source,
            buffers=self.passed,
            line_of=line_of,
            tiling=self.plan.tiling,
            types=tuple(types),
            look=looking,
            flags=flags,
            table=table,
            flushes=True,
        )

    # --- which part of the matrix

    def write_place(self) -> None:
        """Which matrix and which rows this program has, and where its columns begin and end."""
        blocks = len(self.plan.tiling.walks)  # of rows, in each matrix
        to_64_bits = ".to(tl.int64)" if self.plan.needs_64_bits else ""
        self.line(f"program = tl.program_id(0){to_64_bits}")

        # Neighbouring programs have the blocks of one matrix
        matrix, block = "program", "0"
        if blocks > 1:
            matrix, block = f"program // {blocks}", f"program % {blocks}"
        self.write_batch(matrix)

        if self.plan.tiling.starts_last:
            self.line("# The last rows have the longest walk: they start first")
            block = f"{blocks - 1} - {block}"
        self.line(f"block = {block}")
        self.write_walk()

        row = self.stream.row
        self.line(f"{row.symbol} = (block * ROWS + tl.arange(0, ROWS))[:, None]")
        if row.size % self.plan.tiling.tile.meta["ROWS"]:
            self.line(f"rows = {row.symbol} < {row.size}")
            self.masks[row.symbol] = "rows"

    def write_walk(self) -> None:
        """From where to where the columns go: by a formula of the block, or from the table."""
        lines = self.plan.tiling.lines
        if lines is None:
            # The table has four ends for each block.
            self.line("shown += block * 4")
            self.line(*(f"{name} = tl.load(shown + {n})" for n, name in enumerate(ENDS)))
        else:
            blocks = len(self.plan.tiling.walks)
            named = zip(ENDS, lines, strict=True)
            self.line(*(f"{name} = {line.source(blocks)}" for name, line in named if line.slope))
        if self.plan.has_look:
            self.write_finite()

    # --- operands

    def write_queries(self) -> None:
        """The left operands of the products, once for each program."""
        for scores in self.stream.scores:
            loop = scores.left.columns
            if loop.size not in self.depths:
                symbol = loop.symbol
                if self.depths:
                    symbol = symbol_like(loop.symbol, str(len(self.depths)))
                    self.taken.add(str(symbol))
                self.depths[loop.size] = symbol
                self.write_arange(loop, symbol)
        self.write_widths()

        for scores in self.stream.scores:
            depth = self.depths[scores.left.columns.size]
            operand = self.operand(scores.left, down=False, depth=depth)
            self.queries[scores.leaf] = self.write_operand(
                "queries", operand, self.plan.dtype_of_product(scores)
            )

    def write_widths(self) -> None:
        """The loops along a row of the results that no product of scores has."""
        rights = [scores.right for scores in self.stream.scores]
        for end in self.stream.ends:
            loop = end.values.columns
            is_known = any(is_same_factor(right, end.values) for right in rights)
            if is_known or loop.size in self.widths:
                continue
            symbol = loop.symbol
            if self.widths:
                symbol = symbol_like(loop.symbol, str(len(self.widths)))
                self.taken.add(str(symbol))
            self.widths[loop.size] = symbol
            self.write_arange(loop, symbol)

    # --- the columns, block by block

    def write_kept(self) -> None:
        """What grows along a row: maxima, sums, totals. And what is the same for a whole row."""
        stream = self.stream
        for tree in self.plan.of_rows():
            if tree not in self.values:
                self.count_uses([tree])
                self.bind(tree, self.text(tree, whole=True), self.name_for(tree))

        for leaf in stream.maxima:
            self.kept[leaf] = self.unique("highest")
            self.line(f"{self.kept[leaf]} = tl.full([ROWS], -{INFINITY}, tl.float32)")
        for leaf, _ in stream.sums:
            self.kept[leaf] = self.unique("summed")
        for end in stream.ends:
            self.totals[end] = [self.unique("total") for _ in end.split.cores]
        if not self.plan.two_turns:
            self.write_zeros()

    def write_zeros(self) -> None:
        """Nothing was summed so far."""
        for leaf, _ in self.stream.sums:
            self.line(f"{self.kept[leaf]} = tl.zeros([ROWS], tl.float32)")
        for end, totals in self.totals.items():
            width = max(LEAST_SIDE, power_of_two(end.values.columns.size))
            for total in totals:
                self.line(f"{total} = tl.zeros([ROWS, {width}], tl.float32)")

    def write_turns(self) -> None:
        """All blocks of columns; once more if a row has nothing but -inf, with the maxima known:
        then each step is eager's."""
        if not self.plan.two_turns:
            self.write_blocks()
            return

        ends = self.plan.ends
        self.line("turn = 0")
        self.write_zeros()
        with self.block("while turn < 2:"):
            self.write_zeros()
            self.line("# In the second turn nothing is left out")
            self.line(f"begin = tl.where(turn > 0, 0, {ends.first})")
            self.line(f"end = tl.where(turn > 0, {self.plan.end}, {ends.last})")
            self.write_walked(self.plan.cut, "begin", "end")

            lowest = " | ".join(
                f"({self.kept[leaf]} == -{INFINITY})" for leaf in self.stream.maxima
            )
            self.line(f"is_empty = tl.max(({lowest}).to(tl.int32), 0)")
            self.line("turn = tl.where((turn == 0) & (is_empty > 0), 1, 2)")

    def write_blocks(self) -> None:
        """The blocks that no mask cuts, then those around them."""
        ends, tiling = self.plan.ends, self.plan.tiling
        if not tiling.has_free:
            self.write_walked(self.plan.cut, ends.first, ends.last)
            return
        if not tiling.has_cut and not tiling.has_hidden:
            self.write_walked(self.plan.free, ends.free_from, ends.free_to)
            return

        self.line("# Blocks that no mask cuts")
        self.write_walked(self.plan.free, ends.free_from, ends.free_to)
        if (ends.first, ends.free_from) == ("0", "0"):
            self.line("# The blocks behind them")
            self.write_walked(self.plan.cut, ends.free_to, ends.last)
            return
        self.line("# The blocks around them")
        jump = f"{ends.free_to} - {ends.free_from}"
        opening = f"for place in range({ends.first}, {ends.last} - ({jump}), COLUMNS):"
        with self.own_names(), self.block(opening):
            self.line(f"n0 = tl.where(place < {ends.free_from}, place, place + {jump})")
            self.write_block(self.plan.cut)

    def write_walked(self, trees: StreamTrees, first: str, last: str) -> None:
        """The loop over the blocks between two columns."""
        with self.own_names(), self.block(f"for n0 in range({first}, {last}, COLUMNS):"):
            self.write_block(trees)

    @contextlib.contextmanager
    def own_names(self) -> Iterator[None]:
        """Names of one loop may be taken again in the next."""
        taken = set(self.taken)
        yield
        self.taken = taken

    # --- the end

    def write_results(self) -> None:
        """Of the totals of a row, its results; and numbers of the row itself."""
        stream = self.stream
        for leaf in stream.maxima:
            self.values[leaf] = self.maximum_text(
                self.kept[leaf], self.plan.cut.logits_of(leaf.detail)
            )
        for leaf, _ in stream.sums:
            self.values[leaf] = f"{self.kept[leaf]}[:, None]"

        for end in stream.ends:
            finish = self.plan.cut.of(end.split.finish)
            for node in finish.walk():
                if node.op == "total":
                    self.values[node] = self.totals[end][node.detail]
            column = self.symbol_of(end)
            place = substitute(end.place, {end.values.columns.symbol: column})
            self.write_result(finish, end.out, place, [stream.row.symbol, column])
        for number in stream.of_rows:
            self.write_number(number)

    def write_number(self, number: OfRow) -> None:
        """Store a number of each row. (Where all logits are -inf, a sum is NaN as in eager.)"""
        with self.names():
            for leaf, powers in self.stream.sums:
                for running in powers:
                    if is_exponential_of(leaf.detail.term, running):
                        highest, summed = self.highest_of(running), self.kept[leaf]
                        text = f'tl.where({highest} == -{INFINITY}, float("nan"), {summed})'
                        self.values[leaf] = f"{text}[:, None]"
            tree = self.plan.cut.of(number.tree)
            self.write_result(tree, number.out, number.place, [self.stream.row.symbol])

    def write_result(
        self, tree: Expr, out: Buffer, place: sympy.Expr, symbols: Sequence[sympy.Symbol]
    ) -> None:
        """Store a value for each of the symbols."""
        self.count_uses([tree])
        result = self.unique("result")
        self.line(f"{result} = {self.text(tree, whole=True)}")
        if out.dtype != torch.float32:
            result = f"{result}.to({self.type_name(out.dtype)})"
        arguments = [self.place(out.name, place), result]
        if masks := [self.masks[symbol] for symbol in symbols if symbol in self.masks]:
            arguments.append(" & ".join(masks))
        self.line(f"tl.store({', '.join(arguments)})")


def streamed_triton_source(
    node: Streamed, buffers: Mapping[str, Buffer], name: str
) -> StreamSource:
    """Print one stream. `buffers` knows at least those that it reads."""
    return StreamedTriton(node, buffers, name).print()
