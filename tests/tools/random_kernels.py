"""Random kernels and random inputs for them, as hypothesis strategies."""

from __future__ import annotations

import math

import torch
from hand_kernels import Hand, contiguous
from hypothesis import strategies as st

SIZES = st.sampled_from([0, 1, 2, 3, 7, 8, 17, 33, 64, 65])
LONG = st.sampled_from([1, 3, 17, 64, 127, 1023, 4097])
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
SPECIAL = [float("nan"), float("inf"), float("-inf"), -0.0, 0.0, 1e-40, -1e-45, 3e38, -3e38, 0.5, -0.5, 1.0, 65504.0]

SAFE_UNARY = "neg abs sqrt floor ceil trunc round sign sigmoid tanh erf exp relu reciprocal".split()
BINARY = "add sub mul truediv maximum minimum".split()
COMPARE = "eq ne lt le gt ge".split()


def fill(draw, shape, dtype, special=True):
    """A tensor of random values; floats hold a few special ones."""
    seed = draw(st.integers(0, 2**31))
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return torch.randint(max(info.min, -100), min(info.max, 100) + 1, shape, generator=generator).to(dtype)
    t = torch.randn(shape, generator=generator, dtype=torch.float64) * draw(st.sampled_from([0.01, 1.0, 20.0]))
    if special and t.numel():
        for _ in range(draw(st.integers(0, 3))):
            t.view(-1)[draw(st.integers(0, t.numel() - 1))] = draw(st.sampled_from(SPECIAL))
    return t.to(dtype)


def read(draw, k, name, shape, dtype, tensors, special):
    """An operand: laid out as is, transposed, broadcast along some dimension, or with gaps."""
    layout = draw(st.sampled_from(["plain", "plain", "transposed", "broadcast", "gaps"]))
    if layout == "broadcast" and shape:
        keep = [draw(st.booleans()) for _ in shape]
        small = [n if yes else 1 for n, yes in zip(shape, keep)]
        tensors[name] = fill(draw, small, dtype, special)
        return k.read(name, small, dtype)
    if layout == "transposed" and len(shape) > 1:
        tensors[name] = fill(draw, shape[::-1], dtype, special).permute(*reversed(range(len(shape))))
    elif layout == "gaps" and shape:
        tensors[name] = fill(draw, [*shape[:-1], 2 * shape[-1]], dtype, special)[..., ::2]
    else:
        tensors[name] = fill(draw, shape, dtype, special)
    return k.read(name, shape, dtype, stride=tensors[name].stride() if 0 not in shape else contiguous(shape))


def unary(op, value):
    if op == "relu":
        return lambda ops, x: ops.maximum(x, ops.constant(0.0, value))
    return lambda ops, x: getattr(ops, op)(x)


@st.composite
def pointwise_kernels(draw, dtypes=FLOATS, special=True, unary_ops=SAFE_UNARY, sizes=SIZES, max_rank=3):
    """(kernel, buffers, tensors): a chain of one to five operations over one to three operands."""
    shape = draw(st.lists(sizes, min_size=0, max_size=max_rank))
    if math.prod(shape) > 40_000:
        shape = shape[:1]
    dtype = draw(st.sampled_from(dtypes))
    compute = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    k, tensors = Hand(shape), {}
    values = []
    for n in range(draw(st.integers(1, 3))):
        view = read(draw, k, f"x{n}", shape, dtype, tensors, special)
        values.append(lambda ops, i, view=view: ops.to_dtype(view.load(ops, i), compute))
    for n in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["unary", "binary", "binary", "where", "constant"]))
        a, b, c = (draw(st.sampled_from(values)) for _ in range(3))
        if kind == "unary":
            op = unary(draw(st.sampled_from(unary_ops)), compute)
            inner = lambda ops, i, op=op, a=a: op(ops, a(ops, i))
        elif kind == "binary":
            op = draw(st.sampled_from(BINARY))
            inner = lambda ops, i, op=op, a=a, b=b: getattr(ops, op)(a(ops, i), b(ops, i))
        elif kind == "where":
            op = draw(st.sampled_from(COMPARE))
            inner = lambda ops, i, op=op, a=a, b=b, c=c: ops.where(
                getattr(ops, op)(a(ops, i), b(ops, i)), c(ops, i), b(ops, i)
            )
        else:
            value = draw(st.sampled_from([0.5, 2.0, -1.25, 3.0]))
            inner = lambda ops, i, a=a, value=value: ops.mul(a(ops, i), ops.constant(value, compute))
        step = k.point(f"t{n}", inner, dtype=compute, store=draw(st.booleans()))
        values.append(lambda ops, i, step=step: step.load(ops, i))
    last = values[-1]
    k.point("out", lambda ops, i: ops.to_dtype(last(ops, i), dtype), store=True, dtype=dtype)
    return *k.build(), tensors


