"""Arguments and surroundings that change from call to call."""

# The oddities are the point.
# ruff: noqa

import functools
import math
from collections import OrderedDict, defaultdict, deque

import torch
from language_programs.classes import Base, Derived, module
from language_programs.functions import defaults
from language_programs.kinds_of_classes import Square
from language_programs.kit import program, randn
from language_programs.pattern_matching import Color
from torch import nn

TABLE = {}


SCALE = 1


def helper(x):
    return x


@program(lambda i: (randn(3), (1, 1.0, True)[i]))
def int_float_bool(x, k):
    return x * k, k, type(k), isinstance(k, int), f"{k}"


@program(lambda i: (randn(3), (0.0, -0.0, float("nan"))[i]))
def zero_and_nan(x, k):
    return math.copysign(1, k), k != k, x + 1


@program(lambda i: (randn(3), (None, randn(3), 2)[i]))
def none_tensor_number(x, k):
    return x if k is None else x + k


@program(lambda i: (randn(3), [1, 2, 3][: i + 1], tuple("ab"[:i])))
def lengths(x, v, t):
    return x + sum(v), len(t), v[-1], t * 2


@program(lambda i: (randn(3), dict([("a", 1), ("b", 2)][:: (1, -1, 1)[i]])))
def key_order(x, d):
    return x + d["a"], list(d), next(iter(d.values()))


@program(lambda i: (randn(3), ({"a": 1}, OrderedDict(a=1), defaultdict(int, a=1))[i]))
def kinds_of_dict(x, d):
    return x + d["a"], type(d), d


@program(lambda i: (randn(3), ([1, 2], (1, 2), deque([1, 2]))[i]))
def kinds_of_sequence(x, v):
    return x + v[0], type(v).__name__, [*v]


@program(lambda i: (TABLE.clear() or TABLE.update(k=i), randn(3))[1:])
def global_dict_changes(x):
    return x + TABLE["k"], len(TABLE)


@program(lambda i: (globals().update(SCALE=(1, 2.5, "a")[i]), randn(3))[1:])
def global_constant_changes(x):
    return x * (SCALE if not isinstance(SCALE, str) else 9), SCALE


@program(
    lambda i: (globals().update(helper=(lambda x: x + 1, lambda x: x * 2, abs)[i]), randn(3))[1:]
)
def global_function_changes(x):
    return helper(x)


@program(lambda i: (setattr(Base, "kind", f"kind{i}"), randn(3), Base(1))[1:])
def class_attribute_changes(x, b):
    return x + len(b.kind), b.kind, Base.kind, b.name()


@program(
    lambda i: (
        setattr(Square, "area", (lambda s: s.s, lambda s: s.s * 2, lambda s: s.s * 3)[i]),
        randn(3),
        Square(2),
    )[1:]
)
def method_is_replaced(x, s):
    return x * s.area()


@program(lambda i: (setattr(defaults, "__defaults__", (i,)), randn(3))[1:])
def defaults_change(x):
    return defaults(x)


@program(lambda i: (setattr(defaults, "__kwdefaults__", {"scale": i}), randn(3))[1:])
def keyword_defaults_change(x):
    return defaults(x, 2)


def closing_over(k, v):
    def g(x):
        return x * k + len(v)

    return g


@program(lambda i: (randn(3), closing_over(i, [1] * i)))
def closure_of_argument_changes(x, g):
    return g(x)


@program(lambda i: (randn(3), functools.partial(defaults, n=i, scale=(1, 2.5, 3)[i])))
def partial_changes(x, p):
    return p(x)


@program(lambda i: (randn(3), Base(i), ("n", "kind", "prop")[i]))
def attribute_name_changes(x, b, name):
    return x + 1, getattr(b, name)


@program(lambda i: (randn(3), (Base(1), Derived(1), Base(2))[i]))
def class_of_argument_changes(x, b):
    return b.scale(x), b.name()


@program(lambda i: (randn(3), [Base(1), Base(1).__dict__, {"n": i}][i]))
def attribute_or_key(x, b):
    return x + (b["n"] if isinstance(b, dict) else b.n)


