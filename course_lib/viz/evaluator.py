"""Run loop nodes with NumPy: slow, and easy to be sure of.

In:  a `LoopGraph` and tensors.
Out: what the graph returns. Generated kernels are compared with this;
     `pictures/lowering/loop_formulas.py` steps through it one element at a time.

`NumpyHandler` gives the virtual operations their plain meaning, for all indices of a loop at once:
a loop symbol stands for the array of all its values. Library calls run on the CPU as they are.

In PyTorch: the nearest relative is `LoopBody.debug_str`, or running a kernel in Triton's
interpreter.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy
import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from course_lib.lowering.corners.philox import philox
from course_lib.lowering.indexing import loop_symbols
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, LoopNode, Reduction, View
from course_lib.lowering.ops import BINARY, UNARY
from course_lib.sizes import Size

Array = np.ndarray
Memory = dict[str, torch.Tensor]
"""Buffer name → its tensor, with the buffer's shape and strides."""
Numbers = Mapping[sympy.Symbol, int]
"""The symbol of a size (`s0`) → the number that it is in this call."""
NO_SYMBOLS: Numbers = {}

# fmt: off
OTHER_NAMES = {
    "neg": "negative", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "round": "rint",
    "bitwise_not": "invert", "sub": "subtract", "mul": "multiply", "truediv": "divide",
    "eq": "equal", "ne": "not_equal", "lt": "less", "le": "less_equal",
    "gt": "greater", "ge": "greater_equal",
}
# fmt: on
"""A virtual operation → what NumPy calls it."""


# ---- the virtual operations ----------------------------------------------------------------------


def as_tensors(*arrays: Array) -> list[torch.Tensor]:
    """Arrays as tensors of one shape."""
    return [torch.from_numpy(array.copy()) for array in np.broadcast_arrays(*arrays)]


def by_torch(op: Callable[..., torch.Tensor]) -> Callable[..., Array]:
    """An operator of torch as a function of arrays."""

    def run(*arrays: Array) -> Array:
        return op(*as_tensors(*arrays)).numpy()

    return run


def first_of_equals(better: Callable[..., Any]) -> Callable[..., Array]:
    """A maximum or minimum in which NaN wins, and of equals (0.0 and -0.0) the first.

    NumPy's depends on the number of elements."""

    def choose(a: Array, b: Array) -> Array:
        # (A NaN in `a` stays: nothing is greater or less than it.)
        is_nan = b != b
        return np.asarray(np.where(better(b, a) | is_nan, b, a))

    return choose


def floor_divide(a: Array, b: Array) -> Array:
    """torch's result for floats, down to the sign of a zero.

    NumPy's for integers: it does not raise for a 0."""
    if np.issubdtype(np.result_type(a, b), np.floating):
        return by_torch(torch.floor_divide)(a, b)
    return np.asarray(np.floor_divide(a, b))


def rsqrt(x: Array) -> Array:
    return (1 / np.sqrt(x)).astype(x.dtype)


OWN: dict[str, Callable[..., Array]] = {
    "maximum": first_of_equals(np.greater),
    "minimum": first_of_equals(np.less),
    "floordiv": floor_divide,
    "rsqrt": rsqrt,
    "erf": by_torch(torch.erf),
    "erfc": by_torch(torch.erfc),
    "sigmoid": by_torch(torch.sigmoid),
    "pow": by_torch(torch.pow),
    "mod": by_torch(torch.remainder),
}
"""What NumPy lacks, does otherwise, or leaves open."""


def meaning(op: str) -> Callable[..., Array]:
    """A virtual operation as a function of arrays."""
    if op in OWN:
        return OWN[op]
    return getattr(np, OTHER_NAMES.get(op, op))


NUMPY: dict[str, Callable[..., Array]] = {op: meaning(op) for op in (*UNARY, *BINARY)}


def numpy_dtype(dtype: torch.dtype) -> Any:
    """NumPy has no bfloat16: such values are held as float32 that have been rounded."""
    if dtype is torch.bfloat16:
        return np.float32
    return torch.empty(0, dtype=dtype).numpy().dtype


def convert(value: Any, dtype: torch.dtype) -> Array:
    """An array in another dtype, converted as `tensor.to(dtype)` does."""
    value = np.asarray(value)
    if dtype is torch.bfloat16:
        return torch.from_numpy(value.copy()).to(dtype).float().numpy()
    return value.astype(numpy_dtype(dtype))


# ---- index formulas ------------------------------------------------------------------------------


def total(*terms: Any) -> Any:
    return sum(terms)


def product(*factors: Any) -> Any:
    return math.prod(factors)


