"""One thing that is used changes between two calls: the answer is eager's.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: B006, B007, F821

import collections
import enum
import functools
import sys
import types
from dataclasses import dataclass, field

import pytest
import torch
import torch.nn.functional as F
from scenarios import Point, around, check, collect, setting, tried
from torch import nn

SCENARIOS, scenario = collect()
r = torch.randn
SCALE = 2
TABLE = {"k": 2, "deep": {"a": [1, 2]}}
ITEMS = [1, 2]
WEIGHT = torch.ones(3)
push = ITEMS.append


class Kind(enum.Enum):
    A = 1
    B = 2


def helper(x):
    return x * 2


def helper_with_default(x, k=2, *, j=1, items=(1, 2)):
    return x * k + j + len(items)


def ones():
    return torch.ones(3)


G = globals()


@scenario
def global_number(c):
    f = c(lambda x: x * SCALE)
    return around(f, G, SCALE=3) + around(f, G, SCALE=2.0) + around(f, G, SCALE=True)


@scenario
def global_tensor(c):
    f = c(lambda x: x * WEIGHT)
    return (
        around(f, G, WEIGHT=ones() * 3)
        + around(f, G, WEIGHT=ones()[0])
        + around(f, G, WEIGHT=nn.Parameter(ones()))
    )


@scenario
def global_dict(c):
    f = c(lambda x: x * TABLE["k"] + len(TABLE))
    return (
        around(f, TABLE, k=5),
        around(f, TABLE, j=5),
        around(f, G, TABLE={"k": 7}),
        around(f, G, TABLE={}),
    )


@scenario
def deep_in_a_dict(c):
    f = c(lambda x: x * TABLE["deep"]["a"][1])
    out = around(f, TABLE["deep"], a=[1, 5])
    TABLE["deep"]["a"][1] = 9
    out.append(f(ones()))
    TABLE["deep"]["a"][1] = 2
    return out


@scenario
def global_list(c):
    f = c(lambda x: x * ITEMS[0] + len(ITEMS))
    out = [f(ones())]
    ITEMS.append(3)
    out.append(f(ones()))
    ITEMS.pop()
    ITEMS[0] = 6
    out.append(f(ones()))
    ITEMS[0] = 1
    return out, around(f, G, ITEMS=[4, 5])


@scenario
def bound_method_of_a_list(c):
    items = []
    add = items.append

    def f(x):
        add(x.shape[0])
        return x * len(items)

    f = c(f)
    out = [f(ones()) for _ in range(3)]
    other = []
    add = other.append
    return out, f(ones()), items, other


@scenario
def global_bound_method(c):
    def f(x):
        push(3)
        return x * len(ITEMS)

    out = [c(f)(ones()) for _ in range(2)]
    del ITEMS[2:]
    return out


@scenario
def global_function(c):
    f = c(lambda x: helper(x) + 1)
    return (
        around(f, G, helper=lambda x: x * 5),
        around(f, G, helper=torch.sin),
        around(f, G, helper=Point(3).__add__),
    )


@scenario
def function_made_by_a_factory(c):
    def make(k):
        return lambda x: x * k

    box = {"g": make(2)}
    f = c(lambda x: box["g"](x))
    out = [f(ones())]
    for k in (3, 4, 2.5):
        box["g"] = make(k)
        out.append(f(ones()))
    return out


@scenario
def function_from_a_factory_returned(c):
    def make(k):
        return lambda: k

    box = {"g": make(2)}

    def f(x):
        return x + 1, box["g"], [box["g"]]

    f = c(f)
    out = []
    for k in (2, 3):
        box["g"] = make(k)
        y, g, (h,) = f(ones())
        out.append((y, g(), h(), g is box["g"]))
    return out


@scenario
def functions_as_arguments(c):
    f = c(lambda x, g: g(x) + 1)
    makers = [lambda x, k=k: x * k for k in (2, 3)]
    more = [
        functools.partial(torch.add, other=2),
        functools.partial(torch.add, other=3),
        Point(2).__add__,
        Point(4).__add__,
    ]
    return [f(ones(), g) for g in (torch.sin, torch.cos, F.relu, nn.ReLU(), helper, *makers, *more)]


@scenario
def default_arguments(c):
    f = c(lambda x: helper_with_default(x))
    out = [f(ones())]
    before = helper_with_default.__defaults__, helper_with_default.__kwdefaults__
    helper_with_default.__defaults__ = (5,)
    out.append(f(ones()))
    helper_with_default.__kwdefaults__ = {"j": 7, "items": [1]}
    out.append(f(ones()))
    helper_with_default.__defaults__, helper_with_default.__kwdefaults__ = before
    return out, f(ones())


@scenario
def default_list_that_changes(c):
    def g(x, seen=[]):
        seen.append(1)
        return x * len(seen)

    f = c(g)
    h = c(lambda x: g(x))
    return [f(ones()) for _ in range(3)], [h(ones()) for _ in range(3)], f(ones(), [])


@scenario
def own_default_argument(c):
    def g(x, k=2):
        return x * k

    f = c(g)
    out = [f(ones()), f(ones(), 3), f(ones(), k=2.0), f(k=4, x=ones())]
    g.__defaults__ = (9,)
    return out, f(ones())


@scenario
def closure_variable(c):
    k = 2

    def f(x):
        return x * k

    f = c(f)
    out = [f(ones())]
    for k in (3, 2.5, torch.ones(3) * 4, True, None, "a"):
        out.append(tried(f, ones()))
    return out


@scenario
def closure_variable_deleted(c):
    k = 2

    def f(x):
        return x * k

    g = c(f)
    out = [g(ones())]
    del k
    return out, tried(g, ones())


@scenario
def instance_attribute(c):
    p = Point(2)
    f = c(lambda x: x * p.k)
    return around(f, p, k=3), around(f, p, k=ones() * 4), around(f, p, k=None)


@scenario
def class_attribute(c):
    p = Point(2)
    f = c(lambda x: x * p.unit + Point.unit + Point.shared())
    return around(f, Point, unit=3), around(f, p, unit=4)


@scenario
def methods_replaced(c):
    p = Point(2)
    f = c(lambda x: x * p.value())
    return around(f, Point, value=lambda self: 7), around(f, p, value=lambda: 8)


@scenario
def special_methods_replaced(c):
    p = Point(2)
    f = c(lambda x: (p + x) * len(p))
    return around(f, Point, __add__=lambda self, x: x * 100), around(
        f, Point, __len__=lambda self: 9
    )


@scenario
def special_method_with_a_closure(c):
    log = []

    class Own:
        def __add__(self, x):
            log.append(1)
            return x + len(log)

        def __getitem__(self, k):
            log.append(2)
            return k

        @property
        def n(self):
            log.append(3)
            return len(log)

        def __call__(self, x):
            log.append(4)
            return x

    own = Own()
    f = c(lambda x: (own + x) * own[2] * own.n + own(x))
    g = c(lambda x: (Own() + x) * Own()[2] * Own().n + Own()(x))
    return [f(ones()) for _ in range(3)], [g(ones()) for _ in range(3)], log


@scenario
def properties_replaced(c):
    p = Point(2)
    f = c(lambda x: x * p.double)
    return around(f, Point, double=property(lambda self: 9)), around(f, Point, double=5)


@scenario
def static_and_class_methods_replaced(c):
    p = Point(2)
    f = c(lambda x: x * p.fixed() + Point.fixed() + p.shared())
    out = around(f, Point, fixed=staticmethod(lambda: 8))
    return out, around(f, Point, shared=classmethod(lambda cls: 3))


@scenario
def getattr_added_to_a_class(c):
    p = Point(2)
    f = c(lambda x: x * getattr(p, "extra", 4))
    return (
        around(f, Point, extra=6),
        around(f, p, extra=7),
        around(f, Point, __getattr__=lambda self, name: 8),
    )


@scenario
def class_of_an_instance(c):
    class Other(Point):
        def value(self):
            return self.k * 100

    p = Point(2)
    f = c(lambda x: x * p.value())
    out = [f(ones())]
    p.__class__ = Other
    return (
        out,
        f(ones()),
        [c(lambda x, p: x * p.value())(ones(), q) for q in (Point(3), Other(3), Point(4))],
    )


@scenario
def base_class_method_replaced(c):
    class Base(Point):
        pass

    class Own(Base):
        def value(self):
            return super().value() + 1

    p = Own(2)
    f = c(lambda x: x * p.value())
    return around(f, Base, value=lambda self: 50), around(f, Point, value=lambda self: 60)


@scenario
def enums_and_types(c):
    def f(x, kind):
        if kind is Kind.A:
            return x + 1
        return x * 2 if isinstance(kind, type) and issubclass(kind, int) else x * 3

    f = c(f)
    return [f(ones(), kind) for kind in (Kind.A, Kind.B, Kind.A, int, str, bool)]


@scenario
def dataclasses(c):
    @dataclass
    class Config:
        k: int = 2
        items: list = field(default_factory=list)

    @dataclass(frozen=True)
    class Frozen:
        k: int = 3

    def f(x, config):
        return x * config.k, Config(config.k + 1, [x]), Frozen(config.k), config == Config(2)

    f = c(f)
    return [
        f(ones(), config) for config in (Config(), Config(3), Config(2, [1]), Frozen(2), Frozen(4))
    ]


@scenario
def dict_arguments(c):
    def f(x, table):
        for key, value in sorted(table.items()):
            x = x * value + len(key)
        return x, table.get("z", 3), "a" in table

    f = c(f)
    return [
        f(ones(), t)
        for t in (
            {"a": 1},
            {"a": 2},
            {"b": 1},
            {"a": 1, "b": 2},
            {"b": 2, "a": 1},
            {},
            {"z": ones()},
        )
    ]


@scenario
def list_arguments(c):
    def f(x, items):
        return x * sum(items) + len(items), items[-1:]

    f = c(f)
    lists = [1, 2], [1, 3], [1], (1, 2), [ones(), 2], [1.0, 2], [True, 2], collections.deque([1])
    return [tried(f, ones(), items) for items in lists]


@scenario
def nested_arguments(c):
    def f(tree):
        if isinstance(tree, dict):
            return {k: f(v) for k, v in tree.items()}
        if isinstance(tree, (list, tuple)):
            return type(tree)(map(f, tree))
        return tree * 2 if isinstance(tree, torch.Tensor) else tree

    f = c(f)
    return [
        f(t)
        for t in (
            [ones(), {"a": (ones(), 1)}],
            [ones(), {"a": (ones(), 2)}],
            [ones(), {"a": (1, ones())}],
            (ones(),),
        )
    ]


@scenario
def strings_and_none(c):
    def f(x, mode=None):
        if mode is None:
            return x
        return x * len(mode) if mode.startswith("m") else x - 1

    f = c(f)
    return [f(ones(), *args) for args in ((), ("mean",), ("max",), ("sum",), (None,), ("",))]


@scenario
def numbers_that_are_equal(c):
    f = c(lambda x, k: (x * k, k, type(k).__name__, str(k)))
    return [
        f(torch.ones(3, dtype=torch.int32), k)
        for k in (1, 1.0, True, 0, 0.0, -0.0, False, float("inf"), 1 + 0j)
    ]


@scenario
def keys_and_items_that_are_equal(c):
    told = lambda x, held: (x + 1, repr(held), [type(item).__name__ for item in held])
    kinds = (
        ({1: 2}, {True: 2}, {1.0: 2}, {(1,): 2}, {(True,): 2}),
        ({1}, {True}, {0}, {-0.0}, frozenset([1]), frozenset([1.0])),
        (
            collections.deque([1]),
            collections.deque([1], maxlen=1),
            collections.deque([1], maxlen=2),
        ),
    )
    slices = c(lambda x, s: (x[s], repr(s)))
    listed = [[f(ones(), held) for held in kind] for kind, f in ((kind, c(told)) for kind in kinds)]
    return listed, [slices(ones(), s) for s in (slice(0, 1), slice(False, True), slice(0, 2))]


@scenario
def nan_arguments(c):
    f = c(lambda x, k: x * k)
    return [f(ones(), k) for k in (float("nan"), float("nan"), 1.0, float("-inf"))]


@scenario
def grad_mode(c):
    f = c(lambda x: (x * 2, torch.is_grad_enabled()))
    x = ones().requires_grad_()
    out = [f(x)]
    with torch.no_grad():
        out.append(f(x))
    with torch.inference_mode():
        out.append((f(x)[0].is_inference(), f(x)[1]))
    return out, f(x)


@scenario
def inference_tensor(c):
    with torch.inference_mode():
        x = ones() * 2
    f = c(lambda x: x * 2 + 1)
    return f(x), f(ones()), f(x), f(x).is_inference()


@scenario
def default_dtype(c):
    f = c(lambda x: (x + 1, torch.tensor(1.5), torch.zeros(2), torch.arange(3) / 2))
    out = [f(torch.ones(3, dtype=torch.int64))]
    torch.set_default_dtype(torch.float64)
    try:
        out.append(f(torch.ones(3, dtype=torch.int64)))
    finally:
        torch.set_default_dtype(torch.float32)
    return out, f(torch.ones(3, dtype=torch.int64))


@scenario
def autocast(c):
    m = nn.Linear(3, 3)
    f = c(lambda x: m(x).dtype)
    out = [f(ones())]
    for dtype in (torch.bfloat16, torch.float16):
        with torch.autocast("cpu", dtype):
            out.append(f(ones()))
        with torch.autocast("cpu", dtype, enabled=False):
            out.append(f(ones()))
    return out, f(ones())


@scenario
def deterministic_flag(c):
    f = c(lambda x: x * (2 if torch.are_deterministic_algorithms_enabled() else 3))
    out = [f(ones())]
    torch.use_deterministic_algorithms(True)
    try:
        out.append(f(ones()))
    finally:
        torch.use_deterministic_algorithms(False)
    return out, f(ones())


@scenario
def training_flag(c):
    m = nn.Sequential(nn.Linear(3, 3), nn.Dropout(1.0))
    f = c(lambda x: m(x) * (2 if m.training else 3))
    out = [f(ones())]
    m.eval()
    out.append(f(ones()))
    m[1].train()
    return out, f(ones())


@scenario
def tensor_properties(c):
    f = c(
        lambda x: (
            x * 2,
            x.shape,
            x.dtype,
            x.stride(),
            x.requires_grad,
            x.is_contiguous(),
            type(x).__name__,
            x.ndim,
        )
    )
    inputs = [
        r(3, 4), r(3, 5), r(4, 3), r(4, 3).t(), r(3, 8)[:, ::2], r(3, 4).double(), r(3, 4).requires_grad_(), r(3, 4, 1), r(12),
        nn.Parameter(r(3, 4)), r(3, 4).half(), torch.ones(3, 4, dtype=torch.int64), r(3, 4), r(1, 4).expand(3, 4), r(()), r(0, 4),
        torch.nn.Buffer(r(3, 4)), r(3, 4, dtype=torch.complex64), r(3, 4, dtype=torch.complex64).conj(), r(3, 4).to("meta"),
    ]  # fmt: skip
    return [f(x) for x in inputs[:-1]], f(inputs[-1])[1:3]


@scenario
def negative_bit(c):
    f = c(lambda x: x * 2)
    z = r(3, dtype=torch.complex64)
    return f(z.imag), f(z.conj().imag), f(z.conj().imag.clone())


@scenario
def aliased_arguments(c):
    def f(x, y):
        x.add_(1)
        return x * y, x is y

    f = c(f)
    a, b = ones(), ones()
    return f(a, b), f(a, a), f(b, a), f(b, b), a, b


@scenario
def overlapping_arguments(c):
    def f(x, y):
        x.add_(1)
        return x + y

    f = c(f)
    base = torch.arange(6.0)
    return f(r(4), r(4)), f(base[:4], base[2:]), f(base[:4], base[:4]), base


@scenario
def aliased_lists(c):
    def f(x, a, b):
        a.append(1)
        return x * len(b), a is b

    f = c(f)
    one, two = [], []
    return (
        f(ones(), one, two),
        f(ones(), one, one),
        f(ones(), two, one),
        f(ones(), two, two),
        one,
        two,
    )


@scenario
def aliased_inside_a_list(c):
    def f(items):
        items[0].add_(1)
        return items[0] + items[1]

    f = c(f)
    x, y = ones(), ones()
    return f([x, y]), f([x, x]), f([y, x]), x, y


@scenario
def aliased_argument_and_global(c):
    def f(x):
        x.add_(1)
        return x + WEIGHT

    f = c(f)
    out = [f(ones())]
    with setting(G, WEIGHT=WEIGHT.clone()):
        out += [f(WEIGHT), f(ones())]
    return out


@scenario
def aliased_argument_and_attribute(c):
    p = Point([1])

    def f(x, items):
        items.append(2)
        return x * len(p.k)

    f = c(f)
    return f(ones(), []), f(ones(), p.k), f(ones(), []), p.k


@scenario
def identity_questions(c):
    f = c(lambda x, a, b: (x + 1, a is b, a is not b, a == b))
    one, two = [1], [1]
    return (
        f(ones(), one, two),
        f(ones(), one, one),
        f(ones(), two, one),
        f(ones(), None, None),
        f(ones(), 1, 1),
    )


@scenario
def attribute_appears(c):
    p = Point(2)
    f = c(lambda x: x * (p.more if hasattr(p, "more") else 1))
    out = [f(ones())]
    p.more = 5
    out.append(f(ones()))
    del p.more
    return out, f(ones())


@scenario
def global_appears(c):
    def f(x):
        try:
            return x * APPEARS
        except NameError:
            return x

    return around(c(f), G, APPEARS=4)


@scenario
def builtin_shadowed(c):
    f = c(lambda x: x * len([1, 2]) + max(1, 2))
    return around(f, G, len=lambda items: 7), around(f, G, max=min)


@scenario
def torch_function_replaced(c):
    f = c(lambda x: F.relu(x - 2) + helper(x))
    return around(f, G, F=types.SimpleNamespace(relu=torch.abs))


@scenario
def module_attribute_of_a_user_module(c):
    mod = types.ModuleType("made_for_this_test")
    mod.k, mod.g = 2, helper
    f = c(lambda x: mod.g(x) * mod.k)
    sys.modules["made_for_this_test"] = mod
    try:
        return around(f, mod, k=5), around(f, mod, g=torch.sin)
    finally:
        del sys.modules["made_for_this_test"]


@scenario
def submodule_parameters_replaced(c):
    m = nn.Sequential(nn.Linear(3, 3))
    f = c(m)
    out = [f(ones())]
    m[0].weight = nn.Parameter(r(3, 3))
    out.append(f(ones()))
    m[0].weight = nn.Parameter(r(2, 3))
    m[0].bias = None
    out.append(f(ones()))
    m[0] = nn.Linear(3, 1)
    out.append(f(ones()))
    m.append(nn.ReLU())
    out.append(f(ones()))
    m[0].forward = lambda x: x * 100
    return out, f(ones())


@scenario
def hooks_come_and_go(c):
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    f = c(lambda x: m(x))
    out = [f(ones())]
    handle = m[1].register_forward_hook(lambda m, a, y: y + 1)
    out.append(f(ones()))
    handle.remove()
    out.append(f(ones()))
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, y: y * 2)
    out.append(f(ones()))
    handle.remove()
    return out, f(ones())


@scenario
def kwargs_and_varargs(c):
    f = c(lambda x, *args, **kwargs: (x * len(args) + sum(kwargs.values()), list(kwargs)))
    return (
        f(ones()),
        f(ones(), 1),
        f(ones(), a=1),
        f(ones(), a=2),
        f(ones(), b=1),
        f(ones(), b=1, a=2),
        f(ones(), 1, 2),
    )


@scenario
def named_tuples(c):
    Pair = collections.namedtuple("Pair", "a b")
    f = c(lambda p: (p.a * p.b, p._replace(b=3), *p))
    return f(Pair(ones(), 2)), f(Pair(ones(), 3)), f(Pair(2, ones()))


@scenario
def set_arguments(c):
    f = c(lambda x, s: x * len(s) + (1 in s))
    return (
        f(ones(), {1, 2}),
        f(ones(), {3, 2}),
        f(ones(), {1}),
        f(ones(), frozenset({1, 2})),
        f(ones(), set()),
    )


@scenario
def ranges_slices_bytes(c):
    f = c(lambda x, k: (x * len(k) if hasattr(k, "__len__") else x[k], k))
    return [
        f(r(4), k) for k in (range(3), range(0, 6, 2), slice(1, 3), slice(0, 2), b"ab", b"abc", "é")
    ]


@scenario
def weak_and_odd_keys(c):
    table = {(1, "a"): 2, Kind.A: 3, None: 4, 1.5: 5, torch.float32: 6, int: 7}
    f = c(lambda x, k: x * table[k])
    out = [f(ones(), k) for k in list(table)]
    table[Kind.A] = 30
    return out, f(ones(), Kind.A), f(ones(), x := (1, "a")), x


@scenario
def compiled_before_a_class_changes_base(c):
    class Own(nn.Module):
        def forward(self, x):
            return self.step(x)

        def step(self, x):
            return x + 1

    m = Own()
    f = c(m)
    out = [f(ones())]
    Own.forward = lambda self, x: self.step(x) * 3
    out.append(f(ones()))
    Own.step = lambda self, x: x - 1
    out.append(f(ones()))
    m.step = lambda x: x * 0
    return out, f(ones())


@scenario
def code_replaced(c):
    def g(x):
        return x * 2

    f = c(lambda x: g(x) + 1)
    out = [f(ones())]
    g.__code__ = (lambda x: x * 5).__code__
    return out, f(ones())


@scenario
def recompile_limit(c):
    f = c(lambda x, k: x * len(k))
    return [f(ones(), "a" * k) for k in range(20)]


@scenario
def resume_functions_recompile(c):
    p = Point(2)

    def f(x):
        x = x + 1
        c.graph_break()
        return x * p.k * SCALE

    f = c(f)
    return around(f, p, k=5), around(f, G, SCALE=7), f(r(2, 3)), f(r(5))


@scenario
def object_freed_and_made_anew(c):
    f = c(lambda x, p: x * p.k)
    return [f(ones() * i, Point(i % 3)) for i in range(12)]


@scenario
def parameter_data_replaced(c):
    p = nn.Parameter(ones())
    f = c(lambda x: x * p)
    out = [f(ones())]
    p.data = ones() * 3
    out.append(f(ones()))
    p.data = torch.ones(1) * 4
    return out, f(ones())


@scenario
def function_attributes(c):
    def g(x):
        return x * g.k

    g.k = 2
    f = c(g)
    h = c(lambda x: g(x))
    out = [f(ones()), h(ones())]
    g.k = 4
    return out, f(ones()), h(ones())


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_change_is_noticed(name):
    check(SCENARIOS[name])
