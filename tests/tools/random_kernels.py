"""Random kernels and random inputs for them.

The makers take a `random.Random`, so that a test can draw one from hypothesis and a long hunt can count seeds.
"""

from __future__ import annotations

import math
from random import Random

import torch
from hand_kernels import Hand, contiguous

SIZES = [0, 1, 2, 3, 7, 8, 17, 33, 64, 65]
LONG = [1, 3, 17, 64, 127, 1023, 4097]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
INTEGERS = [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8]
SPECIAL = [
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.0,
    0.0,
    1e-40,
    -1e-45,
    3e38,
    -3e38,
    0.5,
    -0.5,
    1.0,
    65504.0,
]

INEXACT = set("sigmoid tanh erf exp".split())
"""Their last digit is each engine's own."""
JUMPS = set("floor ceil trunc round".split())
"""A last digit decides what these give, and what a comparison does: they are not put on what is inexact."""
SAFE_UNARY = "neg abs sqrt floor ceil trunc round sigmoid tanh erf exp relu reciprocal".split()
BINARY = "add sub mul truediv maximum minimum".split()
COMPARE = "eq ne lt le gt ge".split()


def fill(rng: Random, shape, dtype, special=True):
    """A tensor of random values; floats hold a few special ones."""
    seed = rng.randrange(2**31)
    generator = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return torch.randint(
            max(info.min, -100), min(info.max, 100) + 1, shape, generator=generator
        ).to(dtype)
    t = torch.randn(shape, generator=generator, dtype=torch.float64) * rng.choice([0.01, 1.0, 20.0])
    if special and t.numel():
        for _ in range(rng.randrange(4)):
            t.view(-1)[rng.randrange(t.numel())] = rng.choice(SPECIAL)
    return t.to(dtype)


def read(rng: Random, k, name, shape, dtype, tensors, special):
    """An operand: laid out as is, transposed, broadcast along some dimension, or with gaps."""
    layout = rng.choice(["plain", "plain", "transposed", "broadcast", "gaps"])
    if layout == "broadcast" and shape:
        keep = [rng.random() < 0.5 for _ in shape]
        small = [n if yes else 1 for n, yes in zip(shape, keep)]
        tensors[name] = fill(rng, small, dtype, special)
        return k.read(name, small, dtype)
    if layout == "transposed" and len(shape) > 1:
        tensors[name] = fill(rng, shape[::-1], dtype, special).permute(*reversed(range(len(shape))))
    elif layout == "gaps" and shape:
        tensors[name] = fill(rng, [*shape[:-1], 2 * shape[-1]], dtype, special)[..., ::2]
    else:
        tensors[name] = fill(rng, shape, dtype, special)
    return k.read(
        name, shape, dtype, stride=tensors[name].stride() if 0 not in shape else contiguous(shape)
    )


def unary(op, value):
    if op == "relu":
        return lambda ops, x: ops.maximum(x, ops.constant(0.0, value))
    return lambda ops, x: getattr(ops, op)(x)


def pointwise_kernels(
    rng: Random, dtypes=FLOATS, special=True, unary_ops=SAFE_UNARY, sizes=SIZES, max_rank=3
):
    """(kernel, buffers, tensors): a chain of one to five operations over one to three operands."""
    shape = [rng.choice(sizes) for _ in range(rng.randint(0, max_rank))]
    if math.prod(shape) > 40_000:
        shape = shape[:1]
    dtype = rng.choice(dtypes)
    compute = torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
    k, tensors = Hand(shape), {}
    values, exact = [], []
    for n in range(rng.randint(1, 3)):
        view = read(rng, k, f"x{n}", shape, dtype, tensors, special)
        values.append(lambda ops, i, view=view: ops.to_dtype(view.load(ops, i), compute))
        exact.append(True)

    for n in range(rng.randint(1, 5)):
        kind = rng.choice(["unary", "binary", "binary", "where", "constant"])
        places = [rng.randrange(len(values)) for _ in range(3)]
        a, b, c = (values[place] for place in places)
        a_exact, b_exact, c_exact = (exact[place] for place in places)

        if kind == "unary":
            name = rng.choice([op for op in unary_ops if a_exact or op not in JUMPS])
            op = unary(name, compute)
            inner = lambda ops, i, op=op, a=a: op(ops, a(ops, i))
            result_exact = a_exact and name not in INEXACT
        elif kind == "binary":
            op = rng.choice(BINARY)
            inner = lambda ops, i, op=op, a=a, b=b: getattr(ops, op)(a(ops, i), b(ops, i))
            result_exact = a_exact and b_exact
        elif kind == "where" and a_exact and b_exact:
            op = rng.choice(COMPARE)
            inner = lambda ops, i, op=op, a=a, b=b, c=c: ops.where(
                getattr(ops, op)(a(ops, i), b(ops, i)), c(ops, i), b(ops, i)
            )
            result_exact = b_exact and c_exact
        else:
            value = rng.choice([0.5, 2.0, -1.25, 3.0])
            inner = lambda ops, i, a=a, value=value: ops.mul(
                a(ops, i), ops.constant(value, compute)
            )
            result_exact = a_exact

        step = k.point(f"t{n}", inner, dtype=compute, store=rng.random() < 0.5)
        values.append(lambda ops, i, step=step: step.load(ops, i))
        exact.append(result_exact)
    last = values[-1]
    k.point("out", lambda ops, i: ops.to_dtype(last(ops, i), dtype), store=True, dtype=dtype)
    return *k.build(), tensors


