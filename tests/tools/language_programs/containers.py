"""Lists, dicts, sets, named tuples, dataclasses, iterators."""

# The oddities are the point.
# ruff: noqa

import dataclasses
import functools
import itertools
import operator
import sys
import typing
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field

import torch
from language_programs.exceptions import MyError
from language_programs.kit import LOG, number, program, randn

# From Python 3.14 on, an iterator of `itertools` cannot tell how to make another one like it.
NO_COPIES = int(sys.version_info >= (3, 14))


@program(lambda i: (randn(3), [3, 1, 2]))
def list_methods(x, v):
    v.append(x)
    v.pop()
    v.sort(reverse=True)
    v.insert(1, 7)
    v.remove(1)
    v.reverse()
    v += [9]
    v *= 2
    return x + v.index(7), v.count(9), v.copy(), v


@program(lambda i: (randn(3), {"a": 1, "b": 2}))
def dict_methods(x, d):
    d["c"] = x
    d.setdefault("e", []).append(1)
    d.update(f=2, a=5)
    r = d.pop("b"), d.pop("zz", None), d.get("q", 3)
    d |= {"g": 1}
    return x + d["a"], r, list(d.items()), "a" in d, len(d), [*d], d.popitem()


@program(lambda i: (randn(3), {1, 2, 3}))
def set_methods(x, s):
    s.add(4)
    s.discard(1)
    s |= {9}
    return (
        x + len(s),
        s & {2, 9},
        s - {2},
        s ^ {100},
        4 in s,
        frozenset(s),
        s <= {2, 3, 4, 9},
        s.isdisjoint({5}),
    )


@program(lambda i: (randn(3), deque([1, 2, 3], maxlen=3)))
def deque_methods(x, q):
    q.append(x)
    q.appendleft(0)
    q.rotate(1)
    return x + q[0] if isinstance(q[0], int) else x, q.popleft(), len(q), q.maxlen, deque(q)


@program()
def deque_made_inside(x):
    q = deque([1], maxlen=2)
    q.extend([2, 3])
    return q, x + q[-1]


@program(lambda i: (randn(3), OrderedDict(a=1, b=2, c=3)))
def ordered_dict(x, d):
    d.move_to_end("a")
    d["z"] = x
    d.popitem(last=False)
    return x + d["a"], list(d), d == OrderedDict(c=3, a=1), OrderedDict([("k", x)])


@program(lambda i: (randn(3), defaultdict(list)))
def default_dict(x, d):
    d["a"].append(x)
    d["a"].append(1)
    n = defaultdict(int)
    for c in "hello":
        n[c] += 1
    m = defaultdict(lambda: defaultdict(list))
    m[1][2].append(x)
    return x + n["l"], n, m[1]


@program(lambda i: (randn(3), Counter("abca")))
def counter(x, c):
    c.update("zz")
    d = Counter([1, 1, 2])
    return x * c["a"], c.most_common(1), d, c["none"], sum(c.values()), d + Counter([1])


Triple = namedtuple("Triple", "a b c", defaults=(3,))


class Pair(typing.NamedTuple):
    left: int
    right: list = None

    def total(self):
        return self.left + len(self.right or [])


@program(lambda i: (randn(3), Triple(1, [2])))
def named_tuples(x, t):
    a, b, c = t
    p = Pair(2, [x])
    return (
        x * t.c + t[0],
        t._replace(a=x),
        t._asdict(),
        p.total(),
        p,
        Triple._fields,
        p == (2, 3),
        Pair(1)._replace(right=[]),
    )


@dataclass
class Config:
    n: int
    scale: float = 2.0
    names: list = field(default_factory=list)
    extra: dict = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self):
        self.n += 1

    @property
    def double(self):
        return self.n * 2


@dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: str = "b"


@dataclass
class Child(Config):
    more: int = 5

    def __post_init__(self):
        super().__post_init__()
        self.more *= 2


@dataclass(slots=True, kw_only=True)
class Slotted:
    a: object
    b: int = 3


@program(lambda i: (randn(3), Config(i), Child(1, more=3)), breaks=1)
def dataclasses_(x, c, k):
    c.names.append("k")
    k.n = k.n + 5
    made = Child(3, names=["a"])
    return (
        x * c.double,
        made,
        k == made,
        repr(Config(1)),
        dataclasses.replace(made, n=9),
        dataclasses.asdict(c),
    )


@program(lambda i: (randn(3), Frozen(1)))
def frozen_dataclass(x, f):
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as e:
        LOG.append(str(e))
    d = {f: 1, Frozen(2): 2}
    return (
        x + f.a,
        f < Frozen(2),
        hash(f) == hash(Frozen(1)),
        d[Frozen(1)],
        [g.name for g in dataclasses.fields(f)],
        {Frozen(7)},
    )


@program(lambda i: (randn(3), Slotted(a=1)))
def slotted_dataclass(x, s):
    s.b += 1
    t = Slotted(a=x, b=s)
    return t, x * s.b


@program(lambda i: (randn(3, 4),))
def torch_size(x):
    s = x.shape
    return (
        s,
        s[1:],
        s.numel(),
        (*s, 1),
        s + (2,),
        tuple(s),
        list(s),
        len(s),
        s == (3, 4),
        x.view(s[0] * s[1]),
        torch.Size([1]),
    )


