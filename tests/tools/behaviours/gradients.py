"""Lesson 06: gradients and memory that is shared."""

import torch
import torch.nn.functional as F
from kit import attempt, program
from torch import nn

AOT = "torch/_functorch/aot_autograd.py"
RUNTIME = "torch/_functorch/_aot_autograd/runtime_wrappers.py"
PARTITION = "torch/_functorch/partitioners.py"
FUNCTIONS = "torch/_dynamo/variables/misc.py"
ones = torch.ones


def gradient(engine, f, x, **options):
    """The gradient of the sum of `f(x)`, compiled with the default backend."""

    def run():
        engine.compile(f, **options)(x).sum().backward()
        return x.grad

    return attempt(run)


@program("06", "the gradient of `x.abs()` at 0.0", "torch/_decomp/decompositions.py")
def the_gradient_of_abs(engine):
    return gradient(engine, lambda x: x.abs(), torch.tensor([0.0, -0.0, 1.0], requires_grad=True))


@program("06", "the gradient of `max` where two are equal", "torch/_inductor/decomposition.py")
def the_gradient_of_max_with_ties(engine):
    return gradient(engine, lambda x: x.max(), torch.tensor([1.0, 3.0, 3.0], requires_grad=True))


@program("06", "the gradient of `amax` where two are equal", "torch/_inductor/decomposition.py")
def the_gradient_of_amax_with_ties(engine):
    return gradient(engine, lambda x: x.amax(0), torch.tensor([1.0, 3.0, 3.0], requires_grad=True))


@program("06", "the gradient of `clamp(0, 1)` at its ends", "torch/_inductor/decomposition.py")
def the_gradient_of_clamp(engine):
    return gradient(
        engine, lambda x: x.clamp(0, 1), torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    )


@program("06", "the gradient of `sqrt` at 0", "torch/_inductor/decomposition.py")
def the_gradient_of_sqrt_at_zero(engine):
    return gradient(engine, lambda x: x.sqrt(), torch.tensor([0.0, 4.0], requires_grad=True))


@program(
    "06", "the gradient of `where(x > 0, x.log(), 0)` at 0", "torch/_inductor/decomposition.py"
)
def the_gradient_through_where(engine):
    f = lambda x: torch.where(x > 0, x.log(), 0.0)
    return gradient(engine, f, torch.tensor([0.0, 1.0], requires_grad=True))


@program("06", "the gradient of `norm` at 0", "torch/_inductor/decomposition.py")
def the_gradient_of_norm_at_zero(engine):
    return gradient(engine, lambda x: x.norm(), torch.zeros(2, requires_grad=True))


@program("06", "`backward()` twice without `retain_graph`", RUNTIME)
def backward_twice(engine):
    x = ones(2, requires_grad=True)
    y = engine.compile(lambda x: (x * x).sum())(x)
    y.backward()
    return attempt(y.backward) or "no error"


@program("06", "`backward()` twice with `retain_graph=True`", RUNTIME)
def backward_twice_with_the_graph_kept(engine):
    x = ones(2, requires_grad=True)
    y = engine.compile(lambda x: (x * x).sum())(x)
    y.backward(retain_graph=True)
    return attempt(y.backward), x.grad


@program("06", "a second derivative (`create_graph=True`)", RUNTIME)
def a_second_derivative(engine):
    x = ones(2, requires_grad=True)

    def run():
        y = engine.compile(lambda x: (x**3).sum())(x)
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        (gg,) = torch.autograd.grad(g.sum(), x)
        return gg

    return attempt(run)


@program("06", "an input that is changed in place after forward and before backward", RUNTIME)
def an_input_changed_before_backward(engine):
    x, w = ones(2, requires_grad=True), ones(2) * 3

    def run():
        y = engine.compile(lambda x, w: (x * w).sum())(x, w)
        w.add_(1)
        y.backward()
        return x.grad

    return attempt(run)


@program("06", "an in-place write to a leaf that needs a gradient", AOT)
def a_write_to_a_leaf(engine):
    x = ones(2, requires_grad=True)
    return attempt(lambda: engine.compile(lambda x: x.add_(1))(x))


@program(
    "06",
    "an in-place write to an input under `no_grad`: value and `_version` after two calls",
    RUNTIME,
)
def the_version_of_an_input(engine):
    def f(x):
        x.add_(1)
        x.mul_(2)
        return x.sum()

    x, c = ones(2), engine.compile(f)
    c(x)
    c(x)
    return x, x._version


@program("06", "the result is a view of the input: does a write to it reach the input?", RUNTIME)
def a_view_of_the_input(engine):
    x = ones(4)
    y = engine.compile(lambda x: x.view(2, 2))(x)
    y.add_(1)
    return x, y._base is x


@program("06", "two results that are views of one tensor made inside", RUNTIME)
def two_views_of_one_result(engine):
    def f(x):
        y = x + 1
        return y[:2], y[1:]

    a, b = engine.compile(f)(ones(3))
    a.add_(10)
    return a, b


@program("06", "`x.detach()` as a result: does it share memory, does it need a gradient?", RUNTIME)
def a_detached_result(engine):
    x = ones(2, requires_grad=True)
    y = engine.compile(lambda x: x.detach())(x)
    return y.requires_grad, y.data_ptr() == x.data_ptr()


@program("06", "the same input as two results", RUNTIME)
def the_input_as_two_results(engine):
    x = ones(2)
    a, b = engine.compile(lambda x: (x, x))(x)
    return a is x, b is x


