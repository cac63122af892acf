"""Small programs, one for each corner of the language, each with a maker of arguments for the call with number `i`.

`tests/03_graph_breaks/test_03_language.py` compares them with eager. `breaks`: how many graph breaks are allowed, which
is how many torch.compile has, or what there are today where that is more."""

# The oddities are the point.
# ruff: noqa

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import random
import string
import sys
import typing
from abc import ABC, abstractmethod
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

PROGRAMS = {}
LOG = []
STATE = 0
randn = torch.randn


def one(i):
    return (randn(3),)


def number(i):
    return randn(3), i


# From Python 3.14 on, an iterator of `itertools` cannot tell how to make another one like it.
NO_COPIES = int(sys.version_info >= (3, 14))
# Python 3.14 writes into this class at its first use
string.Template("$a").substitute(a=1)


def program(make=one, breaks=0):
    """Register a program; `make(i)` gives its arguments."""

    def register(function):
        assert function.__name__ not in PROGRAMS, function.__name__
        PROGRAMS[function.__name__] = (function, make, breaks)
        return function

    return register


# ---- exceptions --------------------------------------------------------------------------------------------------------


class MyError(Exception):
    def __init__(self, code, *, note=None):
        super().__init__(f"code {code}")
        self.code, self.note = code, note


class Worse(MyError):
    pass


@program(number)
def try_except_else_finally(x, i):
    out = []
    try:
        if i == 1:
            raise ValueError("one")
        if i == 2:
            raise KeyError("two")
    except ValueError as e:
        out.append(str(e))
    except (KeyError, IndexError) as e:
        out.append(repr(e))
    else:
        out.append("else")
    finally:
        out.append("finally")
    return x + len(out), out


@program(number)
def custom_exception_attributes(x, i):
    try:
        raise Worse(i, note=x * 2)
    except MyError as e:
        return x + e.code, e.note, type(e).__name__, e.args, str(e)


@program()
def raises_to_the_caller(x):
    y = x + 1
    raise Worse(3, note="n")


@program()
def raise_from(x):
    try:
        try:
            {}["k"]
        except KeyError as e:
            raise ValueError("outer") from e
    except ValueError as e:
        return x, type(e.__cause__), e.__cause__.args, e.__suppress_context__, type(e.__context__)


@program(breaks=3)
def raise_from_none_out(x):
    try:
        [][3]
    except IndexError:
        raise MyError(1) from None


@program(breaks=3)
def raise_in_except_out(x):
    try:
        [][3]
    except IndexError as e:
        raise MyError(1)


@program()
def implicit_context(x):
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            int("a")
    except ValueError as e:
        return x + 1, str(e), str(e.__context__)


@program(number)
def nested_reraise(x, i):
    log = []
    try:
        try:
            if i:
                raise MyError(i)
        except MyError:
            log.append("inner")
            raise
        finally:
            log.append("finally")
    except Exception as e:
        log.append(type(e).__name__)
    return x * len(log), log


@program(number)
def return_in_finally(x, i):
    try:
        if i:
            raise MyError(1)
        return x
    finally:
        return x + 1


@program(number)
def return_value_before_finally(x, i):
    r = [0]
    try:
        return r, x + r[0]
    finally:
        r[0] = i


@program(number)
def break_and_continue_in_finally(x, i):
    n = 0
    for k in range(5):
        try:
            if k == i:
                continue
            if k == i + 2:
                break
            n += 10
        finally:
            n += 1
    return x + n, n


@program()
def except_name_is_deleted(x):
    try:
        raise ValueError
    except ValueError as e:
        pass
    try:
        e
    except UnboundLocalError as err:
        return x, str(err)


@program(breaks=1)
def catches_torch_error(x):
    try:
        return x @ torch.ones(5)
    except RuntimeError:
        return x + 5


@program()
def catches_attribute_error(x):
    try:
        x.nope
    except AttributeError as e:
        return x + 1, str(e)


@program(breaks=1)
def raises_type_error(x):
    return x + "a"


@program()
def raises_missing_argument(x):
    def g(a, b):
        return a

    return g(x)


@program()
def raises_unexpected_keyword(x):
    def g(a):
        return a

    return g(x, z=1)


@program()
def raises_stop_iteration(x):
    return next(iter([])), x


@program(number)
def side_effect_before_raise(x, i):
    LOG.append(i)
    LOG.append(x + 1)
    raise MyError(i)


@program(lambda i: (randn(3), []), breaks=1)
def side_effect_before_operation_error(x, values):
    values.append(x * 2)
    x[7]


@program(breaks=2)
def raises_from_callee(x):
    def g(v):
        LOG.append("g")
        if v.shape[0] == 3:
            raise Worse(4)

    try:
        g(x)
    finally:
        LOG.append("after")


@program()
def exception_group_of_classes(x):
    errors = (ValueError, TypeError)
    try:
        raise TypeError("t")
    except errors as e:
        return x, e.args


@program()
def assert_true(x):
    assert x.shape[0] == 3, "no"
    assert isinstance(x, torch.Tensor)
    return x + 1


@program(number)
def assert_false(x, i):
    assert i < 1, f"i is {i}"
    return x + i


@program(lambda i: (randn(3).abs() + 1,), breaks=1)
def assert_tensor(x):
    assert (x > 0).all(), "positive"
    return x + 1


@program(lambda i: (randn(3).abs() - 100,), breaks=1)
def assert_tensor_false(x):
    assert (x > 0).all(), "positive"
    return x + 1


@program()
def exception_as_value(x):
    e = MyError(2, note=[x])
    return e, x + 1


@program()
def try_in_loop(x):
    out = []
    for v in ("1", "a", "2", ""):
        try:
            out.append(int(v))
        except ValueError:
            out.append(-1)
    return x * sum(out), out


@program()
def key_error_message(x):
    d = {"a": 1}
    try:
        d["b"]
    except KeyError as e:
        return x, str(e), e.args


@program()
def raise_class_without_call(x):
    try:
        raise MyError
    except TypeError as e:
        return x + 1, str(e)


@program()
def raise_not_an_exception(x):
    try:
        raise 3
    except TypeError as e:
        return x, str(e)


@program()
def bare_raise_without_exception(x):
    try:
        raise
    except RuntimeError as e:
        return x, str(e)


@program()
def handler_in_callee_reraises(x):
    def g():
        raise

    try:
        try:
            raise ValueError("v")
        except ValueError:
            g()
    except ValueError as e:
        return x, str(e)


@program()
def sys_exc_info(x):
    import sys

    try:
        raise ValueError("v")
    except ValueError:
        return x + 1, sys.exc_info()[0]


@program()
def exception_notes(x):
    try:
        e = ValueError("a")
        e.add_note("n")
        raise e
    except ValueError as err:
        return x, err.__notes__


@program(number)
def nested_functions_with_finally(x, i):
    def g(k):
        try:
            LOG.append(("try", k))
            if k > 1:
                raise MyError(k)
            return k
        except MyError as e:
            LOG.append(e.code)
            return -1
        finally:
            LOG.append(("finally", k))

    return x + g(0) + g(i) + g(5)


@program(breaks=1)
def except_star(x):
    out = []
    try:
        raise ExceptionGroup("g", [ValueError("a"), TypeError("b")])
    except* ValueError as e:
        out.append(len(e.exceptions))
    except* TypeError as e:
        out.append(str(e.exceptions[0]))
    return x + 1, out


# ---- with --------------------------------------------------------------------------------------------------------------


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


@program(lambda i: (randn(3, requires_grad=True),))
def grad_switches(x):
    a = x * 2
    with torch.no_grad():
        b = x * 3
        with torch.enable_grad():
            c = x * 4
        d = x * 5
    with torch.set_grad_enabled(False):
        e = x * 6
    return a, b, c, d, e, torch.is_grad_enabled()


@program(lambda i: (randn(3, requires_grad=True),))
def no_grad_as_decorator(x):
    @torch.no_grad()
    def g(v):
        return v * 2

    return g(x), x + 1


@torch.no_grad()
def module_level_no_grad(v):
    return v * 2, torch.is_grad_enabled()


@program(lambda i: (randn(3, requires_grad=True),))
def calls_no_grad_function(x):
    return module_level_no_grad(x), x + 1


@program(lambda i: (randn(3, requires_grad=True), i))
def grad_mode_left_off(x, i):
    torch.set_grad_enabled(i == 1)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, x * 3


@program(lambda i: (randn(3, requires_grad=True),))
def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y + 1


@program(lambda i: (randn(3, 4), randn(3, 4, requires_grad=True)))
def inference_mode_and_views(x, w):
    with torch.inference_mode():
        y = x * w
        outside, inside, twice = x.view(-1), y.view(-1), y
        kept = [y[0], {"sum": y.sum()}]
    return (
        y,
        twice,
        outside,
        inside,
        kept,
        y + 1,
        y[1],
        torch.is_inference_mode_enabled(),
        torch.is_grad_enabled(),
    )


@program(lambda i: (randn(3, requires_grad=True),))
def inference_mode_writes_to_what_is_outside(x):
    y = x * 2
    with torch.inference_mode():
        y.add_(1)
        with torch.enable_grad():
            z = y * 2
        inside = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    return y, z, inside


@torch.inference_mode()
def module_level_inference(x):
    return x * 2


@program(lambda i: (randn(3, requires_grad=True),))
def calls_an_inference_function(x):
    return module_level_inference(x), module_level_inference(x) + 1, x + 1


@program(lambda i: (randn(3), randn(3, requires_grad=True)))
def inference_mode_in_a_loop_under_no_grad(x, w):
    kept = []
    with torch.no_grad():
        for _ in range(3):
            with torch.inference_mode(), torch.inference_mode():
                x = x + w
            kept.append(x * w)
    return kept, x


@program(lambda i: (randn(3),))
def inference_mode_left_by_an_exception(x):
    try:
        with torch.inference_mode():
            y = x * 2
            raise ValueError("enough")
    except ValueError as error:
        return y, y + 1, str(error), torch.is_grad_enabled()


@program(lambda i: (randn(3), randn(3)))
def inference_mode_around_vmap_and_complex(x, y):
    with torch.inference_mode():
        seen = torch.vmap(lambda row: row.view(-1))(x.view(3, 1))
        made = torch.vmap(lambda row: row * 2)(x)
        turned = torch.complex(x, y).conj()
    return seen, made, turned.real, turned.imag


@program(lambda i: (randn(3), randn(3, requires_grad=True)), breaks=1)
def saves_an_inference_tensor(x, w):
    with torch.inference_mode():
        y = x * 2
    return y * w


@program(lambda i: (randn(3),), breaks=1)
def writes_to_an_inference_tensor(x):
    with torch.inference_mode():
        y = x * 2
    y += 1
    return y


@program(lambda i: (randn(3), randn(3)), breaks=3)
def break_in_inference_mode(x, w):
    with torch.inference_mode():
        y = x * w
        print("inside")
        y = y + 1
    return y * 2, y


