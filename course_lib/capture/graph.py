"""The FX graph under construction.

In:  operations on tensors, as the interpreted program asks for them.
Out: an `fx.GraphModule` whose nodes know their shape (`meta["val"]`, a FakeTensor) and the user's line (`meta["location"]`).

A tensor of the interpreted program is a *fake* one: shape, stride, dtype, device, no data. An operation is run on fakes as it is
recorded. `Recorder` hears of every torch operation, whoever calls it: an instruction, a builtin, or torch's own Python code.
In PyTorch: `torch/_dynamo/output_graph.py` (`OutputGraph`) and `torch/_subclasses/fake_tensor.py`.
"""

import contextlib
import logging
import operator
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._subclasses import fake_tensor
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_leaves
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis

from course_lib import frames
from course_lib.capture.global_state import TURNED
from course_lib.capture.shapes import IN_PLACE, OPERATORS, Shapes
from course_lib.capture.sources import Location, Source, Unsupported
from course_lib.failing import may_fail
from course_lib.graph_text import OUT_OF_PLACE, with_functions_bound
from course_lib.written import traceable

FAKE_LOG = logging.getLogger("torch._subclasses.fake_tensor")
TO_PYTHON = """item tolist numpy __bool__ __int__ __float__ __index__ __complex__ __array__ data_ptr __repr__ __format__
    __reduce_ex__ __deepcopy__ __contains__ __hash__""".split()
"""Tensor methods whose result is not a tensor but depends on its data."""
OF_DATA = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__"}
"""Of these, those that give numbers."""
REACH_AROUND = """backward grad requires_grad_ register_hook register_post_accumulate_grad_hook retain_grad set_ resize_
    resize_as_ share_memory_ storage untyped_storage storage_offset pin_memory __setstate__ swap_tensors as_subclass t_ transpose_
    squeeze_ unsqueeze_ swapaxes_ swapdims_ detach_ apply_ map_ map2_ __dlpack__ __set__ from_numpy from_file from_dlpack
    frombuffer is_inference is_shared is_set_to quantize_per_tensor quantize_per_tensor_dynamic quantize_per_channel""".split()
"""Functions whose effect a graph of operations cannot hold, or that may share memory with what is no tensor."""
# Of these, those of the graph's own tensors
RESHAPING = {"t_", "transpose_", "squeeze_", "unsqueeze_", "swapaxes_", "swapdims_"}
OF_NUMBERS = {IN_PLACE[f"{sign}="]: function for sign, function in OPERATORS.items()}
OF_NUMBERS |= dict.fromkeys((operator.pow, operator.ipow), pow)
"""What to say where a number stands on the left: `2 *= x` makes a new tensor, and `-2 ** x` is `-(2 ** x)`."""
SIGNS = {
    "__getitem__": operator.getitem,
    "__setitem__": operator.setitem,
    "__rdiv__": operator.truediv,
} | {
    f"__r{name}__": getattr(operator, f"__{name}__")
    for name in "sub pow truediv floordiv mod matmul lshift rshift".split()
}
"""Special methods: the operator that a graph says instead (with the operands swapped, if it begins with r)."""
REWRITTEN: dict[str, Callable[..., Any]] = {}
"""Name of an operation → (builder, *arguments) → its result, where it is said by others; NotImplemented where it is not."""
TO_NUMBERS: list[Callable[..., Any]] = []
"""(builder, tensor) → the tensor's data, if they are known, or None."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), torch.dtype, torch.device,
         torch.layout, torch.memory_format, torch.Size)  # fmt: skip
DTYPES: dict[Any, Any] = {
    bool: torch.bool,
    int: torch.int64,
    float: torch.float64,
    complex: torch.complex128,
}
# `x.type(torch.HalfTensor)`
DTYPES |= {cls: cls.dtype for cls in torch._tensor_classes if cls.__module__ == "torch"}
STATE = {
    torch.set_autocast_enabled,
    torch.set_autocast_dtype,
    torch.set_autocast_cache_enabled,
    torch.clear_autocast_cache,
}
STATE |= {getattr(torch._C, turn) for turn in TURNED.values()}
"""Switches that a program may turn while it runs: the graph turns them too, in their place among the operations."""


@dataclass
class Known:
    """An object of the interpreted world that stands for `real`, found at `source`."""

    stand_in: Any
    real: Any
    source: Source
    before: Any = None  # Of a container: the items that its stand-in held when it was made
    attributes: dict[str, Any] | None = None
    """Of an instance or a cell: the attributes that its stand-in was given so far. MISSING: the real one has none of the name."""
    # An object that capture knows nothing about: it can be passed on, and that is all
    opaque: bool = False


class Arithmetic(PythonReferenceAnalysis):
    """Expressions as nodes: torch's functions on symbolic numbers are nodes too."""

    to_dtype = staticmethod(
        lambda x, dtype: x.tracer.create_proxy("call_function", torch.sym_float, (x,), {})
    )


