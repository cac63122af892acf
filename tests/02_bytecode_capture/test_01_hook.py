"""The frame hook sees every frame, and runs something else in the place of one."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
import traceback
import weakref
from pathlib import Path
from types import FunctionType

import pytest

from course_lib import native
from course_lib.frames import SKIP, Watcher, call, installed, parameters, watching
from course_lib.frames.hook import enter, flatten

pytestmark = pytest.mark.skipif(not installed(), reason="the frame hook could not be built here")


def double(x):
    return x * 2


def calls_double(x):
    return double(x) + 1


def every_kind(a, /, b, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


class Recorder(Watcher):
    """Remembers the frames of this file, by name."""

    def __init__(self):
        super().__init__(self.see)
        self.frames = []

    def see(self, frame):
        if frame.code.co_filename == __file__:
            self.frames.append(frame)

    @property
    def names(self):
        return [frame.code.co_name for frame in self.frames]


def always(func, *args):
    return True


def replacing(name, head, guard=always):
    """A watcher that puts `head` in the place of the functions called `name`."""
    return watching(lambda frame: (guard, head) if frame.code.co_name == name else SKIP)


# ---- seeing ----------------------------------------------------------------------------------------------------------


def test_every_frame_of_the_block_is_seen_and_none_outside():
    double(0)
    with Recorder() as seen:
        calls_double(1)
    double(0)
    assert seen.names == ["calls_double", "double"]


def test_frames_that_c_code_enters_are_seen():
    class Box:
        def __getitem__(self, i):
            return i

        @property
        def size(self):
            return 1

    with Recorder() as seen:
        sorted([1], key=double)
        list(map(calls_double, []))
        Box()[0], Box().size
    assert seen.names == ["double", "__getitem__", "size"]


def test_what_the_garbage_collector_runs_is_not_seen():
    """It may start anywhere: no line of the observed code calls a finalizer of a cycle, or what is in `gc.callbacks`."""
    finalized = []

    class InACycle:
        def __init__(self):
            self.itself = self

        def __del__(self):
            finalized.append(double(1))

    def on_collection(phase, info):
        finalized.append(double(2))

    InACycle()
    gc.callbacks.append(on_collection)
    try:
        with Recorder() as seen:
            gc.collect()
            calls_double(1)
    finally:
        gc.callbacks.remove(on_collection)
    assert finalized == [4, 2, 4]
    assert seen.names == ["calls_double", "double"]


def test_what_an_audit_hook_or_a_debugger_runs_is_not_seen():
    """Python calls it in between, and traces nothing meanwhile. (A hook stays for good: this one listens here only.)"""
    heard = []
    sys.addaudithook(
        lambda event, args: heard.append(double(1)) if event == "course_lib.test" else None
    )
    with Recorder() as seen:
        sys.audit("course_lib.test")
        sys.settrace(lambda frame, event, arg: heard.append(double(2)))
        calls_double(1)
        sys.settrace(None)
    assert heard[:2] == [2, 4]
    assert seen.names == ["calls_double", "double"]


def test_a_frame_shows_its_parameters_in_flat_order_before_anything_ran():
    with Recorder() as seen:
        every_kind(1, 2, d=4, z=9)
        every_kind(1, 2, 3, 10, 11, d=4)
    first, second = (frame.locals for frame in seen.frames)
    assert first == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "args": (), "kwargs": {"z": 9}}
    assert (
        list(first)
        == list(parameters(every_kind.__code__))
        == ["a", "b", "c", "d", "e", "args", "kwargs"]
    )
    assert second["args"] == (10, 11)


def test_a_frame_gives_the_function_its_globals_and_its_cells():
    k = 7

    def add(x):
        return (lambda: x + k)()

    with Recorder() as seen:
        assert add(1) == 8
    frame = seen.frames[0]
    assert frame.func is add and frame.func.__globals__ is globals()
    assert frame.where == f"{__file__}:{add.__code__.co_firstlineno}"
    assert frame.locals == {"x": 1}, "a parameter that is also a cell variable is a plain value"
    assert [cell.cell_contents for cell in frame.func.__closure__] == [7]


def test_generators_coroutines_and_bodies_of_classes_and_modules_run_unasked():
    def count(n):
        yield from range(n)

    async def wait():
        return 1

    with Recorder() as seen:
        assert list(count(3)) == [0, 1, 2]
        with pytest.raises(StopIteration):
            wait().send(None)
        exec(compile("class C:\n  x = 1", __file__, "exec"))
    assert seen.names == []


# ---- answering -------------------------------------------------------------------------------------------------------


def test_none_asks_again_next_time_and_skip_never():
    for answer, asked in ((None, 3), (SKIP, 1)):
        frames = []

        def callback(frame, answer=answer, frames=frames):
            if frame.code is double.__code__:
                frames.append(frame)
            return answer

        with watching(callback) as watcher:
            assert [double(n) for n in range(3)] == [0, 2, 4]
        assert len(frames) == asked
        assert watcher.entries(double.__code__) == (() if answer is None else SKIP)


def test_the_head_runs_in_place_of_the_frame_with_the_function_and_flat_arguments():
    def head(func, *args):
        return func.__name__, args

    with replacing("every_kind", head):
        assert every_kind(1, 2, d=4, z=9) == ("every_kind", (1, 2, 3, 4, 5, (), {"z": 9}))
        assert every_kind(8, 2, 3, 10, 11, d=4) == ("every_kind", (8, 2, 3, 4, 5, (10, 11), {}))


def test_the_first_entry_whose_guard_holds_is_used_and_the_callback_is_asked_only_when_none_does():
    asked = []

    def callback(frame):
        if frame.code is not double.__code__:
            return SKIP
        kind = type(frame.locals["x"])
        asked.append(kind)
        return (lambda func, x: type(x) is kind), (lambda func, x: f"{kind.__name__} {x}")

    with watching(callback) as watcher:
        results = [double(1), double("a"), double(2), double("b")]
    assert results == ["int 1", "str a", "int 2", "str b"] and asked == [int, str]
    assert len(watcher.entries(double.__code__)) == 2


def test_the_head_and_all_it_calls_are_watched_but_guards_and_callbacks_are_not():
    def called_by_guard():
        return True

    def guard(func, x):
        return called_by_guard()

    def head(func, x):
        return double(x) + 1

    with Recorder() as seen:
        see = seen.callback
        seen.callback = lambda frame: (guard, head) if frame.func is calls_double else see(frame)
        assert calls_double(1) == calls_double(1) == 3
    assert seen.names == ["double", "double"], "nor is the head itself: its code is skipped"


def test_a_watcher_keeps_its_answers_and_shares_them_with_no_other():
    first, second = (
        replacing("double", lambda func, x, name=name: name) for name in ("first", "second")
    )
    with first:
        assert double(1) == "first"
        with second:
            assert double(1) == "second"
            with first:
                assert double(1) == "first"
        assert double(1) == "first"
    assert len(first.entries(double.__code__)) == len(second.entries(double.__code__)) == 1
    first.forget_all()
    assert first.entries(double.__code__) == () and len(second.entries(double.__code__)) == 1
    second.forget_all()
    assert second.entries(double.__code__) == ()


def test_equal_code_objects_of_different_functions_do_not_share_answers():
    one, two = (FunctionType(double.__code__.replace(), globals()) for _ in range(2))
    assert one.__code__ == two.__code__ and one.__code__ is not two.__code__
    with watching(lambda frame: (always, lambda func, x: "one") if frame.func is one else None):
        assert (one(4), two(4)) == ("one", 8)


def test_call_hides_or_shows_one_call():
    seen = Recorder()
    with seen:
        call(None, double, 1)
    assert seen.names == []
    assert call(seen, calls_double, 3) == 7
    assert seen.names == ["calls_double", "double"]


def test_each_thread_has_its_own_watcher():
    results = []
    with replacing("double", lambda func, x: "here"):
        thread = threading.Thread(target=lambda: results.append(double(1)))
        thread.start()
        thread.join()
        results.append(double(1))
    assert results == [2, "here"]


def test_eight_threads_may_watch_at_once():
    def work(n):
        with replacing("double", lambda func, x: x + n):
            wrong.extend(x for x in range(2000) if double(x) != x + n)

    wrong = []
    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert wrong == [] and double(1) == 2


# ---- exceptions ------------------------------------------------------------------------------------------------------


def fail(*args):
    raise KeyError("on purpose")


@pytest.mark.parametrize("where", ["callback", "guard", "head"])
def test_an_exception_comes_out_at_the_call_and_points_at_its_cause(where):
    guard, head = (fail if where == each else always for each in ("guard", "head"))
    callback = (
        fail
        if where == "callback"
        else lambda frame: (guard, head) if frame.func is double else SKIP
    )
    with pytest.raises(KeyError, match="on purpose") as caught, watching(callback):
        [double(n) for n in range(2)]
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "fail" and names[0].startswith("test_an_exception")
    assert double(3) == 6


def test_an_exception_of_the_head_can_be_caught_by_the_caller():
    def caller():
        try:
            return double(1)
        except KeyError:
            return "caught"

    with replacing("double", fail):
        assert [caller() for _ in range(3)] == ["caught"] * 3


def test_answers_that_are_none_of_the_three_are_refused_with_a_sentence():
    with (
        pytest.raises(TypeError, match=r"must answer None, SKIP or \(guard, head\)"),
        watching(lambda frame: True),
    ):
        double(1)
    with pytest.raises(TypeError, match="expected a Watcher or None, got function"):
        enter(double)


# ---- robustness ------------------------------------------------------------------------------------------------------


def copies():
    """A watcher that puts a copy of each function in its own place: nothing may change."""

    def callback(frame):
        if frame.code.co_filename != __file__ or id(frame.code) in copied:
            return SKIP
        copy = flatten(frame.code)
        copied[id(copy)] = copy
        return always, lambda f, *args: FunctionType(
            copy, f.__globals__, f.__name__, None, f.__closure__
        )(*args)

    copied = {}
    return watching(callback)


def test_a_closure_that_changes_its_cells_does_so_through_its_copy():
    def counter():
        n = 10

        def step(by):
            nonlocal n
            n += (lambda: by)()
            return n

        return step, lambda: n

    step, value = counter()
    with copies():
        assert [step(1), step(2)] == [11, 13]
    assert value() == 13


@pytest.mark.parametrize("depth", [900, 3000])
def test_deep_recursion_is_as_deep_as_without_the_hook(depth):
    def deep(n):
        return 0 if n == 0 else 1 + deep(n - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * depth)
    try:
        recursive_head = replacing("deep", lambda func, n: 0 if n == 0 else 1 + deep(n - 1))
        for watcher in (watching(lambda frame: None), watching(lambda frame: SKIP), recursive_head):
            with watcher:
                assert deep(depth) == depth
        with pytest.raises(RecursionError), watching(lambda frame: SKIP):
            deep(10 * depth)
    finally:
        sys.setrecursionlimit(limit)


def test_no_references_leak():
    def run():
        every_kind(thing, thing, thing, thing, d=thing, z=thing)
        calls_double(2)
        with pytest.raises(TypeError):
            double(thing)

    thing = object()
    watcher = copies()
    with watcher:
        run()
    before = sys.getrefcount(thing), sys.getrefcount(watcher)
    for _ in range(200):
        with watcher:
            run()
    gc.collect()
    assert (sys.getrefcount(thing), sys.getrefcount(watcher)) == before


def test_a_watcher_and_what_its_answers_hold_die_with_their_last_user():
    class Model:
        pass

    model = Model()
    watcher = replacing("double", lambda func, x, model=model: x)
    watcher.model = model
    with watcher:
        assert double(1) == 1
    gone = weakref.ref(model), weakref.ref(watcher)
    del model, watcher
    gc.collect()
    assert [ref() for ref in gone] == [None, None], (
        "the code object, which lives on, must not keep them"
    )


def test_a_code_object_that_dies_takes_its_entries_with_it():
    watcher = watching(
        lambda frame: (always, lambda func: 1) if frame.code.co_name == "short_lived" else SKIP
    )
    for _ in range(5):
        namespace = {}
        exec("def short_lived(): return 0", namespace)
        with watcher:
            assert namespace["short_lived"]() == 1
        del namespace
    gc.collect()
    assert sum(bool(entries) for entries in watcher.values()) == 0


def test_the_tracer_and_the_profiler_see_the_head_in_place_of_the_frame():
    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_filename == __file__ and event in ("call", "return"):
            events.append((event, frame.f_code.co_name))

    def head(func, x):
        return x

    with replacing("double", head):
        double(1)
        sys.setprofile(tracer)
        try:
            double(1)
        finally:
            sys.setprofile(None)
    assert [e for e in events if e[1] in ("head", "double")] == [
        ("call", "head"),
        ("return", "head"),
    ]


# ---- building it -----------------------------------------------------------------------------------------------------


def test_a_free_threaded_python_is_refused_in_one_sentence(monkeypatch):
    asked = native.sysconfig.get_config_var
    free_threaded = {"Py_GIL_DISABLED": 1}
    monkeypatch.setattr(
        native.sysconfig, "get_config_var", lambda name: free_threaded.get(name, asked(name))
    )
    with pytest.warns(RuntimeWarning, match="free-threaded Python, which course_lib does not"):
        assert native.load.__wrapped__("course_lib.frames._framehook") is None


FREE_THREADED_PROGRAM = """
import sysconfig
sysconfig.get_config_vars()["Py_GIL_DISABLED"] = 1
import torch, course_lib
try:
    course_lib.compile(lambda x: x + 1)(torch.ones(2))
