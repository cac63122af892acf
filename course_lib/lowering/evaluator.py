"""Run loop nodes with NumPy: slow, and easy to be sure of.

In:  a `LoopGraph` and tensors.
Out: what the graph returns. Generated kernels are compared with this; lessons step through it one element at a time.

`NumpyHandler` gives the virtual operations their plain meaning, for all indices of a loop at once: a loop symbol stands for the
array of all its values. Library calls run on the CPU as they are.

In PyTorch: the nearest relative is `LoopBody.debug_str`, or running a kernel in Triton's interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy
import torch

from course_lib.lowering.indexing import loop_symbols
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, LoopNode, Node, Pointwise, Reduction, View
from course_lib.lowering.ops import UNARY, linear_index

Array = np.ndarray
Memory = dict[str, torch.Tensor]
"""Buffer name → its tensor, with the buffer's shape and strides."""


def with_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Array]:
    """A torch function on arrays."""
    return lambda *arrays: function(*(torch.from_numpy(a.copy()) for a in np.broadcast_arrays(*arrays))).numpy()


NUMPY: dict[str, Callable[..., Array]] = {
    **{op: getattr(np, op) for op in UNARY if hasattr(np, op)},
    "neg": np.negative,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": with_torch(torch.erf),
    "erfc": with_torch(torch.erfc),
    "sigmoid": with_torch(torch.sigmoid),
    "sign": with_torch(torch.sign),
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    "round": np.rint,
    "bitwise_not": np.invert,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": np.floor_divide,
    "mod": with_torch(torch.remainder),
    "fmod": np.fmod,
    "pow": with_torch(torch.pow),
    "atan2": np.arctan2,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    **{
        op: getattr(np, op)
        for op in "maximum minimum logical_and logical_or bitwise_and bitwise_or bitwise_xor".split()
    },
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
}

COMBINE: dict[str, Callable[..., Array]] = {
    "sum": lambda a, dtype: a.sum(-1, dtype=dtype),
    "prod": lambda a, dtype: a.prod(-1, dtype=dtype),
    "max": lambda a, dtype: a.max(-1),
    "min": lambda a, dtype: a.min(-1),
    "any": lambda a, dtype: a.any(-1),
    "all": lambda a, dtype: a.all(-1),
    "argmax": lambda a, dtype: a.argmax(-1),
    "argmin": lambda a, dtype: a.argmin(-1),
}


def numpy_dtype(dtype: torch.dtype) -> Any:
    """NumPy has no bfloat16: such values are held as float32 that have been rounded."""
    return np.float32 if dtype is torch.bfloat16 else torch.empty(0, dtype=dtype).numpy().dtype


def to_numpy(tensor: torch.Tensor) -> Array:
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def convert(value: Array, dtype: torch.dtype) -> Array:
    """As `tensor.to(dtype)`."""
    if dtype is torch.bfloat16:
        return torch.from_numpy(value.copy()).to(dtype).float().numpy()
    return value.astype(numpy_dtype(dtype))


