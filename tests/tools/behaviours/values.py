"""Lessons 07, 08 and 10: what the machine code gives, number by number, and how many kernels there are."""

import torch
import torch.nn.functional as F
from kit import NOTHING, attempt, beside_eager, program, text
from torch import nn

DECOMPOSITIONS = "torch/_inductor/decomposition.py"
LOWERING = "torch/_inductor/lowering.py"
CPP = "torch/_inductor/codegen/cpp.py"
CPP_VEC = "torch/csrc/inductor/cpp_prefix.h"
PASSES = "torch/_inductor/fx_passes/joint_graph.py"
LAYOUT = "torch/_inductor/ir.py"
ones, tensor = torch.ones, torch.tensor
INF, NAN = float("inf"), float("nan")


def together(engine, cases, *args):
    """Compile one function that does all of `cases`; each result as text with all its digits."""
    names = list(cases)

    def f(*args):
        return [cases[name](*args) for name in names]

    results = attempt(engine.compile(f), *args)
    if isinstance(results, str):
        return results
    return tuple(f"{name}: {digits(result)}" for name, result in zip(names, results, strict=True))


def digits(result):
    """All digits, and the dtype where it is not float32."""
    kind = "" if result.dtype is torch.float32 else str(result.dtype).removeprefix("torch.") + " "
    wide = result.float() if result.is_floating_point() and result.dtype.itemsize < 4 else result
    items = wide.reshape(-1).tolist()
    return (
        kind + "[" + ", ".join(f"{v:.9g}" if isinstance(v, float) else str(v) for v in items) + "]"
    )


ZEROS = tensor([0.0, -0.0, 1.0, -1.0])


@program("10", "the sign of zero in sums, products and negation of [0.0, -0.0, 1.0, -1.0]", PASSES)
def zero_in_arithmetic(engine):
    cases = {
        "x + 0.0": lambda x: x + 0.0,
        "x - 0.0": lambda x: x - 0.0,
        "x * 1": lambda x: x * 1,
        "x * 0": lambda x: x * 0,
        "-x": lambda x: -x,
        "0 - x": lambda x: 0 - x,
        "x / 1": lambda x: x / 1,
    }
    return together(engine, cases, ZEROS)


@program("10", "the sign of zero in abs, relu, maximum, minimum, clamp", CPP_VEC)
def zero_in_comparisons(engine):
    cases = {
        "abs": lambda x: x.abs(),
        "relu": lambda x: x.relu(),
        "maximum(x, -x)": lambda x: torch.maximum(x, -x),
        "minimum(x, -x)": lambda x: torch.minimum(x, -x),
        "clamp(min=0.0)": lambda x: x.clamp(min=0.0),
        "clamp(min=-0.0)": lambda x: x.clamp(min=-0.0),
        "where(x == 0, 0.0, x)": lambda x: torch.where(x == 0, 0.0, x),
        "sign": lambda x: x.sign(),
    }
    return together(engine, cases, ZEROS)


@program("10", "the sign of zero in rounding and remainders", LOWERING)
def zero_in_rounding(engine):
    cases = {
        "(x / 3).round()": lambda x: (x / 3).round(),
        "(x / 3).trunc()": lambda x: (x / 3).trunc(),
        "(x / 3).ceil()": lambda x: (x / 3).ceil(),
        "x % 1": lambda x: x % 1,
        "x.fmod(1)": lambda x: x.fmod(1),
        "x // 2": lambda x: x // 2,
    }
    return together(engine, cases, ZEROS)


@program("10", "the sign of zero in functions", CPP_VEC)
def zero_in_functions(engine):
    cases = {
        "sin": lambda x: x.sin(),
        "tanh": lambda x: x.tanh(),
        "expm1": lambda x: x.expm1(),
        "log1p": lambda x: (x / 2).log1p(),
        "pow 3": lambda x: x.pow(3),
        "hardswish": F.hardswish,
        "sqrt": lambda x: x[:3].sqrt(),
    }
    return together(engine, cases, ZEROS)


