"""How each operation of a loop body is spelled in Triton.

In:  one `Expr`.
Out: its text and how tightly it binds.

What `tl` lacks is `libdevice`'s (numpy's in the interpreter) or, as torch means it, a function
printed above the kernel.
In PyTorch: `torch/_inductor/codegen/triton.py`, `TritonOverrides`;
`torch/_inductor/runtime/triton_helpers.py`.
"""

import math
import re
from typing import Any

import sympy
import torch
from torch.utils._sympy.functions import Max

from course_lib.codegen.printer import Printer, decimal
from course_lib.codegen.spellings import (
    ARITHMETIC,
    ATOM,
    MULTIPLICATION,
    Spelling,
    compare,
    infix,
    prefix,
)
from course_lib.scheduling.expressions import Expr, symbols_of
from course_lib.sizes import same

# Triton's name of a pointer to numbers of a dtype
POINTERS = {
    torch.float32: "*fp32", torch.float64: "*fp64", torch.float16: "*fp16", torch.bfloat16: "*bf16", torch.int8: "*i8",
    torch.int16: "*i16", torch.int32: "*i32", torch.int64: "*i64", torch.uint8: "*u8", torch.bool: "*i1",
}  # fmt: skip
# Names that the printers write themselves: no value gets one of them
RESERVED = """triton tl libdevice problem sizes mask rows columns row column better value scale BLOCK ROWS COLUMNS
    DEPTH print range min max sum abs float int tile tall wide down across batch chunk inside inside_down""".split()
# Functions that Triton has no name for, each from its arguments on. `tl.reduce` takes a function,
# no operator: hence `multiply`. Dividing floats as Python does: `q` is whole but for rounding, so
# `f` is one too small if `q - f` is more than a half; a quotient of 0 keeps the sign. 2.885... is 2
# / ln 2.
HELPERS = {
    "multiply": "a, b):\n    return a * b",
    "larger": "a, b):  # NaN is the largest\n"
    "    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "floor_mod": "a, b):  # the remainder has the divisor's sign\n    r = a % b\n"
    "    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)",
    "floor_div": "a, b):  # rounds towards minus infinity\n    q = a // b\n"
    "    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)",
    "float_mod": "a, b):  # the remainder has the divisor's sign\n    r = libdevice.fmod(a, b)\n"
    "    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)",
    "float_floor_div": "a, b):\n    r = libdevice.fmod(a, b)\n    q = (a - r) / b\n"
    "    q = tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)\n    f = tl.floor(q)\n"
    "    f = tl.where(q - f > 0.5, f + 1, f)\n    f = tl.where(q == 0, libdevice.copysign(f, a / b), f)\n"
    "    return tl.where(b == 0, a / b, f)",
    "quick_tanh": "x):  # 1 - 2 / (exp(2 * x) + 1), within 1e-6; a square root is quicker than a division\n"
    "    r = tl.rsqrt(tl.exp2(x * 2.8853900817779268) + 1.0)\n    return tl.fma(-2.0 * r, r, 1.0)",
    "integer_pow": "a, b):\n    r = tl.full(a.shape, 1, a.dtype)\n    for _ in tl.static_range(63):\n"
    "        r = tl.where(b % 2 != 0, r * a, r)\n        a = a * a\n        b = b // 2\n    return r",
}
"""Functions that are printed above a kernel that calls them: name → parameters and body."""
# Integers that Triton makes int32 of beside a bare number, and the operations that this happens to
NARROW = (torch.uint8, torch.int8, torch.int16)
WIDENS = ("maximum", "minimum", "where")
TL = "exp exp2 log log2 rsqrt sin cos erf sigmoid floor ceil abs maximum minimum sqrt where".split()
LIBDEVICE = "expm1 log10 log1p tan asin acos atan sinh cosh tanh asinh acosh atanh erfc pow atan2 fmod trunc".split()
"""Operations that have a function of their own name in `tl`, and in `libdevice`."""
KEEPS_NAN = ", propagate_nan=tl.PropagateNan.ALL"
"""An argument of `tl.maximum` and `tl.minimum`: by themselves they drop a NaN, unlike eager's."""

