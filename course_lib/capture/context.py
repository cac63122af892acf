"""What one capture knows: the graph, the guards, and how to look at a real Python object.

`wrap(obj, source)` is the door from the real world into the symbolic one: it decides which kind of `Value` an object
becomes, and writes down as guards whatever that decision used.

In PyTorch: `torch/_dynamo/variables/builder.py` (`VariableBuilder`).
"""

from __future__ import annotations

import os
import types
from typing import Any

import torch

from course_lib.capture import global_state
from course_lib.capture.graph import PLAIN, GraphBuilder
from course_lib.capture.sources import Closure, Guard, Location, Source, Test
from course_lib.capture.sources import Function as FunctionSource
from course_lib.capture.unsupported import Unsupported
from course_lib.capture.values import Cell, Constant, Dict, Function, Module, Object, Sequence, Tensor, Value

TORCH_FOLDER = os.path.dirname(torch.__file__)
TENSOR_TYPES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
TRUSTED_MODULES = {"torch", "math", "operator", "builtins", "functools", "itertools", "typing", "numpy"}
"""Top-level packages whose attributes nobody rebinds: reading `torch.nn.functional` needs no guard."""


class Context:
    """State shared by a frame's interpreter and those of the calls inlined into it."""

    def __init__(self) -> None:
        self.builder = GraphBuilder()
        self.guards: dict[Guard, None] = {}
        self.stack: list[Location] = []
        self._wrapped: dict[tuple[str, int], Value] = {}
        self._tensors: dict[int, Tensor] = {}
        self.assume(FunctionSource(), "state", *global_state.tests())

    # ---- guards -----------------------------------------------------------------------------------------------------

    def assume(self, source: Source, kind: str, *tests: Test) -> None:
        """Write down a guard, once, with the line that is being interpreted as its cause."""
        self.guards.setdefault(Guard(source, kind, tests, self.user_location()))

    def user_location(self) -> Location | None:
        """The innermost line that is the user's own, not torch's."""
        own = [place for place in self.stack if not place.filename.startswith(TORCH_FOLDER)]
        return own[-1] if own else None

    def assume_type(self, obj: Any, source: Source) -> None:
        self.assume(source, "type", Test("type({})", "is", type(obj)))

    def assume_identity(self, obj: Any, source: Source) -> None:
        self.assume(source, "identity", Test("{}", "is", obj))

    def assume_tensor(self, tensor: torch.Tensor, source: Source) -> None:
        """Everything about a tensor that the graph and the kernels depend on. Sparse tensors fail at `stride()`,
        wrapped ones (vmap) are kept out by the global state."""
        tests = [
            Test("type({})", "is", type(tensor)),
            Test("{}.dtype", "is", tensor.dtype),
            Test("{}.shape", "==", tuple(tensor.shape)),
            Test("{}.stride()", "==", tensor.stride()),
            Test("{}.requires_grad", "is", tensor.requires_grad),
            Test("{}.is_neg()", "is", tensor.is_neg()),
            Test("{}.is_cpu", "is", True) if tensor.is_cpu else Test("{}.device", "==", tensor.device),
        ]
        if tensor.is_complex():
            tests.append(Test("{}.is_conj()", "is", tensor.is_conj()))
        self.assume(source, "tensor", *tests)

    def assume_constant(self, value: Any, source: Source) -> None:
        """`value` is this very number, string, ...: 2, 2.0 and True are equal but not the same; nor are 0.0 and -0.0,
        and NaN is not even equal to itself."""
        tests = [Test("type({})", "is", type(value))]
        if isinstance(value, complex) or (isinstance(value, float) and (value == 0 or value != value)):
            tests.append(Test("repr({})", "==", repr(value)))
        elif value is not None:
            tests.append(Test("{}", "==", value))
        self.assume(source, "value", *tests)

    def assume_keys(self, mapping: dict[Any, Any], source: Source) -> None:
        """`mapping` has these keys in this order."""
        self.assume(source, "keys", Test("tuple({})", "==", tuple(mapping)))

    # ---- from real to symbolic --------------------------------------------------------------------------------------

    def wrap(self, obj: Any, source: Source) -> Value:
        """The symbolic value of a real object found at `source`; the same object at the same place is the same
        value."""
        key = (source.expr, id(obj))
        if key not in self._wrapped:
            self._wrapped[key] = self._wrap(obj, source)
        return self._wrapped[key]

    def _wrap(self, obj: Any, source: Source) -> Value:
        if isinstance(obj, torch.Tensor):
            return self.wrap_tensor(obj, source)
        if type(obj) in PLAIN:
            self.assume_constant(obj, source)
            return Constant(obj, source=source)
        if isinstance(obj, torch.nn.Module):
            self.assume_type(obj, source)
            return Module(obj, source=source)
        if type(obj) in (list, tuple):
            self.assume(source, "length", Test("type({})", "is", type(obj)), Test("len({})", "==", len(obj)))
            return Sequence(type(obj), [self.wrap(item, source.item(i)) for i, item in enumerate(obj)], source=source)
        if type(obj) is dict and all(type(key) in (str, int) for key in obj):
            self.assume(source, "keys", Test("type({})", "is", dict), Test("tuple({})", "==", tuple(obj)))
            return Dict({key: self.wrap(item, source.item(key)) for key, item in obj.items()}, source=source)
        if type(obj) is types.FunctionType:
            self.assume(source, "identity", Test("{}.__code__", "is", obj.__code__))
            return self.wrap_function(obj, source)
        if (
            isinstance(obj, (types.ModuleType, type, types.BuiltinFunctionType, types.MethodType))
            or type(obj).__module__ == "builtins"
        ):
            self.assume_identity(obj, source)
        else:
            self.assume_type(obj, source)
        return Object(obj, source=source)

    def wrap_tensor(self, tensor: torch.Tensor, source: Source) -> Tensor:
        if type(tensor) not in TENSOR_TYPES:
            raise Unsupported(f"{source} is a {type(tensor).__name__}, a subclass of Tensor with its own behaviour")
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise Unsupported(f"{source} is not an ordinary strided tensor (layout {tensor.layout})")
        self.assume_tensor(tensor, source)
        if id(tensor) not in self._tensors:
            self._tensors[id(tensor)] = Tensor(self.builder.fake(tensor), real=tensor, source=source)
        elif (first := self._tensors[id(tensor)].source) and first != source:
            self.assume(source, "identity", Test("{}", "is", SameAs(first)))
        return self._tensors[id(tensor)]

    def wrap_function(self, function: types.FunctionType, source: Source | None) -> Function:
        """A Python function; what it closes over and its defaults are read (and guarded) when it is called."""
        cells = tuple(
            Cell(real=cell, source=Closure(name, i, base=source) if source else None)
            for i, (name, cell) in enumerate(
                zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
            )
        )
        return Function(function.__code__, function.__globals__, cells, real=function, source=source)

    def content(self, cell: Cell) -> Value | None:
        """What is in the cell; None if nothing is yet."""
        if cell.content is None and cell.real is not None:
            try:
                obj = cell.real.cell_contents
            except ValueError:
                return None
            cell.content = self.wrap(obj, cell.source) if cell.source else self.wrap_static(obj)
        return cell.content

    def wrap_static(self, obj: Any) -> Value:
        """A real object that needs no guard: a constant of the code, a builtin, an attribute of torch."""
        if type(obj) in PLAIN or (type(obj) is tuple and all(type(item) in PLAIN for item in obj)):
            return Constant(obj)
        if type(obj) is types.FunctionType and not obj.__closure__:
            return Function(obj.__code__, obj.__globals__, real=obj)
        return Object(obj)

    def is_trusted(self, obj: Any) -> bool:
        """Is `obj` a module (or class) whose attributes nobody rebinds?"""
        name = obj.__name__ if isinstance(obj, types.ModuleType) else getattr(obj, "__module__", "")
        return isinstance(obj, (types.ModuleType, type)) and str(name).split(".")[0] in TRUSTED_MODULES


class SameAs:
    """The right-hand side of a guard that two sources hold one object."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.__name__ = source.shown

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SameAs) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)
