"""Parts of torch that reach far: transforms, hooks, parametrizations, optimizers, packed sequences, sparse, complex, subclasses."""

# Unusual uses are the point.
# ruff: noqa

import copy
import warnings

import torch
import torch.nn.functional as F
from topics.kit import grad, number, one, program, two
from torch import nn
from torch.func import functional_call, grad as grad_of, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn.utils import parametrizations, parametrize, rnn

# torch loads its rules for `jvp` at the first one, and warns meanwhile.
with warnings.catch_warnings(action="ignore"):
    jvp(torch.exp, (torch.ones(1),), (torch.ones(1),))


def seeded(make):
    """The same module in each run: its parameters are drawn with the seed of the call."""
    return lambda i: (make(), torch.randn(3, 4))


@program()
def vmap_of_a_row(x):
    return vmap(lambda row: row / row.norm())(x)


@program(two)
def vmap_of_two_with_dims(x, y):
    return vmap(torch.dot, in_dims=(1, 1))(x, y), vmap(lambda a, b: a * b, (0, None), 1)(x, y[0])


@program()
def vmap_in_vmap(x):
    return vmap(vmap(lambda v: v.sin() * 2))(x)


@program()
def grad_of_a_function(x):
    return grad_of(lambda v: (v**3).sum())(x)


@program()
def grad_with_a_value_and_aux(x):
    def f(v):
        return (v.sin()).sum(), v * 2

    g, (value, aux) = torch.func.grad_and_value(f, has_aux=True)(x)
    return g, value, aux


@program()
def per_sample_gradients(x):
    w = torch.ones(4)
    return vmap(grad_of(lambda w, row: (w * row).sum().tanh()), (None, 0))(w, x)


@program(two)
def a_jvp(x, t):
    return jvp(lambda v: v.exp() * 2, (x,), (t,))


@program(two)
def a_vjp(x, t):
    value, back = vjp(lambda v: v * v.sigmoid(), x)
    return value, back(t)[0]


@program(lambda i: (torch.randn(3),))
def jacobians(x):
    def f(v):
        return v.outer(v).sum(0)

    return jacrev(f)(x), jacfwd(f)(x), hessian(lambda v: (v**3).sum())(x)


@program(seeded(lambda: nn.Linear(4, 2)))
def a_functional_call(m, x):
    parameters = {name: p * 2 for name, p in m.named_parameters()}
    return functional_call(m, parameters, (x,))


@program(seeded(lambda: nn.Linear(4, 2)))
def grad_of_a_functional_call(m, x):
    parameters = dict(m.named_parameters())
    return grad_of(lambda p: functional_call(m, p, (x,)).square().mean())(parameters)


@torch.no_grad()
def without(x):
    return x * 2


@program(grad)
def no_grad_as_a_decorator(x):
    return without(x) + x, torch.is_grad_enabled()


@program(grad)
def no_grad_as_a_decorator_made_inside(x):
    @torch.no_grad()
    def inner(y):
        return y.exp()

    return inner(x).requires_grad, inner(x) + x * 2


@program(grad)
def set_grad_enabled_as_a_function(x):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(before)
    return y, x + y


@program(grad)
def enable_grad_within_no_grad(x):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    return a.requires_grad, b.requires_grad, a + b


@program()
def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y + 1, y.is_inference()


