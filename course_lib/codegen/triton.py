"""A fused kernel as Triton: one program for each tile.

In:  a `FusedKernel` and the buffers it reads.
Out: one `@triton.jit` function on whole tiles of values, and the `Tiling` that says how many programs to start.

Without a reduction a tile is BLOCK consecutive elements. With one it is ROWS × COLUMNS: a row that fits is held in registers as
a whole ("persistent"); a longer one is walked in steps of COLUMNS, once for each pass. Masks keep the last tile inside.

The same text runs on a GPU and, on CPU tensors, in Triton's interpreter (`runtime/triton_runner.py`).
In PyTorch: `torch/_inductor/codegen/triton.py`, `TritonKernel`, and `runtime/triton_heuristics.py` for the tile sizes.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
import torch

from course_lib.codegen.loops import (
    Phase,
    column_number,
    iterations,
    phases,
    reduction,
    short_names,
)
from course_lib.codegen.printer import LONGEST, KernelSource, Line, label
from course_lib.codegen.tilings import PRODUCT_STEP, STEP, ProductTiling, Tiling
from course_lib.codegen.triton_ops import (
    HELPERS,
    KEEPS_NAN,
    NARROW,
    POINTERS,
    RESERVED,
    TritonOps,
    is_number,
)
from course_lib.lowering.indexing import Linear, contiguous, power_of_two
from course_lib.lowering.ir import Buffer, Product
from course_lib.lowering.reduction_kinds import MAX, SUM
from course_lib.scheduling.expressions import Expr, loads
from course_lib.scheduling.kernel import FusedKernel, Loop, Step
from course_lib.scheduling.products import allows_tf32
from course_lib.scheduling.split import rows_are_neighbours

# Tests, lessons and exercises take these from here, with the printer.
__all__ = [
    "PERSISTENT",
    "ProductTiling",
    "Tiling",
    "TritonKernel",
    "TritonSource",
    "power_of_two",
    "triton_source",
]

PERSISTENT = 16 * 1024  # Longest row that is held in registers
PERSISTENT_ACROSS = 512  # The same where rows are neighbours, if a row is walked more than once


@dataclass(frozen=True)
class TritonSource(KernelSource):
    """A kernel's source, with what is needed to start it and to compile it without tensors."""

    tiling: Tiling = Tiling(1, 0)
    # Triton's name of each pointer argument's type: '*fp32'
    types: tuple[str, ...] = ()


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


def triton_source(
    kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str | None = None
) -> TritonSource:
    """Print one kernel. `buffers` knows at least those that the kernel reads (`LoopGraph.buffers`)."""
    return TritonKernel(kernel, buffers, name or kernel.name).print()


