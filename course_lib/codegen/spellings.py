"""How an operation is written where both languages write it alike, and when it needs parentheses.

In:  an operator, and how tightly it binds.
Out: a `Spelling`, which the printers fill with operands (`Printer.spell`).

How tightly a text binds is a number, larger for tighter: an operand that binds less tightly than
its place asks for is put in parentheses. The numbers of comparisons and of `&`, `^`, `|` are each
language's own; they stand with its table of rules (`cpp_ops`, `triton_ops`).
In PyTorch: no counterpart. There each operation gets a name, and so needs no parentheses.
"""

ADDITION = 12  # `a + b`, `a - b`
MULTIPLICATION = 13  # `a * b`, `a / b`
SIGNED = 14  # `-a`
ATOM = 100  # A name, a call, a number: what never needs parentheses

Spelling = tuple[str, int]
"""How an operation is written and how tightly that binds. `{:13}`: an operand, in parentheses if
that binds less tightly. `{}`: an operand that never needs any, as in a call."""


def prefix(operator: str, binds: int = SIGNED) -> Spelling:
    """`-a`. The operand must bind more tightly, for `--a` is another operator in C++."""
    return f"{operator}{{:{binds + 1}}}", binds


def infix(operator: str, binds: int) -> Spelling:
    """`a + b + c` is read from the left: only the right operand needs parentheses if it binds as
    tightly."""
    return f"{{:{binds}}} {operator} {{:{binds + 1}}}", binds


def compare(operator: str, binds: int) -> Spelling:
    """A comparison: a < b < c is written (a < b) < c."""
    return f"{{:{binds + 1}}} {operator} {{:{binds + 1}}}", binds


ITSELF: Spelling = f"{{:{ATOM}}}", ATOM

ARITHMETIC: dict[str, str | Spelling] = {
    "mul": infix("*", MULTIPLICATION),
    "truediv": infix("/", MULTIPLICATION),
    "add": infix("+", ADDITION),
    "sub": infix("-", ADDITION),
    "neg": prefix("-"),
    "reciprocal": (f"1 / {{:{MULTIPLICATION + 1}}}", MULTIPLICATION),
    # The name of a function: each language defines it, for neither has a power of integers
    "pow:integer": "integer_pow",
    # An integer is rounded already
    "floor:integer": ITSELF,
    "ceil:integer": ITSELF,
    "trunc:integer": ITSELF,
    "round:integer": ITSELF,
}
"""What both languages write alike: operation (`op:integer` for integers) → its spelling."""
