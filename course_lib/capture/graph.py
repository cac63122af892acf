"""The FX graph under construction.

In:  operations on tensors, as the interpreted program asks for them.
Out: an `fx.GraphModule` whose nodes know their shape (`meta["val"]`, a FakeTensor) and the user's
     line (`meta["location"]`).

A tensor of the interpreted program is a *fake* one: shape, stride, dtype, device, no data. An
operation is run on fakes as it is recorded (`GraphBuilder.call`). Who calls it: `recorder.py`. What
may be done instead of recording an operation, and what is checked behind it: `operations.py`.
In PyTorch: `torch/_dynamo/output_graph.py` (`OutputGraph`) and `torch/_subclasses/fake_tensor.py`.
"""

import contextlib
import logging
import operator
import re
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._subclasses import fake_tensor
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from course_lib.capture.expected import assert_expected
from course_lib.capture.facts import assert_about_data
from course_lib.capture.global_state import SETTERS
from course_lib.capture.known import Known
from course_lib.capture.of_data import asks_data, mark_sizes_of_data, names_sizes_again, needs_data
from course_lib.capture.operations import CHECKS, INSTEAD, OF_NUMBERS, Operation
from course_lib.capture.rules import GO_ON
from course_lib.capture.shapes import SIZE, Shapes
from course_lib.capture.sources import Location, Unsupported
from course_lib.capture.strides import STRIDE
from course_lib.capture.symbolic_numbers import is_of_data
from course_lib.capture.values import CONSTANT_TYPES, has_tensor, name_of, storages
from course_lib.graph_text import OUT_OF_PLACE, with_functions_bound
from course_lib.written import traceable

FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")
NEEDS_DATA = (fake_tensor.DataDependentOutputException, fake_tensor.DynamicOutputShapeException)
"""What fake tensors raise where an operation asks for data."""

DTYPES: dict[Any, Any] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
"""Classes that stand for a dtype: `torch.ones(2, dtype=bool)`, `x.type(torch.HalfTensor)`."""
DTYPES |= {cls: cls.dtype for cls in torch._tensor_classes if cls.__module__ == "torch"}

STATE = {
    torch.set_autocast_enabled,
    torch.set_autocast_dtype,
    torch.set_autocast_cache_enabled,
    torch.clear_autocast_cache,
}
STATE |= {getattr(torch._C, setter) for setter in SETTERS.values()}
"""Switches that a program may turn while it runs: the graph turns them too, in their place among
the operations."""


class Arithmetic(PythonReferenceAnalysis):
    """Expressions as nodes: where the base class computes, a node of the graph is made."""

    @staticmethod
    def to_dtype(x: Any, dtype: Any) -> Any:
        return x.tracer.create_proxy("call_function", torch.sym_float, (x,), {})

    @staticmethod
    def maximum(a: Any, b: Any) -> Any:
        return largest(torch.sym_max, a, b)

    @staticmethod
    def minimum(a: Any, b: Any) -> Any:
        return largest(torch.sym_min, a, b)


def largest(function: Any, a: Any, b: Any) -> fx.Proxy:
    """A node for `max(a, b)` or `min(a, b)`, of which at least one is a node already."""
    proxy = a if isinstance(a, fx.Proxy) else b
    return proxy.tracer.create_proxy("call_function", function, (a, b), {})


