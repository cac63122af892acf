"""Never silently wrong: programs compared with eager in everything that a caller could notice."""

import contextlib
import copy
import itertools

import pytest
import torch
from eager_variants import WithoutOneDNN
from programs import PROGRAMS
from torch.testing import assert_close

import course_lib as cl

TOLERANCE = {torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float32: 1e-4, torch.float64: 1e-10}


def run(function, args, grad):
    """What the call gives: (result, None) or (None, exception)."""
    torch.manual_seed(5)
    try:
        with contextlib.nullcontext() if grad else torch.no_grad():
            return function(*args), None
    except Exception as error:
        return None, error


def fresh(args):
    """A deep copy that keeps leaves that need gradients."""
    return tuple(
        a.detach().clone().requires_grad_()
        if getattr(a, "requires_grad", False)
        else copy.deepcopy(a)
        for a in args
    )


def same(ours, eager):
    """Values, types, dtypes, strides."""
    assert type(ours) is type(eager)
    if isinstance(eager, torch.Tensor):
        tolerance = TOLERANCE.get(eager.dtype, 0)
        assert_close(ours, eager, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
        assert ours.stride() == eager.stride() or eager.numel() <= 1
        assert ours.requires_grad == eager.requires_grad
    elif isinstance(eager, (list, tuple)):
        assert len(ours) == len(eager)
        for pair in zip(ours, eager, strict=True):
            same(*pair)
    elif isinstance(eager, dict):
        assert list(ours) == list(eager)
        same(list(ours.values()), list(eager.values()))
    elif hasattr(eager, "__dict__") and not callable(eager):
        same(vars(ours), vars(eager))
    else:
        assert ours == eager


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from tensors(item)


def sharing(*values):
    """Which pairs of tensors are one object, and which share memory."""
    found = list(tensors(values))
    return [
        (
            a is b,
            a.numel()
            and b.numel()
            and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr(),
        )
        for a, b in itertools.combinations(found, 2)
    ]


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_eager(name, grad):
    function, make = PROGRAMS[name]
    compiled = cl.compile(function)
    for _ in range(2):
        for_eager = make()
        for_ours = (
            for_eager if for_eager[0] is for_eager[-1] and len(for_eager) > 1 else fresh(for_eager)
        )
        if for_ours is for_eager:  # one tensor twice must stay one tensor
            for_ours = (for_eager[0].clone(),) * 2
        with WithoutOneDNN():
            eager, error = run(function, for_eager, grad)
        ours, our_error = run(compiled, for_ours, grad)
        assert type(our_error) is type(error), our_error
        same((ours, for_ours), (eager, for_eager))
        assert sharing(ours, for_ours) == sharing(eager, for_eager)
