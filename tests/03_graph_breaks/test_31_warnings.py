"""Warnings: as often as in eager, by Python's filters, and with the file and line that `stacklevel` names. What eager shows is
asked each time."""

from __future__ import annotations

import functools
import os
import warnings

import pytest
import torch
import torch.nn.functional as F

import course_lib as cl

NAN = torch.tensor([float("nan"), 1.0])
CALLS = torch.ones(2), torch.ones(3), torch.ones(2), NAN


def plain(x):
    warnings.warn("careful")  # noqa: B028
    return x + 1


def old_name():
    warnings.warn("old name", DeprecationWarning, stacklevel=2)


def by_caller(x):
    old_name()
    return x + 1


def deep(level):
    def warns(x):
        warnings.warn(f"level {level}", stacklevel=level)
        return x * 2

    def calls(x):
        return warns(x) * 3

    def f(x):
        y = calls(x)
        return y + 1

    return f


def in_a_loop(x):
    for i in range(3):
        warnings.warn(f"careful {i % 2}")  # noqa: B028
    return x * 2


def on_data(x):
    if torch.isnan(x).any():
        warnings.warn("not a number")  # noqa: B028
    return x + 1


def behind_a_break(x):
    y = x * 2
    print(end="")
    warnings.warn("here")  # noqa: B028
    warnings.warn("above", stacklevel=2)
    return y


def breaks_and_warns(x):
    print(end="")
    warnings.warn("of the caller", stacklevel=2)
    return x * 3


def calls_what_breaks(x):
    y = breaks_and_warns(x)
    return y + 1


def only_warns(x):
    warnings.warn("nothing else", stacklevel=2)


def calls_what_only_warns(x):
    only_warns(x)
    only_warns(x)
    return x * 2


def of_a_category(x):
    warnings.warn(UserWarning("an instance"))  # noqa: B028
    warnings.warn("late", RuntimeWarning)  # noqa: B028
    warnings.warn(message="soon", category=FutureWarning, stacklevel=1)
    return x - 1


def deprecated(function):
    @functools.wraps(function)
    def wrapped(*args):
        warnings.warn(f"{function.__name__} is old", stacklevel=2)
        return function(*args)

    return wrapped


@deprecated
def double(x):
    return x * 2


def decorated(x):
    return double(x) + 1


def generated(x):
    def parts():
        for i in range(3):
            warnings.warn(f"part {i}")  # noqa: B028
            yield x * i

    return sum(parts())