@program(lambda i: (torch.randn(3, 4),))
def autocast_to_bfloat16(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x.T
        z = y.softmax(-1)
    return y.dtype, z.dtype, y.float()


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.seen = []
        self.layer.register_forward_pre_hook(self.before)
        self.layer.register_forward_hook(self.after)

    def before(self, module, args):
        return (args[0] * 2,)

    def after(self, module, args, out):
        self.seen.append(out.shape[0])
        return out.relu()

    def forward(self, x):
        return self.layer(x) + len(self.seen)


@program(seeded(Hooked))
def forward_hooks(m, x):
    return m(x), m.seen


def with_keywords():
    m = nn.Identity()
    m.register_forward_hook(lambda m, a, k, out: out * 3, with_kwargs=True)
    m.register_forward_hook(lambda m, a, out: None, always_call=True)
    return m


@program(seeded(with_keywords))
def forward_hooks_with_keywords(m, x):
    return m(x)


@program(seeded(lambda: nn.Linear(4, 4)))
def a_hook_registered_inside(m, x):
    handle = m.register_forward_hook(lambda m, a, out: out * 2)
    y = m(x)
    handle.remove()
    return y + m(x)


# torch.compile keeps the hook in its graph.
@program(grad, graphs=2)
def a_hook_of_a_tensor(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    return y.sin()


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0), persistent=False)

    def forward(self, x):
        self.count += 1
        self.mean = self.mean * 0.9 + x.mean(0).detach() * 0.1
        return x - self.mean + self.count


@program(seeded(Running))
def buffers_changed_in_forward(m, x):
    return m(m(x))


@program(seeded(lambda: nn.BatchNorm1d(4)))
def a_batch_norm_in_training(m, x):
    y = m(x)
    m.eval()
    return y + m(x), m.num_batches_tracked


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


def parametrized():
    m = nn.Linear(4, 4)
    parametrize.register_parametrization(m, "weight", Symmetric())
    return m


@program(seeded(parametrized))
def a_parametrization(m, x):
    return m(x), m.weight


@program(seeded(parametrized))
def a_cached_parametrization(m, x):
    with parametrize.cached():
        return m(x) + m(x), m.weight is m.weight


@program(seeded(lambda: parametrizations.weight_norm(nn.Linear(4, 3))))
def weight_norm(m, x):
    return m(x).tanh()


@program(seeded(lambda: parametrizations.spectral_norm(nn.Linear(4, 4))))
def spectral_norm(m, x):
    return m(x)


@program(seeded(lambda: parametrizations.orthogonal(nn.Linear(4, 4))))
def orthogonal(m, x):
    return m(x)


@program(seeded(lambda: nn.utils.weight_norm(nn.Linear(4, 3))))
def the_old_weight_norm(m, x):
    return m(x)


def training(make):
    def arguments(i):
        m = nn.Linear(4, 2)
        return m, make(m.parameters()), torch.randn(3, 4)

    return arguments


def step(m, optimizer, x):
    loss = m(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach(), [p.detach().clone() for p in m.parameters()]


for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop, torch.optim.Adagrad):

    def trained(m, optimizer, x):
        return step(m, optimizer, x)

    trained.__name__ = f"a_step_of_{kind.__name__.lower()}"
    program(training(lambda p, kind=kind: kind(p, lr=0.1)))(trained)


# torch.compile leaves a function to Python that breaks in a loop.
@program(
    graphs=6,
    make=training(
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1)
    ),
)
def two_steps_with_momentum_and_clipping(m, optimizer, x):
    for _ in range(2):
        loss = m(x).square().sum()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        optimizer.step()
    return norm, [p.detach().clone() for p in m.parameters()]


@program(training(lambda p: torch.optim.SGD(p, lr=0.1)))
def a_learning_rate_that_is_changed(m, optimizer, x):
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.1)
    step(m, optimizer, x)
    schedule.step()
    return optimizer.param_groups[0]["lr"]


def packed(i):
    lengths = torch.tensor([3, 2, 1])
    x = torch.randn(3, 3, 4)
    return nn.LSTM(4, 5, batch_first=True), rnn.pack_padded_sequence(x, lengths, batch_first=True)


@program(packed)
def an_lstm_over_a_packed_sequence(m, sequence):
    out, (h, c) = m(sequence)
    padded, lengths = rnn.pad_packed_sequence(out, batch_first=True)
    return padded * 2, h, c, lengths


