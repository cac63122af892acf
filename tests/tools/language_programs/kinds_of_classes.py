"""Metaclasses, abstract classes, and classes that inherit from a builtin type."""

# The oddities are the point.
# ruff: noqa

import typing
from abc import ABC, abstractmethod

from language_programs.kit import LOG, program, randn


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