def catches_them(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("hidden")  # noqa: B028
    warnings.warn("seen")  # noqa: B028
    return x + 1


def takes_them_for_errors(x):
    try:
        warnings.warn("as an error")  # noqa: B028
        y = x * 2
    except UserWarning:
        y = x * 3
    return y + 1


def above_everything(x):
    warnings.warn("from nowhere", stacklevel=10**6)
    return x + 1


def old_check(x):
    torch._check_is_size(x.shape[0])
    return x + 1


def sizes_differ(x):
    return F.mse_loss(x, x[:1])


def no_dimension(x):
    return F.softmax(x)


def no_degrees_of_freedom(x):
    return x[:1].var()


PROGRAMS = [
    plain,
    by_caller,
    deep(1),
    deep(2),
    deep(3),
    deep(4),
    in_a_loop,
    on_data,
    behind_a_break,
    calls_what_breaks,
    calls_what_only_warns,
    of_a_category,
    decorated,
    generated,
    catches_them,
    takes_them_for_errors,
    above_everything,
    old_check,
    sizes_differ,
    no_dimension,
    no_degrees_of_freedom,
]


def shown(f, action):
    """What the calls give, and the warnings with their places."""
    results = []
    for module in (globals(), vars(F)):
        module.pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        warnings.simplefilter(action)
        for x in CALLS:
            try:
                results.append(str(f(x)))
            except Warning as error:
                results.append(f"{type(error).__name__}: {error}")
    places = [(w.category, str(w.message), os.path.basename(w.filename), w.lineno) for w in found]
    return results, [place for place in places if place[0] is not ImportWarning]


@pytest.mark.parametrize("action", ["always", "default", "once", "module", "ignore", "error"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_warning_is_shown_as_in_eager(program, action, backend):
    expected = shown(program, action)
    assert shown(cl.compile(program, backend=backend), action) == expected


@pytest.mark.parametrize("cast", [torch.Tensor.float, lambda x: x.to(torch.float64)])
def test_a_cast_that_loses_the_imaginary_part_is_told(cast):
    def run(f):
        x = torch.ones(2, dtype=torch.complex64)
        torch.set_warn_always(True)
        try:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                for _ in range(2):
                    f(x)
        finally:
            torch.set_warn_always(False)
        return [str(w.message) for w in found]

    assert run(cl.compile(lambda x: cast(x) + 1)) == run(lambda x: cast(x) + 1)


def test_compiling_does_not_let_python_forget_what_was_shown():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        for _ in range(2):
            warnings.warn("once in this line")  # noqa: B028
            cl.compile(lambda x: x.sin() * 2)(torch.ones(2))
    assert [str(w.message) for w in found] == ["once in this line"]


class Warns(torch.nn.Module):
    def __init__(self, level):
        super().__init__()
        self.level = level

    def forward(self, x):
        warnings.warn("in a module", stacklevel=self.level)
        return x + 1


class Outer(torch.nn.Module):
    def __init__(self, inner, hooked):
        super().__init__()
        self.inner = inner
        for module in (self, inner) if hooked else ():
            module.register_forward_hook(lambda *_: None)

    def forward(self, x):
        return self.inner(x) * 2


@pytest.mark.parametrize("level", range(1, 11))
@pytest.mark.parametrize("hooked", [False, True])
def test_the_frames_of_a_call_of_a_module_are_counted(level, hooked):
    module = Outer(Warns(level), hooked)

    def program(x):
        return module(x) - 1

    def place(run):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            run(torch.ones(3))
        (only,) = found
        return only.filename, only.lineno

    for function in (program, module):
        assert place(cl.compile(function, backend="eager")) == place(function)


def test_a_recording_does_not_repeat_a_warning():
    def program(x):
        return x[None].T + 1

    torch.set_warn_always(True)
    try:
        with warnings.catch_warnings(record=True) as found, cl.record():
            warnings.simplefilter("always")
            cl.compile(program, backend="eager")(torch.ones(2, 3))
    finally:
        torch.set_warn_always(False)
    assert len(found) == 1


# ---- programs that look at the warnings they caused ------------------------------------------------------------------


def recorded_inside(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for i in range(3):
            warnings.warn(f"{i}")  # noqa: B028
            x = x + len(seen) * 10**i
    return x


def recorded_among_operations(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        torch.var(x[:1])
        warnings.warn("careful")  # noqa: B028
        x = x + len(seen)
        old_name()
    return x, [str(w.message) for w in seen]


def recorded_in_an_argument(x, seen):
    warnings.warn("first")  # noqa: B028
    y = x + len(seen)
    warnings.warn("second")  # noqa: B028
    return y * 10 + len(seen)


SHOWN: list[str] = []


def shown_by_the_user(x, seen):
    warnings.warn("careful")  # noqa: B028
    return x + len(SHOWN)


def record(*args, **kwargs):
    SHOWN.append(str(args[0]))


@pytest.mark.parametrize("program", [recorded_inside, recorded_among_operations])
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_a_program_sees_what_it_records_itself(program, backend):
    compiled = cl.compile(program, backend=backend)
    for x in CALLS[:3]:
        assert str(compiled(x)) == str(program(x))


@pytest.mark.parametrize("program", [recorded_in_an_argument, shown_by_the_user])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_program_sees_what_its_caller_records(program, fullgraph):
    """The first call compiles for a list that records nothing."""

    def run(f):
        with warnings.catch_warnings(action="ignore"):
            results = [f(torch.ones(2), [])]
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            results += [f(torch.ones(2), seen), f(torch.ones(2), []), f(torch.ones(2), seen)]
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = record
            results += [f(torch.ones(2), []), f(torch.ones(2), [1])]
        texts = [str(w.message) for w in seen] + SHOWN
        SHOWN.clear()
        return str(results), texts

    assert run(cl.compile(program, fullgraph=fullgraph)) == run(program)


def reads_grad(x):
    y = x * 2
    return y + 1, y.grad, y.grad


def reads_grad_behind_a_break(x):
    y = x * 2
    print(end="")
    return y.grad, y + 1


def reads_grad_that_is_retained(x):
    y = x * 2
    y.retain_grad()
    return y, y.grad


def asks_for_grad(x):
    y = x * 2
    return hasattr(y, "grad"), getattr(y, "grad", 1), hasattr(x, "grad"), y


def breaks_without_reading(x):
    y = x * 2
    print(end="")
    return y.sin()


@pytest.mark.parametrize("action", ["always", "default", "error"])
@pytest.mark.parametrize(
    "program",
    [
        reads_grad,
        reads_grad_behind_a_break,
        reads_grad_that_is_retained,
        asks_for_grad,
        breaks_without_reading,
    ],
)
def test_only_the_program_is_warned_of_a_gradient_of_no_leaf(program, action, monkeypatch):
    """Neither guards, nor capture, nor a recording asks for `.grad` so that it is seen."""

    def shown_by(run):
        monkeypatch.setitem(globals(), "__warningregistry__", {})
        answers = []
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter(action)
            for _ in range(3):
                try:
                    with cl.record():
                        run(torch.ones(2, requires_grad=True))
                except UserWarning as error:
                    answers.append(str(error))
        return answers, [(os.path.basename(w.filename), w.lineno) for w in found]

    torch.set_warn_always(True)
    try:
        expected = shown_by(program)
        assert shown_by(cl.compile(program, backend="eager")) == expected
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("name", ["imag", "mT", "H", "T", "grad", "__cuda_array_interface__"])
def test_hasattr_of_a_tensor_reads_what_raises_in_eager(name):
    def program(x):
        return hasattr(x, name), x + 1

    for x in (torch.ones(2), torch.ones(2, 2), torch.ones(2, 2, 2), torch.ones(2) * 1j):
        assert outcome_of(cl.compile(program, backend="eager"), x) == outcome_of(program, x)


def outcome_of(function, x):
    try:
        return str(function(x))
    except (RuntimeError, TypeError) as error:  # TypeError since torch 2.15
        return f"{type(error).__name__}: {error}"
