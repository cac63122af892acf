"""Who called? Whatever looks at the stack from below finds the frames of the program, and none of the library's.

Warnings, loggers, `inspect` and `sys._getframe` look at the stack. Eager's answer is asked each time.
"""

from __future__ import annotations

import collections
import inspect
import linecache
import logging
import sys
import traceback
import warnings

import pytest
import torch

import course_lib as cl

SEEN: list = []
LOGGER = logging.getLogger(__name__)


class Handler(logging.Handler):
    def emit(self, record):
        SEEN.append((record.pathname, record.lineno, record.funcName))


# ---- ways to look: what a helper of the program sees of its callers


def by_frames():
    frame = sys._getframe(1)
    while frame.f_code is not run.__code__:
        SEEN.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        SEEN.append((frame.f_globals["__name__"], frame.f_globals is globals()))
        frame = frame.f_back


def by_arguments():
    frame = sys._getframe(1)
    SEEN.append("x" in frame.f_locals)


def by_inspect():
    for record in inspect.stack():
        if record.function == "run":
            break
        SEEN.append((record.filename, record.lineno, record.function, record.code_context))


def by_traceback():
    stack = traceback.extract_stack()
    names = [entry.name for entry in stack]
    SEEN.extend((e.filename, e.lineno, e.name) for e in stack[names.index("run") :])


def by_named_tuple():
    SEEN.append(collections.namedtuple("Pair", "a b").__module__)


def by_logging(level):
    def look():
        LOGGER.warning("look", stacklevel=level)

    return look


def by_warning(level):
    def look():
        warnings.warn("look", stacklevel=level)

    return look


def by_warning_of_torch():
    """One of C++: it names the newest frame of Python."""
    torch.set_warn_always(True)
    torch.nonzero(torch.ones(2), as_tuple=False)
    torch.ones(2, 3, 4).T.sum()
    torch.set_warn_always(False)


LOOKS = {
    "frames": by_frames,
    "arguments": by_arguments,
    "inspect": by_inspect,
    "traceback": by_traceback,
    "named tuple": by_named_tuple,
    "warning of torch": by_warning_of_torch,
    **{f"logging {level}": by_logging(level) for level in (1, 2, 3)},
    **{f"warning {level}": by_warning(level) for level in (1, 2, 3, 4)},
}


# ---- programs: where the helper is called


def at_a_break(x, look):
    y = x * 2
    print(end="")
    look()
    return y + 1


def at_two(x, look):
    look()
    y = x * 2
    look()
    return y + 1


def inlined(x, look):
    return at_a_break(x, look) + at_two(x, look)


def in_a_loop(x, look):
    for i in range(3):
        x = x * i
        look()
    return x


def in_a_try(x, look):
    try:
        look()
        y = x / int(x.sum() - 3)
    except ZeroDivisionError:
        look()
        y = x + 1
    finally:
        look()
    return y


def in_a_with(x, look):
    with torch.no_grad():
        y = x * 2
        look()
    return y


def in_a_closure(x, look):
    def inner(z):
        look()
        return z * x

    return inner(x * 2)


def in_a_comprehension(x, look):
    return sum([(look(), x * i)[1] for i in range(2)])


def in_a_generator(x, look):
    def parts():
        for i in range(2):
            look()
            yield x * i

    return sum(parts())


def fails(x, look):
    y = x[torch.tensor([0])] * 2
    try:
        y = y + x[torch.tensor([7])]
    except IndexError:
        look()
    return y


def takes_more(x, look, *more, key=1, **others):
    y = x * key
    look()
    return y + len(more)


class Scaled:
    def __init__(self, look):
        self.look = look

    @property
    def scale(self):
        self.look()
        return 2

    def __call__(self, x):
        print(end="")
        self.look()
        return x * self.scale


def by_a_method(x, look):
    return Scaled(look)(x) + 1


class Layer(torch.nn.Module):
    def forward(self, x, look):
        y = x * 2
        look()
        return y + 1


layer = Layer()


def by_a_module(x, look):
    y = layer(x, look)
    look()
    return y


PROGRAMS = [
    at_a_break,
    at_two,
    inlined,
    in_a_loop,
    in_a_try,
    in_a_with,
    in_a_closure,
    in_a_comprehension,
    in_a_generator,
    fails,
    takes_more,
    by_a_method,
    by_a_module,
]


def run(f, look):
    """What the helper saw in two calls."""
    SEEN.clear()
    handler = Handler()
    LOGGER.addHandler(handler)
    globals().pop("__warningregistry__", None)

    try:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            results = [str(f(torch.ones(3), look)) for _ in range(2)]
    finally:
        LOGGER.removeHandler(handler)

    places = [(w.filename, w.lineno, str(w.message)) for w in told]
    return results, list(SEEN), [place for place in places if "ImportWarning" not in place[2]]


