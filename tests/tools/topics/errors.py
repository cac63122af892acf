"""Errors: of operators, of Python, and where they are raised: type, message, lines of the traceback, and what was done before."""

# The mistakes are the point.
# ruff: noqa

import contextlib

import torch
import torch.nn.functional as F
from topics.kit import grad, number, one, program, two
from torch import nn


def shapes(i):
    return torch.randn(3, 4), torch.randn(3, 5)


def mixed(i):
    return torch.randn(3, 4), torch.randn(4, 5, dtype=torch.float64)


@program(shapes)
def shapes_that_do_not_broadcast(x, y):
    z = x * 2
    return z + y


@program(shapes)
def shapes_of_a_product(x, y):
    return x @ y


@program(mixed)
def dtypes_of_a_product(x, y):
    return x.relu() @ y


@program()
def a_dimension_out_of_range(x):
    return x.sum(3)


@program()
def a_negative_dimension_out_of_range(x):
    return x.softmax(dim=-4)


@program()
def an_index_out_of_range(x):
    return x[5]


@program()
def an_index_of_too_many(x):
    return x[0, 0, 0]


@program()
def a_select_out_of_range(x):
    return torch.select(x, 1, 9)


@program()
def a_view_of_another_size(x):
    return x.view(5, 5)


@program()
def a_view_of_what_is_not_contiguous(x):
    return x.t().view(-1)


@program()
def two_sizes_to_infer(x):
    return x.reshape(-1, -1)


@program()
def a_split_that_does_not_add_up(x):
    return x.split([1, 5], dim=1)


@program(two)
def concatenates_what_does_not_fit(x, y):
    return torch.cat([x, y[:, :2]], dim=0)


@program()
def stacks_nothing(x):
    return torch.stack([])


@program(two)
def stacks_what_does_not_fit(x, y):
    return torch.stack([x, y.t()])


@program()
def expands_what_is_not_one(x):
    return x.expand(3, 8)


@program()
def permutes_too_few(x):
    return x.permute(0)


@program()
def transposes_out_of_range(x):
    return x.transpose(0, 7)


@program()
def a_mean_of_integers(x):
    return x.long().mean()


@program()
def an_unknown_keyword(x):
    return torch.add(x, x, gamma=2)


@program()
def a_missing_argument(x):
    return torch.add(x)


@program()
def an_argument_of_a_wrong_type(x):
    return torch.sum(x, dim="a")


@program()
def an_attribute_that_is_not_there(x):
    return x.no_such_thing


@program()
def a_module_attribute_that_is_not_there(x):
    return torch.no_such_function(x)


@program()
def a_name_that_is_not_there(x):
    y = x + 1
    return no_such_name(y)


@program()
def a_local_before_it_is_set(x):
    if x.shape[0] == 99:
        y = x
    return y + 1


@program()
def a_tensor_in_the_place_of_a_function(x):
    return x(1)


@program()
def unpacks_too_many(x):
    a, b, c, d, e = x
    return a


@program()
def unpacks_too_few(x):
    a, b = x
    return a


@program()
def a_key_that_is_not_there(x):
    return {"a": x}["b"]


@program()
def a_list_index_out_of_range(x):
    return [x, x][3]


@program()
def no_truth_value_of_many(x):
    if x > 0:
        return x
    return -x


@program()
def an_item_of_many(x):
    return x.item()


@program()
def a_number_of_many(x):
    return float(x)


@program()
def adds_a_text(x):
    return x + "a"


@program()
def compares_with_a_text(x):
    return x < "a"


@program(one)
def adds_none(x):
    return x + None


@program()
def a_linear_of_another_width(x):
    return F.linear(x, torch.ones(5, 7))


def of_a_module(i):
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(6, 2)), torch.randn(3, 4)


@program(of_a_module)
def modules_that_do_not_fit(m, x):
    return m(x)


@program()
def a_convolution_of_other_channels(x):
    return F.conv2d(x[None, None], torch.ones(2, 3, 2, 2))


@program()
def a_pool_larger_than_its_input(x):
    return F.max_pool2d(x[None], 9)


def with_targets(i):
    return torch.randn(3, 4), torch.tensor([0, 1, 2 + i * 4])


@program(with_targets)
def a_target_out_of_range(x, target):
    return F.cross_entropy(x, target)


@program(with_targets)
def an_embedding_out_of_range(x, index):
    return F.embedding(index, x)


@program(with_targets)
def a_gather_out_of_range(x, index):
    return x.t().gather(0, index[None])


@program(with_targets)
def an_index_tensor_out_of_range(x, index):
    return x.t()[index]


@program(with_targets)
def an_index_select_out_of_range(x, index):
    return x.index_select(1, index)


