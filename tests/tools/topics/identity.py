"""Identity and aliasing: which results are arguments, views of arguments, views of each other, or one object twice."""

# Views of everything are the point.
# ruff: noqa

import copy

import torch
import torch.nn.functional as F
from topics.kit import grad, number, one, program, two
from torch import nn


@program()
def the_argument(x):
    return x


@program()
def the_argument_twice(x):
    return x, x


@program()
def one_result_twice(x):
    y = x + 1
    return y, y, [y]


@program()
def contiguous_is_the_same(x):
    return x.contiguous(), x.t().contiguous()


@program()
def conversions_to_the_same(x):
    return x.float(), x.to(torch.float32), x.to("cpu"), x.type_as(x), x.cpu()


@program()
def conversions_with_a_copy(x):
    return x.to(torch.float32, copy=True), x.clone(), x.type(torch.float32)


@program(lambda i: (torch.randn(3, 4, dtype=torch.float64 if i else torch.float32),))
def a_conversion_by_dtype(x):
    return x.double()


@program()
def views_of_the_argument(x):
    return x.view(-1), x[0], x[:, 1:], x.t(), x.unsqueeze(0)


@program()
def views_of_a_result(x):
    y = x * 2
    return y, y.view(-1), y[0], y.t(), y[1:, ::2]


@program()
def a_view_and_not_its_base(x):
    y = x * 2
    return y[1]


@program()
def two_views_of_what_is_not_given(x):
    y = x * 2
    return y[0], y[1:], y.t()


@program(grad)
def detached(x):
    y = x * 2
    return x.detach(), y.detach(), y


@program(grad)
def views_that_need_gradients(x):
    y = x * 2
    return x.view(-1), y[0], y


@program(grad)
def the_data(x):
    return x.data, (x * 2).data


@program()
def reshapes(x):
    return x.reshape(-1), x.t().reshape(-1), x.flatten(), x.t().flatten()


@program()
def ravel_and_squeeze(x):
    return x.ravel(), x.squeeze(), x[None].squeeze(0), x.squeeze(1)


@program()
def parts(x):
    return x.split(1), x.chunk(2, dim=1), x.unbind(1), torch.tensor_split(x, 2)


@program()
def expanded(x):
    y = x[:1].expand(3, x.shape[1])
    return y, x.broadcast_to(2, *x.shape), y.contiguous()


@program()
def diagonals(x):
    return x.diagonal(), torch.diag(x[0]), x.diagonal(1)


@program()
def windows(x):
    return x.unfold(1, 2, 1), x.as_strided((2, 2), (1, 2)), x.narrow(1, 1, 2)


@program(lambda i: (torch.randn(3, 4, dtype=torch.complex64),))
def parts_of_complex_numbers(x):
    return torch.view_as_real(x), x.real, x.imag, x.conj(), x.conj().resolve_conj()


@program()
def moved_axes(x):
    return x.movedim(0, 1), x.swapaxes(0, 1), x.permute(1, 0), torch.atleast_3d(x)


@program()
def as_another_dtype(x):
    return x.view(torch.int32), x.view(torch.uint8).shape


@program()
def results_in_place(x):
    return x.add_(1), x


@program()
def results_in_place_of_a_view(x):
    return x[0].mul_(2), x.t_()


@program(two)
def results_into(x, y):
    out = torch.empty(0)
    z = torch.add(x, y, out=out)
    return z is out, z, out


@program(two)
def results_into_an_argument(x, y):
    return torch.mul(x, 2, out=y), y


@program(two)
def swapped(x, y):
    x, y = y, x
    return x, y


@program()
def inside_containers(x):
    y = x + 1
    part = [y]
    return {"a": part, "b": part, "c": (y, part[0])}


@program()
def a_list_that_grows(x):
    parts = []
    for n in range(3):
        x = x + 1
        parts.append(x)
    return parts, parts[-1] is x, x


@program(lambda i: ([torch.randn(2), torch.randn(2)],))
def the_list_itself(parts):
    parts.append(parts[0])
    return parts, parts[0]


@program(lambda i: ((t := torch.randn(3)), t))
def one_argument_twice(x, y):
    y.add_(1)
    return x * 2, x is y


@program(lambda i: ((t := torch.randn(6)), t[:3], t[3:]))
def arguments_that_overlap(x, a, b):
    a.mul_(2)
    return x + 1, b, a


@program(lambda i: ((t := torch.randn(3, 4)), t.t()))
def a_view_as_an_argument(x, y):
    x.add_(1)
    return y, y * 2, x.t()


@program(lambda i: (torch.randn(4).expand(3, 4),))
def an_expanded_argument(x):
    return x, x + 1, x[0]