class GraphBuilder:
    """Records operations. `inputs`: the tensors and numbers from outside that some of them uses, in
    order."""

    def __init__(self, shapes: Shapes) -> None:
        self.graph = fx.Graph()
        self.shapes = shapes
        self.inputs: list[Known] = []

        # Where the instruction stands that is interpreted: the user's line, the path of the module,
        # the node it made
        self.location: Location | None = None
        self.module = ""
        self.last_node: fx.Node | None = None

        # By the `id` of a tensor: the node that computes it, or what it stands for outside
        self._nodes: dict[int, tuple[Any, fx.Node]] = {}
        self._outside: dict[int, Known] = {}
        # By a formula of symbols: the node that computes it
        self.formulas: dict[Any, fx.Node] = {}

        # Copies that the graph makes where eager makes views: nobody may write to them, or see
        # their memory
        self.copies: list[torch.Tensor] = []

        # Tensors and the truth they must have. Where one has not, the head runs the frame from its
        # start as it is
        self.expected: list[tuple[torch.Tensor, bool]] = []

        # A tensor counts its writes (`_version`). Some do not: those made in inference mode,
        # `x.data`, running statistics. Is there such a tensor? How many operations wrote to one?
        self.has_uncounted = False
        self.uncounted_writes = 0

        # Has an operation given a size that only the data says?
        self.has_sizes_of_data = False

        # Inside `torch.inference_mode()`: the frame's instruction that entered it, and the memory
        # that was made there
        self.region = 0
        self.inference: dict[int, Any] = {}

        # Has an operation warned? The head shows it, and the graph does not
        self.has_warned = False

        # Called with what each operation warned of: (function, arguments, keyword arguments,
        # result, what was caught)
        self.tell_warnings: Callable[..., None] = tell_nobody

    # ---- inputs ----------------------------------------------------------------------------------

    def add_input(self, new: Known) -> Any:
        """What stands for a tensor or number from outside: a placeholder, once something uses
        it."""
        self._outside[id(new.stand_in)] = new
        return new.stand_in

    def outside(self) -> list[Known]:
        """The tensors and numbers from outside that were met, used or not."""
        return list(self._outside.values())

    def tensors_outside(self) -> list[torch.Tensor]:
        """What stands for the tensors among them."""
        return [
            one.stand_in for one in self._outside.values() if isinstance(one.stand_in, torch.Tensor)
        ]

    def has_node(self, value: Any) -> bool:
        """Does a node compute this very object, or stand for it?"""
        return id(value) in self._nodes

    def is_own(self, tensor: torch.Tensor) -> bool:
        """Was this tensor made by an operation of the graph?"""
        return id(tensor) in self._nodes and id(tensor) not in self._outside

    def node_of(self, tensor: Any) -> fx.Node:
        """The node that computes `tensor`; an input becomes a placeholder on first use."""
        if id(tensor) not in self._nodes:
            if id(tensor) not in self._outside:
                raise Unsupported("uses a tensor that was not made by an operation of the graph")
            self._nodes[id(tensor)] = tensor, self._placeholder(self._outside[id(tensor)])
        return self._nodes[id(tensor)][1]

    def _placeholder(self, new: Known) -> fx.Node:
        """A new input of the graph, behind those that are there."""
        # `self.ln.weight` → `self_ln_weight`; `self` itself is a parameter of the graph's own
        # `forward`
        words = re.findall(r"[^\W_]+", new.source.shown)
        name = "_".join(words) or "input"
        if name == "self":
            name = "self_"

        last = self.node_of(self.inputs[-1].stand_in) if self.inputs else self.graph._root
        with self.graph.inserting_after(last):
            node = self.graph.placeholder(name)
            node.target = node.name  # a name that no other node has

        # The real tensor is asked: a write of the program may have changed the fake one. (A
        # subclass of the user's would answer by its own `__torch_function__`.)
        with torch._C.DisableTorchFunction():
            requires_grad = getattr(new.real, "requires_grad", False)
        node.meta.update(
            val=new.stand_in,
            location=self.location,
            source=new.source,
            requires_grad=requires_grad,
        )
        self.inputs.append(new)
        return node

    # ---- symbolic sizes --------------------------------------------------------------------------

    def size_node(self, size: Any) -> fx.Node | int | float:
        """A symbolic size as a node: sizes of inputs, and arithmetic on them."""
        expr = size.node.expr
        if expr.is_number:
            return size.node.pytype(expr)
        node = self.expression_node(expr)
        node.meta.setdefault("val", size)
        return node

    def expression_node(self, expr: Any) -> fx.Node:
        """A formula of symbols as a node."""
        if expr in self.formulas:
            return self.formulas[expr]

        for symbol in expr.free_symbols:
            self._symbol_node(symbol)
        tracer = fx.proxy.GraphAppendingTracer(self.graph)
        symbols = {symbol: fx.Proxy(self.formulas[symbol], tracer) for symbol in expr.free_symbols}
        self.formulas[expr] = sympy_interp(Arithmetic, symbols, expr).node
        return self.formulas[expr]

    def _symbol_node(self, symbol: Any) -> None:
        """See that there is a node for a symbol: an input, or the call that gave the number."""
        if symbol in self.formulas:
            return

        if symbol not in self.shapes.found:
            raise Unsupported(f"the size {symbol}, which only the data says, is in no result")
        origin = self.shapes.found[symbol]
        args = tuple(map(self.argument, origin.args))
        if args:
            function = OF_NUMBERS.get(origin.function, origin.function)
            symbol_node = self.graph.call_function(function, args)
        else:
            symbol_node = self.node_of(origin.value)
        symbol_node.meta.setdefault("val", origin.value)
        self.formulas[symbol] = symbol_node

    # ---- record ----------------------------------------------------------------------------------

    def call(
        self, target: Callable[..., Any] | str, args: Any, kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record a call of a function, or of a method of the first argument (a string). Gives the
        fake result.

        What has no tensor in it is computed now, and leaves no node. Raises Unsupported for what a
        graph cannot hold."""
        operation = Operation(target, list(args), kwargs or {})
        for rule in INSTEAD:
            result = rule(self, operation)
            if result is not GO_ON:
                return result

        # `2 *= x` gives a new tensor, so the graph has to say `2 * x`
        if getattr(target, "__module__", "") == "_operator" and not operation.is_on_tensor:
            operation.target = OF_NUMBERS.get(operation.target, operation.target)

        # Where only the data says a size, torch makes a symbol for it, and notes it in this list.
        symbols_before = len(self.shapes.env.pending_fresh_unbacked_symbols)
        result = self.run_fake(operation.function, operation.args, operation.kwargs)
        gave_symbols = len(self.shapes.env.pending_fresh_unbacked_symbols) > symbols_before
        for check in CHECKS:
            check(self, operation, result)

        self._note_writes(operation)
        if result is NotImplemented or not self._needs_node(operation, result):
            return result
        node = self._add_node(operation, result)
        if gave_symbols or names_sizes_again(self, operation, result):
            mark_sizes_of_data(self, operation, result, node)
        return result

    def _note_writes(self, operation: Operation) -> None:
        """Count writes that a tensor's own version does not count.

        The checks of the branches that capture took (`expected`) are written before the first
        write: they are about the values that the tensors had at the branch."""
        # `x.data` shares memory; a norm that trains (one argument is True) writes to statistics.
        values = (*operation.args, *operation.kwargs.values())
        reads_data = operation.target is getattr and operation.args[1] == "data"
        has_statistics = operation.name in ("batch_norm", "instance_norm")
        if reads_data or (has_statistics and any(value is True for value in values)):
            self.uncounted_writes += 1
            self.has_uncounted = True

        if self.expected and self.may_have_written():
            assert_expected(self)

    @staticmethod
    def _needs_node(operation: Operation, result: Any) -> bool:
        """Not where a number came out (`x.dim()`), unless a switch was turned: one of `STATE`, a
        level of `torch.func` or of forward-mode AD."""
        turns = operation.target in STATE or operation.name.endswith(("_nesting", "_dual_level"))
        return result is None or has_tensor(result) or turns

    def _add_node(self, operation: Operation, result: Any) -> fx.Node:
        """Append the node of an operation that gave `result` on fakes."""
        target: Any = operation.target
        args: Any = tuple(operation.args)
        kwargs = operation.kwargs

        # an operation in place gives the tensor that it wrote to
        inplace = any(result is arg for arg in args)
        if not inplace and isinstance(target, types.BuiltinFunctionType):
            target = OUT_OF_PLACE.get(target, target)
        if not isinstance(target, str):
            # torch.fx cannot print a function or class as an argument. One that means a dtype
            # (`float`) becomes that dtype; others go into the target, which a method's name cannot.
            args, kwargs = fx.node.map_aggregate((args, kwargs), dtype_of_class)
            target, args, kwargs = with_functions_bound(target, args, kwargs)
        op = "call_method" if isinstance(target, str) else "call_function"
        node = self.graph.create_node(op, target, self.argument(tuple(args)), self.argument(kwargs))
        node.meta.update(val=result, location=self.location, module=self.module)
        self.last_node = node
        # The result of an operation in place has its node: the one that made it.
        if not inplace:
            self.remember(result, node)
        return node

    def run_fake(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """What the operation gives on fakes; Unsupported where it raises, or needs the data."""
        # A failure is told as a graph break. torch need not log it, too.
        FAKE_LOG.disabled = True
        try:
            with self.fake_world() as caught:
                result = function(*args, **kwargs)

            # listeners ask tensors for their shapes, and the program does not
            with torch._C.DisableTorchFunction():
                self.tell_warnings(function, args, kwargs, result, caught)
            return result
        except Unsupported:
            raise
        except NEEDS_DATA as error:
            raise needs_data(function, error) from None
        except GuardOnDataDependentSymNode as error:
            raise asks_data(self.shapes, error) from None
        except Exception as error:
            raise fails_on_fakes(function, error) from None
        finally:
            FAKE_LOG.disabled = False

    @contextlib.contextmanager
    def fake_world(self) -> Iterator[list[warnings.WarningMessage]]:
        """Inside, operations run on fakes and are not recorded.

        Gives the list to which their warnings are added."""
        with (
            warnings.catch_warnings(record=True) as caught,
            torch._C.DisableTorchFunction(),
            torch._C._EnablePythonDispatcher(),
            self.shapes.mode,
        ):
            warnings.simplefilter("always")
            yield caught

    @staticmethod
    @contextlib.contextmanager
    def real_world() -> Iterator[None]:
        """Inside, operations compute: neither recorded nor fake."""
        with fake_tensor.unset_fake_temporarily(), torch._C.DisableTorchFunction():
            yield

    def renew(self, value: Any, node: fx.Node) -> None:
        """From here on `value` (a tensor, or a generator of random numbers) is what `node`
        gives."""
        self._nodes[id(value)] = value, node

    def remember(self, result: Any, node: fx.Node) -> None:
        """Note that `node` computes `result`: a tensor, or a nest of tuples and lists whose parts
        become nodes. (A dict's parts do not.)"""
        if isinstance(result, torch.Tensor):
            self._nodes.setdefault(id(result), (result, node))
        elif isinstance(result, (tuple, list)):
            for i, item in enumerate(result):
                if has_tensor(item):
                    child = self.graph.call_function(operator.getitem, (node, i))
                    child.meta.update(val=item, location=self.location, module=self.module)
                    self.remember(item, child)

    # ---- arguments -------------------------------------------------------------------------------

    def argument(self, value: Any) -> Any:
        """A value, or a nest of them, as an argument of an FX node."""
        return fx.node.map_aggregate(value, self._leaf)

    def _leaf(self, value: Any) -> Any:
        """What is no tuple, list, dict or slice, as an argument of an FX node."""
        if isinstance(value, torch.Tensor) or self.has_node(value):
            return self.node_of(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat)) or is_of_data(value):
            return self.size_node(value)
        if isinstance(value, torch.SymBool):
            # Like an `if`, this asks for its value and leaves a guard.
            return bool(value)
        if is_constant_argument(value):
            # `x.to(float)` is `x.to(torch.float64)`.
            return dtype_of_class(value)
        if isinstance(value, np.generic):
            return value.item()

        # Subclasses of int and float, such as an `IntEnum`, become plain numbers.
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return float(value)
        if isinstance(value, range):
            return list(value)
        raise Unsupported(
            f"a {type(value).__name__} cannot be an argument of an operation in the graph"
        )

    # ---- assertions about data -------------------------------------------------------------------

    def expect(self, value: Any, truth: bool) -> bool:
        """Let capture go on as if the tensor `value` were true (or, with `truth=False`, false). The
        graph checks it at each call; if the check fails, eager runs the frame from its beginning.

        Returns False if an input may have been written to before: eager would write once more."""
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            return False
        if self.may_have_written() or self.inference:
            return False
        self.expected.append((value, truth))
        return True

    def writes(self) -> dict[Any, Any]:
        """How often each tensor from outside was written to, by `id`; "unseen": those uncounted."""
        writes_by_id = {id(t): t._version for t in self.tensors_outside() if t._version}
        return writes_by_id | {"unseen": self.uncounted_writes}

    def may_have_written(self) -> bool:
        """Has an operation written to an input?"""
        return self.has_uncounted or any(tensor._version for tensor in self.tensors_outside())

    # ---- the end ---------------------------------------------------------------------------------

    def finish(self, outputs: list[Any]) -> fx.GraphModule:
        """Close the graph: it returns a tuple of `outputs`."""
        # Where eager makes a view, some operations of the graph make a copy. To hand it out would
        # show that.
        shares_memory = storages(self.copies).keys() & storages(outputs).keys()
        if self.copies and shares_memory:
            raise Unsupported("returns an element of a tensor, which eager would return as a view")

        assert_about_data(self)
        output = self.graph.output(tuple(map(self.output_node, outputs)))
        output.meta["val"] = tuple(outputs)

        # Nobody uses some parts of results, some sizes and some strides: they go.
        for node in reversed(self.graph.nodes):
            if node.target in (operator.getitem, SIZE, STRIDE) and not node.users:
                self.graph.erase_node(node)
        self.graph.lint()
        return traceable(fx.GraphModule(torch.nn.Module(), self.graph, class_name="Captured"))

    def output_node(self, value: Any) -> fx.Node:
        """The node of a result: a tensor, or a number that only the data says."""
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            node = self.size_node(value)
            assert isinstance(node, fx.Node)
            return node
        return self.node_of(value)

    @property
    def operations(self) -> int:
        """Nodes that compute something."""
        return sum(
            node.op.startswith("call_") and node.target not in STATE for node in self.graph.nodes
        )


def tell_nobody(*told: Any) -> None:
    """Nobody wants to know what operations warn of."""


def is_constant_argument(value: Any) -> bool:
    """May a graph hold this value as it is?"""
    if isinstance(value, types.FunctionType):
        return not value.__closure__
    if type(value) in CONSTANT_TYPES:
        return True
    return isinstance(value, (type, types.BuiltinFunctionType, torch._ops.OpOverload))


def dtype_of_class(value: Any) -> Any:
    """The dtype that a class stands for; other values as they are."""
    return DTYPES[value] if isinstance(value, type) and value in DTYPES else value


def fails_on_fakes(function: Any, error: Exception) -> Unsupported:
    """The break at an operation that raises: eager shall run it, and raise what it raises."""
    message = str(error).strip().splitlines() or [""]
    return Unsupported(
        f"{name_of(function)} fails on tensors of these shapes: {type(error).__name__}: {message[0]}",
        "in eager it fails too, or it needs the tensor's data, or a number for a size",
    )