@program("10", "the sign of zero in reductions of [-0.0, -0.0] and [-0.0, 0.0]", CPP)
def zero_in_reductions(engine):
    cases = {
        "sum": lambda x, y: x.sum(),
        "prod": lambda x, y: x.prod(),
        "max": lambda x, y: y.max(),
        "min": lambda x, y: y.min(),
        "mean": lambda x, y: x.mean(),
    }
    return together(engine, cases, tensor([-0.0, -0.0]), tensor([-0.0, 0.0]))


@program("10", "NaN in maximum, fmax, clamp, sort, max, argmax", CPP_VEC)
def nan_in_comparisons(engine):
    cases = {
        "maximum": lambda x: torch.maximum(x, x.flip(0)),
        "fmax": lambda x: torch.fmax(x, x.flip(0)),
        "clamp": lambda x: x.clamp(0, 2),
        "relu": lambda x: x.relu(),
        "max": lambda x: x.max(),
        "argmax": lambda x: x.argmax(),
        "argmin": lambda x: x.argmin(),
        "sign": lambda x: x.sign(),
        "x == x": lambda x: x == x,
        "nan_to_num": lambda x: x.nan_to_num(),
    }
    return together(engine, cases, tensor([1.0, NAN, 3.0, -INF]))


@program("10", "sums and products with infinity", CPP)
def infinity(engine):
    cases = {
        "sum": lambda x: x.sum(),
        "softmax": lambda x: x.softmax(0),
        "x - x": lambda x: x - x,
        "x * 0": lambda x: x * 0,
        "sigmoid": lambda x: x.sigmoid(),
        "logsumexp": lambda x: x.logsumexp(0),
        "tanh": lambda x: x.tanh(),
    }
    return together(engine, cases, tensor([1.0, INF, 2.0, -INF]))


@program("10", "casts of nan, inf, 1e20, 300.7, -1.5 to integers", CPP_VEC)
def casts_to_integers(engine):
    v = tensor([NAN, INF, -INF, 1e20, -1e20, 300.7, -1.5, 2.5])
    kinds = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    return together(engine, {str(d)[6:]: (lambda x, d=d: x.to(d)) for d in kinds}, v)


@program(
    "10",
    "casts of nan, inf, 1e20, 300.7, -1.5 to integers, 32 numbers, which go through vectors",
    CPP_VEC,
)
def casts_to_integers_in_vectors(engine):
    v = tensor([NAN, INF, -INF, 1e20, -1e20, 300.7, -1.5, 2.5]).repeat(4)
    kinds = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
    return together(engine, {str(d)[6:]: (lambda x, d=d: x.to(d)[:8].clone()) for d in kinds}, v)


@program("10", "casts to smaller floats: float16, bfloat16, float8", CPP_VEC)
def casts_to_small_floats(engine):
    v = tensor([NAN, INF, 1e20, 65520.0, 1.00390625, 500.0, 1e-8])
    kinds = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)
    return together(engine, {str(d)[6:]: (lambda x, d=d: x.to(d).float()) for d in kinds}, v)


@program("10", "2**53 + 1 as float32 and float64; 1e300 as float32", CPP)
def casts_of_large_numbers(engine):
    cases = {
        "float32": lambda i, d: i.float(),
        "float64": lambda i, d: i.double(),
        "1e300": lambda i, d: d.float(),
    }
    return together(engine, cases, tensor([2**53 + 1]), tensor([1e300], dtype=torch.float64))


@program("10", "integers that overflow", CPP)
def integers_that_overflow(engine):
    cases = {
        "int8 100 + 100": lambda a, b, c, d: a + a,
        "uint8 3 - 5": lambda a, b, c, d: b - 5,
        "int32 max + 1": lambda a, b, c, d: c + 1,
        "-(int64 min)": lambda a, b, c, d: -d,
        "abs(int64 min)": lambda a, b, c, d: d.abs(),
        "int8 100 ** 3": lambda a, b, c, d: a**3,
        "int8 * 1.5": lambda a, b, c, d: a * 1.5,
    }
    numbers = (
        tensor([100], dtype=torch.int8),
        tensor([3], dtype=torch.uint8),
        tensor([2**31 - 1], dtype=torch.int32),
    )
    return together(engine, cases, *numbers, tensor([-(2**63)]))