@program(lambda i: (randn(3),), breaks=2)
def asks_for_an_inference_tensor(x):
    with torch.inference_mode():
        y = x * 2
    return y.is_inference(), x.is_inference(), y


@program(lambda i: (randn(3),), breaks=2)
def inference_mode_switched_off(x):
    with torch.inference_mode(False):
        y = x * 2
    return y, y.sum()


@program(lambda i: (randn(3),))
def inference_mode_by_hand(x):
    context = torch.inference_mode()
    context.__enter__()
    y = x * 2
    inside = torch.is_inference_mode_enabled()
    context.__exit__(None, None, None)
    return y, inside, torch.is_inference_mode_enabled()


@program(lambda i: (randn(3),))
def annotations_of_a_function_made_here(x):
    def inner(a: int, *, b: "text" = 2) -> float:  # noqa: F821
        return a

    return x + 1, inner.__annotations__, inner


@program(lambda i: (randn(3),), breaks=2)
def device_context(x):
    with torch.device("meta"):
        made = torch.ones(2), torch.tensor([1.0]), torch.nn.Linear(2, 2).weight
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.device("meta"))
        more = torch.zeros(3)
    return [t.device for t in made], more.device, torch.ones(2), x + 1


@program(lambda i: (randn(3, 3), randn(3, 3)))
def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y
    return z, x @ y


@program(lambda i: (randn(3, 3),))
def autocast_decorator(x):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def g(v):
        return v @ v

    return g(x)


@program(number)
def raise_inside_no_grad(x, i):
    try:
        with torch.no_grad():
            if i:
                raise ValueError
    except ValueError:
        pass
    return x + 1, torch.is_grad_enabled()


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


# ---- comprehensions, closures, arguments ---------------------------------------------------------------------------------


@program()
def list_comprehension(x):
    return [x * k for k in range(3) if k != 1], [[a + b for b in range(2)] for a in range(2)]


@program()
def set_and_dict_comprehension(x):
    return {k % 2 for k in range(5)}, {k: x + k for k in "ab" * 2 for k in (1, 2)}


@program()
def generator_expressions(x):
    return (
        sum(x * k for k in range(3)),
        any(k > 3 for k in range(5)),
        all(k for k in (1, 0, 2)),
        max(k * k for k in (1, -3)),
    )


@program()
def comprehension_over_outer_names(x):
    n = 3
    scale = [x * n for _ in range(2)]
    fs = [lambda: k + n for k in range(3)]
    n = 4
    return scale, [f() for f in fs]


@program()
def walrus_in_comprehension(x):
    r = [y for k in range(4) if (y := k * 2) > 2]
    return x + y, r


@program()
def nested_closures(x):
    def a(p):
        def b(q):
            def c(r):
                return p + q + r + x

            return c

        return b

    return a(1)(2)(3)


@program()
def nonlocal_counter(x):
    def counter():
        n = 0

        def inc(by=1):
            nonlocal n
            n += by
            return n

        return inc

    one, two = counter(), counter()
    one(), one(5), two()
    return x + one() * two(), one


@program(number)
def global_state(x, i):
    global STATE
    STATE += i + 1
    return x * STATE


@program()
def global_read_after_write_in_callee(x):
    def g():
        global STATE
        STATE = 7

    g()
    return x + STATE


@program()
def all_kinds_of_parameters(x):
    def g(a, b=2, /, c=3, *rest, d, e=5, **more):
        return a, b, c, rest, d, e, more

    return g(x, d=1), g(1, 2, 3, 4, 5, d=x, z=9), g(1, *[2, 3], **{"d": 4, "c2": 6})


def defaults(x, n=1, *values, scale=2, **more):
    return x * n * scale + len(values) + len(more), values, more


@program(lambda i: (randn(3), *range(i)))
def star_args_of_the_frame(*args):
    return defaults(*args, scale=3, z=1)


@program()
def mutable_default(x):
    def g(v, seen=[]):
        seen.append(v)
        return len(seen)

    g(x), g(1)
    return x + g(2), g.__defaults__


def mutable_module_default(v, seen=[]):
    seen.append(v)
    return list(seen)[-2:]


@program()
def keyword_duplicates(x):
    def g(**kw):
        return kw

    try:
        g(**{"a": 1}, **{"a": 2})
    except TypeError as e:
        return x, str(e)


@program()
def keyword_only_missing(x):
    def g(*, key):
        return key

    try:
        g()
    except TypeError as e:
        return x, str(e)


@program()
def unpacking(x):
    a, *b, c = range(5)
    (d, e), [f, *g] = (1, 2), "xyz"
    first, *_ = x
    return a, b, c, d, e, f, g, first, [*range(2), *b], {**{"k": 1}, "j": 2}, (*b, 1), {*b, 9}


@program()
def unpack_errors(x):
    out = []
    for values in ((1,), (1, 2, 3)):
        try:
            a, b = values
        except ValueError as e:
            out.append(str(e))
    try:
        a, *b, c = (1,)
    except ValueError as e:
        out.append(str(e))
    try:
        a, b = 3
    except TypeError as e:
        out.append(str(e))
    return x, out


@program(number)
def f_strings(x, i):
    v, name = 3.14159, "ab"
    return (
        f"{i}|{v:.2f}|{name!r:>6}|{name!s}|{i:03d}|{v:{i + 5}.1f}|{{}}|{i=}|{x.shape}|{x.dtype}",
        x,
    )


@program(number)
def chained_comparisons(x, i):
    return 0 < i < 2, 0 <= i <= 1 < 5 != i, x + (1 if 0 < i <= 2 else -1)


@program()
def chained_comparison_evaluates_once(x):
    def g(v):
        LOG.append(v)
        return v

    return g(1) < g(3) < g(2) < g(9), x


@program(number)
def boolean_operators(x, i):
    return i or "zero", i and "some", not i, (i or None) and [], x + (i if i else 7)


@program()
def walrus(x):
    if (n := x.shape[0]) > 2:
        return x * n, (m := n + 1), m


@program(number)
def slices(x, i):
    v = list(range(10))
    w = v[:]
    w[2:4] = ["a"]
    del w[::3]
    v[i:] = []
    return x[1:], x[::2], v, w, "hello"[::-1], (1, 2, 3)[-2:], x[-1:], v[5:1]


@program()
def deletes(x):
    a = [1, 2, 3]
    d = {"a": 1, "b": x}
    del a[0], d["a"]
    b = 3
    del b
    try:
        b
    except UnboundLocalError as e:
        return a, d, str(e)


@program()
def del_closure_variable(x):
    v = 1

    def g():
        return v

    del v
    try:
        g()
    except NameError as e:
        return x, str(e), type(e)


@program()
def imports_inside(x):
    import math
    import os.path
    from collections import OrderedDict as OD
    from math import pi

    return x * math.sin(pi / 2), OD(a=1), os.path.join("a", "b")


@program(breaks=2)
def import_error(x):
    try:
        import nothing_of_that_name
    except ImportError as e:
        return x + 1, type(e).__name__


@program()
def lambdas_and_decorators(x):
    def twice(f):
        @functools.wraps(f)
        def wrapper(*args, **kwargs):
            LOG.append(f.__name__)
            return f(f(*args, **kwargs), **kwargs)

        return wrapper

    @twice
    def g(v, k=2):
        "doc"
        return v * k

    return g(x, k=3), g.__name__, g.__doc__, (lambda a, *b, c=1: (a, b, c))(1, 2, c=3)


@program()
def decorator_with_arguments(x):
    def repeat(n):
        def deco(f):
            def w(v):
                for _ in range(n):
                    v = f(v)
                return v

            return w

        return deco

    @repeat(2)
    @repeat(3)
    def inc(v):
        return v + 1

    return inc(x)


@program()
def recursion(x):
    def fact(n):
        return 1 if n <= 1 else n * fact(n - 1)

    def down(v, n):
        return v if n == 0 else down(v + n, n - 1)

    return down(x, 4) * fact(5)


@program()
def mutual_recursion(x):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return x + 1, even(6), odd(6)


@program(number)
def loops(x, i):
    n = 0
    for k in range(10):
        if k == i:
            continue
        if k > 5:
            break
        n += k
    else:
        n = 100
    while n > 3:
        n -= 4
    else:
        n -= 1
    return x + n, k


@program()
def nested_loop_over_zip(x):
    out = []
    for i, (a, b) in enumerate(zip([1, 2, 3], "abc"), 5):
        for c in b * i:
            out.append((a, c))
    return x * len(out), out[:3]


@program(number)
def conditional_expression_of_tensors(x, i):
    return (x if i else -x) + (0 if i is None else i)


@program()
def annotations_and_type_hints(x):
    n: int = 3

    def g(a: int, b: "str" = "s") -> float:
        return a

    return x + n, typing.cast(int, 4)


# ---- match -------------------------------------------------------------------------------------------------------------


@dataclass
class Point:
    x: int
    y: int = 0


class Color(enum.Enum):
    RED = 1
    GREEN = 2

    @property
    def low(self):
        return self.name.lower()


def matched(value):
    match value:
        case None:
            return "none"
        case True | False as b:
            return "bool", b
        case 0 | 1:
            return "small"
        case int(n) if n > 10:
            return "large", n
        case float():
            return "float"
        case str() as s if s.startswith("a"):
            return "a-string", s
        case "b" | "c":
            return "b or c"
        case []:
            return "empty"
        case [x]:
            return "one", x
        case [1, *rest]:
            return "starts with 1", rest
        case [first, *_, last]:
            return "ends", first, last
        case {"k": v, **rest}:
            return "k", v, rest
        case {}:
            return "dict"
        case Point(x=0, y=yy):
            return "x is 0", yy
        case Point(a, b):
            return "point", a, b
        case Color.RED:
            return "red"
        case Color():
            return "color"
        case _:
            return "other"


MATCHED = [None, True, 0, 11, 5, 2.5, "abc", "b", "z", [], [7], [1, 2, 3], (4, 5, 6), {"k": 1, "z": 2}, {"q": 1}, {},
           Point(0, 3), Point(1, 2), Color.RED, Color.GREEN, {1}, b"ab", range(3)]  # fmt: skip


@program()
def match_all(x):
    return [matched(v) for v in MATCHED], x + 1


@program(lambda i: (randn(3), MATCHED[i]))
def match_argument(x, v):
    return matched(v), x


@program()
def match_tensor_class(x):
    match x:
        case torch.Tensor(shape=(n,)):
            return x * n
        case _:
            return x


@program(lambda i: (randn(3), {"op": ("add", "mul", "no")[i], "by": i}))
def match_mapping_dispatch(x, d):
    match d:
        case {"op": "add", "by": n}:
            return x + n
        case {"op": "mul", "by": n}:
            return x * n
        case {"op": other}:
            raise ValueError(other)


