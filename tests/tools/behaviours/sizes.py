"""Lesson 05: sizes, ints and floats that change."""

import torch
from kit import attempt, program

SHAPES = "torch/fx/experimental/symbolic_shapes.py"
BUILDER = "torch/_dynamo/variables/builder.py"
ones = torch.ones


def called_with_sizes(engine, f, sizes, **options):
    watch = engine.watch(f, **options)
    for size in sizes:
        watch(ones(size))
    return watch


@program("05", "`x * 2` with 0, 1, 5, 2, 1, 0, 7 numbers", SHAPES)
def zero_and_one_come_first(engine):
    return called_with_sizes(engine, lambda x: x * 2, (0, 1, 5, 2, 1, 0, 7))


@program("05", "`x * 2` with 3, 4, 1, 0, 2, 7 numbers", SHAPES)
def zero_and_one_come_later(engine):
    return called_with_sizes(engine, lambda x: x * 2, (3, 4, 1, 0, 2, 7))


@program("05", "`x * 2` with 3, 4, 1, 0, 2, 7 numbers and `dynamic=True`", SHAPES)
def zero_and_one_with_dynamic_true(engine):
    return called_with_sizes(engine, lambda x: x * 2, (3, 4, 1, 0, 2, 7), dynamic=True)


@program("05", "`x * 2` with 3, 4, 1, 0, 2, 7 numbers and `dynamic=False`", SHAPES)
def zero_and_one_with_dynamic_false(engine):
    return called_with_sizes(engine, lambda x: x * 2, (3, 4, 1, 0, 2, 7), dynamic=False)


SQUARES = ((8, 8), (9, 9), (9, 10), (10, 9), (7, 7), (1, 7))


@program(
    "05",
    "sizes (8, 8), (9, 9), (9, 10), (10, 9), (7, 7), (1, 7): are equal sizes one symbol?",
    BUILDER,
)
def equal_sizes_are_two_symbols(engine):
    return called_with_sizes(engine, lambda x: x + 1, SQUARES)


@program(
    "05", "the sizes (8, 8), (9, 9), (9, 10), (10, 9), (7, 7), (1, 7) with `dynamic=True`", SHAPES
)
def equal_sizes_are_one_symbol_with_dynamic_true(engine):
    return called_with_sizes(engine, lambda x: x + 1, SQUARES, dynamic=True)


@program("05", "`x + y`, two vectors of equal length 3, 4, then lengths 5 and 1", SHAPES)
def two_vectors_then_a_broadcast(engine):
    watch = engine.watch(lambda x, y: x + y)
    for a, b in ((3, 3), (4, 4), (5, 1), (6, 6)):
        watch(ones(a), ones(b))
    return watch


@program("05", "`x + y` with `dynamic=True`: lengths 4, 4 and then 5, 1", SHAPES)
def two_vectors_with_dynamic_true(engine):
    watch = engine.watch(lambda x, y: x + y, dynamic=True)
    for a, b in ((4, 4), (6, 6), (5, 1)):
        watch(ones(a), ones(b))
    return watch


@program("05", "an int argument 3, 3, 4, 5, 0, 1, -1, True", BUILDER)
def an_int_argument(engine):
    watch = engine.watch(lambda x, n: x * n)
    for n in (3, 3, 4, 5, 0, 1, -1, True):
        watch(ones(2), n)
    return watch


@program("05", "an int argument that is 0 and 1 first, then 2 and 3", BUILDER)
def an_int_argument_that_begins_with_zero(engine):
    watch = engine.watch(lambda x, n: x * n)
    for n in (0, 1, 2, 3, 1, 0):
        watch(ones(2), n)
    return watch


@program("05", "an int argument with `dynamic=True`: 3, 4, 1, 0", BUILDER)
def an_int_argument_with_dynamic_true(engine):
    watch = engine.watch(lambda x, n: x * n, dynamic=True)
    for n in (3, 4, 1, 0):
        watch(ones(2), n)
    return watch


@program("05", "an int argument with `dynamic=False`: 3, 4, 3", BUILDER)
def an_int_argument_with_dynamic_false(engine):
    watch = engine.watch(lambda x, n: x * n, dynamic=False)
    for n in (3, 4, 3):
        watch(ones(2), n)
    return watch