class GraphBuilder:
    """Records operations. `inputs` are the tensors and numbers from outside that some operation uses, in order."""

    def __init__(self, shapes: Shapes) -> None:
        self.graph = fx.Graph()
        self.shapes = shapes
        self.inputs: list[Known] = []
        self.location: Location | None = None
        self.module = ""
        self.last_node: fx.Node | None = None
        self._nodes: dict[int, tuple[Any, fx.Node]] = {}
        self._outside: dict[int, Known] = {}
        self._sizes: dict[Any, fx.Node] = {}
        # Copies that the graph makes where eager makes views: nobody may write to them, or see their memory
        self.copies: list[torch.Tensor] = []
        self.expected: list[tuple[torch.Tensor, bool]] = []
        """Tensors and the truth they must have. Where one has not, the head runs the frame from its start as it is."""
        self.unseen = 0  # How many operations wrote to what counts no writes
        self.region = 0  # Inside `torch.inference_mode()`: the frame's instruction that entered it
        self.inference: dict[int, Any] = {}  # Memory that was made there
        self.loud = False  # Has an operation warned? The head shows it, and the graph does not
        # Told of the warnings of operations: (function, arguments, result, what was caught)
        self.listen: Callable[..., None] = lambda *told: None
        # does a tensor not count what is written to it (inference, `x.data`, running statistics)?
        self.untracked = False

    def add_input(self, new: Known) -> Any:
        """What stands for a tensor or number from outside: a placeholder, once something uses it."""
        self._outside[id(new.stand_in)] = new
        return new.stand_in

    def outside(self) -> list[Known]:
        """The tensors and numbers from outside that were met, used or not."""
        return list(self._outside.values())

    def node_of(self, tensor: Any) -> fx.Node:
        """The node that computes `tensor`; an input becomes a placeholder on first use."""
        if id(tensor) not in self._nodes:
            if id(tensor) not in self._outside:
                raise Unsupported("uses a tensor that was not made by an operation of the graph")
            self._nodes[id(tensor)] = tensor, self._placeholder(self._outside[id(tensor)])
        return self._nodes[id(tensor)][1]

    def _placeholder(self, new: Known) -> fx.Node:
        last = self.node_of(self.inputs[-1].stand_in) if self.inputs else self.graph._root
        with self.graph.inserting_after(last):
            # `self.ln.weight` → `self_ln_weight`
            words = "".join(c if c.isalnum() else " " for c in new.source.shown).split()
            name = "_".join(words) or "input"
            # the graph's own `forward` has a parameter `self`
            node = self.graph.placeholder("self_" if name == "self" else name)
            node.target = node.name  # which no other has
        with torch._C.DisableTorchFunction():
            # as it comes in: a write may change that of its stand-in
            wanted = getattr(new.real, "requires_grad", False)
        node.meta.update(
            val=new.stand_in, location=self.location, source=new.source, requires_grad=wanted
        )
        self.inputs.append(new)
        return node

    def size_node(self, size: Any) -> fx.Node | int | float:
        """A symbolic size as a node: sizes of inputs, and arithmetic on them."""
        if (expr := size.node.expr).is_number:
            return size.node.pytype(expr)
        if expr not in self._sizes:
            for symbol in expr.free_symbols:
                if symbol not in self._sizes:
                    origin = self.shapes.found[symbol]
                    args = tuple(map(self.argument, origin.args))
                    function = OF_NUMBERS.get(origin.function, origin.function)
                    made = (
                        self.graph.call_function(function, args)
                        if args
                        else self.node_of(origin.value)
                    )
                    made.meta.setdefault("val", origin.value)
                    self._sizes[symbol] = made
            tracer = fx.proxy.GraphAppendingTracer(self.graph)
            symbols = {
                symbol: fx.Proxy(self._sizes[symbol], tracer) for symbol in expr.free_symbols
            }
            self._sizes[expr] = sympy_interp(Arithmetic, symbols, expr).node
            self._sizes[expr].meta.setdefault("val", size)
        return self._sizes[expr]

    def call(
        self, target: Callable[..., Any] | str, args: Any, kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Record a call, or a method of the first argument (a string). Gives the fake result; no tensor: what is computed now."""
        args = [device_of_cpu(arg) for arg in args]
        kwargs = {key: device_of_cpu(arg) for key, arg in (kwargs or {}).items()}
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        rewrite = REWRITTEN.get(name) if not kwargs and args else None
        if rewrite is not None and isinstance(args[0], torch.Tensor):
            rewritten = rewrite(self, *args)
            if rewritten is not NotImplemented:
                return rewritten
        if name in OF_DATA and isinstance(args[0], torch.Tensor):
            for find in TO_NUMBERS:
                data = find(self, args[0])
                if data is not None:
                    with self.real_world():
                        return getattr(data, name)(*args[1:])
        if name in TO_PYTHON or (name in ("mod", "imod") and isinstance(args[0], (str, bytes))):
            why = f"tensor.{name}() takes the tensor's data into Python, which waits for the result and ends the graph"
            raise Unsupported(
                why, "keep the value a tensor, or call it outside the compiled function"
            )
        allowed = (
            name in RESHAPING and id(args[0]) in self._nodes and id(args[0]) not in self._outside
        )
        if name in ("requires_grad_", "grad"):  # at a level of `torch.func.grad`
            leaves = [arg for arg in tree_leaves(args) if isinstance(arg, torch.Tensor)]
            allowed = any(map(torch._C._functorch.is_functorch_wrapped_tensor, leaves))
        if name in REACH_AROUND and not allowed:
            raise Unsupported(
                f"{name}() reaches around the graph",
                "call it outside the compiled function",
                as_eager=self.asks_for_gradient(name, args, kwargs),
            )
        if getattr(target, "__module__", "") == "_operator" and not isinstance(
            args[0], torch.Tensor
        ):
            target = OF_NUMBERS.get(target, target)
        # addcmul, addcdiv_
        scale = (
            kwargs.get("value")
            if name[:4] == "addc" and len(args) == 3 and len(kwargs) == 1
            else None
        )
        if (
            isinstance(scale, torch.Tensor)
            and scale.dtype == torch.float64
            and not (scale.ndim or scale.requires_grad)
        ):
            return self.call(
                f"add{name[7:]}",
                [args[0], self.call(name[4:7], [self.call("mul", [args[1], scale]), args[2]])],
            )
        out = [
            (tensor, tensor.shape)
            for tensor in tree_leaves(kwargs.get("out"))
            if isinstance(tensor, torch.Tensor)
        ]
        result = self.run_fake(
            getattr(torch.Tensor, target) if isinstance(target, str) else target, args, kwargs
        )
        if any(tensor.shape != shape for tensor, shape in out):
            raise Unsupported(
                "gives another shape to `out=`", "give it a tensor of the result's shape"
            )
        if any(copy._version for copy in self.copies):
            raise Unsupported(
                "writes to an element that was looked up by a tensor without dimensions",
                "use the index as a number: `x[index.item()]`",
            )
        inplace = any(result is arg for arg in args)
        uses = storages((args, kwargs)) if self.region or self.inference else {}
        if self.region:
            self.inference |= {
                key: memory for key, memory in storages(result).items() if key not in uses
            }
        elif self.inference.keys() & uses and (
            result is None or getattr(result, "requires_grad", has_tensor(result)) or inplace
        ):
            raise Unsupported("does with a tensor made in inference mode what autograd may refuse")
        unseen = (target is getattr and args[1] == "data") or (
            name in ("batch_norm", "instance_norm")
            and any(arg is True for arg in (*args, *kwargs.values()))
        )
        self.unseen += unseen
        self.untracked |= unseen
        if self.expected and self.may_have_written():
            self.assert_expected()
        kept = (
            result is None
            or has_tensor(result)
            or target in STATE
            or name.endswith(("_nesting", "_dual_level"))
        )
        if result is NotImplemented or not kept:
            return result
        if not inplace and isinstance(target, types.BuiltinFunctionType):
            target = OUT_OF_PLACE.get(target, target)
        if not isinstance(target, str):
            args, kwargs = fx.node.map_aggregate((tuple(args), kwargs), dtype_of_class)
            target, args, kwargs = with_functions_bound(target, args, kwargs)
        op = "call_method" if isinstance(target, str) else "call_function"
        node = self.graph.create_node(op, target, self.argument(tuple(args)), self.argument(kwargs))
        node.meta.update(val=result, location=self.location, module=self.module)
        self.last_node = node
        if not inplace:
            self.remember(result, node)
        return result

    def run_fake(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        FAKE_LOG.disabled = True  # what fails is told as a graph break
        try:
            with (
                warnings.catch_warnings(record=True) as caught,
                torch._C.DisableTorchFunction(),
                torch._C._EnablePythonDispatcher(),
                self.shapes.mode,
            ):
                warnings.simplefilter("always")
                result = function(*args, **kwargs)
            with (
                torch._C.DisableTorchFunction()
            ):  # what is asked of tensors is no part of the program
                self.listen(function, args, kwargs, result, caught)
            return result
        except Unsupported:
            raise
        except (
            fake_tensor.DataDependentOutputException,
            fake_tensor.DynamicOutputShapeException,
        ) as error:
            why = f"the result of {name_of(function)} depends on the data in the tensor ({error.func}), which is not known yet"
            raise Unsupported(
                why, "compute it outside the compiled function, or express it with torch.where"
            ) from None
        except Exception as error:
            message = str(error).strip().splitlines() or [""]
            why = f"{name_of(function)} fails on tensors of these shapes: {type(error).__name__}: {message[0]}"
            raise Unsupported(
                why, "in eager it fails too, or it needs the tensor's data, or a number for a size"
            ) from None
        finally:
            FAKE_LOG.disabled = False

    def expect(self, value: Any, truth: bool) -> bool:
        """Go on as if the tensor `value` were true (or not). False if that is not to be: an input is written to once."""
        if (
            not isinstance(value, torch.Tensor)
            or value.numel() != 1
            or self.may_have_written()
            or self.inference
        ):
            return False
        self.expected.append((value, truth))
        return True

    def assert_expected(self) -> None:
        """Before a write to an input: what was expected is asked here, by operations of the graph that raise. Then nothing has been
        written, and the head lets eager run the frame from its start, as after any error of a graph."""
        # an assertion that fails on a GPU ends all work there
        if any(tensor.device.type != "cpu" for tensor, _ in self.expected):
            raise Unsupported(
                "writes to an input after an assertion about data, which must come first"
            )
        for tensor, truth in self.expected:
            holds = self.graph.call_function(torch.ne, (self.node_of(tensor), 0))
            holds.meta.update(val=self.run_fake(torch.ne, (tensor, 0), {}))
            if not truth:
                held, holds = holds, self.graph.call_function(torch.logical_not, (holds,))
                holds.meta.update(val=self.run_fake(torch.logical_not, (held.meta["val"],), {}))
            check = self.graph.call_function(torch._assert_async, (holds,))
            for node in (holds, *holds.all_input_nodes, check):
                node.meta.setdefault("location", self.location)
                node.meta.setdefault("module", self.module)
        self.expected.clear()

    def writes(self) -> dict[Any, Any]:
        """How often each tensor from outside was written to, as far as it counts that."""
        tensors = [
            v.stand_in for v in self._outside.values() if isinstance(v.stand_in, torch.Tensor)
        ]
        written = {id(t): t._version for t in tensors if t._version}
        return written | {"unseen": self.unseen}

    def may_have_written(self) -> bool:
        """Has an operation written to an input?"""
        values = [
            one.stand_in for one in self._outside.values() if isinstance(one.stand_in, torch.Tensor)
        ]
        return self.untracked or any(value._version for value in values)

    def is_own(self, tensor: torch.Tensor) -> bool:
        """Was this tensor made by an operation of the graph?"""
        return id(tensor) in self._nodes and id(tensor) not in self._outside

    def renew(self, tensor: torch.Tensor, node: fx.Node) -> None:
        """From here on `tensor` is what `node` computes."""
        self._nodes[id(tensor)] = tensor, node

    @staticmethod
    @contextlib.contextmanager
    def real_world() -> Iterator[None]:
        """Inside, operations compute: neither recorded nor fake."""
        with fake_tensor.unset_fake_temporarily(), torch._C.DisableTorchFunction():
            yield

    def remember(self, result: Any, node: fx.Node) -> None:
        """`node` computes `result`: a tensor, or a nest of them whose parts become nodes. (Of a dict nothing is known.)"""
        if isinstance(result, torch.Tensor):
            self._nodes.setdefault(id(result), (result, node))
        elif isinstance(result, (tuple, list)):
            for i, item in enumerate(result):
                if has_tensor(item):
                    child = self.graph.call_function(operator.getitem, (node, i))
                    child.meta.update(val=item, location=self.location, module=self.module)
                    self.remember(item, child)

    def argument(self, value: Any) -> Any:
        """A value, or a nest of them, as an argument of an FX node."""
        return fx.node.map_aggregate(value, self._leaf)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.node_of(value)
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return self.size_node(value)
        if isinstance(value, torch.SymBool):  # a branch
            return bool(value)
        function = isinstance(value, types.FunctionType) and not value.__closure__
        if (
            function
            or type(value) in PLAIN
            or isinstance(value, (type, types.BuiltinFunctionType, torch._ops.OpOverload))
        ):
            return dtype_of_class(value)
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, (int, float, range)):  # the first two of a subclass
            return (
                int(value)
                if isinstance(value, int)
                else float(value)
                if isinstance(value, float)
                else list(value)
            )
        raise Unsupported(
            f"a {type(value).__name__} cannot be an argument of an operation in the graph"
        )

    def asks_for_gradient(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> str:
        """Does the call ask autograd for the gradient of what the graph computes? Then why the graph must run as eager does.

        A compiled graph is one node for autograd, which knows no gradient of what is computed in its middle."""
        asked = {
            "register_hook": args[:1],
            "retain_grad": args[:1],
            "grad": [args[1:2], kwargs.get("inputs")],
            "backward": [kwargs.get("inputs")],
        }
        for tensor in tree_leaves(asked.get(name)):
            if id(tensor) in self._nodes and self.node_of(tensor).op != "placeholder":
                return f"{name}() asks for the gradient of a tensor that the graph computes"
        return ""

    def unused_checks(self, outputs: list[Any]) -> list[torch.Tensor]:
        """What operations give that may refuse their data, though nobody uses it: the graph returns it, or it would be dropped."""
        failing = [node for node in self.graph.nodes if may_fail(node)]
        if not failing:
            return []
        kept = storages([outputs, [one.stand_in for one in self.inputs]])
        written = [node for node in self.graph.nodes if is_in_place(node)]
        waiting = [self.node_of(output) for output in outputs]
        waiting += [node for node in written if kept.keys() & storages(node.args[0].meta["val"])]
        live = set[fx.Node]()
        while waiting:
            node = waiting.pop()
            if node not in live:
                live.add(node)
                waiting += node.all_input_nodes
        values = [
            node.args[0].meta["val"] if node in written else node.meta.get("val")
            for node in failing
            if node not in live
        ]
        leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        return [leaf for leaf in leaves if id(leaf) in self._nodes]

    def finish(self, outputs: list[Any]) -> fx.GraphModule:
        """Close the graph: it returns a tuple of `outputs`."""
        if self.copies and storages(self.copies).keys() & storages(outputs).keys():
            raise Unsupported("returns an element of a tensor, which eager would return as a view")
        self.graph.output(tuple(map(self.node_of, outputs))).meta["val"] = tuple(outputs)
        # parts of results that nobody took, sizes that nobody used
        for node in reversed(self.graph.nodes):
            if node.target in (operator.getitem, torch.ops.aten.sym_size.int) and not node.users:
                self.graph.erase_node(node)
        self.graph.lint()
        return traceable(fx.GraphModule(torch.nn.Module(), self.graph, class_name="Captured"))

    @property
    def operations(self) -> int:
        """Nodes that compute something."""
        return sum(
            node.op.startswith("call_") and node.target not in STATE for node in self.graph.nodes
        )


def dtype_of_class(value: Any) -> Any:
    """`torch.ones(2, dtype=bool)`: some classes stand for a dtype. Other values as they are."""
    return DTYPES[value] if isinstance(value, type) and value in DTYPES else value


class Recorder(TorchFunctionMode):
    """While it is active, every torch operation goes into the graph of `builder`."""

    def __init__(self, builder: GraphBuilder) -> None:
        super().__init__()
        self.builder = builder

    def __torch_function__(
        self, function: Any, types_: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return frames.call(None, self.record, function, args, kwargs or {})

    def record(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = getattr(function, "__name__", "")
        # an attribute: `tensor.shape` is `shape.__get__(tensor)`
        if isinstance(function, types.MethodWrapperType):
            attribute = getattr(function.__self__, "__name__", "")
            if name != "__get__":
                raise Unsupported(f"changes the attribute '{attribute}' of a tensor")
            return self.builder.call(getattr, [args[0], attribute])
        if name in SIGNS:
            return self.builder.call(SIGNS[name], args[::-1] if name.startswith("__r") else args)
        is_method = getattr(function, "__qualname__", "").startswith(("Tensor.", "TensorBase."))
        return self.builder.call(name if is_method else function, args, kwargs)


def device_of_cpu(value: Any) -> Any:
    """There is one CPU: a tensor on `cpu:0` says that it is on `cpu`, but a fake one would not."""
    if isinstance(value, torch.device) and value.type == "cpu":
        return torch.device("cpu")
    return "cpu" if isinstance(value, str) and value == "cpu:0" else value


def is_in_place(node: fx.Node) -> bool:
    """Does this operation write to its first argument?"""
    if not node.op.startswith("call_") or not node.args or not isinstance(node.args[0], fx.Node):
        return False
    result, first = node.meta.get("val"), node.args[0].meta.get("val")
    return isinstance(first, torch.Tensor) and (result is None or result is first)


def storages(values: Any) -> dict[int, torch.UntypedStorage]:
    """The memory of the tensors in a nest, by its address."""
    tensors, functorch = (
        [t for t in tree_leaves(values) if isinstance(t, torch.Tensor)],
        torch._C._functorch,
    )
    while any(map(functorch.is_functorch_wrapped_tensor, tensors)):
        tensors = [
            functorch.get_unwrapped(t) if functorch.is_functorch_wrapped_tensor(t) else t
            for t in tensors
        ]
    with torch._C.DisableTorchFunction():
        return {
            memory._cdata: memory
            for memory in (t.untyped_storage() for t in tensors if t.layout is torch.strided)
        }


def has_tensor(value: Any) -> bool:
    """Is there a tensor in this nest of containers, or of slices?"""
    if isinstance(value, (tuple, list, dict, slice)):
        parts = (
            value.__reduce__()[1]
            if type(value) is slice
            else value.values()
            if isinstance(value, dict)
            else value
        )
        return any(map(has_tensor, parts))
    return isinstance(value, torch.Tensor)


def name_of(function: Any, exact: bool = False) -> str:
    """How a user would write the function; `exact`: what Python's own messages call it."""
    if not exact and type(function).__module__ == "builtins" and (public := resolve_name(function)):
        return public.replace("torch.functional.", "torch.")
    module = getattr(function, "__module__", None) or "builtins"
    name: str = (
        getattr(function, "__qualname__", None)
        or getattr(function, "__name__", None)
        or type(function).__name__
    )
    # it stands in a module that users do not name
    if not exact and isinstance(function, types.BuiltinFunctionType):
        module = {"posix": "os", "io": "builtins", "operator": "builtins"}.get(
            module := module.lstrip("_"), module
        )
    path = name if module == "builtins" else f"{module}.{name}"
    return ".".join(part for part in path.split(".") if not part.startswith("pybind11_"))
