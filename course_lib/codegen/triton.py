"""A fused kernel as Triton: one program for each tile.

In:  a `FusedKernel` and the buffers it reads.
Out: one `@triton.jit` function on whole tiles of values, and the `Tiling` that says how many
     programs to start.

Without a reduction a tile is BLOCK consecutive elements. With one it is ROWS × COLUMNS: a row that
fits is held in registers as a whole ("persistent"); a longer one is walked in steps of COLUMNS,
once for each pass. Masks keep the last tile inside.

The same text runs on a GPU and, on CPU tensors, in Triton's interpreter
(`runtime/triton_runner.py`).
In PyTorch: `torch/_inductor/codegen/triton.py`, `TritonKernel`, and `runtime/triton_heuristics.py`
for the tile sizes.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import sympy
import torch

from course_lib.codegen.loops import Phase, iterations, reduction, short_names
from course_lib.codegen.printer import LONGEST, KernelSource, Line, label
from course_lib.codegen.tilings import ProductTiling, Tiling
from course_lib.codegen.triton_ops import HELPERS, KEEPS_NAN, POINTERS, RESERVED, is_number
from course_lib.codegen.triton_plan import (
    PERSISTENT,
    Directions,
    ProductPlan,
    Softmax,
    TritonPass,
    TritonPlanner,
)
from course_lib.codegen.triton_reductions import TritonReductions
from course_lib.lowering.indexing import contiguous, power_of_two
from course_lib.lowering.ir import Buffer
from course_lib.scheduling.expressions import Expr
from course_lib.scheduling.kernel import FusedKernel, Loop, Step
from course_lib.sizes import Size, same

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

SHORT_TYPES = {"int32": "i32", "int64": "i64"}
"""Triton's name of a type in a kernel → its name in a kernel's signature."""


@dataclass(frozen=True)
class TritonSource(KernelSource):
    """A kernel's source, with what is needed to start it and to compile it without tensors."""

    tiling: Tiling = Tiling(1, 0)
    # Triton's name of the type of each argument that is no constant: '*fp32'; 'i32' for a symbolic
    # size
    types: tuple[str, ...] = ()
    # May functions take a number near 0 for 0? A power of two is three instructions shorter then
    flushes: bool = False


def triton_source(
    kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str | None = None
) -> TritonSource:
    """Print one kernel.

    `buffers` knows at least those that the kernel reads (`LoopGraph.buffers`)."""
    return TritonKernel(kernel, buffers, name or kernel.name).print()


