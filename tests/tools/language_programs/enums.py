"""Enumerations and flags."""

# The oddities are the point.
# ruff: noqa

import enum

from language_programs.kit import program, randn
from language_programs.pattern_matching import Color


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
