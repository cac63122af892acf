"""Writing in place: to arguments, views, parts, parameters, buffers, what autograd saved, and what two names share."""

# Writes of all kinds are the point.
# ruff: noqa

import torch
import torch.nn.functional as F
from topics.kit import grad, number, one, program, two
from torch import nn


@program()
def to_an_argument(x):
    x.add_(1).mul_(2)
    return x + 1


@program()
def to_an_argument_and_nothing_else(x):
    x.zero_()


@program()
def to_a_part(x):
    x[0] = 1
    x[:, 1] += 2
    x[1:, ::2] *= 3
    return x.sum()


@program()
def to_a_part_of_a_part(x):
    x[1:][0][1:].fill_(7)
    return x * 1


@program()
def to_a_transposed_view(x):
    x.t()[1].copy_(torch.ones(3))
    return x


@program()
def to_a_diagonal(x):
    x.diagonal().fill_(0)
    return x + 1


@program()
def by_a_mask(x):
    x[x > 0] = 0
    return x


@program()
def by_a_mask_with_values(x):
    m = x > 0
    x[m] = x[m] * 2
    return x


@program()
def by_indices(x):
    x[[0, 2]] = 5
    x[torch.tensor([1]), torch.tensor([2])] += 1
    return x


@program()
def by_indices_that_repeat(x):
    x[torch.tensor([0, 0, 1])] += 1
    x.index_put_((torch.tensor([2, 2]),), torch.ones(2, x.shape[1]), accumulate=True)
    return x


@program()
def index_functions(x):
    i = torch.tensor([0, 2])
    x.index_add_(0, i, torch.ones(2, x.shape[1]))
    x.index_fill_(1, i, 3)
    x.index_copy_(0, i, torch.zeros(2, x.shape[1]))
    return x


@program()
def scatters(x):
    i = torch.tensor([[0, 1, 2, 0]])
    x.scatter_(0, i, 9.0)
    x.scatter_add_(0, i, torch.ones(1, 4))
    return x


@program()
def masked_functions(x):
    x.masked_fill_(x < 0, -1)
    x.masked_scatter_(x > 0, torch.arange(20.0))
    return x


@program(two)
def to_both(x, y):
    x.add_(y)
    y.add_(x)
    return x - y


@program(two)
def copies_and_broadcasts(x, y):
    x.copy_(y[0])
    y[:] = 3
    y[1:] = x[0]
    return x, y


@program(two)
def one_into_the_other(x, y):
    y.copy_(x)
    x.copy_(x.flip(0))
    return y


@program()
def onto_itself(x):
    x[1:] = x[:-1].clone()
    x.copy_(x + x.mean())
    return x


@program()
def overlapping_parts(x):
    x[1:].add_(x[:-1])
    return x


@program()
def before_and_after_a_read(x):
    a = x + 1
    x.mul_(2)
    b = x + 1
    x.mul_(2)
    return a, b


@program()
def a_view_made_before_the_write(x):
    v = x[0]
    x.add_(1)
    return v * 1, v


@program()
def a_view_of_a_result_is_written(x):
    y = x * 2
    v = y.view(-1)
    v[0] = 9
    y[1, 1] = 8
    return y, v


@program()
def an_expanded_result_is_written(x):
    y = torch.zeros(1, 4).expand(3, 4).clone()
    y[0] += 1
    return y


@program()
def to_an_expanded_view(x):
    y = x[:1].expand(3, x.shape[1])
    y.add_(1)
    return y


@program()
def inside_a_loop(x):
    out = torch.zeros(3, 4)
    for i in range(3):
        out[i] = x[i, :4] * i
        if i:
            out[i] += out[i - 1]
    return out


@program()
def accumulates(x):
    total = torch.zeros(())
    for row in x:
        total += row.sum()
    return total


@program()
def a_name_and_its_alias(x):
    y = x
    y += 1
    z = x
    z = z + 1
    return x, y, z


@program(lambda i: ({"a": torch.ones(3), "b": torch.zeros(3)},))
def inside_a_dict(d):
    d["a"].add_(1)
    d["b"] += d["a"]
    d["c"] = d["a"] * 2
    return d["c"]


@program(lambda i: ([torch.ones(3), torch.zeros(3)],))
def inside_a_list(parts):
    parts[0] += 1
    for part in parts:
        part.mul_(2)
    parts[1] = parts[0] + 1
    return parts[1]


@program(number)
def by_number(x, i):
    x[i] = i
    x[:, : i + 1] += 0.5
    return x


@program(lambda i: (torch.arange(6),))
def integers(x):
    x += 2
    x //= 2
    x %= 3
    x <<= 1
    x |= 1
    return x


@program(lambda i: (torch.tensor([True, False, True]),))
def truths(x):
    x &= torch.tensor([True, True, False])
    x ^= True
    x.logical_not_()
    return x


@program(lambda i: (torch.arange(6),))
def a_float_into_integers(x):
    x += 0.5
    return x


@program(lambda i: (torch.arange(6), torch.randn(6)))
def casts_on_the_way(x, y):
    x.copy_(y * 10)
    y.copy_(x)
    return x, y


