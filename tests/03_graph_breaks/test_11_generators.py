"""Generators of the captured program: alive at its end or at a graph break, thrown into, closed; and exceptions in a ring."""

import contextlib
import types

import pytest
import torch
from observed import run

import course_lib as cl


def counted(function):
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    return cl.compile(function, backend=backend), graphs


def one(i):
    return (torch.randn(2),)


def in_every_state(x):
    told = []

    def g(n):
        try:
            sent = yield x + n
            told.append(sent)
            with contextlib.nullcontext():
                yield from (x * j for j in range(3))
            yield sent
        finally:
            told.append("closed")

    new, begun, within, over = g(1), g(2), g(3), g(4)
    next(begun)
    next(within)
    within.send(7)
    next(within)
    list(over)
    return x * 2, [new, begun, within, over], told, zip([1, 2], g(5), strict=False), enumerate(g(6))


def test_a_generator_that_is_returned_goes_on_where_it_stands():
    def use(function, x):
        _, (new, begun, within, over), told, pairs, numbered = function(x)
        got = [
            new.send(None),
            new.send(3),
            list(new),
            begun.send(9),
            list(begun),
            list(within),
            list(over),
        ]
        assert all(isinstance(made, types.GeneratorType) for made in (new, begun, within, over))
        return [*got, list(pairs), next(numbered), told]

    compiled = cl.compile(in_every_state, backend="eager", fullgraph=True)
    for _ in range(3):
        x = torch.randn(2)
        assert str(use(compiled, x)) == str(use(in_every_state, x))


def test_a_generator_shares_its_variables_with_the_program():
    def f(x):
        n = 0

        def g():
            nonlocal n
            while True:
                n += 1
                yield x + n

        made = g()
        next(made)
        return made, lambda: n

    made, count = cl.compile(f, backend="eager")(torch.zeros(2))
    assert next(made).tolist() == [2, 2] and count() == 2


def test_a_loop_over_a_generator_breaks_in_its_body():
    def f(x):
        def g():
            for k in range(4):
                yield x + k

        total = 0
        for item in g():
            total = total + item * 2
            cl.graph_break()
        return total

    compiled, graphs = counted(f)
    for turn in range(3):
        assert run(compiled, one, turn) == run(f, one, turn)
    assert graphs


def left_at_a_break(x, log):
    def g():
        try:
            yield x + 1
        finally:
            log.append("closed")

    made = g()
    y = next(made)
    cl.graph_break()
    log.append("before")
    return y * 2


def dropped_after_a_break(x, log):
    def g(n):
        try:
            yield x + n
        finally:
            log.append(n)

    made, other = g(1), g(2)
    y = next(made) + next(other)
    cl.graph_break()
    del made
    log.append("dropped")
    other = 3
    log.append("replaced")
    return y * other


@pytest.mark.parametrize(
    "function", [left_at_a_break, dropped_after_a_break], ids=lambda f: f.__name__
)
def test_a_generator_is_closed_as_soon_as_nobody_holds_it(function):
    def make(i):
        return torch.randn(2), []

    compiled = cl.compile(function, backend="eager")
    for turn in range(3):
        assert run(compiled, make, turn) == run(function, make, turn)


def thrown(x):
    log = []

    def sub():
        try:
            yield 1
        except ValueError:
            yield 2
        finally:
            log.append("sub")
        return 7

    def main():
        try:
            got = yield from sub()
        except ValueError:
            yield x + 100
        yield got
        try:
            yield from sub()
        finally:
            log.append("main")

    def of_list():
        try:
            yield from [1, 2]
        except ValueError:
            yield 5

    g, h, of = main(), main(), of_list()
    next(g), next(h), next(of)
    found = [g.throw(ValueError), next(g), next(g), of.throw(ValueError)]
    g.close()
    try:
        h.throw(KeyError)
    except KeyError:
        log.append("key")
    return x + 1, found, log


def left_by_exit(x):
    try:
        raise GeneratorExit
    except Exception:
        return x.sin()
    except BaseException as error:
        return x.cos(), type(error)


def ring(x):
    def cycle():
        try:
            raise ValueError(1)
        except ValueError as error:
            error.__context__ = error
            raise TypeError(2)  # noqa: B904

    try:
        cycle()
    except TypeError as error:
        inner = error.__context__
        return x + 1, type(inner), inner.__context__ is inner


def raised_again_in_answer(x):
    try:
        try:
            raise AssertionError
        except AssertionError as first:
            a = first
            try:
                raise BytesWarning
            except BytesWarning as second:
                b = second
                try:
                    raise ConnectionError
                except ConnectionError as third:
                    c = third
                    raise a  # noqa: B904
    except AssertionError as last:
        return x + 1, last is a, a.__context__ is c, c.__context__ is b, b.__context__


@pytest.mark.parametrize(
    "function", [thrown, left_by_exit, ring, raised_again_in_answer], ids=lambda f: f.__name__
)
def test_exceptions_go_where_cpython_lets_them_go(function):
    compiled = cl.compile(function, backend="eager", fullgraph=True)
    for turn in range(2):
        assert run(compiled, one, turn) == run(function, one, turn)
