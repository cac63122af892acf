"""Without the hook: a function whose code is swapped asks a callback, and what it calls goes unseen."""

from __future__ import annotations

import gc
import inspect
import weakref

import pytest

from course_lib.viz.pictures.capture.trampoline import swap, unswap


def make(k):
    def f(x, /, y=2, *args, z=3, **kwargs):
        nonlocal k
        k += 1
        return (lambda: x + k)(), y, args, z, kwargs

    return f, lambda: k


def always(func, *args):
    return True


def run(callback):
    """The same calls of the same function, swapped or not."""
    f, value = make(10)
    if callback is not None:
        swap(f, callback)
    return (
        f(5),
        f(5, 6, 7, z=8, q=9),
        value(),
        inspect.signature(f),
        f.__defaults__,
        f.__kwdefaults__,
        f.__name__,
    )


def test_a_swapped_function_behaves_and_looks_as_before():
    frames = []
    assert run(frames.append) == run(None)
    assert [frame.locals for frame in frames] == [
        {"x": 5, "y": 2, "z": 3, "args": (), "kwargs": {}},
        {"x": 5, "y": 6, "z": 8, "args": (7,), "kwargs": {"q": 9}},
    ]
    assert [cell.cell_contents for cell in frames[0].func.__closure__] == [12]


def test_a_frame_has_the_original_code():
    f, _ = make(1)
    code, frames = f.__code__, []
    swap(f, frames.append)(1)
    assert frames[0].code is code and frames[0].func is f and f.__code__ is not code
    assert unswap(f).__code__ is code and unswap(f).__code__ is code


def test_a_guard_and_a_head_mean_the_same_as_with_the_hook():
    def f(x):
        return x * 2

    swap(f, lambda frame: ((lambda func, x: x > 10), lambda func, x: f"{func.__name__} {x}"))
    assert [f(11), f(5)] == ["f 11", 10]


def test_what_it_calls_and_what_enters_from_c_is_not_seen():
    def helper(x):
        return x + 1

    def f(xs):
        return helper(0), sorted(xs, key=helper)

    frames = []
    swap(f, frames.append)([2, 1])
    assert [frame.code.co_name for frame in frames] == ["f"]


def test_exceptions_pass_through():
    def f(x):
        raise KeyError(x)

    with pytest.raises(KeyError, match="7"):
        swap(f, lambda frame: None)(7)


def test_generator_functions_are_left_alone():
    def f(n):
        yield n

    code = f.__code__
    assert swap(f, print).__code__ is code and inspect.isgeneratorfunction(f)


def test_a_method_with_zero_argument_super_still_finds_its_class():
    class A:
        def name(self):
            return "A"

    class B(A):
        def name(self):
            return super().name() + "B"

    swap(B.name, lambda frame: None)
    assert B().name() == "AB"


def test_a_swapped_function_dies_with_its_last_user():
    f, _ = make(1)
    swap(f, lambda frame: None)(1)
    gone = weakref.ref(f)
    del f, _
    gc.collect()
    assert gone() is None