@program()
def match_error(x):
    try:
        match Point(1, 2):
            case Point(1, 2, 3):
                pass
    except TypeError as e:
        return x, str(e)


# ---- generators --------------------------------------------------------------------------------------------------------


def count_to(n):
    LOG.append("start")
    try:
        for k in range(n):
            got = yield k
            if got:
                LOG.append(("got", got))
    finally:
        LOG.append("closed")
    return "done"


@program()
def generator_consumed(x):
    return x * sum(count_to(4)), list(count_to(2)), [*count_to(1)], dict(zip("ab", count_to(2)))


@program()
def generator_next_and_send(x):
    g = count_to(5)
    a = next(g)
    b = g.send("hi")
    c = next(g)
    g.close()
    return x + a + b + c, next(g, "none")


@program()
def generator_return_value(x):
    def outer():
        r = yield from count_to(2)
        LOG.append(r)
        yield r

    return list(outer()), x + 1


@program()
def generator_stop_iteration_value(x):
    g = count_to(1)
    next(g)
    try:
        next(g)
    except StopIteration as e:
        return x, e.value


@program()
def generator_early_break(x):
    for k in count_to(10):
        x = x + k
        if k == 2:
            break
    LOG.append("after")
    return x


@program()
def generator_throw(x):
    def g():
        try:
            yield 1
        except ValueError as e:
            LOG.append(str(e))
            yield 2

    it = g()
    a = next(it)
    b = it.throw(ValueError("thrown"))
    return x + a + b


@program()
def generator_of_tensors(x):
    def scan(values):
        total = 0
        for v in values:
            total = total + v
            yield total

    return torch.stack(list(scan([x, x * 2, x * 3])))


@program()
def generator_pipeline(x):
    evens = (k for k in range(12) if k % 2 == 0)
    squares = (k * k for k in evens)
    big = itertools.takewhile(lambda v: v < 40, squares)
    return x * sum(big), next(evens)


@program(breaks=3)
def generator_raises(x):
    def g():
        yield 1
        raise MyError(5)

    out = []
    try:
        for v in g():
            out.append(v)
    except MyError as e:
        out.append(e.code)
    return x, out


@program()
def generator_stopiteration_inside(x):
    def g():
        yield 1
        raise StopIteration("no")

    try:
        list(g())
    except RuntimeError as e:
        return x + 1, str(e), type(e.__cause__)


@program()
def recursive_generator(x):
    def walk(t):
        if isinstance(t, list):
            for k in t:
                yield from walk(k)
        else:
            yield t

    return x * sum(walk([1, [2, [3, [4]]]]))


@program(breaks=1)
def returns_generator(x):
    return (x * k for k in range(3))


@program()
def generator_over_argument(x):
    def pairs(v):
        it = iter(v)
        for a in it:
            yield a, next(it, None)

    return list(pairs([1, 2, 3])), x + 1


@program(lambda i: (randn(3), iter([1, 2, 3])), breaks=2)
def iterator_argument(x, it):
    a = next(it)
    return x + a, list(it)


@program(lambda i: (randn(3), (k for k in range(4))), breaks=2)
def generator_argument(x, g):
    a = next(g)
    return x + a + sum(g)


@program(lambda i: (randn(3), zip("ab", [1, 2]), enumerate("xy"), map(str, [1, 2])), breaks=3)
def iterator_object_arguments(x, z, e, m):
    return x + 1, next(z), list(e), list(m)


# ---- containers --------------------------------------------------------------------------------------------------------


@program(lambda i: (randn(3), [3, 1, 2]))
def list_methods(x, v):
    v.append(x)
    v.pop()
    v.sort(reverse=True)
    v.insert(1, 7)
    v.remove(1)
    v.reverse()
    v += [9]
    v *= 2
    return x + v.index(7), v.count(9), v.copy(), v


@program(lambda i: (randn(3), {"a": 1, "b": 2}))
def dict_methods(x, d):
    d["c"] = x
    d.setdefault("e", []).append(1)
    d.update(f=2, a=5)
    r = d.pop("b"), d.pop("zz", None), d.get("q", 3)
    d |= {"g": 1}
    return x + d["a"], r, list(d.items()), "a" in d, len(d), [*d], d.popitem()


@program(lambda i: (randn(3), {1, 2, 3}))
def set_methods(x, s):
    s.add(4)
    s.discard(1)
    s |= {9}
    return (
        x + len(s),
        s & {2, 9},
        s - {2},
        s ^ {100},
        4 in s,
        frozenset(s),
        s <= {2, 3, 4, 9},
        s.isdisjoint({5}),
    )


@program(lambda i: (randn(3), deque([1, 2, 3], maxlen=3)))
def deque_methods(x, q):
    q.append(x)
    q.appendleft(0)
    q.rotate(1)
    return x + q[0] if isinstance(q[0], int) else x, q.popleft(), len(q), q.maxlen, deque(q)


@program()
def deque_made_inside(x):
    q = deque([1], maxlen=2)
    q.extend([2, 3])
    return q, x + q[-1]


@program(lambda i: (randn(3), OrderedDict(a=1, b=2, c=3)))
def ordered_dict(x, d):
    d.move_to_end("a")
    d["z"] = x
    d.popitem(last=False)
    return x + d["a"], list(d), d == OrderedDict(c=3, a=1), OrderedDict([("k", x)])


@program(lambda i: (randn(3), defaultdict(list)))
def default_dict(x, d):
    d["a"].append(x)
    d["a"].append(1)
    n = defaultdict(int)
    for c in "hello":
        n[c] += 1
    m = defaultdict(lambda: defaultdict(list))
    m[1][2].append(x)
    return x + n["l"], n, m[1]


@program(lambda i: (randn(3), Counter("abca")))
def counter(x, c):
    c.update("zz")
    d = Counter([1, 1, 2])
    return x * c["a"], c.most_common(1), d, c["none"], sum(c.values()), d + Counter([1])


Triple = namedtuple("Triple", "a b c", defaults=(3,))


class Pair(typing.NamedTuple):
    left: int
    right: list = None

    def total(self):
        return self.left + len(self.right or [])


@program(lambda i: (randn(3), Triple(1, [2])))
def named_tuples(x, t):
    a, b, c = t
    p = Pair(2, [x])
    return (
        x * t.c + t[0],
        t._replace(a=x),
        t._asdict(),
        p.total(),
        p,
        Triple._fields,
        p == (2, 3),
        Pair(1)._replace(right=[]),
    )


@dataclass
class Config:
    n: int
    scale: float = 2.0
    names: list = field(default_factory=list)
    extra: dict = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self):
        self.n += 1

    @property
    def double(self):
        return self.n * 2


@dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: str = "b"


@dataclass
class Child(Config):
    more: int = 5

    def __post_init__(self):
        super().__post_init__()
        self.more *= 2


@dataclass(slots=True, kw_only=True)
class Slotted:
    a: object
    b: int = 3


@program(lambda i: (randn(3), Config(i), Child(1, more=3)), breaks=1)
def dataclasses_(x, c, k):
    c.names.append("k")
    k.n = k.n + 5
    made = Child(3, names=["a"])
    return (
        x * c.double,
        made,
        k == made,
        repr(Config(1)),
        dataclasses.replace(made, n=9),
        dataclasses.asdict(c),
    )


@program(lambda i: (randn(3), Frozen(1)))
def frozen_dataclass(x, f):
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as e:
        LOG.append(str(e))
    d = {f: 1, Frozen(2): 2}
    return (
        x + f.a,
        f < Frozen(2),
        hash(f) == hash(Frozen(1)),
        d[Frozen(1)],
        [g.name for g in dataclasses.fields(f)],
        {Frozen(7)},
    )


@program(lambda i: (randn(3), Slotted(a=1)))
def slotted_dataclass(x, s):
    s.b += 1
    t = Slotted(a=x, b=s)
    return t, x * s.b


@program(lambda i: (randn(3, 4),))
def torch_size(x):
    s = x.shape
    return (
        s,
        s[1:],
        s.numel(),
        (*s, 1),
        s + (2,),
        tuple(s),
        list(s),
        len(s),
        s == (3, 4),
        x.view(s[0] * s[1]),
        torch.Size([1]),
    )


@program(number)
def ranges(x, i):
    r = range(i, 10, 2)
    return (
        r,
        len(r),
        r[1],
        4 in r,
        list(reversed(r)),
        r[1:],
        r.start,
        x * r.step,
        range(3) == range(0, 3),
        sum(r),
    )


@program(lambda i: (randn(5), slice(i, 4), range(3)))
def slice_argument(x, s, r):
    return x[s], s.start, [*r], slice(1, None), x[slice(None, None, 2)]


@program(lambda i: (randn(3), [1, 2, 3], "abc"))
def builtin_iterators(x, v, s):
    return (
        list(enumerate(s, 1)), list(zip(v, s, strict=True)), list(map(lambda a, b: a * b, v, v)), list(filter(None, [0, *v])),
        list(reversed(v)), sorted(v, key=lambda k: -k), sorted(s, reverse=True), x * max(v, key=lambda k: -k), min(s), any(v),
        sum(v, 10), list(iter(v)), max([], default=3), abs(-2), round(2.567, 1), divmod(7, 2), pow(2, 5, 7),
    )  # fmt: skip


@program()
def zip_strict_error(x):
    try:
        list(zip([1], [1, 2], strict=True))
    except ValueError as e:
        return x, str(e)


@program()
def itertools_(x):
    i = itertools
    return (
        list(i.chain([1], (2,))), list(i.chain.from_iterable([[1], [2]])), list(i.product("ab", [1, 2])),
        list(i.islice(i.count(3), 2)),
        list(i.accumulate([1, 2, 3], operator.mul)), list(i.combinations("abc", 2)), list(i.permutations([1, 2])),
        list(i.zip_longest([1], [2, 3], fillvalue=0)), [(k, list(g)) for k, g in i.groupby([1, 1, 2])], list(i.repeat(x, 2)),
        list(i.starmap(pow, [(2, 3)])), list(i.dropwhile(lambda k: k < 2, [1, 2, 1])), list(i.pairwise([1, 2, 3])),
        list(i.compress("abc", [1, 0, 1])), list(i.islice(i.cycle([1, 2]), 3)),
        [list(t) for t in i.tee([1, 2])], list(i.filterfalse(bool, [0, 1])),
        x + 1,
    )  # fmt: skip


@program(breaks=NO_COPIES)
def returned_iterators(x):
    a = iter([1, 2, 3])
    next(a)
    return (
        a,
        enumerate([x, 1], 4),
        zip([1, 2], "ab"),
        map(str, [1]),
        itertools.chain([1], [2]),
        x + 1,
    )


@program()
def list_identity_is_kept(x):
    a = [1]
    b = [a, a]
    d = {"a": a, "b": b, "x": x}
    b.append(d)
    return a, b, d, (a, x), x + 1


@program(breaks=1)
def list_that_contains_itself(x):
    a = [x + 1]
    a.append(a)
    return a