INDEX: dict[str, Callable[..., Any]] = {
    "Add": total,
    "Mul": product,
    "FloorDiv": operator.floordiv,
    "Mod": operator.mod,
    "PythonMod": operator.mod,
    "Pow": operator.pow,
    "Max": max,
    "Min": min,
}
"""A kind of expression → what it computes."""


def compute(expr: Any, values: Mapping[sympy.Symbol, Any]) -> Any:
    """An index formula with arrays for its symbols.

    Raises NotImplementedError for a kind of expression that is not in `INDEX`."""
    if isinstance(expr, Size):
        expr = expr.expr
    if isinstance(expr, sympy.Symbol):
        return values[expr]
    if isinstance(expr, np.ndarray):
        return expr
    if not isinstance(expr, sympy.Basic) or expr.is_Integer:
        return int(expr)

    kind = type(expr).__name__
    if kind not in INDEX:
        raise NotImplementedError(f"an index formula with {kind}: {expr}")
    return INDEX[kind](*(compute(part, values) for part in expr.args))


def in_numbers(sizes: Sequence[Any], numbers: Numbers) -> tuple[int, ...]:
    """A shape or strides, some of which may be formulas, in a call with these numbers."""
    return tuple(compute(size, numbers) for size in sizes)


# ---- a loop --------------------------------------------------------------------------------------


@dataclass
class NumpyHandler:
    """The virtual operations on arrays.

    values: what the loop symbols stand for. served: values of buffers that need no load.
    masks: the conditions of the `masked` bodies that are being computed, the outermost first.

    An operation that has no method here is looked up in `NUMPY` by its name."""

    memory: Memory
    values: dict[sympy.Symbol, Any]
    served: Mapping[str, Array] = field(default_factory=dict)
    masks: list[Array] = field(default_factory=list)

    def load(self, buffer: str, index: sympy.Expr) -> Array:
        if buffer in self.served:
            return self.served[buffer]

        place = np.asarray(compute(index, self.values))
        for mask in self.masks:
            # Where masked out, anything that exists may be read.
            place = np.where(mask, place, 0)

        # An index counts from the tensor's start, which may lie within a larger memory.
        flat, start = flattened(self.memory[buffer])
        if self.memory[buffer].numel() == 0:
            return np.zeros(place.shape, numpy_dtype(flat.dtype))

        value = flat[torch.from_numpy(np.asarray(place + start))]
        if value.dtype is torch.bfloat16:
            value = value.float()
        return value.numpy()

    constant = staticmethod(convert)
    to_dtype = staticmethod(convert)
    where = staticmethod(np.where)

    def index_expr(self, expr: sympy.Expr, dtype: torch.dtype) -> Array:
        return convert(compute(expr, self.values), dtype)

    def random(self, seed: Array, place: Array) -> Array:
        return by_torch(philox)(seed, place)

    def masked(
        self, condition: Array, body: Callable[[], Array], other: bool | int | float
    ) -> Array:
        self.masks.append(condition)
        value = np.asarray(body())
        self.masks.pop()

        return np.where(condition, value, np.asarray(other).astype(value.dtype))

    def indirect(self, value: Array, size: Any, wrap: bool = True) -> sympy.Symbol:
        """A symbol for indices that were computed, to be used in the index of a load.

        Raises IndexError for one outside of a dimension of `size` elements."""
        size = compute(size, self.values)
        value = np.asarray(value)
        place = value
        if wrap:
            # An index below 0 counts from the end.
            place = np.where(value < 0, value + size, value)

        valid = (place >= 0) & (place < size)
        for mask in self.masks:
            # What is masked out is never used, so any index will do there.
            place = np.where(mask, place, 0)
            valid = valid | ~np.asarray(mask)
        if not np.all(valid):
            wrong = value[~valid].flat[0]
            raise IndexError(f"index out of range: {wrong} in a dimension of size {size}")

        # A new name each time, for `values` grows
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
    return list(np.indices(sizes, dtype=np.int64, sparse=True))


def reduce_last(value: Array, node: Reduction, kept: int) -> Array:
    """Combine over all but the first `kept` dimensions."""
    flat = value.reshape((*value.shape[:kept], math.prod(value.shape[kept:])))
    combine = getattr(flat, node.kind)
    options = {}
    # NumPy's other reductions choose one of the values: they take no dtype.
    if node.kind in ("sum", "prod"):
        options["dtype"] = numpy_dtype(node.accumulate)

    with np.errstate(all="ignore"):
        return convert(combine(-1, **options), node.buffer.dtype)


