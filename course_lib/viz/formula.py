"""Loop nodes as formulas, for people.

In:  a loop node.
Out: a line such as `buf3[i0, i1] = relu(buf2[768·i0 + i1]) + 1.0`.

`TextHandler` returns text where others return values or source. In PyTorch: `ir.Loops.__str__`, `OpsHandler` `MockHandler`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sympy
import torch

from course_lib.lowering.indexing import loop_symbols
from course_lib.lowering.ir import ExternKernel, LoopGraph, Node, Reduction, View

SIGNS = {
    "add": ("+", 4),
    "sub": ("-", 4),
    "mul": ("·", 5),
    "truediv": ("/", 5),
    "floordiv": ("//", 5),
    "mod": ("%", 5),
    "eq": ("=", 2),
    "ne": ("≠", 2),
    "lt": ("<", 2),
    "le": ("≤", 2),
    "gt": (">", 2),
    "ge": ("≥", 2),
    "logical_and": ("and", 1),
    "logical_or": ("or", 0),
    "bitwise_and": ("&", 3),
    "bitwise_or": ("|", 3),
    "bitwise_xor": ("^", 3),
}
"""Operations that people write between their operands, and how tightly they bind."""


class Text(str):
    """A formula that knows how tightly its outermost operation binds."""

    binds: int

    def __new__(cls, text: str, binds: int = 9) -> Text:
        made = super().__new__(cls, text)
        made.binds = binds
        return made

    def inside(self, binds: int) -> str:
        """With parentheses, if something that binds as tightly as `binds` stands around it."""
        return f"({self})" if self.binds < binds else str(self)


def index_text(expr: Any) -> str:
    """An index formula as people write it: the largest stride first."""
    terms = sympy.Add.make_args(sympy.sympify(expr))
    terms = sorted(terms, key=lambda t: (not t.free_symbols, -abs(t.as_coeff_Mul()[0]), str(t)))
    return " + ".join(str(t).replace("*", "·") for t in terms).replace("+ -", "- ")


class TextHandler:
    """The virtual operations as text."""

    def __init__(self) -> None:
        self.looked_up: dict[str, str] = {}

    def load(self, buffer: str, index: sympy.Expr) -> Text:
        text = index_text(index)
        for symbol, value in self.looked_up.items():
            text = text.replace(symbol, value)
        return Text(f"{buffer}[{text}]")

    def constant(self, value: Any, dtype: torch.dtype) -> Text:
        return Text(str(value) if not isinstance(value, float) else f"{value:.9g}", 6 if value < 0 else 9)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Text:
        text = index_text(expr)
        return Text(text, 9 if text.isidentifier() else 4)

    def to_dtype(self, value: Text, dtype: torch.dtype) -> Text:
        return Text(f"{str(dtype).removeprefix('torch.')}({value})")

    def masked(self, condition: Text, body: Callable[[], Text], other: Any) -> Text:
        return Text(f"({body()} if {condition} else {other})")

    def indirect(self, value: Text, size: Any, wrap: bool = True) -> sympy.Symbol:
        name = f"at{len(self.looked_up)}"
        self.looked_up[name] = str(value)
        return sympy.Symbol(name, integer=True, nonnegative=True)

    def neg(self, value: Text) -> Text:
        return Text(f"-{value.inside(6)}", 6)

    def __getattr__(self, op: str) -> Callable[..., Text]:
        def write(*args: Text) -> Text:
            if op not in SIGNS:
                return Text(f"{op}({', '.join(args)})")
            sign, binds = SIGNS[op]
            a, b = args
            return Text(f"{a.inside(binds)} {sign} {b.inside(binds + (op not in ('add', 'mul')))}", binds)

        return write


def formula(node: Node) -> str:
    """What a node computes, in one line."""
    if isinstance(node, ExternKernel):
        outputs = ", ".join(buffer.name for buffer in node.buffers) or "()"
        arguments = [*map(shown, node.args), *(f"{name}={shown(value)}" for name, value in node.kwargs.items())]
        return f"{outputs} = {node.op}({', '.join(arguments)})"
    symbols = loop_symbols("i", len(node.ranges))
    index = [sympy.Integer(0) if size == 1 else i for i, size in zip(symbols, node.ranges, strict=True)]
    if not isinstance(node, Reduction):
        return f"{node.buffer.name}[{', '.join(map(str, index))}] = {node.inner(TextHandler(), index)}"
    rindex = loop_symbols("j", len(node.reduced))
    place = ["0"] * len(node.buffer.shape)
    for dim, symbol in zip(range(len(index)) if node.kept is None else node.kept, index, strict=True):
        place[dim] = str(symbol)
    over = ", ".join(f"{symbol} < {size}" for symbol, size in zip(rindex, node.reduced, strict=True))
    return f"{node.buffer.name}[{', '.join(place)}] = {node.kind} over {over} of {node.inner(TextHandler(), index, rindex)}"


def shown(argument: Any) -> str:
    """An argument of a library call."""
    if isinstance(argument, View):
        if argument.is_whole:
            return argument.buffer.name
        return f"{argument.buffer.name}{list(argument.shape)}"
    if isinstance(argument, (list, tuple)):
        return f"[{', '.join(map(shown, argument))}]"
    return str(argument)


def listing(graph: LoopGraph) -> str:
    """A whole program."""
    inputs = [str(buffer) for buffer in graph.inputs if buffer is not None]
    returned = ", ".join(shown(output) for output in graph.outputs)
    return "\n".join([f"inputs {', '.join(inputs)}", *(formula(node) for node in graph.nodes), f"return {returned}"])
