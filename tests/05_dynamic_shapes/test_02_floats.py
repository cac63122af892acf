"""Floats from outside: constants, and symbols once they have changed; with eager's types and bits."""

import math
import random
import warnings

import pytest
import torch

import course_lib as cl

BINARY = "+ - * / // % + *".split()
OF_MATH = "sqrt exp sin log floor ceil fabs".split()


def expression(dice, depth):
    if depth == 0:
        return dice.choice(["s", "s", "t", "n", "0.1", "3", "x.shape[0]", "u", "-0.0", "1e300"])
    part = lambda: expression(dice, depth - 1)
    kind = dice.randrange(11)
    if kind < 6:
        return f"({part()} {dice.choice(BINARY)} {part()})"
    if kind == 6:
        return f"({part()} ** {dice.choice(['2', '0.5', 's', '3', '-1'])})"
    if kind == 7:
        return f"math.{dice.choice(OF_MATH)}({part()})"
    if kind == 8:
        return f"{dice.choice(['abs', 'round', 'float', 'int', '-', '+'])}({part()})"
    if kind == 9:
        return f"{dice.choice(['max', 'min'])}({part()}, {part()})"
    return (
        f"({part()} if {part()} {dice.choice(['<', '>', '==', '>=', '!='])} {part()} else {part()})"
    )


def program(dice):
    lines = []
    for _ in range(dice.randrange(1, 4)):
        uses = (
            "x * u",
            "x + u",
            "torch.full((2,), u)",
            "u - x",
            "torch.where(x > u, x, u)",
            "x.clamp(max=u)",
            "x / u",
            "x",
        )
        lines.append(
            f"    u = {expression(dice, dice.randrange(1, 4))}\n    x = {dice.choice(uses)}\n"
        )
    return f"def f(x, s, t, n, u):\n{''.join(lines)}    return x, u, s * t, str(u)\n"


def number(dice):
    odd = 0.0, -0.0, 1.0, 0.1, float("inf"), float("nan"), 1e-300, 2, 5.0, dice.uniform(0, 1000)
    return dice.choice([*odd, *[dice.uniform(-3, 3) for _ in odd]])


def outcome(function, args):
    try:
        return [
            (repr(o.tolist()), o.dtype) if isinstance(o, torch.Tensor) else (type(o), repr(o))
            for o in function(*args)
        ]
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("seed", range(60))
def test_random_arithmetic_has_eagers_types_and_bits(seed):
    dice = random.Random(seed)
    source = program(dice)
    exec(source, namespace := {"torch": torch, "math": math})
    compiled = cl.compile(namespace["f"], backend="eager", dynamic=dice.choice([None, None, True]))
    for _ in range(6):
        x = torch.randn(
            dice.choice([2, 3]), dtype=dice.choice([torch.float32, torch.float64, torch.float16])
        )
        args = x, number(dice), number(dice), dice.randrange(-2, 9), number(dice)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert outcome(compiled, args) == outcome(namespace["f"], args), f"{source}{args}"


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 0.5

    def forward(self, x):
        return x * self.scale


def graphs_of(function, calls):
    graphs = []
    compiled = cl.compile(function, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    for args in calls:
        assert outcome(compiled, args) == outcome(function, args)
    return len(graphs)


def test_a_float_that_changed_is_compiled_for_once_more():
    x, steps = torch.randn(3), [0.5, 1.5, 2.5, 3.25, 1.0]
    assert graphs_of(lambda x, k: [x * k / 3, torch.full((2,), k)], [(x, k) for k in steps]) == 2
    assert graphs_of(lambda x, k: [x * math.exp(-k) + max(k, 2.0)], [(x, k) for k in steps]) == 2
    assert graphs_of(lambda x, d: [x * d["k"]], [(x, {"k": k}) for k in steps]) == 2
    # the sum, and twice the rest
    assert graphs_of(lambda x: [x * x.sum().item()], [(x * k,) for k in steps]) == 3


def test_a_branch_on_a_float_is_a_guard():
    function = lambda x, k: [x * k if k > 2 else x - k]
    assert graphs_of(function, [(torch.ones(2), k) for k in (0.5, 1.5, 1.75, 2.5, 3.5, 0.25)]) == 3


def test_an_attribute_a_global_and_a_closure_change():
    model, held = Scaled(), [0.5]
    compiled = cl.compile(model, backend=(backend := Counting()))
    add = cl.compile(lambda x: x + held[0], backend=backend)
    for k in (0.5, 1.5, 2.5, -3.0):
        model.scale = held[0] = k
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) * k)
        assert torch.equal(add(torch.ones(2)), torch.ones(2) + k)
    assert backend.graphs == 4


class Counting:
    graphs = 0

    def __call__(self, gm, inputs):
        self.graphs += 1
        return gm.forward


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_back_half_takes_the_number(backend):
    function = lambda x, k: torch.relu(x * k) + k
    compiled = cl.compile(function, backend=backend)
    for k in (0.5, 1.5, 2.5, 1.5):
        x = torch.randn(8)
        torch.testing.assert_close(compiled(x, k), function(x, k))


@pytest.mark.parametrize("write", [str, repr, "{}".format, "%s".__mod__, lambda n: f"{[n]}"])
def test_a_symbolic_number_is_written_as_the_number(write):
    assert graphs_of(lambda x, n: [x * n, write(n)], [(torch.ones(2), n) for n in (3, 4, 5)])
    assert graphs_of(lambda x, n: [x * n, write(n)], [(torch.ones(2), n) for n in (3.5, 4.5, 5.5)])


def test_a_negative_base_stays_in_its_parentheses():
    """`fx` writes `-2 ** x`, which is `-(2 ** x)`."""
    assert (
        graphs_of(
            lambda x, k: [(-2) ** x, (-1.0) ** k], [(torch.arange(4), k) for k in (2.0, 3.0, 5.0)]
        )
        == 2
    )