@st.composite
def reduction_kernels(draw, special=False, dtype=torch.float32, long=LONG):
    """(kernel, buffers, tensors): reductions over columns, row-level values of them, and what depends on both."""
    rows = draw(st.lists(st.sampled_from([1, 2, 5, 17, 70]), min_size=0, max_size=2))
    columns = [draw(long)] if draw(st.booleans()) else [draw(st.sampled_from([1, 3, 8, 33])), draw(st.sampled_from([1, 5, 64]))]
    k, tensors = Hand(rows, columns), {}
    f32 = torch.float32
    view = read(draw, k, "x", [*rows, *columns], dtype, tensors, special)
    column, row = [lambda ops, i: ops.to_dtype(view.load(ops, i), f32)], []
    if draw(st.booleans()):
        w = read(draw, k, "w", columns, f32, tensors, False)
        column.append(lambda ops, i: w.load(ops, i[len(rows) :]))
    n_reductions = 0
    for n in range(draw(st.integers(1, 7))):
        kind = draw(st.sampled_from(["reduce", "reduce", "point", "row"]))
        store = draw(st.booleans())
        if kind == "reduce":
            op = draw(st.sampled_from(["sum", "max", "min", "argmax", "argmin", "any", "all"]))
            a = draw(st.sampled_from(column))
            # Divided by the number of columns, so that sums stay as large as what is summed.
            body = lambda ops, i, j, a=a, op=op: (
                ops.mul(a(ops, [*i, *j]), ops.constant(1 / math.prod(columns), f32)) if op == "sum"
                else ops.gt(a(ops, [*i, *j]), ops.constant(0.1, f32)) if op in ("any", "all")
                else a(ops, [*i, *j])
            )  # fmt: skip
            out = torch.int64 if op.startswith("arg") else torch.bool if op in ("any", "all") else f32
            step = k.reduce(f"r{n}", op, body, dtype=out, store=store or n == 0)
            n_reductions += 1
            if op in ("sum", "max", "min"):
                row.append(lambda ops, i, step=step: step.load(ops, i))
        elif kind == "row" and row:
            a, b = draw(st.sampled_from(row)), draw(st.sampled_from(row))
            op = draw(st.sampled_from(["add", "mul", "maximum"]))
            step = k.row(f"s{n}", lambda ops, i, a=a, b=b, op=op: ops.tanh(getattr(ops, op)(a(ops, i), b(ops, i))), store=store)
            row.append(lambda ops, i, step=step: step.load(ops, i))
        else:
            a, b = draw(st.sampled_from(column)), draw(st.sampled_from(column))
            r = draw(st.sampled_from(row)) if row else None
            op = draw(st.sampled_from(["sigmoid", "tanh", "neg", "abs"]))

            def inner(ops, i, a=a, b=b, r=r, op=op):
                value = ops.add(a(ops, i), b(ops, i))
                value = ops.sub(value, r(ops, i[: len(rows)])) if r else value
                return getattr(ops, op)(value)

            step = k.point(f"p{n}", inner, store=store)
            column.append(lambda ops, i, step=step: step.load(ops, i))
    if not k.stores:
        k.stores.add(k.steps[-1].buffer.name)
    return *k.build(), tensors
