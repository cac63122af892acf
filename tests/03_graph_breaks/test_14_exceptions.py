"""Exceptions around graph breaks: type, message, the lines of the traceback, what was being handled when they were raised, and
what is being handled afterwards. Everything as in eager."""

import contextlib
import io
import operator
import os
import sys
import traceback
import warnings

import pytest
import torch

import course_lib as cl

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def lines(error):
    return [
        (frame.name, frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == __file__
    ]


@cl.disable
def fails(x):
    raise KeyError("from eager")


def breaks_and_fails(x):
    y = x * 2
    print("break")
    return fails(y) + 1


@program
def a_call_that_broke_the_graph(x):
    y = x + 1
    fails(y)
    return y


@program
def two_calls_deep(x):
    y = x + 1
    z = breaks_and_fails(y)
    return z


@program
def in_the_second_turn_of_a_loop(x):
    for i in range(3):
        x = x + i
        print("turn")
        if i == 1:
            fails(x)
    return x


@program
def caught_by_the_function_itself(x):
    y = x + 1
    try:
        fails(y)
    except KeyError as error:
        return lines(error), y


@program
def through_finally(x):
    y = x + 1
    try:
        breaks_and_fails(y)
    finally:
        y = y + 1
        print("finally")


@program
def through_a_with_block(x):
    with torch.no_grad():
        y = x + 1
        fails(y)
    return y


@program
def raised_in_answer(x):
    try:
        fails(x + 1)
    except KeyError:
        raise ValueError("no")  # noqa: B904


@program
def raised_from(x):
    try:
        fails(x + 1)
    except KeyError as error:
        raise ValueError("no") from error


@program
def shapes_do_not_fit(x):
    y = x + 1
    return y @ x[:2]


@program
def out_of_a_generator(x):
    def values():
        yield x + 1
        print("generator")
        fails(x)

    for y in values():
        x = x + y
    return x


@program
def seen_by_a_function_in_eager(x):
    @cl.disable(recursive=False)
    def outside(x):
        try:
            breaks_and_fails(x)
        except KeyError as error:
            return lines(error)

    return outside(x), x + 1


@program
def nothing_is_handled_any_more(x):
    y = x + 1
    try:
        fails(y)
    except KeyError:
        y = y * 2
    try:
        raise ValueError("another")
    except ValueError as error:
        return y, repr(error.__context__), sys.exc_info()[0]


@program
def nothing_is_handled_after_a_loop(x):
    for _ in range(2):
        try:
            fails(x)
        except KeyError:
            x = x * 2
            print("in the handler")
    print("behind it")
    return x, sys.exc_info()


@program
def raises_after_a_loop_that_handled(x):
    for _ in range(2):
        try:
            fails(x)
        except KeyError as error:
            print(f"again after {error}")
    raise ValueError("gave up")


@program
def it_is_handled_behind_a_break(x):
    try:
        raise ValueError("v")
    except ValueError:
        print("break")
        return x + 1, sys.exc_info()[0], str(sys.exception())


@program
def raised_while_another_is_handled(x):
    try:
        try:
            raise ValueError("v")
        except ValueError:
            print("one")
            x = x + 1
            raise KeyError("k")  # noqa: B904
    except KeyError as error:
        y = x + 1, repr(error.__context__)
        print("two")
    x = x + 1
    try:
        fails(x)
    except KeyError as error:
        return y, repr(error.__context__), sys.exc_info()[0]


@program
def a_handler_in_a_handler(x):
    try:
        raise ValueError("outer")
    except ValueError:
        try:
            fails(x)
        except KeyError:
            print("inner")
            x = x + 1
        print("outer")
        y = x * 2, sys.exc_info()[0]
        print("outer again")
    print("behind both")
    return y, sys.exc_info()[0]


@program
def raised_again_without_a_name(x):
    try:
        try:
            fails(x)
        except KeyError:
            print("handled")
            x = x + 1
            raise
    except KeyError as error:
        return x, lines(error)


class Manager:
    def __init__(self):
        self.log = []

    def __enter__(self):
        self.log.append("in")

    def __exit__(self, kind, error, trace):
        self.log.append(kind and kind.__name__)
        print("leaving")
        return kind is KeyError


@program
def blocks_that_break_and_swallow(x):
    manager = Manager()
    with manager:
        x = x + 1
        fails(x)
    with manager:
        x = x * 2
    try:
        with manager:
            raise ValueError("other")
    except ValueError as error:
        manager.log.append(repr(error.__context__))
    return x, manager.log, sys.exc_info()[0]


@program
def three_handlers_deep(x):
    seen = []
    try:
        fails(x)
    except KeyError as first:
        try:
            fails(x)
        except KeyError as second:
            seen.append((repr(second.__context__), second.__context__ is first))
            print("two")
            try:
                raise RuntimeError("r") from first
            except RuntimeError as third:
                seen.append((repr(third.__cause__), third.__context__ is second))
                print("three")
                x = x + 1
            seen.append(sys.exc_info()[1] is second)
        print("one")
        x = x * 2
        seen.append(sys.exc_info()[1] is first)
    return x, seen, sys.exc_info()[0]


@program
def finally_that_leaves_the_loop(x):
    for i in range(3):
        try:
            fails(x)
        finally:
            print("finally")
            x = x + 1
            if i < 2:
                continue  # noqa: B012
            break  # noqa: B012
    return x, sys.exc_info()


@program
def a_generator_that_handles(x):
    def values():
        try:
            print("first")
            yield x + 1
        except ValueError as error:
            print(error)
            yield x * 3
        finally:
            print("closed")

    iterator = values()
    found = [next(iterator), iterator.throw(ValueError("thrown"))]
    iterator.close()
    return found, sys.exc_info()[0]


@program
def errors_are_kept(x):
    kept = []
    for _ in range(2):
        try:
            fails(x)
        except KeyError as error:
            kept.append(error)
            print("kept")
            x = x + 1
    return x, [(error.args, error.__context__, lines(error)) for error in kept]


def takes(a, /, *, c, **others):
    return a


@program
def an_argument_given_twice(x):
    y = x + 1
    try:
        takes(x, c=2, **{"c": 3})
    except TypeError as error:
        return y, str(error)


def told(function):
    """What the call gives, or the exceptions that come out, from the last to the first; and what is printed."""
    found = []
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        try:
            found.append(repr(function(torch.ones(3))))
        except Exception as error:
            at = error
            while at is not None:
                found.append((type(at), str(at), repr(at.__cause__), lines(at)[at is error :]))
                at = at.__context__
    return found, printed.getvalue(), sys.exc_info()


@pytest.mark.parametrize("name", PROGRAMS)
def test_exceptions_are_those_of_eager(name):
    compiled = cl.compile(PROGRAMS[name], backend="eager")
    for _ in range(3):
        assert told(compiled) == told(PROGRAMS[name])


def test_what_the_caller_handles_is_no_constant():
    def f(x):
        return x + 1, sys.exc_info()[0]

    compiled = cl.compile(f, backend="eager")
    for _ in range(2):
        assert compiled(torch.ones(1))[1] is None
        for error in (KeyError, ValueError):
            try:
                raise error
            except error:
                assert compiled(torch.ones(1))[1] is error


def test_the_head_shows_its_own_line_where_the_graph_fails():
    def backend(graph, inputs):
        return fails_in_the_graph

    def fails_in_the_graph(x):
        raise RuntimeError("kernel")

    def f(x):
        y = x + 1
        print("break")
        return y

    with pytest.raises(RuntimeError) as caught:
        cl.compile(f, backend=backend)(torch.ones(1))
    assert any(
        "__graph(" in (frame.line or "")
        for frame in traceback.extract_tb(caught.value.__traceback__)
    )


def test_the_stack_is_shown_as_cpython_has_it_while_an_exception_is_handled():
    def f(x):
        try:
            raise ValueError("v")
        except ValueError:
            y = x + 1
        return y

    with cl.record() as trace:
        cl.compile(f, backend="eager")(torch.ones(2))
    pushed = next(event for event in trace.events if getattr(event, "op", "") == "PUSH_EXC_INFO")
    assert pushed.after == ("None", "ValueError object")


NAMED = [
    torch.add,
    torch.unique,
    torch.Tensor.add,
    os.listdir,
    warnings.warn,
    open,
    operator.add,
    len,
]


@pytest.mark.parametrize("function", NAMED)
@pytest.mark.parametrize("stars", ["*", "**"])
def test_pythons_own_message_about_stars_has_pythons_own_name_of_the_function(function, stars):
    def one(x, g):
        try:
            g(*5)
        except TypeError as error:
            return x + 1, str(error)

    def two(x, g):
        try:
            g(**5)
        except TypeError as error:
            return x + 1, str(error)

    stars_in = one if stars == "*" else two
    said = cl.compile(stars_in, backend="eager")(torch.ones(1), function)[1]
    assert said == stars_in(torch.ones(1), function)[1]
