"""The body of a loop as a small tree: the scheduler asks what it touches, and the printers write
it.

In:  a `Step` of a kernel. Its body is a closure over `ops`; `TreeBuilder` is one more handler for
     it.
Out: an `Expr`: which operation, on which operands, with which dtype. Equal expressions are one
     object, so counting how often an object is used says what deserves a name of its own in the
     printed source.

A load of what an earlier step of the same kernel wrote becomes `value_of(step)`, and this is all
there is to fusion here.
In PyTorch: `torch/_inductor/codegen/common.py`, `CSEProxy` and `CSE` (there every operation gets a
name, `tmp0`, `tmp1`, ...).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import sympy
import torch

from course_lib.lowering.ir import Buffer
from course_lib.lowering.ops import BINARY, BOOLEAN, UNARY
from course_lib.scheduling.kernel import FusedKernel, Step

COSTLY = frozenset(
    """exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc
    sigmoid pow atan2 fmod mod floordiv truediv reciprocal indirect random""".split()
)
"""Operations dear enough that a value is better read again than computed again."""


@dataclass(frozen=True, eq=False)
class Expr:
    """One operation.

    `detail` is what is not an operand, for these operations:

        load         (buffer, flat index)         constant    its number
        value_of     the `Step`                   masked      the number outside of the mask
        index_expr   the formula                  indirect    (size, may it be negative?)
    """

    op: str
    args: tuple["Expr", ...]
    dtype: torch.dtype
    detail: Any = None

    def walk(self) -> Iterator["Expr"]:
        """This node and all below it, each once, in the order they are written."""
        visited: set[Expr] = set()
        stack = [self]
        while stack:
            if (node := stack.pop()) not in visited:
                visited.add(node)
                yield node
                stack.extend(reversed(node.args))


class TreeBuilder:
    """The handler that builds trees.

    One builder serves one kernel, so what two steps share is one object."""

    def __init__(self, buffers: Mapping[str, Buffer]) -> None:
        self.buffers = buffers
        # Buffer → the earlier step of this kernel that writes it
        self.produced: dict[str, Step] = {}
        # Symbol of an index that is data (`x[rows]`) → the tree of its value
        self.indirect_values: dict[sympy.Symbol, Expr] = {}
        # The symbols of `indirect_values` that the body that runs now has asked for
        self.looking_up: list[sympy.Symbol] = []
        self.nodes: dict[tuple[Any, ...], Expr] = {}

    def make(self, op: str, args: tuple[Expr, ...], dtype: torch.dtype, detail: Any = None) -> Expr:
        """The expression; an equal one that exists already is that very object."""
        # 0.0 and -0.0 are equal, and so are 1 and True: they are told apart by their text and type.
        comparable_detail = detail
        if isinstance(detail, float):
            comparable_detail = repr(detail)
        key = (op, args, dtype, comparable_detail, type(detail))
        return self.nodes.setdefault(key, Expr(op, args, dtype, detail))

    def __getattr__(self, op: str) -> Callable[..., Expr]:
        if op not in UNARY and op not in BINARY:
            raise AttributeError(
                f"a loop body asked for ops.{op}, which lowering/ops.py does not know"
            )

        def operation(*args: Expr) -> Expr:
            # All operands have one dtype: `formulas.Term` has converted them.
            dtype = torch.bool if op in BOOLEAN else args[0].dtype
            if op.startswith("logical"):
                args = tuple(self.to_dtype(arg, torch.bool) for arg in args)
            return self.make(op, args, dtype)

        return operation

    def load(self, buffer: str, index: sympy.Expr) -> Expr:
        dtype = self.buffers[buffer].dtype
        if buffer in self.produced:
            return self.make("value_of", (), dtype, self.produced[buffer])
        index = sympy.sympify(index)
        return self.make("load", self.looked_up(index), dtype, (buffer, index))

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Expr:
        expr = sympy.sympify(expr)
        return self.make("index_expr", self.looked_up(expr), dtype, expr)

    def looked_up(self, index: sympy.Expr) -> tuple[Expr, ...]:
        """The elements of index tensors that a formula needs."""
        known = self.indirect_values.items()
        return tuple(value for symbol, value in known if symbol in index.free_symbols)

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Expr:
        return self.make("constant", (), dtype, number_in(value, dtype))

    def to_dtype(self, value: Expr, dtype: torch.dtype) -> Expr:
        if value.dtype == dtype:
            return value
        return self.make("to_dtype", (value,), dtype)

    def random(self, seed: Expr, place: Expr) -> Expr:
        return self.make("random", (seed, place), torch.float32)

    def where(self, condition: Expr, yes: Expr, no: Expr) -> Expr:
        return self.make("where", (condition, yes, no), yes.dtype)

    def masked(self, condition: Expr, body: Callable[[], Expr], other: bool | int | float) -> Expr:
        value = self.checked(body)
        return self.make("masked", (condition, value), value.dtype, number_in(other, value.dtype))

    def checked(self, body: Callable[[], Expr]) -> Expr:
        """The body's value.

        It needs every index that it looked up: one into a dimension of size 1 must be in range,
        too."""
        outer, self.looking_up = self.looking_up, []
        try:
            value = body()
            looked_up_here = self.looking_up
        finally:
            self.looking_up = outer

        for symbol in looked_up_here:
            if self.indirect_values[symbol] not in set(value.walk()):
                place, zero = self.index_expr(symbol, torch.int64), self.constant(0, torch.int64)
                in_range = self.make("ge", (place, zero), torch.bool)
                # The same value on both sides: the tree has the index in it now, so a kernel
                # computes and checks it.
                value = self.where(in_range, value, value)
        return value

    def indirect(self, value: Expr, size: int | sympy.Expr, wrap: bool = True) -> sympy.Symbol:
        """A symbol for an index that is data: below, or in -size..size if it may `wrap`."""
        node = self.make("indirect", (value,), torch.int64, (size, wrap))

        # The same lookup twice is one symbol.
        known = self.indirect_values.items()
        symbol = next((symbol for symbol, earlier in known if earlier is node), None)
        if symbol is None:
            name = f"at{len(self.indirect_values)}"
            symbol = sympy.Symbol(name, integer=True, nonnegative=True)
            self.indirect_values[symbol] = node

        self.looking_up.append(symbol)
        return symbol


def number_in(value: bool | int | float, dtype: torch.dtype) -> bool | int | float:
    """The number as this dtype has it: -1 is 255 as uint8, 0.1 is 0.09998 as float16.

    (For float32 the compiler rounds it.)"""
    if dtype in (torch.float32, torch.float64):
        return value
    return torch.tensor(value).to(dtype).item()


def trees_of(
    kernel: FusedKernel, buffers: Mapping[str, Buffer]
) -> tuple[dict[Step, Expr], TreeBuilder]:
    """Every step of the kernel as a tree, and the builder that made them: it knows the indices that
    the steps look up."""
    own_buffers = {step.buffer.name: step.buffer for step in kernel.steps}
    builder = TreeBuilder({**buffers, **own_buffers})

    trees: dict[Step, Expr] = {}
    for step in kernel.steps:
        run_body = partial(step.value, builder)
        trees[step] = builder.checked(run_body)
        # From here on, a load of this buffer is the value of this step.
        builder.produced[step.buffer.name] = step
    return trees, builder


def steps_used(tree: Expr) -> list[Step]:
    """The earlier steps whose values `tree` needs."""
    return [node.detail for node in tree.walk() if node.op == "value_of"]


def loads(tree: Expr) -> list[tuple[str, sympy.Expr]]:
    """What `tree` reads from memory: (buffer, flat index)."""
    return [node.detail for node in tree.walk() if node.op == "load"]


def symbols_of(expr: Expr, trees: Mapping[Step, Expr]) -> set[sympy.Symbol]:
    """The symbols of loops that a value depends on, here or where it was computed (`trees`)."""
    symbols: set[sympy.Symbol] = set()
    visited: set[Expr] = set()
    left = [expr]
    while left:
        node = left.pop()
        if node in visited:
            continue
        visited.add(node)
        left += node.args

        if node.op == "value_of":
            left.append(trees[node.detail])
        elif node.op == "load":
            _, index = node.detail
            symbols |= index.free_symbols
        elif node.op == "index_expr":
            symbols |= node.detail.free_symbols
    return symbols
