"""Conditions, slices, assignments, loops, f-strings, imports."""

# The oddities are the point.
# ruff: noqa

import typing

import torch
from language_programs.kit import LOG, number, program


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
