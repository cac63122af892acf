"""Results whose conjugation or negation is still to be done: they show something else than what lies in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import course_lib as cl


def plain() -> Tensor:
    return torch.tensor([[1 + 2j, 3 - 4j, 0.5j], [-1j, 2, complex(-0.0, 0.0)]])


def lazily_conjugated() -> Tensor:
    return plain().conj()


def lazily_negated() -> Tensor:
    return torch._neg_view(plain())


def both() -> Tensor:
    return torch._neg_view(plain().conj())


def real_and_negated() -> Tensor:
    return plain().conj().imag


INPUTS = [plain, lazily_conjugated, lazily_negated, both, real_and_negated]

PROGRAMS = {
    "conj": lambda x: x.conj(),
    "conj of a value": lambda x: (x * 2).conj(),
    "twice": lambda x: x.conj().conj(),
    "a value twice": lambda x: (x * 2).conj().conj(),
    "mH": lambda x: x.mH,
    "H of a value": lambda x: (x + 1).H,
    "adjoint": lambda x: x.adjoint(),
    "imag": lambda x: x.conj().imag if x.is_complex() else x,
    "imag of a value": lambda x: (x * 2j).conj().imag,
    "real": lambda x: (x * 2j).conj().real,
    "a part": lambda x: x.conj()[1:],
    "a part of a value": lambda x: (x * 2)[1:].conj(),
    "part of a conjugate": lambda x: (x * 2).conj()[:, 1:],
    "transposed": lambda x: x.conj().T,
    "several": lambda x: (x.conj(), x.conj().real, x * 2),
    "value and conjugate": lambda x: two_views(x * 2),
    "clone": lambda x: x.conj().clone(),
    "contiguous": lambda x: x.conj().contiguous(),
    "contiguous, transposed": lambda x: x.conj().T.contiguous(),
    "resolved": lambda x: x.conj().resolve_conj(),
    "resolved, negated": lambda x: torch._neg_view(x).resolve_neg(),
    "negated": lambda x: torch._neg_view(x),
    "negated value": lambda x: torch._neg_view(x * 3),
    "negated twice": lambda x: torch._neg_view(torch._neg_view(x * 3)),
    "negated and conjugated": lambda x: torch._neg_view((x * 3).conj()),
    "sum": lambda x: x.conj().sum(),
    "product": lambda x: x.conj() @ x.mT,
    "to another dtype": lambda x: x.conj().to(torch.complex128),
    "cat": lambda x: torch.cat([x.conj(), x.conj()]),
    "chunks": lambda x: x.conj().chunk(3),
    "chunks of a value": lambda x: (x * 2).conj().chunk(3),
    "unbound": lambda x: (x * 2).conj().unbind(),
    "zeros like it": lambda x: torch.zeros_like(x.conj()),
    "ones like it": lambda x: torch.ones_like(x.mH),
    "physical": lambda x: x.conj_physical(),
    "where": lambda x: torch.where(x.real > 0, x.conj(), x),
    "asked": lambda x: x.conj() if x.is_conj() else x + 1,
    "asked inside": lambda x: x * 2 if x.conj().is_conj() else x * 3,
    "no grad": lambda x: without_grad(x),
    "expanded": lambda x: x.conj().unsqueeze(0).expand(2, 2, 3),
    "an expanded value": lambda x: (x * 2).conj().unsqueeze(0).expand(2, 2, 3),
    "beside other results": lambda x: (x + 1, (x * 2).conj(), x.conj(), x),
    "the same twice": lambda x: twice(x.conj()),
}


def two_views(y: Tensor) -> tuple[Tensor, ...]:
    return y, y.conj(), torch._neg_view(y), y[0].conj()


def twice(y: Tensor) -> tuple[Tensor, Tensor]:
    return y, y


def without_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return (x * 2).conj()


def looks(value: Any) -> Any:
    """All that a caller may ask of a result, but the values."""
    if not isinstance(value, Tensor):
        return [looks(each) for each in value]
    bits = value.is_conj(), value.is_neg()
    return *bits, value.dtype, value.shape, value.stride(), value.requires_grad


def numbers(value: Any) -> Any:
    """The numbers of tensors, with the signs of zeros."""
    if isinstance(value, Tensor):
        return value.tolist()
    return [numbers(each) for each in value]


def without_signs_of_zeros(value: Tensor) -> Any:
    """A gradient's numbers. The gradient of a view is put into zeros, which may turn -0.0 to 0.0."""
    return (
        (torch.view_as_real(value.resolve_conj()) if value.is_complex() else value)
        .add(0.0)
        .tolist()
    )


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for each in value for tensor in flat(each)]