@program("05", "a float argument 0.5, 0.5, 1.5, 2.5, nan, nan, inf, 0.0", BUILDER)
def a_float_argument(engine):
    watch = engine.watch(lambda x, s: x * s)
    nan = float("nan")
    for s in (0.5, 0.5, 1.5, 2.5, nan, nan, float("inf"), 0.0):
        watch(ones(2), s)
    return watch


@program(
    "05",
    "a float argument 0.0, then -0.0: is the sign of the result kept?",
    "torch/_dynamo/guards.py",
)
def the_sign_of_a_float_argument(engine):
    watch = engine.watch(lambda x, s: torch.copysign(x, x * s))
    for s in (0.0, -0.0, 0.0):
        watch(ones(2), s)
    return watch


@program("05", "a float argument with `dynamic=False`: 0.5, 1.5, 0.5", BUILDER)
def a_float_argument_with_dynamic_false(engine):
    watch = engine.watch(lambda x, s: x * s, dynamic=False)
    for s in (0.5, 1.5, 0.5):
        watch(ones(2), s)
    return watch


@program("05", "a float argument in a branch (`s > 1`): 0.5, 1.5, 2.5, 0.7", BUILDER)
def a_branch_on_a_float(engine):
    watch = engine.watch(lambda x, s: x * s if s > 1 else x - s)
    for s in (0.5, 1.5, 2.5, 0.7):
        watch(ones(2), s)
    return watch


@program("05", "a closure's int: 1, 1, 2, 3, 4", BUILDER)
def an_int_in_a_closure(engine):
    n = 1

    def f(x):
        return x * n

    watch = engine.watch(f)
    for value in (1, 1, 2, 3, 4):
        n = value
        watch(ones(2))
    return watch


FACTOR = 1


def times_factor(x):
    return x * FACTOR


@program("05", "a global int: 1, 1, 2, 3, 4", BUILDER)
def a_global_int(engine):
    global FACTOR
    watch = engine.watch(times_factor)
    for value in (1, 1, 2, 3, 4):
        FACTOR = value
        watch(ones(2))
    FACTOR = 1
    return watch


WEIGHT = 0.5


def times_weight(x):
    return x * WEIGHT


@program("05", "a global float: 0.5, 1.5, 2.5, 3.5", BUILDER)
def a_global_float(engine):
    global WEIGHT
    watch = engine.watch(times_weight)
    for value in (0.5, 1.5, 2.5, 3.5):
        WEIGHT = value
        watch(ones(2))
    WEIGHT = 0.5
    return watch


class Counts(torch.nn.Module):
    def __init__(self, start, step):
        super().__init__()
        self.value, self.step = start, step

    def forward(self, x):
        self.value += self.step
        return x * self.value


@program("04", "a module counts its calls in an int, 10 calls", "torch/_dynamo/config.py")
def an_int_of_a_module(engine):
    module = Counts(0, 1)
    watch = engine.watch(module)
    for _ in range(10):
        watch(ones(2))
    return watch, module.value


@program("04", "a module adds 0.5 to a float in each call, 10 calls", "torch/_dynamo/config.py")
def a_float_of_a_module(engine):
    module = Counts(0.0, 0.5)
    watch = engine.watch(module)
    for _ in range(10):
        watch(ones(2))
    return watch, module.value


class Plain:
    def __init__(self):
        self.value = 0


@program("04", "an int of a plain object: 1, 2, 3, 4", BUILDER)
def an_int_of_a_plain_object(engine):
    watch, plain = engine.watch(lambda x, o: x * o.value), Plain()
    for _ in range(4):
        plain.value += 1
        watch(ones(2), plain)
    return watch


@program("05", "an int in a list argument: [2], [3], [4]", BUILDER)
def an_int_in_a_list(engine):
    watch = engine.watch(lambda x, numbers: x * numbers[0])
    for n in (2, 3, 4):
        watch(ones(2), [n])
    return watch


