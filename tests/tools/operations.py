"""One kernel that stores the result of every operation of `lowering.ops`, and what torch says to it."""

from __future__ import annotations

import torch
from hand_kernels import Hand

from course_lib.lowering.ops import BINARY, UNARY

FLOAT_ONLY = set(
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
    "erf erfc sigmoid truediv atan2".split()
)
INTEGER_ONLY = {"bitwise_not", "bitwise_and", "bitwise_or", "bitwise_xor"}
BOOLEAN = set("eq ne lt le gt ge logical_and logical_or logical_not".split())
ON_BOOL = set(
    "logical_and logical_or logical_not eq ne bitwise_and bitwise_or bitwise_xor bitwise_not maximum minimum".split()
)

TORCH = {
    "truediv": torch.true_divide, "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"), "mod": torch.remainder,
}  # fmt: skip


def operations(dtype):
    """The names that make sense for values of this dtype."""
    names = [*UNARY, *BINARY]
    if dtype == torch.bool:
        return [n for n in names if n in ON_BOOL]
    if dtype.is_floating_point:
        return [n for n in names if n not in INTEGER_ONLY]
    return [n for n in names if n not in FLOAT_ONLY]


def kernel_of_all(dtype, n, names=None):
    """(kernel, buffers): each operation on x (and y), stored in a buffer of its name."""
    k = Hand([n])
    x, y = k.read("x", [n], dtype), k.read("y", [n], dtype)
    for name in names or operations(dtype):
        operands = (x,) if name in UNARY else (x, y)
        k.point(
            f"{name}_",
            lambda ops, i, name=name, operands=operands: getattr(ops, name)(
                *(v.load(ops, i) for v in operands)
            ),
            store=True,
            dtype=torch.bool if name in BOOLEAN else dtype,
        )
    return k.build()


def expected(name, x, y):
    """What torch computes."""
    function = TORCH.get(name) or getattr(torch, name)
    return function(x) if name in UNARY else function(x, y)


def eager_is_odd(name, x, y):
    """Where torch's own vector code overflows early (sinh, cosh of 89) or gives NaN (remainder by a number that small)."""
    if name in ("sinh", "cosh"):
        return x.abs() > 88
    if name in ("mod", "fmod"):
        return y.abs() <= torch.finfo(y.dtype).tiny
    return torch.zeros_like(x, dtype=torch.bool)


def samples(dtype):
    """Pairs of operands: special values in every combination, then random ones."""
    generator = torch.Generator().manual_seed(0)
    if dtype == torch.bool:
        special = torch.tensor([False, True])
    elif dtype.is_floating_point:
        tiny = torch.finfo(dtype).tiny
        special = torch.tensor(
            [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 10.0, 88.0, 89.0, -87.0, -104.0, 1e30, -1e30,
             tiny, -tiny, tiny / 4, float("inf"), float("-inf"), float("nan")],
            dtype=dtype,
        )  # fmt: skip
    else:
        info = torch.iinfo(dtype)
        special = torch.tensor(
            [0, 1, 2, 3, 7, 100, info.max, info.min, *([-1, -2, -7] if info.min else [5])],
            dtype=dtype,
        )
    x, y = (t.reshape(-1) for t in torch.meshgrid(special, special, indexing="ij"))
    if dtype.is_floating_point:
        more = [
            torch.randn(2000, generator=generator, dtype=torch.float64).to(dtype) * scale
            for scale in (1, 5, 50)
        ]
        x, y = torch.cat([x, *more]), torch.cat([y, *(m.flip(0) for m in more)])
    return x.contiguous(), y.contiguous()