@program(lambda i: (lambda v: (randn(3), v, {"v": v}))([1]))
def aliased_arguments(x, v, d):
    d["v"].append(2)
    v.append(3)
    return x + len(v), d["v"] is v


@program(lambda i: (randn(3), [[0] * 2] * 2))
def aliased_rows(x, rows):
    rows[0][1] = 5
    return x + rows[1][1], rows


@program(lambda i: (randn(3), [1, 2, 3, 4]))
def list_changed_while_iterating(x, v):
    for k in v:
        if k < 3:
            v.append(k + 10)
    return x + len(v)


@program(lambda i: (randn(3), {"a": 1}))
def dict_changed_while_iterating(x, d):
    try:
        for k in d:
            d["z"] = 1
    except RuntimeError as e:
        return x, str(e)


@program(lambda i: (randn(3), {x: 1 for x in "ab"}))
def dict_views(x, d):
    k, v = d.keys(), d.values()
    d["c"] = 3
    return x + sum(v), list(k), k & {"a", "c"}, ("a", 1) in d.items(), dict(reversed(d.items())), k


@program(lambda i: (randn(3), {(1, "a"): 1, None: 2, 3: "x", 2.5: 3}))
def dict_keys_of_all_types(x, d):
    d[True] = 1
    d[frozenset({1})] = 2
    return x * d[(1, "a")], d[None], d[2.5], d


@program(lambda i: (randn(3), [3, [1, (2, {"k": [i]})]]))
def nested_argument(x, v):
    v[1][1][1]["k"].append(x)
    a, (b, (c, d)) = v[0], v[1]
    return x * a + b + c, d


@program(lambda i: (randn(3), bytearray(b"ab")), breaks=4)
def bytes_and_bytearray(x, b):
    b.append(99)
    return x + len(b), bytes(b), b"x" + b"y", b"ab"[0], "é".encode(), b"z".decode()


# ---- functools, operator, copy -----------------------------------------------------------------------------------------


CALLS = []


@functools.lru_cache(maxsize=None)
def cached(n):
    return n * 2


@functools.cache
def cached_list(n):
    return [n]


@functools.singledispatch
def kind(v):
    return "object"


@kind.register
def _(v: int):
    return "int"


@kind.register(list)
def _(v):
    return "list", kind(v[0])


@program()
def functools_(x):
    def add(a, b, *, c=0):
        return a + b + c

    p = functools.partial(add, 1, c=2)
    q = functools.partial(p, c=5)
    return (
        p(x),
        q(x),
        functools.reduce(lambda a, b: a * b, [1, 2, 3]),
        functools.reduce(operator.add, [x, x], 1),
        p.args,
        p.keywords,
    )


@program(lambda i: (randn(3), functools.partial(operator.mul, 3), functools.partial(defaults, n=i)))
def partial_arguments(x, p, q):
    return p(x), q(x), functools.partial(p, 2), functools.partial(torch.add, x, alpha=2)(x)


@program(number)
def lru_cache_(x, i):
    return x * cached(i) + cached(3), cached(i)


@program(number, breaks=3)
def lru_cache_returns_one_list(x, i):
    return x + 1, cached_list(i) is cached_list(i), cached_list(7)


@program(breaks=5)
def singledispatch_(x):
    return x + 1, kind(1), kind("a"), kind([2]), kind(True)


@program()
def functools_wraps_attributes(x):
    def g(a: int = 3, *, b="b") -> str:
        "doc of g"

    @functools.wraps(g)
    def w(*a):
        return a

    return (
        w.__name__,
        w.__doc__,
        w.__wrapped__ is g,
        w(x),
        g.__defaults__,
        g.__kwdefaults__,
        g.__code__.co_varnames,
    )


@program()
def operator_functions(x):
    get, attr, call = (
        operator.itemgetter(1, 0),
        operator.attrgetter("shape"),
        operator.methodcaller("add", 1),
    )
    return (
        get([1, 2]),
        attr(x),
        call(x),
        operator.mul(x, 2),
        operator.contains([1], 1),
        operator.getitem({"a": 1}, "a"),
        operator.not_(0),
    )


@program(lambda i: (randn(3), [[1], {"a": [2]}], Config(i)), breaks=1)
def copies(x, v, c):
    a, b = copy.copy(v), copy.deepcopy(v)
    v[0].append(5)
    d, e = copy.copy(c), copy.deepcopy(c)
    d.names.append("shared")
    return x + len(a[0]), a, b, d, e


@program(breaks=5)
def partialmethod_and_cached_property(x):
    return Cell(3).half_area, Cell(4).area, x + Cell(2).area


class Cell:
    def __init__(self, side):
        self.side = side

    @functools.cached_property
    def area(self):
        LOG.append("computed")
        return self.side**2

    def scaled(self, by, off=0):
        return self.area * by + off

    half = functools.partialmethod(scaled, 0.5)

    @property
    def half_area(self):
        return self.half(off=1)


@program(lambda i: (randn(3), Cell(i + 1)), breaks=1)
def cached_property_of_argument(x, c):
    return x * c.area + c.area, "area" in vars(c)


# ---- enums -------------------------------------------------------------------------------------------------------------


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()


class Mode(str, enum.Enum):
    A = "a"
    B = "b"

    @classmethod
    def parse(cls, text):
        return cls(text)


@program(
    lambda i: (
        randn(3),
        (Color.RED, Color.GREEN, Color.RED)[i],
        Level(i % 2 + 1),
        Perm.R | Perm.W,
        Mode.A,
    )
)
def enums(x, c, level, p, m):
    out = [
        c.name,
        c.value,
        c.low,
        Color["GREEN"],
        Color(1),
        c is Color.RED,
        list(Color),
        level + 1,
        level > 1,
        Perm.R in p,
    ]
    return (
        x * level,
        out,
        p & Perm.W,
        m == "a",
        Mode.parse("b"),
        m.upper(),
        f"{m.value}",
        {Color.RED: 1}[Color.RED],
        len(Color),
    )


@program()
def enum_value_error(x):
    try:
        Color(9)
    except ValueError as e:
        return x, str(e)


@program(lambda i: (randn(3), {Color.RED: 1, Color.GREEN: [2]}))
def enum_keys(x, d):
    d[Color.RED] += 1
    return (
        x * d[Color.RED],
        isinstance(Color.RED, enum.Enum),
        Level.LOW == 1,
        Level.LOW is Level(1),
        str(Color.RED),
        repr(Level.LOW),
    )


# ---- classes -----------------------------------------------------------------------------------------------------------


class Base:
    kind = "base"
    shared = []

    def __init__(self, n=1):
        self.n = n

    def name(self):
        return f"{type(self).__name__}:{self.kind}"

    @classmethod
    def make(cls, *a):
        return cls(*a)

    @staticmethod
    def double(v):
        return v * 2

    @property
    def prop(self):
        return self.n * 10

    @prop.setter
    def prop(self, value):
        LOG.append(("set", value))
        self.n = value // 10

    @prop.deleter
    def prop(self):
        self.n = None

    def scale(self, x):
        return x * self.n


class Mixin:
    def name(self):
        return "mixin " + super().name()


class Derived(Mixin, Base):
    kind = "derived"

    def __init__(self, n, extra=None):
        super().__init__(n)
        self.extra = extra

    def scale(self, x):
        return super().scale(x) + super(Derived, self).prop


@program(lambda i: (randn(3), Derived(i + 1)))
def methods_and_super(x, d):
    e = Derived.make(5, "e")
    return (
        d.scale(x),
        d.name(),
        e,
        Base.double(x),
        d.double(2),
        Base.name(d),
        e.scale(x),
        Base.make().n,
    )


@program(lambda i: (randn(3), Base(i)))
def property_set_and_delete(x, b):
    b.prop = 50
    y = x * b.n + b.prop
    b.new = [x]
    del b.prop
    return y, b.n, vars(b)


@program(lambda i: (randn(3), Base(i)))
def attribute_protocol(x, b):
    setattr(b, "k", 3)
    out = getattr(b, "k"), getattr(b, "zz", 9), hasattr(b, "k"), hasattr(b, "zz"), "k" in b.__dict__
    delattr(b, "k")
    try:
        b.k
    except AttributeError as e:
        return x, out, str(e), e.name


@program()
def unbound_and_bound_methods(x):
    b = Base(3)
    f, g = b.scale, Base.scale
    return f(x), g(b, x), f.__self__ is b, f.__func__ is g, f == b.scale, f is b.scale, [b.scale]


class Dynamic:
    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        self.seen.append(name)
        return lambda v: v + len(name)


@program(lambda i: (randn(3), Dynamic()))
def getattr_hook(x, d):
    try:
        d._hidden
    except AttributeError as e:
        LOG.append(str(e))
    return d.abc(x), d.de(x), hasattr(d, "q"), Dynamic().zz(1)


class Recorder:
    def __setattr__(self, name, value):
        LOG.append(("set", name))
        super().__setattr__(name, value)

    def __delattr__(self, name):
        LOG.append(("del", name))
        object.__delattr__(self, name)


@program(lambda i: (randn(3), Recorder()))
def setattr_hook(x, r):
    r.a = 1
    r.b = x
    del r.a
    s = Recorder()
    s.c = r
    return x + 1, s


class GetAttribute:
    a = 1

    def __getattribute__(self, name):
        value = object.__getattribute__(self, name)
        return value + 1 if name == "a" else value


@program(lambda i: (randn(3), GetAttribute()))
def getattribute_hook(x, g):
    g.b = 5
    return x + g.a, GetAttribute().a, g.b


class Slots:
    __slots__ = ("a", "__b")

    def __init__(self, a):
        self.a, self.__b = a, a * 2

    def both(self):
        return self.a, self.__b


@program(lambda i: (randn(3), Slots(i)))
def slots_(x, s):
    s.a += 5
    t = Slots(x)
    try:
        s.zz = 1
    except AttributeError as e:
        LOG.append(str(e))
    return x * s.a, s.both(), t, t.both()