@program("05", "an int in a dict argument: 2, 3, 4", BUILDER)
def an_int_in_a_dict(engine):
    watch = engine.watch(lambda x, d: x * d["n"])
    for n in (2, 3, 4):
        watch(ones(2), {"n": n})
    return watch


@program("05", "a default value of a lambda made anew: 0, 1, 2, 3", BUILDER)
def a_default_value(engine):
    watch = engine.watch(lambda x, g: g(x))
    for n in range(4):
        watch(ones(2), lambda y, n=n: y + n)
    return watch


@program("05", "`mark_dynamic` on a size of 1, then sizes 5 and 6 without a mark", BUILDER)
def a_mark_on_a_size_of_one(engine):
    watch = engine.watch(lambda x: x * 2)
    x = ones(1)
    engine.mark_dynamic(x, 0)
    for y in (x, ones(5), ones(6)):
        watch(y)
    return watch


@program("05", "`mark_dynamic` on a size of 0, then sizes 5 and 6", BUILDER)
def a_mark_on_a_size_of_zero(engine):
    watch = engine.watch(lambda x: x * 2)
    x = ones(0)
    engine.mark_dynamic(x, 0)
    for y in (x, ones(5), ones(6)):
        watch(y)
    return watch


@program("05", "`mark_dynamic`, and the function asks `x.size(0) == 4`", SHAPES)
def a_mark_that_the_program_breaks(engine):
    watch = engine.watch(lambda x: x * 2 if x.size(0) == 4 else x)
    x = ones(4)
    engine.mark_dynamic(x, 0)
    watch(x)
    return watch


@program("05", "`maybe_mark_dynamic`, and the function asks `x.size(0) == 4`", SHAPES)
def a_weak_mark_that_the_program_breaks(engine):
    watch = engine.watch(lambda x: x * 2 if x.size(0) == 4 else x)
    x = ones(4)
    engine.maybe_mark_dynamic(x, 0)
    watch(x)
    watch(ones(5))
    return watch


@program("05", "`mark_dynamic` on x alone, `x + y` of equal lengths", SHAPES)
def a_mark_on_one_of_two(engine):
    watch = engine.watch(lambda x, y: x + y)
    x = ones(4)
    engine.mark_dynamic(x, 0)
    watch(x, ones(4))
    return watch


@program("05", "`mark_dynamic` on both, `x + y`", SHAPES)
def a_mark_on_both(engine):
    watch = engine.watch(lambda x, y: x + y)
    for n in (4, 6):
        x, y = ones(n), ones(n)
        engine.mark_dynamic(x, 0)
        engine.mark_dynamic(y, 0)
        watch(x, y)
    return watch


@program("05", "`mark_dynamic` and `dynamic=False`: sizes 4, 5, 6", BUILDER)
def a_mark_against_dynamic_false(engine):
    watch = engine.watch(lambda x: x * 2, dynamic=False)
    for n in (4, 5, 6):
        x = ones(n)
        engine.mark_dynamic(x, 0)
        watch(x)
    return watch


@program("05", "`int(x.shape[0])` as a factor: 3, 4, 5", SHAPES)
def int_of_a_size(engine):
    return called_with_sizes(engine, lambda x: x * int(x.shape[0]), (3, 4, 5))


@program("05", "`float(x.shape[0])` as a factor: 3, 4, 5", SHAPES)
def float_of_a_size(engine):
    return called_with_sizes(engine, lambda x: x * float(x.shape[0]), (3, 4, 5))


@program("05", "`len(x)` in `range`: 3, 4, 5", SHAPES)
def a_loop_over_a_size(engine):
    def f(x):
        total = x.sum()
        for i in range(len(x)):
            total = total + i
        return total

    return called_with_sizes(engine, f, (3, 4, 5))


@program("05", "an f-string with a size: 3, 4, 5", SHAPES)
def a_size_in_a_text(engine):
    def f(x):
        return x * len(f"{x.shape[0]}")

    return called_with_sizes(engine, f, (3, 4, 5))


@program("05", "a branch `x.shape[0] > 8`: 4, 5, 16, 20, 6", SHAPES)
def a_branch_on_a_size(engine):
    return called_with_sizes(engine, lambda x: x * 2 if x.shape[0] > 8 else x, (4, 5, 16, 20, 6))


