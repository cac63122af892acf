"""Programs that need no graph break: `fullgraph=True` takes them, the values are eager's, and what they read is guarded."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import course_lib as cl

table, place = torch.arange(5.0), torch.tensor(2)
rows = torch.arange(6.0).reshape(3, 2)
one, scale, flag = np.int64(3), np.float32(0.5), np.bool_(True)
array, integers = np.arange(3.0), np.arange(3)
log = logging.getLogger("course_lib.tests")
signature = inspect.signature(lambda a, *, b=2: 0)
traced = torch.fx.symbolic_trace(nn.Sequential(nn.Linear(3, 3), nn.ReLU()))
local = threading.local()
local.scale, local.name = 2, "two"


class Named:
    first = 1


def logs(x):
    log.debug("not written: %s", 1)
    log.log(5, "nor this")
    return x + (2 if log.isEnabledFor(logging.DEBUG) else 1)


def detached(x):
    y = x * 2
    y.detach_()
    return y + x


def detached_after_use(x):
    y = x * 2
    z = y.exp()
    return z + y.detach_()


PROGRAMS: dict[str, Callable[..., Any]] = {
    "equal to itself": lambda x: x + 1 if torch.equal(x, x) else x,
    "of other dimensions": lambda x: x + 1 if torch.equal(x, x[None]) else x,
    "numpy.sqrt of a number": lambda x: x / np.sqrt(8),
    "numpy on the left": lambda x: np.sqrt(8) * x,
    "numpy.prod of sizes": lambda x: x * np.prod(x.shape),
    "numpy.log2 and round": lambda x: x + int(np.ceil(np.log2(x.shape[0]))),
    "a NumPy integer": lambda x: x * one,
    "a NumPy float": lambda x: x * scale,
    "a NumPy number as an argument": lambda x: x.clamp(max=scale).sum(),
    "a NumPy bool": lambda x: x * 2 if flag else x,
    "as_tensor of an array": lambda x: x + torch.as_tensor(array),
    "from_numpy": lambda x: x + torch.from_numpy(integers),
    "tensor of an array": lambda x: x * torch.tensor(array),
    "as_tensor in another dtype": lambda x: x + torch.as_tensor(array, dtype=torch.float32),
    "logging": logs,
    "detach_": detached,
    "detach_ later": detached_after_use,
    "sizes from arange": lambda x: x.sum(torch.arange(0, x.dim()).tolist()),
    "an item of a constant": lambda x: x + torch.tensor([1, 2, 3])[1:].sum().numel(),
    "linspace as numbers": lambda x: x * sum(torch.linspace(0, 1, 3).tolist()),
    "indexed by a tensor": lambda x: x * table[place],
    "a row by a tensor": lambda x: x[:2] * rows[place],
    "a computed index": lambda x: x + table[x.long().sum() % 5],
    "a signature": lambda x: x + len(signature.parameters),
    "names in a signature": lambda x: x + ("b" in signature.parameters),
    "an FX module": lambda x: traced(x) + 1,
    "dir of a class": lambda x: x + ("first" in dir(Named)),
    "thread-local data": lambda x: x * local.scale + len(local.name),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_break_is_needed(name: str):
    program = PROGRAMS[name]
    compiled = cl.compile(program, fullgraph=True)

    for x in (torch.ones(3), torch.tensor([0.5, -1.0, 2.0])):
        torch.testing.assert_close(compiled(x), program(x))


@pytest.mark.parametrize("name", ["detach_", "detach_ later", "indexed by a tensor"])
def test_gradients_are_eagers(name: str):
    found = []
    for run in (PROGRAMS[name], cl.compile(PROGRAMS[name], fullgraph=True)):
        x = torch.ones(3, requires_grad=True)
        run(x).sum().backward()
        found.append(x.grad)
    torch.testing.assert_close(found[1], found[0])


def check_again(program: Callable[..., Any], compiled: Callable[..., Any]) -> None:
    x = torch.ones(3)
    torch.testing.assert_close(compiled(x), program(x))


def test_what_was_read_is_looked_at_again(monkeypatch):
    """Another NumPy number, another array, another level of the logger, another attribute."""
    compiled = {name: cl.compile(program) for name, program in PROGRAMS.items()}
    for name, program in PROGRAMS.items():
        check_again(program, compiled[name])

    monkeypatch.setitem(globals(), "one", np.int64(4))
    monkeypatch.setitem(globals(), "scale", np.float32(0.25))
    monkeypatch.setitem(globals(), "array", np.arange(3.0) + 1)
    monkeypatch.setattr(local, "scale", 5)
    monkeypatch.setattr(Named, "first", 1)
    monkeypatch.setitem(globals(), "signature", inspect.signature(lambda b: 0))
    monkeypatch.setitem(globals(), "place", torch.tensor(-1))
    integers[0] = 7  # the memory is the array's

    try:
        for name, program in PROGRAMS.items():
            check_again(program, compiled[name])
    finally:
        integers[0] = 0


def test_a_logger_that_is_switched_on_writes(caplog):
    compiled = cl.compile(logs)
    assert compiled(torch.ones(1)).item() == 2
    with caplog.at_level(logging.DEBUG, "course_lib.tests"):
        assert compiled(torch.ones(1)).item() == 3
    assert [record.message for record in caplog.records] == ["not written: 1"]


def test_a_thread_sees_its_own_data():
    program = PROGRAMS["thread-local data"]
    compiled = cl.compile(program)
    found = []

    def other():
        local.scale, local.name = 10, "other"
        found.append(compiled(torch.ones(1)).item())

    assert compiled(torch.ones(1)).item() == 5
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found == [15]


def test_an_index_outside_raises_as_in_eager():
    program = lambda x: x + table[place + 10]
    with pytest.raises(IndexError):
        program(torch.ones(1))
    with pytest.raises(IndexError):
        cl.compile(program)(torch.ones(1))


def written_through(x, index):
    row = x[index]
    row.add_(1)
    return x.sum() + row


def written_in_part(x, index):
    x[index][0] = 7
    return x * 2


def given_back(x, index):
    return x[index]


@pytest.mark.parametrize("program", [written_through, written_in_part, given_back])
def test_an_element_is_still_a_view_to_the_program(program):
    found = []
    for run in (program, cl.compile(program)):
        x = torch.arange(6.0).reshape(3, 2)
        result = run(x, torch.tensor(1))
        result.mul_(2)
        found.append((x, result))
    torch.testing.assert_close(found[1], found[0])
