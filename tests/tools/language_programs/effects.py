"""What a program leaves behind in its arguments, and which objects it returns."""

# The oddities are the point.
# ruff: noqa

from collections import deque

from language_programs.classes import Node
from language_programs.kit import program, randn


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
