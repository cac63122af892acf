"""Modules, tensors called alike, what a fake tensor does not know, gradients and kernels. The answer is eager's.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

import pytest
import torch
from scenarios import before_and_after, check, collect, tried
from torch import nn

SCENARIOS, scenario = collect()
ones = lambda: torch.ones(3)


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


@scenario
def tensors_called_alike(c):
    f = c(lambda x, x_, _x: x + x_ * _x)
    return [f(ones(), ones() * 2, ones() * 3)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_answer_is_eagers(name):
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
def test_the_answer_is_eagers_with_kernels(name):
    check((COMPILED | SCENARIOS)[name], "inductor")