def empty(buffer: Buffer, numbers: Numbers = NO_SYMBOLS) -> torch.Tensor:
    """Memory for a buffer. It starts as something nobody can mistake for a result."""
    shape = in_numbers(buffer.shape, numbers)
    stride = in_numbers(buffer.stride, numbers)
    result = torch.empty_strided(shape, stride, dtype=buffer.dtype)

    flattened(result)[0].fill_(True if buffer.dtype is torch.bool else 77)
    return result


def store(buffer: Buffer, memory: Memory, place: Any, value: Array) -> None:
    """Write `value` at the flat indices `place`."""
    flat, start = flattened(memory[buffer.name])

    index, value = np.broadcast_arrays(np.asarray(place) + start, value)
    flat[torch.from_numpy(index.copy())] = torch.from_numpy(value.copy()).to(buffer.dtype)


def run_node(node: LoopNode, memory: Memory, numbers: Numbers = NO_SYMBOLS) -> None:
    """Run a loop: all that it computes is put into `memory`."""
    rank = len(node.ranges)
    sizes = in_numbers((*node.ranges, *node.reduced), numbers)
    symbols = loop_symbols("n", len(sizes))

    if 0 in sizes:
        # No index is ever looked at, so none is out of range.
        value = np.zeros(sizes, numpy_dtype(node.buffer.dtype))
    else:
        handler = NumpyHandler(memory, {**numbers, **dict(zip(symbols, grid(sizes), strict=True))})
        computed = node.value(handler, symbols[:rank], symbols[rank:])
        value = np.broadcast_to(computed, sizes)
    if isinstance(node, Reduction):
        value = reduce_last(value, node, rank)

    memory[node.buffer.name] = empty(node.buffer, numbers)
    # One index for each result: the symbols of the dimensions that were reduced have none. They are
    # the last ones, which a `zip` that is not strict leaves out.
    rows = {**numbers, **dict(zip(symbols, grid(sizes[:rank]), strict=False))}
    place = compute(node.place(symbols[:rank]), rows)
    store(node.buffer, memory, place, value)


# ---- a graph -------------------------------------------------------------------------------------


def run_extern(kernel: ExternKernel, memory: Memory, numbers: Numbers = NO_SYMBOLS) -> None:
    """Call torch's own operator, and put what it returns into buffers of the promised layout."""

    def real(argument: Any) -> Any:
        if isinstance(argument, View):
            return seen(argument, memory, numbers)
        is_size = isinstance(argument, (sympy.Integer, Size))
        if is_size:
            return compute(argument, numbers)
        return argument

    args, kwargs = fx.node.map_aggregate((kernel.args, kernel.kwargs), real)
    result = kernel.op(*args, **kwargs)
    # None for a result that is no tensor
    for buffer, tensor in zip(kernel.outputs, tree_leaves(result), strict=False):
        if buffer is None:
            continue
        if tensor.stride() != in_numbers(buffer.stride, numbers):
            tensor = empty(buffer, numbers).copy_(tensor)
        memory[buffer.name] = tensor


def seen(view: View, memory: Memory, numbers: Numbers = NO_SYMBOLS) -> torch.Tensor:
    """A view as a tensor, in the memory of its buffer."""
    base = memory[view.buffer.name]
    shape = in_numbers(view.shape, numbers)
    stride = in_numbers(view.stride, numbers)

    # For an empty view, tracing may have noted an offset beyond its memory.
    offset = 0 if 0 in shape else base.storage_offset() + compute(view.offset, numbers)
    return torch.as_strided(base, shape, stride, offset)


def starting_memory(graph: LoopGraph, tensors: Sequence[Any]) -> Memory:
    """The inputs and constants of a graph by name."""
    memory: Memory = {}
    for buffer, tensor in zip(graph.inputs, tensors, strict=True):
        if buffer is not None:
            memory[buffer.name] = tensor.detach()
    for name, constant in graph.constants.items():
        memory[name] = constant.detach()
    return memory


def evaluate(graph: LoopGraph, *tensors: Any) -> list[Any]:
    """Run a graph node by node.

    `tensors` are its inputs in order (numbers where the graph takes numbers)."""
    memory = starting_memory(graph, tensors)
    numbers = {symbol: place.of(tensors) for symbol, place in graph.places.items()}
    for node in graph.nodes:
        if isinstance(node, ExternKernel):
            run_extern(node, memory, numbers)
        else:
            run_node(node, memory, numbers)

    def result(out: Any) -> Any:
        if isinstance(out, View):
            return seen(out, memory, numbers)
        if isinstance(out, Size):
            return compute(out, numbers)
        return out

    return [result(out) for out in graph.outputs]
