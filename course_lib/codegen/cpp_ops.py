"""How each operation of a loop body is spelled in C++. (Reductions: `codegen.accumulators`.)

In:  one `Expr`.
Out: its text, and how tightly it binds (for few parentheses).

Most operations are in the table, or a call of a function with the operation's own name, which
`prelude.h` defines; the methods below are the rest. float16 and bfloat16 exist only in memory: they
are computed as float, `rounded<...>` where asked to be.
In PyTorch: `torch/_inductor/codegen/cpp.py`, `CppOverrides` and `CppVecOverrides`.
"""

from typing import Any

import torch

from course_lib.codegen.printer import Printer, decimal
from course_lib.codegen.spellings import ARITHMETIC, ATOM, Spelling, compare, infix, prefix
from course_lib.lowering.ops import BINARY, UNARY
from course_lib.scheduling.expressions import Expr

STORED = {
    torch.float32: "float", torch.float64: "double", torch.float16: "float16", torch.bfloat16: "bfloat16",
    torch.int8: "int8_t", torch.int16: "int16_t", torch.int32: "int32_t", torch.int64: "int64_t",
    torch.uint8: "uint8_t", torch.bool: "bool",
}  # fmt: skip
HALVES = (torch.float16, torch.bfloat16)
# C++ computes these as int: what does not fit must be cut off again (`CppOps.spell`)
NARROW = (torch.int8, torch.int16, torch.uint8, torch.bool)
# The least numbers have no literal (C++ reads -2147483648 as minus a number that is too large), and
# the largest are best known by name
LIMITS = {
    -(2**31): "INT32_MIN",
    2**31 - 1: "INT32_MAX",
    -(2**63): "INT64_MIN",
    2**63 - 1: "INT64_MAX",
}
# How tightly these bind in C++ (see `spellings`)
CHOICE = 3  # `a ? b : c`
OR = 6  # `a | b`
XOR = 7  # `a ^ b`
AND = 8  # `a & b`
EQUALITY = 9  # `a == b`, `a != b`
RELATION = 10  # `a < b`
CAST = 15  # `(float)a`
RULES: dict[str, str | Spelling] = ARITHMETIC | {
    "lt": compare("<", RELATION),
    "gt": compare(">", RELATION),
    "le": compare("<=", RELATION),
    "ge": compare(">=", RELATION),
    "eq": compare("==", EQUALITY),
    "ne": compare("!=", EQUALITY),
    "bitwise_and": infix("&", AND),
    "bitwise_xor": infix("^", XOR),
    "bitwise_or": infix("|", OR),
    # Both sides are bools. `&&` would be a branch, which keeps a loop from being vectorised.
    "logical_and": infix("&", AND),
    "logical_or": infix("|", OR),
    "logical_not": prefix("!"),
    "bitwise_not": prefix("~"),
    "bitwise_not:bool": prefix("!"),
    "where": (f"{{:{CHOICE + 1}}} ? {{:{CHOICE + 1}}} : {{:{CHOICE}}}", CHOICE),
    "random": ("philox({}, {})", ATOM),
}
"""Operation → how it is spelled. Any other is a call of a function of its own name."""

# Names that no value gets: words of C++, names that the printers write themselves (`lane`, `first`,
# `block`, ...), and functions of `prelude.h`
RESERVED = """auto bool break case char const continue default do double else enum extern false float for goto if inline int long
    register return short signed sizeof static struct switch this true typedef union unsigned void volatile while new delete
    and or not xor class template typename namespace operator private public try catch throw using
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t float16 bfloat16 buffers problem
    lane lanes first each block end philox INFINITY NAN INLINE
    bits_of float_of fma rounded floats halves copy_row fetch_row nothing from_integer half_power integer_pow checked wrapped""".split()
RESERVED += [name for op in (*UNARY, *BINARY) if op not in RULES for name in (op, f"{op}f")]


def computed_as(dtype: torch.dtype) -> str:
    """The C++ type that values of `dtype` have between load and store."""
    if dtype in HALVES:
        return "float"
    return STORED[dtype]


def number(value: bool | int | float, dtype: torch.dtype) -> str:
    """A constant as C++ source, as short as keeps it exact."""
    if dtype == torch.bool:
        return "true" if value else "false"
    if dtype.is_floating_point:
        text = decimal(value, dtype)
        names = {"inf": "INFINITY", "-inf": "-INFINITY", "nan": "NAN"}
        is_named = text in names
        if dtype == torch.float64:
            return f"double({names[text]})" if is_named else text
        return names[text] if is_named else f"{text}f"

    value = int(value)
    if value in LIMITS:
        return LIMITS[value]
    needs_64_bits = abs(value) >= 2**31
    if needs_64_bits:
        return f"{value}LL"
    return str(value)


