"""Classes that the program makes while it runs."""

# The oddities are the point.
# ruff: noqa

import dataclasses
import enum
import typing
from abc import ABC
from dataclasses import dataclass, field

import torch
from language_programs.kit import LOG, number, program, randn
from torch import nn


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
