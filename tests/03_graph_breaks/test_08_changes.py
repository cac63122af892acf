"""More that may change between two calls: the process, threads, containers, layouts, modules. The answer is eager's.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: RUF015

import collections
import contextvars
import enum
import functools
import os
import sys
import threading
import types

import pytest
import torch
from scenarios import check, collect, tried
from torch import nn

SCENARIOS, scenario = collect()
ones = lambda: torch.ones(3)
G = globals()
K = 2


@scenario
def env_var(c):
    os.environ["ZZ_T"] = "1"
    f = c(lambda x: x * int(os.environ.get("ZZ_T", "5")) * len(os.getenv("ZZ_T")))
    o = [f(ones())]
    os.environ["ZZ_T"] = "33"
    o.append(f(ones()))
    return o


@scenario
def matmul_precision(c):
    f = c(lambda x: (x * 2, torch.get_float32_matmul_precision()))
    o = [f(ones())]
    torch.set_float32_matmul_precision("high")
    o.append(f(ones()))
    torch.set_float32_matmul_precision("highest")
    return o


@scenario
def thread_local(c):
    t = threading.local()
    t.k = 2
    f = c(lambda x: x * t.k)
    o = [f(ones())]
    t.k = 3
    o.append(f(ones()))

    def run():
        t.k = 9
        o.append(f(ones()))

    th = threading.Thread(target=run)
    th.start()
    th.join()
    o.append(f(ones()))
    return o


@scenario
def contextvar(c):
    v = contextvars.ContextVar("v", default=2)
    f = c(lambda x: x * v.get())
    o = [f(ones())]
    v.set(5)
    o.append(f(ones()))
    return o


@scenario
def sysmodules_patch(c):
    m = types.ModuleType("zz_mod")
    m.k = 2
    sys.modules["zz_mod"] = m

    def g(x):
        import zz_mod

        return x * zz_mod.k

    f = c(g)
    o = [f(ones())]
    n = types.ModuleType("zz_mod")
    n.k = 7
    sys.modules["zz_mod"] = n
    o.append(f(ones()))
    del sys.modules["zz_mod"]
    o.append(tried(f, ones()))
    return o


@scenario
def dict_order(c):
    d = {"a": 1, "b": 2}
    f = c(lambda x: x * list(d)[0].__len__() + [*d.values()][0])
    o = [f(ones())]
    d["a"] = d.pop("a")
    o.append(f(ones()))
    return o


@scenario
def set_contents(c):
    s = {1, 2}
    f = c(lambda x: x * (3 in s) + len(s) + sum(s))
    o = [f(ones())]
    s.add(3)
    o.append(f(ones()))
    s.discard(1)
    o.append(f(ones()))
    return o


@scenario
def frozen_nested(c):
    d = {"s": frozenset({1, (2, 3)})}
    f = c(lambda x: x * ((2, 3) in d["s"]))
    o = [f(ones())]
    d["s"] = frozenset({1})
    o.append(f(ones()))
    return o


@scenario
def tensor_subclass_swap(c):
    class T(torch.Tensor):
        pass

    f = c(lambda x: x * 2)
    a = ones()
    return type(f(a)).__name__, type(f(a.as_subclass(T))).__name__, type(f(a)).__name__


@scenario
def requires_grad_flip(c):
    w = ones()
    f = c(lambda x: x * w)
    o = [f(ones())]
    w.requires_grad_()
    o.append(f(ones()))
    w.requires_grad_(False)
    o.append(f(ones()))
    return o


@scenario
def inplace_dtype_data(c):
    w = ones()
    f = c(lambda x: (x * w, w.dtype))
    o = [f(ones())]
    w.data = w.data.double()
    o.append(f(ones()))
    return o


@scenario
def resize_in_place(c):
    w = ones()
    f = c(lambda x: x.sum() + w)
    o = [f(ones())]
    w.resize_(5)
    w.fill_(2)
    o.append(f(ones()))
    w.t_()
    o.append(f(ones()))
    return o


@scenario
def restride(c):
    w = torch.arange(6.0).reshape(2, 3)
    f = c(lambda x: (w * x, w.stride(), w.is_contiguous()))
    o = [f(2.0)]
    w.t_()
    o.append(f(2.0))
    return o


@scenario
def device_context(c):
    f = c(lambda x: torch.zeros(2).device.type)
    o = [f(ones())]
    with torch.device("meta"):
        o.append(f(ones()))
    return o, f(ones())


@scenario
def autograd_flags(c):
    f = c(lambda x: (x * 2).requires_grad)
    x = ones().requires_grad_()
    o = [f(x)]
    with torch.no_grad():
        o.append(f(x))
    with torch.autograd.set_grad_enabled(False):
        o.append(f(x))
    return o, f(x)


@scenario
def anomaly(c):
    f = c(lambda x: (x * 2, torch.is_anomaly_enabled()))
    o = [f(ones())]
    with torch.autograd.set_detect_anomaly(True):
        o.append(f(ones()))
    return o


@scenario
def fn_kwdefaults(c):
    def g(x, *, k=2):
        return x * k

    f = c(lambda x: g(x))
    o = [f(ones())]
    g.__kwdefaults__["k"] = 5
    o.append(f(ones()))
    g.__kwdefaults__ = {"k": 7}
    o.append(f(ones()))
    return o


@scenario
def fn_closure_cell(c):
    def mk():
        k = 2

        def g(x):
            return x * k

        def s(v):
            nonlocal k
            k = v

        return g, s

    g, s = mk()
    f = c(lambda x: g(x))
    o = [f(ones())]
    s(5)
    o.append(f(ones()))
    g.__closure__[0].cell_contents = 9
    o.append(f(ones()))
    return o


@scenario
def own_code_replaced(c):
    def g(x):
        return x * 2

    f = c(g)
    o = [f(ones())]
    g.__code__ = (lambda x: x * 5).__code__
    o.append(f(ones()))
    return o


@scenario
def partial_changes(c):
    p = functools.partial(torch.add, other=2)
    f = c(lambda x: p(x))
    o = [f(ones())]
    p.keywords["other"] = 5
    o.append(f(ones()))
    p.__setstate__((torch.mul, (), {"other": 7}, {}))
    o.append(f(ones()))
    return o


@scenario
def bound_method_self(c):
    class P:
        def __init__(s):
            s.k = 2

        def m(s, x):
            return x * s.k

    p = P()
    b = p.m
    f = c(lambda x: b(x))
    o = [f(ones())]
    p.k = 5
    o.append(f(ones()))
    P.m = lambda s, x: x
    o.append(f(ones()))
    return o


@scenario
def enum_change(c):
    class E(enum.Enum):
        A = 1
        B = [2]

    f = c(lambda x, e: x * (e.value if e is E.A else e.value[0]))
    o = [f(ones(), E.A), f(ones(), E.B)]
    E.B.value[0] = 7
    o.append(f(ones(), E.B))
    E.A._value_ = 9
    o.append(f(ones(), E.A))
    return o


@scenario
def deque_default(c):
    d = collections.defaultdict(lambda: 2)
    f = c(lambda x: x * d["q"] + len(d))
    o = [f(ones()), f(ones())]
    d.default_factory = lambda: 7
    d.clear()
    o.append(f(ones()))
    return o, dict(d)


@scenario
def chain(c):
    class Node:
        def __init__(s, v, n=None):
            s.v = v
            s.n = n

    a = Node(1, Node(2, Node(3)))

    def g(x):
        n = a
        while n is not None:
            x = x * n.v
            n = n.n
        return x

    f = c(g)
    o = [f(ones())]
    a.n.n.v = 5
    o.append(f(ones()))
    a.n.n.n = Node(2)
    o.append(f(ones()))
    a.n = None
    o.append(f(ones()))
    return o


@scenario
def buffers_swap(c):
    m = nn.BatchNorm1d(3)
    f = c(m)
    x = torch.randn(4, 3)
    o = [f(x)]
    m.running_mean = torch.ones(3) * 4
    m.eval()
    o.append(f(x))
    m.momentum = 0.5
    m.train()
    o.append(f(x))
    m.track_running_stats = False
    o.append(f(x))
    return o, m


@scenario
def param_requires_grad(c):
    m = nn.Linear(3, 3)
    f = c(lambda x: m(x).requires_grad)
    o = [f(ones())]
    m.requires_grad_(False)
    o.append(f(ones()))
    m.bias.requires_grad_()
    o.append(f(ones()))
    return o


@scenario
def tied(c):
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)

    def g(x):
        with torch.no_grad():
            a.weight.add_(1)
        return b(x)

    f = c(g)
    o = [f(ones())]
    b.weight = a.weight
    o.append(f(ones()))
    return o


@scenario
def views_alias(c):
    def g(x, y):
        x.mul_(2)
        return x + y

    f = c(g)
    b = torch.arange(8.0)
    o = [f(b[:4].clone(), b[4:].clone())]
    o.append(f(b[:4], b[2:6]))
    o.append(f(b, b))
    return o, b


@scenario
def threads(c):
    f = c(lambda x, k: (x * k).sum())
    res = {}

    def run(i):
        res[i] = [float(f(torch.ones(i + 2), j)) for j in range(4)]

    ts = [threading.Thread(target=run, args=(i,)) for i in range(6)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return [res[i] for i in range(6)]


@scenario
def threads_same(c):
    m = nn.Linear(3, 3)
    f = c(lambda x: m(x) * K)
    res = []

    def run():
        res.extend(bool((f(ones()) - m(ones()) * K).abs().max() < 1e-6) for j in range(200))

    ts = [threading.Thread(target=run) for i in range(6)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return all(res), len(res)


@scenario
def nested_compiled(c):
    g = c(lambda x: x * K)
    h = c(lambda x: g(x) + 1)
    f = c(lambda x: h(g(x)))
    o = [f(ones())]
    G["K"] = 5
    o += [f(ones()), g(ones()), h(ones())]
    G["K"] = 2
    return o, f(ones())


@scenario
def generator_arg(c):
    f = c(lambda x, g: x * sum(g))
    return f(ones(), (i for i in range(3))), f(ones(), iter([1, 2])), f(ones(), map(int, "34"))


@scenario
def typed_attr_to_tensor(c):
    class P:
        pass

    p = P()
    p.v = 2
    f = c(lambda x: x * p.v)
    o = []
    for v in (2, 2.0, True, torch.tensor(2), ones(), [1], None):
        p.v = v
        o.append(tried(f, ones()))
    return o


@scenario
def parametrize(c):
    m = nn.Linear(3, 3)
    f = c(m)
    x = ones()
    o = [f(x)]

    class D(nn.Module):
        def forward(s, w):
            return w * 2

    torch.nn.utils.parametrize.register_parametrization(m, "weight", D())
    o.append(f(x))
    torch.nn.utils.parametrize.remove_parametrizations(m, "weight")
    o.append(f(x))
    return o


@scenario
def functional_call(c):
    m = nn.Linear(3, 3)
    f = c(lambda x: m(x))
    x = ones()
    o = [f(x)]
    o.append(
        torch.func.functional_call(m, {"weight": torch.ones(3, 3), "bias": torch.zeros(3)}, (x,))
    )
    g = c(lambda w, x: torch.func.functional_call(m, {"weight": w}, (x,)))
    o += [g(torch.ones(3, 3), x), g(torch.ones(3, 3) * 2, x)]
    return o


class LoggingDict(dict):
    def __setitem__(self, key, value):
        self.log.append(key)
        dict.__setitem__(self, key, value * 2)


class LoggingOrdered(collections.OrderedDict):
    def __setitem__(self, key, value):
        vars(self).setdefault("log", []).append(key)
        super().__setitem__(key, value * 2)


class LoggingList(list):
    def extend(self, items):
        self.log.append("extend")
        list.extend(self, [item * 2 for item in items])


@scenario
def methods_of_containers_run_once(c):
    def f(table, ordered, items, x):
        table["a"], ordered["b"] = x, x + 1
        items.extend([x])
        list.append(items, x)
        made = LoggingOrdered(c=x)
        return x + 1, made

    f, o = c(f), []
    for _ in range(2):
        table, ordered, items = LoggingDict(z=1), LoggingOrdered(), LoggingList([5])
        table.log, items.log = [], []
        o.append(
            (
                f(table, ordered, items, ones()),
                table,
                ordered,
                items,
                table.log,
                ordered.log,
                items.log,
            )
        )
    return o


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_change_is_noticed(name):
    check(SCENARIOS[name])
