"""libdevice: NVIDIA's library of functions, computed with NumPy and torch.

In:  the symbol that Triton would call (`__nv_tanhf`) and its arguments.
Out: the result in float64, rounded once to the dtype that the symbol gives.
In Triton: `triton/language/extra/cuda/libdevice.py` names the symbols; the interpreter has stubs
without a body.

The real library is right to one or two units in the last place; what is computed here is right to
half of one.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from triton.language.extra import libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.runtime import interpreter

from course_lib.simulator import formats
from course_lib.simulator.mends.arithmetic import Builder, handle_of, numbers
from course_lib.simulator.mends.table import mend, override
from course_lib.simulator.refused import NotSimulated

special = torch.special


def by_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch's as one on arrays, in float64."""

    def computed(*arrays: Any) -> Any:
        tensors = [torch.from_numpy(np.array(x, np.float64)) for x in arrays]
        return function(*tensors).numpy()

    return computed


def one_by_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of `math` as one on arrays; NaN where it has no value."""

    def value(*numbers_of_one: Any) -> float:
        try:
            return function(*(float(x) for x in numbers_of_one))
        except (ValueError, OverflowError):
            return math.nan

    return np.vectorize(value, otypes=[np.float64])


def half_away_from_zero(x: Any) -> Any:
    """C's `round`: 2.5 is 3. From 2**52 on each float64 is whole, and adding a half would round."""
    return np.trunc(x + np.copysign(np.where(np.abs(x) < 2**52, 0.5, 0.0), x))


def gamma(x: Any) -> Any:
    """tgamma: of whole numbers below 1 NaN, of 0.0 infinity.

    `lgamma` gives the logarithm of its size. Below 0 its sign changes at each whole number."""
    size = np.exp(by_torch(torch.lgamma)(x))
    odd = (x < 0) & (np.floor(x) % 2 != 0)
    return np.where((x < 0) & (x == np.floor(x)), np.nan, np.where(odd, -size, size))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(np, name) for name in """
        sin cos tan sinh cosh tanh exp exp2 expm1 log log2 log10 log1p sqrt cbrt floor ceil trunc
        rint fabs hypot copysign fmod isnan isinf isfinite signbit""".split()},
    **{name: getattr(np, "arc" + name[1:]) for name in "asin acos atan atan2 asinh acosh atanh".split()},
    "exp10": lambda x: np.power(10.0, x),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "rhypot": lambda x, y: 1 / np.hypot(x, y),
    "norm3d": lambda x, y, z: np.sqrt(x * x + y * y + z * z),
    "norm4d": lambda x, y, z, w: np.sqrt(x * x + y * y + z * z + w * w),
    "rnorm3d": lambda x, y, z: 1 / np.sqrt(x * x + y * y + z * z),
    "rnorm4d": lambda x, y, z, w: 1 / np.sqrt(x * x + y * y + z * z + w * w),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2.0)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2.0)),
    "pow": np.power,
    "powi": np.power,
    "ldexp": lambda x, n: np.ldexp(x, np.asarray(n, np.int64)),
    "scalbn": lambda x, n: np.ldexp(x, np.asarray(n, np.int64)),
    "ilogb": lambda x: np.floor(np.log2(np.abs(x))),
    "logb": lambda x: np.floor(np.log2(np.abs(x))),
    "fdim": lambda x, y: np.where(x > y, x - y, np.where(np.isnan(x + y), np.nan, 0.0)),
    "remainder": one_by_one(math.remainder),
    "fma": lambda x, y, z: x * y + z,
    "round": half_away_from_zero,
    "llround": half_away_from_zero,
    "nearbyint": np.rint,
    "llrint": np.rint,
    "saturate": lambda x: np.where(np.isnan(x), 0.0, np.clip(x, 0.0, 1.0)),
    "fdivide": np.divide,
    "erf": by_torch(special.erf),
    "erfc": by_torch(special.erfc),
    "erfcx": by_torch(special.erfcx),
    "erfinv": by_torch(special.erfinv),
    "erfcinv": lambda x: by_torch(special.erfinv)(1 - x),
    "normcdf": lambda x: 0.5 * by_torch(special.erfc)(-x / math.sqrt(2)),
    "normcdfinv": by_torch(special.ndtri),
    "lgamma": by_torch(torch.lgamma),
    "tgamma": gamma,
    "cyl_bessel_i0": by_torch(special.i0),
    "cyl_bessel_i1": by_torch(special.i1),
    "j0": by_torch(special.bessel_j0),
    "j1": by_torch(special.bessel_j1),
    "y0": by_torch(special.bessel_y0),
    "y1": by_torch(special.bessel_y1),
    "finite": np.isfinite,
}  # fmt: skip
"""Name without `__nv_` and without the letter of its dtype → the function, on float64."""