@program("05", "a branch on a size with `dynamic=True`: 4, 5, 16, 20, 6", SHAPES)
def a_branch_on_a_size_with_dynamic_true(engine):
    return called_with_sizes(
        engine, lambda x: x * 2 if x.shape[0] > 8 else x, (4, 5, 16, 20, 6), dynamic=True
    )


@program("05", "`x.view(-1, 2)` of 4, 6, 8 numbers", SHAPES)
def a_view_in_pairs(engine):
    return called_with_sizes(engine, lambda x: x.view(-1, 2) * 2, (4, 6, 8))


@program("05", "a size as a key of a dict: 3, 4, 5", SHAPES)
def a_size_as_a_key(engine):
    table = {3: 10, 4: 20, 5: 30}
    return called_with_sizes(engine, lambda x: x * table[x.shape[0]], (3, 4, 5))


@program("05", "`x.shape[0] % 2` as a factor: 4, 6, 7", SHAPES)
def a_remainder_of_a_size(engine):
    return called_with_sizes(engine, lambda x: x + x.shape[0] % 2, (4, 6, 7))


@program("05", "one dimension changes, the other stays: (2, 3), (4, 3), (5, 3), (5, 7)", BUILDER)
def one_dimension_after_the_other(engine):
    return called_with_sizes(engine, lambda x: x * 2, ((2, 3), (4, 3), (5, 3), (5, 7), (6, 8)))


@program("05", "another number of dimensions: (4,), (2, 2), (3, 3), (5,), (2, 2, 2)", BUILDER)
def another_number_of_dimensions(engine):
    return called_with_sizes(engine, lambda x: x * 2, ((4,), (2, 2), (3, 3), (5,), (2, 2, 2)))


@program("05", "a list of 2, 3, then 4 tensors", BUILDER)
def a_longer_list(engine):
    watch = engine.watch(lambda xs: sum(xs))
    for n in (2, 3, 4):
        watch([ones(2)] * n)
    return watch


@program("05", "`x[:n]` with n = 2, 3, 4", BUILDER)
def a_slice_by_an_argument(engine):
    watch = engine.watch(lambda x, n: x[:n] * 2)
    for n in (2, 3, 4):
        watch(torch.arange(6.0), n)
    return watch


@program("05", "`torch.zeros(n)` with n = 2, 3, 1, 0", BUILDER)
def a_tensor_made_of_an_argument(engine):
    watch = engine.watch(lambda x, n: torch.zeros(n) + x[0])
    for n in (2, 3, 1, 0):
        watch(ones(2), n)
    return watch


@program("05", "a parameter of another size: `weight` of 3, 4, 5 rows", "torch/_dynamo/config.py")
def a_parameter_of_another_size(engine):
    watch = engine.watch(lambda x, weight: weight.sum() + x)
    for n in (3, 4, 5):
        watch(ones(2), torch.nn.Parameter(ones(n)))
    return watch


@program(
    "05",
    "`torch._dynamo.config.assume_static_by_default = False`: sizes 3, 4",
    "torch/_dynamo/config.py",
    torch_only=True,
)
def sizes_are_not_static_by_default(engine):
    with torch._dynamo.config.patch(assume_static_by_default=False):
        return called_with_sizes(engine, lambda x: x * 2, (3, 4))


@program(
    "05",
    "`automatic_dynamic_shapes = False`: sizes 3, 4, 5",
    "torch/_dynamo/config.py",
    torch_only=True,
)
def no_automatic_dynamic_shapes(engine):
    with torch._dynamo.config.patch(automatic_dynamic_shapes=False):
        return called_with_sizes(engine, lambda x: x * 2, (3, 4, 5))


@program(
    "05",
    "`mark_static` on the second call: sizes 3, 4, 5",
    "torch/_dynamo/decorators.py",
    torch_only=True,
)
def a_mark_that_says_static(engine):
    watch = engine.watch(lambda x: x * 2)
    for n in (3, 4, 5):
        x = ones(n)
        torch._dynamo.mark_static(x, 0)
        watch(x)
    return watch