class Vector:
    def __init__(self, *items):
        self.items = list(items)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, k):
        return Vector(*self.items[k]) if isinstance(k, slice) else self.items[k]

    def __setitem__(self, k, v):
        self.items[k] = v

    def __delitem__(self, k):
        del self.items[k]

    def __iter__(self):
        return iter(self.items)

    def __contains__(self, v):
        LOG.append(("contains", v))
        return v in self.items

    def __eq__(self, other):
        return isinstance(other, Vector) and self.items == other.items

    def __hash__(self):
        return hash(tuple(self.items))

    def __bool__(self):
        LOG.append("bool")
        return bool(self.items)

    def __add__(self, other):
        if not isinstance(other, Vector):
            return NotImplemented
        return Vector(*[a + b for a, b in zip(self.items, other.items)])

    def __mul__(self, k):
        return Vector(*[a * k for a in self])

    __rmul__ = __mul__

    def __iadd__(self, other):
        self.items += other
        return self

    def __neg__(self):
        return self * -1

    def __lt__(self, other):
        return sum(self) < sum(other)

    def __call__(self, *a, **k):
        return a, k, self.items

    def __repr__(self):
        return f"Vector{tuple(self.items)}"

    def __str__(self):
        return "<v>"

    def __format__(self, spec):
        return f"F{spec}"

    def __int__(self):
        return len(self)

    __index__ = __int__

    def __enter__(self):
        return self

    def __exit__(self, *a):
        LOG.append("exit")

    def __reversed__(self):
        return iter(["r", *self.items])

    def __matmul__(self, other):
        return "matmul", other

    def __rsub__(self, other):
        return "rsub", other

    def __abs__(self):
        return 7

    def __round__(self, n=None):
        return "round", n

    def __floordiv__(self, o):
        return "floordiv"

    def __pow__(self, o, m=None):
        return "pow", m

    def __length_hint__(self):
        return 2


@program(lambda i: (randn(3), Vector(1, 2, i)))
def container_protocol(x, v):
    v[0] = 5
    del v[1]
    v += [9]
    a, *rest = v
    return (
        x * v[0],
        len(v),
        list(v),
        9 in v,
        77 in v,
        v == Vector(5, 2),
        {v: 1}[v],
        v[1:],
        rest,
        bool(v),
        not Vector(),
        sorted(v),
        v,
    )


@program(lambda i: (randn(3), Vector(1, 2)))
def operator_protocol(x, v):
    out = [
        v + Vector(1, 1),
        v * 2,
        2 * v,
        -v,
        v < Vector(9),
        v > Vector(9),
        v(1, k=2),
        f"{v:>3}",
        f"{v}",
        repr(v),
        str(v),
        int(v),
    ]
    out += [
        v @ 3,
        5 - v,
        abs(v),
        round(v),
        round(v, 2),
        v // 1,
        v**2,
        pow(v, 2, 3),
        list(reversed(v)),
        [1, 2, 3][v],
        max(v, Vector(9)),
    ]
    try:
        v + 1
    except TypeError as e:
        out.append(str(e))
    return x, out, "yes" if v else "no", v or 3, v and 4


class WithTensor:
    def __init__(self, t):
        self.t = t

    def __radd__(self, other):
        return "radd", other

    def __add__(self, other):
        return WithTensor(self.t + (other.t if isinstance(other, WithTensor) else other))

    def __torch_function__(self):
        raise AssertionError


class Plain(WithTensor):
    __torch_function__ = None


@program(lambda i: (randn(3), Base(2)), breaks=1)
def reflected_operator_with_tensor(x, b):
    class_ = type(b)
    try:
        x + b
    except TypeError as e:
        return x + 1, class_.__name__


class Meta(type):
    registry = {}

    def __call__(cls, *args):
        LOG.append(("meta call", args))
        return super().__call__(*args)

    def __getitem__(cls, k):
        return (cls.__name__, k)

    @property
    def meta_prop(cls):
        return "mp"

    def __contains__(cls, v):
        return v == 1

    def __len__(cls):
        return 4

    def __iter__(cls):
        return iter([1, 2])


class Made(metaclass=Meta):
    def __init__(self, v):
        self.v = v


@program(lambda i: (randn(3), Made(i)))
def metaclasses(x, m):
    n = Made(5)
    return (
        x + n.v,
        Made["k"],
        Made.meta_prop,
        1 in Made,
        len(Made),
        list(Made),
        type(Made),
        isinstance(m, Made),
    )


class Shape(ABC):
    @abstractmethod
    def area(self): ...

    def describe(self):
        return f"area {self.area()}"


class Square(Shape):
    def __init__(self, s):
        self.s = s

    def area(self):
        return self.s**2


@typing.runtime_checkable
class HasArea(typing.Protocol):
    def area(self): ...


@program(lambda i: (randn(3), Square(i)), breaks=2)
def abstract_classes_and_protocols(x, s):
    try:
        Shape()
    except TypeError as e:
        LOG.append(str(e)[:40])
    return (
        x * s.area(),
        s.describe(),
        isinstance(s, HasArea),
        isinstance(x, HasArea),
        issubclass(Square, Shape),
        Square(3),
    )


@program(lambda i: (randn(3), [Base(i), Derived(1)]))
def instances_in_a_list(x, v):
    for b in v:
        b.n += 1
        x = b.scale(x)
    v.append(Base(7))
    return x, [b.n for b in v]


@program(lambda i: (randn(3), type("Local", (Base,), {"kind": "local"})(3)))
def class_made_outside(x, b):
    return x * b.n, b.name(), type(b).__mro__[1].__name__


@program(breaks=1)
def class_made_inside(x):
    class Inner:
        def f(self):
            return x * 2

    return Inner().f()


@program(breaks=1)
def namedtuple_made_inside(x):
    T = namedtuple("T", "a b")
    t = T(x, 2)
    return t.a * t.b


@program(lambda i: (randn(3), Base(1)))
def reads_class_attributes(x, b):
    return (
        x + len(Base.shared),
        b.kind,
        Base.kind,
        Derived.kind,
        Base.__name__,
        type(b).__qualname__,
        b.__class__ is Base,
        b.__module__,
    )


@program(lambda i: (randn(3), Base(1)))
def shadows_class_attribute(x, b):
    b.kind = "own"
    b.scale = lambda v: v * 100
    return b.scale(x), b.kind, Base.kind


@program(breaks=2)
def changes_class_attribute(x):
    Base.counter = getattr(Base, "counter", 0) + 1
    y = x + 1
    del Base.counter
    return y


@program()
def appends_to_class_attribute(x):
    Base.shared.append(1)
    y = x * len(Base.shared)
    Base.shared.clear()
    return y


class Node:
    def __init__(self, value, parent=None):
        self.value, self.parent, self.children = value, parent, []

    def add(self, value):
        child = Node(value, self)
        self.children.append(child)
        return child

    def total(self):
        return self.value + sum(c.total() for c in self.children)


def tree(i):
    root = Node(i)
    root.add(2).add(3)
    return root


@program(lambda i: (randn(3), tree(i)))
def tree_with_parents(x, root):
    root.children[0].add(10)
    return x * root.total(), root.children[0].parent is root


@program()
def tree_made_inside(x):
    root = Node(x)
    root.add(2).add(3)
    return root, root.total()


class Counted:
    live = 0

    def __new__(cls, *args):
        LOG.append(("new", args))
        return super().__new__(cls)

    def __init__(self, *args):
        LOG.append(("init", args))


@program()
def new_and_init(x):
    return Counted(1, 2), x + 1


class MyList(list):
    def total(self):
        return sum(self)

    def append(self, v):
        LOG.append("append")
        super().append(v)


class MyDict(dict):
    def __missing__(self, key):
        LOG.append(("missing", key))
        return 42

    def __getitem__(self, key):
        return super().__getitem__(key)


class AttrDict(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name, value):
        self[name] = value


@program(lambda i: (randn(3), MyList([1, i]), MyDict(a=i), AttrDict(b=2, c=AttrDict(d=3))))
def subclasses_of_containers(x, v, d, a):
    v.append(3)
    d["z"] = x
    a.new = a.b + a.c.d
    a.c.d = 7
    try:
        a.nope
    except AttributeError as e:
        LOG.append(str(e))
    return x * v.total() + d["a"] + d["q"], v[0], len(d), a, MyList([x]), MyDict(k=1), "nope" in d


class MyInt(int):
    def plus(self, k):
        return MyInt(self + k)


class MyStr(str):
    def shout(self):
        return self.upper() + "!"


class MyTuple(tuple):
    def first(self):
        return self[0]


@program(lambda i: (randn(3), MyInt(i), MyStr("a"), MyTuple((1, 2))))
def subclasses_of_immutable_types(x, n, s, t):
    return (
        x * n,
        n.plus(2),
        s.shout(),
        t.first(),
        MyInt(3).plus(1),
        MyTuple([x]),
        isinstance(n, int),
        type(n).__name__,
    )


class Descriptor:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner):
        return self if obj is None else getattr(obj, self.name, 0) + 1

    def __set__(self, obj, value):
        LOG.append(("descriptor", value))
        setattr(obj, self.name, value)


class Described:
    d = Descriptor()


@program(lambda i: (randn(3), Described()))
def descriptors(x, o):
    a = o.d
    o.d = 10
    return x * o.d, a, Described.d.name


class CallableObject:
    def __init__(self):
        self.calls = 0

    def __call__(self, v, *, by=1):
        self.calls += 1
        return v + self.calls * by


@program(lambda i: (randn(3), CallableObject()))
def callable_instance(x, c):
    return c(x) + c(x, by=2), callable(c), list(map(c, [1, 2])), c.calls


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


@program(lambda i: (randn(3), Countdown(5)))
def iterator_class(x, c):
    first = next(c)
    for k in c:
        x = x + k
        if k == 1:
            break
    return x, first, list(c), list(Countdown(2)), sum(Countdown(4)), c.n


class OldSequence:
    def __getitem__(self, k):
        if k > 2:
            raise IndexError
        return k * 2


@program()
def old_iteration_protocol(x):
    return (
        x + sum(OldSequence()),
        list(OldSequence()),
        4 in OldSequence(),
        tuple(reversed([*OldSequence()])),
    )


@program(lambda i: (randn(3), Base(1), Base(1)))
def identity_of_instances(x, a, b):
    a.other = b
    return x, a is b, a.other is b, a == b, a != b, {a: 1, b: 2}[a], [a, b].index(b), a in [b]


@program(lambda i: (lambda b: (randn(3), b, b if i != 1 else Base(1)))(Base(1)))
def one_object_twice(x, a, b):
    a.n += 1
    b.n += 1
    return x * a.n, a is b


@program(lambda i: (randn(3), (Base(1), Derived(2), Square(3))[i]))
def isinstance_dispatch(x, b):
    if isinstance(b, Derived):
        return x + 1
    if isinstance(b, (Base, str)):
        return x + 2
    return x + 3, type(b) is Square, issubclass(type(b), Base), isinstance(b, Shape | int)


@program(lambda i: (randn(3), Base))
def class_as_argument(x, cls):
    return cls(3).scale(x), cls.__name__, cls is Base


@program(lambda i: (randn(3), Base(2).scale, Base.double, [len, max][i % 2]))
def functions_as_arguments(x, f, g, h):
    return f(x), g(x), h([1, 2]), f.__name__, f.__self__.n


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)
        self.calls = 0
        self.cache = {}
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x, *, flag=False):
        self.calls += 1
        self.cache[self.calls] = x
        self.steps += 1
        self.last = x
        return self.lin(x) if flag else x * self.calls


def module(i):
    torch.manual_seed(1)
    return Module()


@program(lambda i: (randn(3), module(i)))
def module_with_state(x, m):
    y = m(x) + m(x, flag=True)
    return (
        y,
        m.calls,
        m.training,
        [n for n, _ in m.named_parameters()],
        sum(p.numel() for p in m.parameters()),
        m.steps + 1,
    )


