"""Random programs: eager, the loops, the kernels, and kernels fused without mercy agree.

`TIMES=50 pytest ...` tries 50 times as many, and others each time."""

from __future__ import annotations

import math
import os

import torch
from aten_graphs import agree
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.lowering import ExternKernel

TIMES = int(os.environ.get("TIMES", "1"))
SHAPES = [(4, 6), (6,), (4, 1), (1, 6), (2, 4, 6), (1, 1), ()]
DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.bool,
]


def value(shape, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(-3, 4, shape, generator=generator).to(dtype)
    return (torch.rand(shape, generator=generator) * 2 - 1).to(dtype)


def floating(x):
    return x if x.dtype.is_floating_point else x.to(torch.float32)


UNARY = {
    "abs": lambda x: x.abs() if x.dtype is not torch.bool else x,
    "sigmoid": lambda x: x.sigmoid(),
    "tanh": lambda x: x.tanh(),
    "exp": lambda x: floating(x).clamp(max=2).exp(),
    "scale": lambda x: x * 0.5 + 1,
    "relu": lambda x: x.relu() if x.dtype is not torch.bool else x,
    "gelu": lambda x: torch.nn.functional.gelu(floating(x)),
    "not": lambda x: x.logical_not(),
    "to half": lambda x: x.to(torch.float16),
    "to float": lambda x: x.to(torch.float32),
    "to int": lambda x: (x.clamp(-9, 9) if x.dtype is not torch.bool else x).to(torch.int32),
    "compare": lambda x: x > 0.25,
    "transpose": lambda x: x.transpose(0, -1) if x.dim() > 1 else x,
    "contiguous": lambda x: x.contiguous(),
    "flip": lambda x: x.flip(0) if x.dim() else x,
    "flatten": lambda x: x.reshape(-1),
    "fold": lambda x: x.reshape(2, -1) if x.numel() % 2 == 0 else x,
    "slice": lambda x: x[..., 1:] if x.dim() and x.shape[-1] > 1 else x,
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape) if x.dim() < 3 else x,
    "sum": lambda x: x.sum(-1, keepdim=True) * 0.1 if x.dim() else x,
    "sum first": lambda x: x.sum(0) * 0.1 if x.dim() else x,
    "mean": lambda x: floating(x).mean(),
    "amax": lambda x: x.amax(-1, keepdim=True) if x.dim() and x.shape[-1] else x,
    "argmax": lambda x: floating(x).argmax(-1) % 7 if x.dim() else x,
    "softmax": lambda x: floating(x).softmax(-1) if x.dim() else x,
    "layer norm": lambda x: (
        torch.nn.functional.layer_norm(x, x.shape[-1:])
        if x.dim() and x.dtype is torch.float32
        else x
    ),
    "var": lambda x: floating(x).var(-1, keepdim=True, correction=0) if x.dim() else x,
    "cumsum": lambda x: x.cumsum(0) * 0.1 if x.dim() else x,
    "tril": lambda x: x.tril() if x.dim() > 1 else x,
    "pad": lambda x: torch.nn.functional.pad(x, (1, 2)) if x.dim() else x,
}
BINARY = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sub": lambda x, y: x - y if torch.bool not in (x.dtype, y.dtype) else x,
    "div": lambda x, y: x / (y.abs() + 1 if y.dtype is not torch.bool else 2),
    "maximum": torch.maximum,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "lt": lambda x, y: x < y,
    "cat": lambda x, y: (
        torch.cat([x, y], -1)
        if x.dim() and y.dim() == x.dim() and x.shape[:-1] == y.shape[:-1]
        else x
    ),
    "matmul": lambda x, y: (
        x @ y.transpose(0, 1)
        if x.dim() == y.dim() == 2
        and x.shape[1] == y.shape[1]
        and x.dtype == y.dtype == torch.float32
        else x
    ),
}


@st.composite
def programs(draw):
    """Inputs, and steps: each takes values made before (by number) and makes one more."""
    count = draw(st.integers(1, 3))
    inputs = [(draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))) for _ in range(count)]
    steps = []
    for n in range(draw(st.integers(1, 9))):
        if draw(st.booleans()):
            steps.append(
                (draw(st.sampled_from(sorted(UNARY))), draw(st.integers(0, count + n - 1)), None)
            )
        else:
            two = draw(st.integers(0, count + n - 1)), draw(st.integers(0, count + n - 1))
            steps.append((draw(st.sampled_from(sorted(BINARY))), *two))
    outputs = draw(st.lists(st.integers(0, count + len(steps) - 1), max_size=2))
    return inputs, steps, outputs


def run(program, *tensors):
    """The program on tensors. A step that does not fit its operands passes the first on."""
    _, steps, outputs = program
    values = list(tensors)
    for name, first, second in steps:
        x = values[first]
        if second is None:
            values.append(UNARY[name](x))
            continue
        y = values[second]
        try:
            torch.broadcast_shapes(x.shape, y.shape)
        except RuntimeError:
            y = x
        values.append(BINARY[name](x, y))
    return [values[n] for n in {*outputs, len(values) - 1}]


@settings(max_examples=120 * TIMES, deadline=None, derandomize=TIMES == 1)
@given(programs(), st.integers(0, 1000))
def test_all_ways_of_running_a_program_agree(program, seed):
    tensors = [value(shape, dtype, seed + n) for n, (shape, dtype) in enumerate(program[0])]
    agree(lambda *inputs: run(program, *inputs), *tensors)


@settings(max_examples=40 * TIMES, deadline=None, derandomize=TIMES == 1)
@given(programs(), st.integers(0, 1000))
def test_also_on_inputs_that_do_not_lie_in_order(program, seed):
    tensors = []
    for n, (shape, dtype) in enumerate(program[0]):
        big = value([2 * size + 1 for size in reversed(shape)], dtype, seed + n)
        tensors.append(
            big[tuple(slice(1, 2 * size + 1, 2) for size in reversed(shape))].permute(
                list(range(len(shape)))[::-1]
            )
        )
    agree(lambda *inputs: run(program, *inputs), *tensors)


@settings(max_examples=40 * TIMES, deadline=None, derandomize=TIMES == 1)
@given(
    st.lists(
        st.sampled_from(
            ["scale", "gelu", "softmax", "layer norm", "sum", "amax", "transpose", "fold"]
        ),
        min_size=2,
        max_size=8,
    )
)
def test_chains_of_norms_and_reductions(chain):
    def f(x, y):
        for name in chain:
            x = UNARY[name](x)
            x = x + y if x.shape == y.shape else x
        return x

    graph = agree(f, torch.randn(6, 6), torch.randn(6, 6))
    assert not any(isinstance(node, ExternKernel) for node in graph.nodes)


def test_hostile_values():
    x = torch.tensor(
        [[math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-42], [3e38, -3e38, 1.0, -1.0, 0.5, 1e-30]]
    )
    agree(
        lambda x: (
            x.softmax(-1),
            (x * 2).sum(-1),
            x.amax(0) + x.amin(0),
            torch.nn.functional.gelu(x),
            x.sigmoid(),
        ),
        x,
    )
