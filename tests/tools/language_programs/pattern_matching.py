"""`match`."""

# The oddities are the point.
# ruff: noqa

import enum
from dataclasses import dataclass

import torch
from language_programs.kit import program, randn


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
