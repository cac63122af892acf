"""Build `FusedKernel`s by hand, without the lowering and the scheduler, for the tests of the code generators.

k = Hand(rows=[4], columns=[8])
x = k.read("x", [4, 8])
total = k.reduce("total", "sum", lambda ops, i, j: x.load(ops, [*i, *j]))
k.row("mean", lambda ops, i: ops.truediv(total.load(ops, i), ops.constant(8.0, torch.float32)), store=True)
kernel, buffers = k.build()
"""

from __future__ import annotations

import math

import torch

from course_lib.lowering.indexing import loop_symbols
from course_lib.lowering.ir import Buffer, Pointwise, Reduction, View
from course_lib.scheduling.kernel import FusedKernel, Loop, Step


def contiguous(shape):
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


class Hand:
    device = torch.device("cpu")
    """Where the buffers of kernels made from now on are; a test for the GPU changes it."""

    def __init__(self, rows, columns=(), name="fused"):
        self.name = name
        self.rows, self.columns = tuple(rows), tuple(columns)
        self.i, self.j = loop_symbols("i", len(rows)), loop_symbols("j", len(columns))
        self.loops = tuple(Loop(s, n, "row") for s, n in zip(self.i, rows)) + tuple(
            Loop(s, n, "column") for s, n in zip(self.j, columns)
        )
        self.buffers, self.steps, self.stores = {}, [], set()

    def read(self, name, shape, dtype=torch.float32, stride=None):
        self.buffers[name] = Buffer(
            name, dtype, tuple(shape), tuple(stride or contiguous(shape)), self.device
        )
        return self.buffers[name].view()

    def _add(self, step, store):
        self.steps.append(step)
        if store:
            self.stores.add(step.buffer.name)
        return step.buffer.view()

    def point(self, name, inner, store=False, dtype=torch.float32, stride=None):
        """Runs for every row and column: inner(ops, index over rows + columns)."""
        shape = self.rows + self.columns
        buffer = Buffer(name, dtype, shape, tuple(stride or contiguous(shape)), self.device)
        node = Pointwise(buffer, shape, inner, label=name)
        return self._add(
            Step(node, self.i + self.j, level="column" if self.columns else "row"), store
        )

    def row(self, name, inner, store=False, dtype=torch.float32):
        """Runs once a row: inner(ops, index over rows)."""
        buffer = Buffer(name, dtype, self.rows, contiguous(self.rows), self.device)
        return self._add(
            Step(Pointwise(buffer, self.rows, inner, label=name), self.i, level="row"), store
        )

    def reduce(self, name, kind, inner, store=False, dtype=torch.float32, accumulate=None):
        """inner(ops, row index, column index)."""
        buffer = Buffer(name, dtype, self.rows, contiguous(self.rows), self.device)
        node = Reduction(
            buffer,
            self.rows,
            inner,
            label=name,
            reduced=self.columns,
            kind=kind,
            accumulate=accumulate or dtype,
        )
        return self._add(Step(node, self.i, self.j, level="column"), store)

    def build(self, in_place=None):
        reads = frozenset(self.buffers)
        kernel = FusedKernel(
            self.name,
            self.loops,
            tuple(self.steps),
            frozenset(self.stores),
            reads,
            in_place=in_place or {},
        )
        return kernel, self.buffers


def whole(view: View):
    """Load the element at the kernel's own index."""
    return lambda ops, *index: view.load(ops, [e for part in index for e in part])


def softmax(rows, columns, dtype=torch.float32, store_exp=False):
    k = Hand([rows], [columns], name="softmax")
    x = k.read("x", [rows, columns], dtype)

    def load(ops, index):
        return ops.to_dtype(x.load(ops, index), torch.float32)

    peak = k.reduce("amax", "max", lambda ops, i, j: load(ops, [*i, *j]))
    e = k.point(
        "exp",
        lambda ops, ij: ops.exp(ops.sub(load(ops, ij), peak.load(ops, ij[:1]))),
        store=store_exp,
    )
    total = k.reduce("sum", "sum", lambda ops, i, j: e.load(ops, [*i, *j]))
    k.point(
        "softmax",
        lambda ops, ij: ops.to_dtype(ops.truediv(e.load(ops, ij), total.load(ops, ij[:1])), dtype),
        store=True, dtype=dtype,
    )  # fmt: skip
    return k.build()


def layer_norm(rows, columns, eps=1e-5):
    k = Hand([rows], [columns], name="layer_norm")
    x, w, b = k.read("x", [rows, columns]), k.read("weight", [columns]), k.read("bias", [columns])
    f32 = torch.float32
    total = k.reduce("sum", "sum", lambda ops, i, j: x.load(ops, [*i, *j]))
    mean = k.row(
        "mean", lambda ops, i: ops.truediv(total.load(ops, i), ops.constant(float(columns), f32))
    )
    centred = k.point("centred", lambda ops, ij: ops.sub(x.load(ops, ij), mean.load(ops, ij[:1])))

    def square(ops, i, j):
        d = centred.load(ops, [*i, *j])
        return ops.mul(d, d)

    squares = k.reduce("squares", "sum", square)
    rstd = k.row(
        "rstd",
        lambda ops, i: ops.rsqrt(
            ops.add(
                ops.truediv(squares.load(ops, i), ops.constant(float(columns), f32)),
                ops.constant(eps, f32),
            )
        ),
    )
    k.point(
        "layer_norm",
        lambda ops, ij: ops.add(
            ops.mul(ops.mul(centred.load(ops, ij), rstd.load(ops, ij[:1])), w.load(ops, ij[1:])),
            b.load(ops, ij[1:]),
        ),
        store=True,
    )
    return k.build()


def gelu_chain(*shape, dtype=torch.float32):
    """gelu(x * scale + bias) + x, with scale and bias along the last dimension."""
    k = Hand(shape, name="gelu_chain")
    x, s, b = (
        k.read("x", shape, dtype),
        k.read("scale", shape[-1:], dtype),
        k.read("bias", shape[-1:], dtype),
    )
    f32 = torch.float32

    def up(ops, view, index):
        return ops.to_dtype(view.load(ops, index), f32)

    t = k.point(
        "scaled", lambda ops, i: ops.add(ops.mul(up(ops, x, i), up(ops, s, i)), up(ops, b, i))
    )

    def gelu(ops, i):
        v = t.load(ops, i)
        inner = ops.add(ops.erf(ops.mul(v, ops.constant(0.5**0.5, f32))), ops.constant(1.0, f32))
        return ops.mul(ops.mul(v, ops.constant(0.5, f32)), inner)

    g = k.point("gelu", gelu)
    k.point(
        "out",
        lambda ops, i: ops.to_dtype(ops.add(g.load(ops, i), up(ops, x, i)), dtype),
        store=True,
        dtype=dtype,
    )
    return k.build()
