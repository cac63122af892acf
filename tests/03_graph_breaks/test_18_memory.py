"""What a call met is freed as soon as the program drops it, though no garbage is collected."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch

import course_lib as cl


class Box:
    pass


def plain(x):
    return x * 2 + 1


def with_its_size(x):
    return x.cumsum(0) * x.shape[0]


def breaks(x):
    y = x * 2
    print(end="")
    return y + 1


def takes_data(x):
    return x * x.sum().item()


def fails_in_the_graph(x):
    return (x * 2) @ torch.ones(7)


def catches_an_error_of_data(x):
    try:
        return x.index_select(0, torch.tensor([99]))
    except IndexError:
        return x * 2


def catches_its_own_error(x):
    try:
        print(end="")
        raise ValueError("v")
    except ValueError:
        y = x * 2
    return y


def raises(x):
    y = x * 2
    raise ValueError(f"no {y.shape}")


def raises_on_data(x):
    if x.sum() > 0:
        raise ValueError("no")
    return x


def generates(x):
    return sum(part for part in (x * i for i in range(3)))


def leaves_a_generator(x):
    def both():
        yield x
        yield x * 2

    items = both()
    next(items)
    return next(items)


def leaves_a_generator_in_a_finally(x):
    def both():
        try:
            yield x
            yield x * 2
        finally:
            x.sin()

    items = both()
    return next(items) + 1


def closes_a_generator(x):
    def both():
        yield x
        yield x * 2

    items = both()
    y = next(items) * 3
    items.close()
    return y


def throws_into_a_generator(x):
    def both():
        try:
            yield x
        except ValueError:
            yield x * 2

    items = both()
    return next(items) + items.throw(ValueError("now"))


def leaves_a_generator_within_a_generator(x):
    def inner():
        yield x
        yield x * 2

    def outer():
        yield from inner()

    return next(outer()) * 2


def enters_a_context(x):
    @contextlib.contextmanager
    def context():
        yield x

    with context() as y:
        return y * 2


def closes_over_it(x):
    def double():
        return x * 2

    return double() + double()


def puts_it_into_an_object(x):
    box = Box()
    box.x = x
    return box.x * 2


def writes(x):
    x.mul_(2)
    return x + 1


PROGRAMS = [value for value in list(globals().values()) if getattr(value, "__code__", None)]


def freed(f, compiled, requires_grad):
    """For each call: are its argument and its result gone at once?"""
    gc.collect()
    gc.disable()
    try:
        fast, found = compiled(f), []
        for size in (5, 5, 6, 7):
            x, y = torch.ones(size, requires_grad=requires_grad), None
            with contextlib.suppress(RuntimeError, ValueError):
                y = fast(x)
            watched = [weakref.ref(value) for value in (x, y) if value is not None]
            del x, y
            found.append([ref() is None for ref in watched])
        return found
    finally:
        gc.enable()


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_arguments_and_results_are_freed_as_in_eager(program, requires_grad):
    expected = freed(program, lambda f: f, requires_grad)
    assert freed(program, cl.compile, requires_grad) == expected


@pytest.mark.parametrize("program", [breaks, raises, takes_data, raises_on_data])
def test_an_argument_is_freed_after_a_capture_that_was_refused(program):
    x = torch.ones(3)
    ref = weakref.ref(x)
    gc.collect()
    gc.disable()
    try:
        with contextlib.suppress(Exception):
            cl.compile(program, fullgraph=True)(x)
        del x
        assert ref() is None
    finally:
        gc.enable()
