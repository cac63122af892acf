"""Generators, also those that are left before their end."""

# The oddities are the point.
# ruff: noqa

import contextlib
import itertools

import torch
from language_programs.exceptions import MyError
from language_programs.kit import LOG, program, randn


def count_to(n):
    LOG.append("start")
    try:
        for k in range(n):
            got = yield k
            if got:
                LOG.append(("got", got))
    finally:
        LOG.append("closed")
    return "done"


@program()
def generator_consumed(x):
    return x * sum(count_to(4)), list(count_to(2)), [*count_to(1)], dict(zip("ab", count_to(2)))


@program()
def generator_next_and_send(x):
    g = count_to(5)
    a = next(g)
    b = g.send("hi")
    c = next(g)
    g.close()
    return x + a + b + c, next(g, "none")


@program()
def generator_return_value(x):
    def outer():
        r = yield from count_to(2)
        LOG.append(r)
        yield r

    return list(outer()), x + 1


@program()
def generator_stop_iteration_value(x):
    g = count_to(1)
    next(g)
    try:
        next(g)
    except StopIteration as e:
        return x, e.value


@program()
def generator_early_break(x):
    for k in count_to(10):
        x = x + k
        if k == 2:
            break
    LOG.append("after")
    return x


@program()
def generator_throw(x):
    def g():
        try:
            yield 1
        except ValueError as e:
            LOG.append(str(e))
            yield 2

    it = g()
    a = next(it)
    b = it.throw(ValueError("thrown"))
    return x + a + b


@program()
def generator_of_tensors(x):
    def scan(values):
        total = 0
        for v in values:
            total = total + v
            yield total

    return torch.stack(list(scan([x, x * 2, x * 3])))


@program()
def generator_pipeline(x):
    evens = (k for k in range(12) if k % 2 == 0)
    squares = (k * k for k in evens)
    big = itertools.takewhile(lambda v: v < 40, squares)
    return x * sum(big), next(evens)


@program(breaks=3)
def generator_raises(x):
    def g():
        yield 1
        raise MyError(5)

    out = []
    try:
        for v in g():
            out.append(v)
    except MyError as e:
        out.append(e.code)
    return x, out


@program()
def generator_stopiteration_inside(x):
    def g():
        yield 1
        raise StopIteration("no")

    try:
        list(g())
    except RuntimeError as e:
        return x + 1, str(e), type(e.__cause__)


@program()
def recursive_generator(x):
    def walk(t):
        if isinstance(t, list):
            for k in t:
                yield from walk(k)
        else:
            yield t

    return x * sum(walk([1, [2, [3, [4]]]]))


@program(breaks=1)
def returns_generator(x):
    return (x * k for k in range(3))


@program()
def generator_over_argument(x):
    def pairs(v):
        it = iter(v)
        for a in it:
            yield a, next(it, None)

    return list(pairs([1, 2, 3])), x + 1


@program(lambda i: (randn(3), iter([1, 2, 3])), breaks=2)
def iterator_argument(x, it):
    a = next(it)
    return x + a, list(it)


@program(lambda i: (randn(3), (k for k in range(4))), breaks=2)
def generator_argument(x, g):
    a = next(g)
    return x + a + sum(g)


@program(lambda i: (randn(3), zip("ab", [1, 2]), enumerate("xy"), map(str, [1, 2])), breaks=3)
def iterator_object_arguments(x, z, e, m):
    return x + 1, next(z), list(e), list(m)


@program(breaks=3)
def generator_closed_by_a_return(x):
    def q(v):
        def it():
            try:
                yield 1
            finally:
                print("closed")

        g = it()
        return v + next(g)

    y = q(x) * 2
    print("after")
    return y + 1


@program(breaks=2)
def generator_closed_by_a_break(x):
    def it():
        try:
            yield 1
        finally:
            print("closed")

    for k in it():
        break
    return x + k


@program(breaks=0)
def loop_in_the_finally_of_a_break(x):
    for k in enumerate([1, 2]):
        try:
            if x.shape[0] == 3:
                break
        finally:
            for j in [3]:
                x = x + j
    try:
        with contextlib.suppress(KeyError):
            x = x + k[1]
            raise KeyError
    finally:
        x = x * 2
    return x
