"""Modules, side effects, graph breaks, threads: scenarios compared with eager in everything that a caller could notice.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: B008, C416, F821, F841

import collections
import contextlib
import copy
import functools
import threading

import pytest
import torch
import torch.nn.functional as F
from scenarios import check, collect, tried
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

SCENARIOS, scenario = collect()
r = torch.randn
LOG = []
TOTAL = 0
NAMES = ["a", "b"]


def say(text):
    LOG.append(text)


def calls(f, times=3, shape=(3, 4)):
    return [f(r(*shape)) for _ in range(times)]


def trained(f, parameters, x):
    """The result and all gradients of one backward."""
    x = x.requires_grad_()
    y = f(x)
    y.sum().backward()
    return y, x.grad, [p.grad for p in parameters]


class Holder(nn.Module):
    def __init__(self, **values):
        super().__init__()
        for name, value in values.items():
            setattr(self, name, value)


# ---- modules -------------------------------------------------------------------------------------------------------------


@scenario
def linear_with_gradients(c):
    m = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2))
    return trained(c(m), m.parameters(), r(3, 4))


@scenario
def buffer_changed_in_place(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total.add_(x.sum(0))
            return x * self.total

    m = M()
    return calls(c(m)), m.total


@scenario
def buffer_bound_anew(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            self.total = self.total + x.sum(0)
            return x * self.total

    m = M()
    return calls(c(m)), m.total, list(m.state_dict())


@scenario
def buffer_set_to_none_and_back(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("kept", None)

        def forward(self, x):
            if self.kept is None:
                self.kept = x + 1
            return x * self.kept

    m = M()
    first = calls(c(m))
    m.kept = None
    return first, calls(c(m)), m.kept


@scenario
def batch_norm_in_training(c):
    m = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5))
    f = c(m)
    out = calls(f)
    m.eval()
    return out, calls(f), dict(m.named_buffers()), trained(f, m.parameters(), r(3, 4))


@scenario
def batch_norm_without_momentum(c):
    m = nn.BatchNorm1d(4, momentum=None)
    return calls(c(m)), m.state_dict()


@scenario
def instance_norm_that_tracks(c):
    m = nn.InstanceNorm1d(4, track_running_stats=True)
    return [c(m)(r(2, 4, 5)) for _ in range(2)], m.state_dict()


@scenario
def module_list_in_a_loop(c):
    m = Holder(layers=nn.ModuleList(nn.Linear(4, 4) for _ in range(3)))

    def f(x):
        for i, layer in enumerate(m.layers):
            x = layer(x) + i
        return x, len(m.layers), m.layers[-1](x), m.layers[:2][0](x)

    return calls(c(f))


@scenario
def module_list_grows(c):
    m = nn.ModuleList([nn.Linear(4, 4)])

    def f(x):
        for layer in m:
            x = layer(x)
        return x

    f = c(f)
    first = f(r(2, 4))
    m.append(nn.Linear(4, 4))
    return first, f(r(2, 4))


@scenario
def module_dict(c):
    m = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ReLU()})

    def f(x, key):
        for name, layer in m.items():
            x = layer(x) * len(name)
        return m[key](x), key in m, list(m.keys()), [type(v) for v in m.values()]

    f = c(f)
    return f(r(2, 4), "a"), f(r(2, 4), "b"), tried(f, r(2, 4), "z")


@scenario
def parameter_list(c):
    m = nn.ParameterList([nn.Parameter(r(4)) for _ in range(3)])

    def f(x):
        for p in m:
            x = x * p
        return x + m[1]

    return trained(c(f), m, r(2, 4))


@scenario
def parameter_dict(c):
    m = nn.ParameterDict({"a": nn.Parameter(r(4)), "b": nn.Parameter(r(4))})

    def f(x):
        for _name, p in m.items():
            x = x * p
        return x + m["a"] + m.b

    return trained(c(f), m.values(), r(2, 4))


@scenario
def shared_module(c):
    layer = nn.Linear(4, 4)
    m = nn.Sequential(layer, nn.Tanh(), layer)
    return trained(c(m), m.parameters(), r(2, 4))


@scenario
def tied_weights(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, i):
            return self.head(self.embed(i)), self.head.weight is self.embed.weight

    m = M()
    i = torch.randint(0, 7, (5,))
    f = c(m)
    y, tied = f(i)
    y.sum().backward()
    grad = m.embed.weight.grad.clone()
    m.head.weight = nn.Parameter(r(7, 4))
    return y, tied, grad, f(i)


@scenario
def untied_then_tied(c):
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)
    m = nn.Sequential(a, b)

    def f(x):
        return m(x), m[0].weight is m[1].weight

    f = c(f)
    first = f(r(2, 4))
    b.weight = a.weight
    return first, f(r(2, 4))


@scenario
def attribute_changes_later(c):
    m = Holder(scale=2.0, layer=nn.Linear(4, 4))

    class M(Holder):
        def forward(self, x):
            return self.layer(x) * self.scale

    m.__class__ = M
    f = c(m)
    out = [f(r(2, 4))]
    m.scale = 3.0
    out.append(f(r(2, 4)))
    m.scale = r(4)
    out.append(f(r(2, 4)))
    m.layer = nn.Linear(4, 3)
    m.scale = 1
    out.append(f(r(2, 4)))
    m.layer = nn.ReLU()
    out.append(f(r(2, 4)))
    return out


@scenario
def counter_on_self(c):
    class M(nn.Module):
        n = 0

        def forward(self, x):
            self.n += 1
            return x * self.n

    m = M()
    return calls(c(m), 5), m.n, M.n


@scenario
def list_and_dict_on_self(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.seen, self.by_size = [], {}

        def forward(self, x):
            self.seen.append(x.shape[0])
            self.by_size[x.shape[0]] = self.by_size.get(x.shape[0], 0) + 1
            return x * len(self.seen)

    m = M()
    f = c(m)
    return [f(r(n, 4)) for n in (2, 3, 2)], m.seen, m.by_size


@scenario
def activations_kept_on_self(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = []

        def forward(self, x):
            y = x + 1
            self.kept.append(y)
            self.last = y
            return y * 2

    m = M()
    return calls(c(m)), m.kept, m.last, m.last is m.kept[-1]


@scenario
def forward_hooks(c):
    m = nn.Linear(4, 4)
    log = []
    m.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    handle = m.register_forward_hook(lambda m, args, out: log.append(out.shape) or out + 1)
    f = c(m)
    out = calls(f)
    handle.remove()
    return out, calls(f), log


@scenario
def hook_with_kwargs(c):
    class M(nn.Module):
        def forward(self, x, *, k=1):
            return x * k

    m = M()
    m.register_forward_pre_hook(lambda m, a, k: (a, {"k": k.get("k", 1) + 1}), with_kwargs=True)
    f = c(m)
    return f(r(3), k=2), f(r(3))


@scenario
def hook_added_to_an_inner_module_later(c):
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    f = c(m)
    out = [f(r(2, 4))]
    m[0].register_forward_hook(lambda m, a, out: out * 100)
    out.append(f(r(2, 4)))
    return out


@scenario
def backward_hooks(c):
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    log = []
    m[0].register_full_backward_hook(lambda m, gi, go: log.append((gi[0].shape, go[0].shape)))
    return trained(c(m), m.parameters(), r(2, 4)), log


@scenario
def tensor_hook_inside(c):
    log = []

    def f(x):
        y = x * 2
        y.register_hook(lambda g: log.append(g.clone()))
        return y * 3

    return trained(c(f), [], r(3)), log


@scenario
def parameter_hook_outside(c):
    m = nn.Linear(4, 4)
    m.weight.register_hook(lambda g: g * 2)
    return trained(c(m), m.parameters(), r(2, 4))


@scenario
def train_and_eval(c):
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    f = c(m)
    out = calls(f)
    m.eval()
    out += calls(f)
    m.train()
    return out + calls(f)


@scenario
def dropout_rate_changes(c):
    m = nn.Dropout(0.5)
    f = c(m)
    out = calls(f)
    m.p = 0.9
    return out + calls(f)


@scenario
def requires_grad_toggled(c):
    m = nn.Linear(4, 4)
    f = c(m)
    first = f(r(2, 4))
    m.requires_grad_(False)
    second = f(r(2, 4))
    m.weight.requires_grad_(True)
    return first, second, f(r(2, 4))


@scenario
def lazy_linear(c):
    m = nn.Sequential(nn.LazyLinear(5), nn.ReLU())
    return calls(c(m)), [p.shape for p in m.parameters()]


@scenario
def lazily_built_by_hand(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = None

        def forward(self, x):
            if self.layer is None:
                self.layer = nn.Linear(x.shape[-1], 2)
            return self.layer(x)

    m = M()
    return calls(c(m)), list(m.state_dict())


@scenario
def made_inside(c):
    def f(x):
        layer = nn.ReLU()
        return layer(x) + nn.Identity()(x)

    return calls(c(f))


@scenario
def linear_made_inside(c):
    def f(x):
        torch.manual_seed(3)
        layer = nn.Linear(4, 2)
        return layer(x)

    return calls(c(f))


@scenario
def own_call(c):
    class M(nn.Module):
        def __call__(self, x):
            return super().__call__(x * 2) + 1

        def forward(self, x):
            return x * 3

    return calls(c(M())), calls(c(lambda x, m=M(): m(x)))


@scenario
def own_getattr(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)
            self.extra = {"scale": 3}

        def __getattr__(self, name):
            if name == "scale":
                return self.extra["scale"]
            return super().__getattr__(name)

        def forward(self, x):
            return self.inner(x) * self.scale

    m = M()
    f = c(m)
    out = [f(r(2, 4))]
    m.extra["scale"] = 4
    return out, f(r(2, 4)), tried(lambda: m.nothing)


@scenario
def wrapper_that_forwards_attributes(c):
    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.module, name)

        def forward(self, x):
            return self.module(x) @ self.weight

    return calls(c(Wrapper(nn.Linear(4, 4))))


@scenario
def properties_on_a_module(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self._k = 2

        @property
        def k(self):
            return self._k * 2

        @k.setter
        def k(self, value):
            self._k = value

        def forward(self, x):
            y = x * self.k
            self.k = self.k + 1
            return y

    m = M()
    return calls(c(m)), m._k


@scenario
def own_setattr(c):
    class M(nn.Module):
        def __setattr__(self, name, value):
            if name == "k":
                value = value * 2
            super().__setattr__(name, value)

        def forward(self, x):
            self.k = x.shape[0]
            return x * self.k

    m = M()
    return calls(c(m)), m.k


@scenario
def functional_call(c):
    m = nn.Linear(4, 2)
    w = {"weight": r(2, 4), "bias": r(2)}

    def f(x, w):
        return torch.func.functional_call(m, w, (x,))

    f = c(f)
    return f(r(3, 4), w), m(r(3, 4)), f(r(3, 4), w)


@scenario
def checkpointed(c):
    m = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def f(x):
        return checkpoint(m, x * 2, use_reentrant=False) + 1

    return trained(c(f), m.parameters(), r(2, 4))


@scenario
def checkpointed_with_dropout(c):
    m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))
    return trained(c(lambda x: checkpoint(m, x, use_reentrant=False)), m.parameters(), r(2, 4))


@scenario
def multi_head_attention(c):
    m = nn.MultiheadAttention(8, 2, batch_first=True)
    f = c(lambda x: m(x, x, x)[0])
    return trained(f, m.parameters(), r(2, 5, 8)), c(lambda x: m(x, x, x, need_weights=True))(
        r(2, 5, 8)
    )


@scenario
def lstm(c):
    m = nn.LSTM(4, 5, num_layers=2, batch_first=True)
    f = c(lambda x: m(x)[0])
    return trained(f, m.parameters(), r(2, 6, 4)), c(m)(r(2, 6, 4))


@scenario
def gru_and_cells(c):
    m, cell = nn.GRU(4, 5), nn.LSTMCell(4, 5)

    def f(x):
        y, h = m(x)
        state = None
        for step in x:
            state = cell(step, state)
        return y, h, state

    return calls(c(f), 2, (3, 2, 4))


@scenario
def transformer_encoder_layer(c):
    m = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    f = c(m)
    train = f(r(2, 3, 8))
    m.eval()
    with torch.no_grad():
        return train, f(r(2, 3, 8))


@scenario
def transformer_encoder_and_decoder(c):
    m = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(3)
    return c(lambda a, b: m(a, b, tgt_mask=mask))(r(2, 4, 8), r(2, 3, 8))


@scenario
def weight_norm(c):
    m = parametrizations.weight_norm(nn.Linear(4, 3))
    return trained(c(m), m.parameters(), r(2, 4))


@scenario
def spectral_norm(c):
    m = parametrizations.spectral_norm(nn.Linear(4, 3))
    f = c(m)
    return calls(f), m.state_dict()


@scenario
def own_parametrization(c):
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).t()

    m = nn.Linear(4, 4)
    f = c(m)
    first = f(r(2, 4))
    nn.utils.parametrize.register_parametrization(m, "weight", Symmetric())
    return first, f(r(2, 4)), trained(f, m.parameters(), r(2, 4))


@scenario
def deepcopy_of_compiled(c):
    m = c(nn.Linear(4, 4))
    first = m(r(2, 4))
    twin = copy.deepcopy(m)
    with torch.no_grad():
        twin.weight.mul_(2)
    x = r(2, 4)
    return first, m(x), twin(x), list(m.state_dict())


@scenario
def state_dict_loaded(c):
    m = c(nn.Linear(4, 4))
    first = m(r(2, 4))
    m.load_state_dict({"weight": r(4, 4), "bias": r(4)})
    second = m(r(2, 4))
    m.load_state_dict({"weight": r(4, 4), "bias": r(4)}, assign=True)
    return first, second, m(r(2, 4))


@scenario
def moved_to_another_dtype(c):
    m = nn.Linear(4, 4)
    f = c(m)
    first = f(r(2, 4))
    m.double()
    second = f(r(2, 4).double())
    m.half()
    return first, second, f(r(2, 4).half())


@scenario
def optimizer_step_between(c):
    m = nn.Linear(4, 4)
    f = c(m)
    optimizer = torch.optim.Adam(m.parameters(), 0.1)
    losses = []
    for _ in range(4):
        loss = f(r(2, 4)).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses, m


@scenario
def whole_training_step(c):
    m = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)

    def step(x):
        optimizer.zero_grad()
        loss = m(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return calls(c(step), 4), m


@scenario
def parameter_updated_inside(c):
    p = nn.Parameter(r(4))

    def f(x):
        with torch.no_grad():
            p.mul_(2)
            p.data.add_(1)
        return x * p

    return calls(c(f)), p


@scenario
def parameters_iterated(c):
    m = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))

    def f(x):
        norm = sum(p.pow(2).sum() for p in m.parameters())
        names = [n for n, _ in m.named_parameters()]
        return m(x) / norm, names, len(list(m.children())), [n for n, _ in m.named_modules()]

    return calls(c(f))


@scenario
def gradient_read_inside(c):
    p = nn.Parameter(r(4))

    def f(x):
        y = (x * p).sum()
        g = p.grad
        return y if g is None else y + g.sum()

    f = c(f)
    out = [f(r(4))]
    out[0].backward()
    return out, f(r(4))


@scenario
def autograd_grad_inside(c):
    def f(x):
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((x**3).sum(), x)
        return g

    return calls(c(f))


@scenario
def autograd_function(c):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x

    return trained(c(lambda x: Double.apply(x * 3) + 1), [], r(3))


@scenario
def vmap_and_grad(c):
    f = lambda x: (x.sin() * x).sum()
    return c(lambda x: torch.func.grad(f)(x))(r(4)), c(lambda x: torch.vmap(f)(x))(r(3, 4))


@scenario
def compiled_below_vmap(c):
    g = c(lambda x: x.sin() * 2)
    return torch.vmap(g)(r(3, 4)), torch.func.grad(lambda x: g(x).sum())(r(4)), g(r(4))


@scenario
def module_with_tuple_state(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = {"sizes": (4, 3), "act": F.relu, "extra": [None, "x"]}
            self.layers = [nn.Linear(4, 3)]

        def forward(self, x):
            y = self.config["act"](self.layers[0](x))
            return y.view(-1, self.config["sizes"][1]) if self.config["extra"][0] is None else y

    m = M()
    f = c(m)
    out = [f(r(2, 4))]
    m.config["act"] = torch.tanh
    out.append(f(r(2, 4)))
    m.layers[0] = nn.Linear(4, 6)
    return out, f(r(3, 4))


@scenario
def method_compiled(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.n = 0

        def embed(self, x):
            self.n += 1
            return self.layer(x)

        def forward(self, x):
            return self.embed(x)

    m, other = M(), M()
    f = c(m.embed)
    return calls(f), m.n, calls(c(other.forward)), other.n


@scenario
def forward_assigned_compiled(c):
    m = nn.Linear(4, 4)
    m.forward = c(m.forward)
    return calls(m), trained(m, m.parameters(), r(2, 4))


@scenario
def decorated_forward(c):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(r(4))

        @c
        def forward(self, x):
            return x * self.p

    a, b = M(), M()
    return calls(a), calls(b), trained(a, a.parameters(), r(2, 4))


@scenario
def many_instances_of_one_class(c):
    class Block(nn.Module):
        def __init__(self, k):
            super().__init__()
            self.layer, self.k = nn.Linear(4, 4), k

        def forward(self, x):
            return self.layer(x) * self.k

    m = nn.Sequential(*[Block(i) for i in range(12)])
    return calls(c(m))


@scenario
def no_init_super_class_attribute(c):
    class Base(nn.Module):
        scale = 2

        def forward(self, x):
            return self.body(x) * self.scale

    class M(Base):
        def body(self, x):
            return x + 1

    m = M()
    f = c(m)
    out = [f(r(3))]
    M.scale = 3
    out.append(f(r(3)))
    m.scale = 4
    out.append(f(r(3)))
    M.body = lambda self, x: x - 1
    out.append(f(r(3)))
    return out


@scenario
def embedding_bag_and_conv(c):
    m = nn.ModuleDict(
        {"e": nn.EmbeddingBag(9, 4), "c": nn.Conv1d(4, 3, 2), "t": nn.ConvTranspose1d(3, 2, 2)}
    )

    def f(i):
        return m["t"](m["c"](m["e"](i).t()[None]))

    f = c(f)
    return f(torch.randint(0, 9, (5, 3))), f(torch.randint(0, 9, (5, 3)))


@scenario
def losses(c):
    a, b = (
        nn.CrossEntropyLoss(weight=torch.rand(4), label_smoothing=0.1),
        nn.KLDivLoss(reduction="batchmean"),
    )
    f = c(lambda x, t: (a(x, t), b(x.log_softmax(-1), x.softmax(0))))
    return f(r(5, 4), torch.randint(0, 4, (5,)))


@scenario
def zero_grad_and_apply(c):
    m = nn.Linear(4, 4)

    def f(x):
        m.train(False)
        y = m(x)
        m.train(True)
        return y, m.training

    return calls(c(f)), m.training


@scenario
def register_buffer_inside(c):
    class M(nn.Module):
        def forward(self, x):
            if not hasattr(self, "scale"):
                self.register_buffer("scale", x.mean(0))
            return x * self.scale

    m = M()
    return calls(c(m)), m.state_dict()


@scenario
def module_in_a_dataclass_like_object(c):
    class Box:
        def __init__(self, layer):
            self.layer, self.n = layer, 0

        def __call__(self, x):
            self.n += 1
            return self.layer(x) + self.n

    box = Box(nn.Linear(4, 4))
    return calls(c(box.__call__)), calls(c(lambda x: box(x))), box.n


@scenario
def buffer_swapped_between_modules(c):
    a, b = nn.BatchNorm1d(4), nn.BatchNorm1d(4)

    def f(x):
        a.running_mean, b.running_mean = b.running_mean, a.running_mean
        return a(x) + b(x)

    ids = {id(a.running_mean): "a", id(b.running_mean): "b"}
    out = calls(c(f))
    return out, ids[id(a.running_mean)], ids[id(b.running_mean)], a, b


# ---- side effects --------------------------------------------------------------------------------------------------------


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


# ---- graph breaks --------------------------------------------------------------------------------------------------------


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
        return torch.from_numpy(a) + x, a.shape, float(a.sum())

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


# ---- threads, re-entrancy --------------------------------------------------------------------------------------------------


@scenario
def threads(c):
    f = c(lambda x: (x * 2).relu() + x.shape[0])
    inputs = [r(i % 3 + 2, 4) for i in range(24)]
    out = [None] * 24

    def work(start):
        for i in range(start, 24, 4):
            out[i] = f(inputs[i])

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return out


@scenario
def compiled_calls_compiled(c):
    g = c(lambda x: x * 2 + 1)
    f = c(lambda x: g(x) * g(x + 1))
    return calls(f), calls(g)


@scenario
def compiled_module_in_a_compiled_function(c):
    m = c(nn.Linear(4, 4))
    return trained(c(lambda x: m(x) * 2), m.parameters(), r(2, 4))


@scenario
def compiled_calls_itself(c):
    def f(x, n):
        return x if n == 0 else g(x * 2, n - 1) + 1

    g = c(f)
    return g(r(2), 4)


@scenario
def compiles_inside(c):
    def f(x):
        return c(lambda y: y * 2)(x) + 1

    return calls(c(f), 2)


@scenario
def callback_from_a_disabled_function(c):
    @c.disable
    def through(g, x):
        return g(x)

    return calls(c(lambda x: through(lambda y: y * 2 + 1, x + 1) * 3))


@scenario
def keyboard_interrupt(c):
    log = []

    def f(x):
        x = x + 1
        c.graph_break()
        try:
            raise KeyboardInterrupt("stop")
        finally:
            log.append("finally")

    def play():
        try:
            c(f)(r(2))
        except KeyboardInterrupt as error:
            return str(error)

    return play(), play(), log


@scenario
def exceptions_keep_type_and_message(c):
    class Own(Exception):
        def __init__(self, a, b):
            super().__init__(f"{a}-{b}")
            self.a = a

    def f(x, how):
        if how == 0:
            raise Own(1, b=2)
        if how == 1:
            return {}["missing"]
        if how == 2:
            return [][3]
        if how == 3:
            return x.nothing
        if how == 4:
            return x + "a"
        if how == 5:
            return x.view(100)
        if how == 6:
            return len(5)
        if how == 7:
            return 1 // 0
        if how == 8:
            return next(iter([]))
        if how == 9:
            return int("z")
        if how == 10:
            return torch.cat([x, r(2, 9)])
        if how == 11:
            return undefined_name
        if how == 12:
            a, b = [1]
        if how == 13:
            return x(1)
        if how == 14:
            return x[7, 7, 7]
        return f(x)

    f = c(f)
    got = [tried(f, r(2, 3), how) for how in range(16) if how not in (4,)]
    try:
        f(r(2, 3), 0)
    except Own as error:
        got.append((error.a, error.args))
    return got


@scenario
def partial_and_callable_objects(c):
    class Add:
        def __init__(self, k):
            self.k = k

        def __call__(self, x):
            return x + self.k

    g = functools.partial(torch.add, alpha=2)
    h = functools.partial(lambda x, k, *, j=1: x * k + j, k=3)
    return calls(c(lambda x: g(x, x) + h(x, j=2) + Add(3)(x))), calls(c(h)), calls(c(Add(2)))


@scenario
def tensor_subclass(c):
    class Sub(torch.Tensor):
        pass

    x = r(3).as_subclass(Sub)
    y = c(lambda x: x * 2 + 1)(x)
    return type(y), y.as_subclass(torch.Tensor), c(lambda x: x * 2)(r(3))


@scenario
def default_device_and_modes(c):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    seen = []
    f = c(lambda x: x * 2 + 1)
    x = r(3)
    f(x)
    with Mode():
        y = f(x)
    return y, seen


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_agrees_with_eager(name, backend):
    check(SCENARIOS[name], backend)