# How tightly these bind in Python (see `spellings`)
COMPARISON = 5  # `a < b`, `a == b`
OR = 7  # `a | b`
XOR = 8  # `a ^ b`
AND = 9  # `a & b`
IS_ZERO: Spelling = f"{{:{COMPARISON + 1}}} == 0", COMPARISON
RULES: dict[str, str | Spelling] = {
    **{op: f"tl.{op}" for op in TL},
    **{op: f"libdevice.{op}" for op in LIBDEVICE},
    "round": "libdevice.rint",
    **ARITHMETIC,
    "bitwise_and": infix("&", AND),
    "bitwise_xor": infix("^", XOR),
    "bitwise_or": infix("|", OR),
    "logical_and": infix("&", AND),
    "logical_or": infix("|", OR),
    "logical_not": IS_ZERO,
    "bitwise_not": prefix("~"),
    "bitwise_not:bool": IS_ZERO,
    "bitwise_not:uint8": (f"{{:{XOR}}} ^ 255", XOR),  # the interpreter writes ~x as x ^ -1
    "eq": compare("==", COMPARISON),
    "ne": compare("!=", COMPARISON),
    "lt": compare("<", COMPARISON),
    "le": compare("<=", COMPARISON),
    "gt": compare(">", COMPARISON),
    "ge": compare(">=", COMPARISON),
    "maximum:float": (f"tl.maximum({{}}, {{}}{KEEPS_NAN})", ATOM),
    "minimum:float": (f"tl.minimum({{}}, {{}}{KEEPS_NAN})", ATOM),
    "neg:float": (
        f"{{:{MULTIPLICATION}}} * -1.0",
        MULTIPLICATION,
    ),  # Triton's -x is 0 - x, which is 0.0 for 0.0
    "sqrt:float32": "tl.sqrt_rn",  # `tl.sqrt` is an approximation that takes denormal numbers for 0
    # `/` is one too; and Python itself would divide constants
    "reciprocal:float32": ("tl.div_rn(1.0, {})", ATOM),
    "floordiv": "float_floor_div",
    "floordiv:integer": "floor_div",
    "mod": "float_mod",
    "mod:integer": "floor_mod",
    "fmod:integer": infix("%", MULTIPLICATION),
    "random": ("tl.rand({}, {})", ATOM),
}
"""Operation (`op:float`, `op:uint8` for such operands) → how it is spelled."""


