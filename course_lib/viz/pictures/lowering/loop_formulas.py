"""The loop IR in words: what each loop reads, and its body as a formula.

In:  a `LoopGraph` (lowering).
Out: a `Picture`: one box for each loop node, its ranges on top, its body below, and where it came
     from.

The formula is made by running the body under one more handler (`Formula`), as the printers and the
numpy evaluator do. `trace_element` follows the evaluator through the body for one element, and
tells every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import sympy
import torch
from torch.utils._pytree import tree_leaves

from course_lib.lowering.ir import ExternKernel, LoopNode
from course_lib.viz.evaluator import NO_SYMBOLS, Array, Memory, Numbers, NumpyHandler, compute
from course_lib.viz.kit.arguments import LOOPS, TEXT, takes
from course_lib.viz.kit.style import Picture, escape, human_bytes, plural
from course_lib.viz.pictures.graphs.fx_graphs import bare, op_name

INFIX = {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**",
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "logical_and": "and", "logical_or": "or",
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
}  # fmt: skip
"""A virtual operation → the sign that is written between its operands."""
LETTERS = "ijklmnop"
"""The names of indices; further ones are `i8`, `i9`, ..."""


class Formula:
    """A handler whose values are text.

    buffers: by name; an index of one that is not there is written as the flat formula.
    sizes: how far each index goes, where that is known."""

    def __init__(
        self,
        buffers: Mapping[str, Any] | None = None,
        sizes: Mapping[sympy.Symbol, Any] = MappingProxyType({}),
    ) -> None:
        self.buffers = buffers or {}
        self.sizes = sizes

    def __getattr__(self, op: str) -> Callable[..., str]:
        if op.startswith("__"):  # Python asks for such names itself, and they are no operations
            raise AttributeError(op)
        if op in INFIX:
            return lambda a, b: f"{inner(a)} {INFIX[op]} {inner(b)}"
        return lambda *args: f"{op}({', '.join(map(str, args))})"

    def load(self, buffer: str, index: sympy.Expr) -> str:
        return f"{buffer}[{index_text(index, self.buffers.get(buffer), self.sizes)}]"

    def constant(self, value: Any, dtype: Any) -> str:
        if isinstance(value, float):
            return f"{value:.6g}"
        return str(value)

    def index_expr(self, expr: Any, dtype: Any) -> str:
        return str(expr)

    def to_dtype(self, value: str, dtype: Any) -> str:
        return f"{str(dtype).removeprefix('torch.')}({value})"

    def where(self, condition: str, yes: str, no: str) -> str:
        return f"where({condition}, {yes}, {no})"

    def masked(self, condition: str, body: Any, other: Any) -> str:
        return f"where({condition}, {body()}, {other})"

    def indirect(self, value: str, size: Any, wrap: bool = True) -> sympy.Symbol:
        return sympy.Symbol(str(value))


class Loads(Formula):
    """A handler that remembers which buffers were loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, None] = {}

    def load(self, buffer: str, index: sympy.Expr) -> str:
        self.names[buffer] = None
        return buffer


def inner(text: str) -> str:
    """An operand, in parentheses where it is an operation itself."""
    depth = 0
    for i, c in enumerate(text):
        if c in "([":
            depth += 1
        elif c in ")]":
            depth -= 1
        # A space outside of all brackets stands beside the sign of an operation.
        if c == " " and depth == 0 and i:
            return f"({text})"
    return text


def index_text(
    index: Any, buffer: Any = None, sizes: Mapping[sympy.Symbol, Any] = MappingProxyType({})
) -> str:
    """A flat index by the buffer's own dimensions (`i, j`), if it is a plain walk through them.

    Else the formula itself."""
    index = sympy.sympify(index)
    places = None if buffer is None else walk_through(index, buffer, sizes)
    if places is None:
        return str(index)
    return ", ".join(places)


