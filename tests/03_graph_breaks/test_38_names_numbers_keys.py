"""Names, texts, generators, numbers, keys, identity, classes. The answer is eager's.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: RUF059, UP031, UP032

import collections
import functools

import pytest
import torch
from scenarios import before_and_after, check, collect, tried
from torch import nn

import course_lib as cl

SCENARIOS, scenario = collect()
ones = lambda: torch.ones(3)


@scenario
def an_import_of_what_is_not_there(c):
    def f(x):
        try:
            from math import nope
        except ImportError as error:
            return x + 1, type(error).__name__, str(error)
        return nope

    return before_and_after(c, f)


@scenario
def words_of_python_as_attributes(c):
    class A:
        pass

    a = A()
    setattr(a, "lambda", 2)

    def f(x):
        setattr(a, "class", x + 1)
        return x + getattr(a, "lambda"), getattr(a, "class")

    return [*before_and_after(c, f, lambda: setattr(a, "lambda", 7)), vars(a)]


@scenario
def parameters_called_like_builtins(c):
    def f(x, len, len_, input, input_=4):
        return x * len + len_ - input * input_

    f = c(f)
    return [f(ones(), 2, 3, 5), f(ones(), 2, 4, 5, 6)]


@scenario
def methods_of_numbers(c):
    def f(x, n):
        method, other = n.bit_length, (-1.5).is_integer
        c.graph_break()
        return x + method(), other(), n.bit_length

    f = c(f)
    return [(y, z, m()) for y, z, m in (f(ones(), n) for n in (5, 6, 9))]


@scenario
def formats_of_changing_numbers(c):
    def f(x, n):
        texts = format(n, "05d"), "{:03d} {!r:>5} {}".format(n, n, n), "%05d" % n, f"{n:x}"
        return x + n, texts, tried(format, n, "zz")

    f = c(f)
    return [f(ones(), n) for n in (65, 66, 67)]


@scenario
def texts_of_tensors(c):
    class A:
        def __init__(self, t):
            self.t = t

        def __repr__(self):
            return "A(%r)" % self.t

    def f(x):
        said = "%s"
        said %= x
        return x * 2, "%s" % x, said, repr(A(x + 1))

    return before_and_after(c, f)


@scenario
def what_cannot_be_called_or_unpacked(c):
    def helper():
        return 1

    def f(x):
        y, said = x + 1, []
        for slip in (lambda: x(1), lambda: helper(*3), lambda: [*3], unpacks):
            try:
                slip()
            except TypeError as error:
                said.append(str(error))
        return y, said

    def unpacks():
        a, b = 5

    return before_and_after(c, f)


@scenario
def the_name_of_a_generator(c):
    def f(x):
        def rows():
            yield x

        made = rows()
        return x + 1, made.__name__, made.__qualname__, next(made)

    return before_and_after(c, f)


@scenario
def sent_to_what_takes_nothing(c):
    def f(x):
        def rows():
            yield from [x, x + 1]

        made = rows()
        next(made)
        return x * 2, tried(made.send, 3)

    return before_and_after(c, f)


class Closes:
    def __init__(self, log):
        self.log = log

    def __iter__(self):
        return self

    def __next__(self):
        return 1

    def throw(self, *error):
        self.log.append("throw")
        return 2

    def close(self):
        self.log.append("close")


@scenario
def closed_while_it_delegates(c):
    def f(x, log):
        def rows():
            yield from Closes(log)

        made, dropped = rows(), rows()
        y = x + next(made) + next(dropped)
        thrown = made.throw(KeyError)
        return y + thrown, tried(made.close)

    f, logs = c(f), ([], [])
    return [f(ones(), log) for log in logs], logs


@scenario
def sets_of_tuples(c):
    f = c(lambda x, s: (x + len(s), (1, 2) in s, "P" in s))
    return [f(ones(), {"P", (1, 2)}), f(ones(), {"P", (1, 3)}), f(ones(), frozenset({(1.0, 2)}))]


@scenario
def an_error_thrown_into_a_generator_comes_out(c):
    def f(x):
        items = (x * i for i in range(3))
        y = x + 1
        items.throw(ValueError("thrown"))
        return y

    return before_and_after(c, f)


# ---- numbers, keys, identity -----------------------------------------------------------------------------------------------


@scenario
def rounded_to_hundreds(c):
    f = c(lambda x, n: (x + round(n, -2), round(x.shape[0] * n, -1)))
    return [f(ones(), n) for n in (1234, 1250, 1355, 1266)]


@scenario
def numbers_beyond_64_bits(c):
    f = c(lambda x, k: (x * k, str(k), k**20))
    return [f(ones(), k) for k in (5, 6, 7, 2**40)]


@scenario
def zeros_with_a_sign(c):
    f = c(lambda x, v: (x * v, str(v)))
    return [(y, y.signbit(), s) for y, s in (f(ones(), v) for v in (1.0, 0.0, -0.0, 2.0, -0.0))]


@scenario
def keys_with_a_hash_of_their_own(c):
    class K:
        def __hash__(self):
            asked.append("hash")
            return 1

    asked = []
    d = {K(): 1, K(): 2}
    f = c(lambda x: [x + v for v in d.values()])
    asked.clear()
    return [f(ones()), f(ones()), asked]


@scenario
def the_hash_of_an_input(c):
    x, seen = ones(), collections.Counter()

    def f(x):
        seen[hash(x)] += 1
        return x * seen[hash(x)]

    f = c(f)
    return [f(x), f(x), list(seen.values()), [*seen] == [hash(x)]]


@scenario
def the_dict_of_an_instance(c):
    class A:
        pass

    a = A()

    def f(x):
        a.v = 1
        return x + 1, vars(a), a.__dict__

    y, one, two = c(f)(ones())
    one["w"] = 3
    return y, one is vars(a), two is vars(a), a.w


class Ordered(collections.OrderedDict):
    pass


@scenario
def the_order_of_an_ordered_dict(c):
    results = []
    for cls in (Ordered, collections.OrderedDict):
        d = cls({2: 1, 3: 4})
        d.move_to_end(2)
        f = c(lambda x, d=d: (x + d[2], list(d), list(d.values())))
        results.append(f(ones()))
        d.move_to_end(3)
        results.append(f(ones()))
    return results


@scenario
def what_an_ordered_dict_shows(c):
    m = nn.Linear(2, 2)

    def f(x):
        d = collections.OrderedDict(a=x, b=x + 1)
        shown = d.keys(), d.values(), d.items()
        c.graph_break()
        d["c"] = x * 2
        return [list(each) for each in shown], m.state_dict().keys()

    shown, keys = c(f)(ones())
    return shown, list(keys), type(keys).__name__


@scenario
def a_parameter_as_a_key(c):
    d, p = collections.defaultdict(dict), nn.Parameter(ones())

    def f(x):
        d["a"] = x + 1
        d[p] = 123
        return d["b"]

    f = c(f)
    return [f(ones()) for _ in range(3)], list(map(type, d)), d["a"], d[p]


@scenario
def a_factory_is_exchanged(c):
    def f(x, d):
        d.default_factory = lambda: 4
        return x + 1, d["new"]

    d = collections.defaultdict(list, {1: 2})
    return [c(f)(ones(), d), dict(d), d["another"]]


# ---- classes ---------------------------------------------------------------------------------------------------------------


class Above:
    def m(self, x):
        return x + 1


class Below(Above):
    k = 1

    def m(self, x):
        cl.graph_break()
        y = super().m(x)
        return y + sum(self.k for _ in range(2)), [self.k for _ in range(2)]


@scenario
def super_after_a_break_where_self_is_in_a_cell(c):
    return before_and_after(c, lambda x: Below().m(x))


@scenario
def a_property_that_is_kept(c):
    class A:
        def __init__(self, k):
            self.k, self.asked = k, 0

        @functools.cached_property
        def weight(self):
            self.asked += 1
            return torch.arange(3.0) * self.k

    outside = A(3)

    def f(x):
        inside = A(2)
        y = x + inside.weight * inside.weight + outside.weight
        return y, inside.asked, outside.asked, inside.weight is inside.weight

    return [*before_and_after(c, f, lambda: None), vars(outside)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_answer_is_eagers(name):
    check(SCENARIOS[name])


class Empty:
    """An object whose attributes the tests set."""


def test_names_with_braces_are_asked_as_they_are():
    """A guard's text has a place for its source, `{}`; a name may look like one."""
    holder, table = Empty(), {}

    def f(x):
        if getattr(holder, "a{b}", None) is None:
            x = x + 1
        if hasattr(x, "q{0}"):
            x = x * 5
        return x * table.get("k{}", 2)

    x = torch.randn(3)
    compiled = cl.compile(f)
    assert torch.equal(compiled(x), f(x))
    setattr(holder, "a{b}", 3)
    assert torch.equal(compiled(x), f(x))
    table["k{}"] = 7
    assert torch.equal(compiled(x), f(x))


def test_sizes_found_under_names_with_braces_are_guarded():
    table = {"k{}": torch.randn(4, 2), "{0}": torch.randn(3, 2).t()}

    def f(x):
        rows = table["k{}"].shape[0] // 2
        return x[:rows].sum() + (table["k{}"] * 2).sum() + table["{0}"].sum()

    compiled = cl.compile(f, dynamic=True)
    x = torch.randn(20)
    for n in (4, 6, 9, 12):
        table["k{}"], table["{0}"] = torch.randn(n, 2), torch.randn(n, 2).t()
        torch.testing.assert_close(compiled(x), f(x))
