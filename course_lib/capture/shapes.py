"""Sizes that are not constants: which dimensions are symbolic, and what was assumed about them.

In:  the tensors and numbers that a capture meets, and which of their sizes have changed since earlier captures.
Out: fakes whose sizes may be `torch.SymInt`s, and at the end, as guards, every question about them that was answered.

A `SymInt` is an int to the interpreted program: `x.shape[0] * 2 > 10` runs as written, torch's `ShapeEnv` computes the expression
`2*s0 > 10`, answers it for this call's size, and notes the answer.
In PyTorch: `torch/fx/experimental/symbolic_shapes.py` (`ShapeEnv`), `torch/_dynamo/pgo.py` (automatic dynamic), and
`torch/_dynamo/variables/builder.py` (`_automatic_dynamic`).
"""

from __future__ import annotations

import itertools
import warnings
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.reference import PythonReferenceAnalysis

from course_lib.capture.sources import Location, Source, Test


@dataclass
class History:
    """What earlier captures of one code object met: source → sizes of the tensor (or the number) found there. A size that
    differs from call to call is symbolic from then on."""

    dynamic: bool | None = None
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    changed: set[tuple[str, int]] = field(default_factory=set)

    def meet(self, source: Source, sizes: tuple[int, ...]) -> None:
        """Compare with the last capture."""
        before = self.sizes.get(source.expr)
        if before is not None and len(before) == len(sizes):
            self.changed |= {(source.expr, d) for d, (a, b) in enumerate(zip(before, sizes, strict=True)) if a != b}
        self.sizes[source.expr] = sizes

    def is_symbolic(self, source: Source, dim: int, size: int, marked: Any = ()) -> bool:
        """0 and 1 are always constants: they broadcast."""
        if size in (0, 1) or self.dynamic is False:
            return False
        return bool(self.dynamic) or dim in marked or (source.expr, dim) in self.changed


class Arithmetic(PythonReferenceAnalysis):
    """Expressions as nodes: torch's functions on symbolic numbers are nodes too."""

    to_dtype = staticmethod(lambda x, dtype: x.tracer.create_proxy("call_function", torch.sym_float, (x,), {}))
    sqrt = staticmethod(lambda x: x.tracer.create_proxy("call_function", torch._sym_sqrt, (x,), {}))


