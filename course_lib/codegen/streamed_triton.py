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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
import torch

from course_lib.codegen.printer import ATOM, Line
from course_lib.codegen.stream_trees import (
    Logits,
    Masks,
    StreamTrees,
    depends_on_scores,
    is_nan_where_empty,
    needs_maximum_itself,
)
from course_lib.codegen.stream_walks import (
    LEAST_SIDE,
    TILES_OF_FLOATS,
    all_in_halves,
    choose_stream_tiling,
    longest_operand,
    padded,
)
from course_lib.codegen.tilings import Tiling, divided_up
from course_lib.codegen.triton import TritonSource
from course_lib.codegen.triton_ops import HELPERS, KEEPS_NAN, POINTERS, RESERVED, RULES, TritonOps
from course_lib.codegen.triton_plan import is_any_large
from course_lib.lowering.indexing import power_of_two
from course_lib.lowering.ir import Buffer
from course_lib.scheduling.blocks import vanishes_with_exponential
from course_lib.scheduling.expressions import COSTLY, Expr, loads
from course_lib.scheduling.kernel import FusedKernel, Loop
from course_lib.scheduling.memory import extent
from course_lib.scheduling.products import allows_tf32
from course_lib.scheduling.rescaling import Powers, Running
from course_lib.scheduling.stream_nodes import HALVES, Factor, Scores, Stream, Streamed
from course_lib.scheduling.stream_trees import formulas_of

NAMES = """program matrix block first last free_from free_to n0 place finite shown is_finite
    turn is_empty begin end columns_down""".split()
ENDS = "first", "free_from", "free_to", "last"
# Elements of the values that one program of the small kernel looks at
LOOKED_AT = 16 * 1024
INFINITY = 'float("inf")'
# Totals of 64 columns that fit into the registers of a program
MOST_TOTALS = 4
# How `tl.dot` multiplies float32 where it may not be rounded to ten digits: as three products of
# such, which is as exact
WHOLE_FLOATS = "tf32x3"
LEAVES = frozenset("load constant index_expr scores running total exp".split())


@dataclass(frozen=True)
class StreamSource(TritonSource):
    """The source of a stream, with what it is given beside the buffers."""

    # The kernel that looks whether all values are finite: its source, and how many flags it writes
    look: TritonSource | None = None
    flags: int = 0
    # The walk of each block of rows
    table: tuple[int, ...] = ()


@dataclass(frozen=True)
class Operand:
    """A factor of a product as it is loaded."""

    tree: Expr
    # The masks of what is not in the matrix
    mask: str


@dataclass(frozen=True)
class Ends:
    """A walk as source: where the columns begin and end, and those of them that no mask cuts."""

    first: str
    free_from: str
    free_to: str
    last: str


@dataclass(frozen=True)
class Shift:
    """The name of what each row's logits are shifted by (times a power, if they are bounded)."""

    name: str
    logits: Logits