def run(function: Any, make: Any, requires_grad: bool, write: bool) -> list[Any]:
    """What the caller sees: results, their gradients, and what a write to a result changes."""
    x = make()
    leaf = x.detach().requires_grad_(requires_grad)
    result = function(leaf)
    seen = [looks(result), numbers(result)]

    if write:
        with torch.no_grad():
            for tensor in flat(result):
                if 0 not in tensor.stride():
                    tensor.mul_(2).add_(1)
        seen += [numbers(result), numbers(x)]
    elif any(tensor.requires_grad for tensor in flat(result)):
        loss = sum((t * t.detach()).abs().sum() for t in flat(result) if t.requires_grad)
        loss.backward()
        seen += [without_signs_of_zeros(leaf.grad)]
    return seen


# Eager refuses to write to one of several views that one operation gives, which is not ours to see.
SEVERAL_VIEWS = {"chunks", "chunks of a value", "unbound"}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_result_has_the_bits_of_eager(name, backend):
    function = PROGRAMS[name]
    ways = [(grad, write) for grad in (False, True) for write in (False, True)]
    # Kernels cost a second each, and what lies in an input is no matter of theirs.
    inputs = INPUTS[:1] if backend == "inductor" else INPUTS
    for make in inputs:
        if make is real_and_negated and name in ("several", "real", "where"):
            continue
        compiled = cl.compile(function, backend=backend)
        for requires_grad, write in ways:
            if name in SEVERAL_VIEWS and requires_grad and write:
                continue
            expected = answer_or_error(function, make, requires_grad, write)
            found = answer_or_error(compiled, make, requires_grad, write)
            assert str(found) == str(expected), (make.__name__, requires_grad, write)


def answer_or_error(function: Any, make: Any, requires_grad: bool, write: bool) -> Any:
    try:
        return run(function, make, requires_grad, write)
    except RuntimeError as error:
        return type(error)


def written_by_way_of_its_conjugate(x: Tensor) -> Tensor:
    x.conj().mul_(2j)
    return x


def written_and_returned(x: Tensor) -> Tensor:
    return x.conj().mul_(2j)


def a_value_written_by_way_of_its_conjugate(x: Tensor) -> Any:
    y = x * 2
    z = y.conj()
    z.add_(1j)
    return y, z


def written_by_way_of_its_negative(x: Tensor) -> Tensor:
    torch._neg_view(x).add_(1)
    return x.conj()


def copied_to_itself(x: Tensor) -> Tensor:
    return x.copy_(x.conj() * 1)


def imaginary_parts_written(x: Tensor) -> Tensor:
    x.imag.zero_()
    return x.conj()


def an_element_written(x: Tensor) -> Tensor:
    y = (x + 1).conj()
    y[0] = 0
    return y


WRITES = [
    written_by_way_of_its_conjugate,
    written_and_returned,
    a_value_written_by_way_of_its_conjugate,
    written_by_way_of_its_negative,
    copied_to_itself,
    imaginary_parts_written,
    an_element_written,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", WRITES)
def test_a_write_inside_of_the_program_keeps_the_bits(function, backend):
    compiled = cl.compile(function, backend=backend)
    for make in INPUTS[:1] if backend == "inductor" else INPUTS[:4]:
        seen = []
        for program in (function, compiled):
            x = make()
            results = flat(program(x))
            seen.append([(looks(tensor), numbers(tensor)) for tensor in (*results, x)])
        assert str(seen[1]) == str(seen[0]), make.__name__