class TritonKernel(TritonReductions):
    """Walks the phases of one kernel; a pass over the columns is nothing (persistent) or a `for`
    loop."""

    def __init__(self, kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str) -> None:
        super().__init__(short_names(kernel), buffers, name, [*RESERVED, *HELPERS, name])
        self.plan = TritonPlanner(self.kernel, self.trees, self.buffers)
        self.tiling = self.choose_tiling()
        self.persistent = self.tiling.persistent
        self.passes = self.plan.plan_passes(self.persistent)

        self.masks = {}
        self.reduces = bool(self.kernel.columns)
        self.program = "tl.program_id(0)"
        if self.plan.needs_64_bits:
            self.program += ".to(tl.int64)"

    def choose_tiling(self) -> Tiling:
        """The tile of each program; a subclass may choose another."""
        return self.plan.choose_tiling()

    def print(self) -> TritonSource:
        """The whole kernel, with what is needed above it."""
        self.pointers = {name: self.unique(name) for name in self.passed}
        self.pointers |= {new: self.pointers[old] for new, old in self.in_place.items()}

        self.note_sizes_of_grid()
        # The first line of the block is empty until all is printed: only then it is known which
        # sizes are parameters.
        with self.block(""):
            if self.plan.product:
                self.print_product(self.plan.product)
            elif self.plan.walked:
                self.print_walk()
            else:
                self.print_rows()
                self.print_phases()
        self.lines[:1] = self.opening()
        self.lines[:0] = [Line(0, text) for text in self.header()]

        source, line_of = self.layout("    ")
        types = [POINTERS[self.buffers[name].dtype] for name in self.passed]
        types += ["*i64"] * len(self.behind_buffers)
        types += [SHORT_TYPES[self.type_of_size(size)] for size in self.size_symbols]
        return TritonSource(
            name=self.name,
            language="triton",
            source=source,
            buffers=self.passed,
            line_of=line_of,
            checked=bool(self.checks),
            sizes=tuple(self.sizes),
            symbols=tuple(self.size_symbols),
            tiling=self.tiling,
            types=tuple(types),
        )

    @property
    def behind_buffers(self) -> list[str]:
        """Pointers after those of the buffers: a flag for indices out of range, and the sizes of
        this call."""
        names = []
        if self.checks:
            names.append("problem")
        if self.sizes:
            names.append("sizes")
        return names

    def type_of_size(self, size: sympy.Expr) -> str:
        """What a symbolic size is in the kernel."""
        if self.plan.needs_64_bits or size in self.large:
            return "int64"
        return "int32"

    def note_sizes_of_grid(self) -> None:
        """The kernel is given all sizes that say how many programs there are, whether or not its
        text needs them."""
        for count in (self.tiling.rows, self.tiling.chunks):
            if isinstance(count, Size):
                self.size(count)

    def opening(self) -> list[Line]:
        """`def` with all parameters, and the sizes that are among them."""
        tile = ["BLOCK"]
        if self.reduces:
            tile = ["ROWS", "COLUMNS"]
        if self.plan.product:
            tile.append("DEPTH")

        parameters = [self.pointers[name] for name in self.passed]
        parameters += self.behind_buffers
        symbols = self.size_symbols.values()
        for size, name in self.size_symbols.items():
            parameters.append(f"{name}: tl.{self.type_of_size(size)}")
        parameters += [f"{name}: tl.constexpr" for name in tile]

        # Triton would compile anew for a size of 1, and for multiples of 16.
        decorator = "@triton.jit"
        if symbols:
            quoted = ", ".join(f'"{name}"' for name in symbols)
            decorator = f"@triton.jit(do_not_specialize=[{quoted}])"

        head = f"def {self.name}({', '.join(parameters)}):"
        lines = [Line(0, decorator), Line(0, head)]
        for n, (number, name) in enumerate(self.sizes.items()):
            lines.append(Line(1, self.load_size(n, number, name)))
        return lines

    def load_size(self, n: int, number: int, name: str) -> str:
        """The line that loads the n-th size of this call, and names it.

        It says so if the size is a multiple of 16: rows of such a length can be read 16 bytes at a
        time. (So sizes of 32 and of 48 share a kernel, and 33 has another.)"""
        place = f"sizes + {n}" if n else "sizes"
        value = f"tl.load({place})"
        if not self.plan.needs_64_bits:
            value += ".to(tl.int32)"
        if number % 16 == 0:
            value = f"tl.multiple_of({value}, 16)"
        return f"{name} = {value}"

    def print_product(self, product: Step) -> None:
        """A program has one tile of the result.

        It walks along k; what follows finds the tile in registers."""
        self.print_tile_of_result(self.plan.directions(product))
        with self.on_behalf_of(product):
            total = self.bind(product, "tl.zeros([ROWS, COLUMNS], tl.float32)", label(product))
            self.print_sum(self.plan.plan_product(product, self.builder), total)
            if product.buffer.dtype != torch.float32:
                kind = self.type_name(product.buffer.dtype)
                self.bind(product, f"{total}.to({kind})", label(product))

        for phase in self.plan.phases:
            self.print_row_steps(phase)

    def print_tile_of_result(self, directions: Directions) -> None:
        """Which tile of which product of the batch this program has, and the elements of it."""
        tall = f"tl.cdiv({iterations(directions.down)}, ROWS)"
        wide = f"tl.cdiv({iterations(directions.across)}, COLUMNS)"
        self.line(f"tile = {self.program}")
        self.line(f"tall, wide = {tall}, {wide}")
        if directions.batch:
            self.print_indices(directions.batch, "tile // (tall * wide)", "", "batch")

        note = "Eight tiles below each other, then the eight beside them"
        self.line(f"# {note}: what they read is still in the cache")
        # In the kernel `down` and `across` are numbers of tiles.
        self.line("down, across = tl.swizzle2d(tile // wide % tall, tile % wide, tall, wide, 8)")

        rows = "(down * ROWS + tl.arange(0, ROWS))[:, None]"
        columns = "(across * COLUMNS + tl.arange(0, COLUMNS))[None, :]"
        self.print_indices(directions.down, rows, "rows")
        self.print_indices(directions.across, columns, "columns", "column")
        self.line("mask = rows & columns")

    def print_sum(self, plan: ProductPlan, total: str) -> None:
        """The loop along k, which counts the columns of the left operand (j) and the rows of the
        right one (j_down)."""
        start = self.unique("start")
        a = self.unique("a")
        b = self.unique("b")

        # The masks along k, and those of the two operands
        inside = inside_down = mask_a = mask_b = ""
        if plan.is_masked:
            inside, inside_down = "inside", "inside_down"
            mask_a, mask_b = "rows & inside", "inside_down & columns"

        with self.block(f"for {start} in range(0, {plan.k.size}, DEPTH):"):
            to_64_bits = ".to(tl.int64)" if self.plan.needs_64_bits else ""
            steps = f"({start} + tl.arange(0, DEPTH){to_64_bits})"
            self.print_indices([plan.k], f"{steps}[None, :]", inside)
            self.print_indices([plan.k_down], f"{steps}[:, None]", inside_down)

            self.count_uses([plan.left, plan.right])
            self.print_operand(a, plan.left, mask_a)
            self.print_operand(b, plan.right, mask_b)

            arguments = f"{a}, {b}, {total}"
            if plan.precision:
                arguments += f', input_precision="{plan.precision}"'
            self.line(f"{total} = tl.dot({arguments})")

    def print_operand(self, name: str, tree: Expr, mask: str) -> None:
        """A tile of one operand; outside of the matrix it is 0."""
        if is_number(tree):
            text = self.converted(tree, self.type_name(tree.dtype))
        else:
            text = self.text(tree)
        if mask:
            text = f"tl.where({mask}, {text}, 0.0)"
        self.line(f"{name} = {text}")

    def print_phases(self) -> None:
        """The passes over a row, each with what runs once a row after it."""
        self.count_uses(self.trees.values())
        for plan in self.passes:
            if plan.softmax:
                self.print_online(plan.phase, plan.softmax)
            elif plan.walks and self.persistent:
                self.print_whole_row(plan)
            elif plan.walks:
                self.print_pass(plan.phase)
            self.print_row_steps(plan.phase)

    def print_online(self, phase: Phase, softmax: Softmax) -> None:
        """The maximum of x and the sum of exp(x - maximum) in one pass ("online softmax").

        Each lane has a maximum so far, and a sum of exp(x - that maximum). If a new value is
        larger, the sum so far is multiplied by exp(old maximum - new one). At the end the sums of
        all lanes are scaled to the maximum of the row, and added.

        A lane behind the end of the row takes in -inf. If it has seen nothing else, it has added
        ones, which the last scaling multiplies by exp(-inf - maximum) = 0."""
        best, total = softmax
        shape = self.shape_of_tile()
        most, gathered = self.unique("most"), self.unique("gathered")
        self.line(f'{most} = tl.full({shape}, float("-inf"), tl.float32)')
        self.line(f"{gathered} = tl.full({shape}, 0.0, tl.float32)")

        with self.tiles_of_row():
            self.count_uses(self.trees[step] for step in phase.columns)
            for step in phase.columns:
                if step is not best:
                    self.print_step(step, store=False)

            with self.on_behalf_of(total):
                # Where both are infinite, their difference would be NaN: it is 0.
                # (`value` and `scale` are reserved: nothing else has such a name.)
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

    def print_walk(self) -> None:
        """A program for each chunk of rows: it walks down the rows, adds each to sums down the
        columns, and stores the sums at the end."""
        chunks = tuple(loop for loop in self.kernel.rows if loop not in self.plan.walked)
        if chunks:
            self.print_indices(chunks, self.program, "", "chunk")
        self.print_columns("tl.arange(0, COLUMNS)")

        # One sum for each column. They begin at 0, before the loop over the rows.
        totals = {}
        for step in self.sums_down:
            kind = self.type_name(reduction(step).accumulate)
            zeros = f"tl.full([1, COLUMNS], 0.0, {kind})"
            totals[step] = self.bind(step, zeros, f"{label(step)}_down")

        start = self.unique("start")
        rows_of_chunk = self.size(iterations(self.plan.walked))
        with self.block(f"for {start} in range(0, {rows_of_chunk}, ROWS):"):
            self.print_indices(self.plan.walked, f"({start} + tl.arange(0, ROWS))[:, None]", "rows")
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
        if not self.kernel.rows:
            self.print_indices(self.kernel.columns, columns, "mask", "column")
            return

        self.print_indices(self.kernel.columns, f"{columns}[None, :]", "columns", "column")
        if not self.plan.walked:
            self.line("mask = rows & columns")

    def print_indices(
        self, loops: Sequence[Loop], text: str, mask: str, together: str = "row"
    ) -> None:
        """The symbols of several loops from one running number, and the mask for where it is
        inside.

        text: the running number as source. mask: the name that the mask gets, "" for none.
        together: the number's name, if there are several loops.
        """
        number = together
        if len(loops) == 1:
            number = loops[0].symbol
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
            digit = number
            if not same(stride, 1):
                digit = f"{number} // {self.size_as_divisor(stride)}"
            if loop is not loops[0]:
                digit = f"{digit} % {self.size_as_divisor(loop.size)}"
            self.line(f"{loop.symbol} = {digit}")

    def print_whole_row(self, plan: TritonPass) -> None:
        """A pass over a row that is held in registers."""
        if plan.names_columns:
            self.print_columns("tl.arange(0, COLUMNS)")
        self.print_column_steps(plan.phase, {})

    def print_pass(self, phase: Phase) -> None:
        """A pass over a long row: each tile is taken into accumulators of its shape."""
        totals = {step: self.print_accumulator(step) for step in phase.reductions}
        with self.tiles_of_row():
            self.count_uses(self.trees[step] for step in phase.columns)
            self.print_column_steps(phase, totals)
            self.print_late()

        for step, name in totals.items():
            with self.on_behalf_of(step):
                self.print_result(step, name, f"{name}_at")

    @contextlib.contextmanager
    def tiles_of_row(self) -> Iterator[None]:
        """The loop along a long row."""
        start, end = self.unique("start"), self.size(iterations(self.kernel.columns))
        with self.block(f"for {start} in range(0, {end}, COLUMNS):"):
            self.print_columns(f"({start} + tl.arange(0, COLUMNS))")
            yield

    def print_column_steps(self, phase: Phase, totals: Mapping[Step, str]) -> None:
        """The values of a tile, and what is reduced of them; without a total a tile is the whole
        row."""
        for step in phase.columns:
            with self.on_behalf_of(step):
                if step.level == "across":
                    self.print_sum_over_rows(step)
                elif step.is_reduction:
                    self.print_reduction(step, totals.get(step, ""))
                else:
                    self.print_step(step, store=step in phase.stored)

    def print_sum_over_rows(self, step: Step) -> None:
        """Take the rows of a tile into the sum of each column."""
        value = f"tl.where(mask, {self.text(self.trees[step])}, 0.0)"
        of_each_column = self.reduce("sum", value, axis=0)
        self.line(f"{self.values[step]} += {of_each_column}")

    def print_late(self) -> None:
        """Triton gives each load and store threads as it likes: one may store in place what another
        still has to load."""
        if self.late:
            self.line("tl.debug_barrier()  # in place: first all is loaded")
        super().print_late()

    def print_row_steps(self, phase: Phase) -> None:
        """Row-level values, then the stores of finished reductions."""
        # Where a pass is a loop over tiles, uses are counted in each pass, and so once more here.
        # (Else `print_phases` has counted those of the whole kernel: what one pass names, the next
        # ones know.)
        if self.reduces and not self.persistent:
            self.count_uses(self.trees[step] for step in phase.rows if not step.is_reduction)

        # A reduction of this phase has its value, and needs no more than to be stored.
        to_compute = [step for step in phase.rows if step not in self.values]
        to_store = [step for step in phase.rows if step in self.values]
        for step in (*to_compute, *to_store):
            with self.on_behalf_of(step):
                self.print_step(step, store=step in phase.stored)
        self.print_late()

    def print_step(self, step: Step, store: bool) -> None:
        """The value of a step, unless it is known (persistent: from an earlier pass), and its store
        if it is wanted in memory."""
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