@program(lambda i: (torch.randn(4, 3).t(),))
def a_transposed_argument(x):
    return x + 1, x.clone(), torch.empty_like(x).fill_(0), x.contiguous(), x * x.t().t()


@program(lambda i: (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),))
def channels_last(x):
    return (
        x * 2,
        x.clone(),
        x.contiguous(),
        x.relu(),
        torch.zeros_like(x),
        x.mean(1),
        x.permute(0, 2, 3, 1),
    )


@program(lambda i: (torch.randn(3, 8)[:, ::2],))
def an_argument_with_steps(x):
    return x + 1, x.clone(), x.sum(0), x.t() * 2


@program(lambda i: (torch.randn(3, 1, 4), torch.randn(2, 1).t()))
def strides_of_broadcasts(x, y):
    return x + y[..., None], y * 2, x.transpose(0, 2) + 1


@program(lambda i: (nn.Linear(4, 4), torch.randn(3, 4)))
def a_parameter(m, x):
    return m.weight, m.weight.t(), m.bias, m(x)


@program(lambda i: (nn.BatchNorm1d(4), torch.randn(3, 4)))
def a_buffer(m, x):
    y = m(x)
    return y, m.running_mean, m.num_batches_tracked


@program(lambda i: (nn.Identity(), nn.Dropout(0.5).eval(), torch.randn(3)))
def modules_that_do_nothing(a, b, x):
    return a(x) is x, b(x) is x, a(x), b(x)


@program()
def functions_that_do_nothing(x):
    return (
        F.dropout(x, 0.5, training=False),
        F.pad(x, (0, 0)),
        x.expand_as(x),
        torch.as_tensor(x),
        torch.asarray(x),
    )


@program()
def nothing_to_concatenate(x):
    return torch.cat([x]), torch.stack([x]), torch.cat([x, x[:0]])


@program()
def powers_and_neutral_numbers(x):
    return x + 0, x * 1, x**1, +x, x.abs() - 0


@program()
def whole_indices(x):
    return x[...], x[:], x[()], x[:, :], x[None][0]


@program()
def by_index(x):
    return x[[0, 2]], x[torch.tensor([0, 1])], x[x > 0].shape[0] > -1, x[1, 2]


@program()
def copies(x):
    y = x + 1
    return copy.copy([y]), copy.deepcopy([x])[0] is x


@program()
def is_and_equality(x):
    y = x.view(-1)
    return x is x, y is x, y.view_as(x) is x, x.data_ptr() == y.data_ptr()


@program(number)
def sometimes_the_argument(x, i):
    return x if i == 1 else x + 1


@program(number)
def a_base_that_is_known(x, i):
    y = x[i]
    return y, y._base is x, y._is_view(), x._is_view()


@program(grad)
def leaves_and_others(x):
    y = x * 2
    z = y.detach().requires_grad_()
    return x.is_leaf, y.is_leaf, z.is_leaf, z


@program(grad)
def without_a_gradient(x):
    with torch.no_grad():
        y = x * 2
        z = x.view(-1)
    return y, z, x + y


@program()
def under_inference(x):
    with torch.inference_mode():
        y = x * 2
    return y, x.is_inference(), y.is_inference()


@program()
def constants(x):
    return (
        torch.zeros(3),
        torch.ones(2, 2).t(),
        torch.tensor([1, 2]),
        torch.arange(4)[1:],
        torch.eye(2),
    )


@program()
def the_same_sum_twice(x):
    a = x + 1
    b = x + 1
    return a, b, a is b


@program()
def scalars_and_sizes(x):
    return x.shape, x.size(0), x.stride(), x.numel(), tuple(x.shape), x.dim()


@program(lambda i: (torch.randn(0, 3), torch.randn(())))
def nothing_and_a_scalar(x, y):
    return x + 1, x.view(-1), y * 2, y.view(1), x.sum(), y[None]


@program(lambda i: (torch.randn(3), None, 5, "text", [1, 2]))
def what_is_no_tensor(x, a, b, c, d):
    return a, b, c, d, d[0], x


class Pair(tuple):
    pass


@program()
def a_tuple_of_ones_own(x):
    return Pair((x, x + 1))


@program()
def named_results(x):
    return x.max(dim=1), torch.linalg.qr(x), x.sort(1), x.topk(2)


@program()
def a_named_result_in_parts(x):
    values, indices = x.max(1)
    found = x.min(1)
    return values, indices, found.values, found[1]


@program()
def sizes_as_results(x):
    return torch.Size([3, 4]), x.shape[:1], x.shape + (1,), list(x.shape)


@program()
def a_closure_of_the_result(x):
    y = x + 1

    class Held:
        pass

    held = Held()
    held.y = y
    held.again = held
    return held, y
