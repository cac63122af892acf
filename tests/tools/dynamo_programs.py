"""Programs in which some part of torch or Python might end the graph, each with a maker of arguments and the number of
graphs that its first call may make: as many as torch.compile's.

`tests/03_graph_breaks/test_22_dynamo_programs.py` compares results and side effects with eager, and counts."""

# The oddities are the point.
# ruff: noqa

import functools
import itertools
import operator
import sys
from collections import namedtuple

import torch
from language_programs import LOG, number, one
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

PROGRAMS = {}
randn = torch.randn


def program(make=one, graphs=1):
    """Register a program; `make(i)` gives its arguments."""

    def register(function):
        assert function.__name__ not in PROGRAMS, function.__name__
        PROGRAMS[function.__name__] = (function, make, graphs)
        return function

    return register


def grad(i):
    return (randn(3, requires_grad=True),)


def with_grad(i):
    x = randn(3, requires_grad=True)
    x.grad = torch.ones(3)
    return (x,)


class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = None
        self.w = nn.Parameter(torch.ones(3))
        self.register_buffer("b", torch.zeros(3))
        self.sub = nn.ReLU()


def lazy(i):
    return Lazy(), randn(3)


@torch.jit.script
def scripted(x):
    return x * 2


@functools.lru_cache(None)
def cached(n):
    return n * 2


@functools.lru_cache(None)
def cached_tensor(n):
    return torch.ones(3) * n


@functools.lru_cache(None)
def remembered(n, scale=1.0):
    return [torch.ones(n) * scale]


