"""Warnings: of operators, of Python and of programs: how many, with which category, at which file and line; and filters inside."""

# The warnings are the point.
# ruff: noqa

import functools
import warnings

import numpy as np
import torch
import torch.nn.functional as F
from topics.kit import grad, number, one, program, two
from torch import nn


class Slow(UserWarning):
    pass


@program()
def softmax_without_a_dimension(x):
    y = x * 2
    return F.softmax(y)


@program()
def log_softmax_without_a_dimension(x):
    return F.log_softmax(x)


@program(two)
def a_loss_of_another_shape(x, y):
    return F.mse_loss(x, y[:1])


@program(two)
def an_l1_loss_of_another_shape(x, y):
    z = x + 1
    return F.l1_loss(z, y[:1])


@program()
def an_old_transpose(x):
    return x[None].T + 1


@program()
def a_complex_to_a_real(x):
    z = torch.complex(x, x)
    return z.to(torch.float32)


@program()
def a_tensor_from_a_tensor(x):
    return torch.tensor(x) + 1


@program()
def an_old_range(x):
    return x + torch.range(1, 4)


@program()
def an_old_upsampling(x):
    return F.upsample(x[None, None], scale_factor=2)


@program()
def an_old_activation(x):
    return F.tanh(x) + F.sigmoid(x)


@program()
def an_old_reduction(x):
    return F.mse_loss(x, x * 2, size_average=False)


@program()
def a_kl_by_the_mean(x):
    return F.kl_div(x.log_softmax(1), x.softmax(1))


@program()
def bilinear_with_an_old_default(x):
    return F.interpolate(
        x[None, None], scale_factor=2.0, mode="bilinear", recompute_scale_factor=True
    )


@program()
def a_std_of_one(x):
    return x[:1, :1].std()


@program()
def an_empty_mean(x):
    return x[:0].mean()


@program()
def a_nested_warning(x):
    def inner():
        warnings.warn("inner")
        return 2

    y = x * inner()
    warnings.warn("outer", Slow)
    return y


@program(grad)
def gradient_of_what_is_no_leaf(x):
    y = x * 2
    return y.grad is None, y + 1


@program()
def warns_in_a_comprehension(x):
    def part(n):
        warnings.warn(f"part {n}")
        return x * n

    return sum([part(n) for n in range(3)])


@program()
def warns_in_a_lambda(x):
    f = lambda n: warnings.warn("lambda") or x * n
    return f(2) + f(3)


@program()
def warns_over_two_lines(x):
    y = x + 1
    warnings.warn(
        "on several lines",
        category=Slow,
        stacklevel=1,
    )
    return y


@program()
def warns_in_a_method(x):
    class Held:
        def value(self):
            warnings.warn("of a method", stacklevel=2)
            return x

    held = Held()
    return held.value() + held.value()


@program()
def warns_in_a_property(x):
    class Held:
        @property
        def value(self):
            warnings.warn("of a property", DeprecationWarning, stacklevel=2)
            return x

    return Held().value * 2


@program()
def warns_in_an_operator(x):
    class Held:
        def __add__(self, other):
            warnings.warn("of an operator", stacklevel=2)
            return x + other

    return Held() + 3


@program()
def warns_in_a_constructor(x):
    class Held:
        def __init__(self, value):
            warnings.warn("of a constructor", stacklevel=2)
            self.value = value

    return Held(x).value + 1


@program()
def warns_in_a_generator_far_away(x):
    def parts():
        yield x
        warnings.warn("between", stacklevel=2)
        yield x + 1

    total = 0
    for part in parts():
        total = total + part
    return total


@program()
def warns_while_it_unwinds(x):
    try:
        raise ValueError("a")
    except ValueError:
        warnings.warn("handled")
    finally:
        warnings.warn("finally")
    return x + 1


@program()
def warns_and_raises(x):
    y = x + 1
    warnings.warn("soon")
    raise RuntimeError("now")