def reduction_kernels(rng: Random, special=False, dtype=torch.float32, long=LONG):
    """(kernel, buffers, tensors): reductions over columns, row-level values of them, and what depends on both."""
    rows = [rng.choice([1, 2, 5, 17, 70]) for _ in range(rng.randint(0, 2))]
    columns = (
        [rng.choice(long)]
        if rng.random() < 0.5
        else [rng.choice([1, 3, 8, 33]), rng.choice([1, 5, 64])]
    )
    k, tensors = Hand(rows, columns), {}
    f32 = torch.float32
    view = read(rng, k, "x", [*rows, *columns], dtype, tensors, special)
    column, row = [lambda ops, i: ops.to_dtype(view.load(ops, i), f32)], []
    if rng.random() < 0.5:
        w = read(rng, k, "w", columns, f32, tensors, False)
        column.append(lambda ops, i: w.load(ops, i[len(rows) :]))
    inputs = list(column)  # exact: for what a last digit decides
    n_reductions = 0
    for n in range(rng.randint(1, 7)):
        kind = rng.choice(["reduce", "reduce", "point", "row"])
        store = rng.random() < 0.5
        if kind == "reduce":
            op = rng.choice(["sum", "max", "min", "argmax", "argmin", "any", "all"])
            a = rng.choice(column if op in ("sum", "max", "min") else inputs)
            # Divided by the number of columns, so that sums stay as large as what is summed.
            body = lambda ops, i, j, a=a, op=op: (
                ops.mul(a(ops, [*i, *j]), ops.constant(1 / math.prod(columns), f32)) if op == "sum"
                else ops.gt(a(ops, [*i, *j]), ops.constant(0.1, f32)) if op in ("any", "all")
                else a(ops, [*i, *j])
            )  # fmt: skip
            out = (
                torch.int64 if op.startswith("arg") else torch.bool if op in ("any", "all") else f32
            )
            step = k.reduce(f"r{n}", op, body, dtype=out, store=store or n == 0)
            n_reductions += 1
            if op in ("sum", "max", "min"):
                row.append(lambda ops, i, step=step: step.load(ops, i))
        elif kind == "row" and row:
            a, b = rng.choice(row), rng.choice(row)
            op = rng.choice(["add", "mul", "maximum"])
            step = k.row(
                f"s{n}",
                lambda ops, i, a=a, b=b, op=op: ops.tanh(getattr(ops, op)(a(ops, i), b(ops, i))),
                store=store,
            )
            row.append(lambda ops, i, step=step: step.load(ops, i))
        else:
            a, b = rng.choice(column), rng.choice(column)
            r = rng.choice(row) if row else None
            op = rng.choice(["sigmoid", "tanh", "neg", "abs"])

            def inner(ops, i, a=a, b=b, r=r, op=op):
                value = ops.add(a(ops, i), b(ops, i))
                value = ops.sub(value, r(ops, i[: len(rows)])) if r else value
                return getattr(ops, op)(value)

            step = k.point(f"p{n}", inner, store=store)
            column.append(lambda ops, i, step=step: step.load(ops, i))
    if not k.stores:
        k.stores.add(k.steps[-1].buffer.name)
    return *k.build(), tensors
