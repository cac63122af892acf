"""Loop IR: what an ATen graph becomes before it is grouped into kernels.

A program is a list of nodes, each of which writes one or more *buffers*:

    Pointwise      for each index: out[index] = inner(index)
    Reduction      for each index: out[index] = combine over rindex of inner(index, rindex)
    ExternKernel   a library call (GEMM, convolution, whatever has no lowering)

A *view* costs nothing: it is a buffer read with other strides. Since the graph is functional (no
aliasing, no mutation), and each buffer has the layout that eager would give it, a view op is just
the (shape, stride, offset) that torch computed on fake tensors.
In PyTorch: `torch/_inductor/ir.py`, where for views and mutation a `TensorBox` holds a
`StorageBox`, which holds the data.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import sympy
import torch
from torch import fx
from torch._prims_common import compute_required_storage_length
from torch.utils._pytree import tree_leaves

from course_lib import sizes
from course_lib.autograd import effects
from course_lib.lowering.indexing import ZERO, loop_symbols, unflatten
from course_lib.lowering.ops import Handler, Value, linear_index
from course_lib.lowering.reduction_kinds import ReductionKind, kind_named
from course_lib.sizes import Place, SizeSymbol, expanded, hint, is_symbolic, same

Index = Sequence[sympy.Expr]


@dataclass(frozen=True)
class Buffer:
    """Memory with a name: `shape` and `stride` in elements, as `torch.empty_strided` takes them."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: torch.device = torch.device("cpu")

    @staticmethod
    def like(tensor: torch.Tensor, name: str = "") -> "Buffer":
        """What it takes to hold `tensor`, in its layout. Without a name it is only a layout."""
        shape = sizes.shape(tensor.shape)
        stride = sizes.shape(tensor.stride())
        return Buffer(name, tensor.dtype, shape, stride, tensor.device)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements (broadcast dimensions counted in full).

        Of a symbolic size: in the call that is compiled."""
        return hint(self.numel) * self.dtype.itemsize

    @property
    def extent(self) -> Any:
        """Elements from the first to the last, gaps included: a number, or a formula of sizes."""
        if not any(map(is_symbolic, (*self.shape, *self.stride))):
            return compute_required_storage_length(self.shape, self.stride, 0)
        if any(same(n, 0) for n in self.shape):
            return 0
        steps = zip(self.shape, self.stride, strict=True)
        return expanded(1 + sum((n - 1) * step for n, step in steps))

    def lies_like(self, other: "Buffer") -> bool:
        """True if both have the same dtype, device, shape and strides, whatever they are called."""
        if (self.dtype, self.device) != (other.dtype, other.device):
            return False
        return same(self.shape, other.shape) and same(self.stride, other.stride)

    def view(self) -> "View":
        """The whole buffer as it lies."""
        return View(self, self.shape, self.stride, 0)

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        return f"{self.name}: {dtype}{list(self.shape)}"


@dataclass(frozen=True)
class View:
    """A tensor value: `buffer` read with these strides, from `offset` (all in elements)."""

    buffer: Buffer
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0

    @property
    def dtype(self) -> torch.dtype:
        return self.buffer.dtype

    @property
    def is_whole(self) -> bool:
        """True if this is the buffer itself, not a rearrangement or a part of it."""
        ours = (*self.shape, *self.stride, self.offset)
        all_of_it = (*self.buffer.shape, *self.buffer.stride, 0)
        return same(ours, all_of_it)

    def load(self, ops: Handler, index: Index) -> Value:
        """The element at `index`; an index of lower rank, or into a dimension of size 1,
        broadcasts."""
        index = self.broadcast(index)
        if isinstance(ops, Inline):
            return self.load_inlined(ops, index)

        return ops.load(self.buffer.name, linear_index(index, self.stride, self.offset))

    def load_inlined(self, ops: "Inline", index: Index) -> Value:
        """The element, computed again if its loop is one of those that `ops` inlines."""
        producer = ops.producers.get(self.buffer.name)
        if producer is None:
            return self.load(ops.ops, index)

        return producer.inner(ops, self.in_buffer(index))

    def in_buffer(self, index: Index) -> Index:
        """The index into the whole buffer of what this view has at `index`."""
        if self.is_whole:
            return index

        # The formula for any index: a symbol for each dimension of the view.
        symbols = loop_symbols("v", len(self.shape))
        extent = dict(zip(symbols, self.shape, strict=True))
        flat = linear_index(symbols, self.stride, self.offset)
        places = unflatten(flat, extent, self.buffer.shape, self.buffer.stride)

        # This index in place of the symbols. What a mask hides may ask for less than 0.
        become: dict[sympy.Symbol, sympy.Expr] = {}
        for symbol, position_in_view in zip(symbols, index, strict=True):
            position = sympy.sympify(position_in_view)
            if position.is_Integer:
                position = sympy.Max(position, 0)
            become[symbol] = position

        return [place.xreplace(become) for place in places]

    def broadcast(self, index: Index) -> list[sympy.Expr]:
        """The part of a larger tensor's `index` that counts here."""
        leading = len(index) - len(self.shape)
        positions = []
        for position, size in zip(index[leading:], self.shape, strict=True):
            if same(size, 1):
                position = ZERO
            positions.append(position)
        return positions