@program("05", "`mark_unbacked`, and the function asks `x.size(0) == 4`", SHAPES, torch_only=True)
def an_unbacked_size_in_a_branch(engine):
    watch = engine.watch(lambda x: x * 2 if x.size(0) == 4 else x)
    x = ones(4)
    torch._dynamo.decorators.mark_unbacked(x, 0)
    watch(x)
    return watch


@program("05", "`mark_dynamic(x, 0, min=2, max=8)`: sizes 4, 5, 16", SHAPES, torch_only=True)
def a_mark_with_bounds(engine):
    watch = engine.watch(lambda x: x * 2)
    x = ones(4)
    attempt(torch._dynamo.mark_dynamic, x, 0, min=2, max=8)
    for y in (x, ones(5), ones(16)):
        watch(y)
    return watch


@program(
    "05",
    "the stride is another: (4, 4) contiguous, transposed, expanded, offset, every other column, a part",
    BUILDER,
)
def other_strides(engine):
    watch = engine.watch(lambda x: x + 1)
    for x in (
        ones(4, 4),
        ones(4, 4).t(),
        ones(1, 4).expand(4, 4),
        ones(5, 4)[1:],
        ones(4, 8)[:, ::2],
        ones(4, 9)[:, :4],
    ):
        watch(x)
    return watch


@program("05", "`x.numel()` as a divisor: (2, 3), (4, 3), (4, 5)", SHAPES)
def the_number_of_elements(engine):
    return called_with_sizes(engine, lambda x: x.sum() / x.numel(), ((2, 3), (4, 3), (4, 5)))


@program("05", "`torch.tensor(n)` of an argument n = 2, 3, 4", BUILDER)
def a_tensor_of_an_int(engine):
    watch = engine.watch(lambda x, n: x + torch.tensor(n))
    for n in (2, 3, 4):
        watch(ones(2), n)
    return watch


@program("05", "`x.sum().item()` as a factor, four values", "torch/_dynamo/config.py")
def a_number_from_a_tensor(engine):
    watch = engine.watch(lambda x: x * x.sum().item())
    for k in (1, 2, 3, 4):
        watch(ones(3) * k)
    return watch


@program("05", "`x[x > 0]` with 2, 3, 0, 1 positive numbers", "torch/_dynamo/config.py")
def a_mask_as_index(engine):
    watch = engine.watch(lambda x: x[x > 0] * 2)
    for k in (2, 3, 0, 1):
        watch(torch.tensor([1.0] * k + [-1.0] * (4 - k)))
    return watch


@program(
    "05",
    "`capture_scalar_outputs = True`: `.item()` as a factor, four values",
    "torch/_dynamo/config.py",
    torch_only=True,
)
def a_number_from_a_tensor_kept_in_the_graph(engine):
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        watch = engine.watch(lambda x: x * x.sum().item())
        for k in (1, 2, 3, 4):
            watch(ones(3) * k)
        return watch


@program("05", "a sum of two sizes: `x.shape[0] + y.shape[0]` for (2, 3), (4, 5), (6, 7)", SHAPES)
def a_sum_of_two_sizes(engine):
    watch = engine.watch(lambda x, y: x.sum() + y.sum() * (x.shape[0] + y.shape[0]))
    for a, b in ((2, 3), (4, 5), (6, 7)):
        watch(ones(a), ones(b))
    return watch


@program("05", "`torch.cat` of two tensors, the lengths 2 + 3, 4 + 5, 6 + 1", SHAPES)
def a_cat_of_two(engine):
    watch = engine.watch(lambda x, y: torch.cat([x, y]) * 2)
    for a, b in ((2, 3), (4, 5), (6, 1)):
        watch(ones(a), ones(b))
    return watch


@program("05", "`x @ y` with inner sizes 3, 4, then a wrong one", SHAPES)
def a_product_with_a_wrong_size(engine):
    watch = engine.watch(lambda x, y: x @ y)
    for a, b in ((3, 3), (4, 4), (4, 5)):
        watch(ones(2, a), ones(b, 2))
    return watch
