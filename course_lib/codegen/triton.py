"""A fused kernel as Triton: one program for each tile.

In:  a `FusedKernel` and the buffers it reads.
Out: one `@triton.jit` function on whole tiles of values, and the `Tiling` that says how many programs to start.

Without a reduction a tile is BLOCK consecutive elements. With one it is ROWS × COLUMNS: a row that fits is held in registers as
a whole ("persistent"); a longer one is walked in steps of COLUMNS, once for each pass. Masks keep the last tile inside.

The same text runs on a GPU and, on CPU tensors, in Triton's interpreter (`runtime/triton_runner.py`).
In PyTorch: `torch/_inductor/codegen/triton.py`, `TritonKernel`, and `runtime/triton_heuristics.py` for the tile sizes.
"""

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import sympy
import torch

from course_lib.codegen.loops import (
    PLAIN,
    Phase,
    column_number,
    extreme,
    iterations,
    phases,
    reduction,
    short_names,
)
from course_lib.codegen.printer import LONGEST, KernelSource, label
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
from course_lib.scheduling.expressions import Expr, loads
from course_lib.scheduling.kernel import FusedKernel, Loop, Step
from course_lib.scheduling.products import allows_tf32
from course_lib.scheduling.split import rows_are_neighbours

PERSISTENT = 16 * 1024  # Longest row that is held in registers
STEP = 32  # Columns of a tile where rows are neighbours; it has as many rows, or more
LARGEST_TILE = 1 << 20  # Triton allows no more elements in one tile


