"""Corners of Python and torch: what is absent and comes, names, numbers, classes, modules. The answer is eager's.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: RUF059, UP031, UP032

import collections
import enum
import functools
import types

import pytest
import torch
from scenarios import check, collect, tried
from torch import nn

import course_lib as cl

SCENARIOS, scenario = collect()
ones = lambda: torch.ones(3)


# ---- what is not there, and comes ------------------------------------------------------------------------------------------


def before_and_after(c, f, *changes):
    """What `f` gives, and again after each change."""
    f = c(f)
    results = [tried(f, ones())]
    for change in changes:
        change()
        results.append(tried(f, ones()))
    return results


@scenario
def a_slot_is_filled_and_emptied(c):
    class A:
        __slots__ = ("v",)

    a = A()
    f = lambda x: x + (a.v if hasattr(a, "v") else 10)
    return before_and_after(
        c, f, lambda: setattr(a, "v", 3), lambda: setattr(a, "v", 4), lambda: delattr(a, "v")
    )


@scenario
def a_slot_remembers(c):
    class A:
        __slots__ = ("kept",)

    a = A()

    def f(x):
        if not hasattr(a, "kept"):
            a.kept = x * 2
        return x + a.kept

    f = c(f)
    return [f(ones()), f(ones() + 1), a.kept]


@scenario
def an_attribute_behind_getattr(c):
    class A:
        __slots__ = ("v",)

        def __getattr__(self, name):
            return 100

    a = A()
    return before_and_after(
        c, lambda x: x + a.v, lambda: setattr(a, "v", 3), lambda: delattr(a, "v")
    )


@scenario
def a_module_gets_an_attribute(c):
    module = types.ModuleType("corner")
    return before_and_after(
        c, lambda x: x + getattr(module, "new", 5), lambda: setattr(module, "new", 1)
    )


@scenario
def a_function_remembers(c):
    def helper(x):
        if not hasattr(helper, "kept"):
            helper.kept = x * 2
        helper.count = getattr(helper, "count", 0) + 1
        return x + helper.kept + helper.count

    f = c(lambda x: helper(x) + 1)
    return [f(ones()), f(ones() + 1), f(ones()), helper.count, helper.kept]


@scenario
def a_function_gets_another_name_and_text(c):
    def helper():
        """one"""

    def change():
        helper.__doc__, helper.__name__ = "two", "other"

    return before_and_after(c, lambda x: (x + 1, helper.__doc__, helper.__name__), change)


@scenario
def a_member_of_an_enum_gets_an_attribute(c):
    class E(enum.Enum):
        A = 1

    return before_and_after(c, lambda x: x + getattr(E.A, "tag", 0), lambda: setattr(E.A, "tag", 5))


@scenario
def a_partial_gets_an_attribute(c):
    p = functools.partial(torch.add, 1)
    return before_and_after(c, lambda x: p(x) + getattr(p, "tag", 0), lambda: setattr(p, "tag", 5))


@scenario
def the_dict_of_a_class(c):
    class A:
        pass

    f = lambda x: (x + ("q" in A.__dict__), "r" in vars(A))
    return before_and_after(
        c, f, lambda: setattr(A, "q", 1), lambda: setattr(A, "r", 1), lambda: delattr(A, "q")
    )


@scenario
def a_switch_of_a_backend(c):
    # Without the C function, torch.testing forbids it: it freezes these switches where another test has imported it.
    before = torch._C._get_cudnn_benchmark()
    try:
        turn = lambda: torch._C._set_cudnn_benchmark(not before)
        return before_and_after(c, lambda x: (x + 1, torch.backends.cudnn.benchmark), turn)
    finally:
        torch._C._set_cudnn_benchmark(before)


# ---- names and texts -------------------------------------------------------------------------------------------------------


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
def tensors_called_alike(c):
    f = c(lambda x, x_, _x: x + x_ * _x)
    return [f(ones(), ones() * 2, ones() * 3)]


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


# ---- modules and torch -----------------------------------------------------------------------------------------------------


class Deletes(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(3))
        self.register_buffer("b", torch.zeros(3))
        self.register_buffer("n", torch.zeros(3))

    def forward(self, x):
        del self.b, self.w, self.n
        self.b, self.w, self.n = x * 2, x * 3, 5
        return x + self.b


@scenario
def a_buffer_makes_room_for_an_attribute(c):
    m = Deletes()
    y = c(m)(ones())
    return (
        y,
        m.b,
        m.w,
        m.n,
        sorted(m._buffers),
        sorted(m._parameters),
        sorted({"b", "w", "n"} & {*vars(m)}),
    )


@scenario
def a_type_of_tensors(c):
    return before_and_after(
        c, lambda x: (x.type(torch.HalfTensor), x.type(torch.float16), x.type())
    )


@scenario
def a_module_with_other_parameters(c):
    m = nn.Linear(3, 2)
    f = c(
        lambda x: torch.func.functional_call(
            m, {name: p * 2 for name, p in m.named_parameters()}, (x,)
        ),
        fullgraph=True,
    )
    return f(ones())


@scenario
def results_with_names_over_a_break(c):
    def f(x):
        found = torch.max(x, dim=0)
        c.graph_break()
        return found.values + 1, found.indices, found[0], found

    return c(f)(torch.arange(6.0).reshape(2, 3))


@scenario
def facts_that_a_fake_does_not_know(c):
    x, y = ones().share_memory_(), ones()
    return c(lambda x, y: (x + 1, x.is_shared(), y.is_shared(), x.is_set_to(x), x.is_set_to(y)))(
        x, y
    )


@scenario
def quantized_inside(c):
    return before_and_after(
        c, lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8).dequantize() + x
    )


@scenario
def a_checkpoint_that_draws_again(c):
    def f(x):
        part = lambda a: nn.functional.dropout(a, 0.5) * a
        return torch.utils.checkpoint.checkpoint(
            part, x, use_reentrant=False, preserve_rng_state=False
        )

    x = torch.ones(8, requires_grad=True)
    c(f)(x).sum().backward()
    return x.grad, torch.rand(1)


@scenario
def a_nested_tensor_comes_in(c):
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    return [*c(lambda n, x: (x * 2, n * 3))(nested, ones())[1].unbind()]


@scenario
def tensors_are_swapped(c):
    x, y = ones(), torch.zeros(2)
    c(lambda x: x + 1)(x)
    torch.utils.swap_tensors(x, y)  # which nothing may refer to weakly
    z = c(lambda a, b: (torch.utils.swap_tensors(a, b), a * 2)[1])(x, y)
    return x, y, z


@scenario
def draws_with_a_gradient_of_torchs_own(c):
    return before_and_after(
        c,
        lambda x: (
            torch.distributions.Dirichlet(x).rsample(),
            torch.distributions.Beta(x, x).rsample(),
        ),
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_corner(name):
    check(SCENARIOS[name])


# ---- with gradients and kernels --------------------------------------------------------------------------------------------

COMPILED, compiled = collect()


@compiled
def results_that_outgrow_what_they_go_to(c):
    out = torch.empty(0)
    y = c(lambda x, o: (torch.add(x, 1, out=o), x * 2)[1])(ones(), out)
    made = c(
        lambda x: (
            torch.arange(x.shape[0], out=torch.empty(0, dtype=torch.long)),
            torch.cat([x, x], out=torch.empty(0)),
        )
    )
    return y, out, *made(ones()), c(lambda x, o: torch.sin(x, out=o) * 2)(ones(), torch.empty(3))


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, part):
        ctx.part = part
        return x.t() if part else x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -(gradient.t() if ctx.part else gradient), None


@compiled
def a_view_with_a_backward_of_its_own(c):
    def f(x):
        y = Reversal.apply(x, True)
        return Reversal.apply(x, False), y, y.t() * 2, Reversal.apply(x * 2, False), x.t()

    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    results = c(f)(x)
    sum(n * (result * result).sum() for n, result in enumerate(results, 1)).backward()
    return x.grad, *results


@compiled
def switches_of_inference_mode(c):
    seen = []

    def f(x):
        y = x * 2
        print(end="")
        seen.append(
            (
                torch.is_grad_enabled(),
                torch.is_inference_mode_enabled(),
                torch._C._is_fwd_grad_enabled(),
            )
        )
        return y + 1

    with torch.inference_mode():
        results = (
            c(f)(torch.ones(2)),
            c(lambda x: x * 2 if torch._C._is_fwd_grad_enabled() else x * 3)(torch.ones(2)),
        )
        return results, seen, torch._C._is_fwd_grad_enabled()


@compiled
def a_view_without_gradients(c):
    def f(x):
        with torch.no_grad():
            y = x.view(-1)
        return y, x * 2

    x = torch.arange(6.0).reshape(2, 3).requires_grad_()
    y, z = c(f)(x)
    z.sum().backward()
    return y, z, x.grad


@compiled
def gradients_are_clipped(c):
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    m(torch.randn(3, 4)).sum().backward()
    norm = c(lambda: nn.utils.clip_grad_norm_(m.parameters(), 0.1), fullgraph=True)()
    return norm, [p.grad for p in m.parameters()]


@compiled
def leaves_made_inside(c):
    def f(x):
        w = torch.ones(3, requires_grad=True)
        return w, w * x, torch.zeros_like(x, requires_grad=True)

    w, y, z = c(f)(ones())
    y.sum().backward()
    return w, w.grad, z


@compiled
def the_largest_of_nothing(c):
    asked = [
        lambda x: x.max(),
        lambda x: x.min(),
        lambda x: x.max(0),
        lambda x: x.amin(0),
        lambda x: x.argmax(),
    ]
    return [tried(c(f), torch.empty(0, 2)) for f in asked] + [
        c(lambda x: x.amax(1))(torch.empty(0, 2))
    ]


@pytest.mark.parametrize(
    "name", [*COMPILED, "draws_with_a_gradient_of_torchs_own", "tensors_called_alike"]
)
def test_corner_compiled(name):
    check((COMPILED | SCENARIOS)[name], "inductor")