except RuntimeError as error:
    print(error)
"""


def test_who_compiles_on_a_free_threaded_python_is_told_the_same():
    done = in_a_fresh_python(FREE_THREADED_PROGRAM)

    assert done.stdout.strip() == native.FREE_THREADED, done.stderr


def in_a_fresh_python(program, folder=None, **environment):
    """Run `program` in a process of its own; with `folder`, on a copy of the package there that nobody installed."""
    path = list(filter(None, sys.path))
    if folder:
        package = Path(native.__file__).parent
        bare = shutil.ignore_patterns("*.so", "__pycache__")
        shutil.copytree(package, folder / "copy" / package.name, ignore=bare, dirs_exist_ok=True)
        path.insert(0, str(folder / "copy"))
    env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(path)}
    command = [sys.executable, "-W", "always", "-c", program]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done


LOAD = "from course_lib import native; print(native.load('course_lib.frames._framehook'))"


def test_the_module_is_built_once_into_the_cache_and_again_when_damaged(tmp_path):
    assert str(tmp_path) in in_a_fresh_python(LOAD, tmp_path, COURSE_CACHE=str(tmp_path)).stdout
    (built,) = tmp_path.glob("native/*")
    good, when = built.read_bytes(), built.stat().st_mtime_ns
    in_a_fresh_python(LOAD, tmp_path, COURSE_CACHE=str(tmp_path))
    assert built.stat().st_mtime_ns == when
    built.write_bytes(good[: len(good) // 2])
    assert str(tmp_path) in in_a_fresh_python(LOAD, tmp_path, COURSE_CACHE=str(tmp_path)).stdout
    assert len(list(tmp_path.glob("native/*"))) == 1


def test_without_a_compiler_one_sentence_says_what_is_missing_and_what_to_do(tmp_path):
    program = f"{LOAD}; print(native.load('course_lib.frames._framehook'))"
    done = in_a_fresh_python(
        program, tmp_path, COURSE_CACHE=str(tmp_path), PATH=str(tmp_path), CC="no-such-cc"
    )
    assert done.stdout.split() == ["None", "None"]
    said = [
        line for line in done.stderr.splitlines() if "RuntimeWarning" in line and "captured" in line
    ]
    assert len(said) == 1 and said[0].endswith(
        "`apt install gcc` or `conda install compilers`; nothing can be captured"
    )


def test_an_installed_module_older_than_its_source_is_not_used(tmp_path):
    source, binary = tmp_path / "m.c", tmp_path / "m.so"
    source.touch()
    assert not native.is_current(binary, source)
    binary.touch()
    assert native.is_current(binary, source)
    os.utime(binary, (0, 0))
    assert not native.is_current(binary, source)
