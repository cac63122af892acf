"""Loops around graph breaks: one graph from the break in one turn to that in the next; and iterators from outside."""

# The oddities are the point.

import pytest
import torch
from observed import run

import course_lib as cl

randn = torch.randn
PROGRAMS = {}


def program(graphs, make=lambda i: (randn(3),)):
    def register(function):
        PROGRAMS[function.__name__] = function, make, graphs
        return function

    return register


@program(4)
def a_list_that_grows(x):
    xs = [x, x + 1]
    for v in xs:
        print(len(xs))
        if len(xs) < 5:
            xs.append(v * 2)
    return xs


@program(4)
def enumerated(x):
    out = []
    for i, v in enumerate([x, x + 1, x + 2]):
        print(i)
        out.append(v * i)
    return out


@program(4)
def zipped(x):
    out = []
    for a, b in zip([x, x + 1, x + 2], (1, 2, 3)):
        print(b)
        out.append(a * b)
    return out


@program(3)
def zipped_with_itself(x):
    it = iter([x, x + 1, x + 2, x + 3])
    out = []
    for a, b in zip(it, it):
        print("p")
        out.append(a * b)
    return out, list(it)


@program(3)
def taken_from_inside_enumerate(x):
    it = iter([x, x + 1, x + 2, x + 3])
    out = []
    for i, a in enumerate(it):
        print("p")
        out.append(a * i + next(it))
    return out, list(it)


@program(3)
def taken_in_the_body(x):
    it = iter([x, x + 1, x + 2, x + 3])
    for a in it:
        print("p")
        b = next(it)
        x = x + a * b
    return x


@program(3)
def left_early(x):
    it = iter(range(6))
    for i in it:
        print(i)
        x = x + i
        if i == 2:
            break
    return x, list(it)


@program(2)
def with_else(x):
    for i in range(3):
        print(i)
        x = x * 2
    else:
        x = x + 1
    return x


@program(3)
def backwards(x):
    for i in reversed([1, 2, 3]):
        print(i)
        x = x * i
    return x


@program(2)
def broken_once(x):
    for i in range(5):
        if i == 1:
            print(i)
        x = x + i
    return x


@program(4)
def index_of_a_list(x):
    w = [1.0, 2.0, 3.0, 4.0]
    for i in range(4):
        print("a")
        x = x * w[i]
    return x


@program(2)
def writes_rows(x):
    out = torch.zeros(4, 3)
    for i in range(4):
        out[i] = x * i
        print(out.sum().item())
    return out


@program(1, lambda i: (randn(3), iter([1, 2, 3])))
def given(x, it):
    for i in it:
        x = x + i
    return x


@program(1, lambda i: (randn(3), iter([1, 2, 3])))
def given_and_advanced(x, it):
    a = next(it)
    return x * a, it


@program(1, lambda i: (randn(3), iter([1, 2, 3])))
def given_and_exhausted(x, it):
    a = sum(it)
    return x * a, it, next(it, "end")


@program(1, lambda i: (randn(3), (lambda l: (l, iter(l)))([1, 2, 3])))
def list_behind_it_grows(x, p):
    l, it = p
    a = next(it)
    l.append(7)
    b = next(it)
    return x * a * b, list(it), l


@program(1, lambda i: (randn(3), (lambda l: (l, iter(l)))([1, 2, 3])))
def list_grows_after_the_end(x, p):
    l, it = p
    a = sum(it)
    l.append(7)
    return x * a, list(it), l


@program(1, lambda i: (randn(3), (lambda it: (it, it))(iter([1, 2, 3]))))
def one_iterator_twice(x, p):
    a, b = p
    return x * next(a) + next(b), a is b


@program(2, lambda i: (randn(3), (lambda it: (it, enumerate(it)))(iter([1, 2, 3, 4]))))
def inner_and_outer(x, p):
    a, b = p
    return x * next(a) + next(b)[1] + next(a), list(b)


@program(2, lambda i: (randn(3), (lambda it: (it, enumerate(it)))(iter([1, 2, 3, 4]))))
def outer_and_inner(x, p):
    a, b = p
    n = next(b)
    return x * n[1] + next(a) + next(b)[1], list(b)


@program(1, lambda i: (randn(3), enumerate(v for v in [1, 2, 3])))
def over_a_generator(x, it):
    return x * next(it)[1], list(it)


@program(1, lambda i: (randn(3), iter([1, 2, 3])))
def its_type(x, it):
    return x * 2, type(it).__name__, isinstance(it, list), hasattr(it, "__next__")


@program(3)
def in_a_try(x):
    for i in range(3):
        try:
            print(i)
            x = x + i
            if i == 1:
                raise ValueError("v")
        except ValueError:
            x = x * 2
    return x


@program(3)
def nested(x):
    for i in range(3):
        for j in range(i):
            x = x + i * j
            print(i, j)
    return x


@program(3)
def forty_turns(x):
    for i in range(40):
        print(i)
        x = x * 1.01 + i
    return x


@program(2, lambda i: (randn(3), 2 + i))
def as_long_as_asked(x, n):
    for i in range(n):
        print(i)
        x = x + i * n
    return x


@pytest.mark.parametrize("name", PROGRAMS)
def test_loop_agrees_with_eager_in_few_graphs(name):
    function, make, allowed = PROGRAMS[name]
    graphs = []
    compiled = cl.compile(function, backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
    for turn in range(3):
        ours = run(compiled, make, turn)
        assert turn or len(graphs) <= allowed
        assert ours == run(function, make, turn), f"call {turn}"


def test_a_turn_with_a_break_makes_one_graph():
    def f(x):
        for _ in range(5):
            x = x * 2
            print(end="")
            x = x + 1
        return x

    # before the first break, from one to the next, after the last
    assert cl.explain(f)(torch.ones(3)).graph_count == 3