class TritonKernel(TritonOps):
    """Walks the phases of one kernel; a pass over the columns is nothing (persistent) or a `for` loop."""

    def __init__(self, kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str) -> None:
        super().__init__(short_names(kernel), buffers, name, [*RESERVED, *HELPERS, name])
        kernel = self.kernel
        self.reduces = bool(kernel.columns)
        self.masks = {}
        self.product = next((step for step in self.trees if isinstance(step.node, Product)), None)
        self.phases = phases(kernel, self.trees, keep=False)
        self.walked = self.loops_to_walk()
        self.tiling = self.choose_tiling()
        self.columns, self.persistent = iterations(kernel.columns), self.tiling.persistent

        # Does any index need 64 bits? Along k a product counts by itself.
        counted = kernel.rows if self.product else kernel.loops
        sizes = [iterations(counted), *(buffer.numel for buffer in self.buffers.values())]
        self.wide = max(sizes) >= 2**31
        self.program = "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"

    def loops_to_walk(self) -> tuple[Loop, ...]:
        """The rows over which sums are gathered on the way: each program walks along its chunk of them."""
        gathered: set[sympy.Symbol] = set()
        for step in self.across:
            for formula in step.rindex:
                gathered |= formula.free_symbols
        return tuple(loop for loop in self.kernel.rows if loop.symbol in gathered)

    def choose_tiling(self) -> Tiling:
        """One tile for each program: of elements, of rows that fit in registers, or of a part of a long row."""
        rows = iterations(self.walked or self.kernel.rows)
        columns = iterations(self.kernel.columns)
        if not self.reduces:
            return Tiling(rows, 0)

        if self.product:
            batch, down, across = self.directions(self.product)
            return ProductTiling(
                rows=iterations(down),
                columns=iterations(across),
                batch=iterations(batch),
                depth=columns,
            )

        if self.walked:
            chunks = iterations(self.kernel.rows) // rows
            return Tiling(rows, max(1, columns), persistent=True, chunks=chunks)

        longest = PERSISTENT
        across_rows = self.rows_are_neighbours()
        if across_rows:
            passes = [phase for phase in self.phases if phase.columns]
            longest = PERSISTENT_ACROSS if len(passes) > 1 else STEP
        return Tiling(rows, max(1, columns), persistent=columns <= longest, across=across_rows)

    def rows_are_neighbours(self) -> bool:
        """True if most of what is read lies row beside row in memory, not along the row."""
        loops = {loop.symbol for loop in self.kernel.loops}
        reads = []
        for tree in self.trees.values():
            reads += [Linear.of(index, loops) for _, index in loads(tree)]

        rows = [loop.symbol for loop in self.kernel.rows]
        columns = [loop.symbol for loop in self.kernel.columns]
        return rows_are_neighbours(reads, rows, columns)

    def print(self) -> TritonSource:
        """The whole kernel, with what is needed above it."""
        self.pointers = {name: self.unique(name) for name in self.passed}
        self.pointers |= {new: self.pointers[old] for new, old in self.in_place.items()}

        self.line("@triton.jit")
        with self.block(""):  # its opening is known when the sizes are
            if self.product:
                self.print_product(self.product)
            elif self.walked:
                self.print_walk()
            else:
                self.print_rows()
                self.print_phases()
        self.lines[1:2] = self.opening()
        self.lines[:0] = [Line(0, text) for text in self.header()]

        source, line_of = self.layout("    ")
        types = [POINTERS[self.buffers[name].dtype] for name in self.passed]
        types += ["*i64"] * len(self.behind_buffers)
        return TritonSource(
            name=self.name,
            language="triton",
            source=source,
            buffers=self.passed,
            line_of=line_of,
            checked=bool(self.checks),
            sizes=tuple(self.sizes),
            tiling=self.tiling,
            types=tuple(types),
        )

    @property
    def behind_buffers(self) -> list[str]:
        """Pointers after those of the buffers: a flag for indices out of range, and the sizes of this call."""
        names = []
        if self.checks:
            names.append("problem")
        if self.sizes:
            names.append("sizes")
        return names

    def opening(self) -> list[Line]:
        """`def` with all parameters, and the sizes that are among them."""
        tile = ["BLOCK"]
        if self.reduces:
            tile = ["ROWS", "COLUMNS"]
        if self.product:
            tile.append("DEPTH")

        parameters = [self.pointers[name] for name in self.passed]
        parameters += self.behind_buffers
        parameters += [f"{name}: tl.constexpr" for name in tile]

        lines = [Line(0, f"def {self.name}({', '.join(parameters)}):")]
        for n, (number, name) in enumerate(self.sizes.items()):
            lines.append(Line(1, self.load_size(n, number, name)))
        return lines

    def load_size(self, n: int, number: int, name: str) -> str:
        """Rows that all begin at multiples of 16 can be read 16 bytes at a time: whether they do stays in the text."""
        value = f"tl.load(sizes + {n})" if n else "tl.load(sizes)"
        if not self.wide:
            value += ".to(tl.int32)"
        if number % 16 == 0:
            value = f"tl.multiple_of({value}, 16)"
        return f"{name} = {value}"

    def directions(self, product: Step) -> tuple[list[Loop], list[Loop], list[Loop]]:
        """The loops over the batch, down the rows and across the columns of a product's result."""
        rows = self.kernel.rows
        m, n = (formula.free_symbols for formula in product.index[-2:])

        batch = [loop for loop in rows if loop.symbol not in m and loop.symbol not in n]
        down = [loop for loop in rows if loop.symbol in m]
        across = [loop for loop in rows if loop.symbol in n]
        return batch, down, across

    def print_product(self, product: Step) -> None:
        """A program has one tile of the result. It walks along k; what follows finds the tile in registers."""
        batch, down, across = self.directions(product)
        self.line(f"tile = {self.program}")
        self.line(
            f"tall, wide = tl.cdiv({iterations(down)}, ROWS), tl.cdiv({iterations(across)}, COLUMNS)"
        )
        if batch:
            self.print_indices(batch, "tile // (tall * wide)", "", "batch")
        note = "Eight tiles below each other, then the eight beside them"
        self.line(f"# {note}: what they read is still in the cache")
        self.line("down, across = tl.swizzle2d(tile // wide % tall, tile % wide, tall, wide, 8)")
        self.print_indices(down, "(down * ROWS + tl.arange(0, ROWS))[:, None]", "rows")
        self.print_indices(
            across, "(across * COLUMNS + tl.arange(0, COLUMNS))[None, :]", "columns", "column"
        )
        self.line("mask = rows & columns")
        with self.on_behalf_of(product):
            total = self.bind(product, "tl.zeros([ROWS, COLUMNS], tl.float32)", label(product))
            self.print_sum(product, total)
            if product.buffer.dtype != torch.float32:
                kind = self.type_name(product.buffer.dtype)
                self.bind(product, f"{total}.to({kind})", label(product))

        for phase in self.phases:
            self.print_row_steps(phase)

    def print_sum(self, product: Step, total: str) -> None:
        """The loop along k, which counts the columns of the left operand (j) and the rows of the right one (j_down)."""
        (k,) = self.kernel.columns
        _, down, across = self.directions(product)
        start = self.unique("start")
        below = k._replace(symbol=sympy.Symbol(f"{k.symbol}_down"))

        # The right operand once more, with another name for k: it runs down there.
        left = self.trees[product].args[0]
        right = replace(product, rindex=(below.symbol,)).value(self.builder).args[1]
        if are_halves(left, right):
            # multiplied as they are, and summed in float32
            left, right = left.args[0], right.args[0]

        # No mask is needed where every tile along k is full, and outside of the result nothing is read that counts.
        spreads = [
            self.spreads(left, down),
            self.spreads(left, [k]),
            self.spreads(right, [below]),
            self.spreads(right, across),
        ]
        is_masked = k.size % PRODUCT_STEP != 0 or not all(spreads)

        a, b = self.unique("a"), self.unique("b")
        operands = ((a, left, "rows & inside"), (b, right, "inside_down & columns"))
        with self.block(f"for {start} in range(0, {k.size}, DEPTH):"):
            to_wide = ".to(tl.int64)" if self.wide else ""
            steps = f"({start} + tl.arange(0, DEPTH){to_wide})"
            self.print_indices([k], f"{steps}[None, :]", "inside" if is_masked else "")
            self.print_indices([below], f"{steps}[:, None]", "inside_down" if is_masked else "")

            self.count_uses([left, right])
            for name, tree, mask in operands:
                if is_number(tree):
                    text = self.converted(tree, self.type_name(tree.dtype))
                else:
                    text = self.text(tree)
                if is_masked:
                    text = f"tl.where({mask}, {text}, 0.0)"
                self.line(f"{name} = {text}")

            precision = ""
            if left.dtype == torch.float32:
                name = "tf32" if allows_tf32() else "ieee"
                precision = f', input_precision="{name}"'
            self.line(f"{total} = tl.dot({a}, {b}, {total}{precision})")

    def spreads(self, tree: Expr, loops: Sequence[Loop]) -> bool:
        """True if a value differs along one of the loops."""
        return not self.symbols_of(tree).isdisjoint(loop.symbol for loop in loops)

    def print_phases(self) -> None:
        """The passes over a row, each with what runs once a row after it."""
        self.count_uses(self.trees.values())
        done: set[Step] = set()
        for number, phase in enumerate(self.phases):
            if pair := self.softmax_pair(number):
                self.print_online(phase, *pair)
                done.update(pair)
            elif phase.columns and not (phase.reductions and done.issuperset(phase.reductions)):
                self.print_pass(phase, first=number == 1)
            self.print_row_steps(phase)

    def softmax_pair(self, number: int) -> tuple[Step, Step] | None:
        """A maximum of x and, in the next pass, the sum of exp(x - maximum), if these two are all that long rows are read for."""
        pair = self.phases[number : number + 2]
        if self.persistent or len(pair) < 2 or not all(only_reduces(phase) for phase in pair):
            return None

        best, total = pair[0].reductions[0], pair[1].reductions[0]
        kinds = reduction(best).combines, reduction(total).combines
        if kinds != (MAX, SUM) or best.buffer.dtype != torch.float32:
            return None

        # Is it the exp of a difference, and from this maximum?
        exp = self.through(self.trees[total])
        difference = self.through(exp.args[0]) if exp.op == "exp" else exp
        if difference.op != "sub" or difference.args[1].detail is not best:
            return None

        x = self.through(difference.args[0])
        return (best, total) if x is self.through(self.trees[best]) else None

    def through(self, expr: Expr) -> Expr:
        """What a value in the columns is computed by."""
        while expr.op == "value_of":
            step = expr.detail
            if step.is_reduction or step.level != "column":
                break
            expr = self.trees[step]
        return expr

    def print_online(self, phase: Phase, best: Step, total: Step) -> None:
        """Both in one pass: when a tile has a new maximum, what was summed so far is scaled down to it."""
        shape = self.shape_of_tile()
        most, gathered, start = self.unique("most"), self.unique("gathered"), self.unique("start")
        self.line(f'{most} = tl.full({shape}, float("-inf"), tl.float32)')
        self.line(f"{gathered} = tl.full({shape}, 0.0, tl.float32)")

        with self.block(f"for {start} in range(0, {self.size(self.columns)}, COLUMNS):"):
            self.print_columns(f"({start} + tl.arange(0, COLUMNS))")
            self.count_uses(self.trees[step] for step in phase.columns)
            for step in phase.columns:
                if step is not best:
                    self.print_step(step, store=False)

            with self.on_behalf_of(total):
                x = self.text(self.trees[best])
                difference = f"tl.where(value == {most}, 0.0, value - {most})"
                rescaled = f"{gathered} * scale + 1.0"
                self.line(f'value = tl.where(mask, {x}, float("-inf"))')
                self.line(f"scale = tl.exp(-tl.abs({difference}))  # the smaller to the larger")
                self.line(f"{gathered} = tl.where(value > {most}, {rescaled}, {gathered} + scale)")
                self.line(f"{most} = tl.maximum({most}, value{KEEPS_NAN})")

        with self.on_behalf_of(best):
            self.print_result(best, most)
        with self.on_behalf_of(total):
            self.print_result(total, f"{gathered} * tl.exp({most} - {self.values[best]})")

    def shape_of_tile(self) -> str:
        """The shape of a tile of a reduction, as Triton takes it."""
        return "[ROWS, COLUMNS]" if self.kernel.rows else "[COLUMNS]"

    def print_walk(self) -> None:
        """A program for each chunk of rows: it walks along them, gathers sums down the columns, and stores these at the end."""
        chunks = tuple(loop for loop in self.kernel.rows if loop not in self.walked)
        if chunks:
            self.print_indices(chunks, self.program, "", "chunk")
        self.print_columns("tl.arange(0, COLUMNS)")

        totals = {}
        for step in self.across:
            kind = self.type_name(reduction(step).accumulate)
            zeros = f"tl.full([1, COLUMNS], 0.0, {kind})"
            totals[step] = self.bind(step, zeros, f"{label(step)}_down")

        start = self.unique("start")
        with self.block(f"for {start} in range(0, {self.size(iterations(self.walked))}, ROWS):"):
            self.print_indices(self.walked, f"({start} + tl.arange(0, ROWS))[:, None]", "rows")
            self.line("mask = rows & columns")
            self.print_phases()

        for step, total in totals.items():
            place = self.place(step.buffer.name, step.store_index)
            value = f"{total}.to({self.type_name(step.buffer.dtype)})"
            self.line(f"tl.store({place}, {value}, columns)", step=step)

    def print_rows(self) -> None:
        """Which rows (or elements) this program has."""
        if not self.kernel.rows:
            return

        if self.reduces:
            rows = f"{self.program} * ROWS + tl.arange(0, ROWS)"
            self.print_indices(self.kernel.rows, f"({rows})[:, None]", "rows")
        else:
            elements = f"{self.program} * BLOCK + tl.arange(0, BLOCK)"
            self.print_indices(self.kernel.rows, elements, "mask")

    def print_columns(self, columns: str) -> None:
        """Which columns this tile has."""
        mask, shape = ("columns", "[None, :]") if self.kernel.rows else ("mask", "")
        self.print_indices(self.kernel.columns, columns + shape, mask, "column")
        if self.kernel.rows and not self.walked:
            self.line("mask = rows & columns")

    def print_indices(
        self, loops: Sequence[Loop], text: str, mask: str, together: str = "row"
    ) -> None:
        """The symbols of several loops from one running number (`together`), and where it is inside."""
        number = loops[0].symbol if len(loops) == 1 else together
        self.line(f"{number} = {text}")
        if len(loops) > 1:
            self.print_digits(loops, number)
        if mask:
            self.line(f"{mask} = {number} < {self.size(iterations(loops))}")
            self.masks |= {loop.symbol: mask for loop in loops}

    def print_digits(self, loops: Sequence[Loop], number: str) -> None:
        """One running number taken apart: each loop's symbol is a digit of it."""
        strides = contiguous([loop.size for loop in loops])
        for loop, stride in zip(loops, strides, strict=True):
            digit = number if stride == 1 else f"{number} // {self.size(stride)}"
            if loop is not loops[0]:
                digit = f"{digit} % {self.size(loop.size)}"
            self.line(f"{loop.symbol} = {digit}")

    def print_pass(self, phase: Phase, first: bool) -> None:
        """Persistent: the whole row at once. Looped: each tile is taken into accumulators of its shape."""
        totals: dict[Step, str] = {}
        with contextlib.ExitStack() as blocks:
            if not self.persistent:
                totals = {step: self.print_accumulator(step) for step in phase.reductions}
                start = self.unique("start")
                tiles = f"for {start} in range(0, {self.size(self.columns)}, COLUMNS):"
                blocks.enter_context(self.block(tiles))
                self.print_columns(f"({start} + tl.arange(0, COLUMNS))")
                self.count_uses(self.trees[step] for step in phase.columns)
            elif first and not self.walked:
                self.print_columns("tl.arange(0, COLUMNS)")

            for step in phase.columns:
                with self.on_behalf_of(step):
                    if step.level == "across":
                        self.print_sum_over_rows(step)
                    elif step.is_reduction:
                        self.print_reduction(step, totals.get(step, ""))
                    else:
                        self.print_step(step, store=step in phase.stored)
            if not self.persistent:
                self.print_late()

        for step, name in totals.items():
            with self.on_behalf_of(step):
                self.print_result(step, name, f"{name}_at")

    def print_sum_over_rows(self, step: Step) -> None:
        """Take the rows of a tile into the sum of each column."""
        value = f"tl.where(mask, {self.text(self.trees[step])}, 0.0)"
        self.line(f"{self.values[step]} += {self.reduce('sum', value, axis=0)}")

    def print_late(self) -> None:
        """Triton gives each load and store threads as it likes: one may store in place what another still has to load."""
        if self.late:
            self.line("tl.debug_barrier()  # in place: first all is loaded")
        super().print_late()

    def accumulator(self, step: Step) -> tuple[str, str]:
        """What a reduction begins with, and the type that it computes in."""
        node, dtype = reduction(step), self.trees[step].dtype
        kind = node.combines
        first = kind.identity(dtype)
        if kind.finds_best:
            return self.number(first, dtype), self.type_name(dtype)
        if kind.is_logical:
            return str(first), "tl.int32"

        text = f"{first}.0" if node.accumulate.is_floating_point else str(first)
        return text, self.type_name(node.accumulate)

    def print_accumulator(self, step: Step) -> str:
        name = self.unique(f"{label(step)}_tile")
        shape = self.shape_of_tile()
        first, kind = self.accumulator(step)
        self.line(f"{name} = tl.full({shape}, {first}, {kind})", step=step)
        if reduction(step).combines.gives_place:
            self.line(f"{name}_at = tl.full({shape}, 0, tl.int64)", step=step)
        return name

    def print_reduction(self, step: Step, total: str) -> None:
        """Take the values of a tile into `total`; if there is none, they are the whole row."""
        kind, tree = reduction(step).combines, self.trees[step]
        value = self.masked_value(step)

        if kind.has_operator:
            if total:
                self.line(f"{total} {kind.operator}= {value}")
            else:
                self.print_result(step, value)
            return

        # It is compared and kept, so it needs a name.
        name = self.unique("value")
        self.line(f"{name} = {value}")
        at = self.index(column_number(step)) if kind.gives_place else ""
        if not total:
            self.print_result(step, name, at)
            return

        better = f"({name} {kind.better} {total})"
        if tree.dtype.is_floating_point:
            better += f" | (({name} != {name}) & ({total} == {total}))"
        if at:
            self.line(f"better = {better}", f"{total}_at = tl.where(better, {at}, {total}_at)")
            better = "better"
        self.line(f"{total} = tl.where({better}, {name}, {total})")

    def masked_value(self, step: Step) -> str:
        """The values of a tile in the type to gather in; outside of the row what changes nothing."""
        tree = self.trees[step]
        first, wanted = self.accumulator(step)
        if wanted == self.type_name(tree.dtype) and not is_number(tree):
            value = self.text(tree)
        else:
            value = self.converted(tree, wanted)
        return f"tl.where(mask, {value}, {first})"

    def print_result(self, step: Step, value: str, at: str = "") -> None:
        """The values of a tile to one value for each row. For argmax and argmin, `at` says where they are."""
        kind = reduction(step).combines
        floats = self.trees[step].dtype.is_floating_point

        text = self.reduce(kind.over_tile, value)
        if kind.is_logical:
            text += " != 0"
        if kind.finds_best and floats:  # NaN wins (`tl.max` drops it)
            flag = self.unique("has_nan")
            self.line(f"{flag} = {self.reduce('max', f'({value} != {value}).to(tl.int32)')}")
            text = f'tl.where({flag} > 0, float("nan"), {text})'
        if kind.gives_place:
            text = self.first_place(value, at, text, floats)
        if step.buffer.dtype in (torch.float16, torch.bfloat16, *NARROW):
            text = f"({text}).to({self.type_name(step.buffer.dtype)})"
        self.bind(step, text, label(step))

    def first_place(self, value: str, at: str, text: str, floats: bool) -> str:
        """The first place where a tile has the best value (`text`)."""
        best = self.unique("best")
        self.line(f"{best} = {text}")

        # Where one is NaN the best is NaN, and nothing equals it.
        is_best = f"({value} == {best})"
        if floats:
            is_best = f"({is_best} | ({value} != {value}))"
        if self.persistent:
            is_best += " & mask"

        beyond = 2**63 - 1 if self.wide else 2**31 - 1
        place = f"tl.where({is_best}, {at}, {beyond})"
        return f"{self.reduce('min', place)}.to(tl.int64)"

    def reduce(self, function: str, value: str, axis: int = 1) -> str:
        """A tile combined along its columns (or, with axis 0, its rows)."""
        where = f"{axis}, keep_dims=True" if self.kernel.rows else "0"
        if function == "prod":
            keep = ", keep_dims=True" if self.kernel.rows else ""
            return f"tl.reduce({value}, {axis if self.kernel.rows else 0}, multiply{keep})"
        return f"tl.{function}({value}, {where})"

    def print_row_steps(self, phase: Phase) -> None:
        """Row-level values, then the stores of finished reductions."""
        if self.reduces and not self.persistent:
            self.count_uses(self.trees[step] for step in phase.rows if not step.is_reduction)
        for step in sorted(phase.rows, key=lambda step: step in self.values):
            with self.on_behalf_of(step):
                self.print_step(step, store=step in phase.stored)
        self.print_late()

    def print_step(self, step: Step, store: bool) -> None:
        """The value of a step, unless it is known (persistent: from an earlier pass), and its store if it is wanted in memory."""
        value, tree = self.values.get(step), self.trees[step]
        if value is None:
            value = self.text(tree, whole=True)

            # What is only stored needs no name, if the line stays short.
            only_stored = store and step not in self.used and not self.kernel.in_place
            if not only_stored or len(value) > LONGEST // 2:
                if is_number(tree):
                    value = self.converted(tree, self.type_name(tree.dtype))
                value = self.bind(step, value, label(step))
                self.values.setdefault(tree, value)

        if store:
            mask = self.mask_for(step.store_index)
            arguments = [self.place(step.buffer.name, step.store_index), value]
            if mask:
                arguments.append(mask)
            self.store(f"tl.store({', '.join(arguments)})")
