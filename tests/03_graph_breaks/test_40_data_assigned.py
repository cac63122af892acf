"""`x.data = ...` in a compiled function: one graph, which runs operation by operation, and all is as in eager."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl


def scales_a_weight(linear, x, y):
    linear.weight.data = linear.weight.data * 1.5
    return linear(x)


def data_of_another(linear, x, y):
    y.data = x[0].detach()
    return y * 2


def a_view_keeps_the_old_memory(linear, x, y):
    a = y * 1
    view = a.view(3, 1)
    a.data = y + 1
    return view.sum() + a.sum() + x.sum()


def there_and_back(linear, x, y):
    old = linear.weight.data
    linear.weight.data = old.clone() * 2
    result = linear(x)
    linear.weight.data = old
    return result


def between_two_uses(linear, x, y):
    before = linear(x)
    linear.weight.data = torch.zeros(3, 3)
    return before + linear(x)


def a_step_of_descent(linear, x, y):
    with torch.no_grad():
        for parameter in linear.parameters():
            parameter.data = parameter.data - 0.1
    return linear(x)


def of_a_value_made_here(linear, x, y):
    z = x * 2
    z.data = torch.ones(3, 3)
    return z * z


def its_own(linear, x, y):
    y.data = y.data
    y.data.add_(1)
    return y


def before_an_error(linear, x, y):
    linear.weight.data = linear.weight.data + 1
    try:
        return x[torch.tensor([5])]
    except IndexError:
        return linear(x)


def before_a_break(linear, x, y):
    linear.weight.data = linear.weight.data + 1
    print(end="")
    return linear(x)


def of_another_dtype(linear, x, y):
    linear.weight.data = linear.weight.data.double()
    result = x * 1
    linear.weight.data = linear.weight.data.float()
    return result


def of_another_shape(linear, x, y):
    y.data = y.data.repeat(2)
    return y * 2


ONE_GRAPH = [
    scales_a_weight,
    data_of_another,
    a_view_keeps_the_old_memory,
    there_and_back,
    between_two_uses,
    a_step_of_descent,
    of_a_value_made_here,
    its_own,
]
OTHERS = [before_an_error, before_a_break, of_another_dtype, of_another_shape]


def seen(program, compiled):
    """Results, gradients, what was written, and which memory is new, of three calls."""
    torch.manual_seed(0)
    linear, found = torch.nn.Linear(3, 3), []
    for _ in range(3):
        x, y = torch.randn(3, 3, requires_grad=True), torch.randn(3)
        # held to the end of the call: memory that is given back may be handed out again by chance
        before = linear.weight.detach()
        result = compiled(linear, x, y)
        if result.requires_grad:
            result.sum().backward()
        found += [result.detach().clone(), x.grad, linear.weight.grad, y.clone()]
        is_same_memory = linear.weight.data_ptr() == before.data_ptr()
        found += [linear.weight.detach().clone(), is_same_memory]
    return found


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", ONE_GRAPH + OTHERS)
def test_data_assigned_is_as_in_eager(program, backend):
    options = {"fullgraph": program in ONE_GRAPH, "backend": backend}
    expected = seen(program, program)
    for found, wanted in zip(seen(program, cl.compile(program, **options)), expected, strict=True):
        if isinstance(wanted, torch.Tensor):
            torch.testing.assert_close(found, wanted)
        else:
            assert found == wanted
