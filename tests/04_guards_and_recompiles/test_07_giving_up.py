"""What is left to eager: code whose entries are of no use, told once; what serves stays."""

from __future__ import annotations

import warnings

import pytest
import torch

import course_lib as cl
from course_lib import giving_up

ENOUGH = cl.config.recompile_limit + giving_up.PATIENCE + 2


class Count:
    """A backend that counts graphs, and runs of them."""

    def __init__(self) -> None:
        self.graphs = 0
        self.runs = 0

    def __call__(self, graph, example_inputs):
        self.graphs += 1

        def run(*inputs):
            self.runs += 1
            return graph.forward(*inputs)

        return run


def named(x, name):
    return (x + len(name)).relu()


@pytest.fixture
def told():
    """The warnings so far."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield lambda: [str(warning.message) for warning in caught]


def call_with_new_names(compiled, count, start=0):
    x = torch.randn(4)
    for n in range(start, start + count):
        assert torch.equal(compiled(x, f"name {n}"), named(x, f"name {n}"))


def test_code_that_is_never_the_same_again_is_left_to_eager_with_one_warning(told):
    backend = Count()
    compiled = cl.compile(named, backend=backend)
    call_with_new_names(compiled, 3 * ENOUGH)

    left = [text for text in told() if "left to eager" in text]
    assert len(left) == 1 and "make what changes a tensor" in left[0].lower()
    assert "64 calls fitted none of its 8 entries, and 0 fitted one" in left[0]

    # Nothing is checked any more, even for what had an entry.
    runs = backend.runs
    call_with_new_names(compiled, 1)
    assert backend.runs == runs


def test_entries_that_serve_one_call_in_four_stay(told):
    backend = Count()
    compiled = cl.compile(named, backend=backend)
    call_with_new_names(compiled, cl.config.recompile_limit)
    x = torch.randn(4)
    for n in range(ENOUGH):
        compiled(x, f"another {n}")
        compiled(x, "name 0")

    runs = backend.runs
    compiled(x, "name 0")
    assert backend.runs == runs + 1 and not any("left to eager" in text for text in told())


def test_a_higher_limit_compiles_again(told, monkeypatch):
    backend = Count()
    compiled = cl.compile(named, backend=backend)
    call_with_new_names(compiled, cl.config.recompile_limit + 5)
    assert backend.graphs == 8

    monkeypatch.setattr(cl.config, "recompile_limit", 10)
    call_with_new_names(compiled, 4, start=100)
    assert backend.graphs == 10


def test_reset_gives_another_chance(told):
    backend = Count()
    compiled = cl.compile(named, backend=backend)
    call_with_new_names(compiled, ENOUGH)
    cl.reset()
    graphs = backend.graphs
    call_with_new_names(compiled, 2)
    assert backend.graphs == graphs + 2


def test_a_function_with_nothing_to_compile_is_left_alone_at_the_limit(told):
    seen = {}

    def note(n):
        seen[n] = torch.get_num_threads()
        print(end="")

    def run(x):
        for _ in range(4):
            x = x + 1
            note(len(seen))
        return x

    compiled = cl.compile(run)
    for _ in range(8):
        assert torch.equal(compiled(torch.zeros(2)), torch.full((2,), 4.0))
    assert list(seen) == list(range(32))
    assert not any("left to eager" in text for text in told())


def test_what_a_function_calls_is_compiled_all_the_same(told):
    def inner(x):
        return x.sin().cos() + 1

    def outer(x, name):
        print(end="")
        return inner(x) * len(name)

    backend = Count()
    compiled = cl.compile(outer, backend=backend)
    x = torch.randn(4)
    for n in range(ENOUGH):
        compiled(x, f"name {n}")
    assert "outer" in str(compiled._course_compiler.left)

    graphs = backend.graphs
    assert torch.equal(compiled(x.double(), "new"), outer(x.double(), "new"))
    assert backend.graphs == graphs + 1


def test_while_somebody_listens_every_call_is_told(told):
    compiled = cl.compile(named)
    with cl.record() as trace:
        call_with_new_names(compiled, ENOUGH + 10)
    assert not compiled._course_compiler.left
    assert len(trace.recompiles) == 7


def test_explain_of_a_compiled_function_says_what_it_has_left(told):
    compiled = cl.compile(named)
    call_with_new_names(compiled, ENOUGH)
    text = str(cl.explain(compiled)(torch.randn(4), "name"))
    assert "left to eager: named: at the recompile limit 64 calls" in text