@program("10", "division and remainder of -7, 7, -7 by 2, -2, -2", LOWERING)
def integer_division(engine):
    cases = {
        "//": lambda a, b: a // b,
        "%": lambda a, b: a % b,
        "fmod": torch.fmod,
        "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
        "/": lambda a, b: a / b,
        "floats //": lambda a, b: a.float() // b.float(),
        "floats %": lambda a, b: a.float() % b.float(),
    }
    return together(engine, cases, tensor([-7, 7, -7]), tensor([2, -2, -2]))


@program("10", "shifts by 65 and by -1, of 1 and -1", LOWERING)
def shifts(engine):
    cases = {
        "<< 65": lambda x: x << 65,
        ">> 65": lambda x: x >> 65,
        "<< -1": lambda x: x << -1,
        ">> 1": lambda x: x >> 1,
        "int32 << 31": lambda x: x.int() << 31,
    }
    return together(engine, cases, tensor([1, -1]))


@program("10", "integer division by zero", CPP)
def integer_division_by_zero(engine):
    return beside_eager(engine, lambda x: x // 0, tensor([1, -1]))


@program("10", "integer remainder by zero", CPP)
def integer_remainder_by_zero(engine):
    return beside_eager(engine, lambda x: x % 0, tensor([1, -1]))


@program("10", "the dtype of sums, means and products of int8, bool, int32", LOWERING)
def dtypes_of_reductions(engine):
    cases = {
        "sum int8": lambda a, b: a.sum(),
        "sum bool": lambda a, b: b.sum(),
        "prod int8": lambda a, b: a.prod(),
        "cumsum bool": lambda a, b: b.cumsum(0),
        "any": lambda a, b: a.any(),
        "bool + bool": lambda a, b: b + b,
        "bool * bool": lambda a, b: b * b,
    }
    return together(engine, cases, tensor([100, 100], dtype=torch.int8), tensor([True, False]))


@program("07", "the mean of integers", LOWERING)
def the_mean_of_integers(engine):
    return beside_eager(engine, lambda x: x.mean(), tensor([1, 2]))


@program("07", "`argmax` of a bool tensor", LOWERING)
def argmax_of_a_bool(engine):
    return beside_eager(engine, lambda x: x.argmax(), tensor([False, True, True]))


@program("07", "integers to a negative power", LOWERING)
def a_negative_power_of_integers(engine):
    return beside_eager(engine, lambda x: x**-1, tensor([1, -1]))


# ---- nothing to reduce ----------------------------------------------------------------------------------------------


def empties():
    """A program for each reduction of nothing."""
    cases = {
        "sum_of_nothing": ("x.sum()", lambda x: x.sum(), (0,)),
        "mean_of_nothing": ("x.mean()", lambda x: x.mean(), (0,)),
        "prod_of_nothing": ("x.prod()", lambda x: x.prod(), (0,)),
        "max_of_nothing": ("x.max()", lambda x: x.max(), (0,)),
        "amax_of_nothing": ("x.amax()", lambda x: x.amax(), (0,)),
        "argmax_of_nothing": ("x.argmax()", lambda x: x.argmax(), (0,)),
        "std_of_nothing": ("x.std()", lambda x: x.std(), (0,)),
        "softmax_of_nothing": ("x.softmax(0)", lambda x: x.softmax(0), (0,)),
        "max_of_no_rows": ("x.max(0).values", lambda x: x.max(0).values, (0, 3)),
        "max_of_no_rows_by_row": ("x.max(1).values", lambda x: x.max(1).values, (0, 3)),
        "mean_of_no_columns": ("x.mean(1)", lambda x: x.mean(1), (3, 0)),
        "amax_of_no_columns": ("x.amax(1)", lambda x: x.amax(1), (3, 0)),
    }
    for name, (said, f, shape) in cases.items():

        def play(engine, f=f, shape=shape):
            return beside_eager(engine, f, torch.ones(shape))

        play.__name__ = name
        program("07", f"`{said}`, shape {shape}: nothing to reduce", LOWERING)(play)


empties()


@program("07", "`x.std()` of one number", LOWERING)
def std_of_one_number(engine):
    return beside_eager(engine, lambda x: x.std(), ones(1))


# ---- layouts --------------------------------------------------------------------------------------------------------


def stride_of(engine, f, *args):
    result = attempt(engine.compile(f), *args)
    return result if isinstance(result, str) else str(result.stride())


CHANNELS_LAST = ones(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)


@program("07", "strides of `x + 1`, x channels_last (2, 3, 4, 5)", LAYOUT)
def strides_of_channels_last(engine):
    return stride_of(engine, lambda x: x + 1, CHANNELS_LAST)


@program("07", "strides of `cat([x, x])`, x channels_last", LAYOUT)
def strides_of_a_cat_with_itself(engine):
    return stride_of(engine, lambda x: torch.cat([x, x]), CHANNELS_LAST)


@program("07", "strides of `x.permute(2, 0, 1) + 1`", LAYOUT)
def strides_of_a_permuted(engine):
    return stride_of(engine, lambda x: x.permute(2, 0, 1) + 1, ones(2, 3, 4))


@program("07", "strides of `x + 1`, x expanded from one row", LAYOUT)
def strides_of_an_expanded(engine):
    return stride_of(engine, lambda x: x + 1, ones(1, 4).expand(3, 4))


@program("07", "strides of `x.t() + y`", LAYOUT)
def strides_of_a_sum_of_two_layouts(engine):
    return stride_of(engine, lambda x, y: x.t() + y, ones(3, 4), ones(4, 3))


@program("07", "strides of `x[:, ::2] + 1`", LAYOUT)
def strides_of_every_other_column(engine):
    return stride_of(engine, lambda x: x[:, ::2] + 1, ones(4, 6))


@program("07", "strides of `x.sum(0, keepdim=True)`, x transposed", LAYOUT)
def strides_of_a_sum(engine):
    return stride_of(engine, lambda x: x.sum(0, keepdim=True), ones(3, 4).t())


@program("07", "strides of `empty_like(x).fill_(1)`, x permuted", LAYOUT)
def strides_of_empty_like(engine):
    return stride_of(engine, lambda x: torch.empty_like(x).fill_(1), ones(3, 4, 2).permute(2, 0, 1))


@program("07", "strides of a convolution of a channels_last image", LAYOUT)
def strides_of_a_convolution(engine):
    conv = nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        return stride_of(
            engine,
            lambda x: conv(x),
            CHANNELS_LAST[:, :, :, :4].contiguous(memory_format=torch.channels_last),
        )


# ---- an index that is wrong -----------------------------------------------------------------------------------------


@program("07", "`x[i]` with an index tensor that is out of range", LOWERING)
def an_index_out_of_range(engine):
    return beside_eager(engine, lambda x, i: x[i] + 1, torch.arange(4.0), tensor([1, 7]))


@program("07", "`x[i]` with a negative index", LOWERING)
def a_negative_index(engine):
    return beside_eager(engine, lambda x, i: x[i] + 1, torch.arange(4.0), tensor([-1, 0]))


@program("07", "an embedding of a number that is too large", LOWERING)
def an_embedding_out_of_range(engine):
    return beside_eager(
        engine, lambda w, i: F.embedding(i, w) * 2, torch.ones(4, 2), tensor([1, 9])
    )


@program("07", "`scatter_add` to one place by all", LOWERING)
def scatter_add_to_one_place(engine):
    f = lambda x, i: torch.zeros(3).scatter_add(0, i, x)
    return text(attempt(engine.compile(f), torch.arange(6.0), torch.zeros(6, dtype=torch.int64)))


@program("07", "`index_put` with two values for one place", LOWERING)
def index_put_with_two_values(engine):
    f = lambda x, i, v: x.index_put((i,), v)
    return text(attempt(engine.compile(f), torch.zeros(3), tensor([1, 1]), tensor([5.0, 7.0])))


# ---- rounding -------------------------------------------------------------------------------------------------------


def random_bfloat16():
    return [torch.randn(1000).to(torch.bfloat16) for _ in range(3)]


@program("10", "bfloat16 `(x + y) + z`: eager's bits?", CPP)
def a_chain_of_bfloat16(engine):
    return beside_eager(engine, lambda x, y, z: (x + y) + z, *random_bfloat16())[:15]


@program("10", "bfloat16 `x.exp().log()`: eager's bits?", CPP)
def functions_of_bfloat16(engine):
    return beside_eager(engine, lambda x: x.exp().log(), random_bfloat16()[0])[:15]


@program("10", "bfloat16 softmax: eager's bits?", CPP)
def softmax_of_bfloat16(engine):
    return beside_eager(engine, lambda x: x.softmax(0), random_bfloat16()[0])[:15]


@program("10", "bfloat16 sum of 1000: eager's bits?", CPP)
def a_sum_of_bfloat16(engine):
    return beside_eager(engine, lambda x: x.sum(), random_bfloat16()[0])[:15]


@program("10", "float16 `(x * 100).sum()`: eager's bits?", CPP)
def a_sum_of_float16(engine):
    return beside_eager(engine, lambda x: (x * 100).sum(), torch.randn(1000).half())[:15]


@program("10", "float32 sum of 1000: eager's bits?", CPP)
def a_sum_of_float32(engine):
    return beside_eager(engine, lambda x: x.sum(), torch.randn(1000))[:15]


@program("10", "float32 `x * y + z`: eager's bits (no fused multiply-add)?", CPP)
def multiply_and_add(engine):
    return beside_eager(engine, lambda x, y, z: x * y + z, *(torch.randn(1000) for _ in range(3)))[
        :15
    ]


@program("10", "float32 mean and var of 1000: eager's bits?", CPP)
def a_variance(engine):
    return beside_eager(engine, lambda x: x.var() + x.mean(), torch.randn(1000))[:15]


@program("10", "float32 layer_norm: eager's bits?", CPP)
def layer_norm(engine):
    return beside_eager(engine, lambda x: F.layer_norm(x, (64,)), torch.randn(8, 64))[:15]


# ---- kernels --------------------------------------------------------------------------------------------------------


def kernels(name, said, make):
    """A program that counts the kernels that TorchInductor writes for one function."""

    def play(engine):
        f = make()
        if engine.name == "eager":
            return NOTHING
        from torch._inductor import metrics

        metrics.reset()
        with torch.no_grad():
            result = attempt(engine.compile(f))
        return result if isinstance(result, str) else f"{metrics.generated_kernel_count} kernels"

    play.__name__ = "kernels_of_" + name
    program(
        "08",
        f"TorchInductor's `generated_kernel_count` for `{said}`, 64 × 64",
        "torch/_inductor/codegen/common.py",
        torch_only=True,
    )(play)


def count_kernels():
    x, y, index = torch.randn(64, 64), torch.randn(64, 64), torch.arange(64) % 7
    kernels("a_softmax", "x.softmax(1)", lambda: lambda: x.softmax(1))
    kernels("a_layer_norm", "layer_norm(x)", lambda: lambda: F.layer_norm(x, (64,)))
    kernels("a_cumsum", "x.cumsum(1)", lambda: lambda: x.cumsum(1))
    kernels("a_sort", "x.sort(1).values", lambda: lambda: x.sort(1).values)
    kernels("a_cat", "cat([x, y + 1]) * 2", lambda: lambda: torch.cat([x, y + 1]) * 2)
    kernels("two_sums", "x.sum(0) + x.sum(1)", lambda: lambda: x.sum(0) + x.sum(1))
    kernels("a_product", "(x @ x).relu()", lambda: lambda: (x @ x).relu())
    kernels("a_gather", "x[index] + 1", lambda: lambda: x[index] + 1)
    kernels("a_topk", "x.topk(3).values", lambda: lambda: x.topk(3).values)
    kernels("a_transpose", "x.t() + x", lambda: lambda: x.t() + x)
    kernels("a_cross_entropy", "cross_entropy(x, index)", lambda: lambda: F.cross_entropy(x, index))


count_kernels()