def walk_through(
    index: sympy.Expr, buffer: Any, sizes: Mapping[sympy.Symbol, Any]
) -> list[str] | None:
    """For each dimension of the buffer the symbol that walks along it ('0' for none); None for an
    index that is no plain walk."""
    if not index.is_polynomial(*index.free_symbols):
        return None
    by_stride = dimensions_by_stride(buffer)
    if by_stride is None:
        return None

    # Each term of the sum (`8*i + j`) must be a symbol times the stride of one dimension.
    places = ["0"] * len(buffer.shape)
    for symbol, factor in index.as_coefficients_dict().items():
        is_walk = symbol.is_Symbol and is_int(factor)
        dimension = by_stride.get(int(factor)) if is_walk else None
        if dimension is None or places[dimension] != "0":
            return None

        # A symbol that runs beyond its dimension would go on in the next row. The outermost
        # dimension has no next row.
        size, room = sizes.get(symbol), buffer.shape[dimension]
        if factor != max(by_stride) and is_int(size) and is_int(room) and size > room:
            return None
        places[dimension] = str(symbol)
    return places


def dimensions_by_stride(buffer: Any) -> dict[int, int] | None:
    """Stride → dimension, without those of size 1; None where two strides are equal, or one is not
    known."""
    dimension_of = {}
    wanted = 0  # dimensions that need a stride of their own
    for dimension, (stride, size) in enumerate(zip(buffer.stride, buffer.shape, strict=True)):
        if size != 1:
            wanted += 1
            if is_int(stride):
                dimension_of[int(stride)] = dimension
    if len(dimension_of) == wanted:
        return dimension_of
    return None


def is_int(value: Any) -> bool:
    return isinstance(value, int) or bool(getattr(value, "is_Integer", False))


def symbols(count: int, first: int = 0) -> list[sympy.Symbol]:
    """i, j, k, ...: `count` of them, from number `first` on."""
    all_symbols = []
    for number in range(first, first + count):
        name = LETTERS[number] if number < len(LETTERS) else f"i{number}"
        all_symbols.append(sympy.Symbol(name, integer=True))
    return all_symbols


def run_body(node: Any, handler: Any) -> str:
    """The value that a loop node's body has under a handler."""
    rank = len(node.ranges)
    return node.value(handler, symbols(rank), symbols(len(node.reduced), first=rank))


def reads(node: Any) -> list[str]:
    """The buffers that a node reads, in the order of first use."""
    if is_extern(node):
        views = [leaf for leaf in tree_leaves((node.args, node.kwargs)) if hasattr(leaf, "buffer")]
        return list(dict.fromkeys(view.buffer.name for view in views))

    loads = Loads()
    run_body(node, loads)
    return list(loads.names)


def is_extern(node: Any) -> bool:
    """Is this a library call?"""
    return isinstance(node, ExternKernel)


def label_of(node: Any) -> str:
    """What a node does, in a word: 'mean', 'addmm'."""
    if is_extern(node):
        return bare(str(node.op))
    return node.label or getattr(node, "kind", "") or node.buffer.name


def formula(node: Any, buffers: Mapping[str, Any]) -> str:
    """'mul[i, j] = x[i, j] * w[j]'."""
    if is_extern(node):
        names = ", ".join(buffer.name for buffer in node.buffers)
        return f"{names} = {node.op}({', '.join(reads(node))})"

    index = symbols(len(node.ranges))
    reduced = symbols(len(node.reduced), len(index))
    sizes = dict(zip((*index, *reduced), (*node.ranges, *node.reduced), strict=True))
    body = run_body(node, Formula(buffers, sizes))
    if node.reduced:
        body = f"{node.kind} over {', '.join(map(str, reduced))} of {body}"
    return f"{node.buffer.name}[{', '.join(map(str, index))}] = {body}"


def ranges_of(node: Any) -> str:
    """'i < 32, j < 768', the reduced ones in square brackets."""
    if is_extern(node):
        return "library call"
    index = symbols(len(node.ranges))
    shown = [f"{i} < {size}" for i, size in zip(index, node.ranges, strict=True)]
    columns = symbols(len(node.reduced), len(index))
    shown += [f"[{j} < {size}]" for j, size in zip(columns, node.reduced, strict=True)]
    return ", ".join(shown) or "once"


