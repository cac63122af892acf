"""`with`: own managers, and those of `contextlib`."""

# The oddities are the point.
# ruff: noqa

import contextlib

from language_programs.kit import LOG, number, program


class Manager:
    def __init__(self, name, swallow=False):
        self.name, self.swallow = name, swallow

    def __enter__(self):
        LOG.append(("enter", self.name))
        return self

    def __exit__(self, cls, error, tb):
        LOG.append(("exit", self.name, cls and cls.__name__, error and str(error)))
        return self.swallow


@contextlib.contextmanager
def managed(name):
    LOG.append(("begin", name))
    try:
        yield name * 2
    except ValueError as e:
        LOG.append(("caught", str(e)))
    finally:
        LOG.append(("end", name))


@program(number)
def own_manager(x, i):
    with Manager("a", swallow=True) as m, Manager("b"):
        x = x + 1
        if i:
            raise ValueError(f"boom {i}")
        x = x + 2
    return x, m.name


@program(number)
def own_manager_lets_through(x, i):
    with Manager("a"):
        if i:
            raise ValueError(f"boom {i}")
    return x


@program(number)
def contextmanager_function(x, i):
    with managed("n") as v:
        if i == 1:
            raise ValueError("v")
        if i == 2:
            return x * 3, v
        x = x + 1
    return x, v


@program(number)
def contextmanager_lets_through(x, i):
    try:
        with managed("n"):
            raise KeyError("v")
    except KeyError as e:
        return x, str(e)


@program()
def contextmanager_as_decorator(x):
    @managed("d")
    def g(v):
        LOG.append("in g")
        return v + 1

    return g(x)


@program(number)
def suppress(x, i):
    with contextlib.suppress(ValueError, KeyError):
        x = x + 1
        if i:
            raise KeyError("k")
        x = x + 10
    return x


@program()
def nullcontext(x):
    with contextlib.nullcontext() as n, contextlib.nullcontext(5) as m:
        return x + m, n


@program()
def exit_stack(x):
    with contextlib.ExitStack() as stack:
        a = stack.enter_context(managed("a"))
        stack.enter_context(Manager("m"))
        stack.callback(LOG.append, "callback")
        x = x + 1
    return x, a


@program(breaks=1)
def closing(x):
    class C:
        def close(self):
            LOG.append("closed")

    with contextlib.closing(C()):
        x = x * 2
    return x


@program(breaks=1)
def generic_context_class(x):
    class C(contextlib.ContextDecorator):
        def __enter__(self):
            LOG.append("in")

        def __exit__(self, *a):
            LOG.append(len(a))

    @C()
    def g(v):
        return v * 2

    return g(x)


@program()
def with_return_inside_loop(x):
    for k in range(3):
        with Manager(k):
            if k == 1:
                return x * k


@program()
def with_unpacks_target(x):
    @contextlib.contextmanager
    def pair():
        yield 1, [2, 3]

    with pair() as (a, [b, c]):
        return x + a + b + c