ON_BITS: dict[str, Callable[..., Any]] = {
    "nextafter": np.nextafter,
    "nextafterf": np.nextafter,
    "abs": np.abs,
    "llabs": np.abs,
    "popc": lambda x: bits_of(x).sum(-1),
    "mulhi": lambda a, b: (a.astype(np.int64) * b) >> 32,
    "umulhi": lambda a, b: (a.astype(np.uint64) * b) >> np.uint64(32),
    "hadd": lambda a, b: (a.astype(np.int64) + b) >> 1,
    "rhadd": lambda a, b: (a.astype(np.int64) + b + 1) >> 1,
    "sad": lambda a, b, c: np.abs(a.astype(np.int64) - b) + c,
    "usad": lambda a, b, c: np.abs(a.astype(np.int64) - b) + c,
    "clz": lambda x: leading_zeros(x),
    "clzll": lambda x: leading_zeros(x),
    "ffs": lambda x: lowest_bit(x),
    "ffsll": lambda x: lowest_bit(x),
    "brev": lambda x: reversed_bits(x),
    "brevll": lambda x: reversed_bits(x),
    "popcll": lambda x: bits_of(x).sum(-1),
    "float_as_int": lambda x: x.view(np.int32),
    "float_as_uint": lambda x: x.view(np.uint32),
    "int_as_float": lambda x: x.view(np.float32),
    "uint_as_float": lambda x: x.view(np.float32),
    "double_as_longlong": lambda x: x.view(np.int64),
    "longlong_as_double": lambda x: x.view(np.float64),
}  # fmt: skip
"""Functions on integers and on bits: they get the arrays as they are."""

EXACT = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "sqrt": np.sqrt}
"""`__nv_fadd_rn`, `__nv_ddiv_rn`, ...: rounded once to the nearest, which is what NumPy does."""


ROUND = {"rn": np.rint, "rz": np.trunc, "ru": np.ceil, "rd": np.floor}
"""The end of a symbol → how it rounds to a whole number."""


def to_integer(rounded: Callable[..., Any]) -> Callable[..., Any]:
    """A function that rounds, and marks its result as one that becomes an integer."""
    return lambda x: WholeNumbers(rounded(x))


@dataclass
class WholeNumbers:
    """Floats that become integers: what does not fit saturates."""

    values: Any


def bits_of(x: Any) -> Any:
    """Each integer's bits, the lowest first, along a new last axis."""
    unsigned = np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")
    places = np.arange(8 * x.dtype.itemsize, dtype=unsigned.dtype)
    return (unsigned[..., None] >> places) & np.array(1, unsigned.dtype)


def leading_zeros(x: Any) -> Any:
    """How many zeros stand before the highest 1; all of them where there is none."""
    bits = bits_of(x)[..., ::-1]
    return np.where(bits.any(-1), bits.argmax(-1), bits.shape[-1])


def lowest_bit(x: Any) -> Any:
    """The place of the lowest 1, counted from 1; 0 where there is none."""
    bits = bits_of(x)
    return np.where(bits.any(-1), bits.argmax(-1) + 1, 0)


def reversed_bits(x: Any) -> Any:
    """The same bits, the lowest first."""
    bits = bits_of(x)[..., ::-1]
    places = np.arange(bits.shape[-1], dtype=bits.dtype)
    return (bits << places).sum(-1, dtype=bits.dtype).view(x.dtype)


@functools.cache
def function_of(symbol: str) -> tuple[Callable[..., Any], bool]:
    """What `__nv_tanhf` computes, and whether it gets its arguments as they are."""
    name = symbol.removeprefix("__nv_")
    if name in ON_BITS:
        return ON_BITS[name], True

    if converts := re.fullmatch(r"(?:float|double)2u?(?:int|ll)_(r[nzud])", name):
        return to_integer(ROUND[converts[1]]), True

    exact = name.removesuffix("_rn")
    if exact != name and exact[1:] in EXACT:
        return EXACT[exact[1:]], True

    name = name.removeprefix("fast_")
    for candidate in (name, name.removesuffix("f"), name.removesuffix("d")):
        if candidate in FUNCTIONS:
            return FUNCTIONS[candidate], False
    raise NotSimulated(f"libdevice's `{symbol}` is not simulated: it needs a GPU")


@mend("libdevice", "its functions have no body (TypeError), `extern_elementwise` is not there")
def compute_libdevice() -> None:
    def create_extern_elementwise(
        self: Any, name: str, path: str, symbol: str, arguments: Any, kind: Any, pure: bool
    ) -> Any:
        function, as_they_are = function_of(symbol)
        arrays = [numbers(x) for x in arguments]
        if not as_they_are:
            arrays = [x.astype(np.float64) for x in arrays]
        return handle_of(as_dtype(function(*arrays), kind.scalar), kind.scalar)

    override(Builder, create_extern_elementwise=create_extern_elementwise)
    for name, function in vars(cuda_libdevice).items():
        if getattr(function, "__triton_builtin__", False):
            setattr(cuda_libdevice, name, in_a_kernel(function))
            if hasattr(libdevice, name):
                stub = in_a_kernel(function)
                stub.__module__ = libdevice.__name__
                setattr(libdevice, name, stub)


def as_dtype(values: Any, dtype: Any) -> Any:
    """A truth value is 1 or 0 here, as in C."""
    if isinstance(values, WholeNumbers):
        return formats.float_to_integer(values.values, interpreter._get_np_dtype(dtype))
    values = np.asarray(values)
    if values.dtype == np.bool_:
        return values.astype(interpreter._get_np_dtype(dtype))
    return values


def in_a_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with the interpreter's semantics where the compiler gives no other."""

    @functools.wraps(function)
    def called(*arguments: Any, _semantic: Any = None, **named: Any) -> Any:
        return function(
            *arguments, _semantic=_semantic or interpreter.interpreter_semantic, **named
        )

    return called