@program(lambda i: (torch.randn(3, dtype=torch.bfloat16), torch.randn(3)))
def half_and_whole(x, y):
    x.add_(y)
    y.mul_(x)
    return x, y


@program()
def in_place_functions(x):
    F.relu(x, inplace=True)
    F.leaky_relu_(x, 0.1)
    torch.sigmoid_(x)
    return x.clamp_(0.2, 0.8).sqrt_()


@program()
def layers_in_place(x):
    return nn.Sequential(
        nn.ReLU(inplace=True), nn.Hardtanh(inplace=True), nn.Dropout(0.0, inplace=True)
    )(x)


@program()
def random_in_place(x):
    x.normal_()
    y = x.clone().uniform_(-1, 1)
    return x, y, torch.empty(3).bernoulli_(0.5)


@program()
def changes_of_shape(x):
    x.unsqueeze_(0)
    x.transpose_(1, 2)
    return x.shape, x


@program()
def resized(x):
    y = x.clone()
    y.resize_(2, 2)
    return y


@program()
def squeezed(x):
    y = x[None].clone()
    y.squeeze_(0).t_()
    return y


@program(two)
def set_to_another(x, y):
    x.set_(y)
    x.add_(1)
    return x, y


@program(two)
def data_set_to_another(x, y):
    x.data = y
    x.add_(1)
    return x, y


@program(two)
def data_written(x, y):
    x.data.add_(y)
    x.detach().mul_(2)
    return x


@program(grad)
def a_result_that_needs_a_gradient(x):
    y = x * 2
    y.add_(1)
    y[0] = 0
    y.relu_()
    return y


@program(grad)
def a_clone_by_parts(x):
    y = x.clone()
    y[0] *= 2
    y[:, 1] = y[:, 0] ** 2
    return y.sum()


@program(grad)
def a_gradient_into_what_had_none(x):
    out = torch.zeros(3, 4)
    out[1] = x[0]
    out.add_(x)
    return out, out.requires_grad


@program(grad)
def under_no_grad(x):
    with torch.no_grad():
        x.mul_(2)
        x[0] = 0
    return x.exp()


@program(grad)
def saved_and_then_written(x):
    y = x.sigmoid()
    z = y * 3
    y.mul_(2)
    return z


@program(grad)
def an_input_saved_and_then_written(x):
    with torch.no_grad():
        z = x + 0
    y = x * z
    z.add_(1)
    return y


@program(grad)
def written_before_it_is_saved(x):
    y = x * 1
    y.exp_()
    return (y * y).sum()


@program(lambda i: (torch.randn(3, requires_grad=True), torch.randn(3)))
def an_argument_gets_a_gradient(x, y):
    y.add_(x)
    return y * 2


@program(lambda i: (torch.randn(3, requires_grad=True), torch.zeros(2, 3)))
def a_part_of_an_argument_gets_a_gradient(x, y):
    y[1] = x * 2
    return y.sum()


@program(lambda i: (nn.Linear(4, 4), torch.randn(3, 4)))
def a_parameter(m, x):
    with torch.no_grad():
        m.weight.mul_(0.5)
        m.bias.zero_()
    return m(x)


@program(lambda i: (nn.Linear(4, 4), torch.randn(3, 4)))
def the_data_of_a_parameter(m, x):
    m.weight.data.clamp_(-0.1, 0.1)
    m.bias.data = torch.ones(4)
    return m(x)


@program(lambda i: (nn.BatchNorm1d(4), torch.randn(3, 4)))
def a_buffer(m, x):
    m(x)
    m.running_mean.zero_()
    m.running_var = torch.ones(4)
    return m(x)


@program(lambda i: ((t := torch.zeros(4)), t[1:], t[:3]))
def arguments_that_overlap(t, a, b):
    a += 1
    b += 10
    return t * 1, a * 1


@program(lambda i: ((t := torch.zeros(4)), t, t.view(2, 2)))
def one_argument_three_times(a, b, c):
    a.add_(1)
    b.mul_(2)
    c[0] = 5
    return a + b, c


@program(
    lambda i: (torch.zeros(6), torch.zeros(6)[::2]) if i != 1 else ((t := torch.zeros(6)), t[::2])
)
def overlap_that_comes_and_goes(x, y):
    y.add_(1)
    x.mul_(3)
    y.add_(1)
    return x + 1


@program(two)
def into_parts_of_an_argument(x, y):
    torch.add(x, 1, out=y)
    torch.sum(x, dim=1, out=y[:, 0])
    return y


@program(two)
def in_place_on_lists(x, y):
    torch._foreach_add_([x, y], 1)
    torch._foreach_mul_([x, y], [2.0, 3.0])
    return x + y


@program()
def sorted_into(x):
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.sort(x, 1, out=(values, indices))
    return values, indices


@program()
def an_error_between_two_writes(x):
    x.add_(1)
    try:
        x.add_(torch.ones(7))
    except RuntimeError:
        x.mul_(2)
    return x


@program()
def a_break_between_two_writes(x):
    x.add_(1)
    v = x[0]
    print("here")
    v.mul_(2)
    return x + 1


@program()
def read_by_python_between_two_writes(x):
    x.add_(1)
    n = x[0, 0].item()
    x.mul_(2)
    return x * n