@takes(graph=LOOPS, title=TEXT)
def loops(graph: Any, title: str = "") -> Picture:
    """Every loop of a lowered program, in order."""
    boxes, text = [], []
    for node in graph.nodes:
        ranges, formula_text = ranges_of(node), formula(node, graph.buffers)
        boxes.append(box(node, ranges, formula_text))
        text.append(f"{ranges}:\n    {formula_text}")

    heading = f"Loop IR of {title}" if title else "Loop IR"
    labels = ", ".join(map(label_of, graph.nodes))
    alt = f"{heading}: {plural(len(graph.nodes), 'loop node')}: {labels}."
    caption = "Each box is a loop (double border: a library call): its ranges (reduced ones in brackets), then what it computes."
    body = f'<div class="cl-scroll">{"".join(boxes)}</div>'
    return Picture(body, caption, alt, "\n".join(text), sheets=("loops",))


def box(node: Any, ranges: str, formula_text: str) -> str:
    """A loop in HTML: its ranges, where it comes from and what it writes; below, its formula."""
    origins = ", ".join(dict.fromkeys(bare(op_name(origin)) for origin in node.origins))
    came = f"from {escape(origins)} · " if origins else ""
    size = " + ".join(human_bytes(buffer.nbytes) for buffer in node.buffers)
    kind = " cl-x" if is_extern(node) else ""
    right = f"<span>{came}writes {escape(size)}</span>"
    top = f'<div class="cl-top"><span>{escape(ranges)}</span>{right}</div>'
    return f'<div class="cl-loop{kind} cl-m">{top}<div class="cl-body">{escape(formula_text)}</div></div>'


# ---- one element at a time -----------------------------------------------------------------------


@dataclass(frozen=True)
class Happened:
    """One operation of a loop body, with what it got and what came out."""

    op: str
    args: tuple[str, ...]
    value: Any

    def __str__(self) -> str:
        return f"{self.op}({', '.join(self.args)}) = {shown(self.value)}"


def shown(value: Any) -> str:
    """A number as it is told: six digits."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        return f"{float(value):.6g}"
    return str(value)


@dataclass
class Watching:
    """Passes every operation on to a handler and notes what happened."""

    handler: NumpyHandler
    happened: list[Happened]

    def note(self, op: str, args: Iterable[Any], value: Any) -> None:
        self.happened.append(Happened(op, tuple(map(shown, args)), value))

    def load(self, buffer: str, index: sympy.Expr) -> Array:
        value = self.handler.load(buffer, index)
        self.note("load", [f"{buffer}[{compute(index, self.handler.values)}]"], value)
        return value

    def masked(self, condition: Array, body: Callable[[], Array], other: Any) -> Array:
        # There is one element, so its body is left out where the condition does not hold.
        if condition:
            value = self.handler.masked(condition, body, other)
        else:
            value = self.handler.constant(other, torch.float64)
        self.note("masked", [condition], value)
        return value

    def indirect(self, value: Array, size: Any, wrap: bool = True) -> sympy.Symbol:
        symbol = self.handler.indirect(value, size, wrap)
        self.note("indirect", [value], self.handler.values[symbol])
        return symbol

    def __getattr__(self, op: str) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            value = getattr(self.handler, op)(*args)
            self.note(op, args, value)
            return value

        return run


def trace_element(
    node: LoopNode,
    index: Sequence[int],
    memory: Memory,
    rindex: Sequence[int] = (),
    numbers: Numbers = NO_SYMBOLS,
) -> list[Happened]:
    """Run the body of `node` at one `index` (and, for a reduction, at one `rindex`): every
    operation, in order.
    `numbers`: what symbolic sizes are."""
    watching = Watching(NumpyHandler(memory, dict(numbers)), [])
    node.value(watching, [sympy.Integer(i) for i in index], [sympy.Integer(i) for i in rindex])
    return watching.happened


def indices(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every index of a loop, in order."""
    return np.ndindex(*sizes)