class Shapes:
    """The sizes of one capture."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.env = ShapeEnv(duck_shape=False, allow_scalar_outputs=False, allow_dynamic_output_shape_ops=False)
        self.mode = FakeTensorMode(shape_env=self.env)
        self.found: dict[sympy.Symbol, tuple[Any, int | None]] = {}
        """Symbol → (the fake, the dimension); a number that is symbolic itself has no dimension."""
        self._texts: dict[sympy.Symbol, tuple[str, str]] = {}
        self.marked: set[sympy.Symbol] = set()
        self.causes: list[Location | None] = []  # For each of the environment's guards the user's line that asked

    def fake(self, tensor: torch.Tensor, source: Source) -> torch.Tensor:
        """A fake like `tensor`, with symbolic sizes where they are wanted."""
        sizes = tuple(tensor.shape)
        self.history.meet(source, sizes)
        marked = getattr(tensor, "_course_dynamic", ())
        symbolic = [self.history.is_symbolic(source, d, size, marked) for d, size in enumerate(sizes)]
        if not any(symbolic) or isinstance(tensor, torch.nn.Parameter):
            return self.mode.from_tensor(tensor, static_shapes=True)
        from torch._dynamo.source import ConstantSource  # a second to import, and only wanted here

        context = StatelessSymbolicContext([DimDynamic.DYNAMIC if s else DimDynamic.STATIC for s in symbolic])
        fake = self.mode.from_tensor(tensor, source=ConstantSource(source.expr), symbolic_context=context)
        for dim, size in enumerate(fake.shape):
            if isinstance(size, torch.SymInt) and (symbol := size.node.expr).is_Symbol:
                self.marked |= {symbol} if dim in marked else set()
                self._add(symbol, fake, dim, f"{source.expr}.shape[{dim}]", f"{source.shown}.shape[{dim}]")
        for stride in fake.stride():
            if isinstance(stride, torch.SymInt) and not stride.node.expr.free_symbols <= set(self.found):
                int(stride)  # does not follow from the sizes: a constant
        return fake

    def number(self, value: int, source: Source) -> int | torch.SymInt:
        """An int from outside: symbolic once it has changed, or if all sizes are to be and it is an argument."""
        self.history.meet(source, (value,))
        wanted = (source.expr, 0) in self.history.changed or (self.history.dynamic and source.is_variable)
        if self.history.dynamic is False or value in (0, 1) or not wanted:
            return value
        from torch._dynamo.source import ConstantSource

        place = ConstantSource(source.expr)
        symbol = self.env.create_symbol(
            value, source=place, dynamic_dim=DimDynamic.DYNAMIC, positive=None, do_not_specialize_zero_one=True
        )
        size = self.env.create_symintnode(symbol, hint=value, source=place)
        if not isinstance(size, torch.SymInt):
            return value
        self._add(symbol, size, None, source.expr, source.shown)
        return size

    def _add(self, symbol: sympy.Symbol, value: Any, dim: int | None, expr: str, shown: str) -> None:
        self.found[symbol] = value, dim
        self._texts[symbol] = expr, shown

    def symint(self, symbol: sympy.Symbol) -> torch.SymInt:
        value, dim = self.found[symbol]
        size: torch.SymInt = value if dim is None else value.shape[dim]
        return size

    def text(self, expr: sympy.Expr, shown: bool = False) -> str:
        """An expression of sizes as Python source: `x.shape[0] * 2`."""
        names = {symbol: sympy.Symbol(texts[shown], integer=True) for symbol, texts in self._texts.items()}
        return PythonPrinter().doprint(expr.xreplace(names))

    def compute(self, expr: sympy.Expr, known: dict[Any, fx.Node], graph: fx.Graph) -> fx.Node:
        """Nodes that compute an expression from the nodes of its symbols."""
        tracer = fx.proxy.GraphAppendingTracer(graph)
        env = {symbol: fx.Proxy(known[symbol], tracer) for symbol in expr.free_symbols}
        return sympy_interp(Arithmetic, env, expr).node

    def note(self, place: Location | None) -> None:
        """What was asked about sizes since the last time was asked at this line."""
        self.causes += [place] * (len(self.env.guards) - len(self.causes))

    def tests(self) -> dict[Test, Location | None]:
        """What must hold for the sizes of another call: the ranges and relations that answers were based on, and the user's
        line that asked first. Warns of a size that was marked as dynamic, and cannot be."""
        asked = [(guard.expr, at) for guard, at in itertools.zip_longest(self.env.guards, self.causes)]
        found: dict[Test, Location | None] = {}
        for symbol, (_, dim) in self.found.items():
            size = self.env.replacements.get(symbol, symbol)
            at = next((at for expr, at in asked if symbol in expr.free_symbols), None)
            if size.is_number:
                found[test := self._test(sympy.Eq(symbol, size, evaluate=False))] = at
                if symbol in self.marked:
                    why = f"was marked as dynamic, but {at} ({at.text if at else ''}) is right for this size only"
                    warnings.warn(f"{test.pretty} {why}; write that line for any size, or do not mark it", stacklevel=2)
            elif dim is not None:
                found[self._test(sympy.Ge(symbol, 2, evaluate=False))] = None
        for expr, at in asked:
            if expr.free_symbols <= set(self.found) and expr not in (sympy.true, sympy.false):
                found.setdefault(self._test(expr), at)
        return found

    def _test(self, expr: Any) -> Test:
        return Test(self.text(expr), "holds", True, self.text(expr, shown=True))

    def stride_tests(self, fake: torch.Tensor) -> list[Test]:
        """The layout of a tensor with symbolic sizes, stride by stride."""
        strides = [sympy.Integer(n) if type(n) is int else n.node.expr for n in fake.stride()]
        places = [(d, self.text(n)) for d, n in enumerate(strides) if n.free_symbols <= set(self.found)]
        return [Test(f"{{}}.stride({dim}) == {text}", "holds", True) for dim, text in places]