@program(with_targets)
def a_scatter_out_of_range(x, index):
    return x.t().clone().scatter(0, index[None], 1.0)


@program(with_targets)
def one_hot_of_too_few_classes(x, index):
    return F.one_hot(index, 3)


@program(number)
def effects_before_an_error(x, i):
    x.add_(1)
    print("before", i)
    y = x.view(3, -1)
    y.mul_(2)
    return y @ x if i != 1 else y


def deepest(x, n):
    if n == 0:
        return x @ x
    return deepest(x + 1, n - 1)


@program()
def an_error_deep_inside(x):
    return deepest(x, 3)


@program(number)
def a_caught_error_of_an_operator(x, i):
    try:
        y = x @ x
    except RuntimeError as error:
        return x * 2, str(error), type(error)
    return y


@program(number)
def a_caught_error_and_another_way(x, i):
    for shape in ((5, 5), (4, 3), (2, 6)):
        try:
            return x.view(shape)
        except RuntimeError:
            continue


@program(number)
def an_error_from_an_error(x, i):
    try:
        return x[7]
    except IndexError as error:
        raise KeyError(f"call {i}") from error


@program(number)
def an_error_while_an_error_is_handled(x, i):
    try:
        return x.sum(5)
    except IndexError:
        return x.no_such_thing


class Refused(ValueError):
    def __init__(self, limit, *, why="too large"):
        super().__init__(f"{why}: {limit}")
        self.limit = limit


@program(number)
def an_error_of_ones_own(x, i):
    y = x * i
    if i:
        raise Refused(i, why="over")
    return y


@program(number)
def gives_a_caught_error(x, i):
    try:
        raise Refused(i)
    except Refused as error:
        return x * error.limit, error


@contextlib.contextmanager
def told(name):
    print("in", name)
    try:
        yield name
    except ValueError as error:
        print("error", error)
        raise
    finally:
        print("out", name)


@program(number)
def an_error_through_a_manager(x, i):
    with told("a"), told("b"):
        x = x + 1
        if i == 1:
            raise ValueError(f"inside {i}")
    return x


@program(number)
def an_error_in_a_finally(x, i):
    try:
        y = x + 1
        if i == 2:
            raise ValueError("first")
    finally:
        if i > 0:
            raise TypeError("second")
    return y


@program(number)
def an_error_in_a_property(x, i):
    class Held:
        @property
        def value(self):
            if i:
                raise AttributeError("hidden")
            return x + i

        def __getattr__(self, name):
            return x - 1 if name == "value" else x

    return Held().value


@program(number)
def an_error_in_a_generator(x, i):
    def values():
        for n in range(4):
            if n == i + 1:
                raise LookupError(f"at {n}")
            yield x * n

    total = x
    for value in values():
        total = total + value
    return total


@program(number)
def an_error_in_a_key(x, i):
    def key(n):
        return n / (n - i)

    return x * sorted([3, 1, 2], key=key)[0]


@program(number)
def a_division_by_zero(x, i):
    return x * (1 / i)


@program(number)
def an_index_by_the_number(x, i):
    return x[i * 2]


@program(grad)
def writes_to_a_leaf(x):
    x.add_(1)
    return x * 2


@program(grad)
def writes_to_a_view_of_a_leaf(x):
    x[0].zero_()
    return x * 2


@program(grad)
def a_gradient_of_many(x):
    y = x * 2
    y.backward()
    return y


@program()
def a_gradient_without_a_path(x):
    y = x.sum()
    y.backward()
    return y


@program(grad)
def numpy_of_what_needs_a_gradient(x):
    return (x * 2).numpy()


@program(grad)
def changes_what_backward_needs(x):
    y = x.exp()
    z = y * 2
    y.add_(1)
    return z, y


@program()
def requires_a_gradient_of_integers(x):
    return x.long().requires_grad_()


@program()
def raises_what_is_no_error(x):
    raise x


@program()
def deletes_what_is_not_there(x):
    y = x + 1
    del y
    return y


@program()
def a_call_with_too_many(x):
    def f(a, b=1):
        return a

    return f(x, 2, 3)


@program()
def a_call_without_one(x):
    def f(a, *, b, c):
        return a

    return f(x)


@program()
def a_call_with_an_unknown_name(x):
    def f(a):
        return a

    return f(x, q=1)


@program()
def iterates_a_scalar(x):
    for part in x.sum():
        x = x + part
    return x


@program()
def length_of_a_scalar(x):
    return len(x.sum())


@program()
def a_tensor_as_an_index_of_a_list(x):
    return [1, 2, 3][x.sum()]


@program()
def an_unhashable_key(x):
    return {[1]: x}


@program()
def an_empty_reduction(x):
    return x[:0].max()


@program()
def an_integer_power_that_is_negative(x):
    return torch.arange(3) ** -1