# ---- builtins and text -------------------------------------------------------------------------------------------------


@program(lambda i: (randn(3), " Ab,c ", i))
def string_methods(x, s, i):
    t = s.strip()
    return (
        t.split(","), ",".join("ab"), t.lower(), t.upper(), t.replace("A", "x"), t.startswith("A"), t.find("c"),
        t.partition(","), t.title(),
        t.zfill(6), t.center(8, "*"), t.isalpha(), "{} {a} {0!r:>4}".format(i, a=2), "%s-%03d-%.2f" % (t, i, 2.5),
        t[::-1], t * 2,
        "b" in t, t < "b", t.encode(), t.ljust(6) + "|", "a\nb".splitlines(), "x".join(map(str, range(3))),
        t.removeprefix("A"),
        t.translate(str.maketrans("b", "z")), chr(97), ord("a"), hex(255), bin(5), oct(8), ascii("é"), "12".isdigit(),
        x + len(t),
        "a-b_c".rsplit("_", 1), t.casefold(), t.swapcase(), "{:>{w}}".format("a", w=4), "{0.n}".format(Base(3)),
        "{0[a]}".format({"a": 1}),
    )  # fmt: skip


@program(lambda i: (randn(3), i + 2, 2.75, True, 3 + 4j))
def numbers_(x, i, f, b, c):
    return (
        i // 2, i % 2, -i // 2, i**2, i / 2, ~i, i << 2, i >> 1, i & 1, i | 8, i ^ 3, f // 1, f % 1, int(f), float(i),
        round(f), round(f, 1), bool(i),
        b + 1, not b, abs(c), c.real, c * 2, complex(1, 2), f.is_integer(), i.bit_length(), divmod(i, 2),
        int("12", 16) if 0 else int("12"),
        float("inf"), i == 2.0, i is True, x * i + f, math.sqrt(i), math.floor(f), math.ceil(f), math.pi, math.log(i),
        math.gcd(i, 6), math.prod([i, 2]),
        math.isnan(float("nan")), str(i), repr(f), f"{f:.1f}", max(i, f), min(i, f, 1), sum([i, f]),
        hash(i) == hash(int(i)), i.__add__(1), pow(i, 3),
        math.isclose(f, 2.75), math.inf, -0.0, f.as_integer_ratio(), int.from_bytes(b"\x01\x02", "big"),
        (5).to_bytes(2, "little"),
    )  # fmt: skip


@program(number)
def division_by_zero(x, i):
    try:
        return 1 / (i - i)
    except ZeroDivisionError as e:
        return x + 1, str(e)


@program()
def conversions_of_containers(x):
    return (
        list("ab"),
        tuple([1]),
        set([1, 1]),
        dict([("a", 1)], b=2),
        dict(zip("ab", [1, 2])),
        frozenset("a"),
        list({"a": 1}),
        str([1, "a"]),
        repr({"k": (1,)}),
        x,
    )


@program()
def type_objects(x):
    return (
        type(x),
        type(1),
        isinstance(x, torch.Tensor),
        isinstance(1, (int, str)),
        isinstance(True, int),
        type(x) is torch.Tensor,
        type([]) == list,
        x + 1,
    )


@program()
def collections_abc(x):
    from collections import abc

    return (
        x,
        isinstance([], abc.Sequence),
        isinstance({}, abc.Mapping),
        isinstance(x, abc.Iterable),
        isinstance(len, abc.Callable),
        issubclass(dict, abc.MutableMapping),
    )


@program()
def tensor_attributes(x):
    return (
        x.shape,
        x.ndim,
        x.dtype,
        x.device.type,
        x.requires_grad,
        x.is_cuda,
        len(x),
        x.size(0),
        x.numel(),
        x.stride(),
        x.is_contiguous(),
        x.element_size(),
        x.dim(),
    )


@program(number)
def getattr_on_tensor(x, i):
    return (
        getattr(x, ("sin", "cos", "exp")[i])(),
        hasattr(x, "nope"),
        getattr(x, "nope", 3),
        getattr(torch, "sin")(x),
        callable(x.sin),
    )


@program()
def string_of_tensor_facts(x):
    return (
        f"{x.shape} {x.dtype} {x.device}",
        str(x.shape),
        repr(x.dtype),
        x + 1,
        f"{x.ndim:03d}",
        f"{tuple(x.shape)}",
    )


@program(breaks=1)
def item_of_a_tensor(x):
    n = x.sum().item()
    return x + n, type(n)


@program(breaks=1)
def float_of_a_tensor(x):
    return x + float(x[0]), x


@program(breaks=1)
def int_of_a_tensor(x):
    return x + int(x[0]), x


@program(breaks=1)
def tolist(x):
    v = x.tolist()
    return x + v[0], v


@program(breaks=1)
def string_of_a_tensor(x):
    y = x + 1
    return f"{y}", y * 2


@program(breaks=2)
def print_several(x):
    y = x + 1
    print("y", y, sep=":", end="!\n")
    z = y * 2
    print(f"{z.shape=}")
    return z