def in_one_line(eager, compiled, look):
    """What both show, called from the same line."""
    return [run(f, LOOKS[look]) for f in (eager, compiled)]


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_helper_sees_the_frames_of_the_program(program, look):
    if program is in_a_closure and look == "arguments":
        pytest.skip("a head has the arguments of its frame, and not the variables of the closure")

    expected, got = in_one_line(program, cl.compile(program, backend="eager"), look)
    assert expected[1] or expected[2]
    assert got == expected


@pytest.mark.parametrize("look", LOOKS)
def test_a_compiled_function_within_another(look):
    inner = cl.compile(at_a_break, backend="eager")

    def outer(function):
        def outer(x, look):
            y = x * 2
            print(end="")
            return function(y, look) + y

        return outer

    compiled = cl.compile(outer(inner), backend="eager")
    expected, got = in_one_line(outer(at_a_break), compiled, look)
    assert got == expected


@pytest.mark.parametrize("look", LOOKS)
def test_a_compiled_module(look):
    expected, got = in_one_line(layer, cl.compile(layer, backend="eager"), look)
    assert got == expected


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_frame_that_runs_as_it_is_has_its_own_callers(level):
    """Where a warning may become an error, eager runs the frame."""

    def warns(x):
        y = x * 2
        warnings.warn("look", stacklevel=level)
        return y

    def place(f):
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            warnings.filterwarnings("error", "something else", UserWarning)
            for _ in range(2):
                f(torch.ones(3))
        return [(w.filename, w.lineno) for w in told]

    compiled = cl.compile(warns, backend="eager")
    expected, got = [place(f) for f in (warns, compiled)]
    assert got == expected


def test_the_variables_of_modules_stay_what_they_are():
    """A head reads what it needs from its closure, and writes nothing into the program's module."""
    before = set(globals())
    cl.compile(at_a_break, backend="eager")(torch.ones(3), by_arguments)
    assert set(globals()) - before <= {"__warningregistry__"}


def test_names_that_the_program_gives_to_builtins_are_its_own():
    names = {"torch": torch, "look": by_arguments}
    source = (
        "len = next = type = None\ndef f(x):\n    look()\n    return [x * 2 for _ in range(2)]\n"
    )
    linecache.cache["<shadows>"] = len(source), None, source.splitlines(keepends=True), "<shadows>"
    exec(compile(source, "<shadows>", "exec"), names)
    x = torch.ones(2)
    assert torch.equal(cl.compile(names["f"], backend="eager")(x)[1], x * 2)


def test_profilers_see_as_many_returns_as_calls():
    """Frames are hidden while they wait, not while they begin or end."""
    compiled = cl.compile(at_two, backend="eager")
    compiled(torch.ones(3), by_arguments)
    open_calls, unmatched = [], []

    def profile(frame, event, _):
        if event == "call":
            open_calls.append(frame.f_code)
        if event == "return":
            if not open_calls or open_calls[-1] is not frame.f_code:
                unmatched.append(frame.f_code)
            else:
                open_calls.pop()

    def watched():
        return compiled(torch.ones(3), by_arguments)

    sys.setprofile(profile)
    watched()
    sys.setprofile(None)
    assert not unmatched


def test_an_error_shows_the_lines_of_the_program():
    def fails(x):
        print(end="")
        return helper(x * 2)

    def helper(x):
        raise KeyError(sys._getframe(1).f_lineno)

    def lines(f):
        with pytest.raises(KeyError) as raised:
            f(torch.ones(2))
        own = [e for e in traceback.extract_tb(raised.tb) if e.filename == __file__]
        return raised.value.args, [(e.lineno, e.name) for e in own]

    expected = lines(fails)
    assert lines(cl.compile(fails, backend="eager")) == expected


class Sized(torch.nn.Module):
    """A method and special methods that look at the stack, asked of the compiled module."""

    def looked(self, look):
        look()
        return self

    def __len__(self):
        by_frames()
        by_inspect()
        return 3

    def __contains__(self, look):
        look()
        return True


@pytest.mark.parametrize("look", LOOKS)
def test_methods_of_a_compiled_module(look):
    module = Sized()

    def with_method(model):
        return lambda x, look: (type(model.looked(look)).__name__, len(model), look in model)

    compiled = cl.compile(module, backend="eager")
    expected, got = [run(with_method(model), LOOKS[look]) for model in (module, compiled)]
    assert got == expected


def test_a_mode_of_the_programs_is_not_compiled():
    """torch asks it for each operation: each would be another guard."""
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    compiled = cl.compile(lambda x: [(x * n, x + n, x - n, x.sin(), x.cos()) for n in range(9)])
    x = torch.ones(2)
    with Mode(), warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled(x)
    assert len(seen) == 45
