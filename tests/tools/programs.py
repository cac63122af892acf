"""Small programs that a compiler could get wrong, each with a maker of fresh arguments.

`tests/02_bytecode_capture/test_12_programs.py` compares them with eager: values, dtypes, strides, mutation of arguments,
identity and sharing of memory."""

import collections
import math

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS = {}
randn = torch.randn


def program(make):
    """Register a program; `make()` gives its arguments."""

    def register(function):
        PROGRAMS[function.__name__] = (function, make)
        return function

    return register


class Record:
    def __init__(self):
        self.n = 1


Pair = collections.namedtuple("Pair", "a b")
COUNTER = 0


# ---- side effects ------------------------------------------------------------------------------------------------------


@program(lambda: (randn(3),))
def adds_to_its_input(x):
    x.add_(1)
    return x * 2


@program(lambda: (randn(2, 3),))
def writes_through_a_view_of_its_input(x):
    y = x.view(-1)
    y.mul_(2)
    return x + 1, y


@program(lambda: (randn(3),))
def sets_an_item_of_its_input(x):
    x[0] = 5
    return x.sum()


@program(lambda: (randn(3), randn(3)))
def copies_into_an_argument(x, b):
    b.copy_(x)
    return b + 1


@program(lambda: (lambda x: (x, x))(randn(3)))
def is_given_one_tensor_twice(x, y):
    x.add_(1)
    return x + y


@program(lambda: (randn(3), [1]))
def appends_to_a_list_argument(x, values):
    values.append(x)
    return x + len(values)


@program(lambda: (randn(3), {}))
def stores_into_a_dict_argument(x, table):
    table["a"] = x + 1
    return x


@program(lambda: (randn(3), Record()))
def changes_an_attribute(x, record):
    record.n = record.n + 1
    return x * record.n


@program(lambda: (randn(3),))
def changes_a_variable_of_an_enclosing_function(x):
    k = 1

    def g():
        nonlocal k
        k += 1
        return x * k

    return g() + g() + k


@program(lambda: (randn(3),))
def writes_into_intermediates(x):
    y = torch.zeros(2, 3)
    y[0] = x
    y[:, 1] += 1
    y.t()[2] = 7
    z = y * 1
    v = z[0]
    v.add_(10)
    F.relu(z, inplace=True)
    d = z.detach()
    d.mul_(2)
    return y, z, v, d


@program(lambda: (randn(3),))
def uses_out(x):
    o = torch.empty(3)
    torch.add(x, 1, out=o)
    return o


# ---- identity and aliasing -------------------------------------------------------------------------------------------------


@program(lambda: (randn(3, 3),))
def returns_views_of_its_input(x):
    return x[1:], x.t(), x.view(-1)[2:], x.expand(2, 3, 3), x


@program(lambda: (randn(3),))
def returns_one_object_twice(x):
    y = x + 1
    return y, [y], y.view(1, 3)


@program(lambda: (randn(4, 2),))
def returns_facts(x):
    y = x + 1
    return {
        "y": y,
        "shape": y.shape,
        "n": x.size(0),
        "dtype": x.dtype,
        "device": x.device,
        "none": None,
        "t": (1, [x]),
    }


# ---- Python ------------------------------------------------------------------------------------------------------------------


@program(lambda: (randn(3),))
def closes_over_a_loop_variable(x):
    late = [lambda v: v * i for i in range(3)]
    early = [lambda v, i=i: v * i for i in range(3)]
    return [g(x) for g in late + early]


@program(lambda: (randn(3),))
def sums_a_generator(x):
    return sum(x * i for i in range(3)) + len({i % 2 for i in range(3)})


@program(lambda: (Pair(randn(3), 2),))
def takes_and_returns_a_namedtuple(pair):
    return Pair(pair.a * pair.b, 3)


@program(lambda: (randn(3), 1, 2))
def takes_star_arguments(x, *args, s=2, **more):
    return x * s + sum(args) + more.get("z", 0)


@program(lambda: (randn(4),))
def raises(x):
    if x.shape[0] > 2:
        raise ValueError("too many")
    return x


@program(lambda: (randn(4),))
def catches(x):
    try:
        return x.view(100)
    except RuntimeError:
        return x + 1