@dataclass(frozen=True, eq=False)
class Lazy(View):
    """A tensor that needs no memory (`full`, `arange`, masks): `inner` computes it at each use,
    `buffer` is its layout."""

    inner: Callable[[Handler, Index], Value] = field(kw_only=True)

    def load(self, ops: Handler, index: Index) -> Value:
        return self.inner(ops, self.in_buffer(self.broadcast(index)))


@dataclass(eq=False)
class Loops:
    """What `Pointwise` and `Reduction` have in common: a body, run at every index of `ranges`, that
    writes one buffer."""

    buffer: Buffer
    ranges: tuple[int, ...]
    inner: Callable[..., Value]
    origins: tuple[fx.Node, ...] = ()
    label: str = ""
    # The sizes that are combined over, at each index
    reduced: tuple[int, ...] = ()
    # For each of `ranges`, the dimension of `buffer` it is. None: they are those of the buffer
    kept: Sequence[int] | None = None

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return (self.buffer,)

    @property
    def symbols(self) -> tuple[tuple[sympy.Symbol, ...], tuple[sympy.Symbol, ...]]:
        """i0, i1, ... for the index, and j0, j1, ... for what is reduced."""
        of_index = loop_symbols("i", len(self.ranges))
        of_reduced = loop_symbols("j", len(self.reduced))
        return of_index, of_reduced

    def value(self, ops: Handler, index: Index, rindex: Index) -> Value:
        """Run the body under a handler: the value at `index` (for a reduction: what is to be
        combined)."""
        if self.reduced:
            return self.inner(ops, index, rindex)
        return self.inner(ops, index)

    def place(self, index: Index) -> sympy.Expr:
        """Where in the buffer the result for `index` goes (flat, in elements)."""
        stride = self.buffer.stride
        if self.kept is not None:
            stride = tuple(stride[d] for d in self.kept)
        return linear_index(index, stride)

    def __str__(self) -> str:
        name = self.label or self.buffer.name
        text = f"{name} over {list(self.ranges)}"
        if self.reduced:
            text += f", reducing {list(self.reduced)}"
        return text


class Pointwise(Loops):
    """out[index] = inner(ops, index) for every index in `ranges` (= the buffer's shape)."""


@dataclass
class Inline:
    """The handler that computes elements of `producers` again instead of loading them; the rest is
    `ops`'s."""

    ops: Handler
    producers: Mapping[str, Pointwise]

    def __getattr__(self, op: str) -> Any:
        return getattr(self.ops, op)


