"""What a class says is part of a program: a method that comes, goes or is replaced is noticed, and the user's own code that
runs when an attribute is read runs as often as in eager.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

import enum
import functools

import pytest
import torch
from scenarios import check, collect, tried
from torch import nn

import course_lib as cl

SCENARIOS, scenario = collect()
ones = lambda: torch.ones(3)


def put(cls, f, *args, **kw):
    out = [tried(f, *args)]
    for k, v in kw.items():
        setattr(cls, k, v)
    out.append(tried(f, *args))
    for k in kw:
        delattr(cls, k)
    out.append(tried(f, *args))
    return out


def special(name, method, body):
    def play(c):
        class P:
            def __init__(s, k):
                s.k = k

        p = P(2)
        f = c(lambda x: body(x, p))
        return put(P, f, ones(), **{name: method})

    play.__name__ = name
    scenario(play)


special("__bool__", lambda s: False, lambda x, p: x * 2 if p else x * 3)
special("__len__", lambda s: 0, lambda x, p: x * 2 if p else x * 3)
special("__eq__", lambda s, o: True, lambda x, p: x * 2 if p == 3 else x * 3)
special("__getattr__", lambda s, n: 7, lambda x, p: x * getattr(p, "zz", 3))
special("__getattribute__", lambda s, n: 7, lambda x, p: x * p.k)
special(
    "__torch_function__",
    classmethod(lambda cls, f, t, a=(), k=None: 42),
    lambda x, p: torch.add(x, p) if hasattr(p, "zz") else x,
)
special("__radd__", lambda s, o: o * 5, lambda x, p: (x, 1 + p))
special("__contains__", lambda s, o: True, lambda x, p: x * 2 if 3 in p else x * 3)
special("__iter__", lambda s: iter([1, 2]), lambda x, p: x * len([*p]))
special("__call__", lambda s, x: x * 9, lambda x, p: p(x) if callable(p) else x)
special(
    "__setattr__",
    lambda s, n, v: object.__setattr__(s, n, v * 2),
    lambda x, p: (setattr(p, "q", 3), x * p.q),
)
special("__str__", lambda s: "abc", lambda x, p: x * (1 + (str(p) == "abc")))
special("__hash__", lambda s: 3, lambda x, p: x * (1 + (hash(p) == 3)))
special("__index__", lambda s: 1, lambda x, p: x * (5, 6, 7)[p])
special("__enter__", lambda s: 3, lambda x, p: x * (2 if hasattr(p, "__enter__") else 3))
special("__format__", lambda s, spec: "zz", lambda x, p: (x, len(f"{p}")))
special("k", property(lambda s: 9), lambda x, p: x * p.k)


@scenario
def base(c):
    class B:
        pass

    class P(B):
        def __init__(s, k):
            s.k = k

    p = P(2)
    f = c(lambda x: x * 2 if p else x * 3)
    return put(B, f, ones(), __bool__=lambda s: False)


@scenario
def made_inside(c):
    class P:
        def __init__(s, k):
            s.k = k

    f = c(lambda x: x * 2 if P(2) else x * 3)
    return put(P, f, ones(), __bool__=lambda s: False)


@scenario
def made_inside_init(c):
    class P:
        def m(s):
            return 2

    f = c(lambda x: x * P().m())
    return put(P, f, ones(), __init__=lambda s: s.__dict__.update(m=lambda: 5))


@scenario
def new_bases(c):
    class A:
        def m(s):
            return 2

    class B:
        def m(s):
            return 3

    class P(A):
        pass

    p = P()
    f = c(lambda x: x * p.m())
    o = [f(ones())]
    P.__bases__ = (B,)
    o.append(f(ones()))
    return o


@scenario
def meta(c):
    class M(type):
        pass

    class P(metaclass=M):
        pass

    f = c(lambda x: x * 2 if P else x * 3)
    g = c(lambda x: x * getattr(P, "zz", 3))
    h = c(lambda x: x * isinstance(x, P))
    return (
        put(M, f, ones(), __bool__=lambda s: False),
        put(M, g, ones(), __getattr__=lambda s, n: 8),
        put(M, h, ones(), __instancecheck__=lambda s, n: True),
    )


@scenario
def module_special(c):
    class P(nn.Module):
        def forward(s, x):
            return x * 2 if s else x * 3

    m = P()
    f = c(m)
    return (
        put(P, f, ones(), __bool__=lambda s: False),
        put(P, f, ones(), __call__=lambda s, x: x),
        put(P, f, ones(), __getattr__=lambda s, n: 5),
    )


@scenario
def listsub(c):
    class L(list):
        pass

    l = L([1, 2])
    f = c(lambda x: x * len(l) * l[0] * sum(l))
    return (
        put(L, f, ones(), __len__=lambda s: 7),
        put(L, f, ones(), __getitem__=lambda s, i: 7),
        put(L, f, ones(), __iter__=lambda s: iter([4])),
    )


@scenario
def dictsub(c):
    class L(dict):
        pass

    l = L(a=1)
    f = c(lambda x: x * l.get("b", 3) * (l["b"] if len(l) > 3 else 2))
    return (
        put(L, f, ones(), __missing__=lambda s, k: 7),
        put(L, f, ones(), __len__=lambda s: 7),
        put(L, f, ones(), get=lambda s, i, j: 7),
    )


@scenario
def missing(c):
    class L(dict):
        pass

    l = L(a=1)

    def g(x):
        try:
            return x * l["b"]
        except KeyError:
            return x

    f = c(g)
    return put(L, f, ones(), __missing__=lambda s, k: 7)


@scenario
def with_break(c):
    class P:
        pass

    p = P()

    def g(x):
        y = x + 1
        c.graph_break()
        return y * 2 if p else y * 3

    f = c(g)
    return put(P, f, ones(), __bool__=lambda s: False)


@scenario
def slots(c):
    class P:
        __slots__ = ("k",)

    p = P()
    p.k = 2
    f = c(lambda x: x * p.k if p else x)
    return put(P, f, ones(), __bool__=lambda s: False)


@scenario
def exc(c):
    class E(Exception):
        pass

    def g(x):
        try:
            raise E("a")
        except E as e:
            return x * len(str(e))

    f = c(g)
    return put(E, f, ones(), __str__=lambda s: "abc")


@scenario
def sub_subclass(c):
    class A:
        pass

    class B(A):
        pass

    f = c(lambda x, t: x * 2 if issubclass(t, A) else x)
    o = [f(ones(), B)]

    class C:
        pass

    B.__bases__ = (C,) if False else (A,)
    return o


@scenario
def nested_instances(c):
    class A:
        pass

    class B:
        def __init__(s):
            s.a = A()

    b = B()
    f = c(lambda x: x * 2 if b.a else x * 3)
    return put(A, f, ones(), __bool__=lambda s: False)


@scenario
def in_list(c):
    class A:
        pass

    l = [A(), A()]
    f = c(lambda x: x * 2 if l[1] else x * 3)
    g = c(lambda x: x * l.count(3))
    return put(A, f, ones(), __bool__=lambda s: False), put(A, g, ones(), __eq__=lambda s, o: True)


@scenario
def enum_member(c):

    class K(enum.Enum):
        A = 1

    f = c(lambda x: x * 2 if K.A else x * 3)
    g = c(lambda x, k: x * 2 if k else x * 3)
    return put(K, f, ones(), __bool__=lambda s: False), put(
        K, lambda x: g(x, K.A), ones(), __bool__=lambda s: False
    )


@scenario
def enum_value(c):

    class K(enum.Enum):
        A = 1

    f = c(lambda x: x * K.A.value)
    o = [f(ones())]
    K.A._value_ = 5
    o.append(f(ones()))
    return o


@scenario
def property_shadowed(c):
    class B:
        @property
        def d(s):
            return 4

        def m(s):
            return 5

    class P(B):
        def q(s):
            return super().m()

    p = P()
    f = c(lambda x: x * p.d)
    g = c(lambda x: x * p.q())

    class R(P):
        pass

    r = R()
    h = c(lambda x: x * r.q())
    return (
        put(P, f, ones(), d=7),
        put(P, f, ones(), d=property(lambda s: 7)),
        put(P, g, ones(), m=lambda s: 7),
        put(R, h, ones(), m=lambda s: 7),
    )


@scenario
def class_attr_missing(c):
    class B:
        pass

    class P(B):
        pass

    f = c(lambda x: x * getattr(P, "zz", 3))
    g = c(lambda x: x * hasattr(P, "yy"))
    return put(P, f, ones(), zz=5), put(B, g, ones(), yy=5), put(P, f, ones(), zz=lambda s: 3)


@scenario
def descriptors(c):
    class D:
        def __init__(s, k):
            s.k = k

        def __get__(s, o, t):
            return s.k

    class P:
        d = D(2)

    p = P()
    f = c(lambda x: x * p.d)
    out = put(P, f, ones(), e=D(3))
    P.d = D(5)
    out.append(f(ones()))
    P.__dict__["d"].k = 8
    out.append(f(ones()))
    D.__set__ = lambda s, o, v: None
    p.__dict__["d"] = 9
    out.append(f(ones()))
    del D.__set__
    out.append(f(ones()))
    D.__get__ = lambda s, o, t: 77
    out.append(f(ones()))
    return out


@scenario
def cached_property(c):

    log = []

    class P:
        @functools.cached_property
        def d(s):
            log.append(1)
            return 4

    p = P()
    f = c(lambda x: x * p.d)
    o = [f(ones()) for _ in range(3)]
    del p.d
    o.append(f(ones()))
    p.d = 9
    o.append(f(ones()))
    return o, log, p.__dict__


@scenario
def staticcall(c):
    class P:
        @staticmethod
        def a():
            return 2

        @classmethod
        def b(cls):
            return 3

    class Q(P):
        pass

    f = c(lambda x: x * P.a() * Q.b() * Q().a())
    return put(Q, f, ones(), a=lambda s=3: 7, b=lambda: 8), put(
        Q, f, ones(), b=staticmethod(lambda: 8)
    )


@scenario
def counting_descriptor(c):
    class D:
        def __init__(s, k):
            s.k = k
            s.n = 0
            s.log = []

        def __get__(s, o, t):
            s.n += 1
            s.log.append(s.n)
            return s.k

        def __set__(s, o, v):
            s.k = v
            s.log.append(v)

        def __delete__(s, o):
            s.log.append("del")

    class P:
        d = D(2)

    p = P()

    def g(x):
        y = x * p.d
        p.d = 5
        del p.d
        return y + p.d, P.d

    f = c(g)
    o = [f(ones()) for _ in range(3)]

    def h(x):
        y = x * p.d
        c.graph_break()
        p.d = 7
        return y + p.d

    h = c(h)
    o += [h(ones()) for _ in range(3)]
    return o, dict(vars(P.__dict__["d"]))


@scenario
def counting_property(c):
    log = []

    class P:
        n = 0

        def __init__(s):
            s.k = 1

        @property
        def d(s):
            s.k += 1
            log.append(s.k)
            return s.k

        @d.setter
        def d(s, v):
            s.k = v
            log.append("set")

        @d.deleter
        def d(s):
            log.append("del")

    p = P()

    def g(x):
        y = x * p.d
        p.d = 5
        del p.d
        c.graph_break()
        return y + p.d

    f = c(g)
    return [f(ones()) for _ in range(3)], log, p


@scenario
def getattribute(c):
    log = []

    class P:
        def __init__(s):
            s.k = 1

        def __getattribute__(s, n):
            log.append(n)
            return object.__getattribute__(s, n)

        def m(s):
            return s.k

        def __setattr__(s, n, v):
            log.append(("set", n))
            object.__setattr__(s, n, v)

    p = P()
    log.clear()

    def g(x):
        y = x * p.k + p.m()
        p.k = 2
        return y + len(p.__dict__)

    f = c(g)
    return [f(ones()) for _ in range(3)], log


@scenario
def getattribute_break(c):
    log = []

    class P:
        def __init__(s):
            s.k = 1

        def __getattribute__(s, n):
            log.append(n)
            return object.__getattribute__(s, n)

        def m(s):
            return s.k

    p = P()
    log.clear()

    def g(x):
        y = x * p.k
        c.graph_break()
        return y + p.m()

    f = c(g)
    return [f(ones()) for _ in range(3)], log


@scenario
def getattr_counts(c):
    class P:
        def __init__(s):
            s.seen = []

        def __getattr__(s, n):
            if n.startswith("__"):
                raise AttributeError(n)
            s.seen.append(n)
            return len(s.seen)

    p = P()
    f = c(lambda x: x * p.a + p.b + p.c + hasattr(p, "d"))
    return [f(ones()) for _ in range(4)], p.seen


@scenario
def getattr_counts_print(c):
    class P:
        def __init__(s):
            s.seen = []

        def __getattr__(s, n):
            if n.startswith("__"):
                raise AttributeError(n)
            print(end="")
            s.seen.append(n)
            return len(s.seen)

    p = P()
    f = c(lambda x: x * p.a + p.b + p.c + hasattr(p, "d"))
    return [f(ones()) for _ in range(4)], p.seen


@scenario
def special_side(c):
    log = []

    class P:
        def __bool__(s):
            log.append("bool")
            return True

        def __len__(s):
            log.append("len")
            return 3

        def __eq__(s, o):
            log.append("eq")
            return NotImplemented

        def __hash__(s):
            log.append("hash")
            return 3

        def __iter__(s):
            log.append("iter")
            yield 1
            log.append("mid")
            yield 2

        def __contains__(s, k):
            log.append("in")
            return False

        def __call__(s, x):
            log.append("call")
            return x

        def __enter__(s):
            log.append("enter")
            return s

        def __exit__(s, *a):
            log.append("exit")

        def __index__(s):
            log.append("index")
            return 1

        def __repr__(s):
            log.append("repr")
            return "P"

    p = P()

    def g(x):
        if p:
            x = x * len(p)
        with p:
            x = p(x)
        if p == 3 or 3 in p or not p:
            x = x + 1
        for i in p:
            x = x * i
        d = {p: 1}
        return x + [1, 2][p] + len(f"{p}") + d[p] + sum(p)

    f = c(g)
    o = [f(ones()) for _ in range(3)]

    def h(x):
        y = g(x)
        c.graph_break()
        return y + g(x)

    h = c(h)
    return o, [h(ones()) for _ in range(3)], log


@scenario
def breaking_getattribute(c):
    log = []

    class P:
        def __init__(s):
            s.k = torch.ones(3)

        def __getattribute__(s, n):
            log.append(n)
            v = object.__getattribute__(s, n)
            if isinstance(v, torch.Tensor) and v.sum() > 0:
                log.append("pos")
            return v

    p = P()
    log.clear()
    f = c(lambda x: x * p.k + 1)
    return [f(ones()) for _ in range(3)], log


@scenario
def breaking_property(c):
    log = []

    class P:
        def __init__(s):
            s.t = torch.ones(3)
            s.n = 0

        @property
        def k(s):
            s.n += 1
            log.append(s.n)
            if s.t.sum() > 0:
                log.append("pos")
            return s.t * s.n

    p = P()

    def g(x):
        a = x + p.k
        b = a * p.k
        return b - 1

    f = c(g)
    return [f(ones()) for _ in range(3)], log, p.n


@scenario
def breaking_eq(c):
    log = []

    class P:
        def __init__(s, v):
            s.v = v

        def __eq__(s, o):
            log.append(1)
            return bool((s.v == o.v).all())

        def __lt__(s, o):
            log.append(2)
            return bool(s.v.sum() < o.v.sum())

    ps = [P(torch.ones(2) * i) for i in (3, 1, 2)]

    def g(x):
        x = x + 1
        q = sorted(ps)
        return x * q[0].v[0] + ps.index(q[1]), ps[0] == ps[1]

    f = c(g)
    return [f(ones()) for _ in range(2)], log


@scenario
def slot_descriptor_in_module(c):
    class D:
        def __get__(s, o, t=None):
            o.calls.append(1)
            return o.w * 2

    class M(nn.Module):
        d = D()

        def __init__(s):
            super().__init__()
            s.w = nn.Parameter(torch.ones(3))
            s.calls = []

        def forward(s, x):
            return x * s.d + len(s.calls)

    m = M()
    f = c(m)
    return [f(ones()) for _ in range(3)], m.calls


@scenario
def init_subclass_and_setname(c):
    class D:
        def __set_name__(s, o, n):
            s.n = "_" + n

        def __get__(s, o, t=None):
            if o is None:
                return s
            return getattr(o, s.n, 3)

        def __set__(s, o, v):
            if v < 0:
                raise ValueError("neg")
            setattr(o, s.n, v)

    class P:
        d = D()

    p = P()

    def g(x, k):
        y = x * p.d
        try:
            p.d = k
        except ValueError as e:
            return y, str(e)
        q = P()
        q.d = k + 1
        return y + q.d, P.d.n, q

    f = c(g)
    return [f(ones(), k) for k in (1, 2, -1, 4)], p.__dict__


@scenario
def kinds_of_things(c):
    class Odd(type):
        def __instancecheck__(cls, thing):
            seen.append(type(thing).__name__)
            return thing == 3

    class P(metaclass=Odd):
        pass

    seen = []
    f = c(
        lambda x, w, k: (
            x * isinstance(k, P),
            isinstance(w, nn.Parameter),
            isinstance(x, nn.Parameter),
            isinstance(x, torch.Tensor),
        )
    )
    return [f(ones(), w, k) for w, k in ((nn.Parameter(ones()), 3), (ones(), 4))], seen


@pytest.mark.parametrize("name", SCENARIOS)
def test_classes(name):
    check(SCENARIOS[name])


ASKED: list[str] = []


class Asks(type):
    """Notes what a class of it is asked for, and does not have."""

    def __getattr__(cls, name):
        ASKED.append(name)
        raise AttributeError(name)


class Made(metaclass=Asks):
    def __init__(self, x):
        self.x = x


def of_made(x):
    return Made(x).x * 2


def of_absent(x):
    return x + hasattr(Made, "absent")


@pytest.mark.parametrize("program", [of_made, of_absent])
def test_a_metaclass_is_asked_only_for_what_the_program_asks(program):
    answers = []
    for function in (program, cl.compile(program, backend="eager")):
        ASKED.clear()
        values = [function(torch.ones(1)).item() for _ in range(2)]
        answers.append((values, list(ASKED)))
    assert answers[0] == answers[1]