@program(number)
def warns_by_number(x, i):
    if i % 2:
        warnings.warn(f"odd {i}")
    return x * i


@program()
def ignores_all(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("not seen")
        y = F.softmax(x)
    warnings.warn("seen")
    return y


@program()
def records_them(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.warn("recorded")
        y = x + 1
    return y * len(caught)


@program()
def makes_them_errors(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("as an error", Slow)
        except Slow as error:
            return x + 1, str(error)
    return x


@program()
def makes_an_operators_warning_an_error(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return F.softmax(x)


@program()
def filters_by_text(x):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="quiet")
        warnings.warn("quiet please")
        warnings.warn("loud please")
    return x * 2


@program()
def once_only(x):
    with warnings.catch_warnings():
        warnings.simplefilter("once")
        for n in range(3):
            warnings.warn("again")
    return x * 2


@program()
def by_explicit_place(x):
    warnings.warn_explicit("explicit", Slow, "somewhere.py", 7)
    return x + 1


@program()
def behind_data(x):
    y = x.sum().item()
    warnings.warn("behind an item")
    return x * y


@program()
def behind_a_print(x):
    print("a")
    warnings.warn("b", stacklevel=1)
    y = x + 1
    print("c")
    warnings.warn("d", stacklevel=2)
    return y


def warned(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        warnings.warn(f"{function.__name__}", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    return wrapped


@warned
def old(x):
    return x + 1


@program()
def a_decorated_function_in_an_expression(x):
    return x + old(x) + old(x)


@program()
def as_a_callback(x):
    return sum(map(old, [x, x]))


@program()
def through_a_partial(x):
    return functools.partial(old, x)()


def of_a_module(i):
    class Warns(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            if self.training:
                warnings.warn("training")
            return self.layer(x)

    m = Warns()
    m.train(i == 1)
    return m, torch.randn(3, 4)


@program(of_a_module)
def a_module_that_warns(m, x):
    return m(x) + 1


@program(lambda i: (nn.LSTM(4, 3, dropout=0.5), torch.randn(2, 3, 4)))
def a_module_of_torch(m, x):
    return m(x)[0]


@program(lambda i: (torch.randn(3, 4),))
def makes_a_module_that_warns(x):
    m = nn.RNN(4, 4, num_layers=1, dropout=0.5)
    return x + 1


@program(lambda i: (nn.Softmax(), torch.randn(3, 4)))
def a_softmax_module_without_a_dimension(m, x):
    return m(x)


@program(lambda i: (nn.TransformerEncoderLayer(4, 2, 8, batch_first=False), torch.randn(3, 2, 4)))
def wraps_an_encoder(m, x):
    return nn.TransformerEncoder(m, 2, enable_nested_tensor=True)(x).shape


@program()
def an_old_name_of_a_norm(x):
    return torch.norm(x) + torch.chain_matmul(x, x.t())


@program()
def numpy_divides_by_zero(x):
    return x * float(np.float32(1) / np.maximum(np.float32(0), 1))


@program()
def meshes_without_an_order(x):
    a, b = torch.meshgrid(x[0], x[1])
    return a + b


@program()
def an_old_cross(x):
    return torch.cross(x[:, :3], x[:, :3] + 1)


@program(lambda i: (torch.randn(3), torch.zeros(4)))
def writes_into_another_size(x, out):
    return torch.add(x, 1, out=out)


@program()
def an_old_qr(x):
    return torch.qr(x)[1].shape


@program()
def a_scheduler_before_its_optimizer(x):
    p = nn.Parameter(torch.ones(2))
    o = torch.optim.SGD([p], lr=0.1)
    s = torch.optim.lr_scheduler.StepLR(o, 1)
    s.step()
    return x * s.get_last_lr()[0]


@program()
def a_syntax_that_warns(x):
    return x * eval("1 is 1", {})


@program()
def an_attention_with_no_keys(x):
    return F.dropout2d(x)