class StreamedTriton(TritonOps):
    """Walks along one stream. (Methods called `print_<op>` are a printer's way to spell an
    operation: these here `write`.)"""

    def __init__(self, node: Streamed, buffers: Mapping[str, Buffer], name: str) -> None:
        nothing = FusedKernel(name, (), (), frozenset(), frozenset())
        super().__init__(nothing, buffers, name, [*RESERVED, *HELPERS, *NAMES, name])
        self.stream = node.stream
        (self.out,) = node.buffers
        self.touched = self.passed = (*self.stream.reads, self.out.name)
        self.masks = {}

        masks = Masks.of(self.stream)
        self.in_halves = all_in_halves(self.stream)
        self.tiling = choose_stream_tiling(self.stream, masks, self.in_halves, self.out.device)
        # The trees of blocks in which masks are computed, and of those in which they hide nothing
        self.cut = StreamTrees(self.stream, buffers, Masks())
        self.free = StreamTrees(self.stream, buffers, masks)
        if not have_same_factors(self.stream, self.cut, self.free):
            self.free = self.cut
        self.needs_64_bits = is_any_large(map(extent, map(self.buffers.__getitem__, self.passed)))
        self.two_turns = not is_nan_where_empty(self.stream)

        loops = [*self.stream.batch, self.stream.row, self.stream.column]
        loops += [self.stream.values.columns, *(each.left.columns for each in self.stream.scores)]
        self.taken |= {str(loop.symbol) for loop in loops}
        self.column_down = symbol_like(self.stream.column.symbol, "_down")
        self.taken.add(str(self.column_down))

        # What is kept for each row, the totals, and the left operands of scores
        self.kept: dict[Expr, str] = {}
        self.totals: list[str] = []
        self.queries: dict[Expr, str] = {}
        # Size of a depth → its symbol
        self.depths: dict[int, sympy.Symbol] = {}
        # What is subtracted from logits before they become powers of two
        self.shifts: dict[Running, Shift] = {}

    def print(self) -> StreamSource:
        """The whole kernel, and what is needed above it."""
        self.pointers = {name: self.unique(name) for name in self.passed}
        look = self.look()
        with self.block(""):  # its opening is known when the rest is
            self.write_place()
            self.write_queries()
            self.write_kept()
            self.write_turns()
            self.write_results()

        # Behind the buffers: flags of the small kernel, and the table of walks
        behind = []
        if look:
            behind.append("finite")
        if self.has_table:
            behind.append("shown")
        given = [*(self.pointers[name] for name in self.passed), *behind]
        self.lines[:1] = self.opening(self.name, given, ["ROWS", "COLUMNS"])
        if look:
            self.lines[:0] = [Line(0, text) for text in look.source.splitlines()]
        self.lines[:0] = [Line(0, text) for text in self.header()]

        source, line_of = self.layout("    ")
        return StreamSource(
            name=self.name,
            language="triton",
            source=source,
            buffers=self.passed,
            line_of=line_of,
            tiling=self.tiling,
            types=(*self.types_of(self.passed), *(["*i32"] * len(behind))),
            look=replace(look, source=source) if look else None,
            flags=self.tiling.matrices * self.flags_of_matrix if look else 0,
            table=tuple(self.tiling.table) if self.has_table else (),
            flushes=True,
        )

    def types_of(self, names: Iterable[str]) -> list[str]:
        """Triton's names for pointers to these buffers."""
        return [POINTERS[self.buffers[name].dtype] for name in names]

    def opening(self, name: str, given: Sequence[str], sizes: Sequence[str]) -> list[Line]:
        parameters = [*given, *(f"{size}: tl.constexpr" for size in sizes)]
        return [Line(0, "@triton.jit"), Line(0, f"def {name}({', '.join(parameters)}):")]

    @property
    def has_table(self) -> bool:
        return self.tiling.lines is None

    # --- which part of the matrix

    def write_place(self) -> None:
        """Which matrix and which rows this program has, and where its columns begin and end."""
        blocks = len(self.tiling.walks)
        to_64_bits = ".to(tl.int64)" if self.needs_64_bits else ""
        self.line(f"program = tl.program_id(0){to_64_bits}")
        self.write_batch("program" if blocks == 1 else f"program // {blocks}")
        block = "0" if blocks == 1 else f"program % {blocks}"
        if self.tiling.starts_last:
            self.line("# The last rows have the longest walk: they start first")
            block = f"{blocks - 1} - {block}"
        self.line(f"block = {block}")
        self.write_walk()

        row = self.stream.row
        self.line(f"{row.symbol} = (block * ROWS + tl.arange(0, ROWS))[:, None]")
        if row.size % self.tiling.tile.meta["ROWS"]:
            self.line(f"rows = {row.symbol} < {row.size}")
            self.masks[row.symbol] = "rows"

    def write_batch(self, number: str) -> None:
        """The symbols of the batch."""
        self.line(f"matrix = {number}")
        rest = self.tiling.matrices
        for loop in self.stream.batch:
            above, rest = rest, rest // loop.size
            digit = "matrix" if rest == 1 else f"matrix // {rest}"
            wraps = f" % {loop.size}" if above != self.tiling.matrices else ""
            self.line(f"{loop.symbol} = {digit}{wraps}")

    def write_walk(self) -> None:
        """From where to where the columns go: by a formula of the block, or from the table."""
        lines = self.tiling.lines
        if lines is None:
            self.line("shown += block * 4")
            self.line(*(f"{name} = tl.load(shown + {n})" for n, name in enumerate(ENDS)))
        else:
            blocks = len(self.tiling.walks)
            named = zip(ENDS, lines, strict=True)
            self.line(*(f"{name} = {line.source(blocks)}" for name, line in named if line.slope))
        if self.tiling.has_hidden:
            self.write_finite()

    @property
    def ends(self) -> Ends:
        """Of this program's walk, as source."""
        if self.tiling.lines is None:
            return Ends(*ENDS)
        texts = []
        for name, line in zip(ENDS, self.tiling.lines, strict=True):
            # The kernel may set these two anew.
            may_change = self.tiling.has_hidden and (name, line.low) != ("first", 0)
            is_named = line.slope or (may_change and name in ("first", "last"))
            texts.append(name if is_named else str(line.low))
        return Ends(*texts)

    @property
    def end(self) -> int:
        """Where the last block of columns ends."""
        return padded(self.stream.column.size, self.tiling.tile)

    # --- what a mask hides may be infinite: then 0 times it is NaN in eager

    @property
    def looked_at(self) -> int:
        """Rows of the values that one program of the small kernel looks at."""
        width = power_of_two(self.stream.values.columns.size)
        return min(LOOKED_AT // width, power_of_two(self.stream.column.size))

    @property
    def flags_of_matrix(self) -> int:
        return int(divided_up(self.stream.column.size, self.looked_at))

    def look(self) -> TritonSource | None:
        """The small kernel: a flag for each part of the values, 1 if something in it is NaN or
        infinite."""
        if not self.tiling.has_hidden:
            return None
        column, parts = self.stream.column, self.flags_of_matrix
        factor, name = self.stream.values, f"{self.name}_look"
        with self.names(), self.block(""):
            self.line("program = tl.program_id(0)" + ".to(tl.int64)" * self.needs_64_bits)
            self.write_batch("program" if parts == 1 else f"program // {parts}")
            start = "" if parts == 1 else f"program % {parts} * ROWS + "
            self.line(f"{self.column_down} = ({start}tl.arange(0, ROWS))[:, None]")
            self.line(f"columns_down = {self.column_down} < {column.size}")
            self.masks[self.column_down] = "columns_down"
            self.write_arange(factor.columns, factor.columns.symbol)
            value = self.write_operand("elements", self.operand(factor, down=True), torch.float32)
            others = self.unique("others")
            self.line(
                f"{others} = ({value} - {value} != 0).to(tl.int32)  # NaN and infinity",
                f"tl.store(finite + program, 1 - tl.max(tl.max({others}, 1), 0))",
            )
        passed = [b for b in self.stream.reads if b in names_of_loads(factor.tree)]
        pointers = [self.pointers[b] for b in passed]
        lines = [*self.opening(name, [*pointers, "finite"], ["ROWS"]), *self.lines[1:]]
        self.lines, self.masks = [], {}
        text = "\n".join("    " * line.depth + line.text for line in lines)
        return TritonSource(
            name=name,
            language="triton",
            source=f"{text}\n\n\n",
            buffers=tuple(passed),
            types=(*self.types_of(passed), "*i32"),
            tiling=LookTiling(
                self.tiling.matrices * parts * self.looked_at, 1, part=self.looked_at
            ),
        )

    def write_finite(self) -> None:
        """Nothing is left out where one of the values is not finite."""
        first, last = "first", "last"
        if self.tiling.lines:
            first, last = (
                name if line.slope else str(line.low)
                for name, line in zip(ENDS, self.tiling.lines, strict=True)
                if name in ("first", "last")
            )
        parts = self.flags_of_matrix
        flags = f"tl.arange(0, {power_of_two(parts)})"
        mask = "" if parts == power_of_two(parts) else f", {flags} < {parts}, 1"
        found = f"tl.min(tl.load(finite + matrix * {parts} + {flags}{mask}), 0)"
        if parts == 1:
            found = "tl.load(finite + matrix)"
        self.line(
            "# In eager 0 times infinity is NaN: where a value is not finite, no block is left out",
            f"is_finite = {found} > 0",
            *([f"first = tl.where(is_finite, {first}, 0)"] if first != "0" else []),
            f"last = tl.where(is_finite, {last}, {self.end})",
        )

    # --- operands

    def write_arange(self, loop: Loop, symbol: sympy.Symbol) -> None:
        """The loop along a row of an operand, padded to a power of two."""
        room = max(LEAST_SIDE, power_of_two(loop.size))
        self.line(f"{symbol} = tl.arange(0, {room})[None, :]")
        if room != loop.size:
            mask = f"inside_{symbol}"
            self.line(f"{mask} = {symbol} < {loop.size}")
            self.masks[symbol] = mask

    def operand(self, factor: Factor, down: bool) -> Operand:
        """A factor whose rows go down. `down`: its rows are the columns of the matrix."""
        depth = self.depths.get(factor.columns.size, factor.columns.symbol)
        if factor is self.stream.values:
            depth = factor.columns.symbol
        row = self.column_down if down else factor.rows.symbol
        names = {factor.rows.symbol: row, factor.columns.symbol: depth}
        tree = self.cut.renamed(factor.tree, names)
        masks = [self.masks[symbol] for symbol in (row, depth) if symbol in self.masks]
        return Operand(tree, " & ".join(masks))

    def write_operand(self, wanted: str, operand: Operand, dtype: torch.dtype) -> str:
        """A tile of an operand. Outside of the matrix it is 0."""
        tree, name = operand.tree, self.unique(wanted)
        source = tree.args[0] if tree.op == "to_dtype" else tree
        self.count_uses([tree])
        if source.op == "load":
            # Hardware copies such a tile to where `tl.dot` wants it.
            place = self.place(*source.detail)
            mask = f", {operand.mask}, 0.0" if operand.mask else ""
            text, kind = f"tl.load({place}{mask})", source.dtype
        else:
            text, kind = self.text(tree), tree.dtype
            if operand.mask:
                text = f"tl.where({operand.mask}, {text}, 0.0)"
        if kind != dtype:
            text = f"{text}.to({self.type_name(dtype)})"
        self.line(f"{name} = {text}")
        return name

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
        self.write_arange(self.stream.values.columns, self.stream.values.columns.symbol)

        for scores in self.stream.scores:
            operand = self.operand(scores.left, down=False)
            self.queries[scores.leaf] = self.write_operand(
                "queries", operand, self.dtype_of_product(scores)
            )

    def dtype_of_product(self, scores: Scores) -> torch.dtype:
        """Halves are multiplied as they are, and summed in float32."""
        return common_half(scores.left.tree, scores.right.tree)

    def dtype_of_last(self) -> torch.dtype:
        """Weights are rounded to halves where eager multiplies halves."""
        values = self.stream.values.tree
        is_half = self.out.dtype in HALVES
        return common_half(values, values) if is_half else torch.float32

    def dot(self, left: str, right: str, total: str, dtype: torch.dtype) -> str:
        """A product of two tiles, added to a third."""
        arguments = [left, right]
        if total:
            arguments.append(total)
        if dtype == torch.float32:
            precision = "tf32" if allows_tf32() else WHOLE_FLOATS
            arguments.append(f'input_precision="{precision}"')
        return f"tl.dot({', '.join(arguments)})"

    # --- the columns, block by block

    def write_kept(self) -> None:
        """What grows along a row: maxima, sums, totals. And what is the same for a whole row."""
        stream = self.stream
        for tree in self.of_rows():
            if tree not in self.values:
                self.count_uses([tree])
                self.bind(tree, self.text(tree, whole=True), self.name_for(tree))

        for leaf in stream.maxima:
            self.kept[leaf] = self.unique("highest")
            self.line(f"{self.kept[leaf]} = tl.full([ROWS], -{INFINITY}, tl.float32)")
        for leaf, _ in stream.sums:
            self.kept[leaf] = self.unique("summed")
        for _ in stream.split.cores:
            self.totals.append(self.unique("total"))
        if not self.two_turns:
            self.write_zeros()

    def of_rows(self) -> Iterable[Expr]:
        """Values that are read or dear, and the same along a row: they are known before the walk
        begins."""
        found: dict[Expr, None] = {}

        def look(tree: Expr) -> None:
            symbols = symbols_in(tree)
            varies = self.stream.column.symbol in symbols or depends_on_scores(tree)
            if varies:
                for each in tree.args:
                    look(each)
            elif any(node.op == "load" or node.op in COSTLY for node in tree.walk()):
                found[tree] = None

        for trees in (self.cut, self.free):
            for tree in self.roots(trees):
                look(tree)
        return found

    def roots(self, trees: StreamTrees) -> list[Expr]:
        """All trees of a block."""
        stream = self.stream
        maxima = [trees.logits_of(leaf.detail).tree for leaf in stream.maxima]
        sums = [trees.of(leaf.detail.term) for leaf, _ in stream.sums]
        return [*maxima, *sums, *map(trees.of, stream.split.cores)]

    def write_zeros(self) -> None:
        """Nothing was summed so far."""
        width = max(LEAST_SIDE, power_of_two(self.stream.values.columns.size))
        for leaf, _ in self.stream.sums:
            self.line(f"{self.kept[leaf]} = tl.zeros([ROWS], tl.float32)")
        for total in self.totals:
            self.line(f"{total} = tl.zeros([ROWS, {width}], tl.float32)")

    def write_turns(self) -> None:
        """All blocks of columns; once more if a row has nothing but -inf, with the maxima known:
        then each step is eager's."""
        if not self.two_turns:
            self.write_blocks()
            return

        ends = self.ends
        self.line("turn = 0")
        self.write_zeros()
        with self.block("while turn < 2:"):
            self.write_zeros()
            self.line("# In the second turn nothing is left out")
            self.line(f"begin = tl.where(turn > 0, 0, {ends.first})")
            self.line(f"end = tl.where(turn > 0, {self.end}, {ends.last})")
            self.write_walked(self.cut, "begin", "end")

            lowest = " | ".join(
                f"({self.kept[leaf]} == -{INFINITY})" for leaf in self.stream.maxima
            )
            self.line(f"is_empty = tl.max(({lowest}).to(tl.int32), 0)")
            self.line("turn = tl.where((turn == 0) & (is_empty > 0), 1, 2)")

    def write_blocks(self) -> None:
        """The blocks that no mask cuts, then those around them."""
        ends, tiling = self.ends, self.tiling
        if not tiling.has_free:
            self.write_walked(self.cut, ends.first, ends.last)
            return
        if not tiling.has_cut and not tiling.has_hidden:
            self.write_walked(self.free, ends.free_from, ends.free_to)
            return

        self.line("# Blocks that no mask cuts")
        self.write_walked(self.free, ends.free_from, ends.free_to)
        if (ends.first, ends.free_from) == ("0", "0"):
            self.line("# The blocks behind them")
            self.write_walked(self.cut, ends.free_to, ends.last)
            return
        self.line("# The blocks around them")
        jump = f"{ends.free_to} - {ends.free_from}"
        opening = f"for place in range({ends.first}, {ends.last} - ({jump}), COLUMNS):"
        with self.own_names(), self.block(opening):
            self.line(f"n0 = tl.where(place < {ends.free_from}, place, place + {jump})")
            self.write_block(self.cut)

    def write_walked(self, trees: StreamTrees, first: str, last: str) -> None:
        with self.own_names(), self.block(f"for n0 in range({first}, {last}, COLUMNS):"):
            self.write_block(trees)

    @contextlib.contextmanager
    def own_names(self) -> Iterator[None]:
        """Names of one loop may be taken again in the next."""
        taken = set(self.taken)
        yield
        self.taken = taken

    def write_block(self, trees: StreamTrees) -> None:
        """What happens with a block of columns."""
        column = self.stream.column
        columns = "(n0 + tl.arange(0, COLUMNS))"
        if self.needs_64_bits:
            columns += ".to(tl.int64)"
        masks = self.masks
        self.masks = dict(masks)
        is_ragged = trees is self.cut and column.size % self.tiling.tile.meta["COLUMNS"]
        if is_ragged or any(column.symbol in symbols_in(tree) for tree in self.roots(trees)):
            self.line(f"{column.symbol} = {columns}[None, :]")
        self.line(f"{self.column_down} = {columns}[:, None]")
        if is_ragged:
            self.line(f"columns = {column.symbol} < {column.size}")
            self.line(f"columns_down = {self.column_down} < {column.size}")
            self.masks |= {column.symbol: "columns", self.column_down: "columns_down"}
        if self.stream.row.symbol in self.masks and is_ragged:
            self.line("mask = rows & columns")

        self.write_scores()
        self.count_uses(self.roots(trees))
        factors = self.write_maxima(trees, bool(is_ragged))
        self.write_weights(trees, factors, bool(is_ragged))
        self.masks = masks

    def write_scores(self) -> None:
        """A tile of each product."""
        for scores in self.stream.scores:
            dtype = self.dtype_of_product(scores)
            keys = self.write_operand("keys", self.operand(scores.right, down=True), dtype)
            name = self.unique("scores")
            text = self.dot(self.queries[scores.leaf], f"tl.trans({keys})", "", dtype)
            self.line(f"{name} = {text}")
            self.values[scores.leaf] = name

    def write_maxima(self, trees: StreamTrees, is_ragged: bool) -> dict[Running, str]:
        """Each maximum takes in the block. Gives for each the factor by which it rescales what was
        summed."""
        factors = {}
        written: set[Expr] = set()
        for leaf in self.stream.maxima:
            running, highest = leaf.detail, self.kept[leaf]
            logits = trees.logits_of(running)
            if logits.tree not in written:
                self.write_logits(logits, is_ragged)
                written.add(logits.tree)
            before, shift = self.unique("before"), self.unique("shift")
            factor = self.unique("factor")
            best = self.best_of(before, self.values[logits.tree], running)
            self.line(f"{before} = {highest}", f"{highest} = {best}")
            # Nothing was shown so far: -inf - -inf would be NaN
            is_low = f"{highest} == -{INFINITY}"
            if self.two_turns:
                is_low = f"(turn == 0) & ({is_low})"
            self.line(f"{shift} = tl.where({is_low}, 0.0, {highest})")

            power = self.number(logits.power, torch.float32)
            change = f"tl.exp2(({before} - {shift}) * {power})"
            if self.two_turns:
                change = f"tl.where({before} == {highest}, 1.0, {change})"
            self.line(f"{factor} = {change}")
            if logits.is_bounded:
                self.line(f"{shift} = {shift} * -{power}")
            factors[running] = factor
            self.shifts[running] = Shift(shift, logits)
            self.values[leaf] = self.maximum_text(highest, logits)
        return factors

    def write_logits(self, logits: Logits, is_ragged: bool) -> None:
        """What a maximum is of gets a name; behind the last column it is -inf."""
        text = self.text(logits.tree, whole=True)
        if is_ragged:
            text = f"tl.where(columns, {text}, -{INFINITY})"
        if not text.isidentifier():
            name = self.unique("logits")
            self.line(f"{name} = {text}")
            text = name
        self.values[logits.tree] = text

    def best_of(self, before: str, logits: str, running: Running) -> str:
        """The maximum of each row so far. `tl.max` drops NaN. That is as well where a weight is
        NaN, too."""
        stream = self.stream
        outside = [self.cut.of(tree) for tree in (*stream.split.cores, stream.split.finish)]
        outside += [self.cut.of(leaf.detail.term) for leaf, _ in stream.sums]
        best = f"tl.max({logits}, 1)"
        if not needs_maximum_itself(outside, running):
            return f"tl.maximum({before}, {best})"
        has_nan = self.unique("has_nan")
        self.line(f"{has_nan} = tl.max(({logits} != {logits}).to(tl.int32), 1)")
        best = f'tl.where({has_nan} > 0, float("nan"), {best})'
        return f"tl.maximum({before}, {best}{KEEPS_NAN})"

    def maximum_text(self, highest: str, logits: Logits) -> str:
        """The maximum itself, for each row."""
        if logits.factor == 1:
            return f"{highest}[:, None]"
        return f"({highest} * {self.number(logits.factor, torch.float32)})[:, None]"

    def print_exponential(self, expr: Expr) -> tuple[str, int]:
        """exp(x - m) as a power of two."""
        shift = self.shifts[expr.detail]
        power = self.number(shift.logits.power, torch.float32)
        value = self.text(expr.args[0])
        if shift.logits.is_bounded:
            return f"tl.exp2(tl.fma({value}, {power}, {shift.name}[:, None]))", ATOM
        return f"tl.exp2(({value} - {shift.name}[:, None]) * {power})", ATOM

    def name_for(self, expr: Expr) -> str:
        return "weights" if expr.op == "exponential" else super().name_for(expr)

    def print_index_expr(self, expr: Expr) -> tuple[str, int]:
        """A position is an int32 by itself, unless the matrices are so large that it is not."""
        if expr.dtype == torch.int32 and not self.needs_64_bits and expr.detail.is_Symbol:
            return self.index(expr.detail), ATOM
        return super().print_index_expr(expr)

    def print_add(self, expr: Expr) -> tuple[str, int]:
        return self.print_sum_of_two(expr, "+")

    def print_sub(self, expr: Expr) -> tuple[str, int]:
        return self.print_sum_of_two(expr, "-")

    def print_sum_of_two(self, expr: Expr, sign: str) -> tuple[str, int]:
        """Scores times a number, and something added: one instruction. (It is rounded once; eager's
        rounding is another anyway.)"""
        left, right = expr.args
        is_scaled = left.op == "mul" and left.args[1].op == "constant" and self.uses[left] < 2
        if is_scaled and depends_on_scores(left) and expr.dtype == torch.float32:
            value, factor = map(self.text, left.args)
            added = self.text(right, ATOM)
            return f"tl.fma({value}, {factor}, {'-' * (sign == '-')}{added})", ATOM
        return f"{self.text(left, 12)} {sign} {self.text(right, 13)}", 12

    def print_truediv(self, expr: Expr) -> tuple[str, int]:
        """What is made of scores is not rounded as in eager anyway: the quick way."""
        if depends_on_scores(expr):
            return f"{self.text(expr.args[0], 13)} / {self.text(expr.args[1], 14)}", 13
        return super().print_truediv(expr)

    def print_tanh(self, expr: Expr) -> tuple[str, int]:
        """Of products of halves, which are rounded already, a quick one will do."""
        function = "quick_tanh" if self.in_halves else "libdevice.tanh"
        return f"{function}({self.text(expr.args[0])})", ATOM

    def write_weights(
        self, trees: StreamTrees, factors: Mapping[Running, str], is_ragged: bool
    ) -> None:
        """Sums and totals take in the block."""
        stream = self.stream
        for leaf, powers in stream.sums:
            term = self.weight(trees, leaf.detail.term, is_ragged)
            total = " * ".join([self.kept[leaf], *factor_of(powers, factors)])
            self.line(f"{self.kept[leaf]} = {total} + tl.sum({term}, 1)")

        dtype = self.dtype_of_last()
        weights = [self.weight(trees, core, is_ragged) for core in stream.split.cores]
        values = self.write_operand("values", self.operand(stream.values, down=True), dtype)
        for total, weight, powers in zip(self.totals, weights, stream.split.powers, strict=True):
            rescaled = " * ".join([total, *(f"{f}[:, None]" for f in factor_of(powers, factors))])
            if dtype != torch.float32:
                weight = f"{weight}.to({self.type_name(dtype)})"
            self.line(f"{total} = {self.dot(weight, values, rescaled, dtype)}")

    def weight(self, trees: StreamTrees, original: Expr, is_ragged: bool) -> str:
        """The name of what is summed along a row; behind the last column it is 0."""
        tree = trees.of(original)
        text = self.text(tree)
        if not depends_on_scores(tree):
            text = f"tl.zeros([ROWS, COLUMNS], tl.float32) + {text}"
        if is_ragged and not vanishes_with_exponential(original):
            text = f"tl.where(columns, {text}, 0.0)"
        if text.isidentifier():
            return text
        name = self.unique("weights")
        self.line(f"{name} = {text}")
        if not is_ragged:
            self.values[tree] = name
        return name

    # --- the end

    def write_results(self) -> None:
        """Of the totals of a row, its result."""
        stream = self.stream
        for leaf in stream.maxima:
            self.values[leaf] = self.maximum_text(self.kept[leaf], self.cut.logits_of(leaf.detail))
        for leaf, _ in stream.sums:
            self.values[leaf] = f"{self.kept[leaf]}[:, None]"

        finish = self.cut.of(stream.split.finish)
        for node in finish.walk():
            if node.op == "total":
                self.values[node] = self.totals[node.detail]
        self.count_uses([finish])
        result = self.unique("result")
        self.line(f"{result} = {self.text(finish, whole=True)}")

        if self.out.dtype != torch.float32:
            result = f"{result}.to({self.type_name(self.out.dtype)})"
        arguments = [self.place(self.out.name, stream.place), result]
        names = [stream.row.symbol, stream.values.columns.symbol]
        masks = [self.masks[symbol] for symbol in names if symbol in self.masks]
        if masks:
            arguments.append(" & ".join(masks))
        self.line(f"tl.store({', '.join(arguments)})")


@dataclass(frozen=True)
class LookTiling(Tiling):
    """A program for each part of the values; its tile has whole rows of them."""

    # Rows of a part
    part: int = 1

    def meta(self, interpreted: bool) -> dict[str, int]:
        return {"ROWS": self.part}

    def programs(self, meta: Mapping[str, int]) -> int:
        return int(self.rows // self.part)

    def warps(self, meta: Mapping[str, int]) -> int:
        return 4


def streamed_triton_source(
    node: Streamed, buffers: Mapping[str, Buffer], name: str
) -> StreamSource:
    """Print one stream. `buffers` knows at least those that it reads."""
    return StreamedTriton(node, buffers, name).print()


def why_not_in_triton(node: Streamed) -> str:
    """Why a stream cannot be a Triton kernel, or is faster as it was; empty if it can."""
    stream = node.stream
    if len(stream.ends) != 1 or stream.of_rows:
        return "a stream in Triton has one product at its end, and stores nothing else"
    if len({view.buffer.device for view in node.args}) > 1:
        return "it reads from more than one device"
    if unknown := next(filter(is_unknown, operations_of(stream)), ""):
        return f"Triton has no way to write '{unknown}'"

    longest = longest_operand(stream)
    if not all_in_halves(stream) and longest > max(TILES_OF_FLOATS):
        return (
            f"rows of {longest} float32 leave too few registers: "
            "two calls of the library are faster"
        )
    totals, width = len(stream.split.cores), stream.values.columns.size
    if totals * max(64, power_of_two(width)) > 64 * MOST_TOTALS:
        return (
            f"{totals} sums of {width} columns for each row do not fit into a program's registers"
        )
    return ""


def operations_of(stream: Stream) -> list[str]:
    """The operations in all trees of a stream."""
    return [node.op for tree in stream.trees for node in tree.walk()]


def is_unknown(op: str) -> bool:
    """Has the printer neither a rule nor a method for this operation?"""
    return op not in RULES and op not in LEAVES and not hasattr(StreamedTriton, f"print_{op}")


def have_same_factors(stream: Stream, cut: StreamTrees, free: StreamTrees) -> bool:
    """Is each maximum of the same multiple of the logits, with and without masks?"""
    running = [leaf.detail for leaf in stream.maxima]
    return all(cut.logits_of(each).factor == free.logits_of(each).factor for each in running)


# --- small questions


def common_half(left: Expr, right: Expr) -> torch.dtype:
    """The kind of halves that both were converted from, or float32."""
    kinds = {tree.args[0].dtype if tree.op == "to_dtype" else tree.dtype for tree in (left, right)}
    (kind, *others) = kinds
    return kind if not others and kind in HALVES else torch.float32


def factor_of(powers: Powers, factors: Mapping[Running, str]) -> list[str]:
    """What a sum is multiplied by, as the factors of a product."""
    return [factors[running] for running, power in powers.items() for _ in range(power)]


def names_of_loads(tree: Expr) -> Collection[str]:
    return {buffer for buffer, _ in loads(tree)}


def symbols_in(tree: Expr) -> set[sympy.Symbol]:
    """The symbols of all index formulas in a tree."""
    found: set[sympy.Symbol] = set()
    for node in tree.walk():
        for formula in formulas_of(node):
            found |= formula.free_symbols
    return found


def symbol_like(symbol: sympy.Symbol, ending: str) -> sympy.Symbol:
    return sympy.Symbol(f"{symbol}{ending}", integer=True, nonnegative=True)