def compute(expr: Any, values: Mapping[sympy.Symbol, Any]) -> Any:
    """An index formula with arrays for its symbols."""
    if isinstance(expr, (int, np.ndarray)):
        return expr
    if isinstance(expr, sympy.Symbol):
        return values[expr]
    if isinstance(expr, sympy.Integer):
        return int(expr)
    parts = [compute(a, values) for a in expr.args]
    kind = type(expr).__name__
    if kind in ("Add", "Mul"):
        result = parts[0]
        for part in parts[1:]:
            result = result + part if kind == "Add" else result * part
        return result
    if kind in ("FloorDiv", "Mod", "Pow"):
        a, b = parts
        return {"FloorDiv": lambda: a // b, "Mod": lambda: a % b, "Pow": lambda: a**b}[kind]()
    raise NotImplementedError(f"an index formula with {kind}: {expr}")


@dataclass
class NumpyHandler:
    """The virtual operations on arrays. `values`: what the loop symbols stand for; `served`: values that need no load."""

    memory: Memory
    values: dict[sympy.Symbol, Any]
    served: Mapping[str, Array] = field(default_factory=dict)
    masks: list[Array] = field(default_factory=list)

    def load(self, buffer: str, index: sympy.Expr) -> Array:
        if buffer in self.served:
            return self.served[buffer]
        flat, start = flattened(self.memory[buffer])
        place = np.asarray(compute(index, self.values))
        for mask in self.masks:  # where masked out, anything that exists may be read
            place = np.where(mask, place, 0)
        if flat.numel() == 0:
            return np.zeros(place.shape, numpy_dtype(flat.dtype))
        return to_numpy(flat[torch.from_numpy(np.asarray(place + start))])

    def constant(self, value: bool | int | float, dtype: torch.dtype) -> Array:
        return convert(np.asarray(value), dtype)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Array:
        return convert(np.asarray(compute(sympy.sympify(expr), self.values)), dtype)

    def to_dtype(self, value: Array, dtype: torch.dtype) -> Array:
        return convert(np.asarray(value), dtype)

    def where(self, condition: Array, yes: Array, no: Array) -> Array:
        return np.where(condition, yes, no)

    def masked(self, condition: Array, body: Callable[[], Array], other: bool | int | float) -> Array:
        self.masks.append(condition)
        value = np.asarray(body())
        self.masks.pop()
        return np.where(condition, value, np.asarray(other).astype(value.dtype))

    def indirect(self, value: Array, size: Any, wrap: bool = True) -> sympy.Symbol:
        size = compute(size, self.values)
        place = np.where(np.asarray(value) < 0, value + size, value) if wrap else np.asarray(value)
        valid = (place >= 0) & (place < size)
        for mask in self.masks:
            place, valid = np.where(mask, place, 0), valid | ~np.asarray(mask)
        if not np.all(valid):
            raise IndexError(f"index out of range: {np.asarray(value)[~valid].flat[0]} in a dimension of size {size}")
        symbol = sympy.Symbol(f"at{len(self.values)}", integer=True, nonnegative=True)
        self.values[symbol] = place.astype(np.int64)
        return symbol

    def __getattr__(self, op: str) -> Callable[..., Array]:
        if op not in NUMPY:
            raise AttributeError(op)

        def run(*args: Array) -> Array:
            with np.errstate(all="ignore"):
                return np.asarray(NUMPY[op](*map(np.asarray, args)))

        return run


def flattened(tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """All memory that the tensor lies in as one dimension, and where in it the tensor starts."""
    count = tensor.untyped_storage().nbytes() // tensor.element_size()
    return torch.as_strided(tensor, (count,), (1,), 0), tensor.storage_offset()


def grid(sizes: Sequence[int]) -> list[Array]:
    """For each dimension all its indices, shaped so that together they span the whole loop."""
    rank = len(sizes)
    return [
        np.arange(n, dtype=np.int64).reshape([-1 if d == k else 1 for k in range(rank)]) for d, n in enumerate(sizes)
    ]


def reduce_last(value: Array, node: Reduction, kept: int) -> Array:
    """Combine over all but the first `kept` dimensions."""
    flat = value.reshape((*value.shape[:kept], math.prod(value.shape[kept:])))
    with np.errstate(all="ignore"):
        result = COMBINE[node.kind](flat, numpy_dtype(node.accumulate))
    return convert(np.asarray(result), node.buffer.dtype)


def value_of(node: LoopNode, memory: Memory) -> Array:
    """All elements that a node computes, as an array of its ranges."""
    reduced = tuple(node.reduced) if isinstance(node, Reduction) else ()
    sizes = [int(s) for s in (*node.ranges, *reduced)]
    symbols = loop_symbols("n", len(sizes))
    handler = NumpyHandler(memory, dict(zip(symbols, grid(sizes), strict=True)))
    rank = len(node.ranges)
    if isinstance(node, Pointwise):
        return np.broadcast_to(node.inner(handler, symbols), sizes)
    value = np.broadcast_to(node.inner(handler, symbols[:rank], symbols[rank:]), sizes)
    return reduce_last(value, node, rank)


def empty(buffer: Buffer) -> torch.Tensor:
    """Memory for a buffer. It starts as something nobody can mistake for a result."""
    result = torch.empty_strided([int(s) for s in buffer.shape], [int(s) for s in buffer.stride], dtype=buffer.dtype)
    flattened(result)[0].fill_(True if buffer.dtype is torch.bool else 77)
    return result


def store(buffer: Buffer, memory: Memory, place: Any, value: Array) -> None:
    """Write `value` at the flat indices `place`."""
    flat, start = flattened(memory[buffer.name])
    index, value = np.broadcast_arrays(np.asarray(place) + start, value)
    flat[torch.from_numpy(index.copy())] = torch.from_numpy(value.copy()).to(buffer.dtype)


def run_node(node: Node, memory: Memory) -> None:
    """Run one node: its results are put into `memory`."""
    if isinstance(node, ExternKernel):
        run_extern(node, memory)
        return
    memory[node.buffer.name] = empty(node.buffer)
    kept = node.kept if isinstance(node, Reduction) else range(len(node.ranges))
    symbols = loop_symbols("n", len(node.ranges))
    values = dict(zip(symbols, grid([int(s) for s in node.ranges]), strict=True))
    place = linear_index(symbols, [node.buffer.stride[d] for d in kept])
    store(node.buffer, memory, compute(place, values), value_of(node, memory))


def run_extern(kernel: ExternKernel, memory: Memory) -> None:
    """Call torch's own operator, and put what it returns into buffers of the promised layout."""
    args, kwargs = with_tensors(kernel.args, memory), with_tensors(kernel.kwargs, memory)
    result = kernel.op(*args, **kwargs)
    for buffer, tensor in zip(
        kernel.outputs, [result] if not isinstance(result, (list, tuple)) else result, strict=False
    ):
        if buffer is not None:
            memory[buffer.name] = tensor
            if tuple(tensor.stride()) != buffer.stride:
                memory[buffer.name] = empty(buffer).copy_(tensor)


def with_tensors(argument: Any, memory: Memory) -> Any:
    """The arguments of a library call with tensors for views."""
    if isinstance(argument, View):
        return seen(argument, memory)
    if isinstance(argument, (list, tuple)):
        return type(argument)(with_tensors(a, memory) for a in argument)
    if isinstance(argument, dict):
        return {name: with_tensors(a, memory) for name, a in argument.items()}
    return int(argument) if isinstance(argument, sympy.Integer) else argument


def seen(view: View, memory: Memory) -> torch.Tensor:
    """A view as a tensor."""
    base = memory[view.buffer.name]
    shape, stride = [int(s) for s in view.shape], [int(s) for s in view.stride]
    return torch.as_strided(base, shape, stride, base.storage_offset() + int(view.offset))


def starting_memory(graph: LoopGraph, tensors: Sequence[Any]) -> Memory:
    """The inputs and constants of a graph by name."""
    inputs = {b.name: t.detach() for b, t in zip(graph.inputs, tensors, strict=True) if b is not None}
    return inputs | {name: tensor.detach() for name, tensor in graph.constants.items()}


def evaluate(graph: LoopGraph, *tensors: Any) -> list[Any]:
    """Run a graph node by node. `tensors` are its inputs in order (numbers where the graph takes numbers)."""
    memory = starting_memory(graph, tensors)
    for node in graph.nodes:
        run_node(node, memory)
    return [seen(out, memory) if isinstance(out, View) else out for out in graph.outputs]


# -- one element at a time -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Happened:
    """One operation of a loop body, with what it got and what came out."""

    op: str
    args: tuple[str, ...]
    value: Any

    def __str__(self) -> str:
        return f"{self.op}({', '.join(self.args)}) = {shown(self.value)}"


def shown(value: Any) -> str:
    return f"{float(value):.6g}" if isinstance(value, np.ndarray) and value.dtype.kind == "f" else str(value)


class Watching:
    """Passes every operation on to a handler and notes what happened."""

    def __init__(self, handler: NumpyHandler, happened: list[Happened]) -> None:
        self.handler, self.happened = handler, happened

    def load(self, buffer: str, index: sympy.Expr) -> Array:
        value = self.handler.load(buffer, index)
        self.happened.append(Happened("load", (f"{buffer}[{compute(index, self.handler.values)}]",), value))
        return value

    def masked(self, condition: Array, body: Callable[[], Array], other: Any) -> Array:
        value = (
            self.handler.masked(condition, body, other) if condition else self.handler.constant(other, torch.float64)
        )
        self.happened.append(Happened("masked", (shown(condition),), value))
        return value

    def __getattr__(self, op: str) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            value = getattr(self.handler, op)(*args)
            if op == "indirect":
                self.happened.append(Happened(op, (shown(args[0]),), self.handler.values[value]))
            else:
                self.happened.append(Happened(op, tuple(map(shown, args)), value))
            return value

        return run


def trace_element(node: LoopNode, index: Sequence[int], memory: Memory, rindex: Sequence[int] = ()) -> list[Happened]:
    """Run the body of `node` at one `index` (and, for a reduction, at one `rindex`): every operation, in order."""
    happened: list[Happened] = []
    watching = Watching(NumpyHandler(memory, {}), happened)
    place = [sympy.Integer(i) for i in index]
    if isinstance(node, Reduction):
        node.inner(watching, place, [sympy.Integer(i) for i in rindex])
    else:
        node.inner(watching, place)
    return happened


def indices(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every index of a loop, in order."""
    return np.ndindex(*sizes)