# torch.compile leaves the code of recurrent layers to Python.
@program(
    lambda i: (nn.GRU(4, 5, batch_first=True), torch.randn(3, 3, 4), torch.tensor([3, 2, 1])),
    graphs=3,
)
def packed_inside(m, x, lengths):
    sequence = rnn.pack_padded_sequence(x * 2, lengths, batch_first=True)
    out, h = m(sequence)
    return rnn.pad_packed_sequence(out, batch_first=True)[0], h


@program(lambda i: (nn.LSTM(4, 5, 2, bidirectional=True), torch.randn(3, 2, 4)))
def an_lstm(m, x):
    out, (h, c) = m(x)
    return out.sum(0), h, c


@program(lambda i: (nn.LSTMCell(4, 5), torch.randn(3, 2, 4)))
def a_cell_in_a_loop(m, x):
    state = None
    for part in x:
        state = m(part, state)
    return state


@program()
def padded_sequences(x):
    return rnn.pad_sequence([x[0], x[1, :2], x[2, :1]], padding_value=-1)


@program(lambda i: (torch.eye(4).to_sparse(), torch.randn(4, 3)))
def a_sparse_argument(s, x):
    return torch.sparse.mm(s, x) * 2 + 1


@program()
def a_sparse_tensor_made_inside(x):
    s = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([2.0, 3.0]), (3, 3))
    return (s @ x).relu(), s.to_dense()


@program(lambda i: (torch.eye(4).to_sparse_csr(), torch.randn(4, 3)))
def a_csr_argument(s, x):
    return s @ x, s.crow_indices()


@program()
def complex_numbers(x):
    z = torch.complex(x, x * 2)
    return (z * z.conj()).real, z.abs(), torch.view_as_real(z), z.angle(), (z * 1j).imag


@program()
def a_fourier_transform(x):
    z = torch.fft.rfft(x)
    return torch.fft.irfft(z * 2, n=x.shape[-1]), z


@program(lambda i: (torch.randn(3, dtype=torch.complex64), 2 - 1j))
def a_complex_number_of_python(z, c):
    return z * c + c.real, z**2, (c * c).imag


class Meta(torch.Tensor):
    """Carries `meta`, like a medical image that knows where it was taken."""

    @staticmethod
    def __new__(cls, data, meta=None):
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data, meta=None):
        self.meta = {} if meta is None else dict(meta)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, cls):
            found = [a for a in args if isinstance(a, cls)]
            out.meta = dict(found[0].__dict__.get("meta", {})) if found else {}
        return out


def meta(i):
    return (Meta(torch.randn(3, 4), {"place": i}),)


@program(meta)
def a_subclass_that_carries_attributes(x):
    y = x * 2 + 1
    return y.as_subclass(torch.Tensor), y.meta["place"], type(y).__name__


@program(meta)
def a_subclass_is_given_back(x):
    return x.relu()


@program()
def a_subclass_made_inside(x):
    y = Meta(x, {"a": 3})
    z = y + 1
    return z.as_subclass(torch.Tensor) * z.meta["a"]


@program(meta)
def an_attribute_of_a_subclass_is_changed(x):
    x.meta["more"] = 5
    y = x + x.meta["more"]
    return y.as_subclass(torch.Tensor), sorted(y.meta)


class Counted(torch.Tensor):
    calls = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Counted.calls += 1
        return super().__torch_function__(func, types, args, kwargs or {})


@program(lambda i: (torch.randn(3).as_subclass(Counted),))
def a_subclass_that_counts_its_calls(x):
    before = Counted.calls
    y = x + 1
    y = y * 2
    return y.as_subclass(torch.Tensor), Counted.calls - before


class Wrapper:
    """No tensor, though torch's functions take it."""

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        plain = [a.inner if isinstance(a, cls) else a for a in args]
        return cls(func(*plain, **(kwargs or {})))