@program(breaks=1)
def branch_on_data(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y * 2


@program(breaks=1)
def branch_on_data_in_conditional_expression(x):
    return (x + 1 if x.sum() > 0 else x - 1) * 2, 5


@program(breaks=2)
def boolean_operators_on_data(x):
    return (x.sum() > 0 and x.max() > 0) or x, x + 1


@program(breaks=2)
def while_on_data(x):
    x = x.abs()
    while x.sum() < 20:
        x = x * 10
    return x + 1


@program(breaks=1)
def comparison_of_lists_of_tensors(x):
    return x + 1, [x] == [x], x in [x]


@program(breaks=5)
def random_module(x):
    a = random.random()
    b = random.randint(1, 10)
    return x + a * b, random.choice([1, 2, 3]), random.Random(3).random()


@program()
def torch_random(x):
    return (
        torch.rand(2) + x[:2],
        torch.randn_like(x),
        torch.randint(0, 5, (2,)),
        torch.nn.functional.dropout(x),
        torch.randperm(3),
    )


@program(breaks=1)
def manual_seed(x):
    torch.manual_seed(3)
    return x + torch.rand(3)


@program(breaks=2)
def time_module(x):
    import time

    t = time.time()
    y = x + 1
    return y * (time.time() - t < 100)


@program(breaks=3)
def logging_module(x):
    import logging

    log = logging.getLogger("course.test")
    log.debug("x %s", x.shape)
    log.info("y")
    return x + 1


@program(breaks=4)
def file_io(x):
    import io

    f = io.StringIO()
    f.write("hello")
    f.write(str(x.shape))
    return x + len(f.getvalue())


@program(breaks=4)
def warnings_warn(x):
    import warnings

    with warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        warnings.warn("careful")
    return x + len(w)


@program(breaks=5)
def numpy_round_trip(x):
    a = x.numpy()
    b = np.sin(a) + 1
    return torch.from_numpy(b) * 2, a.shape


@program(breaks=4)
def numpy_constants(x):
    return x * np.pi, x + float(np.float32(2)), int(np.prod([2, 3]))


@program(breaks=2)
def environment(x):
    import os

    return x + len(os.environ.get("NOT_THERE", "abc")), os.getpid() > 0


@program()
def regular_expressions(x):
    import re

    m = re.match(r"(\w)(\d)", "a1")
    return x + int(m.group(2)), re.sub("a", "b", "aa"), m.groups(), re.compile("x").findall("xx")


@program(breaks=2)
def json_(x):
    import json

    return x, json.dumps({"a": [1, None]}), json.loads("[1, 2]")


@program(breaks=1)
def locals_and_globals(x):
    y = 3
    names = sorted(locals())
    return x + y, names, "LOG" in globals()


@program(breaks=1)
def eval_and_exec(x):
    k = 3
    return eval("x + k"), x


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


# ---- arguments and surroundings that change from call to call --------------------------------------------------------------


TABLE = {}
SCALE = 1


def helper(x):
    return x


@program(lambda i: (randn(3), (1, 1.0, True)[i]))
def int_float_bool(x, k):
    return x * k, k, type(k), isinstance(k, int), f"{k}"


@program(lambda i: (randn(3), (0.0, -0.0, float("nan"))[i]))
def zero_and_nan(x, k):
    return math.copysign(1, k), k != k, x + 1


@program(lambda i: (randn(3), (None, randn(3), 2)[i]))
def none_tensor_number(x, k):
    return x if k is None else x + k


@program(lambda i: (randn(3), [1, 2, 3][: i + 1], tuple("ab"[:i])))
def lengths(x, v, t):
    return x + sum(v), len(t), v[-1], t * 2


@program(lambda i: (randn(3), dict([("a", 1), ("b", 2)][:: (1, -1, 1)[i]])))
def key_order(x, d):
    return x + d["a"], list(d), next(iter(d.values()))


@program(lambda i: (randn(3), ({"a": 1}, OrderedDict(a=1), defaultdict(int, a=1))[i]))
def kinds_of_dict(x, d):
    return x + d["a"], type(d), d


@program(lambda i: (randn(3), ([1, 2], (1, 2), deque([1, 2]))[i]))
def kinds_of_sequence(x, v):
    return x + v[0], type(v).__name__, [*v]


@program(lambda i: (TABLE.clear() or TABLE.update(k=i), randn(3))[1:])
def global_dict_changes(x):
    return x + TABLE["k"], len(TABLE)


@program(lambda i: (globals().update(SCALE=(1, 2.5, "a")[i]), randn(3))[1:])
def global_constant_changes(x):
    return x * (SCALE if not isinstance(SCALE, str) else 9), SCALE


@program(
    lambda i: (globals().update(helper=(lambda x: x + 1, lambda x: x * 2, abs)[i]), randn(3))[1:]
)
def global_function_changes(x):
    return helper(x)


@program(lambda i: (setattr(Base, "kind", f"kind{i}"), randn(3), Base(1))[1:])
def class_attribute_changes(x, b):
    return x + len(b.kind), b.kind, Base.kind, b.name()


@program(
    lambda i: (
        setattr(Square, "area", (lambda s: s.s, lambda s: s.s * 2, lambda s: s.s * 3)[i]),
        randn(3),
        Square(2),
    )[1:]
)
def method_is_replaced(x, s):
    return x * s.area()


@program(lambda i: (setattr(defaults, "__defaults__", (i,)), randn(3))[1:])
def defaults_change(x):
    return defaults(x)


@program(lambda i: (setattr(defaults, "__kwdefaults__", {"scale": i}), randn(3))[1:])
def keyword_defaults_change(x):
    return defaults(x, 2)


def closing_over(k, v):
    def g(x):
        return x * k + len(v)

    return g


@program(lambda i: (randn(3), closing_over(i, [1] * i)))
def closure_of_argument_changes(x, g):
    return g(x)


@program(lambda i: (randn(3), functools.partial(defaults, n=i, scale=(1, 2.5, 3)[i])))
def partial_changes(x, p):
    return p(x)


@program(lambda i: (randn(3), Base(i), ("n", "kind", "prop")[i]))
def attribute_name_changes(x, b, name):
    return x + 1, getattr(b, name)


@program(lambda i: (randn(3), (Base(1), Derived(1), Base(2))[i]))
def class_of_argument_changes(x, b):
    return b.scale(x), b.name()


@program(lambda i: (randn(3), [Base(1), Base(1).__dict__, {"n": i}][i]))
def attribute_or_key(x, b):
    return x + (b["n"] if isinstance(b, dict) else b.n)


@program(
    lambda i: (lambda b: (b.__dict__.update({"extra": 1} if i == 1 else {}), randn(3), b)[1:])(
        Base(1)
    )
)
def attribute_appears(x, b):
    return x + (b.extra if hasattr(b, "extra") else -1), len(vars(b))


@program(lambda i: (randn(3), ({1, 2}, {2, 1}, {1, 3})[i], frozenset("ab"[:i])))
def sets_change(x, s, f):
    return x + sum(s), len(f), "a" in f


@program(lambda i: (randn(3), (Color.RED, Color.GREEN, 1)[i]))
def enum_or_number(x, c):
    return x + (c.value if isinstance(c, Color) else c), c is Color.RED


@program(lambda i: (randn(3), (torch.float32, torch.float64, torch.int32)[i], (0, -1, "cpu")[i]))
def dtype_changes(x, d, k):
    return x.to(d), str(d), k


@program(lambda i: (randn(3), (slice(0, 2), slice(None), slice(1, None, 2))[i], (0, ..., None)[i]))
def slice_changes(x, s, k):
    return x[s], x[k], s.stop


@program(lambda i: ((randn(3), randn(3, 1), randn(2, 3))[i],))
def shape_changes(x):
    return x * x.shape[0], x.ndim, x.shape[-1] > 2, [*x.shape]


@program(lambda i: (randn(3 + i),))
def size_changes(x):
    return (
        x * len(x),
        x.shape[0] % 2,
        list(range(x.shape[0])),
        x.view(1, -1).shape,
        str(x.shape[0]),
        {x.shape[0]: 1},
    )


@program(lambda i: (randn(3 + i), [x for x in range(3 + i)]))
def size_as_python_number(x, v):
    n = x.size(0)
    return (
        v[n - 1],
        v[:n],
        n in v,
        "a" * n,
        x[: n - 1],
        n == len(v),
        max(n, 2),
        n // 2,
        float(n),
        divmod(n, 2),
        isinstance(n, int),
        hash(n),
    )


@program(lambda i: (randn(3), 5 + i))
def dynamic_number(x, k):
    return (
        x * k,
        k,
        range(k),
        [0] * k,
        "a" * k,
        f"{k:04d}",
        k % 2 == 0,
        type(k),
        {k: k},
        (k,),
        str(k),
        k**2,
        [*range(9)][k],
        -k,
        bool(k),
        k / 2,
    )


@program(lambda i: (randn(3), 5 + i, []))
def dynamic_number_is_stored(x, k, v):
    v.append(k)
    v.append(k + 1)
    b = Base(k)
    return x.sum(), b, {"k": k}, functools.partial(max, k), lambda: k


@program(lambda i: (randn(3), 2.5 + i))
def dynamic_float(x, k):
    return x * k, k, round(k), int(k), k > 3, f"{k:.1f}", math.floor(k), k.is_integer(), [k], k + 1


@program(lambda i: (randn(3), ["a", "bb", "ccc"][i]))
def text_changes(x, s):
    return x * len(s), s + "!", s.upper(), {s: 1}, s == "bb"


@program(lambda i: (randn(3), (lambda v: v + 1) if i != 1 else torch.sin))
def function_changes(x, f):
    return f(x)


@program(lambda i: (randn(3, requires_grad=i == 1),))
def requires_grad_changes(x):
    return x * 2, x.requires_grad


@program(lambda i: (lambda a, b: (a, a if i == 1 else b))(randn(3), randn(3)))
def aliasing_changes(x, y):
    x.add_(1)
    return x + y, x is y


@program(lambda i: (lambda a, b: (randn(3), a, a if i == 1 else b))([1], [1]))
def aliasing_of_lists_changes(x, a, b):
    a.append(2)
    return x + len(b), a is b


@program(lambda i: (randn(3), [[1], [1]] if i == 0 else [[1]] * 2))
def aliasing_inside_changes(x, v):
    v[0].append(2)
    return x + len(v[1]), v[0] is v[1]


@program(lambda i: (randn(3), module(i).train(i != 1), i), breaks=1)
def module_mode_changes(x, m, i):
    m.lin.weight.requires_grad_(i != 2)
    return nn.functional.dropout(m.lin(x), 0.0, m.training), m.training


# ---- assorted ------------------------------------------------------------------------------------------------------------


@program(breaks=1)
def star_expressions_everywhere(x):
    a, b = [1, 2], {"k": 3}

    def g(*p, **q):
        return p, q

    return g(*a, *a, **b, z=1), [*a, *b], (*a,), {**b, **{"k": 4}}, {*a}, print(*[], end=""), x


@program()
def long_conditions(x):
    n = x.shape[0]
    return (n > 1 and n < 5 or n == 9) and not (n == 3 and n != 3), x + (
        1 if n else 2 if n > 1 else 3
    )


@program()
def ellipsis_and_newaxis(x):
    return (
        x[..., None],
        x[None],
        x[None, ..., 0],
        x[[0, 2]],
        x[torch.tensor([0])],
        x[x.new_ones(3, dtype=torch.bool)].shape[0] if 0 else 0,
    )


@program()
def augmented_assignments(x):
    v, d, n = [1], {"a": [0]}, 5
    v += (2,)
    v *= 2
    d["a"] += [x]
    d["a"][0] -= 3
    n <<= 2
    n **= 2
    n //= 3
    n |= 1
    y = x
    y += 1
    y = y * 1
    y -= 2
    return v, d, n, y, x


@program()
def swaps_and_multiple_targets(x):
    a = b = [x]
    c, d = 1, 2
    c, d = d, c
    v = [3, 1]
    v[0], v[1] = v[1], v[0]
    (e, f), g = (1, 2), 3
    for k, v[0] in enumerate("ab"):
        pass
    return a is b, c, d, v, e, f, g, k


@program()
def nested_try_in_loop_with_else(x):
    out = []
    for k in range(4):
        try:
            if k == 1:
                continue
            if k == 3:
                break
            out.append(10 // (k - 2))
        except ZeroDivisionError:
            out.append("zero")
        else:
            out.append("else")
        finally:
            out.append("fin")
    else:
        out.append("never")
    return out, x * len(out)


@program()
def closures_in_loops_and_defaults(x):
    fs = []
    for k in range(3):

        def f(v, k=k, *, scale=k + 1):
            return v * k + scale

        fs.append(f)
    return [f(x) for f in fs], fs[1].__defaults__, fs[2].__kwdefaults__, fs[0]


@program()
def class_with_closure_cell(x):
    return Derived(3, x).name(), Mixin.name.__closure__ is not None, x + 1


@program()
def functions_with_attributes(x):
    def f(v):
        f.calls += 1
        return v + f.calls

    f.calls = 0
    return f(x), f(x), f.calls, f


@program(breaks=2)
def writes_attribute_of_module_function(x):
    defaults.tag = getattr(defaults, "tag", 0) + 1
    y = x + 1
    del defaults.tag
    return y


@program()
def y_combinator(x):
    return (lambda f: f(f))(lambda f: lambda n: 1 if n == 0 else n * f(f)(n - 1))(5), x + 1


@program()
def zip_and_map_of_tensors(x):
    return (
        [a + b for a, b in zip(x, x * 2)],
        list(map(torch.sin, [x, x])),
        sum(x),
        max([1, 2]),
        sorted([3, 1]),
        list(enumerate(x))[0],
    )


@program(breaks=1)
def builtins_on_tensors(x):
    return (
        abs(x),
        round(x),
        pow(x, 2),
        divmod(x, 2),
        -x,
        +x,
        x // 1,
        2**x,
        1 - x,
        3 / x.abs(),
        x @ x,
        ~(x > 0),
        x[0] == x[1],
    )


@program(breaks=3)
def min_max_sorted_of_tensors(x):
    return max(x), min(x[0], x[1]), sorted(x, key=lambda v: 1)


@program()
def tensors_as_dict_keys(x):
    y = x + 1
    d = {x: 1, y: 2}
    return d[x] + d[y], x in d, len(d), y


@program()
def tensor_in_containers(x):
    y = x + 1
    return (
        [x, y, [x]],
        {"x": x, "y": (y,)},
        deque([x]),
        OrderedDict(k=y),
        Triple(x, y),
        Config(x.shape[0], names=[y]),
        slice(0, 1),
    )


@program(breaks=1)
def returns_same_list_twice(x):
    v = [x + 1]
    w = (v, {"v": v})
    v.append(w)
    return w


@program(lambda i: (randn(3), {"a": [1, {"b": randn(2)}]}))
def returns_parts_of_arguments(x, d):
    return d["a"], d["a"][1]["b"], d, [d["a"]], x + d["a"][1]["b"][0]


@program(lambda i: (randn(3), [randn(2), randn(2)]))
def replaces_items_of_argument(x, v):
    v[0], v[1] = v[1], v[0] + 1
    v.append(x)
    del v[0]
    return v[0], x + 1


@program(lambda i: (randn(3), {"k": [x for x in range(3)], "z": None}))
def dict_effects(x, d):
    d["k"][1] = x * 2
    d["n"] = d.pop("z")
    d["copy"] = dict(d)
    d["k"].clear()
    return x, d["copy"]["k"] is d["k"]


@program(lambda i: (randn(3), Node(1)))
def links_objects(x, n):
    child = n.add(x)
    child.add(n)
    n.extra = {"self": n, "child": child}
    return child, n.extra["self"] is n, x + 1


@program(lambda i: (randn(3), [], {}, set(), deque()))
def fills_all_kinds(x, v, d, s, q):
    for k in range(3):
        v.append(x * k)
        d[k] = v[-1]
        s.add(k)
        q.appendleft(d)
    return v[1] is d[1], q[0] is d, s


@program(lambda i: (randn(3), [5, 4, 3], {"b": 1, "a": 2}))
def reorders(x, v, d):
    v.sort()
    d["b"] = d.pop("b")
    d2 = dict(sorted(d.items()))
    return x + v[0], list(d), d2


@program()
def sort_stability_and_keys(x):
    v = [(2, "a"), (1, "b"), (2, "c"), (1, "d")]
    v.sort(key=lambda t: t[0])
    w = sorted(v, key=lambda t: t[1], reverse=True)
    return (
        v,
        w,
        max(v, key=operator.itemgetter(1)),
        x + 1,
        sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
    )


@program()
def sort_key_raises(x):
    def key(v):
        LOG.append(v)
        if v == 2:
            raise MyError(v)
        return v

    try:
        sorted([1, 2, 3], key=key)
    except MyError as e:
        return x + e.code


@program()
def heapq_and_bisect(x):
    import bisect
    import heapq

    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return heapq.heappop(h), heapq.nsmallest(2, h), bisect.bisect([1, 2, 3], 2), x + 1


@program()
def string_and_textwrap(x):
    import string
    import textwrap

    return (
        string.ascii_lowercase[:3],
        textwrap.dedent("  a"),
        string.Template("$a").substitute(a=1),
        x + 1,
    )


@program()
def inspect_signature(x):
    import inspect

    return list(inspect.signature(defaults).parameters), inspect.isfunction(defaults), x + 1


@program(breaks=1)
def typing_things(x):
    v: typing.Optional[int] = typing.cast(typing.Any, 3)
    return x + v, typing.get_origin(typing.List[int]), list[int], typing.TYPE_CHECKING, int | None


@program()
def contextvar_and_threading_local(x):
    return x + len(TABLE)


@program(breaks=2)
def datetime_and_decimal(x):
    from decimal import Decimal
    from fractions import Fraction

    return x + 1, Fraction(1, 3) + 1, Decimal("1.5") * 2


@program()
def simple_namespace(x):
    import types

    n = types.SimpleNamespace(a=1, t=x)
    n.b = n.a + 1
    return n, x + n.b


@program()
def chain_map_and_user_dict(x):
    c = collections.ChainMap({"a": 1}, {"b": 2})
    u = collections.UserDict(a=3)
    u["z"] = x
    return x + c["b"] + u["a"], list(c), "a" in u


@program()
def contextlib_redirect(x):
    import io

    out = io.StringIO()
    return x + 1, out.getvalue()


PROGRAMS["contextlib_redirect"] = (*PROGRAMS["contextlib_redirect"][:2], 2)


@program(lambda i: (randn(3), [randn(3, requires_grad=True)]))
def gradients_flow_through_lists(x, v):
    y = (x * v[0]).sum()
    return y, y.requires_grad, v[0].is_leaf if 0 else 0


@program()
def varargs_identity(x):
    def g(*a):
        return a

    def h(**k):
        return k

    t, d = (x, 1), {"k": x}
    return g(*t) == t, h(**d) is d, g(*t)[0] is x


@program()
def property_on_class_raises_attribute_error(x):
    class_ = Fallback()
    return class_.missing, x + 1


class Fallback:
    @property
    def missing(self):
        raise AttributeError("inner")

    def __getattr__(self, name):
        return "fallback " + name


class Total:
    def __init__(self, v):
        self.v = v

    def __eq__(self, o):
        LOG.append("eq")
        return self.v == o.v

    def __lt__(self, o):
        LOG.append("lt")
        return self.v < o.v

    __hash__ = None


Total = functools.total_ordering(Total)


@program(lambda i: (randn(3), Total(i)))
def total_ordering(x, a):
    b = Total(1)
    try:
        hash(a)
    except TypeError as e:
        LOG.append(str(e))
    return x + 1, a <= b, a > b, a == b, a != b, sorted([b, a])[0].v


@program()
def iteration_errors(x):
    out = []
    for bad in (3, None, object):
        try:
            for _ in bad:
                pass
        except TypeError as e:
            out.append(str(e))
    return x, out


@program()
def call_errors(x):
    out = []
    for bad in (lambda: len(3), lambda: [].nope(),
    lambda: {}["k"], lambda: (1,)[4], lambda: "a" + 1, lambda: None.x, lambda: int("q"),
                lambda: [1] < ["a"], lambda: undefined_name, lambda: {[]: 1}, lambda: max([]), lambda: "a".index("b"),
                lambda: next(iter(())),
                lambda: [].pop(), lambda: {}.popitem(), lambda: (1).x, lambda: dict(1), lambda: chr(-1),
                lambda: 1 << -1):  # fmt: skip
        try:
            bad()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return x + 1, out


@program()
def returns_wrapped_function(x):
    def g(v):
        "doc"
        return v * x

    @functools.wraps(g)
    def w(*a, k=[1]):
        "other"
        return g(*a)

    return w, x + 1


@program()
def returns_recursive_function(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def even(n):
        return n == 0 or odd(n - 1)

    def odd(n):
        return n != 0 and even(n - 1)

    return fact, even, odd, x * fact(4)


@program(breaks=1)
def recursive_function_alive_at_break(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    y = x * fact(4)
    print("break")
    return y + fact(3)


@program(breaks=3)
def generator_closed_by_a_return(x):
    def q(v):
        def it():
            try:
                yield 1
            finally:
                print("closed")

        g = it()
        return v + next(g)

    y = q(x) * 2
    print("after")
    return y + 1


@program(breaks=2)
def generator_closed_by_a_break(x):
    def it():
        try:
            yield 1
        finally:
            print("closed")

    for k in it():
        break
    return x + k


@program(breaks=0)
def loop_in_the_finally_of_a_break(x):
    for k in enumerate([1, 2]):
        try:
            if x.shape[0] == 3:
                break
        finally:
            for j in [3]:
                x = x + j
    try:
        with contextlib.suppress(KeyError):
            x = x + k[1]
            raise KeyError
    finally:
        x = x * 2
    return x


# ---- classes made inside -------------------------------------------------------------------------------------------------


class Tagged(type):
    def __new__(cls, name, bases, names, **options):
        return super().__new__(cls, name, bases, names | {"tag": options.get("tag", 5)})

    def __init__(cls, name, bases, names, **options):
        super().__init__(name, bases, names)


class Parent:
    factor, shift, notes = 3, torch.ones(3), []

    def __init_subclass__(cls, **options):
        cls.options = sorted(options)

    @property
    def seven(self):
        return 7

    @classmethod
    def scaled(cls, x):
        return x * cls.factor

    def apply(self, x):
        return x * self.factor


@program()
def class_with_attributes(x):
    class A:
        "says something"

        size: int = 2
        for i in range(3):
            size += i
        del i
        squares = [j * j for j in range(3)]
        moved = x * size

    return (
        A.moved + A.squares[-1] + len(A.__annotations__),
        hasattr(A, "i"),
        A.__doc__,
        A.__name__,
        A.__qualname__,
    )


@program(make=number)
def class_over_variables(x, i):
    y, n = x * 2, 0

    class A:
        m = i + 1

        def __init__(self, v=2):
            self.v = v

        def __call__(self, t):
            nonlocal n
            n += 1
            return t * self.v + y

    class B(A):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            self.name = __class__.__name__

    b = B(v=3)
    return b(x) + b(x) * A.m, b.name, n


@program()
def class_of_a_base_outside(x):
    class A(Parent, some=1):
        factor = 4

        @property
        def seven(self):
            return super().seven + 1

        def apply(self, x):
            return super().apply(x) - 1

    a = A()
    Parent.notes.append(len(A.options))
    return (
        a.apply(x) + a.seven + A.scaled(x) + a.scaled(x) + A.shift + a.shift,
        A.options,
        isinstance(a, Parent),
    )


def base_with_another_factor(i):
    Parent.factor = 3 + i
    return (randn(3),)


@program(make=base_with_another_factor)
def class_whose_base_changes(x):
    class A(Parent):
        pass

    return A.scaled(x) + A().apply(x), A.factor, A().factor


@program()
def class_with_a_metaclass(x):
    class A(metaclass=Tagged, tag=6):
        pass

    class B(A):
        pass

    return x * A.tag + B.tag


@program()
def class_that_is_abstract(x):
    class A(ABC):
        @property
        @staticmethod
        def one():
            return 1

        @typing.no_type_check
        def f(self): ...

    class B(A):
        def f(self):
            return 3

    return x * B().f()


@program(breaks=1)
def dataclass_made_inside(x):
    @dataclass
    class A:
        t: torch.Tensor
        n: int = 3
        notes: list = field(default_factory=list)

        def __post_init__(self):
            self.notes.append(self.n)

    @dataclass(frozen=True, order=True)
    class B:
        n: int = 3

    a, b = A(x), B(4)
    both = len({B(1), B(1)}), B(1) < B(2), B(1) == B(1), dataclasses.replace(b, n=7).n
    return a.t * a.n + len(a.notes) + len(A(x).notes) + len(dataclasses.fields(A)), both


@program()
def typed_classes_made_inside(x):
    class Pair(typing.NamedTuple):
        a: torch.Tensor
        b: int = 2

        def product(self):
            return self.a * self.b

    class Options(typing.TypedDict):
        a: int

    return Pair(x).product() + Options(a=2)["a"] + Pair(x)._replace(b=4).b


@program()
def error_made_inside(x):
    class Wrong(ValueError):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    try:
        raise Wrong(4) from KeyError("x")
    except ValueError as error:
        return x * error.code + len(str(error)), type(error.__cause__).__name__


@program()
def module_made_of_a_class_inside(x):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.full((3,), 2.0))

        def forward(self, t):
            return t * self.weight

    return Scale()(x)


@program()
def descriptor_and_slots_made_inside(x):
    class Twice:
        def __get__(self, obj, cls=None):
            return obj.k * 2

        def __set__(self, obj, value):
            obj.k = value

    class A:
        __slots__ = ("k",)
        d = Twice()

    a = A()
    a.d = 4
    return x * a.d


@program()
def class_changed_after_it_was_made(x):
    def marked(cls):
        cls.mark = 8
        return cls

    @marked
    class A:
        v = 1

        class Inner:
            q = 4

        r = Inner.q + 1

    A.v = 2
    a = A()
    a.v += 1
    return x * a.v * A.v + A.mark + A.Inner.q + A.r


@program()
def class_with_special_methods(x):
    class A:
        __hash__ = None

        def __getattr__(self, name):
            return len(name)

        def __len__(self):
            return 2

        def __getitem__(self, i):
            return x[i]

        def __iter__(self):
            yield from range(3)

        def __enter__(self):
            LOG.append("in")
            return self

        def __exit__(self, *error):
            LOG.append("out")
            return True

    with A() as a:
        raise ValueError
    return x * a.four + len(a) + a[0] + sum(a)


@program(breaks=1)
def class_that_is_returned(x):
    class A:
        v = 1

        def __init__(self):
            self.t = x * 2

    return A().t * A.v, [A().v], A is A, (A,)[0].__name__


@program(breaks=1)
def class_alive_at_a_break(x):
    class A:
        def f(self, t):
            return t * 2

    a = A()
    y = a.f(x)
    print("break")
    return a.f(y) + 1


@program(breaks=1)
def class_body_with_an_effect(x):
    class A:
        print("in the body")
        v = 2

    return x * A.v


@program(breaks=1)
def enum_made_inside(x):
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    return x * Color.BLUE.value
