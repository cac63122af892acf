"""Loop IR: what an ATen graph becomes before it is grouped into kernels.

A program is a list of nodes, each of which writes one or more *buffers*:

    Pointwise      for each index: out[index] = inner(index)
    Reduction      for each index: out[index] = combine over rindex of inner(index, rindex)
    ExternKernel   a library call (GEMM, convolution, whatever has no lowering)

A *view* costs nothing: it is a buffer read with other strides. Since the graph is functional (no aliasing, no mutation),
and each buffer has the layout that eager would give it, every view op is just the (shape, stride, offset) that torch itself
computed on fake tensors.

In PyTorch: `torch/_inductor/ir.py`. There a `TensorBox` holds a `StorageBox` holds the data (so that views and mutation can
swap what is inside); the functional graph makes both boxes unnecessary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import sympy
import torch
from torch import fx

from course_lib.lowering.ops import Handler, Value, linear_index

Size: TypeAlias = "int | sympy.Expr"
Index = Sequence[sympy.Expr]


@dataclass(frozen=True)
class Buffer:
    """Memory with a name: `shape` and `stride` in elements, as `torch.empty_strided` takes them."""

    name: str
    dtype: torch.dtype
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    device: torch.device = torch.device("cpu")

    @property
    def numel(self) -> Size:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> Size:
        """Bytes of the elements (broadcast dimensions counted in full)."""
        return self.numel * self.dtype.itemsize

    def view(self) -> View:
        """The whole buffer as it lies."""
        return View(self, self.shape, self.stride, 0)

    def __str__(self) -> str:
        return f"{self.name}: {str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


@dataclass(frozen=True)
class View:
    """A tensor value: `buffer` read with these strides, from `offset` (all in elements)."""

    buffer: Buffer
    shape: tuple[Size, ...]
    stride: tuple[Size, ...]
    offset: Size = 0

    @property
    def dtype(self) -> torch.dtype:
        return self.buffer.dtype

    @property
    def is_whole(self) -> bool:
        """True if this is the buffer itself, not a rearrangement or a part of it."""
        return (self.shape, self.stride, self.offset) == (self.buffer.shape, self.buffer.stride, 0)

    def load(self, ops: Handler, index: Index) -> Value:
        """The element at `index`; an index of lower rank, or into a dimension of size 1, broadcasts."""
        index = list(index)[len(index) - len(self.shape) :]
        index = [sympy.Integer(0) if size == 1 else i for i, size in zip(index, self.shape, strict=True)]
        return ops.load(self.buffer.name, linear_index(index, self.stride, self.offset))


@dataclass(eq=False)
class Pointwise:
    """out[index] = inner(ops, index) for every index in `ranges` (= the buffer's shape)."""

    buffer: Buffer
    ranges: tuple[Size, ...]
    inner: Callable[[Handler, Index], Value]
    origins: tuple[fx.Node, ...] = ()
    label: str = ""

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return (self.buffer,)

    def __str__(self) -> str:
        return f"{self.label or self.buffer.name} over {list(self.ranges)}"


@dataclass(eq=False)
class Reduction:
    """out[index] = `kind` over rindex of inner(ops, index, rindex).

    `ranges` are the kept dimensions, `reduced` those that vanish; `buffer` may have size-1 dimensions where they were
    (keepdim), so it is written at `store_index(index)`. `kind` is one of sum, prod, max, min, any, all, argmax, argmin.
    `accumulate` is the dtype of the accumulator (float32 for float16 and bfloat16 input, int64 for integer sums); what it ends
    with is converted to the buffer's dtype. max and min pass nan on; argmax and argmin take nan for the largest and the
    smallest, and of equals the first. At least one of `reduced` is not 1."""

    buffer: Buffer
    ranges: tuple[Size, ...]
    reduced: tuple[Size, ...]
    kind: str
    inner: Callable[[Handler, Index, Index], Value]
    accumulate: torch.dtype
    kept: tuple[int, ...] = ()
    """For each entry of `ranges`, the dimension of `buffer` it is."""
    origins: tuple[fx.Node, ...] = ()
    label: str = ""

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return (self.buffer,)

    def __str__(self) -> str:
        return f"{self.label or self.kind} over {list(self.ranges)}, reducing {list(self.reduced)}"


LoopNode = Pointwise | Reduction


@dataclass(eq=False)
class ExternKernel:
    """A call of an ATen operator: `args` and `kwargs` hold `View`s where the graph had tensors.

    `outputs` has one buffer for each tensor that the operator returns. `out_variant` is the overload that writes into a
    given buffer (`aten.addmm.out`), or None if the operator must allocate by itself. `mutates` names inputs it writes to."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outputs: tuple[Buffer | None, ...]
    out_variant: Any = None
    mutates: tuple[str, ...] = ()
    origins: tuple[fx.Node, ...] = ()
    why: str = ""
    """Why this is a library call: 'GEMM is left to the library', 'aten.sort has no lowering', ..."""

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(b for b in self.outputs if b is not None)

    @property
    def label(self) -> str:
        return str(self.op)

    def __str__(self) -> str:
        return f"{self.op} (extern)"


Node = Pointwise | Reduction | ExternKernel


@dataclass
class LoopGraph:
    """A lowered program. `inputs` are the graph's placeholders in order (None where the argument is not a tensor),
    `constants` tensors found in the graph (buffer name → tensor), `outputs` what it returns: a `View`, or a Python value."""

    inputs: list[Buffer | None]
    nodes: list[Node]
    outputs: list[Any]
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    duplicates: list[tuple[str, str]] = field(default_factory=list)
    """FX nodes that compute what an earlier one did, and that one: (name, its twin)."""

    @property
    def buffers(self) -> dict[str, Buffer]:
        """Every buffer by name: inputs, constants, and what the nodes write."""
        known = [
            Buffer(name, c.dtype, tuple(c.shape), tuple(c.stride()), c.device) for name, c in self.constants.items()
        ]
        written = [b for node in self.nodes for b in node.buffers]
        return {b.name: b for b in [*(i for i in self.inputs if i is not None), *known, *written]}
