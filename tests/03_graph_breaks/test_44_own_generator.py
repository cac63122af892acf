"""A program that makes a generator of random numbers draws what it draws in eager, in one graph."""

import pytest
import torch

import course_lib as cl


def in_one_line(x):
    return x + torch.randn(3, generator=torch.Generator().manual_seed(3))


def several_draws(x):
    generator = torch.Generator()
    generator.manual_seed(x.shape[0])
    first = torch.rand(2, generator=generator)
    second = torch.empty(3).normal_(generator=generator)
    generator.manual_seed(5)
    return x * 2, first, second, torch.randint(0, 9, (4,), generator=generator)


def not_seeded(x):
    return x * torch.rand(3, generator=torch.Generator())


def of_data(x):
    generator = torch.Generator("cpu").manual_seed(1)
    weights = x.detach().softmax(0)
    return torch.multinomial(weights, 2, generator=generator), torch.bernoulli(
        weights, generator=generator
    )


def two_generators(x):
    first, second = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    a, b = torch.rand(3, generator=first), torch.rand(3, generator=second)
    return x * a, b, torch.rand(3, generator=first), torch.rand(3)


def given_back(x):
    generator = torch.Generator().manual_seed(1)
    return x * torch.rand(3, generator=generator), generator


def drawn_behind_a_break(x):
    generator = torch.Generator().manual_seed(1)
    y = x * torch.rand(3, generator=generator)
    print(end="")
    return y + torch.rand(3, generator=generator)


def asked_for_its_seed(x):
    return x * torch.Generator().manual_seed(7).initial_seed()


ONE_GRAPH = [in_one_line, several_draws, not_seeded, of_data, two_generators, given_back]
PROGRAMS = [*ONE_GRAPH, drawn_behind_a_break, asked_for_its_seed]


def observed(function):
    """The results, the gradient, the state of the generator that is given back, and of torch's own."""
    torch.manual_seed(0)
    x = torch.ones(3, requires_grad=True)
    result = function(x)
    results = list(result) if isinstance(result, tuple) else [result]
    if results[0].requires_grad:
        results[0].sum().backward()
    states = [part.get_state() if isinstance(part, torch.Generator) else part for part in results]
    return [
        part.tolist() for part in (*states, torch.rand(2))
    ], x.grad is not None and x.grad.tolist()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("function", PROGRAMS)
def test_the_numbers_are_eagers(function, backend):
    compiled = cl.compile(function, backend=backend)
    for _ in range(2):
        assert observed(compiled) == observed(function)


@pytest.mark.parametrize("function", ONE_GRAPH)
def test_it_is_one_graph(function):
    cl.compile(function, fullgraph=True)(torch.ones(3))