@program(
    lambda i: (lambda b: (b.__dict__.update({"extra": 1} if i == 1 else {}), randn(3), b)[1:])(
        Base(1)
    )
)
def attribute_appears(x, b):
    return x + (b.extra if hasattr(b, "extra") else -1), len(vars(b))


@program(lambda i: (randn(3), ({1, 2}, {2, 1}, {1, 3})[i], frozenset("ab"[:i])))
def sets_change(x, s, f):
    return x + sum(s), len(f), "a" in f


@program(lambda i: (randn(3), (Color.RED, Color.GREEN, 1)[i]))
def enum_or_number(x, c):
    return x + (c.value if isinstance(c, Color) else c), c is Color.RED


@program(lambda i: (randn(3), (torch.float32, torch.float64, torch.int32)[i], (0, -1, "cpu")[i]))
def dtype_changes(x, d, k):
    return x.to(d), str(d), k


@program(lambda i: (randn(3), (slice(0, 2), slice(None), slice(1, None, 2))[i], (0, ..., None)[i]))
def slice_changes(x, s, k):
    return x[s], x[k], s.stop


@program(lambda i: ((randn(3), randn(3, 1), randn(2, 3))[i],))
def shape_changes(x):
    return x * x.shape[0], x.ndim, x.shape[-1] > 2, [*x.shape]


@program(lambda i: (randn(3 + i),))
def size_changes(x):
    return (
        x * len(x),
        x.shape[0] % 2,
        list(range(x.shape[0])),
        x.view(1, -1).shape,
        str(x.shape[0]),
        {x.shape[0]: 1},
    )


@program(lambda i: (randn(3 + i), [x for x in range(3 + i)]))
def size_as_python_number(x, v):
    n = x.size(0)
    return (
        v[n - 1],
        v[:n],
        n in v,
        "a" * n,
        x[: n - 1],
        n == len(v),
        max(n, 2),
        n // 2,
        float(n),
        divmod(n, 2),
        isinstance(n, int),
        hash(n),
    )


@program(lambda i: (randn(3), 5 + i))
def dynamic_number(x, k):
    return (
        x * k,
        k,
        range(k),
        [0] * k,
        "a" * k,
        f"{k:04d}",
        k % 2 == 0,
        type(k),
        {k: k},
        (k,),
        str(k),
        k**2,
        [*range(9)][k],
        -k,
        bool(k),
        k / 2,
    )


@program(lambda i: (randn(3), 5 + i, []))
def dynamic_number_is_stored(x, k, v):
    v.append(k)
    v.append(k + 1)
    b = Base(k)
    return x.sum(), b, {"k": k}, functools.partial(max, k), lambda: k


@program(lambda i: (randn(3), 2.5 + i))
def dynamic_float(x, k):
    return x * k, k, round(k), int(k), k > 3, f"{k:.1f}", math.floor(k), k.is_integer(), [k], k + 1


@program(lambda i: (randn(3), ["a", "bb", "ccc"][i]))
def text_changes(x, s):
    return x * len(s), s + "!", s.upper(), {s: 1}, s == "bb"


@program(lambda i: (randn(3), (lambda v: v + 1) if i != 1 else torch.sin))
def function_changes(x, f):
    return f(x)


@program(lambda i: (randn(3, requires_grad=i == 1),))
def requires_grad_changes(x):
    return x * 2, x.requires_grad


@program(lambda i: (lambda a, b: (a, a if i == 1 else b))(randn(3), randn(3)))
def aliasing_changes(x, y):
    x.add_(1)
    return x + y, x is y


@program(lambda i: (lambda a, b: (randn(3), a, a if i == 1 else b))([1], [1]))
def aliasing_of_lists_changes(x, a, b):
    a.append(2)
    return x + len(b), a is b


@program(lambda i: (randn(3), [[1], [1]] if i == 0 else [[1]] * 2))
def aliasing_inside_changes(x, v):
    v[0].append(2)
    return x + len(v[1]), v[0] is v[1]


@program(lambda i: (randn(3), module(i).train(i != 1), i), breaks=1)
def module_mode_changes(x, m, i):
    m.lin.weight.requires_grad_(i != 2)
    return nn.functional.dropout(m.lin(x), 0.0, m.training), m.training
