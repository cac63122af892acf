"""A fused kernel as Triton: one program for each tile.

In:  a `FusedKernel` and the buffers it reads.
Out: one `@triton.jit` function on whole tiles of values, and the `Tiling` that says how many programs to start.

Without a reduction a tile is BLOCK consecutive elements. With one it is ROWS × COLUMNS: a row that fits is held in registers as
a whole ("persistent": one load, one store, whatever happens between); a longer one is walked in steps of COLUMNS, once for
each pass. Masks keep the last tile inside the tensor.

The same text runs on a GPU and, on CPU tensors, in Triton's interpreter (`runtime/triton_runner.py`).

In PyTorch: `torch/_inductor/codegen/triton.py`, `TritonKernel`, and `runtime/triton_heuristics.py` for the tile sizes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

import sympy

from course_lib.codegen.expressions import loads, record, steps_used
from course_lib.codegen.loops import Phase, column_number, is_row_level, phases, simplify, work
from course_lib.codegen.printer import LONGEST, KernelSource
from course_lib.codegen.triton_ops import HELPERS, POINTERS, RESERVED, TritonOps, type_name
from course_lib.lowering.ir import Buffer, Reduction
from course_lib.scheduling.kernel import FusedKernel, Loop, Step

PERSISTENT = 16 * 1024
"""Longest row that is held in registers."""
LARGEST_TILE = 1 << 20
"""Triton allows no more elements in one tile."""

IDENTITY = {"sum": "0", "prod": "1", "any": "0", "all": "1"}


@dataclass(frozen=True)
class Tiling:
    """What the launcher must know: the elements along each direction of the tile."""

    rows: int
    columns: int
    """0 for a kernel without a reduction."""
    persistent: bool = False

    def meta(self, interpreted: bool) -> dict[str, int]:
        """Tile sizes. In the interpreter a program costs a millisecond whatever its tile: a few large ones."""
        if not self.columns:
            return {"BLOCK": power_of_two(min(self.rows, LARGEST_TILE)) if interpreted else 1024}
        columns = power_of_two(self.columns) if self.persistent else 64 * 1024 if interpreted else 2048
        room = LARGEST_TILE if interpreted else 2048
        return {"ROWS": min(power_of_two(self.rows), max(1, room // columns)), "COLUMNS": columns}

    def programs(self, meta: Mapping[str, int]) -> int:
        return -(-self.rows // meta.get("ROWS", meta.get("BLOCK", 1)))

    def warps(self, meta: Mapping[str, int]) -> int:
        """Threads for a tile, in units of 32: eight to sixteen elements for each thread."""
        return min(16, max(4, math.prod(meta.values()) // 512))


@dataclass(frozen=True)
class TritonSource(KernelSource):
    """A kernel's source, with what is needed to start it and to compile it without tensors."""

    tiling: Tiling = Tiling(1, 0)
    types: tuple[str, ...] = ()
    """Triton's name of each pointer argument's type: '*fp32', ..."""


def triton_source(kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str | None = None) -> TritonSource:
    """Print one kernel. `buffers` knows at least those that the kernel reads (`LoopGraph.buffers`)."""
    return TritonKernel(simplify(kernel, buffers), buffers, name or kernel.name).print()


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