@torch.library.custom_op("course_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


def checked(x, i):
    assert (x + i).sum() < 4, f"m{i}"
    return x * 3


@program()
def assert_tensor(x):
    assert (x < 100).all()
    return x * 2


@program()
def assert_tensor_message(x):
    assert x.sum() < 1000, "too large"
    return x * 2


@program(graphs=2)
def assert_tensor_fstring(x):
    assert x.sum() < 1000, f"too large {x.shape}"
    return x * 2


@program()
def assert_tensor_fails(x):
    assert x.sum() > 1000, "too small"
    return x * 2


@program()
def assert_twice(x):
    y = x * 2
    assert (y < 1e9).all()
    z = y + 1
    assert (z < 1e9).all(), "no"
    return z * 2


@program()
def assert_plain(x):
    assert x.shape[0] == 3, "shape"
    return x * 2


@program(graphs=2)
def torch_assert(x):
    torch._assert((x < 1000).all(), "no")
    return x * 2


@program()
def assert_in_loop(x):
    for i in range(3):
        x = x + i
        assert x.sum() < 10000
    return x


@program(grad)
def data_read(x):
    return x.data * 2


@program(lambda i: (nn.Linear(3, 3), randn(3)))
def param_data(m, x):
    return x * m.weight.data.sum()


@program(grad)
def grad_read(x):
    if x.grad is None:
        return x * 2
    return x * 3


@program(with_grad)
def grad_use(x):
    return x * x.grad


@program()
def is_leaf(x):
    return x * 2 if x.is_leaf else x


@program(grad)
def grad_fn_none(x):
    return x * 2 if x.grad_fn is None else x


@program()
def linear_inside(x):
    m = nn.Linear(3, 3)
    return m(x).shape


@program()
def layernorm_inside(x):
    m = nn.LayerNorm(3)
    return m(x)


@program()
def sequential_inside(x):
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    return m(x)


@program()
def module_class_inside(x):
    class M(nn.Module):
        def forward(self, x):
            return x * 2

    return M()(x)


@program(graphs=2)
def parameter_inside(x):
    p = nn.Parameter(torch.ones(3))
    return x * p


@program()
def jit_scripted(x):
    return scripted(x) + 1


@program()
def lru(x):
    return x * cached(3)


@program()
def lru_tensor(x):
    return x * cached_tensor(3)


@program()
def namedtuple_inside(x):
    P = namedtuple("P", "a b")
    p = P(x, 2)
    return p.a * p.b


@program()
def normal_dist(x):
    d = torch.distributions.Normal(x, torch.ones(3))
    return d.log_prob(x)


@program()
def categorical(x):
    d = torch.distributions.Categorical(logits=x)
    return d.log_prob(torch.tensor(1)), d.entropy()


@program()
def bernoulli_dist(x):
    return torch.distributions.Bernoulli(logits=x).log_prob(torch.ones(3))


@program()
def kl(x):
    p = torch.distributions.Normal(x, torch.ones(3))
    q = torch.distributions.Normal(torch.zeros(3), torch.ones(3))
    return torch.distributions.kl_divergence(p, q)


@program()
def custom_op(x):
    return twice(x) + 1


@program(grad)
def autograd_function(x):
    return Doubled.apply(x) + 1


@program(number, graphs=2)
def raise_if(x, i):
    y = x + 1
    if y.sum() > 1e6:
        raise ValueError("big")
    return y * 2


@program(number, graphs=2)
def raise_if_hit(x, i):
    LOG.append(1)
    y = x + i
    if y.sum() > 4:
        raise ValueError(f"big {i}")
    LOG.append(2)
    return y * 2


@program(number, graphs=2)  # torch.compile: 1, and the input is not what eager leaves
def assert_hit_inplace_before(x, i):
    x.add_(i)
    assert x.sum() < 4, "m"
    return x * 2


@program(number, graphs=2)  # torch.compile: 1, and the input is not what eager leaves
def assert_hit_inplace_after(x, i):
    y = x + i
    assert y.sum() < 4, "m"
    x.add_(1)
    x[0] = 3
    return x * 2


@program(number, graphs=2)  # torch.compile: 1, and the input is not what eager leaves
def assert_hit_data_after(x, i):
    y = x + i
    assert y.sum() < 4, "m"
    x.data.add_(1)
    return x * 2


@program(number, graphs=2)  # torch.compile: 1, and the input is not what eager leaves
def assert_hit_view_after(x, i):
    y = x + i
    assert y.sum() < 4, "m"
    x[:2].add_(1)
    return x * 2


@program(number)
def assert_caught(x, i):
    try:
        assert (x + i).sum() < 4, "m"
    except AssertionError as e:
        return x - 1
    return x * 2


@program(number, graphs=2)
def assert_inchecked(x, i):
    LOG.append(i)
    try:
        return checked(x, i) + 1
    except AssertionError as e:
        LOG.append(str(e))
        return x


@program(number, graphs=3)
def assert_not(x, i):
    assert not (x + i > 3).any()
    assert not torch.isnan(x).any(), "nan"
    return x * 2


@program(number)
def assert_and(x, i):
    assert x.shape[0] == 3 and (x + i < 5).all()
    return x * 2


@program(number)
def assert_made_inplace(x, i):
    y = x * 2
    y += i
    assert y.sum() < 8
    y.mul_(2)
    return y


@program(number, graphs=2)
def assert_then_break(x, i):
    y = x + i
    assert y.sum() < 4
    print("hello")
    z = y + 1
    assert z.sum() < 6
    return z


@program(number, graphs=0)
def assert_item_value(x, i):
    assert torch.equal(x, x), "no"
    return x


@program(number)
def assert_no_grad(x, i):
    with torch.no_grad():
        y = x + i
        assert y.sum() < 4
        z = y * 2
    return z


@program(lazy)
def set_submodule(m, x):
    if m.layer is None:
        m.layer = nn.Tanh()
    return m.layer(x)


@program(lazy, graphs=2)
def replace_parameter(m, x):
    m.w = nn.Parameter(torch.zeros(3) + 2)
    return m.w * x


@program(lazy)
def replace_submodule(m, x):
    m.sub = nn.Tanh()
    return m.sub(x), m.sub is m.sub


@program(lazy, graphs=2)
def new_parameter(m, x):
    m.v = nn.Parameter(torch.ones(3) * 4)
    return x * m.v, [n for n, _ in m.named_parameters()]


@program(lazy, graphs=2)
def register_parameter(m, x):
    m.register_parameter("q", nn.Parameter(torch.ones(3)))
    return x * m.q, len(list(m.parameters()))


@program(lazy)
def register_buffer_inside(m, x):
    m.register_buffer("c", x * 2)
    return m.c + 1


@program(lazy)
def add_module_inside(m, x):
    m.add_module("tt", nn.Tanh())
    return m.tt(x)


@program()
def hasattr_tensor(x):
    return x * (2 if hasattr(x, "zork") else 3), hasattr(x, "sum")


@program()
def getattr_tensor(x):
    return x * getattr(x, "zork", 5)


@program(graphs=2)
def parameter_escape(x):
    p = nn.Parameter(torch.ones(3))
    return p, p * x


@program()
def module_escape(x):
    m = nn.Linear(3, 3)
    with torch.no_grad():
        for p in m.parameters():
            p.fill_(2)
    return m, m(x), type(m.weight).__name__, isinstance(m.weight, nn.Parameter)


@program()
def conv_inside(x):
    m = nn.Conv1d(1, 1, 2)
    return m(x.view(1, 1, 3)).shape


@program()
def embedding_inside(x):
    m = nn.Embedding(3, 4)
    return m(torch.tensor([0, 2])).shape


@program()
def batchnorm_inside(x):
    m = nn.BatchNorm1d(3)
    return m(torch.stack([x, x * 2]))


@program(graphs=2)
def mlp_inside(x):
    m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    return m(x).shape, sum(p.numel() for p in m.parameters())


@program()
def init_functions(x):
    w = torch.empty(3, 3)
    nn.init.ones_(w)
    nn.init.constant_(w[0], 3.0)
    return w @ x


@program(lambda i: (nn.Dropout(0.5), randn(2, 3)))
def dropout_assert(m, x):
    y = m(x)
    assert y.shape[0] == 2
    assert (y < 100).all()
    return y


@program()
def lru_list_tensor(x):
    r = remembered(3, scale=2.0)
    return x * r[0], r is remembered(3, scale=2.0)


@program(number)
def unused(x, i):
    return x * 2


@program(lambda i: (randn(3), randn(3 + i)))
def unused_tensor(x, y):
    return x * 2


@program(number)
def unused_after_break(x, i):
    print("a")
    return x * 2


@program(number)
def overwritten(x, i):
    i = 3
    return x * i


@program()
def vmapped(x):
    return torch.vmap(lambda a: a * 2)(x)


@program(lambda i: (randn(3, 4),))
def vmapped_twice(x):
    inner = torch.vmap(lambda a, b: a <= b, in_dims=(None, 0))
    return torch.vmap(inner, in_dims=(0, None))(x[0], x[:, 0]), x + 1


@program()
def func_grad(x):
    return torch.func.grad(lambda a: a.sin().sum())(x) * 2


@program(lambda i: (randn(3, 4),))
def vmapped_grad(x):
    return torch.vmap(torch.func.grad(lambda a, b: (a.sin() * b).sum()), in_dims=(0, None))(x, x[0])


@program()
def func_vjp(x):
    value, back = torch.func.vjp(lambda a: a.sin(), x)
    return value, back(torch.ones(3))


@program()
def func_jacrev(x):
    return torch.func.jacrev(lambda a: a.sin())(x)


@program(graphs=2)
def vmap_over_a_break(x):
    y = x * 2
    z = torch.vmap(lambda a: a.clone().apply_(lambda v: v + 1) if False else a * 2)(y)
    print("broken")
    return z + 1


@program()
def vmap_that_raises(x):
    try:
        return torch.vmap(lambda a, b: a * b)(x, x[:2])
    except ValueError as error:
        return x + len(str(error)), x * 2


@program(graphs=2)
def item_of_vmapped(x):
    return torch.vmap(lambda a: a * 2)(x).sum().item() + x


@program()
def reshaped_in_place(x):
    y = x.expand(2, 3).clone()
    y.t_()
    z = y.unsqueeze_(0) * 2
    return y, z, y.squeeze_().transpose_(0, 1)


@program()
def tensors_of_numbers(x):
    return (
        torch.as_tensor(3.0) + x + torch.as_tensor([1, 2, 3]),
        torch.as_tensor(x) + 1,
        torch.asarray([1.0, 2, 3]) + x,
    )


class Held:
    scale, count, seen = 3, 0, []

    def __init__(self, value):
        self.value = value
        Held.count += 1

    def times(self, by=1):
        return self.value * by

    @classmethod
    def more(cls):
        cls.scale += 2
        return cls.scale

    @property
    def next(self):
        return self.scale + 1


class HeldToo(Held):
    pass


class Single:
    made = None

    @classmethod
    def get(cls):
        if cls.made is None:
            cls.made = cls()
        return cls.made

    def __init__(self):
        self.calls = 0


class Counts:
    def __get__(self, instance, owner):
        return 5


def held(i):
    Held.scale, Held.count, Held.seen = 3 + i, 0, []
    for name in {"late", "kept", "n0", "n1", "n2"} & set(Held.__dict__):
        delattr(Held, name)
    if "scale" in HeldToo.__dict__:
        del HeldToo.scale
    Single.made = None
    return (Held(randn(3)),)


def attention(i):
    return randn(1, 1, 4, 8), randn(1, 1, 4, 8)


def attention_switched(i):
    torch.backends.cuda.enable_flash_sdp(i % 2 == 0)
    return attention(i)


MODULE = sys.modules[__name__]
SHARED, ADDRESSES = 0, []


@program(held)
def attributes_by_path(h):
    get = operator.attrgetter("value.shape", "next")
    return operator.attrgetter("value")(h) * operator.attrgetter("scale")(h), get(h), get


@program(held)
def attributes_by_path_in_map(h):
    return sum(map(operator.attrgetter("value"), [h, h])), max(
        [h, h], key=operator.attrgetter("scale")
    ) is h


@program(held)
def methods_by_name(h):
    return operator.methodcaller("times", by=3)(h), list(
        map(operator.methodcaller("times", 2), [h])
    )


@program(held)
def getattr_as_a_callback(h):
    return list(map(getattr, [h, h], ["value", "scale"])), functools.reduce(
        getattr, ["value", "shape"], h
    )


@program(held)
def callbacks_that_would_raise(h):
    found = []
    for look in (
        lambda: list(map(getattr, [h], ["value"])),
        lambda: functools.reduce(getattr, ["value"], h),
        lambda: operator.attrgetter("value")(h),
        lambda: "{0.value.shape} {held.scale}".format(h, held=h),
        lambda: operator.methodcaller("times")(h),
        lambda: list(map(hasattr, [h, h], ["value", "none"])),
    ):
        try:
            found.append(look())
        except AttributeError:
            found.append("wrong")
    return found


@program(held)
def partial_as_a_callback(h):
    return list(map(functools.partial(getattr, h), ["value", "scale"])), list(
        map(functools.partial(torch.add, h.value), [1, 2])
    )


@program(held)
def setattr_as_a_callback(h):
    list(map(setattr, [h], ["other"], [5]))
    return h.value * h.other


@program(graphs=2)
def print_as_a_callback(x):
    list(map(print, ["a", "b"]))
    return x + 1


@program()
def types_as_callbacks(x):
    return (
        list(map(isinstance, [x, 1], [torch.Tensor, str])),
        list(map(type, [x, 1])),
        x + 1,
        [*map(callable, [x, len])],
    )


@program(graphs=2)
def id_as_a_callback(x):
    return x + 1, len(set(map(id, [x, x, 1]))), [*map(id, [x])][0] == id(x)


@program()
def callbacks_of_itertools(x):
    rows = [x, x * 2]
    grouped = [
        (key, len(list(each)))
        for key, each in itertools.groupby(rows, key=operator.attrgetter("shape"))
    ]
    return (
        list(itertools.starmap(getattr, [(x, "shape")])),
        list(itertools.accumulate(rows, operator.add)),
        grouped,
    )


@program(graphs=2)
def callbacks_alive_at_a_break(x):
    shapes = map(getattr, [x, x], ["shape", "ndim"])
    first = next(shapes)
    print("broken")
    return (
        x + 1,
        first,
        shapes,
        filter(None, [0, 1]),
        iter([3, 2, 1].pop, 2),
        operator.methodcaller("add", 2),
    )


@program()
def a_callback_raises(x):
    try:
        list(map(getattr, [x], ["none"]))
    except AttributeError as error:
        return x + 1, error.name, error.obj is x


@program()
def names_in_errors(x):
    try:
        nothing_of_that_name
    except NameError as error:
        return x + 1, error.name, str(error)


@program()
def reversed_tensor(x):
    return reversed(x) + 1, reversed(x).shape, [*reversed(x)], reversed(x[0])


@program()
def keywords_of_no_mapping(x):
    said = []
    for keywords in (3, [1], {"a": 2}, {1: 2}):
        try:
            (lambda **k: k)(a=1, **keywords)
        except TypeError as error:
            said.append(str(error))
    return x + 1, said


@program(held)
def class_attributes(h):
    too = HeldToo(h.value)
    HeldToo.more(), Held.more()
    found = [
        h.scale,
        too.scale,
        Held.scale,
        HeldToo.scale,
        h.next,
        too.next,
        getattr(Held, "scale"),
        hasattr(Held, "late"),
    ]
    Held.late = h.value * 2
    Held.seen = Held.seen + [1]
    too.scale = 100
    return (
        found,
        h.late + 1,
        too.late,
        h.seen,
        too.scale,
        HeldToo.scale,
        Held.count,
        "scale" in vars(too),
    )


@program(held)
def class_attribute_of_an_argument(h):
    Held.scale = 50
    y = h.scale
    h.scale = 3
    Held.scale = 7
    return h.value * y, h.scale, Held.scale, type(h).scale


@program(held, graphs=2)
def class_attribute_over_a_break(h):
    Held.scale += 1
    y = h.value * 2
    print("broken")
    Held.scale += 1
    return y * Held.scale


@program(held)
def class_attribute_by_name(h):
    for k in range(3):
        setattr(Held, f"n{k}", k)
    return h.value * Held.n2 + getattr(Held, "n1"), h.n0


@program(held)
def class_attribute_is_a_tensor(h):
    Held.kept = h.value * 2
    y = Held.kept + 1
    Held.kept.add_(1)
    return y, Held.kept, h.kept is Held.kept


@program(held, graphs=2)
def class_attribute_is_a_descriptor(h):
    Held.kept = Counts()
    return h.value * h.kept


@program(held, graphs=2)
def class_attribute_read_from_the_dict(h):
    Held.scale = 5
    return h.value + 1, Held.__dict__["scale"]


@program(held, graphs=2)
def class_attribute_is_deleted(h):
    Held.late = 4
    y = h.value * Held.late
    del Held.late
    return y, hasattr(Held, "late")


@program(held)
def class_attribute_and_an_exception(h):
    Held.scale = 9
    raise ValueError(h.value * Held.scale)


@program(held)
def single_instance(h):
    one = Single.get()
    one.calls += 1
    Single.get().calls += 1
    return h.value * 2, one is Single.get(), one.calls, Single.made


@program(lambda i: (setattr(MODULE, "SHARED", i), randn(3))[1:])
def attributes_of_a_module(x):
    global SHARED
    SHARED += 5
    seen = MODULE.SHARED
    MODULE.SHARED = 6
    MODULE.BRAND_NEW = 7
    return x * seen + SHARED, MODULE.SHARED, BRAND_NEW


# from 2.15 on, `sdpa_kernel` asks a context variable, which is Python's to read
@program(attention, graphs=1 if torch.__version__ < "2.15" else 2)
def attention_by_kernel(q, k):
    with sdpa_kernel(SDPBackend.MATH):
        y = nn.functional.scaled_dot_product_attention(q, k, k)
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True):
        order = torch._C._get_sdp_priority_order()
    return y + 1, order, torch._C._get_sdp_priority_order()


