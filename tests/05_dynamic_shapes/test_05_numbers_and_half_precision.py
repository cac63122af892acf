"""A number that changes at every call is an input of the kernels, whatever the dtype of the tensors, and in eager's order."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl
from course_lib import events

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
PROGRAMS = {
    "times": lambda x, y, s: x * s,
    "plus": lambda x, y, s: x + s,
    "minus": lambda x, y, s: x - s,
    "from": lambda x, y, s: s - x,
    "over": lambda x, y, s: x / s,
    "divided by": lambda x, y, s: s / x,
    "add with alpha": lambda x, y, s: torch.add(x, y, alpha=s),
    "sub with alpha": lambda x, y, s: x.sub(y, alpha=s),
    "in place": lambda x, y, s: (x * 1).mul_(s).add_(s),
    "a chain": lambda x, y, s: (x * s + y) / (1 - 0.9**s) - s,
    "beside a size": lambda x, y, s: x * s / x.shape[0],
    "a number of no dimensions": lambda x, y, s: x.sum() * s,
}
VALUES = [0.3, 1.7, 2.9, -0.77, 1e-3, 123.456, 3.0, 0.1]


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_result_is_eagers(name, dtype, backend):
    program = PROGRAMS[name]
    compiled = cl.compile(program, backend=backend)
    torch.manual_seed(0)
    for value in VALUES:
        x, y = torch.randn(2, 96).to(
            dtype
        )  # no rest after eager's vectors, which it rounds otherwise
        ends = []
        for function in (program, compiled):
            leaf = x.clone().requires_grad_()
            result = function(leaf, y, value)
            result.float().square().sum().backward()
            ends.append((result.detach(), leaf.grad))
        # the same roundings: not even the last digit of a half differs, but where eager adds in another order, or by `fma`
        is_exact = dtype.itemsize == 2 and not name.endswith(("dimensions", "alpha"))
        exact = {"rtol": 0, "atol": 0} if is_exact else {}
        torch.testing.assert_close(ends[1][0], ends[0][0], equal_nan=True, **exact)
        torch.testing.assert_close(ends[1][1], ends[0][1], equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_new_number_builds_nothing(dtype):
    compiled = cl.compile(lambda x, s: (x * s + s) / s)
    x = torch.randn(100).to(dtype)
    for value in VALUES[:3]:
        compiled(x, value)
    seen = []
    with events.listener(seen.append):
        for value in VALUES[3:]:
            compiled(x, value)
    assert not [event for event in seen if isinstance(event, events.KernelsBuilt)]
