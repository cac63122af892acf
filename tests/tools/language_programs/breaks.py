"""A graph break in the middle of something."""

# The oddities are the point.
# ruff: noqa

import torch
from language_programs.classes import Base
from language_programs.context_managers import Manager
from language_programs.kit import LOG, number, program, randn


@program(breaks=1)
def break_inside_with(x):
    with Manager("a") as m:
        y = x + 1
        print("hello", m.name)
        y = y * 2
    return y


@program(breaks=1)
def break_inside_try(x):
    try:
        y = x + 1
        print("hello")
        y = y * 2
        raise ValueError("v")
    except ValueError as e:
        y = y - 1
        LOG.append(str(e))
    finally:
        LOG.append("f")
    return y


@program(breaks=2)
def break_inside_except(x):
    try:
        y = x + 1
        raise ValueError("v")
    except ValueError as e:
        y = y - 1
        print("error", e)
        y = y * 3
        LOG.append(str(e))
    return y


@program(breaks=1)
def break_in_finally(x):
    try:
        y = x + 1
    finally:
        print("finally")
        y = x * 3
    return y


@program(breaks=4)
def break_in_loop(x):
    for k in range(3):
        x = x + k
        print(k)
    return x * 2


@program(lambda i: (randn(3), i), breaks=1)
def break_inside_no_grad(x, i):
    with torch.no_grad():
        y = x + 1
        print("in", i)
        y = y * 2
    return y, torch.is_grad_enabled()


@program(breaks=2)
def break_in_callee(x):
    def g(v):
        v = v + 1
        print("g")
        return v * 2

    return g(x) + 1


@program(breaks=1)
def break_then_locals(x):
    y = x + 1
    print("a")
    dead = 1
    return y * 2, sorted(locals())


@program(breaks=2)
def super_after_break(x):
    return Late(2).go(x)


class Late(Base):
    def go(self, x):
        print("late")
        return super().scale(x) + self.n


@program(breaks=1)
def closure_shared_over_break(x):
    n = 1

    def inc():
        nonlocal n
        n += 1
        return n

    inc()
    print("n", n)
    inc()
    return x * n, inc()


@program(lambda i: (randn(3), [1]), breaks=1)
def mutation_before_and_after_break(x, v):
    v.append(2)
    d = {"v": v}
    y = x * len(v)
    print(v)
    d["v"].append(3)
    return y + len(v), d


@program(breaks=2)
def break_in_the_middle_of_an_expression(x):
    def noisy(v):
        print("noisy", v)
        return v

    return [x + 1, noisy(2), x * 3, {"k": x - 1}]


@program(breaks=4)
def break_in_comprehension(x):
    return [print(k) or x * k for k in range(2)]


@program(breaks=1)
def break_in_generator(x):
    def g():
        yield x + 1
        print("g")
        yield x + 2

    a, b = g()
    return a * b


@program(breaks=1)
def break_with_keyword_call(x):
    y = x + 1
    print("a", "b", sep="-", end="?\n", **{"flush": True})
    return y * 2


@program(breaks=1)
def break_with_starargs(x):
    y = x + 1
    print(*["a", "b"])
    return y * 2


@program(breaks=1)
def break_in_nested_with_and_try(x):
    with Manager("outer"):
        try:
            with Manager("inner", swallow=True):
                y = x + 1
                print("middle")
                raise ValueError("v")
        finally:
            LOG.append("finally")
        y = y * 2
    return y


@program(breaks=2)
def break_raises(x):
    y = x + 1
    try:
        open("/nonexistent/file")
    except FileNotFoundError as e:
        y = y + e.errno
    return y * 2


@program(breaks=1)
def break_raises_uncaught(x):
    y = x + 1
    LOG.append(y)
    open("/nonexistent/file")
    return y * 2


@program(number, breaks=1)
def break_with_unbound_local(x, i):
    if i > 5:
        z = 1
    print("a")
    try:
        return z
    except UnboundLocalError as e:
        return x + 1, str(e)


@program(breaks=1)
def break_inside_match(x):
    match (1, [2, 3]):
        case (1, [a, *b]):
            print(a)
            return x * a, b


@program(breaks=3)
def break_while_handling_two_exceptions(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            raise KeyError("b")
    except KeyError as e:
        print("handling")
        return x + 1, str(e.__context__)


@program(breaks=1)
def reraise_after_break(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            print("again")
            raise
    except ValueError as e:
        return x + 1, str(e)


@program(breaks=1)
def disabled_function(x):
    return disabled(x) + 1


@torch.compiler.disable
def disabled(v):
    LOG.append("disabled")
    return v * 2


@program(breaks=1)
def graph_break_call(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2
