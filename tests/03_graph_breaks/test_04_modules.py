"""Modules: scenarios compared with eager in everything that a caller could notice.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

# ruff: noqa: B008

import copy

import pytest
import torch
import torch.nn.functional as F
from scenarios import Holder, calls, check, collect, trained, tried
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import course_lib as cl
from course_lib.twin import Twin

SCENARIOS, scenario = collect()
r = torch.randn


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


@pytest.mark.parametrize("backend", ["eager", pytest.param("aot_eager", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SCENARIOS)
def test_scenario_agrees_with_eager(name, backend):
    check(SCENARIOS[name], backend)


def test_a_name_can_be_set_on_the_class_of_all_compiled_modules_and_on_that_of_one():
    """A tool that reads type comments, as Sphinx does, sets `__annotations__` on every class of a module."""
    for given in (Twin, type(cl.compile(torch.nn.Linear(2, 2)))):
        given.note_of_a_tool = 1
        assert given.note_of_a_tool == 1
        assert hasattr(torch.nn.Linear, "note_of_a_tool") is (given is not Twin)
        del given.note_of_a_tool
        assert not hasattr(given, "note_of_a_tool")