@program("06", "two inputs that share memory, first call apart, second call overlapping", AOT)
def inputs_that_overlap_later(engine):
    def f(x, y):
        x.add_(1)
        return y * 2

    c = engine.compile(f)
    first = c(ones(2), ones(2))
    base = ones(4)
    second = attempt(c, base[:2], base[1:3])
    return first, second


@program("06", "`F.dropout(x, training=False)`: is it x itself?", "torch/_decomp/decompositions.py")
def dropout_that_does_nothing(engine):
    x = ones(2)
    y = engine.compile(lambda x: F.dropout(x, 0.5, training=False))(x)
    return y is x, y.data_ptr() == x.data_ptr()


@program("06", "`x.contiguous()` of a contiguous x: is it x itself?", RUNTIME)
def contiguous_that_does_nothing(engine):
    x = ones(2)
    return engine.compile(lambda x: x.contiguous())(x) is x


@program("06", "`x.to(torch.float32)` of a float32 x: is it x itself?", RUNTIME)
def a_cast_that_does_nothing(engine):
    x = ones(2)
    return engine.compile(lambda x: x.to(torch.float32))(x) is x


@program("06", "`x.expand(2, 3)` of a (2, 3): does it share memory?", RUNTIME)
def an_expand_that_does_nothing(engine):
    x = ones(2, 3)
    y = engine.compile(lambda x: x.expand(2, 3))(x)
    return y is x, y.data_ptr() == x.data_ptr()


@program("06", "a result that no gradient needs (an int): `requires_grad`", AOT)
def a_result_without_a_gradient(engine):
    x = ones(2, requires_grad=True)
    y = engine.compile(lambda x: (x * 2, x.argmax()))(x)
    return y[0].requires_grad, y[1].requires_grad


@program("06", "a gradient hook that is registered inside", "torch/_dynamo/variables/tensor.py")
def a_hook_registered_inside(engine):
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 10)
        return y.sum()

    x = ones(2, requires_grad=True)
    watch = engine.watch(f)
    y = watch(x)
    return watch, attempt(lambda: y.backward()), x.grad


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 100


@program("06", "an autograd.Function with a backward of its own", FUNCTIONS)
def a_function_with_its_own_backward(engine):
    x = ones(2, requires_grad=True)
    watch = engine.watch(lambda x: Twice.apply(x).sum())
    watch(x).backward()
    return watch, x.grad


@program("06", "an autograd.Function whose forward prints nothing but counts", FUNCTIONS)
def a_function_that_counts(engine):
    ran = []

    class Counts(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ran.append(1)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    watch = engine.watch(lambda x: Counts.apply(x).sum())
    for _ in range(2):
        watch(ones(2, requires_grad=True))
    return watch, len(ran)


@program(
    "06",
    "`torch.utils.checkpoint` of a function with dropout: is the gradient that of the same mask?",
    "torch/utils/checkpoint.py",
)
def checkpoint_with_dropout(engine):
    from torch.utils.checkpoint import checkpoint

    def f(x):
        return checkpoint(lambda x: F.dropout(x, 0.5) * x, x, use_reentrant=False)

    def run():
        x = ones(64, requires_grad=True)
        y = engine.compile(f)(x)
        y.sum().backward()
        return torch.equal(y == 0, x.grad == 0)

    return attempt(run)


@program("06", "BatchNorm in training: the running mean after two calls", RUNTIME)
def the_running_mean(engine):
    m = nn.BatchNorm1d(2)
    c = engine.compile(m)
    for k in (1, 2):
        c(torch.tensor([[1.0, 2.0], [3.0, 4.0]]) * k)
    return m.running_mean, m.num_batches_tracked


@program("06", "a compiled forward inside `no_grad`, then with gradients: does backward work?", AOT)
def no_grad_first(engine):
    x, c = ones(2, requires_grad=True), engine.compile(lambda x: (x * x).sum())
    with torch.no_grad():
        c(x)
    c(x).backward()
    return x.grad


@program(
    "06",
    "`x.grad` is None: does the function see it? Then with a gradient",
    "torch/_dynamo/variables/builder.py",
)
def reading_the_gradient(engine):
    watch = engine.watch(lambda x: x * 2 if x.grad is None else x + x.grad)
    x = ones(2, requires_grad=True)
    watch(x)
    x.grad = ones(2) * 10
    watch(x)
    return watch


@program("06", "`torch.func.grad` inside", "torch/_dynamo/variables/higher_order_ops.py")
def func_grad_inside(engine):
    return attempt(
        engine.compile(lambda x: torch.func.grad(lambda y: (y**3).sum())(x)), ones(2) * 2
    )


@program("06", "`torch.func.vmap` inside", "torch/_dynamo/variables/higher_order_ops.py")
def vmap_inside(engine):
    return attempt(engine.compile(lambda x: torch.func.vmap(lambda y: y.sum())(x)), ones(2, 3))


@program(
    "06", "forward-mode: `torch.func.jvp` inside", "torch/_dynamo/variables/higher_order_ops.py"
)
def jvp_inside(engine):
    return attempt(
        engine.compile(lambda x: torch.func.jvp(lambda y: y * y, (x,), (ones(2),))), ones(2) * 3
    )


@program("06", "the compiled backward of a mean over no numbers", "torch/_decomp/decompositions.py")
def the_gradient_of_an_empty_mean(engine):
    return gradient(engine, lambda x: x.mean(), torch.ones(0, requires_grad=True))


@program("06", "`retain_grad()` on a value inside", "torch/_dynamo/variables/tensor.py")
def retain_grad_inside(engine):
    def f(x):
        y = x * 2
        y.retain_grad()
        return y.sum(), y

    x = ones(2, requires_grad=True)

    def run():
        total, y = engine.compile(f)(x)
        total.backward()
        return y.grad

    return attempt(run)