@program(attention_switched)
def attention_switched_outside(q, k):
    before = torch.backends.cuda.flash_sdp_enabled()
    with sdpa_kernel(SDPBackend.MATH):
        y = nn.functional.scaled_dot_product_attention(q, k, k)
    return y, before, torch.backends.cuda.flash_sdp_enabled()


@program(attention)
def attention_and_an_exception(q, k):
    try:
        with sdpa_kernel(SDPBackend.MATH):
            y = nn.functional.scaled_dot_product_attention(q, k, k)
            raise ValueError
    except ValueError:
        return y, torch.backends.cuda.flash_sdp_enabled()


@program()
def default_dtype(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    torch.set_default_dtype(torch.float32)
    return y + x, torch.ones(1)


@program()
def default_dtype_is_left(x):
    torch.set_default_dtype(torch.float64)
    return torch.ones(3) * x, torch.tensor(1.5)


@program()
def without_torch_function(x):
    with torch._C.DisableTorchFunctionSubclass():
        return x * 2


@program(lambda i: (nn.Linear(3, 3), randn(2, 3)))
def module_to_dtype(m, x):
    before = m.weight
    return (
        m.to(torch.float64)(x.double()),
        m.weight is before,
        isinstance(x, torch._subclasses.FakeTensor),
    )


def held_with_address(i):
    (h,) = held(i)
    ADDRESSES[:] = hash(h), repr(h)
    return (h,)


@program(held_with_address, graphs=2)
def address_of_an_argument(h):
    return hash(h) == ADDRESSES[0], repr(h) == ADDRESSES[1], f"{h}" == ADDRESSES[1], h.value + 1


@program(held_with_address, graphs=2)
def address_in_a_text(h):
    text = ADDRESSES[1]
    return (
        str(h) == text,
        "%s" % h == text,
        str([h]) == f"[{text}]",
        "{}".format(h) == text,
        h.value + 1,
    )
