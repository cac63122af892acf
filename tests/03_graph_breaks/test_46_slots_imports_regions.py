"""Slots that a subclass hides, modules imported by a compiled call, and torch's regions. The answer is eager's."""

import sys

import pytest
import torch
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops import scan, while_loop

import course_lib as cl

X = torch.tensor([0.5, -1.0, 2.0])


# ---- a slot behind an attribute of a subclass ------------------------------------------------------------------------


class Number:
    __slots__ = ("p", "q")

    def value(self):
        return self.p


class Zero(Number):
    """`p` of the class hides the slot: it can be read, and not be set."""

    __slots__ = ()
    p = 0


class Twice(Number):
    """A slot of its own hides the slot of the same name."""

    __slots__ = ("p",)


ZERO = Zero()
TWICE = Twice()
TWICE.p = 4
Number.p.__set__(TWICE, 7)


def sets_what_cannot_be_set(x):
    try:
        ZERO.p = 3
    except AttributeError as problem:
        return x + len(str(problem))
    return x


def changes_the_slot(x):
    TWICE.p += 1
    try:
        return x * TWICE.p
    finally:
        TWICE.p -= 1


def fills_the_other_slot(x):
    made = Zero()
    made.q = x * 2
    return made.q + made.p


HIDDEN = {
    "an attribute of the class": lambda x: x * ZERO.p,
    "in a method": lambda x: x + ZERO.value(),
    "made inside": lambda x: x + Zero().value(),
    "the class's own": lambda x: x * TWICE.p,
    "through the descriptor": lambda x: x * Number.p.__get__(TWICE),
    "asked for": lambda x: x + 1 if hasattr(ZERO, "p") else x,
    "set in vain": sets_what_cannot_be_set,
    "changed": changes_the_slot,
    "the other slot": fills_the_other_slot,
}


@pytest.mark.parametrize("name", HIDDEN)
@pytest.mark.parametrize("backend", ("eager", "inductor"))
def test_a_hidden_slot(name, backend):
    function = HIDDEN[name]
    compiled = cl.compile(function, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(compiled(X), function(X))


def test_an_instance_with_a_hidden_slot_is_handed_out_and_over_a_break():
    def makes(x):
        made = Zero()
        cl.graph_break()
        return x + made.value(), made

    got, made = cl.compile(makes, backend="eager")(X)
    assert torch.equal(got, X) and type(made) is Zero and made.p == 0


# ---- imports ---------------------------------------------------------------------------------------------------------

MODULE = """
import torch

def double(x):
    return x * 2

class Table:
    rows = double(3)

TABLE = double(torch.ones(3)) + Table.rows
"""


def test_functions_that_a_module_calls_while_it_is_imported_are_not_captured(tmp_path, monkeypatch):
    (tmp_path / "imported_within.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)

    def uses(x):
        import imported_within

        return imported_within.double(x) + imported_within.TABLE

    with cl.record() as trace:
        got = cl.compile(uses, backend="eager")(X)
    sys.modules.pop("imported_within")

    assert torch.equal(got, X * 2 + 8)
    # `double` is captured once, as a call of the program; not for `Table.rows` and `TABLE`
    seen = [event.name for event in trace.of(cl.events.FrameSeen)]
    assert [name for name in seen if name == "double"] in ([], ["double"])
    assert not [name for name in seen if "find" in name or "load" in name]


# ---- regions of torch ------------------------------------------------------------------------------------------------


@torch.compiler.nested_compile_region
def region(x):
    return x.sin() * 2


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    @torch.compiler.nested_compile_region
    def forward(self, x):
        return x + self.linear(x).relu()


def test_a_region_is_followed_into_the_graph():
    def calls_it(x):
        return region(region(x) + 1)

    with cl.record() as trace:
        got = cl.compile(calls_it, fullgraph=True)(X)
    torch.testing.assert_close(got, calls_it(X))
    assert len(trace.graphs) == 1


def test_layers_that_are_regions_train_as_in_eager():
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(Layer() for _ in range(3)))
    x = torch.randn(2, 3)

    model(x).square().sum().backward()
    expected = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    cl.compile(model, fullgraph=True)(x).square().sum().backward()
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], expected)


LOOPS = {
    "while_loop": lambda x: while_loop(
        lambda turns, y: turns < 3, lambda turns, y: (turns + 1, y * 2), (torch.tensor(0), x)
    ),
    "map": lambda x: torch_map(lambda row: row.sin() * 2, x),
    "scan": lambda x: scan(lambda carry, row: (carry + row, carry * row), torch.zeros(()), x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops_of_torch_are_left_to_python_in_one_break(name):
    with cl.record() as trace:
        got = cl.compile(LOOPS[name], backend="eager")(X)
    torch.testing.assert_close(got, LOOPS[name](X))
    assert len(trace.graph_breaks) == 1
