"""`functools`, `operator`, `copy`."""

# The oddities are the point.
# ruff: noqa

import copy
import functools
import operator

import torch
from language_programs.containers import Config
from language_programs.functions import defaults
from language_programs.kit import LOG, number, program, randn

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
