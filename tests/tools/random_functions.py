"""Random functions of floating tensors, without writes or gradients: for Triton, and for kernels under other settings."""

from __future__ import annotations

from random import Random

import torch
import torch.nn.functional as F

UNARY = [
    torch.relu, torch.sigmoid, torch.tanh, torch.exp, torch.abs, torch.neg, F.gelu, F.silu, torch.sin,
    lambda x: x.abs().sqrt(), lambda x: x * 1.5 + 0.25, lambda x: (x * x).log1p(), lambda x: x.clamp(-1, 1), torch.round,
]  # fmt: skip
BINARY = [
    torch.add,
    torch.sub,
    torch.mul,
    torch.maximum,
    torch.minimum,
    lambda a, b: a / (b.abs() + 1),
]
REDUCE = [torch.sum, torch.mean, torch.amax, torch.amin]


def shapes(rng: Random) -> tuple[int, ...]:
    return tuple(rng.choice([1, 2, 3, 5, 8, 17]) for _ in range(rng.randint(1, 3)))


def random_function(rng: Random):
    """(function, inputs). The function draws its operations from a seed, so it does the same at every call."""
    seed = rng.randrange(2**31)
    dtype = rng.choice([torch.float32, torch.float32, torch.float32, torch.float64])
    generator = torch.Generator().manual_seed(seed)
    inputs = [
        torch.randn(shapes(rng), generator=generator, dtype=dtype) for _ in range(rng.randint(1, 3))
    ]
    if rng.random() < 0.3:
        inputs = [t.transpose(0, -1) for t in inputs]
    steps = rng.randint(1, 9)

    def function(*tensors):
        rng = Random(seed)
        values = list(tensors)
        for _ in range(steps):
            values.append(step(rng, values))
        outputs = [values[-1], *(v for v in values[:-1] if rng.random() < 0.15)]
        return tuple(outputs)

    return function, inputs


def step(rng: Random, values):
    x = rng.choice(values[-4:])
    kind = rng.choice(
        "unary unary unary binary binary binary reduce reduce view view norm where index cat cast matmul".split()
    )
    if kind == "unary":
        return rng.choice(UNARY)(x)
    if kind == "binary":
        fits = [v for v in values if broadcastable(v.shape, x.shape)]
        return rng.choice(BINARY)(x, rng.choice(fits))
    if x.ndim == 0:
        return x + 1
    d = rng.randrange(x.ndim)
    if kind == "reduce":
        dims = rng.choice([[d], [d], list(range(x.ndim))])
        return rng.choice(REDUCE)(x, dims, keepdim=rng.random() < 0.5)
    if kind == "view":
        view = rng.choice(
            ["transpose", "slice", "unsqueeze", "reshape", "expand", "flip", "select"]
        )
        if view == "transpose":
            return x.transpose(0, d)
        if view == "slice":
            return x.narrow(d, 0, max(1, x.shape[d] // 2)) if rng.random() < 0.5 else x[::2]
        if view == "unsqueeze":
            return x.unsqueeze(d) if x.ndim < 4 else x
        if view == "reshape":
            return x.reshape(-1)
        if view == "expand":
            return x.unsqueeze(0).expand(3, *x.shape) if x.ndim < 4 else x
        return x.flip(d) if view == "flip" else x.select(d, 0)
    if kind == "norm":
        if rng.random() < 0.5:
            return F.softmax(x, d)
        return F.layer_norm(x, x.shape[-1:]) if x.shape[-1] > 1 else F.log_softmax(x, -1)
    if kind == "where":
        return torch.where(x > 0.1, x, rng.choice([0.0, -1.0]))
    if kind == "index":
        index = (x.detach().argmax(d) % x.shape[0]).reshape(-1)[:4]
        return x.index_select(0, index)
    if kind == "cat":
        return torch.cat([x, x * 2], d)
    if kind == "cast":
        other = rng.choice([torch.float16, torch.bfloat16, torch.int32])
        return (
            (x.clamp(-100, 100) * 4).to(other).to(x.dtype)
            if other == torch.int32
            else x.to(other).to(x.dtype)
        )
    return x @ x.transpose(-1, -2) if x.ndim > 1 else x * x


def broadcastable(a, b) -> bool:
    return all(m == n or m == 1 or n == 1 for m, n in zip(reversed(a), reversed(b)))
