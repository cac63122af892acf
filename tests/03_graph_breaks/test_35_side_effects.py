"""Side effects: scenarios compared with eager in everything that a caller could notice.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

import collections
import contextlib
import functools
import random

import pytest
import torch
from scenarios import calls, check, collect, trained, tried
from torch import nn

SCENARIOS, scenario = collect()
r = torch.randn
LOG = []
TOTAL = 0


def say(text):
    LOG.append(text)


@scenario
def effects_on_everything(c):
    class Box:
        pass

    box, items, table, members, queue, n = (
        Box(),
        [1],
        {"a": 1},
        {1},
        collections.deque([1], maxlen=2),
        0,
    )

    def f(x):
        nonlocal n
        global TOTAL
        box.x = x + 1
        items.append(x.shape[0])
        table["b"] = x * 2
        table.pop("a", None)
        members.add(len(items))
        queue.append(n)
        n += 1
        TOTAL += 1
        return x * n

    start = TOTAL
    out = calls(c(f))
    return out, box, items, table, members, queue, n, TOTAL - start


@scenario
def an_equal_constant_of_another_type_in_a_set(c):
    sets = [{1}, {True, 2}, {0.0}, {1, 5}]

    def f(x):
        for members in sets:
            first = min(members)
            members.remove(first)
            members.add(float(first) if type(first) is int else int(first))
        return x + 1

    out = calls(c(f))
    return out, [sorted(map(repr, members)) for members in sets]


@scenario
def a_cache_is_asked_after_a_draw_and_a_change(c):
    """The draw is an effect of its own kind: it is no attribute of an object."""
    random.seed(0)
    length = functools.cache(lambda box: len(box.held))

    class Box:
        def __init__(self):
            self.held = [1, 2]

    def f(x, box):
        box.number = random.random()
        try:
            return x * length(box)
        except TypeError:
            return x - 1000

    first, second = Box(), Box()
    fast = c(f)
    return [fast(torch.ones(1), box) for box in (first, second, first)], first.number, second.number


@scenario
def one_list_in_two_places(c):
    shared = []
    holder = {"a": shared, "b": [shared]}

    def f(x, first):
        holder["a"].append(1)
        first.append(x + 1)
        return x * len(holder["b"][0])

    f = c(f)
    out = [f(r(2), shared), f(r(2), shared), f(r(2), [])]
    return out, shared, holder["a"] is shared, holder["b"][0] is shared


@scenario
def inner_lists_swapped(c):
    a, b = [1], [2]
    outer = [a, b]

    def f(x):
        outer[0], outer[1] = outer[1], outer[0]
        outer[0].append(3)
        return x * outer[0][0]

    out = calls(c(f))
    return out, a, b, outer[0] is b


@scenario
def mutation_then_exception(c):
    items = []

    def f(x):
        items.append(x + 1)
        if len(items) > 1:
            raise ValueError(f"too many: {len(items)}")
        return x * 2

    f = c(f)
    return tried(f, r(2)), tried(f, r(2)), tried(f, r(2)), items


@scenario
def input_mutated_then_exception(c):
    def f(x):
        x.add_(1)
        raise KeyError("k")

    x = r(3)
    f = c(f)
    return tried(f, x), tried(f, x), x


@scenario
def effects_around_a_break(c):
    log = []

    def f(x):
        log.append("before")
        x = x + 1
        c.graph_break()
        log.append("after")
        c.graph_break()
        log.append(x.sum())
        return x * len(log)

    return calls(c(f)), log


@scenario
def order_of_logging(c):
    def f(x):
        say("one")
        if x.sum() > 1e9:
            say("never")
        say("two")
        print(end="")
        say(f"three {x.shape}")
        return x + 1

    LOG.clear()
    return calls(c(f), 2), list(LOG)


@scenario
def prints_in_order(c):
    import io

    def f(x):
        print("a", x.shape)
        y = x + 1
        print("b", y.dtype, end="!")
        return y

    with contextlib.redirect_stdout(io.StringIO()) as text:
        out = calls(c(f))
    return out, text.getvalue()


@scenario
def random_numbers(c):
    m = nn.Dropout(0.5)

    def f(x):
        y = (
            torch.rand(3)
            + m(x[0, :3])
            + torch.randn_like(y := x[1, :3])
            + torch.bernoulli(torch.full((3,), 0.5))
        )
        return (
            y,
            torch.randperm(5),
            torch.randint(0, 9, (3,)),
            torch.multinomial(torch.ones(4), 2),
            x.new_empty(2).normal_(),
        )

    return calls(c(f)), torch.rand(3)


@scenario
def random_after_a_break(c):
    def f(x):
        a = torch.rand(3)
        c.graph_break()
        return a + torch.rand(3)

    return calls(c(f)), torch.rand(3)


@scenario
def python_random(c):
    import random

    def f(x):
        return x * random.random() + random.randint(0, 9)

    random.seed(4)
    return calls(c(f)), random.random()


@scenario
def seeded_inside(c):
    def f(x):
        torch.manual_seed(1)
        return torch.rand(3) + x[0, :3]

    return calls(c(f)), torch.rand(2)


@scenario
def generator_argument(c):
    g = torch.Generator().manual_seed(3)
    return calls(c(lambda x: x + torch.rand(x.shape, generator=g)))


@scenario
def in_place_on_input_views(c):
    def f(x):
        v = x[1:]
        w = v.view(-1)
        w += 1
        x.t()[0].zero_()
        return v, w, x

    x = r(3, 4)
    return c(f)(x), x


@scenario
def output_is_the_input(c):
    def f(x, y):
        y.add_(1)
        return x, y, x.view(-1), (y, {"k": x})

    x, y = r(2, 3), r(2, 3)
    return c(f)(x, y), x, y


@scenario
def same_object_twice(c):
    def f(x):
        y = x + 1
        z = [y, y]
        return z, z, y, {"z": z}

    a, b, y, d = c(f)(r(3))
    return a, b, y, d, a is b, d["z"] is a, a[0] is y


@scenario
def object_returned_and_stored(c):
    box = {}

    def f(x):
        made = [x + 1]
        box["made"] = made
        return made

    f = c(f)
    out = f(r(2))
    again = f(r(2))
    return out, again, box["made"] is again, out is not again


@scenario
def view_of_input_kept(c):
    kept = []

    def f(x):
        kept.append(x[0])
        return kept[-1] * 2

    x = r(2, 3)
    out = c(f)(x)
    x.zero_()
    return out, kept, x


@scenario
def detached_and_data(c):
    def f(x):
        y = x * 2
        return y.detach(), y, x.detach(), y.data

    return c(f)(r(3).requires_grad_())


@scenario
def in_place_on_a_leaf_copy(c):
    def f(x):
        y = x.clone()
        y[0] = 0
        y[1:] *= 2
        y.clamp_(min=-1)
        return y

    return trained(c(f), [], r(4))


@scenario
def in_place_on_leaf_raises(c):
    def f(x):
        x.add_(1)
        return x

    f = c(f)
    return tried(f, r(3).requires_grad_()), tried(f, r(3))


@scenario
def dict_order(c):
    table = {"a": 1, "b": 2, "c": 3}

    def f(x):
        table["a"] = table.pop("a") + 1
        table.setdefault("d", 0)
        table["d"] += 1
        return x * table["a"]

    return calls(c(f)), table


@scenario
def list_methods(c):
    items = [3, 1, 2]

    def f(x):
        items.sort()
        items.insert(0, items.pop())
        items.extend(range(2))
        items.reverse()
        del items[0]
        items[1:2] = [7, 8]
        items.remove(8)
        return x * items[0] + items.index(7) + items.count(1)

    return calls(c(f)), items


@scenario
def set_methods(c):
    members = {1, 2, 3}

    def f(x):
        members.discard(1)
        members.update({4, x.shape[0]})
        members.symmetric_difference_update({2, 9})
        return x * len(members)

    return calls(c(f)), sorted(members)


@scenario
def defaultdict_and_counter(c):
    found, counter = collections.defaultdict(list), collections.Counter()

    def f(x):
        found[x.shape[0]].append(x + 1)
        counter["n"] += 2
        counter.update("ab")
        return x * counter["n"]

    return calls(c(f)), found, counter


@scenario
def ordered_dict_moves(c):
    table = collections.OrderedDict(a=1, b=2)

    def f(x):
        table.move_to_end("a")
        table["c"] = x
        table.popitem(last=False)
        return x + 1

    return calls(c(f)), table


@scenario
def memo_on_a_function(c):
    def g(x):
        g.calls += 1
        return x * g.calls

    g.calls = 0
    return calls(c(lambda x: g(x) + 1)), g.calls


@scenario
def closures_that_share_a_cell(c):
    def make():
        n = 0

        def up(x):
            nonlocal n
            n += 1
            return x * n

        def get():
            return n

        return up, get

    up, get = make()
    f = c(lambda x: up(x) + get())
    return calls(f), get()


@scenario
def returns_a_closure(c):
    def f(x):
        y = x + 1

        def g(z):
            nonlocal y
            y = y + z
            return y

        return g, lambda: y

    g, get = c(f)(r(3))
    return g(r(3)), get(), get() is g(torch.zeros(3)), get()


@scenario
def returns_a_generator(c):
    def f(x):
        y = x + 1
        return (y * i for i in range(3))

    return list(c(f)(r(3)))


@scenario
def is_a_generator(c):
    def f(x):
        for i in range(3):
            yield x * i

    return list(c(f)(r(3)))


@scenario
def returns_objects(c):
    class Box:
        def __init__(self, x):
            self.x, self.n = x, x.shape[0]

        def double(self):
            return self.x * 2

    def f(x):
        box = Box(x + 1)
        return box, box.double, box.double()

    box, double, y = c(f)(r(3))
    return box, double(), y


@scenario
def self_referring_list(c):
    def f(x):
        items = [x + 1]
        items.append(items)
        return items

    out = c(f)(r(2))
    return out[0], out[1] is out


@scenario
def sparse_and_complex(c):
    def f(x):
        s = x.to_sparse()
        z = torch.complex(x, x)
        return s.to_dense() + 1, z.conj() * 2, z.real, (z * 2j).abs()

    return calls(c(f))


@scenario
def tensor_attribute(c):
    x = r(3)
    x.tag = "a"

    def f(x):
        return x * (2 if getattr(x, "tag", None) == "a" else 3)

    f = c(f)
    out = [f(x)]
    x.tag = "b"
    return out, f(x), f(r(3))


@scenario
def tensor_attribute_set(c):
    def f(x):
        y = x + 1
        y.tag = "made"
        x.tag = 5
        return y

    x = r(3)
    y = c(f)(x)
    return y, y.tag, x.tag


@scenario
def set_data_and_grad(c):
    p = nn.Parameter(r(3))

    def f(x):
        p.grad = x * 2
        p.data = x + 1
        return p * 2

    return c(f)(r(3)), p, p.grad


@scenario
def requires_grad_inside(c):
    def f(x):
        y = (x * 2).detach().requires_grad_()
        z = y * 3
        return y, z

    y, z = c(f)(r(3))
    z.sum().backward()
    return y, z, y.grad


@scenario
def backward_inside(c):
    p = nn.Parameter(r(3))

    def f(x):
        loss = (x * p).sum()
        loss.backward()
        return loss.detach(), p.grad * 2

    return calls(c(f), 2, (3,)), p.grad


@scenario
def nested_tensors_in_many_containers(c):
    Pair = collections.namedtuple("Pair", "a b")

    def f(x):
        return (
            Pair([x, {"k": (x + 1, None)}], collections.deque([x * 2])),
            collections.OrderedDict(z=x),
            {1, 2},
        )

    a, b, s = c(f)(r(2))
    return list(a), b, sorted(s), type(b)


@scenario
def slices_and_ellipsis(c):
    s = slice(0, 2)

    def f(x):
        y = x[..., s] + x[None, :, 1:3][0]
        x[..., s] = y
        return y, s, x

    return calls(c(f))


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_agrees_with_eager(name, backend):
    check(SCENARIOS[name], backend)
