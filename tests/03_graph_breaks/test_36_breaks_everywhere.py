"""Graph breaks in loops, `with`, `try`, comprehensions, calls: scenarios compared with eager in everything that a caller could notice.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: B008, C416

import contextlib

import pytest
import torch
from scenarios import calls, check, collect, trained, tried
from torch import nn

SCENARIOS, scenario = collect()
r = torch.randn
TOTAL = 0


@scenario
def data_dependent_if(c):
    def f(x):
        y = x * 2
        if y.sum() > 0:
            return y + 1
        return y - 1

    return [c(f)(torch.ones(3) * k) for k in (1, -1, 1)]


@scenario
def data_dependent_while(c):
    def f(x):
        n = 0
        while x.sum() < 100:
            x = x * 2
            n += 1
        return x, n

    f = c(f)
    return f(torch.ones(3)), f(torch.ones(3) * 60)


@scenario
def data_dependent_assert(c):
    def f(x):
        assert x.sum() > 0, f"negative: {x.shape}"
        return x + 1

    f = c(f)
    return tried(f, torch.ones(3)), tried(f, -torch.ones(3)), tried(f, torch.ones(3))


@scenario
def data_dependent_and_or_not(c):
    def f(x, y):
        a = (x.sum() > 0) and (y.sum() > 0)
        b = (x.sum() > 0) or (y.sum() > 0)
        d = not (x.sum() > 0)
        e = 1 if x[0] > y[0] else 2
        return a, b, d, e, 0 < x[0] < 2, x.any() and 5

    f = c(f)
    return [f(torch.ones(2) * a, torch.ones(2) * b) for a in (1, -1) for b in (1, -1)]


@scenario
def values_taken_out(c):
    def f(x):
        a, b, d, e = x.sum().item(), x.tolist(), int(x[0]), float(x[1])
        return x * a, b, d, e, x + len(b), bool(x[0]), x[int(abs(d)) % 2 :]

    return [c(f)(r(4) * 3) for _ in range(3)]


@scenario
def shape_from_data(c):
    def f(x):
        n = int(x.sum())
        y = torch.zeros(n) + 1
        return y, x[x > 1], x.nonzero(), torch.unique(x)

    f = c(f)
    return f(torch.tensor([1, 2, 3])), f(torch.tensor([4, 2, 3]))


@scenario
def numpy_inside(c):
    def f(x):
        a = x.numpy() * 2
        # a sum in another order has other last digits
        return torch.from_numpy(a) + x, a.shape, round(float(a.sum()), 3)

    return calls(c(f))


@scenario
def break_deep_inside(c):
    def g3(x):
        c.graph_break()
        return x + 1

    def g2(x):
        return g3(x * 2) * 3

    def g1(x):
        return [g2(x + i) for i in range(2)]

    return calls(c(lambda x: g1(x)[1] - g1(x)[0]))


@scenario
def disabled_recursive(c):
    log = []

    def inner(x):
        log.append("inner")
        return x * 2

    @c.disable
    def outer(x):
        log.append("outer")
        return inner(x) + 1

    return calls(c(lambda x: outer(x + 1) * 3)), log


@scenario
def disabled_not_recursive(c):
    def inner(x):
        return x * 2 + 1

    outer = c.disable(lambda x: inner(x) + 1, recursive=False)
    return calls(c(lambda x: outer(x + 1) * 3))


@scenario
def disabled_method(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0

        @c.disable
        def log(self, x):
            self.n += 1
            return x.sum().item()

        def forward(self, x):
            return x * self.log(x) + self.n

    m = M()
    return calls(c(m)), m.n


@scenario
def break_in_for(c):
    def f(x):
        for i in range(4):
            x = x + i
            c.graph_break()
            x = x * 2
        return x

    return calls(c(f))


@scenario
def break_in_nested_loops(c):
    def f(x):
        out = []
        for i, k in enumerate([1, 2, 3]):
            for name in ("a", "b"):
                if name == "b" and i == 1:
                    continue
                x = x * k + 1
                c.graph_break()
                out.append((name, x))
            else:
                out.append("else")
            if i == 2:
                break
        return out

    return calls(c(f), 2)


@scenario
def break_in_while_with_zip(c):
    def f(x):
        total, it = x * 0, zip(range(5), "abcde", strict=True)
        while (pair := next(it, None)) is not None:
            c.graph_break()
            total = total + pair[0] * x
        return total, pair

    return calls(c(f))


@scenario
def break_in_dict_loop(c):
    table = {"a": 1, "b": 2}

    def f(x):
        for key, value in table.items():
            c.graph_break()
            x = x + value * len(key)
        return x

    return calls(c(f))


@scenario
def many_turns_with_breaks(c):
    def f(x):
        for i in range(200):
            x = x + i
            c.graph_break()
        return x

    return calls(c(f), 2)


@scenario
def many_turns_of_item(c):
    def f(x):
        total = 0.0
        for i in range(200):
            total += (x * i).sum().item()
        return x + total

    return calls(c(f), 2)


@scenario
def break_under_no_grad(c):
    p = nn.Parameter(r(3))

    def f(x):
        a = x * p
        with torch.no_grad():
            b = x * p
            c.graph_break()
            d = x * p
            e = torch.is_grad_enabled()
        return a, b, d, e, x * p, torch.is_grad_enabled()

    return calls(c(f), 2, (3,)), torch.is_grad_enabled()


@scenario
def exception_under_no_grad(c):
    def f(x):
        with torch.no_grad():
            x = x + 1
            c.graph_break()
            raise ValueError("inside")

    return tried(c(f), r(2)), torch.is_grad_enabled()


@scenario
def break_under_autocast(c):
    m = nn.Linear(4, 4)

    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            a = m(x)
            c.graph_break()
            b = m(a)
        return a, b, m(x)

    return calls(c(f)), torch.is_autocast_enabled("cpu")


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(("exit", kind and kind.__name__, str(error)))
        return self.swallow


@scenario
def break_in_own_with(c):
    log = []

    def f(x):
        with Manager(log) as m:
            x = x + 1
            c.graph_break()
            m.log.append("body")
            x = x * 2
        return x

    return calls(c(f)), log


@scenario
def exception_in_own_with(c):
    log = []

    def f(x, swallow):
        with Manager(log, swallow):
            x = x + 1
            c.graph_break()
            raise KeyError("k")
        return x

    f = c(f)
    return tried(f, r(2), True), tried(f, r(2), False), log


@scenario
def data_dependent_exception_in_with(c):
    log = []

    def f(x):
        with Manager(log, True):
            if x.sum() > 0:
                raise ValueError("positive")
            x = x + 1
        return x * 2

    f = c(f)
    return f(torch.ones(2)), f(-torch.ones(2)), log


@scenario
def return_from_with(c):
    log = []

    def f(x):
        for i in range(3):
            with Manager(log), Manager(log):
                c.graph_break()
                if i == 1:
                    return x * i
        return x

    return calls(c(f)), log


@scenario
def generator_based_manager(c):
    log = []

    @contextlib.contextmanager
    def manager(name):
        log.append("in " + name)
        try:
            yield name
        finally:
            log.append("out " + name)

    def f(x):
        with manager("a") as name:
            x = x + len(name)
            c.graph_break()
            x = x * 2
        return x

    return calls(c(f)), log


@scenario
def generator_based_manager_without_break(c):
    log = []

    @contextlib.contextmanager
    def manager(name):
        log.append("in " + name)
        try:
            yield name
        except ValueError as error:
            log.append(str(error))
        finally:
            log.append("out " + name)

    def f(x):
        with manager("a"):
            x = x + 1
            raise ValueError("v")
        return x

    return calls(c(f)), log


@scenario
def break_in_try(c):
    def f(x, fail):
        log = []
        try:
            x = x + 1
            c.graph_break()
            if fail:
                raise ValueError("asked")
            x = x * 2
        except ValueError as error:
            log.append(str(error))
            c.graph_break()
            x = x - 1
        else:
            log.append("else")
        finally:
            c.graph_break()
            log.append("finally")
        return x, log

    f = c(f)
    return f(r(2), False), f(r(2), True), f(r(2), False)


@scenario
def exception_from_a_disabled_call(c):
    @c.disable
    def fails(x):
        raise LookupError(f"shape {tuple(x.shape)}")

    def f(x):
        try:
            fails(x + 1)
        except LookupError as error:
            return x * 2, str(error)

    def g(x):
        x = x + 1
        fails(x)
        return x

    return calls(c(f)), tried(c(g), r(2))


@scenario
def exception_chains(c):
    def f(x):
        try:
            c.graph_break()
            raise KeyError("a")
        except KeyError as error:
            raise ValueError("b") from error

    def play():
        try:
            c(f)(r(2))
        except ValueError as error:
            return (
                str(error),
                type(error.__cause__),
                type(error.__context__),
                error.__suppress_context__,
            )

    return play()


@scenario
def reraised(c):
    def f(x):
        try:
            if x.sum() > 0:
                raise KeyError("a")
        except KeyError:
            c.graph_break()
            raise
        return x

    return tried(c(f), torch.ones(2)), tried(c(f), -torch.ones(2))


@scenario
def break_in_comprehensions(c):
    def g(x):
        c.graph_break()
        return x + 1

    def f(x):
        return (
            [g(x) * i for i in range(2)],
            {i: g(x) for i in "ab"},
            {g(x).shape[0] for _ in range(2)},
            [i for i in g(x)],
        )

    return calls(c(f))


@scenario
def item_in_a_comprehension(c):
    return calls(c(lambda x: x + sum([v.item() for v in x[0]])))


@scenario
def break_in_a_generator(c):
    def g(x):
        for i in range(3):
            c.graph_break()
            yield x * i

    def f(x):
        total = x
        for y in g(x + 1):
            total = total + y
        return total

    return calls(c(f))


@scenario
def break_with_a_generator_alive(c):
    def g(x):
        for i in range(3):
            yield x * i

    def f(x):
        total = x
        for y in g(x + 1):
            c.graph_break()
            total = total + y
        return total

    return calls(c(f))


@scenario
def break_in_a_method(c):
    class Box:
        def __init__(self):
            self.n = 0

        def step(self, x):
            self.n += 1
            c.graph_break()
            self.n += 1
            return x * self.n

    box = Box()
    return calls(c(lambda x: box.step(x) + box.step(x))), box.n


@scenario
def break_in_a_closure(c):
    def f(x):
        n = 1

        def g(y):
            nonlocal n
            n += 1
            c.graph_break()
            n += 1
            return y * n

        a = g(x)
        c.graph_break()
        b = g(a)
        return a, b, n

    return calls(c(f))


@scenario
def break_with_super(c):
    class A(nn.Module):
        def forward(self, x):
            c.graph_break()
            return x + 1

    class B(A):
        def forward(self, x):
            x = super().forward(x * 2)
            c.graph_break()
            return super().forward(x)

    return calls(c(B()))


@scenario
def break_with_half_a_call(c):
    def value(k):
        c.graph_break()
        return k

    def f(x):
        y = torch.add(x * 2, value(3), alpha=value(2))
        z = [x, value(1), *[value(4)], {"k": value(5), **{"j": x}}]
        return (
            y,
            z,
            f"{value(1)} and {value(2):3d}",
            x[value(0) : value(2)],
            value(1) < value(2) < value(3),
            (x + 1) * value(2),
        )

    return calls(c(f), 2)


@scenario
def method_call_with_break_in_arguments(c):
    def value(k):
        c.graph_break()
        return k

    return calls(
        c(lambda x: (x + 1).view(value(4), value(3)).sum(dim=value(0), keepdim=value(True))), 2
    )


@scenario
def break_in_an_augmented_assignment(c):
    @c.disable
    def value(k):
        return k

    def f(x):
        items = [1]
        items += [value(2)]
        y = x.clone()
        y[0] += value(3)
        y *= value(2)
        return y, items

    return calls(c(f))


@scenario
def break_in_defaults_and_decorators(c):
    def mark(k):
        c.graph_break()
        return k

    def f(x):
        def g(y, k=mark(2), *, j=mark(3)):
            return y * k + j

        return g(x), g(x, 5, j=1)

    return calls(c(f))


@scenario
def break_in_star_calls(c):
    def f(*args, **kwargs):
        c.graph_break()
        return sum(args) * kwargs["k"]

    def g(x):
        return f(*[x, x + 1], **{"k": 2})

    return calls(c(g)), c(f)(r(2), r(2), k=3)


@scenario
def deleted_and_unbound_variables(c):
    def f(x, early):
        y = x + 1
        if early:
            z = y * 2
        del y
        c.graph_break()
        try:
            return z
        except UnboundLocalError as error:
            return x, str(error)

    f = c(f)
    return f(r(2), True), f(r(2), False), f(r(2), True)


@scenario
def items_bound_by_match(c):
    def f(x, how):
        match how:
            case {"k": k}:
                c.graph_break()
                return x * k
            case [a, *rest]:
                c.graph_break()
                return x + a, rest
            case _:
                return x

    f = c(f)
    return f(r(2), {"k": 3}), f(r(2), [1, 2, 3]), f(r(2), None)


@scenario
def recursion_with_breaks(c):
    def f(x, n):
        if n == 0:
            return x
        c.graph_break()
        return f(x + n, n - 1) * 2

    return c(f)(r(2), 5), c(f)(r(2), 3)


@scenario
def break_and_input_mutation(c):
    def f(x):
        x.add_(1)
        c.graph_break()
        x.mul_(2)
        v = x[0]
        c.graph_break()
        v.zero_()
        return x, v

    x = r(3, 2)
    return c(f)(x), x


@scenario
def break_keeps_identity(c):
    def f(x):
        y = x + 1
        items = [y, x]
        c.graph_break()
        return items[0] is y, items[1] is x, items, y

    x = r(2)
    out = c(f)(x)
    return out, out[2][1] is x


@scenario
def break_keeps_sharing_of_lists(c):
    shared = []

    def f(x):
        mine = shared
        new = [mine, mine]
        mine.append(1)
        c.graph_break()
        new[0].append(2)
        return x * len(shared), new[0] is shared, new[0] is new[1]

    return calls(c(f)), shared


@scenario
def gradients_through_breaks(c):
    m = nn.Linear(4, 4)

    def f(x):
        y = m(x).relu()
        c.graph_break()
        z = m(y)
        if z.sum() > 0:
            return z * 2
        return z * 3

    return trained(c(f), m.parameters(), r(2, 4))


@scenario
def unsupported_inside_a_module(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.seen = nn.Linear(4, 4), []

        def forward(self, x):
            self.seen.append(x.mean().item())
            return self.layer(x)

    m = nn.Sequential(nn.Linear(4, 4), M(), nn.ReLU(), M())
    return calls(c(m)), m[1].seen, m[3].seen


@scenario
def break_in_a_hook(c):
    m = nn.Linear(4, 4)
    log = []
    m.register_forward_hook(lambda m, a, out: log.append(out.mean().item()))
    return calls(c(nn.Sequential(m, nn.ReLU()))), log


@scenario
def break_in_property_and_getitem(c):
    class Box:
        n = 0

        @property
        def value(self):
            self.n += 1
            c.graph_break()
            return self.n

        def __getitem__(self, k):
            c.graph_break()
            return k * 2

        def __contains__(self, k):
            c.graph_break()
            return k == 1

        def __len__(self):
            c.graph_break()
            return 4

        def __eq__(self, other):
            c.graph_break()
            return True

        def __iter__(self):
            c.graph_break()
            return iter([1, 2])

        def __bool__(self):
            c.graph_break()
            return True

        def __add__(self, other):
            c.graph_break()
            return other + 1

    box = Box()

    def f(x):
        out = [x * box.value, x + box[3], 1 in box, len(box), box == 3, list(box), box + x, not box]
        if box:
            out.append(x)
        for k in box:
            out.append(x + k)
        return out

    return calls(c(f), 2), box.n


@scenario
def sort_key_that_breaks(c):
    def f(x):
        rows = sorted([x, x - 1, x + 1], key=lambda t: t.sum().item())
        return rows[0], max([1, 2], key=lambda k: (x * k).sum().item())

    return calls(c(f))


@scenario
def globals_and_locals(c):
    def f(x):
        k = 2
        return x * locals()["k"], "TOTAL" in globals()

    return calls(c(f))


@scenario
def eval_and_exec(c):
    def f(x):
        return x * eval("1 + 2")

    return calls(c(f))


@scenario
def imports_inside(c):
    def f(x):
        import math
        from math import pi

        import torch.nn.functional as G

        return G.relu(x) * pi + math.sqrt(4)

    return calls(c(f))


@scenario
def async_function(c):
    import asyncio

    async def f(x):
        await asyncio.sleep(0)
        return x + 1

    return asyncio.run(c(f)(r(3)))


@scenario
def stays_whole_with_fullgraph(c):
    m = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.GELU(), nn.Dropout(0.1))
    return calls(c(m, fullgraph=True))


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_agrees_with_eager(name, backend):
    check(SCENARIOS[name], backend)
