"""Methods, attributes, descriptors, instances, and calls of `nn.Module`s."""

# The oddities are the point.
# ruff: noqa

from collections import namedtuple

import torch
from language_programs.kinds_of_classes import Shape, Square
from language_programs.kit import LOG, program, randn
from torch import nn


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