@program(lambda: (randn(4).requires_grad_(),))
def mixes_grad_modes(x):
    with torch.no_grad():
        y = x * 2
    return y + x, x.detach() * 2


# ---- operations ----------------------------------------------------------------------------------------------------------------


@program(lambda: (randn(6), torch.randint(-5, 5, (6,))))
def promotes_dtypes(x, i):
    whole = x + i, i / 2, i // 2, i * 2.5, x > i, ~(x > 0), i % 3, -i % 3, i**2, i << 1, i & 3
    return (
        *whole,
        x**2,
        2**x,
        x.round(),
        (x * 4).floor().int(),
        i.float().mean(),
        i.sum(),
        i.prod(),
        i.argmax(),
    )


@program(lambda: (randn(5) * 10,))
def converts(x):
    return (
        x.half() * 2,
        x.int(),
        x.bool(),
        (x.bfloat16() + 1).float(),
        x.long() + 1,
        x.abs().to(torch.uint8),
        x.double(),
    )


@program(lambda: (randn(4, 16).half(),))
def computes_in_float16(x):
    return (
        F.gelu(x) * 1.5 + x.mean(-1, keepdim=True),
        x.softmax(-1),
        F.layer_norm(x, (16,)),
        x.sum(0),
    )


@program(lambda: (randn(4, 16).bfloat16(),))
def computes_in_bfloat16(x):
    return F.gelu(x) * 1.5 + x.mean(-1, keepdim=True), x.softmax(-1), x.sum(0)


@program(lambda: (randn(3, 5).double(),))
def computes_in_float64(x):
    return F.gelu(x), x.softmax(-1), x.sum(), x.exp(), x.erf(), x.tanh(), F.layer_norm(x, (5,))


@program(lambda: (randn(10),))
def computes_with_booleans(x):
    return (
        (x > 0) & (x < 1) | (x == 0),
        (x > 0).sum(),
        (x > 0).any(),
        (x > 5).all(),
        torch.where(x > 0, x, -1.0),
    )


@program(
    lambda: (torch.tensor([1.0, math.nan, -math.inf, math.inf, 0.0, -0.0, 1e-40, 100.0, -100.0]),)
)
def meets_special_values(x):
    extremes = (
        x.max(),
        x.min(),
        x.sum(),
        x.amax(0),
        torch.maximum(x, x.flip(0)),
        x.clamp(-1, 1),
        torch.nan_to_num(x),
    )
    smooth = (
        F.gelu(x),
        x.exp(),
        x.sigmoid(),
        x.tanh(),
        x.log(),
        torch.erf(x),
        F.softplus(x),
        F.silu(x),
        F.elu(x),
    )
    return *extremes, *smooth, x.relu(), x.sign(), F.leaky_relu(x), F.hardtanh(x)


@program(lambda: (randn(5, 3), torch.randint(0, 5, (5,)), torch.tensor([-1, -2, 0])))
def indexes(x, i, negative):
    picked = (
        x[i],
        x[:, i % 3],
        x.gather(1, (i % 3)[:, None]),
        x.index_select(0, i),
        F.embedding(i, x),
        x[i, i % 3],
    )
    return (
        *picked,
        x[negative],
        x.flip(0),
        x.roll(1, 0),
        x.masked_fill(x > 0, 0.0),
        x.tril(),
        x.triu(1),
    )


@program(lambda: (randn(2, 3), randn(3)))
def expands(x, y):
    made = (
        x.expand(2, -1, -1) + 1,
        y.expand(3, -1) + 1,
        x[:, :1].expand(-1, 3) + 1,
        x[:1].expand(0, 3) * 2,
        x.expand(2, 3) * 2,
    )
    return *made, torch.vmap(lambda a: a * 2 + 1)(y)


@program(lambda: (randn(3, 4), randn(3, 2)))
def joins_and_splits(x, y):
    a, b = x.chunk(2, -1)
    c, d, e = x.split([1, 2, 1], -1)
    joined = (
        torch.cat([x, y], 1),
        torch.stack([x, x]),
        F.pad(x, (1, 2)),
        torch.cat([c, y, x], 1) * 2,
        x.repeat(2, 1),
    )
    return *joined, a * torch.sigmoid(b), d + 1, e, x.unbind(0)[1]


