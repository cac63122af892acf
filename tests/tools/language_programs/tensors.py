"""What Python asks of a tensor: attributes, truth, items, order."""

# The oddities are the point.
# ruff: noqa

from collections import OrderedDict, deque

import torch
from language_programs.containers import Config, Triple
from language_programs.kit import number, program, randn


@program()
def collections_abc(x):
    from collections import abc

    return (
        x,
        isinstance([], abc.Sequence),
        isinstance({}, abc.Mapping),
        isinstance(x, abc.Iterable),
        isinstance(len, abc.Callable),
        issubclass(dict, abc.MutableMapping),
    )


@program()
def tensor_attributes(x):
    return (
        x.shape,
        x.ndim,
        x.dtype,
        x.device.type,
        x.requires_grad,
        x.is_cuda,
        len(x),
        x.size(0),
        x.numel(),
        x.stride(),
        x.is_contiguous(),
        x.element_size(),
        x.dim(),
    )


@program(number)
def getattr_on_tensor(x, i):
    return (
        getattr(x, ("sin", "cos", "exp")[i])(),
        hasattr(x, "nope"),
        getattr(x, "nope", 3),
        getattr(torch, "sin")(x),
        callable(x.sin),
    )


@program()
def string_of_tensor_facts(x):
    return (
        f"{x.shape} {x.dtype} {x.device}",
        str(x.shape),
        repr(x.dtype),
        x + 1,
        f"{x.ndim:03d}",
        f"{tuple(x.shape)}",
    )


@program(breaks=1)
def item_of_a_tensor(x):
    n = x.sum().item()
    return x + n, type(n)


@program(breaks=1)
def float_of_a_tensor(x):
    return x + float(x[0]), x


@program(breaks=1)
def int_of_a_tensor(x):
    return x + int(x[0]), x


@program(breaks=1)
def tolist(x):
    v = x.tolist()
    return x + v[0], v


@program(breaks=1)
def string_of_a_tensor(x):
    y = x + 1
    return f"{y}", y * 2


@program(breaks=2)
def print_several(x):
    y = x + 1
    print("y", y, sep=":", end="!\n")
    z = y * 2
    print(f"{z.shape=}")
    return z


@program(breaks=1)
def branch_on_data(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y * 2


@program(breaks=1)
def branch_on_data_in_conditional_expression(x):
    return (x + 1 if x.sum() > 0 else x - 1) * 2, 5


@program(breaks=2)
def boolean_operators_on_data(x):
    return (x.sum() > 0 and x.max() > 0) or x, x + 1


@program(breaks=2)
def while_on_data(x):
    x = x.abs()
    while x.sum() < 20:
        x = x * 10
    return x + 1


@program(breaks=1)
def comparison_of_lists_of_tensors(x):
    return x + 1, [x] == [x], x in [x]


@program()
def zip_and_map_of_tensors(x):
    return (
        [a + b for a, b in zip(x, x * 2)],
        list(map(torch.sin, [x, x])),
        sum(x),
        max([1, 2]),
        sorted([3, 1]),
        list(enumerate(x))[0],
    )


@program(breaks=1)
def builtins_on_tensors(x):
    return (
        abs(x),
        round(x),
        pow(x, 2),
        divmod(x, 2),
        -x,
        +x,
        x // 1,
        2**x,
        1 - x,
        3 / x.abs(),
        x @ x,
        ~(x > 0),
        x[0] == x[1],
    )


@program(breaks=3)
def min_max_sorted_of_tensors(x):
    return max(x), min(x[0], x[1]), sorted(x, key=lambda v: 1)


@program()
def tensors_as_dict_keys(x):
    y = x + 1
    d = {x: 1, y: 2}
    return d[x] + d[y], x in d, len(d), y


@program()
def tensor_in_containers(x):
    y = x + 1
    return (
        [x, y, [x]],
        {"x": x, "y": (y,)},
        deque([x]),
        OrderedDict(k=y),
        Triple(x, y),
        Config(x.shape[0], names=[y]),
        slice(0, 1),
    )


@program(lambda i: (randn(3), [randn(3, requires_grad=True)]))
def gradients_flow_through_lists(x, v):
    y = (x * v[0]).sum()
    return y, y.requires_grad, v[0].is_leaf if 0 else 0