@dataclass(eq=False, kw_only=True)
class Reduction(Loops):
    """out[index] = `kind` over rindex of inner(ops, index, rindex).

    `ranges` are the sizes of the dimensions that are kept, `reduced` those of the dimensions that
    vanish. At least one of the latter is larger than 1. With `keepdim`, `buffer` still has the
    reduced dimensions, with size 1.

    The accumulator's last value is converted to the dtype of the buffer. max and min pass nan on.
    argmax and argmin give the first place of several."""

    # A name in `reduction_kinds.KINDS`: sum, prod, max, min, any, all, argmax, argmin
    kind: str
    # The dtype of the accumulator: float32 for float16 and bfloat16 input, int64 for integer sums
    accumulate: torch.dtype
    # max and min of values that are equal and yet differ (0.0 and -0.0): True takes the last one,
    # False the first
    last_of_equals: bool = False
    # The first half of a reduction that was split for a GPU
    partial: bool = False
    # Only for a sum of squared distances: the mean, and the sum that the mean is made of
    around: tuple[Buffer, Buffer] | None = None

    @property
    def combines(self) -> ReductionKind:
        """What `kind` means."""
        return kind_named(self.kind)


class Product(Reduction):
    """A matrix product as loops: a sum over k of a[batch, m, k] * b[batch, k, n].

    (`scheduling.products` makes them)"""


LoopNode = Pointwise | Reduction


@dataclass(eq=False)
class ExternKernel:
    """A call of an ATen operator: `args` and `kwargs` hold `View`s for tensors."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    # For each thing that it returns: its buffer, or None where that is no tensor
    outputs: tuple[Buffer | None, ...]
    # The overload that writes into a given buffer (`aten.addmm.out`), None if there is none
    out_variant: Any = None
    origins: tuple[fx.Node, ...] = ()
    # Why this is a library call: 'matrix product: left to the library'
    why: str = ""
    # Bytes that would travel through memory if it were several nodes (`scheduling.streams`)
    bytes_saved: int = 0
    # False for what is printed here all the same: a stream
    is_library: ClassVar[bool] = True

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.outputs if b is not None)

    @property
    def reads(self) -> set[str]:
        """The names of the buffers among the arguments."""
        leaves = tree_leaves((self.args, self.kwargs))
        return {leaf.buffer.name for leaf in leaves if isinstance(leaf, View)}

    @property
    def acts(self) -> bool:
        """True if the call does more than compute: it draws random numbers, is the user's own, or
        only checks its arguments."""
        return effects.draws(self.op) or effects.is_own(self.op) or not self.buffers

    @property
    def label(self) -> str:
        return str(self.op)

    def __str__(self) -> str:
        return f"{self.op} (extern)"


Node = Pointwise | Reduction | ExternKernel


@dataclass
class LoopGraph:
    """A lowered program."""

    # The graph's placeholders in order (None where the argument is not a tensor)
    inputs: list[Buffer | None]
    nodes: list[Node]
    # What it returns: for each result a `View`, or a Python value
    outputs: list[Any]
    # Tensors found in the graph: buffer name → tensor
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    # FX nodes that repeat an earlier one: (name, its twin)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    # Which output is put into which input, unseen by autograd
    updates: dict[int, Buffer | None] = field(default_factory=dict)
    # Inputs that are numbers: position → name
    numbers: dict[int, str] = field(default_factory=dict)
    # Where each symbolic size is found among the inputs
    places: dict[SizeSymbol, Place] = field(default_factory=dict)
    # If calls with other sizes will come: the sizes that all have
    fixed: Collection[int] | None = None
    # What was decided about products that might take in all before them (`scheduling.streams`)
    streams: Sequence[Any] = ()

    @property
    def returned(self) -> set[str]:
        """The names of the buffers that outputs are, or are views of."""
        return {output.buffer.name for output in self.outputs if isinstance(output, View)}

    @property
    def buffers(self) -> dict[str, Buffer]:
        """Every buffer by name: inputs, constants, and what the nodes write."""
        inputs = [buffer for buffer in self.inputs if buffer is not None]
        constants = [Buffer.like(tensor, name) for name, tensor in self.constants.items()]
        results = [buffer for node in self.nodes for buffer in node.buffers]

        return {buffer.name: buffer for buffer in [*inputs, *constants, *results]}
