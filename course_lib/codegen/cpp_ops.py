"""How each operation of a loop body is spelled in C++.

In:  one `Expr`.
Out: its text and how tightly it binds, so that as few parentheses as possible are printed.

Most operations are infix or a call of a function with the operation's own name, which `prelude.h` defines; the methods
below are the rest. float16 and bfloat16 exist only in memory: they are computed as float, and `rounded<...>` stands where
the program asked for the narrow type.

In PyTorch: `torch/_inductor/codegen/cpp.py`, `CppOverrides` and `CppVecOverrides`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch

from course_lib.codegen.expressions import Expr
from course_lib.codegen.printer import ATOM, Printer, shortest
from course_lib.lowering.ir import Buffer

STORED = {
    torch.float32: "float", torch.float64: "double", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int8: "int8_t", torch.int16: "int16_t", torch.int32: "int32_t", torch.int64: "int64_t",
    torch.uint8: "uint8_t", torch.bool: "bool",
}  # fmt: skip
HALVES = (torch.float16, torch.bfloat16)
NARROW = (torch.int8, torch.int16, torch.uint8, torch.bool)
"""C++ computes these as int: what does not fit must be cut off again."""

RESERVED = (
    "auto bool break case char const continue default do double else enum extern false float for goto if inline int long "
    "register return short signed sizeof static struct switch this true typedef union unsigned void volatile while new delete "
    "and or not xor class template typename namespace operator private public try catch throw using "
    "int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t float16 bfloat16 buffers sizes problem "
    "lane lanes first each block end "
    "bits_of float_of fma rounded exp log sin cos pow atan2 fmod erf erfc tanh exp2 expm1 log2 log10 log1p tan asin acos atan "
    "sinh cosh asinh acosh atanh sqrt floor ceil trunc round sigmoid rsqrt maximum minimum sign abs isnan isinf floordiv mod "
    "nothing from_integer integer_pow left_shift right_shift checked INFINITY NAN INLINE "
    "expf logf sinf cosf powf atan2f fmodf erff erfcf tanhf "
    "exp2f expm1f log2f log10f log1pf tanf asinf acosf atanf sinhf coshf asinhf acoshf atanhf"
).split()

CAST = 15
UNARY = 14
SUM = 12
TERNARY = 3


def computed_as(dtype: torch.dtype) -> str:
    """The C++ type that values of `dtype` have between load and store."""
    return "float" if dtype in HALVES else STORED[dtype]


class CppOps(Printer):
    """The table of operators, and one method for each operation that is neither infix nor a plain call."""

    comment = "//"
    infix: ClassVar = {
        "mul": ("*", 13), "truediv": ("/", 13), "add": ("+", 12), "sub": ("-", 12),
        "lt": ("<", 10), "gt": (">", 10), "le": ("<=", 10), "ge": (">=", 10), "eq": ("==", 9), "ne": ("!=", 9),
        "bitwise_and": ("&", 8), "bitwise_xor": ("^", 7), "bitwise_or": ("|", 6),
    }  # fmt: skip

    buffers: Mapping[str, Buffer]
    pointers: dict[str, str]
    """Buffer → the name of its pointer."""

    def declare(self, name: str, dtype: torch.dtype, text: str) -> str:
        return f"const {computed_as(dtype)} {name} = {text};"

    def floor_division(self, a: str, b: str) -> str:
        return f"{a} / {b}"  # index formulas are never negative

    def spell(self, expr: Expr) -> tuple[str, int]:
        text, binds = super().spell(expr)
        if expr.op in ("add", "sub", "mul", "neg", "bitwise_not") and expr.dtype in NARROW:
            return f"({STORED[expr.dtype]})({text})", CAST
        return text, binds

    def call(self, expr: Expr, function: str, *more: str) -> tuple[str, int]:
        operands = expr.args[0].dtype
        template = "" if operands.is_floating_point else f"<{STORED[operands]}>"
        return f"{function}{template}({', '.join([*map(self.text, expr.args), *more])})", ATOM

    # --- where values come from --------------------------------------------------------------------------------------

    def print_load(self, expr: Expr) -> tuple[str, int]:
        buffer, index = expr.detail
        element = f"{self.pointers[buffer]}[{self.index(index)}]"
        return (f"(float){element}", CAST) if expr.dtype in HALVES else (element, ATOM)

    def print_constant(self, expr: Expr) -> tuple[str, int]:
        text = number(expr.detail, expr.dtype)
        return text, UNARY if text.startswith("-") else ATOM

    def print_index_expr(self, expr: Expr) -> tuple[str, int]:
        return f"({computed_as(expr.dtype)})({self.index(expr.detail)})", CAST

    def print_indirect(self, expr: Expr) -> tuple[str, int]:
        size, wrap = expr.detail
        return f"{'wrapped' if wrap else 'checked'}({self.text(expr.args[0])}, {self.index(size)}, problem)", ATOM

    # --- choices -----------------------------------------------------------------------------------------------------

    def print_where(self, expr: Expr) -> tuple[str, int]:
        condition, yes, no = expr.args
        return f"{self.text(condition, 4)} ? {self.text(yes, 4)} : {self.text(no, TERNARY)}", TERNARY

    def print_masked(self, expr: Expr) -> tuple[str, int]:
        condition = self.text(expr.args[0], 4)
        self.guarded += 1  # what is loaded here must not move out in front of the condition
        body = self.text(expr.args[1], 4)
        self.guarded -= 1
        return f"{condition} ? {body} : {number(expr.detail, expr.dtype)}", TERNARY

    # --- conversions -------------------------------------------------------------------------------------------------

    def print_to_dtype(self, expr: Expr) -> tuple[str, int]:
        (value,), target = expr.args, expr.dtype
        if target == torch.bool:
            return f"{self.text(value, 10)} != 0", 9
        if target in HALVES:
            float32 = (
                self.text(value) if computed_as(value.dtype) == "float" else f"from_integer<float>({self.text(value)})"
            )
            float32 = f"(float)({self.text(value)})" if value.dtype == torch.float64 else float32
            return f"rounded<{STORED[target]}>({float32})", ATOM
        if computed_as(value.dtype) == STORED[target]:
            return self.text(value, CAST), CAST
        if target.is_floating_point and not value.dtype.is_floating_point and value.op not in ("load", "constant"):
            return f"from_integer<{STORED[target]}>({self.text(value)})", ATOM
        text = self.text(value, CAST)
        if value.dtype.is_floating_point and target in NARROW:
            text = f"({'int64_t' if target == torch.uint8 else 'int32_t'}){text}"
        return f"({STORED[target]}){text}", CAST

    # --- arithmetic --------------------------------------------------------------------------------------------------

    def print_neg(self, expr: Expr) -> tuple[str, int]:
        return f"-{self.text(expr.args[0], CAST)}", UNARY

    def print_reciprocal(self, expr: Expr) -> tuple[str, int]:
        return f"1 / {self.text(expr.args[0], 14)}", 13

    def print_pow(self, expr: Expr) -> tuple[str, int]:
        return self.call(expr, "pow" if expr.dtype.is_floating_point else "integer_pow")

    def print_whole_number(self, expr: Expr) -> tuple[str, int]:
        if expr.dtype.is_floating_point:
            return self.call(expr, expr.op)
        return self.text(expr.args[0], ATOM), ATOM

    print_floor = print_ceil = print_trunc = print_round = print_whole_number

    def print_division(self, expr: Expr) -> tuple[str, int]:
        return self.call(expr, expr.op, *(["problem"] if can_fail(expr) else []))

    print_floordiv = print_mod = print_fmod = print_division

    def print_plain_call(self, expr: Expr) -> tuple[str, int]:
        return self.call(expr, expr.op)

    print_maximum = print_minimum = print_sign = print_abs = print_left_shift = print_right_shift = print_plain_call
    print_isnan = print_plain_call

    def print_isinf(self, expr: Expr) -> tuple[str, int]:
        return self.call(expr, "isinf") if expr.args[0].dtype.is_floating_point else ("false", ATOM)

    # --- logic -------------------------------------------------------------------------------------------------------

    def truth(self, expr: Expr, binding: int) -> str:
        return self.text(expr, binding) if expr.dtype == torch.bool else f"({self.text(expr, 10)} != 0)"

    def print_logical_and(self, expr: Expr) -> tuple[str, int]:
        return f"{self.truth(expr.args[0], 8)} & {self.truth(expr.args[1], 9)}", 8

    def print_logical_or(self, expr: Expr) -> tuple[str, int]:
        return f"{self.truth(expr.args[0], 6)} | {self.truth(expr.args[1], 7)}", 6

    def print_logical_xor(self, expr: Expr) -> tuple[str, int]:
        return f"{self.truth(expr.args[0], 7)} ^ {self.truth(expr.args[1], 8)}", 7

    def print_logical_not(self, expr: Expr) -> tuple[str, int]:
        return f"!{self.truth(expr.args[0], CAST)}", UNARY

    def print_bitwise_not(self, expr: Expr) -> tuple[str, int]:
        return f"{'!' if expr.dtype == torch.bool else '~'}{self.text(expr.args[0], CAST)}", UNARY


def can_fail(expr: Expr) -> bool:
    """True for what eager would raise an error for, depending on the data."""
    if expr.op == "indirect":
        return True
    if expr.op in ("floordiv", "mod", "fmod") and not expr.dtype.is_floating_point:
        divisor = expr.args[1]
        return not (divisor.op == "constant" and divisor.detail != 0)
    return False


def number(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant as C++ source, as short as keeps it exact."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if not dtype.is_floating_point:
        value = int(value)
        return "INT64_MIN" if value == -(2**63) else f"{value}LL" if abs(value) >= 2**31 else str(value)
    if math.isnan(value):
        return "NAN"
    if dtype != torch.float64 and abs(value) > 3.4028235677973366e38:
        value = math.copysign(math.inf, value)
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return shortest(value, dtype) + ("" if dtype == torch.float64 else "f")