class TritonOps(Printer):
    """The table of operators, and one method for each operation that is neither in it nor a plain
    call."""

    comment = "#"
    scopes = False
    divide = "//"
    rules = RULES
    conditions: tuple[str, ...] = ()  # Under which loads happen (`masked`)
    is_wide = False  # Is the formula that is printed now computed as int64?
    plan: Any  # Says whether places need 64 bits
    masks: dict[sympy.Symbol, str]  # Loop symbol → the mask that says where it is inside

    def header(self) -> list[str]:
        """What the kernel needs above it."""

        def needs(name: str) -> bool:
            return any(re.search(rf"\b{name}\b", line.text) for line in self.lines)

        helpers = ""
        for name, code in sorted(HELPERS.items()):
            if needs(name):
                helpers += f"\n\n@triton.jit\ndef {name}({code}\n"

        imports = ["import triton", "import triton.language as tl"]
        if needs("libdevice") or "libdevice" in helpers:
            imports.append("from triton.language.extra import libdevice")
        return [*imports, *helpers.splitlines(), "", ""]

    def declare(self, name: str, dtype: torch.dtype, text: str) -> str:
        return f"{name} = {text}"

    def type_name(self, dtype: torch.dtype) -> str:
        """`torch.float32` → `tl.float32`"""
        if dtype == torch.bool:
            return "tl.int1"
        return f"tl.{str(dtype).removeprefix('torch.')}"

    def spell(self, expr: Expr) -> tuple[str, int]:
        """An operation as source, and how tightly it binds.

        An operation on numbers alone would be computed by Python, with Python's types. So its first
        number becomes a value of Triton's."""
        values = expr.args
        if expr.op in ("where", "masked"):
            values = expr.args[1:]  # without the condition
        if values and all(map(is_number, values)) and not is_number(expr):
            first = values[0]
            self.bind(first, self.converted(first, self.type_name(first.dtype)), "number")

        text, binds = super().spell(expr)

        # A bare number makes a narrow integer int32, which does not wrap around.
        has_number = expr.op in WIDENS and any(map(is_number, values))
        if expr.dtype in NARROW and (expr.op == "masked" or has_number):
            return f"{text}.to({self.type_name(expr.dtype)})", ATOM
        return text, binds

    def number(self, value: bool | int | float, dtype: torch.dtype) -> str:
        """A constant as Triton has it."""
        if dtype == torch.bool:
            return str(bool(value))
        if dtype == torch.uint8:
            return str(int(value) % 256)
        if not dtype.is_floating_point:
            return str(int(value))

        # Triton makes 0.0 of a constant -0.0.
        if value == 0 and math.copysign(1, value) < 0:
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            text = f"(tl.full([], 0.0, {self.type_name(wide)}) * -1.0)"
            if wide != dtype:
                text += f".to({self.type_name(dtype)})"
            return text

        text = decimal(value, dtype)
        if not math.isfinite(float(text)):
            text = f'float("{text}")'
        # A bare number would be float32 to libdevice.
        if dtype == torch.float64:
            return f"tl.full([], {text}, tl.float64)"
        return text

    def as_constant(self, size: str, dtype: torch.dtype) -> tuple[str, int]:
        return f"{size}.to({self.type_name(dtype)})", ATOM

    def larger_or_smaller(self, expr: sympy.Expr, a: str, b: str) -> str:
        """The larger of two sizes for a `Max`, the smaller for a `Min`."""
        function = "tl.maximum" if isinstance(expr, Max) else "tl.minimum"
        return f"{function}({a}, {b})"

    def mask_for(self, index: sympy.Expr) -> str:
        """The mask for a pointer of this index: it must have the pointer's shape."""
        symbols = set(index.free_symbols)
        for looked_up, value in self.symbols.items():
            if index.has(looked_up):
                symbols |= symbols_of(value, self.trees)

        # A row's value, whichever columns it was computed from
        if self.step and self.step.level == "row":
            symbols -= {loop.symbol for loop in self.kernel.columns}
        names = {self.masks[symbol] for symbol in symbols & self.masks.keys()}
        if names == {"rows", "columns"}:
            return "mask"
        return " & ".join(sorted(names, reverse=True))

    def mask_under_conditions(self, index: sympy.Expr) -> str:
        """`mask_for`, inside of `masked` also with the condition of that."""
        masks = [*self.conditions]
        if mask := self.mask_for(index):
            masks.insert(0, mask)
        return " & ".join(masks)

    def place(self, buffer: str, index: sympy.Expr) -> str:
        """The address of an element."""
        text = self.index(index)
        if text == "0":
            return self.pointers[buffer]
        return f"{self.pointers[buffer]} + {text}"

    def print_load(self, expr: Expr) -> tuple[str, int]:
        buffer, index = expr.detail
        if any(same(size, 0) for size in self.buffers[buffer].shape):
            # No iteration reads it, and so no mask says where: a load would read what is not there.
            return f"tl.full([], 0, {self.type_name(expr.dtype)})", ATOM

        # This comes first: where the index is read from a tensor, it prints the lines that read it.
        place = self.place(buffer, index)
        mask = self.mask_under_conditions(index)
        if self.conditions and self.mask_for(index) != "mask":
            # `tl.load` wants pointers and mask of one shape. To add 0 times the mask gives the
            # pointers its shape.
            conditions = " & ".join(self.conditions)
            place += f" + 0 * ({conditions}).to(tl.int32)"

        if mask:
            return f"tl.load({place}, {mask})", ATOM
        return f"tl.load({place})", ATOM

    def print_indirect(self, expr: Expr) -> tuple[str, int]:
        """An index that was computed: one outside is noted in `problem`, and becomes 0."""
        length, wrap = expr.detail
        size = self.index(length)
        name = at = self.named(expr.args[0], "index")
        if wrap:
            name = self.unique("wrapped")
            self.line(f"{name} = tl.where({at} < 0, {at} + {size}, {at})")

        # What lies behind the end of the loop is not asked: the mask is that of all loops that the
        # index depends on. (Their sum is a formula that moves with each of them.)
        mask = self.mask_under_conditions(sum(symbols_of(expr, self.trees), sympy.Integer(0)))
        is_outside = f"(({name} < 0) | ({name} >= {size}))"
        if mask:
            is_outside = f"{mask} & {is_outside}"
        outside = self.unique("outside")
        self.line(f"{outside} = {is_outside}")
        self.line(f"tl.store(problem + 0 * tl.cast({outside}, tl.int32), 1, {outside})")
        return f"tl.where({outside}, 0, {name})", ATOM

    def named(self, expr: Expr, wanted: str) -> str:
        """The name of a value; if it has none, it gets one."""
        text = self.text(expr)
        if text.isidentifier():
            return text
        return self.bind(expr, text, wanted)

    def print_masked(self, expr: Expr) -> tuple[str, int]:
        condition = self.named(expr.args[0], "inside")

        # What is loaded only where the condition holds is of no use elsewhere.
        with self.names():
            conditions_before = self.conditions
            self.conditions = (*conditions_before, condition)
            body = self.text(expr.args[1])
            self.conditions = conditions_before

        other = self.number(expr.detail, expr.dtype)
        return f"tl.where({condition}, {body}, {other})", ATOM

    def print_truediv(self, expr: Expr) -> tuple[str, int]:
        """Exact where eager's is: not by a number. By a row's sum (softmax) the quick way, for the
        exact one takes 5 % longer."""
        value, divisor = expr.args
        by_row_value = divisor.op == "value_of" and divisor.detail.is_reduction
        if expr.dtype != torch.float32 or is_number(divisor) or by_row_value:
            value_text = self.text(value, MULTIPLICATION)
            divisor_text = self.text(divisor, MULTIPLICATION + 1)
            return f"{value_text} / {divisor_text}", MULTIPLICATION
        return f"tl.div_rn({self.text(value)}, {self.text(divisor)})", ATOM

    def print_index_expr(self, expr: Expr) -> tuple[str, int]:
        text, kind = self.index_as_data(expr.detail), self.type_name(expr.dtype)
        if expr.detail.is_number:
            return f"tl.cast({text}, {kind})", ATOM
        return f"({text}).to({kind})", ATOM

    @property
    def bits(self) -> int:  # type: ignore[override]
        return 63 if self.plan.needs_64_bits else 31

    def index_as_data(self, formula: sympy.Expr) -> str:
        """Places are int32 in most kernels. A number that does not fit is computed as int64."""
        self.is_wide = not formula.is_number and not self.holds(formula)
        try:
            return super().index_as_data(formula)
        finally:
            self.is_wide = False

    def index_text(self, expr: sympy.Expr) -> str:
        text = super().index_text(expr)
        if self.is_wide and expr.is_Symbol:
            return f"tl.cast({text}, tl.int64)"
        return text

    def print_to_dtype(self, expr: Expr) -> tuple[str, int]:
        (value,) = expr.args
        if value.op == "constant":
            return self.number(value.detail, expr.dtype), ATOM
        if expr.dtype == torch.bool:
            return f"{self.text(value, COMPARISON + 1)} != 0", COMPARISON

        # A float that does not fit a narrow type goes through int32.
        kind = self.type_name(expr.dtype)
        if value.dtype.is_floating_point and expr.dtype in NARROW:
            return f"{self.converted(value, 'tl.int32')}.to({kind})", ATOM
        return self.converted(value, kind), ATOM

    def converted(self, value: Expr, kind: str) -> str:
        """A value in another type of Triton's."""
        if is_number(value):
            return f"tl.cast({self.text(value)}, {kind})"
        return f"{self.text(value, ATOM)}.to({kind})"


def is_number(expr: Expr) -> bool:
    """True for a constant, of whatever dtype."""
    return expr.op == "constant" or (expr.op == "to_dtype" and is_number(expr.args[0]))