@program()
def a_wrapper_that_torch_takes(x):
    return torch.add(Wrapper(x), 2).inner, torch.sin(Wrapper(x)).inner


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 2 * x * ctx.scale, None


@program(grad)
def an_own_function(x):
    return Square.apply(x, 3.0) + x


class Modules(nn.Module):
    def __init__(self):
        super().__init__()
        self.many = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(4)) for _ in range(2)])
        self.shared = self.many[0]

    def forward(self, x):
        for layer in self.many[1:]:
            x = self.named["a"](layer(x))
        for key, layer in self.named.items():
            x = layer(x) + len(key)
        return x * self.weights[0] + self.shared(x) + sum(self.weights), "b" in self.named


@program(seeded(Modules))
def containers_of_modules(m, x):
    return m(x), len(list(m.parameters())), [name for name, _ in m.named_children()]


@program(seeded(Modules))
def a_module_walked_through(m, x):
    total = sum(p.numel() for p in m.parameters() if p.requires_grad)
    for name, sub in m.named_modules():
        if isinstance(sub, nn.Linear) and name.endswith("1"):
            x = sub(x)
    return x * total, m.state_dict().keys()


@program(seeded(lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0), nn.LayerNorm(4))))
def a_sequential_cut(m, x):
    return m[:2](x) + m[-1](x), len(m)


@program(seeded(lambda: nn.Linear(4, 4)))
def a_copied_module(m, x):
    other = copy.deepcopy(m)
    with torch.no_grad():
        other.weight.mul_(0)
    return m(x) - other(x)


@program(lambda i: (nn.MultiheadAttention(4, 2, batch_first=True), torch.randn(2, 3, 4)))
def attention(m, x):
    mask = torch.triu(torch.ones(3, 3, dtype=torch.bool), 1)
    return m(x, x, x, attn_mask=mask, need_weights=True)


@program(
    lambda i: (
        nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True),
        torch.randn(2, 3, 4),
    )
)
def an_encoder_layer(m, x):
    return m(x)


@program(lambda i: (torch.randint(0, 5, (7,)), nn.EmbeddingBag(5, 3)))
def an_embedding_bag(n, m):
    return m(n, torch.tensor([0, 3]))


@program(lambda i: (torch.randn(3, 4), torch.tensor([0, 3, 1])))
def losses(x, target):
    return F.cross_entropy(x, target, label_smoothing=0.1), F.nll_loss(
        x.log_softmax(1), target, reduction="sum"
    )


@program()
def distributions(x):
    normal = torch.distributions.Normal(x, x.exp())
    categorical = torch.distributions.Categorical(logits=x)
    return normal.log_prob(x * 2), normal.entropy(), categorical.probs, normal.rsample()


@program()
def random_numbers(x):
    torch.manual_seed(3)
    y = torch.rand_like(x) + F.dropout(x, 0.5)
    g = torch.Generator().manual_seed(5)
    return y, torch.randn(2, generator=g), torch.randperm(4)


@program()
def a_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3)
    torch.set_default_dtype(torch.float32)
    return x.sum() + y, y.dtype


@program(grad)
def gradients_by_autograd_grad(x):
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return g, g.sum()


@program(grad)
def a_checkpoint(x):
    from torch.utils.checkpoint import checkpoint

    return checkpoint(lambda v: (v.sin() * 2).exp(), x, use_reentrant=False) + 1


@program(lambda i: (torch.randn(3, 4, requires_grad=True),))
def a_detached_part(x):
    y = x.detach() * 2
    z = (x * y).sum()
    return z, y.requires_grad, x.is_leaf, z.grad_fn is None


@program(lambda i: (nn.Linear(4, 2), torch.randn(3, 4)))
def vmap_over_copies_of_a_module(m, x):
    stacked = {k: torch.stack([v.detach(), v.detach() * 2]) for k, v in m.named_parameters()}
    return vmap(lambda p, x: functional_call(m, p, (x,)), in_dims=(0, None))(stacked, x)