@program(lambda: (randn(4),))
def makes_tensors(x):
    made = (
        torch.arange(4) + x,
        torch.linspace(0, 1, 4) * x,
        torch.zeros(4) + x,
        torch.full((4,), 2.0) * x,
    )
    return (
        *made,
        torch.eye(4) @ x,
        torch.ones_like(x),
        x.new_zeros(2),
        torch.tensor([1.0, 2.0, 3.0, 4.0]) * x,
    )


@program(
    lambda: (
        randn(6, 8).t()[::2],
        randn(10, 4)[3:],
        randn(1, 4).expand(5, 4),
        randn(()),
        randn(0, 3),
    )
)
def meets_layouts(strided, offset, expanded, scalar, empty):
    first = (
        strided * 2 + 1,
        strided.sum(1),
        strided.softmax(0),
        strided.reshape(-1) + 1,
        offset * 2,
        offset[1:].sum(),
    )
    return (
        *first,
        expanded * 2,
        expanded.sum(0),
        scalar * 2 + 1,
        scalar.softmax(0),
        empty.sum(),
        empty + 1,
        empty.sum(0),
    )


@program(lambda: (randn(300, 77), randn(3, 5, 7)))
def reduces(x, y):
    rows = (
        x.sum(),
        x.mean(),
        x.var(),
        x.max(),
        x.sum(0),
        x.sum(1),
        x.argmax(1),
        x.std(),
        x.norm(),
        x.logsumexp(1),
    )
    return (
        *rows,
        y.softmax(1),
        y.log_softmax(0),
        y.mean((0, 2)),
        y.amax((1, 2)),
        y.var(1, keepdim=True),
        y.cumsum(1),
    )


@program(lambda: (randn(2, 3, 5, 8), randn(2, 3, 5, 8), randn(2, 3, 5, 8)))
def attends(q, k, v):
    mask = torch.ones(5, 5, dtype=torch.bool).triu(1)
    weights = (q @ k.transpose(-1, -2) / math.sqrt(8)).masked_fill(mask, -math.inf).softmax(-1)
    return weights @ v, F.scaled_dot_product_attention(q, k, v, is_causal=True)


@program(lambda: (randn(6, 5), torch.randint(0, 5, (6,))))
def loses(x, t):
    scalars = (
        F.cross_entropy(x, t),
        F.mse_loss(x, x * 2),
        F.nll_loss(x.log_softmax(-1), t),
        F.smooth_l1_loss(x, x * 3),
    )
    return *scalars, F.one_hot(t, 5), F.binary_cross_entropy_with_logits(x, x.sigmoid())


@program(lambda: (randn(8), randn(3, 5), randn(3, 4), randn(4, 5)))
def leaves_to_the_library(x, y, a, b):
    spectral = (
        torch.view_as_real(torch.fft.fft(x)),
        torch.complex(x, x).abs(),
        torch.polar(x.abs(), x),
    )
    ordered = y.sort(), y.topk(2), y.argsort(), y.median(), y.kthvalue(1)
    return (
        *spectral,
        *ordered,
        torch.einsum("ij,jk->ik", a, b),
        torch.bmm(a[None], b[None]),
        torch.outer(a[0], b[0]),
    )


LAYERS = nn.ModuleDict(
    {
        "conv": nn.Conv2d(3, 4, 3),
        "group": nn.GroupNorm(2, 4),
        "batch": nn.BatchNorm2d(4).eval(),
        "instance": nn.InstanceNorm2d(4),
        "rms": nn.RMSNorm(6),
    }
)


@program(lambda: (randn(2, 3, 8, 8), randn(2, 3, 8, 8).to(memory_format=torch.channels_last)))
def convolves_and_normalises(x, y):
    signed = LAYERS["conv"](x)
    z = F.relu(signed)
    pooled = (
        F.max_pool2d(z, 2),
        F.avg_pool2d(z, 2),
        F.interpolate(z, scale_factor=2),
        F.adaptive_avg_pool2d(z, 1),
    )
    # Not of z: the image of a channel may then be 0 but for one pixel, and a norm makes much of how that is rounded.
    normal = (
        *(LAYERS[name](signed) for name in ("group", "batch", "instance", "rms")),
        F.normalize(z),
    )
    return *pooled, *normal, F.relu(LAYERS["conv"](y)) * 2, y + 1