class TritonKernel(TritonOps):
    """Walks the phases of one kernel; a pass over the columns is nothing (persistent) or a `for` loop."""

    def __init__(self, kernel: FusedKernel, buffers: Mapping[str, Buffer], name: str) -> None:
        symbols = [str(loop.symbol) for loop in kernel.loops]
        super().__init__([*RESERVED, *HELPERS, name, *symbols])
        self.kernel, self.name = kernel, name
        self.trees, recorder = record(kernel, buffers)
        self.symbols, self.buffers = recorder.indirect_values, recorder.buffers
        self.rows = math.prod(loop.size for loop in kernel.rows)
        self.columns = math.prod(loop.size for loop in kernel.columns)
        self.reduces = any(step.is_reduction for step in kernel.steps) or bool(kernel.columns)
        self.persistent = self.reduces and self.columns <= PERSISTENT
        self.phases = phases(kernel, self.trees, keep=frozenset())
        self.row_symbols = {loop.symbol for loop in kernel.rows}
        self.column_symbols = {loop.symbol for loop in kernel.columns}
        self.used = {used for tree in self.trees.values() for used in steps_used(tree)}
        self.late: list[Step] = []
        self.wide = work(kernel) >= 2**31 or any(b.numel >= 2**31 for b in recorder.buffers.values())

    def print(self) -> TritonSource:
        read = dict.fromkeys(buffer for tree in self.trees.values() for buffer, _ in loads(tree))
        stored = [step.buffer.name for step in self.trees if step.buffer.name in self.kernel.stores]
        in_place = {new: old for new, old in self.kernel.in_place.items() if new in stored}
        order = tuple(dict.fromkeys([*read, *(in_place.get(name, name) for name in stored)]))
        for name in order:
            self.pointers[name] = self.scope.unique(name)
        self.pointers |= {new: self.pointers[old] for new, old in in_place.items()}
        checked = any(self.checks(tree) for tree in self.trees.values())
        meta = ["ROWS", "COLUMNS"] if self.reduces else ["BLOCK"]
        parameters = [*(self.pointers[name] for name in order), *(["problem"] if checked else [])]
        parameters += [f"{name}: tl.constexpr" for name in meta]
        self.line("@triton.jit")
        with self.block(f"def {self.name}({', '.join(parameters)}):"):
            self.print_rows()
            self.count_uses(self.trees.values())
            for number, phase in enumerate(self.phases):
                if phase.columns:
                    self.print_pass(phase, first=number == 1)
                self.print_row_steps(phase)
        source, line_of = self.layout("    ")
        header = "import triton\nimport triton.language as tl\n" + self.imports()
        shift = header.count("\n")
        tiling = Tiling(self.rows, max(1, self.columns) if self.reduces else 0, self.persistent)
        line_of = {line + shift: step for line, step in line_of.items()}
        types = tuple(POINTERS[self.buffers[name].dtype] for name in order) + ("*i64",) * checked
        return TritonSource(self.name, "triton", header + source, order, (), line_of, checked, tiling, types)

    # --- the tile ----------------------------------------------------------------------------------------------------

    def print_rows(self) -> None:
        """Which rows (or elements) this program has."""
        if not self.kernel.rows:
            return
        size = "ROWS" if self.reduces else "BLOCK"
        program = "tl.program_id(0).to(tl.int64)" if self.wide else "tl.program_id(0)"
        rows = f"{program} * {size} + tl.arange(0, {size})"
        self.print_indices(self.kernel.rows, f"({rows})[:, None]" if self.reduces else rows)
        self.row_mask = self.mask_name(
            "rows" if self.reduces else "mask", f"{self.flat(self.kernel.rows)} < {self.rows}"
        )

    def print_indices(self, loops: tuple[Loop, ...], text: str) -> None:
        """The symbols of several loops from one running number."""
        if len(loops) == 1:
            self.line(f"{loops[0].symbol} = {text}")
            return
        number = self.flat(loops)
        self.line(f"{number} = {text}")
        for n, loop in enumerate(loops):
            below = math.prod(other.size for other in loops[n + 1 :])
            divided = f"{number} // {below}" if below > 1 else number
            self.line(f"{loop.symbol} = {divided} % {loop.size}" if n else f"{loop.symbol} = {divided}")

    def flat(self, loops: tuple[Loop, ...]) -> str:
        """The name of the running number over these loops."""
        return str(loops[0].symbol) if len(loops) == 1 else ("row" if loops[0].kind == "row" else "column")

    def mask_name(self, name: str, condition: str) -> str:
        self.line(f"{name} = {condition}")
        return name

    def mask_for(self, index: sympy.Expr) -> str:
        """The mask for a pointer of this index: it must have the pointer's shape."""
        symbols = index.free_symbols | {
            s for at in self.symbols if at in index.free_symbols for s in self.symbols_of(at)
        }
        on_rows, on_columns = bool(symbols & self.row_symbols), bool(symbols & self.column_symbols)
        if on_rows and on_columns:
            return "mask"
        return self.row_mask if on_rows else self.column_mask if on_columns else ""

    # --- a pass over the columns -------------------------------------------------------------------------------------

    def print_pass(self, phase: Phase, first: bool) -> None:
        with contextlib.ExitStack() as blocks:
            partial: dict[Step, str] = {}
            if self.persistent:
                if first:
                    self.print_columns("tl.arange(0, COLUMNS)")
            else:
                for step in phase.reductions:
                    with self.on_behalf_of(step):
                        partial[step] = self.print_accumulator(step)
                start = self.scope.unique("start")
                blocks.enter_context(self.block(f"for {start} in range(0, {self.columns}, COLUMNS):"))
                self.print_columns(f"{start} + tl.arange(0, COLUMNS)")
                self.count_uses(self.trees[step] for step in phase.columns)
            for step in phase.columns:
                with self.on_behalf_of(step):
                    if step.is_reduction:
                        self.print_reduction(step, partial.get(step))
                    else:
                        self.print_step(step, store=step in phase.stored)
            if not self.persistent:
                self.print_late_stores()
        for step, name in partial.items():
            with self.on_behalf_of(step):
                self.print_result(step, name)

    def print_columns(self, text: str) -> None:
        if not self.kernel.columns:
            self.column_mask = self.row_mask
            self.line(f"mask = {self.row_mask or 'tl.full([1], True, tl.int1)'}")
            return
        text = f"({text})" if "+" in text else text
        self.print_indices(self.kernel.columns, f"{text}[None, :]" if self.kernel.rows else text)
        name = "columns" if self.kernel.rows else "mask"
        self.column_mask = self.mask_name(name, f"{self.flat(self.kernel.columns)} < {self.columns}")
        if self.kernel.rows:
            self.line("mask = rows & columns")

    # --- reductions --------------------------------------------------------------------------------------------------

    def print_reduction(self, step: Step, partial: str | None) -> None:
        """Persistent: the whole row at once. Looped: take the tile into accumulators of the tile's shape."""
        node, tree = step.node, self.trees[step]
        assert isinstance(node, Reduction)
        value = self.text(tree)
        if node.kind in ("any", "all"):
            value = f"({value}).to(tl.int32)" if str(tree.dtype) == "torch.bool" else f"({value} != 0).to(tl.int32)"
        elif node.kind in ("sum", "prod") and tree.dtype != node.accumulate:
            value = f"({value}).to({type_name(node.accumulate)})"
        first = self.identity(step)
        if partial is None:
            masked = f"tl.where(mask, {value}, {first})"
            if node.kind in ("max", "min") or node.kind.startswith("arg"):
                name = self.scope.unique("value")
                self.line(f"{name} = {masked}")
                at = self.index(column_number(step)) if node.kind.startswith("arg") else ""
                self.print_choice(step, name, at)
            else:
                self.scope.values[step] = self.name_result(step, self.reduce(node.kind, masked))
            return
        if node.kind in ("sum", "any", "all", "prod"):
            operator = {"sum": "+", "prod": "*", "any": "|", "all": "&"}[node.kind]
            self.line(f"{partial} {operator}= tl.where(mask, {value}, {first})")
            return
        name = self.scope.unique("value")
        self.line(f"{name} = tl.where(mask, {value}, {first})")
        sign = ">" if "max" in node.kind else "<"
        better = f"({name} {sign} {partial})"
        if tree.dtype.is_floating_point:
            better += f" | (({name} != {name}) & ({partial} == {partial}))"
        if node.kind.startswith("arg"):
            self.line(f"better = {better}")
            self.line(f"{partial}_at = tl.where(better, {self.index(column_number(step))}, {partial}_at)")
            better = "better"
        self.line(f"{partial} = tl.where({better}, {name}, {partial})")

    def print_accumulator(self, step: Step) -> str:
        node = step.node
        assert isinstance(node, Reduction)
        name = self.scope.unique(f"{step.node.label or step.buffer.name}_tile")
        shape = "[ROWS, COLUMNS]" if self.kernel.rows else "[COLUMNS]"
        dtype = self.trees[step].dtype
        if node.kind in ("sum", "prod"):
            dtype = node.accumulate
        kind = "tl.int32" if node.kind in ("any", "all") else type_name(dtype)
        self.line(f"{name} = tl.full({shape}, {self.identity(step)}, {kind})")
        if node.kind.startswith("arg"):
            self.line(f"{name}_at = tl.full({shape}, 0, tl.int64)")
        return name

    def print_result(self, step: Step, name: str) -> None:
        """After the loop: the accumulators of the tile to one value for each row."""
        node = step.node
        assert isinstance(node, Reduction)
        if node.kind in ("max", "min") or node.kind.startswith("arg"):
            self.print_choice(step, name, f"{name}_at" if node.kind.startswith("arg") else "")
        else:
            self.scope.values[step] = self.name_result(step, self.reduce(node.kind, name))

    def print_choice(self, step: Step, name: str, at: str) -> None:
        """max and min, where NaN wins (`tl.max` drops it), and the first place where they are."""
        node = step.node
        assert isinstance(node, Reduction)
        floats = self.trees[step].dtype.is_floating_point
        best = self.reduce("max" if "max" in node.kind else "min", name)
        if floats:
            flag = self.scope.unique("has_nan")
            self.line(f"{flag} = {self.reduce('max', f'({name} != {name}).to(tl.int32)')}")
            best = f'tl.where({flag} > 0, float("nan"), {best})'
        if not at:
            self.scope.values[step] = self.name_result(step, best)
            return
        found = self.scope.unique("best")
        self.line(f"{found} = {best}")
        # Where one is NaN the best is NaN, and nothing equals it.
        same = f"(({name} == {found}) | ({name} != {name}))" if floats else f"({name} == {found})"
        inside = " & mask" if self.persistent else ""
        place = f"tl.where({same}{inside}, {at}, {2**63 - 1 if self.wide else 2**31 - 1})"
        self.scope.values[step] = self.name_result(step, f"{self.reduce('min', place)}.to(tl.int64)")

    def reduce(self, kind: str, value: str) -> str:
        axis, keep = ("1", ", keep_dims=True") if self.kernel.rows else ("0", "")
        if kind == "prod":
            self.helpers.add("multiply")
            return f"tl.reduce({value}, {axis}, multiply{keep})"
        function = {"sum": "sum", "max": "max", "min": "min", "any": "max", "all": "min"}[kind]
        return f"tl.{function}({value}, {axis}{keep})"

    def name_result(self, step: Step, text: str) -> str:
        name = self.scope.unique(step.node.label or step.buffer.name)
        if step.node.kind in ("any", "all"):  # type: ignore[union-attr]
            text = f"{text} != 0"
        self.line(f"{name} = {self.rounded(text, step.buffer.dtype)}")
        return name

    def identity(self, step: Step) -> str:
        node = step.node
        assert isinstance(node, Reduction)
        if node.kind in IDENTITY:
            floats = node.kind in ("sum", "prod") and node.accumulate.is_floating_point
            return IDENTITY[node.kind] + (".0" if floats else "")
        return self.extreme(self.trees[step].dtype, lowest="max" in node.kind)

    # --- what runs once a row ----------------------------------------------------------------------------------------

    def print_row_steps(self, phase: Phase) -> None:
        """Row-level values, and the stores of finished reductions."""
        if self.reduces and not self.persistent:
            self.count_uses(self.trees[step] for step in phase.rows)
        for step in phase.rows:
            with self.on_behalf_of(step):
                self.print_step(step, store=step in phase.stored)
        for step in phase.stored:
            if step.is_reduction or (is_row_level(step, self.kernel) and step not in phase.rows):
                with self.on_behalf_of(step):
                    self.store(step)
        self.print_late_stores()

    def print_step(self, step: Step, store: bool) -> None:
        """The value of a step and, if it is wanted in memory, its store. In place, stores wait until all is loaded."""
        tree = self.trees[step]
        known = self.scope.find(step) is not None  # persistent: an earlier pass has it in registers
        if not known:
            text = self.value_text(tree)
            if store and step not in self.used and not self.kernel.in_place and len(text) <= LONGEST // 2:
                self.store(step, text)
                return
            name = self.bind(step, text, step.node.label or step.buffer.name)
            self.scope.values.setdefault(tree, name)
        if store and self.kernel.in_place:
            self.late.append(step)
        elif store:
            self.store(step)

    def print_late_stores(self) -> None:
        while self.late:
            step = self.late.pop(0)
            with self.on_behalf_of(step):
                self.store(step)

    def store(self, step: Step, value: str | None = None) -> None:
        index = step.store_index
        mask = self.mask_for(index)
        place = self.place(step.buffer.name, index)
        arguments = [place, value or self.scope.find(step) or "", *([mask] if mask else [])]
        self.line(f"tl.store({', '.join(arguments)})")
