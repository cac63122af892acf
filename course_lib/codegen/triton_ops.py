"""How each operation of a loop body is spelled in Triton.

In:  one `Expr`.
Out: its text and how tightly it binds.

What `tl` lacks comes from `libdevice` (NVIDIA's mathematical functions; in the interpreter, numpy's) or, where torch's meaning
is its own, from a small `@triton.jit` function that is printed above the kernel.

In PyTorch: `torch/_inductor/codegen/triton.py`, `TritonOverrides`; `torch/_inductor/runtime/triton_helpers.py`.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import sympy
import torch

from course_lib.codegen.cpp_ops import can_fail
from course_lib.codegen.expressions import Expr
from course_lib.codegen.printer import ATOM, Printer, Scope, shortest
from course_lib.lowering.ir import Buffer

TYPES = {
    torch.float32: "tl.float32", torch.float64: "tl.float64", torch.float16: "tl.float16", torch.bfloat16: "tl.bfloat16",
    torch.int8: "tl.int8", torch.int16: "tl.int16", torch.int32: "tl.int32", torch.int64: "tl.int64",
    torch.uint8: "tl.uint8", torch.bool: "tl.int1",
}  # fmt: skip

POINTERS = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int8: "*i8",
    torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64", torch.uint8: "*u8", torch.bool: "*i1",
}  # fmt: skip

RESERVED = (
    "triton tl libdevice problem mask rows columns row column better BLOCK ROWS COLUMNS print range min max sum abs float int"
).split()

LIBDEVICE = {
    name: name
    for name in "expm1 log10 log1p tan asin acos atan sinh cosh tanh asinh acosh atanh erfc pow atan2 fmod trunc".split()
} | {"round": "rint"}

TL = {name: f"tl.{name}" for name in "exp exp2 log log2 rsqrt sin cos erf sigmoid floor ceil abs".split()}

HELPERS = {
    "multiply": "a, b:\n    return a * b",
    "floor_mod": "a, b:  # the remainder has the divisor's sign\n    r = a % b\n"
    "    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)",
    "floor_div": "a, b:  # rounds towards minus infinity\n    q = a // b\n"
    "    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)",
    "float_mod": "a, b:  # the remainder has the divisor's sign\n    r = libdevice.fmod(a, b)\n"
    "    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)",
    "float_floor_div": "a, b:\n    r = libdevice.fmod(a, b)\n    q = (a - r) / b\n"
    "    q = tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)\n    f = tl.floor(q)\n"
    "    f = tl.where(q - f > 0.5, f + 1, f)\n    return tl.where(b == 0, a / b, f)",
    "integer_pow": "a, b:\n    r = tl.full(a.shape, 1, a.dtype)\n    for _ in tl.static_range(63):\n"
    "        r = tl.where(b % 2 != 0, r * a, r)\n        a = a * a\n        b = b // 2\n    return r",
}
"""Name → parameters, a colon, and the body."""

UNARY, COMPARE = 14, 5


def type_name(dtype: torch.dtype) -> str:
    return TYPES[dtype]


class TritonOps(Printer):
    """The table of operators, and one method for each operation that is neither infix nor a plain call."""

    comment = "#"
    scopes = False
    infix: ClassVar = {
        "mul": ("*", 13), "truediv": ("/", 13), "add": ("+", 12), "sub": ("-", 12),
        "bitwise_and": ("&", 9), "bitwise_xor": ("^", 8), "bitwise_or": ("|", 7),
    }  # fmt: skip

    buffers: Mapping[str, Buffer]

    def __init__(self, reserved: list[str]) -> None:
        super().__init__(reserved)
        self.pointers: dict[str, str] = {}
        self.conditions: list[str] = []
        self.helpers: set[str] = set()
        self.uses_libdevice = False
        self.row_mask = self.column_mask = ""

    def imports(self) -> str:
        """What the kernel needs above it."""
        libdevice = self.uses_libdevice or any("libdevice" in HELPERS[name] for name in self.helpers)
        text = "from triton.language.extra import libdevice\n" if libdevice else ""
        for name in sorted(self.helpers):
            parameters, body = HELPERS[name].split(":", 1)
            text += f"\n\n@triton.jit\ndef {name}({parameters}):{body}\n"
        return text + "\n\n"

    def declare(self, name: str, dtype: torch.dtype, text: str) -> str:
        return f"{name} = {text}"

    def floor_division(self, a: str, b: str) -> str:
        return f"{a} // {b}"

    def rounded(self, text: str, dtype: torch.dtype) -> str:
        """A float32 value as it would be after a visit to memory as `dtype`."""
        return f"({text}).to({TYPES[dtype]})" if dtype in (torch.float16, torch.bfloat16) else text

    def symbols_of(self, at: sympy.Symbol) -> set[sympy.Symbol]:
        """The loop symbols that an element of an index tensor depends on."""
        found: set[sympy.Symbol] = set()
        for node in self.symbols[at].walk():
            if node.op == "load":
                for symbol in node.detail[1].free_symbols:
                    found |= self.symbols_of(symbol) if symbol in self.symbols else {symbol}
            elif node.op == "index_expr":
                found |= node.detail.free_symbols
        return found

    def mask_for(self, index: sympy.Expr) -> str:
        raise NotImplementedError

    def checks(self, tree: Expr) -> bool:
        return any(can_fail(node) for node in tree.walk())

    def call(self, expr: Expr, function: str) -> tuple[str, int]:
        if function in LIBDEVICE:
            self.uses_libdevice = True
            function = f"libdevice.{LIBDEVICE[function]}"
        elif function in HELPERS:
            self.helpers.add(function)
        else:
            function = TL.get(function, function)
        return f"{function}({', '.join(map(self.text, expr.args))})", ATOM

    # --- memory ------------------------------------------------------------------------------------------------------

    def place(self, buffer: str, index: sympy.Expr) -> str:
        text = self.index(index)
        return self.pointers[buffer] if text == "0" else f"{self.pointers[buffer]} + {text}"

    def print_load(self, expr: Expr) -> tuple[str, int]:
        buffer, index = expr.detail
        place = self.place(buffer, index)  # may print lines: an index tensor is read first
        mask = " & ".join([*filter(None, [self.mask_for(index)]), *self.conditions])
        if self.conditions and self.mask_for(index) != "mask":
            place += f" + 0 * {self.conditions[-1]}.to(tl.int32)"  # a pointer for each element of the condition
        return f"tl.load({place}{', ' + mask if mask else ''})", ATOM

    def print_indirect(self, expr: Expr) -> tuple[str, int]:
        at, size = self.text(expr.args[0]), self.index(expr.detail[0])
        if not at.isidentifier():
            at = self.bind(expr.args[0], at, "index")
        name = at
        if expr.detail[1]:
            name = self.scope.unique("wrapped")
            self.line(f"{name} = tl.where({at} < 0, {at} + {size}, {at})")
        symbols = {s for node in expr.walk() if node.op == "load" for s in node.detail[1].free_symbols}
        mask = " & ".join([*filter(None, [self.mask_for(sum(symbols, sympy.Integer(0)))]), *self.conditions])
        outside = self.scope.unique("outside")
        self.line(f"{outside} = {mask + ' & ' if mask else ''}(({name} < 0) | ({name} >= {size}))")
        self.line(f"tl.store(problem + 0 * {name}, 1, {outside})")
        return f"tl.where({outside}, 0, {name})", ATOM

    # --- numbers -----------------------------------------------------------------------------------------------------

    def print_constant(self, expr: Expr) -> tuple[str, int]:
        text = number(expr.detail, expr.dtype)
        return text, UNARY if text.startswith("-") else ATOM

    def print_index_expr(self, expr: Expr) -> tuple[str, int]:
        text = self.index(expr.detail)
        return (
            f"tl.full([1], {text}, {TYPES[expr.dtype]})"
            if expr.detail.is_number
            else f"({text}).to({TYPES[expr.dtype]})"
        ), ATOM

    def extreme(self, dtype: torch.dtype, lowest: bool) -> str:
        if dtype.is_floating_point:
            return 'float("-inf")' if lowest else 'float("inf")'
        if dtype == torch.bool:
            return str(not lowest)
        info = torch.iinfo(dtype)
        return str(info.min if lowest else info.max)

    def print_to_dtype(self, expr: Expr) -> tuple[str, int]:
        (value,) = expr.args
        if value.op == "constant":
            return number(value.detail, expr.dtype), ATOM
        if expr.dtype == torch.bool:
            return f"{self.text(value, COMPARE + 1)} != 0", COMPARE
        text = f"{self.text(value, ATOM)}.to({TYPES[expr.dtype]})"
        if value.dtype.is_floating_point and expr.dtype in (torch.uint8, torch.int8, torch.int16):
            text = f"{self.text(value, ATOM)}.to(tl.int32).to({TYPES[expr.dtype]})"
        return text, ATOM

    # --- choices -----------------------------------------------------------------------------------------------------

    def print_where(self, expr: Expr) -> tuple[str, int]:
        return f"tl.where({', '.join(map(self.text, expr.args))})", ATOM

    def print_masked(self, expr: Expr) -> tuple[str, int]:
        condition = self.text(expr.args[0])
        if not condition.isidentifier():
            condition = self.bind(expr.args[0], condition, "inside")
        with self.only_where(condition):
            body = self.text(expr.args[1])
        return f"tl.where({condition}, {body}, {number(expr.detail, expr.dtype)})", ATOM

    @contextlib.contextmanager
    def only_where(self, condition: str) -> Iterator[None]:
        """Loads in this block happen only where `condition` holds, so their names are of no use after it."""
        self.conditions.append(condition)
        self.scope = Scope(self.scope, own_names=False)
        yield
        self.scope = self.scope.parent or self.scope
        self.conditions.pop()

    # --- arithmetic --------------------------------------------------------------------------------------------------

    def print_comparison(self, expr: Expr) -> tuple[str, int]:
        operator = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}[expr.op]
        left, right = (self.text(arg, COMPARE + 1) for arg in expr.args)
        return f"{left} {operator} {right}", COMPARE

    print_eq = print_ne = print_lt = print_le = print_gt = print_ge = print_comparison

    def print_neg(self, expr: Expr) -> tuple[str, int]:
        return f"-{self.text(expr.args[0], UNARY + 1)}", UNARY

    def print_reciprocal(self, expr: Expr) -> tuple[str, int]:
        return f"1 / {self.text(expr.args[0], 14)}", 13

    def print_maximum(self, expr: Expr) -> tuple[str, int]:
        nan = ", propagate_nan=tl.PropagateNan.ALL" if expr.dtype.is_floating_point else ""
        return f"tl.{expr.op}({', '.join(map(self.text, expr.args))}{nan})", ATOM

    print_minimum = print_maximum

    def print_sqrt(self, expr: Expr) -> tuple[str, int]:
        """On float32 `tl.sqrt` is an approximation that takes denormal numbers for 0."""
        return self.call(expr, "tl.sqrt_rn" if expr.dtype == torch.float32 else "tl.sqrt")

    def print_sign(self, expr: Expr) -> tuple[str, int]:
        value, kind = self.text(expr.args[0], COMPARE + 1), TYPES[expr.dtype]
        return f"({value} > 0).to({kind}) - ({value} < 0).to({kind})", 12

    def print_isnan(self, expr: Expr) -> tuple[str, int]:
        value = self.text(expr.args[0], COMPARE + 1)
        return f"{value} != {value}", COMPARE

    def print_isinf(self, expr: Expr) -> tuple[str, int]:
        return f'tl.abs({self.text(expr.args[0])}) == float("inf")', COMPARE

    def print_floordiv(self, expr: Expr) -> tuple[str, int]:
        return self.call(expr, "float_floor_div" if expr.dtype.is_floating_point else "floor_div")

    def print_mod(self, expr: Expr) -> tuple[str, int]:
        return self.call(expr, "float_mod" if expr.dtype.is_floating_point else "floor_mod")

    def print_fmod(self, expr: Expr) -> tuple[str, int]:
        if expr.dtype.is_floating_point:
            return self.call(expr, "fmod")
        return f"{self.text(expr.args[0], 13)} % {self.text(expr.args[1], 14)}", 13

    def print_pow(self, expr: Expr) -> tuple[str, int]:
        return self.call(expr, "pow" if expr.dtype.is_floating_point else "integer_pow")

    def print_whole_number(self, expr: Expr) -> tuple[str, int]:
        return self.call(expr, expr.op) if expr.dtype.is_floating_point else (self.text(expr.args[0], ATOM), ATOM)

    print_floor = print_ceil = print_trunc = print_round = print_whole_number

    def print_left_shift(self, expr: Expr) -> tuple[str, int]:
        operator = "<<" if expr.op == "left_shift" else ">>"
        return f"{self.text(expr.args[0], 11)} {operator} {self.text(expr.args[1], 12)}", 11

    print_right_shift = print_left_shift

    # --- logic -------------------------------------------------------------------------------------------------------

    def truth(self, expr: Expr, binding: int) -> str:
        return self.text(expr, binding) if expr.dtype == torch.bool else f"({self.text(expr, COMPARE + 1)} != 0)"

    def print_logical_and(self, expr: Expr) -> tuple[str, int]:
        return f"{self.truth(expr.args[0], 9)} & {self.truth(expr.args[1], 10)}", 9

    def print_logical_or(self, expr: Expr) -> tuple[str, int]:
        return f"{self.truth(expr.args[0], 7)} | {self.truth(expr.args[1], 8)}", 7

    def print_logical_not(self, expr: Expr) -> tuple[str, int]:
        return f"{self.text(expr.args[0], COMPARE + 1)} == 0", COMPARE

    def print_bitwise_not(self, expr: Expr) -> tuple[str, int]:
        if expr.dtype == torch.bool:
            return self.print_logical_not(expr)
        if expr.dtype == torch.uint8:  # the interpreter writes ~x as x ^ -1
            return f"{self.text(expr.args[0], 8)} ^ 255", 8
        return f"~{self.text(expr.args[0], UNARY + 1)}", UNARY


def number(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant as Triton source."""
    if dtype == torch.bool:
        return str(bool(value))
    if not dtype.is_floating_point:
        return str(int(value))
    if dtype != torch.float64 and math.isfinite(value) and abs(value) > 3.4028235677973366e38:
        value = math.copysign(math.inf, value)
    return shortest(value, dtype) if math.isfinite(value) else f'float("{value}")'
