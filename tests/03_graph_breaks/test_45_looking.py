"""What only looks (at variables, callers, threads, names, levels of loggers) needs no break, and is looked at again."""

import inspect
import logging
import pickle
import sys
import threading

import pytest
import torch

import course_lib as cl

LOG = logging.getLogger("course_lib.tests.looking")
SCALE = 2
LOCAL = threading.local()


class Named:
    def __init__(self, **given):
        vars(self).update(given)


NAMED = Named(first=1)


def variables(x, n=2):
    before = sorted(locals())
    y = x * n
    again = locals()
    del n
    return before, "n" in again, sorted(locals()), again["y"]


def in_a_cell(x):
    n = 3

    def inner():
        return n, sorted(locals())

    return x * inner()[0], inner()[1], sorted(locals())


def as_a_format(x):
    width = 4
    return x + 1, "{width}".format(**locals()), len(f"{sorted(locals())}")


def globals_by_name(x):
    found = globals()
    return x * found["SCALE"], "SCALE" in found, found.get("NOT_THERE", 7), globals()["__name__"]


def callee():
    frame = sys._getframe(1)
    return frame.f_code.co_name, frame.f_lineno, frame.f_globals["SCALE"], sorted(frame.f_locals)


def looks_up(x):
    return (
        x + 1,
        callee(),
        inspect.currentframe().f_code.co_name,
        sys._getframe().f_back is None if False else 1,
    )


def unread(x, y=None, *rest, z=3):
    return x + 1, sorted(locals()), len(dir())


def deeper(x):
    return (
        x + 1,
        (lambda: sys._getframe(2 - 1).f_code.co_name)(),
        [sys._getframe(0) is sys._getframe(0)],
    )


def names(x):
    made = Named(second=2)
    made.third = 3
    return x + 1, dir(NAMED), dir(made), "x" in dir(), "Named" in dir(sys.modules[__name__])


def names_of_changed(x):
    NAMED.later = 5
    found = "later" in dir(NAMED), hasattr(NAMED, "first")
    del NAMED.later
    return x + 1, found, "later" in dir(NAMED)


def levels(x):
    if LOG.isEnabledFor(logging.INFO):
        x = x + 10
    LOG.debug("%s", x)
    return (
        x + LOG.getEffectiveLevel(),
        LOG.disabled,
        LOG.name,
        logging.getLogger("course_lib.tests.looking").level,
    )


def this_thread(x):
    thread = threading.current_thread()
    return (
        x + (thread is threading.main_thread()),
        thread.name,
        threading.get_ident() == thread.ident,
    )


def local_data(x):
    before = getattr(LOCAL, "depth", 0)
    LOCAL.depth = before + 1
    y = x * LOCAL.depth
    if LOCAL.depth > 2:
        del LOCAL.depth
    return y, hasattr(LOCAL, "depth")


def pickled(x):
    text = pickle.dumps({"scale": SCALE, "names": ("a", 1.5, None)})
    return x + 1, text, pickle.loads(text), pickle.loads(pickle.dumps([x.shape[0]], protocol=2))


def pickled_tensor(x):
    return pickle.loads(pickle.dumps(x)) + 1, pickle.loads(pickle.dumps(Named))


def pickled_wrongly(x):
    try:
        pickle.loads(b"nothing")
    except pickle.UnpicklingError as error:
        return x, str(error)


ONE_GRAPH = [
    variables,
    in_a_cell,
    as_a_format,
    globals_by_name,
    looks_up,
    unread,
    deeper,
    names,
    levels,
    this_thread,
    local_data,
    pickled,
]
PROGRAMS = [*ONE_GRAPH, names_of_changed, pickled_tensor, pickled_wrongly]


def outcome(function, turn):
    """What a call gives where the outside is another one at each turn."""
    globals()["SCALE"] = turn + 2
    NAMED.__dict__.clear()
    vars(NAMED).update({"first": 1} if turn < 2 else {"first": 1, "more": 2})
    LOG.setLevel((logging.WARNING, logging.INFO, logging.ERROR, logging.WARNING)[turn])
    LOG.disabled = turn == 3
    try:
        result = function(torch.ones(turn // 2 + 2))
    except Exception as error:
        return type(error), str(error)
    return [part.tolist() if isinstance(part, torch.Tensor) else part for part in result]


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    globals()["SCALE"] = 2
    LOG.setLevel(logging.NOTSET)
    LOG.disabled = False
    LOCAL.__dict__.clear()


@pytest.mark.parametrize("function", PROGRAMS)
def test_each_call_sees_what_eager_sees(function):
    eagers = [outcome(function, turn) for turn in range(4)]
    LOCAL.__dict__.clear()
    compiled = cl.compile(function, backend="eager")
    assert [outcome(compiled, turn) for turn in range(4)] == eagers


@pytest.mark.parametrize("function", ONE_GRAPH)
def test_it_needs_no_break(function):
    cl.compile(function, backend="eager", fullgraph=True)(torch.ones(3))


def test_another_thread_is_another_answer():
    compiled = cl.compile(lambda x: this_thread(x))
    assert compiled(torch.ones(1))[0].item() == 2
    found = []
    thread = threading.Thread(target=lambda: found.append(compiled(torch.ones(1))), name="other")
    thread.start()
    thread.join()
    assert (found[0][0].item(), found[0][1:]) == (1, ("other", True))
    assert compiled(torch.ones(1))[0].item() == 2


def test_variables_keep_changes_of_their_dict_as_in_python():
    def f(x):
        found = locals()
        found["more"] = 1
        return x + 1, sorted(locals()), found is locals()

    assert cl.compile(f)(torch.ones(1))[1:] == f(torch.ones(1))[1:]
