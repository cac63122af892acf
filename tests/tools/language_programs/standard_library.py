"""Modules of the standard library, random numbers, numpy."""

# The oddities are the point.
# ruff: noqa

import collections
import random
import typing

import numpy as np
import torch
from language_programs.changing_arguments import TABLE
from language_programs.functions import defaults
from language_programs.kit import PROGRAMS, program


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