@program(number)
def ranges(x, i):
    r = range(i, 10, 2)
    return (
        r,
        len(r),
        r[1],
        4 in r,
        list(reversed(r)),
        r[1:],
        r.start,
        x * r.step,
        range(3) == range(0, 3),
        sum(r),
    )


@program(lambda i: (randn(5), slice(i, 4), range(3)))
def slice_argument(x, s, r):
    return x[s], s.start, [*r], slice(1, None), x[slice(None, None, 2)]


@program(lambda i: (randn(3), [1, 2, 3], "abc"))
def builtin_iterators(x, v, s):
    return (
        list(enumerate(s, 1)), list(zip(v, s, strict=True)), list(map(lambda a, b: a * b, v, v)), list(filter(None, [0, *v])),
        list(reversed(v)), sorted(v, key=lambda k: -k), sorted(s, reverse=True), x * max(v, key=lambda k: -k), min(s), any(v),
        sum(v, 10), list(iter(v)), max([], default=3), abs(-2), round(2.567, 1), divmod(7, 2), pow(2, 5, 7),
    )  # fmt: skip


@program()
def zip_strict_error(x):
    try:
        list(zip([1], [1, 2], strict=True))
    except ValueError as e:
        return x, str(e)


@program()
def itertools_(x):
    i = itertools
    return (
        list(i.chain([1], (2,))), list(i.chain.from_iterable([[1], [2]])), list(i.product("ab", [1, 2])),
        list(i.islice(i.count(3), 2)),
        list(i.accumulate([1, 2, 3], operator.mul)), list(i.combinations("abc", 2)), list(i.permutations([1, 2])),
        list(i.zip_longest([1], [2, 3], fillvalue=0)), [(k, list(g)) for k, g in i.groupby([1, 1, 2])], list(i.repeat(x, 2)),
        list(i.starmap(pow, [(2, 3)])), list(i.dropwhile(lambda k: k < 2, [1, 2, 1])), list(i.pairwise([1, 2, 3])),
        list(i.compress("abc", [1, 0, 1])), list(i.islice(i.cycle([1, 2]), 3)),
        [list(t) for t in i.tee([1, 2])], list(i.filterfalse(bool, [0, 1])),
        x + 1,
    )  # fmt: skip


@program(breaks=NO_COPIES)
def returned_iterators(x):
    a = iter([1, 2, 3])
    next(a)
    return (
        a,
        enumerate([x, 1], 4),
        zip([1, 2], "ab"),
        map(str, [1]),
        itertools.chain([1], [2]),
        x + 1,
    )


@program()
def list_identity_is_kept(x):
    a = [1]
    b = [a, a]
    d = {"a": a, "b": b, "x": x}
    b.append(d)
    return a, b, d, (a, x), x + 1


@program(breaks=1)
def list_that_contains_itself(x):
    a = [x + 1]
    a.append(a)
    return a


@program(lambda i: (lambda v: (randn(3), v, {"v": v}))([1]))
def aliased_arguments(x, v, d):
    d["v"].append(2)
    v.append(3)
    return x + len(v), d["v"] is v


@program(lambda i: (randn(3), [[0] * 2] * 2))
def aliased_rows(x, rows):
    rows[0][1] = 5
    return x + rows[1][1], rows


@program(lambda i: (randn(3), [1, 2, 3, 4]))
def list_changed_while_iterating(x, v):
    for k in v:
        if k < 3:
            v.append(k + 10)
    return x + len(v)


@program(lambda i: (randn(3), {"a": 1}))
def dict_changed_while_iterating(x, d):
    try:
        for k in d:
            d["z"] = 1
    except RuntimeError as e:
        return x, str(e)


@program(lambda i: (randn(3), {x: 1 for x in "ab"}))
def dict_views(x, d):
    k, v = d.keys(), d.values()
    d["c"] = 3
    return x + sum(v), list(k), k & {"a", "c"}, ("a", 1) in d.items(), dict(reversed(d.items())), k


@program(lambda i: (randn(3), {(1, "a"): 1, None: 2, 3: "x", 2.5: 3}))
def dict_keys_of_all_types(x, d):
    d[True] = 1
    d[frozenset({1})] = 2
    return x * d[(1, "a")], d[None], d[2.5], d


@program(lambda i: (randn(3), [3, [1, (2, {"k": [i]})]]))
def nested_argument(x, v):
    v[1][1][1]["k"].append(x)
    a, (b, (c, d)) = v[0], v[1]
    return x * a + b + c, d


@program(lambda i: (randn(3), bytearray(b"ab")), breaks=4)
def bytes_and_bytearray(x, b):
    b.append(99)
    return x + len(b), bytes(b), b"x" + b"y", b"ab"[0], "é".encode(), b"z".decode()


@program()
def sort_stability_and_keys(x):
    v = [(2, "a"), (1, "b"), (2, "c"), (1, "d")]
    v.sort(key=lambda t: t[0])
    w = sorted(v, key=lambda t: t[1], reverse=True)
    return (
        v,
        w,
        max(v, key=operator.itemgetter(1)),
        x + 1,
        sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
    )


@program()
def sort_key_raises(x):
    def key(v):
        LOG.append(v)
        if v == 2:
            raise MyError(v)
        return v

    try:
        sorted([1, 2, 3], key=key)
    except MyError as e:
        return x + e.code
