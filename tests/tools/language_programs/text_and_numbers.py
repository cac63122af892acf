"""Methods of `str`, numbers and types."""

# The oddities are the point.
# ruff: noqa

import math

import torch
from language_programs.classes import Base
from language_programs.kit import number, program, randn


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
