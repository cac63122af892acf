"""Without the hook: a function whose code is swapped asks the same watcher, and what it calls goes unseen."""

from __future__ import annotations

import gc
import inspect
import os
import subprocess
import sys
import weakref

import pytest

from course_lib.frames import SKIP, swap, unswap, watching


def make(k):
    def f(x, /, y=2, *args, z=3, **kwargs):
        nonlocal k
        k += 1
        return (lambda: x + k)(), y, args, z, kwargs

    return f, lambda: k


def always(func, *args):
    return True


def run(watcher):
    """The same calls of the same function, swapped or not."""
    f, value = make(10)
    if watcher is not None:
        swap(f, watcher)
    return f(5), f(5, 6, 7, z=8, q=9), value(), inspect.signature(f), f.__defaults__, f.__kwdefaults__, f.__name__


def test_a_swapped_function_behaves_and_looks_as_before():
    frames = []
    assert run(watching(frames.append)) == run(None)
    assert [frame.locals for frame in frames] == [
        {"x": 5, "y": 2, "z": 3, "args": (), "kwargs": {}},
        {"x": 5, "y": 6, "z": 8, "args": (7,), "kwargs": {"q": 9}},
    ]
    assert {name: cell.cell_contents for name, cell in frames[0].cells.items()} == {"k": 12}


def test_a_frame_has_the_original_code():
    f, _ = make(1)
    code, frames = f.__code__, []
    swap(f, watching(frames.append))(1)
    assert frames[0].code is code and frames[0].func is f and f.__code__ is not code
    assert unswap(f).__code__ is code and unswap(f).__code__ is code


def test_guards_heads_and_skip_mean_the_same_as_with_the_hook():
    def f(x):
        return x * 2

    asked = []

    def callback(frame):
        x = frame.locals["x"]
        asked.append(x)
        return SKIP if x == 0 else ((lambda func, x: x > 10), lambda func, x: f"{func.__name__} {x}")

    watcher = watching(callback)
    swap(f, watcher)
    code = frame_code(watcher, f)
    assert [f(11), f(12), f(13)] == ["f 11", "f 12", "f 13"] and asked == [11]
    watcher.forget(code)
    assert [f(0), f(11)] == [0, 22] and asked == [11, 0] and watcher.entries(code) is SKIP


def frame_code(watcher, f):
    """The code that `f` had before it was swapped."""
    swapped = f.__code__
    code = unswap(f).__code__
    swap(f, watcher)
    assert swapped.co_name == code.co_name
    return code


def test_what_it_calls_and_what_enters_from_c_is_not_seen():
    def helper(x):
        return x + 1

    def f(xs):
        return helper(0), sorted(xs, key=helper)

    frames = []
    swap(f, watching(frames.append))([2, 1])
    assert [frame.code.co_name for frame in frames] == ["f"]


def test_exceptions_pass_through():
    def f(x):
        raise KeyError(x)

    with pytest.raises(KeyError, match="7"):
        swap(f, watching(lambda frame: None))(7)


def test_generator_functions_are_left_alone():
    def f(n):
        yield n

    code = f.__code__
    assert swap(f).__code__ is code and inspect.isgeneratorfunction(f)


def test_a_method_with_zero_argument_super_still_finds_its_class():
    class A:
        def name(self):
            return "A"

    class B(A):
        def name(self):
            return super().name() + "B"

    swap(B.name, watching(lambda frame: None))
    assert B().name() == "AB"


def test_a_swapped_function_dies_with_its_last_user():
    f, _ = make(1)
    swap(f)(1)
    gone = weakref.ref(f)
    del f, _
    gc.collect()
    assert gone() is None


# ---- in place of the hook --------------------------------------------------------------------------------------------

WITHOUT_THE_HOOK = """
import warnings; warnings.simplefilter("error")
from course_lib.frames import Watcher, installed, observe, watching
assert not installed()

class Model:
    def __call__(self, x):
        return self.forward(x)
    def forward(self, x):
        return x + 1

def f(x):
    return x * 2

seen = []
watcher = watching(seen.append)
model = Model()
assert observe(model, watcher)(1) == 2 and observe(f, watcher)(3) == 6 and observe(model.forward, watcher)(x=1) == 2
assert observe(abs, watcher)(-1) == 1
assert [frame.code.co_name for frame in seen] == ["forward", "f", "forward"]
assert f(4) == 8 and model(1) == 2 and len(seen) == 3, "outside of the watched call nothing is seen"
with watcher:
    f(5)
    with Watcher.off():
        f(6)
assert [frame.locals for frame in seen[3:]] == [{"x": 5}]

def called_by_guard():
    return True
observe(called_by_guard, watcher)
replaced = watching(lambda frame: ((lambda func, x: called_by_guard()), lambda func, x: "head"))
with replaced:
    assert f(1) == f(1) == "head"
assert f(1) == 2 and watcher.entries(f.__code__) == ()
"""


def test_observe_and_watchers_work_without_the_hook():
    env = {**os.environ, "COURSE_NO_HOOK": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", WITHOUT_THE_HOOK], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
