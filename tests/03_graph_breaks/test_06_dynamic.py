"""Sizes that change from call to call, with every setting of `dynamic`: the answers are eager's.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: C416, C420, E711, UP031, UP032

import functools
import math

import pytest
import torch
import torch.nn.functional as F
from scenarios import Ours, check, collect, play, tried
from torch import nn
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

import course_lib as cl

SCENARIOS, scenario = collect()
ONE_GRAPH, one_graph = collect()
r = torch.randn
SIZES = (4, 7, 9, 1, 0, 2, 4, 33)


def over(f, *more, sizes=SIZES, width=3):
    return [tried(f, r(n, width), *more) for n in sizes]


def simple(body, sizes=SIZES, width=3):
    """A scenario that calls one function with several sizes."""

    @functools.wraps(body)
    def play(c):
        return over(c(body), sizes=sizes, width=width)

    return scenario(play)


@simple
def arithmetic_on_sizes(x):
    n, m = x.shape
    return (
        x * n + m,
        n * 2 + 1,
        n // 2,
        n % 3,
        n / 2,
        -n,
        n**2,
        abs(n - 5),
        n == m,
        n > 3,
        min(n, 5),
        max(n, m),
        divmod(n, 2),
    )


@simple
def answers_about_sizes_are_bools(x):
    large, held = x.shape[0] > 4, [x.shape[0] != 2, *map(functools.partial(max, 3), [x.shape[0]])]
    match large, x.shape[1]:
        case (True, 3):
            x = x + 1
        case (_, n) if n:
            x = x - n
    return (
        x,
        large is True,
        large is not False,
        type(large),
        held,
        held[0] is True,
        {True: 1, False: 2}[large],
        (large, 1),
    )


@simple
def views(x):
    n = x.shape[0]
    return (
        x.view(n * 3),
        x.view(3, -1),
        x.reshape(-1),
        x.view(n, 1, 3),
        x.unflatten(1, (3, 1)),
        x.flatten(),
        x.t(),
        x[None],
    )


@simple
def expands_and_cats(x):
    n = x.shape[0]
    e = (
        torch.cat([x, x + 1, torch.zeros(n, 3)], 0),
        torch.stack([x, x], 1),
        x[:, None].expand(n, 2, 3),
        x.repeat(2, n),
    )
    return *e, x.sum(0).expand(n, 3), torch.cat([x, x], 1).shape


@simple
def factories(x):
    n = x.shape[0]
    made = (
        torch.zeros(n),
        torch.ones(n, 2),
        torch.full((n,), 2.5),
        torch.arange(n),
        torch.arange(0, n * 2, 2),
        torch.eye(n),
    )
    return (
        *made,
        x.new_zeros(n + 1),
        torch.empty(n, 0),
        torch.linspace(0, 1, n),
        torch.tril(torch.ones(n, n)),
        torch.rand(n),
    )


@simple
def slicing(x):
    n = x.shape[0]
    return (
        x[: n // 2],
        x[n // 2 :],
        x[-1:],
        x[1:-1],
        x[::2],
        x[: n - 1] if n > 1 else x,
        x.narrow(0, 0, n // 2),
        x[n // 3 : n],
    )


@simple
def picks_the_last_row(x):
    return x[x.shape[0] - 1], x[-1]


@simple
def branches_on_sizes(x):
    if x.shape[0] > 5:
        return x * 2
    if x.size(0) == 2 or not x.shape[0]:
        return x - 1
    return x + (1 if x.shape[0] % 2 else 3)


@simple
def loops_over_sizes(x):
    total = x.sum(0)
    for i in range(x.shape[0]):
        total = total + x[i] * i
    for row in x:
        total = total + row
    return total, len(x), [i for i in range(x.shape[0])][:2]


@simple
def while_on_sizes(x):
    while x.shape[0] > 3:
        x = x[: x.shape[0] // 2]
    return x + 1


@simple
def sizes_into_text(x):
    n = x.shape[0]
    return (
        f"{n} rows",
        f"{n:03d}",
        str(n),
        repr(x.shape),
        "%d" % n,
        "{}".format(n),
        f"{x.shape}",
        f"{n * 2!r}",
        [str(s) for s in x.shape],
    )


@simple
def sizes_as_keys(x):
    table = {x.shape[0]: "a", (x.shape[0], 1): "b", x.shape: "c"}
    members = {x.shape[0], 3}
    return (
        table,
        table.get(4),
        table.get(x.shape[0]),
        x.shape[0] in members,
        sorted(members),
        x.shape[0] in (4, 7),
        hash(x.shape[0]),
    )


@simple
def returns_sizes(x):
    y = x + 1
    return (
        x.shape,
        y.shape,
        y.size(),
        y.size(0),
        y.numel(),
        y.dim(),
        len(y),
        y.shape[0] * 2,
        y.stride(),
        [*y.shape],
        y.shape[:1],
        y.nbytes,
    )


@simple
def types_of_sizes(x):
    n = x.shape[0]
    kinds = (
        type(n),
        type(x.shape),
        isinstance(n, int),
        isinstance(n, float),
        type(n / 2),
        type(x.numel()),
        isinstance(x.shape, tuple),
    )
    return (
        *kinds,
        callable(n),
        hasattr(n, "bit_length"),
        n.bit_length() if n < 5 else 0,
        x.shape == torch.Size([4, 3]),
        x.shape == (7, 3),
    )


@simple
def math_on_sizes(x):
    n = x.shape[0]
    s = (
        math.sqrt(n),
        math.ceil(n / 2),
        math.floor(n / 3),
        int(n * 0.5),
        round(n / 3),
        float(n),
        math.prod(x.shape),
        sum(x.shape),
        bool(n),
    )
    return (
        *s,
        x / math.sqrt(n + 1),
        x * (n**-0.5 if n else 1),
        x * n**0.5,
        math.log2(n + 1),
        n & 1,
        n << 1,
        n ^ 3,
        ~n,
        int(n),
        n | 8,
    )


@simple
def lists_of_sizes(x):
    n = x.shape[0]
    return (
        [0] * n,
        list(range(n)),
        "a" * n,
        (n,) * 2,
        [1, 2, 3, 4, 5][n : n + 1],
        [5, 6, 7, 8, 9][n % 5],
        sorted([n, 3]),
        list(x.shape).index(3),
    )


@simple
def reductions(x):
    return (
        x.sum(),
        x.mean(0),
        x.var(1),
        x.amax(1),
        x.softmax(0),
        x.cumsum(0),
        x.argmax(1),
        x.norm(),
        x.std(),
        x.prod(0),
        x.any(),
        x.all(),
    )


@simple
def splits_by_size(x):
    n = x.shape[0]
    return (
        x.split(3),
        x.chunk(2),
        x.split([n // 2, n - n // 2]),
        x.unbind(1),
        torch.tensor_split(x, 2),
        x.split(n) if n else x,
    )


@simple
def pads_and_interpolates(x):
    n = x.shape[0]
    return (
        F.pad(x, (0, 0, 0, 9 - n if n < 9 else 0)),
        F.pad(x, (1, n)),
        x.roll(1, 0),
        x.flip(0),
        F.one_hot(torch.arange(3), n + 3),
    )


@simple
def masks(x):
    n = x.shape[0]
    m = torch.arange(n)[:, None] < torch.arange(n)
    return (
        x.masked_fill(m[:, :3], 0) if n >= 3 else x,
        torch.ones(n, n).triu(),
        m.sum(),
        torch.where(x > 0, x, n),
    )


@simple
def matmuls(x):
    return (
        x @ x.t(),
        x.t() @ x,
        torch.einsum("ij,ik->jk", x, x),
        x @ torch.ones(3, x.shape[0]),
        F.linear(x, torch.ones(5, 3)),
    )


@simple
def in_place(x):
    y = x.clone()
    y[: x.shape[0] // 2] = 0
    y[-1:] += x.shape[0]
    x.mul_(2)
    return y, x


@simple
def strided_inputs_of_many_sizes(x):
    y = x.t() * 2
    return y, x.T.reshape(-1), x.as_strided((x.shape[0],), (3,))


@simple
def slices_of_range(x):
    n = x.shape[0]
    return (
        list(range(n))[-1:],
        len(range(1, n, 2)),
        list(reversed(range(n)))[:1],
        list(zip(range(n), "ab", strict=False)),
        sum(range(n)),
    )


@simple
def lambda_and_comprehension_with_sizes(x):
    n = x.shape[0]
    g = lambda k=n: k * 2
    return (
        g(),
        [x * i for i in (n, n + 1)],
        {i: n for i in range(2)},
        max((n, 3), key=lambda k: -k),
        sorted([n, 5, 1], reverse=True),
    )


@simple
def keeps_sizes_in_objects(x):
    class Box:
        def __init__(self, n):
            self.n, self.both = n, (n, n + 1)

    box = Box(x.shape[0])
    return box, x * box.n, torch.Size([box.n, 2]), box.both


@simple
def raises_with_a_size(x):
    if x.shape[0] > 4:
        raise ValueError(f"{x.shape[0]} rows in {tuple(x.shape)}")
    assert x.shape[0] != 2, f"got {x.shape[0]}"
    return x


@simple
def sizes_and_dtypes(x):
    n = x.shape[0]
    return (
        torch.tensor(n),
        torch.tensor([n, 2]),
        torch.tensor(n / 2),
        x.int() * n,
        (x > n).sum(),
        torch.scalar_tensor(n),
        torch.as_tensor(n),
    )


@simple
def size_compared_with_none_and_text(x):
    n = x.shape[0]
    return n is None, n == "a", n != None, n == 4.0, n in [None, 4], n is x.shape[0]


@simple
def sizes_through_a_break(x):
    n = x.shape[0]
    y = x * n
    if y.sum() > 1e9:
        return y
    z = torch.zeros(n * 2)
    print(end="")
    return z + n, y.shape[0] == n, n


@simple
def slices_by_item(x):
    k = int(x.abs().sum() * 0) + 1
    return x[:k], torch.zeros(k, x.shape[0])


@scenario
def int_arguments(c):
    f = c(lambda x, k: (x * k, k + 1, x[:k], torch.zeros(k), [k] * 2, k > 3, f"{k}"))
    return [f(r(9), k) for k in (3, 4, 5, 0, 1, 8, 100, 2**40 % 7)]


@scenario
def negative_and_large_ints(c):
    f = c(lambda x, k: (x * k, k // 2, k % 5, abs(k), -k, k == -1))
    return [f(r(3), k) for k in (3, -4, -1, 0, 2**40, -(2**40), 2**62, 5)] + [tried(f, r(3), 2**70)]


@scenario
def float_arguments(c):
    f = c(lambda x, k: (x * k, k + 1, k > 1, str(k)))
    return [f(r(3), k) for k in (0.5, 1.5, 2.5, -0.0, 3.0, float("inf"))]


@scenario
def int_attributes(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 2

        def forward(self, x):
            self.n += 1
            return x * self.n + torch.arange(self.n).sum()

    m = M()
    f = c(m)
    return [f(r(3)) for _ in range(6)], m.n


@scenario
def int_globals_and_lists(c):
    k = [3, 4]
    f = c(lambda x: (x[: k[0]], x * k[1], sum(k)))
    out = []
    for pair in ((3, 4), (4, 5), (5, 6), (1, 0)):
        k[:] = pair
        out.append(f(r(9)))
    return out


@scenario
def equal_sizes_stay_independent(c):
    f = c(lambda x, y: (x.sum() + y.sum(), x.shape[0] == y.shape[0], torch.cat([x, y])))
    return [f(r(a), r(b)) for a, b in ((4, 4), (5, 5), (5, 6), (6, 5), (7, 7), (1, 7), (7, 1))]


@scenario
def sizes_that_must_match(c):
    f = c(lambda x, y: x + y)
    return [tried(f, r(a, 3), r(b, 3)) for a, b in ((4, 4), (5, 5), (6, 6), (1, 6), (6, 1))]


@scenario
def broadcasting_sizes(c):
    f = c(lambda x, y: (x * y, (x * y).shape))
    return [f(r(a, 1), r(1, b)) for a, b in ((4, 3), (5, 4), (6, 1), (1, 5), (6, 6))]


@scenario
def several_dimensions(c):
    f = c(
        lambda x: (
            x.transpose(1, 2).reshape(x.shape[0], -1),
            x.permute(2, 0, 1).contiguous().stride(),
            x.sum((0, 2)),
        )
    )
    return [
        f(r(*shape))
        for shape in ((2, 3, 4), (3, 3, 4), (3, 5, 4), (3, 5, 6), (7, 8, 9), (1, 2, 3), (5, 1, 1))
    ]


@scenario
def strides_that_change(c):
    f = c(lambda x: (x * 2, x.stride(), x.view(-1).shape if x.is_contiguous() else None))
    inputs = [
        r(4, 6),
        r(5, 6),
        r(6, 5).t(),
        r(7, 5).t(),
        r(4, 12)[:, ::2],
        r(5, 14)[:, ::2],
        r(5, 1, 6)[:, 0],
        r(8, 6)[2:],
        r(1, 6),
    ]
    return [f(x) for x in inputs + inputs]


@scenario
def storage_offsets(c):
    f = c(lambda x: (x * 2, x.storage_offset(), x[1:].storage_offset()))
    base = r(20)
    return f(base[:5]), f(base[3:8]), f(base[4:10]), f(base[5:12])


@scenario
def number_of_dimensions(c):
    f = c(lambda x: (x.flatten(), x.ndim, x.shape))
    return [f(r(shape)) for shape in ((2, 3), (2, 3, 4), (6,), (), (4, 3), (5, 3, 4))]


@scenario
def modules_with_batches(c):
    m = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    f = c(m)
    return [
        f(r(b, 3, h, w))
        for b, h, w in ((2, 8, 8), (3, 8, 8), (5, 8, 8), (5, 9, 10), (6, 11, 10), (1, 5, 5))
    ], m


@scenario
def attention_with_lengths(c):
    m = nn.MultiheadAttention(8, 2, batch_first=True)
    f = c(
        lambda x: m(
            x,
            x,
            x,
            attn_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[1]),
            need_weights=False,
        )[0]
    )
    return [f(r(b, n, 8)) for b, n in ((2, 5), (3, 5), (3, 6), (4, 7), (1, 3))]


@scenario
def gradients_with_sizes(c):
    m = nn.Linear(3, 2)
    f = c(lambda x: (m(x).tanh() * x.shape[0]).sum())
    out = []
    for n in (4, 5, 6, 1, 7):
        x = r(n, 3).requires_grad_()
        y = f(x)
        y.backward()
        out += [y, x.grad]
    return out, m.weight.grad


@scenario
def generation_with_a_growing_cache(c):
    m = nn.Linear(4, 4)

    def step(x, cache):
        k = m(x)
        cache = torch.cat([cache, k], 0)
        return (x @ cache.t()).softmax(-1) @ cache, cache

    f = c(step)
    cache, out = torch.zeros(0, 4), []
    for _ in range(8):
        y, cache = f(r(1, 4), cache)
        out.append(y)
    return out, cache


@scenario
def growing_list_of_tensors(c):
    f = c(lambda xs: (torch.cat(xs).sum(0), len(xs)))
    return [f([r(n, 2) for n in range(1, k + 1)]) for k in range(1, 6)]


@scenario
def sizes_in_containers(c):
    f = c(lambda d: {k: (v * v.shape[0], v.shape[0]) for k, v in d.items()})
    return [f({"a": r(n), "b": r(n + 1)}) for n in (3, 4, 5, 0, 1)]


@scenario
def compiled_in_compiled_with_sizes(c):
    g = c(lambda x: x.view(-1, 2) * x.shape[0])
    f = c(lambda x: g(x) + x.shape[0])
    return [f(r(n)) for n in (4, 6, 8, 2)], [g(r(n)) for n in (4, 6, 10)]


@scenario
def breaks_with_sizes(c):
    def f(x):
        n = x.shape[0]
        y = x * n
        c.graph_break()
        z = y[: n // 2]
        for i in range(2):
            z = torch.cat([z, y + i])
            c.graph_break()
        return z, n, z.shape[0]

    return over(c(f))


@scenario
def disabled_with_sizes(c):
    @c.disable
    def g(n, x):
        return n + 1, x[:n]

    def f(x):
        n, y = g(x.shape[0] // 2, x)
        return y * n, n, torch.zeros(n)

    return over(c(f))


@scenario
def effects_with_sizes(c):
    log, seen = [], {}

    def f(x):
        log.append(x.shape[0])
        seen[x.shape[0]] = x.shape
        return x + len(log)

    return over(c(f)), log, seen


@scenario
def closures_returned_with_sizes(c):
    def f(x):
        n = x.shape[0]
        return lambda y: y * n, n

    return [g(torch.ones(2)) for g, _ in over(c(f))]


@scenario
def subclassed_sizes_and_options(c):
    f = c(lambda x, size, k: (x.reshape(size), x.sum(k), F.interpolate(x[None, None], size=size)))
    return [
        f(r(*s), s[::-1], k)
        for s, k in (((2, 3), 0), ((3, 4), 1), ((4, 5), -1), ((5, 4), 0), ((1, 4), 0))
    ]


@scenario
def full_graph_and_sizes(c):
    f = c(lambda x: (x.reshape(2, -1) * x.shape[0]).sum(0), fullgraph=True)
    return [f(r(n, 2)) for n in (4, 6, 7, 8, 1)]


@scenario
def mark_of_torch(c):
    x = r(5, 3)
    torch._dynamo.mark_dynamic(x, 0)
    f = c(lambda x: x * x.shape[0])
    return f(x), f(r(6, 3)), f(r(1, 3))


# ---- one graph for all sizes -------------------------------------------------------------------------------------------------


@one_graph
def pointwise_of_any_size(c):
    return over(c(lambda x: (x * 2).relu() + x.shape[0]), sizes=(4, 5, 6, 7))


@one_graph
def views_of_any_size(c):
    return over(
        c(lambda x: x.view(-1, 3, 1).transpose(0, 1).reshape(3, x.shape[0])), sizes=(4, 5, 6, 7)
    )


@one_graph
def linear_of_any_batch(c):
    m = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4))
    return over(c(m), sizes=(4, 5, 6, 7))


@one_graph
def arange_of_any_size(c):
    return over(
        c(lambda x: x + torch.arange(x.shape[0])[:, None] + torch.zeros(x.shape[0], 1)),
        sizes=(4, 5, 6, 7),
    )


@one_graph
def attention_of_any_length(c):
    f = c(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True))
    return [f(r(2, 2, n, 4)) for n in (5, 6, 7, 8)]


@one_graph
def catted_sizes(c):
    return over(c(lambda x: torch.cat([x, x[1:]]).sum(0) / x.shape[0]), sizes=(4, 5, 6, 7))


@one_graph
def sizes_compared_loosely(c):
    return over(c(lambda x: x * 2 if x.shape[0] > 3 else x), sizes=(4, 5, 6, 7))


@one_graph
def numbers_made_of_sizes(c):
    f = c(
        lambda x: (
            x / math.sqrt(x.shape[0])
            + x * float(x.shape[0])
            + int(x.shape[0])
            + x * x.shape[0] ** -0.5
        )
    )
    return [f(r(n)) for n in (4, 5, 6, 7)]


@one_graph
def int_arguments_of_any_value(c):
    f = c(lambda x, k: x[:k] * k)
    return [f(r(9), k) for k in (4, 5, 6, 7)]


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("name", {**SCENARIOS, **ONE_GRAPH})
def test_sizes(name, dynamic):
    scenario = SCENARIOS.get(name) or ONE_GRAPH[name]

    def with_setting(c):
        return scenario(_Dynamic(c, dynamic))

    check(with_setting)


class _Dynamic:
    """`c` with a setting of `dynamic`."""

    def __init__(self, c, dynamic):
        self.c, self.dynamic = c, dynamic
        self.graph_break, self.disable = c.graph_break, c.disable

    def __call__(self, function=None, **options):
        return self.c(function, dynamic=self.dynamic, **options)


@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph_serves_all_sizes(name):
    play(ONE_GRAPH[name], c := Ours())
    play(lambda c: ONE_GRAPH[name](_Dynamic(c, True)), d := Ours())
    if (len(c.graphs), len(d.graphs)) != (2, 1):
        raise AssertionError(
            f"{len(c.graphs)} graphs where 2 were to be expected, {len(d.graphs)} with dynamic=True instead of 1"
        )


def first_sizes(x):
    y = x * 2
    if y.shape[0] > 3:
        y = y + 1
    return y


def test_a_guard_on_sizes_names_the_line_that_asked():
    compiled = cl.compile(first_sizes, backend="eager", dynamic=True)
    compiled(r(5))
    (state,) = compiled._course_compiler.codes.values()
    causes = {
        str(guard.expr): guard.cause.text
        for guard in state.entries[0].result.guards
        if guard.kind == "sizes"
    }
    assert causes == {
        "x.shape[0] >= 2": "def first_sizes(x):",
        "x.shape[0] > 3": "if y.shape[0] > 3:",
    }


def branches(x):
    return x * 2 if x.shape[0] == 6 else x


def reads_a_list(x):
    return x * [0, 1, 2, 3, 4, 5, 6][x.shape[0]]


def views_in_three(x):
    return x.view(2, 9)


def meets_a_constant(x):
    return x + torch.ones(6, 3)


def meets_the_other_size(x):
    return x + x.T if x.shape[0] == x.shape[1] else x


def compares(x):
    return x * 2 if x.shape[0] > 3 else x


def asks_for_its_parity(x):
    return x * 2 if x.shape[0] % 2 == 0 else x


def multiplies(x):
    return x * int(x.shape[0])


MARKS = [
    (branches, (6, 3), 0, None),
    (reads_a_list, (6, 3), 0, None),
    (views_in_three, (6, 3), 0, None),
    (meets_a_constant, (6, 3), 0, None),
    (meets_a_constant, (6, 3), (0, 1), None),
    (meets_the_other_size, (6, 6), 0, None),
    (meets_the_other_size, (6, 6), (0, 1), None),
    (compares, (6, 3), 0, None),
    (asks_for_its_parity, (6, 3), 0, None),
    (multiplies, (6, 3), 0, None),
    (multiplies, (1, 3), 0, None),
    (multiplies, (0, 3), 0, None),
    (branches, (1, 3), 0, None),
    (branches, (6, 3), -2, None),
]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize(("f", "shape", "dims", "dynamic"), MARKS)
def test_a_marked_size_that_the_code_fixes_raises_as_in_torch(f, shape, dims, dynamic, strict):
    def told(mark, compile):
        x = torch.ones(shape)
        mark(x, dims)
        try:
            return compile(f, backend="eager", dynamic=dynamic)(x)
        except ConstraintViolationError as error:
            return error

    torch._dynamo.reset()
    ours = cl.mark_dynamic if strict else cl.maybe_mark_dynamic
    theirs = torch._dynamo.mark_dynamic if strict else torch._dynamo.maybe_mark_dynamic
    dims = [d % 2 for d in ([dims] if isinstance(dims, int) else dims)]
    expected, got = told(theirs, torch.compile), told(ours, cl.compile)

    assert type(got) is type(expected)
    if isinstance(expected, torch.Tensor):
        assert torch.equal(got, expected)


def test_the_error_of_a_mark_names_the_line_at_each_call():
    x = r(6, 3)
    cl.mark_dynamic(x, 0)
    compiled = cl.compile(views_in_three, backend="eager")
    for _ in range(2):
        with pytest.raises(
            ConstraintViolationError,
            match=r"x.shape\[0\] was marked as dynamic, but .*return x.view\(2, 9\)\) is right for 6 only",
        ):
            compiled(x)
    assert compiled(r(6, 3)).shape == (2, 9), "without a mark it is a constant"


def test_a_mark_of_torch_is_a_promise_too():
    x = r(6, 3)
    torch._dynamo.mark_dynamic(x, 0)
    with pytest.raises(ConstraintViolationError):
        cl.compile(views_in_three, backend="eager")(x)