class CppOps(Printer):
    """The table of operators, and one method for each operation that is neither in it nor a plain
    call."""

    comment = "//"
    scopes = True
    divide = "/"
    rules = RULES
    number = staticmethod(number)

    # What lies in a row on the stack while a vectorised loop is printed (`CppLoops.rows_around`): a
    # load's (buffer, index), or a step → its element of that row
    rows: dict[Any, str]

    def declare(self, name: str, dtype: torch.dtype, text: str) -> str:
        return f"const {computed_as(dtype)} {name} = {text};"

    def as_constant(self, size: str, dtype: torch.dtype) -> tuple[str, int]:
        return f"({computed_as(dtype)}){size}", CAST

    def spell(self, expr: Expr) -> tuple[str, int]:
        text, binds = super().spell(expr)
        may_overflow = expr.op in ("add", "sub", "mul", "neg", "bitwise_not")
        if may_overflow and expr.dtype in NARROW:
            # C++ has computed an int. The cast lets it wrap around, as in eager.
            return f"({STORED[expr.dtype]})({text})", CAST
        return text, binds

    def call(self, function: str, expr: Expr) -> str:
        """A function of `prelude.h`. Those of integers are templates, and are told the type."""
        operands = expr.args[0].dtype
        if not operands.is_floating_point:
            function = f"{function}<{STORED[operands]}>"
        return super().call(function, expr)

    def print_pow(self, expr: Expr) -> tuple[str, int]:
        base, exponent = expr.args
        if not base.dtype.is_floating_point:
            return self.call("integer_pow", expr), ATOM
        # A square root, which is exact and much faster. (0.5 may have been converted on its way.)
        if exponent.op == "to_dtype":
            exponent = exponent.args[0]
        if exponent.op == "constant" and exponent.detail == 0.5:
            return f"half_power({self.text(base)})", ATOM
        return self.call("pow", expr), ATOM

    def print_load(self, expr: Expr) -> tuple[str, int]:
        buffer, index = expr.detail
        if row := self.rows.get(expr.detail):
            return row, ATOM

        element = f"{self.pointers[buffer]}[{self.index(index)}]"
        if expr.dtype in HALVES:
            return f"(float){element}", CAST
        return element, ATOM

    def print_index_expr(self, expr: Expr) -> tuple[str, int]:
        return f"({computed_as(expr.dtype)})({self.index_as_data(expr.detail)})", CAST

    def print_indirect(self, expr: Expr) -> tuple[str, int]:
        size, wrap = expr.detail
        function = "wrapped" if wrap else "checked"
        value = self.text(expr.args[0])
        return f"{function}({value}, {self.index(size)}, problem)", ATOM

    def print_masked(self, expr: Expr) -> tuple[str, int]:
        condition = self.text(expr.args[0], CHOICE + 1)

        # What is loaded here must not move out in front of the condition.
        self.guarded += 1
        body = self.text(expr.args[1], CHOICE + 1)
        self.guarded -= 1
        return f"{condition} ? {body} : {number(expr.detail, expr.dtype)}", CHOICE

    def print_to_dtype(self, expr: Expr) -> tuple[str, int]:
        (value,) = expr.args
        target, source = expr.dtype, value.dtype
        from_float = source.is_floating_point

        if target == torch.bool:
            return f"{self.text(value, EQUALITY + 1)} != 0", EQUALITY
        if target in HALVES:
            text = self.text(value)
            if not from_float:
                text = f"from_integer<float>({text})"
            return f"rounded<{STORED[target]}>({text})", ATOM
        if computed_as(source) == STORED[target]:
            return self.text(value, CAST), CAST

        # What was loaded, or is a number, needs no care: compilers convert it well.
        is_computed = value.op not in ("load", "constant")
        if target.is_floating_point and not from_float and is_computed:
            return f"from_integer<{STORED[target]}>({self.text(value)})", ATOM

        # A float that does not fit a narrow type is undefined in C++: it goes through a wider one.
        text = self.text(value, CAST)
        if from_float and target in NARROW:
            wider = "int64_t" if target == torch.uint8 else "int32_t"
            text = f"({wider}){text}"
        return f"({STORED[target]}){text}", CAST