@dataclass(frozen=True)
class Tiling:
    """What the launcher must know: the elements along each direction of the tile."""

    rows: int
    columns: int  # 0 for a kernel without a reduction
    persistent: bool = False
    across: bool = False  # Rows, not columns, lie side by side in memory
    chunks: int = 0  # Programs that walk along `rows`, if each does so

    def meta(self, interpreted: bool) -> dict[str, int]:
        """Tile sizes. In the interpreter a program costs a millisecond whatever its tile: a few large ones."""
        if not self.columns:
            return {"BLOCK": power_of_two(min(self.rows, LARGEST_TILE)) if interpreted else 1024}
        room = LARGEST_TILE if interpreted else 4096 if self.chunks else 2048
        # few rows: more programs, each with fewer
        step, least = (STEP, STEP) if self.rows > 4096 else (128, 16)
        longest = LARGEST_TILE // STEP if interpreted else step if self.across else 2048
        columns = power_of_two(self.columns) if self.persistent else longest
        return {
            "ROWS": min(power_of_two(self.rows), max(least if self.across else 1, room // columns)),
            "COLUMNS": columns,
        }

    def programs(self, meta: Mapping[str, int]) -> int:
        return self.chunks or -(-self.rows // meta.get("ROWS", meta.get("BLOCK", 1)))

    def warps(self, meta: Mapping[str, int]) -> int:
        """Threads for a tile, in units of 32: eight to thirty-two elements for each thread."""
        each = (
            1024
            if self.chunks and meta["ROWS"] > 1
            else 512
            if self.persistent or self.across or not self.columns
            else 256
        )
        return min(16, max(4, math.prod(meta.values()) // each))


PRODUCT_TILES = [
    ({"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "num_stages": stages}, warps)
    for rows, columns, depth, stages, warps in (
        (64, 64, 64, 4, 4), (16, 32, 128, 5, 4), (16, 64, 128, 5, 4), (32, 64, 64, 5, 4),
        (64, 128, 64, 4, 4), (128, 64, 64, 3, 4), (128, 128, 64, 3, 8), (128, 256, 64, 4, 8),
    )
]  # fmt: skip
"""What is tried for a matrix product, the usual first. `num_stages`: how many tiles of its operands are fetched ahead."""


@dataclass(frozen=True)
class ProductTiling(Tiling):
    """A matrix product: tiles in both directions of the result, `batch` times, each a sum of `depth` products."""

    batch: int = 1
    depth: int = 1

    @property
    def tiles(self) -> list[tuple[dict[str, int], int]]:
        """Tile sizes and warps. Where tiles of 64 along k need no mask, none has one."""
        return [
            each for each in PRODUCT_TILES if self.depth % 64 or self.depth % each[0]["DEPTH"] == 0
        ]

    def meta(self, interpreted: bool) -> dict[str, int]:
        return self.tiles[0][0]

    def programs(self, meta: Mapping[str, int]) -> int:
        return self.batch * -(-self.rows // meta["ROWS"]) * -(-self.columns // meta["COLUMNS"])

    def warps(self, meta: Mapping[str, int]) -> int:
        return self.tiles[0][1]


@dataclass(frozen=True)
class TritonSource(KernelSource):
    """A kernel's source, with what is needed to start it and to compile it without tensors."""

    tiling: Tiling = Tiling(1, 0)
    types: tuple[str, ...] = ()  # Triton's name of each pointer argument's type: '*fp32',


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
        gathered = {
            symbol
            for step in self.across
            for formula in step.rindex
            for symbol in formula.free_symbols
        }
        self.walked = tuple(loop for loop in kernel.rows if loop.symbol in gathered)
        self.tiling = self.choose_tiling()
        self.columns, self.persistent = iterations(kernel.columns), self.tiling.persistent
        # along k a product counts by itself
        counted = kernel.rows if self.product else kernel.loops
        self.wide = iterations(counted) >= 2**31 or any(
            b.numel >= 2**31 for b in self.buffers.values()
        )
        self.program = "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"

    def choose_tiling(self) -> Tiling:
        rows, columns = (
            iterations(loops) for loops in (self.walked or self.kernel.rows, self.kernel.columns)
        )
        if not self.reduces:
            return Tiling(rows, 0)
        if self.product:
            batch, down, across = map(iterations, self.directions(self.product))
            return ProductTiling(down, across, batch=batch, depth=columns)
        loops = {loop.symbol for loop in self.kernel.loops}
        reads = [
            Linear.of(index, loops) for tree in self.trees.values() for _, index in loads(tree)
        ]
        across = rows_are_neighbours(
            reads,
            *([loop.symbol for loop in part] for part in (self.kernel.rows, self.kernel.columns)),
        )
        tiling = Tiling(rows, max(1, columns), across=across and not self.walked)
        longest = (
            PERSISTENT
            if not tiling.across
            else 512
            if sum(bool(phase.columns) for phase in self.phases) > 1
            else STEP
        )
        chunks = iterations(self.kernel.rows) // rows if self.walked else 0
        return replace(tiling, persistent=columns <= longest or bool(self.walked), chunks=chunks)

    def print(self) -> TritonSource:
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
        more = ["problem"] * bool(self.checks) + ["sizes"] * bool(self.sizes)
        tile = (
            ["ROWS", "COLUMNS", *(["DEPTH"] if self.product else [])] if self.reduces else ["BLOCK"]
        )
        parameters = [
            *(self.pointers[name] for name in self.passed),
            *more,
            *(f"{name}: tl.constexpr" for name in tile),
        ]
        given = [(1, self.load_size(n, *size), None) for n, size in enumerate(self.sizes.items())]
        self.lines[1:2] = [(0, f"def {self.name}({', '.join(parameters)}):", None), *given]
        self.lines[:0] = [(0, text, None) for text in self.header()]
        source, line_of = self.layout("    ")
        types = tuple(POINTERS[self.buffers[name].dtype] for name in self.passed) + ("*i64",) * len(
            more
        )
        sizes = tuple(self.sizes)
        return TritonSource(
            self.name,
            "triton",
            source,
            self.passed,
            line_of,
            bool(self.checks),
            sizes,
            self.tiling,
            types,
        )

    def load_size(self, n: int, number: int, name: str) -> str:
        """Rows that all begin at multiples of 16 can be read 16 bytes at a time: whether they do stays in the text."""
        value = f"tl.load(sizes{f' + {n}' if n else ''})" + ("" if self.wide else ".to(tl.int32)")
        return f"{name} = {f'tl.multiple_of({value}, 16)' if number % 16 == 0 else value}"

    def directions(self, product: Step) -> tuple[list[Loop], list[Loop], list[Loop]]:
        """The loops over the batch, down the rows and across the columns of a product's result."""
        m, n = (formula.free_symbols for formula in product.index[-2:])
        loops = lambda symbols: [loop for loop in self.kernel.rows if loop.symbol in symbols]
        return loops({loop.symbol for loop in self.kernel.rows} - m - n), loops(m), loops(n)

    def print_product(self, product: Step) -> None:
        """A program has one tile of the result. It walks along k; what follows finds the tile in registers."""
        batch, down, across = self.directions(product)
        self.line(f"tile = {self.program}")
        self.line(
            f"tall, wide = tl.cdiv({iterations(down)}, ROWS), tl.cdiv({iterations(across)}, COLUMNS)"
        )
        if batch:
            self.print_indices(batch, "tile // (tall * wide)", "", "batch")
        self.line(
            "# Eight tiles below each other, then the eight beside them: what they read is still in the cache"
        )
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
                self.bind(
                    product, f"{total}.to({self.type_name(product.buffer.dtype)})", label(product)
                )
        for phase in self.phases:
            self.print_row_steps(phase)

    def print_sum(self, product: Step, total: str) -> None:
        """The loop along k, which counts the columns of the left operand (j) and the rows of the right one (j_down)."""
        (k,), (_, down, across), start = (
            self.kernel.columns,
            self.directions(product),
            self.unique("start"),
        )
        below = k._replace(symbol=sympy.Symbol(f"{k.symbol}_down"))
        left, right = (
            self.trees[product].args[0],
            replace(product, rindex=(below.symbol,)).value(self.builder).args[1],
        )
        narrow = [x.args[0] for x in (left, right) if x.op == "to_dtype"]
        if [x.dtype for x in narrow] in ([torch.float16] * 2, [torch.bfloat16] * 2):
            left, right = narrow  # multiplied as they are, and summed in float32
        names = self.unique("a"), self.unique("b")
        operands = (
            (left, "rows & inside", (down, [k])),
            (right, "inside_down & columns", ([below], across)),
        )
        spread = lambda tree, loops: (
            not self.symbols_of(tree).isdisjoint(loop.symbol for loop in loops)
        )
        masked = k.size % 64 != 0 or not all(
            spread(tree, loops) for tree, _, sides in operands for loops in sides
        )
        with self.block(f"for {start} in range(0, {k.size}, DEPTH):"):
            steps = f"({start} + tl.arange(0, DEPTH){'.to(tl.int64)' if self.wide else ''})"
            self.print_indices([k], f"{steps}[None, :]", "inside" * masked)
            self.print_indices([below], f"{steps}[:, None]", "inside_down" * masked)
            self.count_uses([left, right])
            for name, (tree, mask, _) in zip(names, operands, strict=True):
                text = (
                    self.converted(tree, self.type_name(tree.dtype))
                    if is_number(tree)
                    else self.text(tree)
                )
                self.line(f"{name} = {f'tl.where({mask}, {text}, 0.0)' if masked else text}")
            exact = (
                f', input_precision="{"tf32" if allows_tf32() else "ieee"}"'
                if left.dtype == torch.float32
                else ""
            )
            self.line(f"{total} = tl.dot({', '.join(names)}, {total}{exact})")

    def print_phases(self) -> None:
        self.count_uses(self.trees.values())
        done: set[Step] = set()
        for number, phase in enumerate(self.phases):
            if pair := self.softmax_pair(number):
                self.print_online(phase, *pair)
                done.update(pair)
            elif phase.columns and not done.issuperset(phase.reductions or [None]):
                self.print_pass(phase, first=number == 1)
            self.print_row_steps(phase)

    def softmax_pair(self, number: int) -> tuple[Step, Step] | None:
        """A maximum of x and, in the next pass, the sum of exp(x - maximum), if these two are all that long rows are read for."""
        alone = lambda phase: (
            len(phase.reductions) == 1 and not phase.stored & {*phase.columns} - {*phase.reductions}
        )
        if self.persistent or len(pair := [*filter(alone, self.phases[number : number + 2])]) < 2:
            return None
        best, total = (phase.reductions[0] for phase in pair)
        exp = self.through(self.trees[total])
        sub = self.through(exp.args[0]) if exp.op == "exp" else exp
        kinds = reduction(best).kind, reduction(total).kind
        if (
            kinds != ("max", "sum")
            or sub.op != "sub"
            or best.buffer.dtype != torch.float32
            or sub.args[1].detail is not best
        ):
            return None
        return (
            (best, total) if self.through(sub.args[0]) is self.through(self.trees[best]) else None
        )

    def through(self, expr: Expr) -> Expr:
        """What a value in the columns is computed by."""
        while (
            expr.op == "value_of" and not expr.detail.is_reduction and expr.detail.level == "column"
        ):
            expr = self.trees[expr.detail]
        return expr

    def print_online(self, phase: Phase, best: Step, total: Step) -> None:
        """Both in one pass: when a tile has a new maximum, what was summed so far is scaled down to it."""
        shape = "[ROWS, COLUMNS]" if self.kernel.rows else "[COLUMNS]"
        most, gathered, start = self.unique("most"), self.unique("gathered"), self.unique("start")
        self.line(
            f'{most} = tl.full({shape}, float("-inf"), tl.float32)',
            f"{gathered} = tl.full({shape}, 0.0, tl.float32)",
        )
        with self.block(f"for {start} in range(0, {self.size(self.columns)}, COLUMNS):"):
            self.print_columns(f"({start} + tl.arange(0, COLUMNS))")
            self.count_uses(self.trees[step] for step in phase.columns)
            for step in [step for step in phase.columns if step is not best]:
                self.print_step(step, store=False)
            with self.on_behalf_of(total):
                self.line(f'value = tl.where(mask, {self.text(self.trees[best])}, float("-inf"))')
                self.line(
                    f"scale = tl.exp(-tl.abs(tl.where(value == {most}, 0.0, value - {most})))  # the smaller to the larger"
                )
                self.line(
                    f"{gathered} = tl.where(value > {most}, {gathered} * scale + 1.0, {gathered} + scale)"
                )
                self.line(f"{most} = tl.maximum({most}, value{KEEPS_NAN})")
        with self.on_behalf_of(best):
            self.print_result(best, most)
        with self.on_behalf_of(total):
            self.print_result(total, f"{gathered} * tl.exp({most} - {self.values[best]})")

    def print_walk(self) -> None:
        """A program for each chunk of rows: it walks along them, gathers sums down the columns, and stores these at the end."""
        if chunks := tuple(loop for loop in self.kernel.rows if loop not in self.walked):
            self.print_indices(chunks, self.program, "", "chunk")
        self.print_columns("tl.arange(0, COLUMNS)")
        zeros = lambda step: (
            f"tl.full([1, COLUMNS], 0.0, {self.type_name(reduction(step).accumulate)})"
        )
        totals = {step: self.bind(step, zeros(step), f"{label(step)}_down") for step in self.across}
        start = self.unique("start")
        with self.block(f"for {start} in range(0, {self.size(iterations(self.walked))}, ROWS):"):
            self.print_indices(self.walked, f"({start} + tl.arange(0, ROWS))[:, None]", "rows")
            self.line("mask = rows & columns")
            self.print_phases()
        for step, total in totals.items():
            place = self.place(step.buffer.name, step.store_index)
            self.line(
                f"tl.store({place}, {total}.to({self.type_name(step.buffer.dtype)}), columns)",
                step=step,
            )

    def print_rows(self) -> None:
        """Which rows (or elements) this program has."""
        if self.kernel.rows:
            size, mask = ("ROWS", "rows") if self.reduces else ("BLOCK", "mask")
            rows = f"{self.program} * {size} + tl.arange(0, {size})"
            self.print_indices(
                self.kernel.rows, f"({rows})[:, None]" if self.reduces else rows, mask
            )

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
        for n, (loop, below) in enumerate(
            zip(loops, contiguous([loop.size for loop in loops])) if len(loops) > 1 else ()
        ):
            divided = f"{number} // {self.size(below)}" if below != 1 else number
            self.line(
                f"{loop.symbol} = {divided} % {self.size(loop.size)}"
                if n
                else f"{loop.symbol} = {divided}"
            )
        if mask:
            self.line(f"{mask} = {number} < {self.size(iterations(loops))}")
            self.masks |= {loop.symbol: mask for loop in loops}

    def print_pass(self, phase: Phase, first: bool) -> None:
        """Persistent: the whole row at once. Looped: each tile is taken into accumulators of its shape."""
        totals: dict[Step, str] = {}
        with contextlib.ExitStack() as blocks:
            if not self.persistent:
                totals = {step: self.print_accumulator(step) for step in phase.reductions}
                start = self.unique("start")
                blocks.enter_context(
                    self.block(f"for {start} in range(0, {self.size(self.columns)}, COLUMNS):")
                )
                self.print_columns(f"({start} + tl.arange(0, COLUMNS))")
                self.count_uses(self.trees[step] for step in phase.columns)
            elif first and not self.walked:
                self.print_columns("tl.arange(0, COLUMNS)")
            for step in phase.columns:
                with self.on_behalf_of(step):
                    if step.level == "across":
                        total = self.reduce(
                            "sum", f"tl.where(mask, {self.text(self.trees[step])}, 0.0)", axis=0
                        )
                        self.line(f"{self.values[step]} += {total}")
                    elif step.is_reduction:
                        self.print_reduction(step, totals.get(step, ""))
                    else:
                        self.print_step(step, store=step in phase.stored)
            if not self.persistent:
                self.print_late()
        for step, name in totals.items():
            with self.on_behalf_of(step):
                self.print_result(step, name, f"{name}_at")

    def print_late(self) -> None:
        """Triton gives each load and store threads as it likes: one may store in place what another still has to load."""
        if self.late:
            self.line("tl.debug_barrier()  # in place: first all is loaded")
        super().print_late()

    def accumulator(self, step: Step) -> tuple[str, str]:
        """What a reduction begins with, and the type that it computes in."""
        node, dtype = reduction(step), self.trees[step].dtype
        if node.kind not in PLAIN:
            return self.number(extreme(dtype, lowest="max" in node.kind), dtype), self.type_name(
                dtype
            )
        first = PLAIN[node.kind][0]
        if node.kind in ("any", "all"):
            return first, "tl.int32"
        return first + (".0" if node.accumulate.is_floating_point else ""), self.type_name(
            node.accumulate
        )

    def print_accumulator(self, step: Step) -> str:
        name = self.unique(f"{label(step)}_tile")
        shape = "[ROWS, COLUMNS]" if self.kernel.rows else "[COLUMNS]"
        first, kind = self.accumulator(step)
        self.line(f"{name} = tl.full({shape}, {first}, {kind})", step=step)
        if reduction(step).kind.startswith("arg"):
            self.line(f"{name}_at = tl.full({shape}, 0, tl.int64)", step=step)
        return name

    def print_reduction(self, step: Step, total: str) -> None:
        """Take the values of a tile into `total`; if there is none, they are the whole row."""
        node, tree = reduction(step), self.trees[step]
        first, kind = self.accumulator(step)
        value = (
            self.text(tree)
            if kind == self.type_name(tree.dtype) and not is_number(tree)
            else self.converted(tree, kind)
        )
        value = f"tl.where(mask, {value}, {first})"
        if node.kind in PLAIN:
            if total:
                self.line(f"{total} {PLAIN[node.kind][1]}= {value}")
            else:
                self.print_result(step, value)
            return
        name = self.unique("value")
        self.line(f"{name} = {value}")
        at = self.index(column_number(step)) if node.kind.startswith("arg") else ""
        if not total:
            self.print_result(step, name, at)
            return
        better = f"({name} {'>' if 'max' in node.kind else '<'} {total})"
        if tree.dtype.is_floating_point:
            better += f" | (({name} != {name}) & ({total} == {total}))"
        if at:
            self.line(f"better = {better}", f"{total}_at = tl.where(better, {at}, {total}_at)")
            better = "better"
        self.line(f"{total} = tl.where({better}, {name}, {total})")

    def print_result(self, step: Step, value: str, at: str = "") -> None:
        """The values of a tile to one value for each row. For argmax and argmin, `at` says where they are."""
        node, floats = reduction(step), self.trees[step].dtype.is_floating_point
        if node.kind in PLAIN:
            function = {"any": "max", "all": "min"}.get(node.kind, node.kind)
            text = self.reduce(function, value) + (" != 0" if node.kind in ("any", "all") else "")
        else:
            text = self.reduce("max" if "max" in node.kind else "min", value)
            if floats:  # NaN wins (`tl.max` drops it)
                flag = self.unique("has_nan")
                self.line(f"{flag} = {self.reduce('max', f'({value} != {value}).to(tl.int32)')}")
                text = f'tl.where({flag} > 0, float("nan"), {text})'
        if node.kind.startswith("arg"):  # the first place that is the best
            best = self.unique("best")
            self.line(f"{best} = {text}")
            # Where one is NaN the best is NaN, and nothing equals it.
            same = (
                f"(({value} == {best}) | ({value} != {value}))"
                if floats
                else f"({value} == {best})"
            )
            place = f"tl.where({same}{' & mask' if self.persistent else ''}, {at}, {2**63 - 1 if self.wide else 2**31 - 1})"
            text = f"{self.reduce('min', place)}.to(tl.int64)"
        if step.buffer.dtype in (torch.float16, torch.bfloat16, *NARROW):
            text = f"({text}).to({self.type_name(step.buffer.dtype)})"
        self.bind(step, text, label(step))

    def reduce(self, function: str, value: str, axis: int = 1) -> str:
        axis, keep = (axis, ", keep_dims=True") if self.kernel.rows else (0, "")
        return (
            f"tl.reduce({value}, {axis}, multiply{keep})"
            if function == "prod"
            else f"tl.{function}({value}, {axis}{keep})"
        )

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
            alone = store and step not in self.used and not self.kernel.in_place
            if not alone or len(value) > LONGEST // 2:
                value = (
                    self.converted(tree, self.type_name(tree.dtype)) if is_number(tree) else value
                )
                value = self.bind(step, value, label(step))
                self.values.setdefault(tree, value)
        if store:
            mask = self.mask_for(step.store_index)
            arguments = [
                self.place(step.buffer.name, step.store_index),
                value,
                *([mask] if mask else []),
            ]
            self.store(f"tl.store({', '.join(arguments)})")
