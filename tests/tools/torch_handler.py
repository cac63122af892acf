"""Loop bodies computed by torch on whole index grids: what the generated kernels are compared with.

`evaluate(kernel, buffers, tensors)` runs the steps of a `FusedKernel` one after the other, each over its whole iteration space,
and returns every buffer that they write. It shares nothing with the code generators but the IR.
"""

from __future__ import annotations

import sympy
import torch

from course_lib.lowering.ir import Reduction

HALVES = (torch.float16, torch.bfloat16)


class TorchHandler:
    """Values are tensors over the grid of a step."""

    def __init__(self, tensors, grid):
        self.tensors, self.grid = tensors, dict(grid)

    def index(self, expr):
        expr = sympy.sympify(expr)
        symbols = sorted(expr.free_symbols, key=str)
        shape = torch.broadcast_shapes(*(t.shape for t in self.grid.values())) if self.grid else ()
        if not symbols:
            return torch.full(shape, int(expr), dtype=torch.int64)
        value = sympy.lambdify(
            symbols,
            expr,
            modules=[{"FloorDiv": lambda a, b: a // b, "Mod": lambda a, b: a % b}, "math"],
        )(*(self.grid[s] for s in symbols))
        return torch.as_tensor(value).expand(shape)

    def load(self, buffer, index):
        flat = self.tensors[buffer]
        at = self.index(index)
        return (
            flat[at.clamp(0, max(0, flat.numel() - 1))]
            if flat.numel()
            else flat.new_zeros(at.shape)
        )

    def constant(self, value, dtype):
        return torch.tensor(value, dtype=dtype)

    def index_expr(self, expr, dtype):
        return self.index(expr).to(dtype)

    def to_dtype(self, value, dtype):
        return value.to(dtype)

    def where(self, condition, yes, no):
        return torch.where(condition, yes, no)

    def masked(self, condition, body, other):
        value = body()
        return torch.where(condition, value, torch.tensor(other, dtype=value.dtype))

    def indirect(self, value, size, wrap=True):
        value = torch.where(value < 0, value + size, value) if wrap else value
        if ((value < 0) | (value >= size)).any():
            raise IndexError
        symbol = sympy.Symbol(f"indirect{len(self.grid)}", integer=True)
        self.grid[symbol] = value
        return symbol

    def truediv(self, a, b):
        return a / b

    def floordiv(self, a, b):
        return torch.div(a, b, rounding_mode="floor")

    def mod(self, a, b):
        return torch.remainder(a, b)

    def __getattr__(self, op):
        return getattr(torch, op)


def evaluate(kernel, buffers, tensors, compute=None):
    """`tensors`: buffer name → tensor. `compute`: do floating point in this dtype instead (a more exact reference)."""
    flat = {name: as_memory(t) for name, t in tensors.items()}
    results = {}
    for step in kernel.steps:
        loops = [
            loop
            for loop in kernel.loops
            if loop.kind == "row" or step.level == "column" or step.is_reduction
        ]
        grid = {}
        for n, loop in enumerate(loops):
            grid[loop.symbol] = torch.arange(loop.size).reshape([-1] + [1] * (len(loops) - 1 - n))
        shape = [loop.size for loop in loops]
        handler = TorchHandler(flat, grid)
        value = torch.as_tensor(step.value(handler)).expand(shape)
        kept = kernel.columns if step.level == "across" else kernel.rows
        if step.is_reduction:
            value = reduce(
                step.node, value, [n for n, loop in enumerate(loops) if loop not in kept]
            )
        value = value.to(step.buffer.dtype)
        rows = dict(grid) if not step.is_reduction else {
            loop.symbol: torch.arange(loop.size).reshape([-1] + [1] * (len(kept) - 1 - n)) for n, loop in enumerate(kept)
        }  # fmt: skip
        where = TorchHandler({}, rows).index(step.store_index).expand(value.shape)
        memory = torch.zeros(
            1 + sum((n - 1) * s for n, s in zip(step.buffer.shape, step.buffer.stride)),
            dtype=value.dtype,
        )
        if value.numel():
            memory[where.reshape(-1)] = value.reshape(-1)
        flat[step.buffer.name] = memory
        results[step.buffer.name] = torch.as_strided(memory, step.buffer.shape, step.buffer.stride)
    return results


def as_memory(tensor):
    """The elements as they lie, from the tensor's first to its last."""
    if tensor.numel() == 0:
        return tensor.reshape(-1)
    extent = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return torch.as_strided(tensor, (extent,), (1,))


def reduce(node: Reduction, value, dims):
    kind = node.kind
    if kind in ("sum", "prod"):
        value = (
            value.to(torch.float64)
            if node.accumulate.is_floating_point
            else value.to(node.accumulate)
        )
        for d in reversed(dims):
            value = getattr(value, kind)(d)
        return value
    if kind in ("any", "all"):
        value = value != 0
        for d in reversed(dims):
            value = getattr(value, kind)(d)
        return value
    if not dims:
        return torch.zeros_like(value, dtype=torch.int64) if kind.startswith("arg") else value
    value = value.flatten(dims[0], dims[-1])
    if kind.startswith("arg"):
        return getattr(torch, kind)(value, dims[0])
    return {"max": torch.amax, "min": torch.amin}[kind](value, dims[0])
