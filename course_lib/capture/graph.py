"""The FX graph under construction.

In:  operations, with symbolic arguments.
Out: an `fx.GraphModule` whose nodes know their shape (`meta["val"]`, a FakeTensor) and the user's line
     (`meta["location"]`).

An operation is *run* on fake tensors (shape, stride, dtype, device, no data) as it is recorded: what torch itself
says about the result is what the rest of capture works with.
In PyTorch: `torch/_dynamo/output_graph.py` (`OutputGraph`) and `torch/_subclasses/fake_tensor.py`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedFakeTensorException,
)

from course_lib.capture.sources import Location
from course_lib.capture.unsupported import Unsupported
from course_lib.capture.values import Constant, Dict, Function, Object, Sequence, Tensor, Value


class GraphBuilder:
    """Records operations. `inputs` are the tensors from outside that some operation uses, in placeholder order."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.fake_mode = FakeTensorMode()
        self.inputs: list[Tensor] = []
        self.location: Location | None = None
        self.last_node: fx.Node | None = None

    def fake(self, tensor: torch.Tensor) -> torch.Tensor:
        """A FakeTensor like `tensor`; the same tensor gives the same fake."""
        with warnings.catch_warnings():  # `.grad` of a non-leaf is looked at
            warnings.simplefilter("ignore")
            return self.fake_mode.from_tensor(tensor, static_shapes=True)

    def node_of(self, tensor: Tensor) -> fx.Node:
        """The node that computes `tensor`; an input becomes a placeholder on first use."""
        if tensor.node is None:
            assert tensor.source is not None
            last = self.inputs[-1].node if self.inputs else None
            first = next(iter(self.graph.nodes), self.graph._root)
            with self.graph.inserting_after(last) if last else self.graph.inserting_before(first):
                tensor.node = self.graph.placeholder(placeholder_name(tensor.source.shown))
            tensor.node.meta.update(val=tensor.fake, location=self.location, source=tensor.source)
            self.inputs.append(tensor)
        return tensor.node

    def call(self, target: Callable[..., Any] | str, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Record `target(*args, **kwargs)`, or a method of the first argument if `target` is a string."""
        if getattr(target, "__module__", "") == "_operator" and args and not isinstance(args[0], Tensor):
            target = NOT_IN_PLACE.get(target, target)  # `2 *= x` makes a new tensor, and no Python source says it
        seen: list[Tensor] = []
        fake_args = [self.fake_argument(arg, seen) for arg in args]
        fake_kwargs = {name: self.fake_argument(arg, seen) for name, arg in kwargs.items()}
        function = getattr(torch.Tensor, target) if isinstance(target, str) else target
        result = self.run_fake(function, fake_args, fake_kwargs)
        for tensor in seen:  # an in-place operation gives back what it was given
            if result is tensor.fake:
                self.add_node(target, args, kwargs, result)
                return tensor
        if result is not None and is_plain(result):
            return Constant(result)  # a fact about shapes or dtypes: nothing to compute when the graph runs
        return self.wrap(result, self.add_node(target, args, kwargs, result))

    def run_fake(self, function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            with self.fake_mode:
                return function(*args, **kwargs)
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            raise Unsupported(
                f"the result of {name_of(function)} depends on the data in the tensor ({error.func}), which is not known yet",
                "compute it outside the compiled function, or express it with torch.where",
            ) from None
        except UnsupportedFakeTensorException as error:
            raise Unsupported(f"{name_of(function)} cannot run without data: {error}") from None
        except Exception as error:
            message = str(error).strip().splitlines() or [""]
            raise Unsupported(
                f"{name_of(function)} fails on tensors of these shapes: {type(error).__name__}: {message[0]}",
                "the call fails in eager too, or needs the tensor's data",
            ) from None

    def add_node(self, target: Any, args: list[Value], kwargs: dict[str, Value], result: Any) -> fx.Node:
        op = "call_method" if isinstance(target, str) else "call_function"
        node = self.graph.create_node(
            op, target, tuple(map(self.argument, args)), {k: self.argument(v) for k, v in kwargs.items()}
        )
        node.meta.update(val=result, location=self.location)
        self.last_node = node
        return node

    def wrap(self, result: Any, node: fx.Node) -> Value:
        """A symbolic value for what an operation gave."""
        if isinstance(result, FakeTensor):
            return Tensor(result, node)
        if is_plain(result):
            return Constant(result)
        if isinstance(result, (tuple, list)):
            items = []
            for i, item in enumerate(result):
                child = self.graph.call_function(operator.getitem, (node, i))
                child.meta.update(val=item, location=self.location)
                items.append(self.wrap(item, child))
                if not isinstance(item, (torch.Tensor, tuple, list)):
                    self.graph.erase_node(child)
            return Sequence(type(result), items)
        raise Unsupported(f"an operation gave a {type(result).__name__}, which capture has no symbolic form for")

    def argument(self, value: Value) -> Any:
        """A value as an argument of an FX node."""
        match value:
            case Tensor():
                return self.node_of(value)
            case Sequence():
                items = [self.argument(item) for item in value.items]
                return items if value.cls is list else tuple(items)
            case Dict():
                return {key: self.argument(item) for key, item in value.items.items()}
            case Constant() | Object(value=type()):
                return value.value
            case Function(real=real) if real is not None:
                return real
        raise Unsupported(f"{value} cannot be an argument of an operation in the graph")

    def fake_argument(self, value: Value, seen: list[Tensor]) -> Any:
        """A value as the argument of a run on fake tensors; tensors met are added to `seen`."""
        match value:
            case Tensor():
                seen.append(value)
                return value.fake
            case Sequence():
                items = [self.fake_argument(item, seen) for item in value.items]
                return items if value.cls is list else tuple(items)
            case Dict():
                return {key: self.fake_argument(item, seen) for key, item in value.items.items()}
        return self.argument(value)

    def finish(self, outputs: list[Tensor]) -> fx.GraphModule:
        """Close the graph: it returns a tuple of `outputs`."""
        out = self.graph.output(tuple(map(self.node_of, outputs)))
        out.meta["val"] = tuple(t.fake for t in outputs)
        self.graph.lint()
        return fx.GraphModule(torch.nn.Module(), self.graph, class_name="Captured")

    @property
    def operations(self) -> int:
        """Nodes that compute something."""
        return sum(node.op.startswith("call_") for node in self.graph.nodes)


NOT_IN_PLACE = {getattr(operator, "i" + name): getattr(operator, name) for name in
                "add sub mul truediv floordiv mod pow matmul lshift rshift xor".split()} | {operator.iand: operator.and_, operator.ior: operator.or_}  # fmt: skip

PLAIN = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(...),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
)


def is_plain(value: Any) -> bool:
    """Is this an immutable object without tensors inside (and not a symbolic number)?"""
    if type(value) in (tuple, slice, range, frozenset):
        parts = (value.start, value.stop, value.step) if isinstance(value, slice) else value
        return all(map(is_plain, parts))
    return type(value) in PLAIN


def placeholder_name(name: str) -> str:
    """A source's name as a node's name: `self.ln.weight` → `self_ln_weight`."""
    words = "".join(c if c.isalnum() else " " for c in name).split()
    return "_".join(words) or "input"


def name_of(function: Any) -> str:
    """How a user would write the function."""
    module = getattr(function, "__module__", None) or ""
    name: str = getattr(function, "__qualname__", None) or getattr(function, "__name__", None) or repr(function)
    return name if not module or module in ("builtins", "_operator") else f"{module}.{name}"
