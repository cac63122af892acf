"""What each of CPython's instructions becomes, in the one instruction set of `instructions.py`.

In:  an instruction as `dis` gives it, of CPython 3.11 to 3.15.
Out: its `Part`s: canonical ops with their arguments, in order. Mostly one; two or more where
     CPython has fused some.

An instruction that is not in the table `PARTS_OF` is kept, with the argument that `dis` resolved.
An instruction of a new Python is a function more in this file. The version of Python decides in
this room only: here, in `instructions.py`, in `newer.py` (objects that older Pythons lack) and in
`_framehook.c`.
In PyTorch: `torch/_dynamo/symbolic_convert.py` asks `sys.version_info` in the methods of the
instructions themselves.
"""

import dis
import opcode
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

FROM_3_12 = sys.version_info >= (3, 12)
FROM_3_13 = sys.version_info >= (3, 13)
FROM_3_14 = sys.version_info >= (3, 14)
FROM_3_15 = sys.version_info >= (3, 15)

Part: TypeAlias = tuple[str, Any]
"""A canonical op and its argument, not yet placed."""
Spelling: TypeAlias = Callable[[dis.Instruction], list[Part]]
PARTS_OF: dict[str, Spelling] = {}
"""CPython's op → the function that gives its parts."""

PUSH_NULL: Part = ("PUSH_NULL", None)
POP_TOP: Part = ("POP_TOP", None)
SWAP_TWO: Part = ("SWAP", 2)

# ---- flags in the arguments of instructions (CPython: `pycore_opcode_utils.h`, `compile.c`)

FOR_A_CALL = 1
"""LOAD_GLOBAL, LOAD_ATTR, LOAD_SUPER_ATTR: what is loaded is about to be called."""
SUPER_WITH_ARGUMENTS = 2
"""LOAD_SUPER_ATTR: `super(C, self)`, not `super()`."""
CONVERSION = 3
"""FORMAT_VALUE: these bits are a place in `CONVERSIONS`."""
HAS_FORMAT = 4
"""FORMAT_VALUE: a format specification lies on top of the value."""
INTERPOLATION_HAS_FORMAT = 1
"""BUILD_INTERPOLATION: a format specification lies on top of the value."""
INTERPOLATION_FLAGS = 2
"""BUILD_INTERPOLATION: so many bits are flags; those above them are a place in `CONVERSIONS`."""
AS_BOOL = 16
"""COMPARE_OP: the result becomes True or False (since 3.13)."""
FUNCTION_ATTRIBUTES = (
    (16, "annotate"),
    (8, "closure"),
    (4, "annotations"),
    (2, "kwdefaults"),
    (1, "defaults"),
)
"""MAKE_FUNCTION and SET_FUNCTION_ATTRIBUTE: what the new function gets. In this order the values
lie on the stack, from the topmost down, so each is on top when its turn comes."""

# ---- what the numbers in arguments count ----

CONVERSIONS = (None, "str", "repr", "ascii")
COMMON_CONSTANTS: tuple[Any, ...] = tuple(getattr(opcode, "_common_constants", ()))
"""What LOAD_COMMON_CONSTANT counts. (`dis` of 3.14 gives the number, not the object.)"""
SPECIAL_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")
"""What LOAD_SPECIAL counts."""


def parts_of(*ops: str) -> Callable[[Spelling], Spelling]:
    """Enter a function in the table, for these ops."""

    def register(function: Spelling) -> Spelling:
        PARTS_OF.update(dict.fromkeys(ops, function))
        return function

    return register


def renamed(op: str, *older: str) -> None:
    """Enter ops that have another name, and are the same otherwise."""

    def same_with_another_name(instruction: dis.Instruction) -> list[Part]:
        return [(op, instruction.argval)]

    PARTS_OF.update(dict.fromkeys(older, same_with_another_name))


def flags(instruction: dis.Instruction) -> int:
    """The argument as a number."""
    return instruction.arg or 0


# ---- jumps ----

for condition in ("TRUE", "FALSE", "NONE", "NOT_NONE"):
    forward = f"POP_JUMP_FORWARD_IF_{condition}"
    backward = f"POP_JUMP_BACKWARD_IF_{condition}"
    renamed(f"POP_JUMP_IF_{condition}", forward, backward)

renamed("JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")


@parts_of("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(instruction: dis.Instruction) -> list[Part]:
    """`a or b`, `a and b` up to 3.11: the value stays where it jumps."""
    jump = f"POP_{instruction.opname.removesuffix('_OR_POP')}"
    return [("COPY", 1), (jump, instruction.argval), POP_TOP]


# ---- names and constants ----

renamed("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW")
renamed("LOAD_CONST", "LOAD_SMALL_INT", "KW_NAMES")  # a CALL_KW takes the names off the stack


@parts_of("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "STORE_FAST_STORE_FAST")
def two_names(instruction: dis.Instruction) -> list[Part]:
    """Two instructions of one variable each."""
    ops = instruction.opname.replace("FAST_", "FAST ").split()
    return list(zip(ops, instruction.argval, strict=True))


@parts_of("LOAD_FAST_BORROW_LOAD_FAST_BORROW")
def two_loads(instruction: dis.Instruction) -> list[Part]:
    return [("LOAD_FAST", name) for name in instruction.argval]


@parts_of("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
def load(instruction: dis.Instruction) -> list[Part]:
    """A global, an attribute, an attribute of `super()`.

    What is loaded to be called gets a NULL beside it, as CALL expects."""
    op, name = instruction.opname, instruction.argval
    for_a_call = bool(flags(instruction) & FOR_A_CALL)

    loaded: Part = (op, name)
    if op == "LOAD_SUPER_ATTR":
        with_arguments = bool(flags(instruction) & SUPER_WITH_ARGUMENTS)
        loaded = (op, (name, with_arguments))
    elif op == "LOAD_METHOD":
        loaded = ("LOAD_ATTR", name)
        for_a_call = True
    elif op == "LOAD_ATTR" and not FROM_3_12:
        # Python 3.11 has no such flag here: this bit belongs to the number of the name.
        for_a_call = False

    if not for_a_call:
        return [loaded]
    if FROM_3_13:
        return [loaded, PUSH_NULL]
    # Up to 3.12, CALL expects the NULL below the callable.
    return [loaded, PUSH_NULL, SWAP_TWO]


@parts_of("LOAD_CLASSDEREF")
def load_in_a_class_body(instruction: dis.Instruction) -> list[Part]:
    return [("LOAD_LOCALS", None), ("LOAD_FROM_DICT_OR_DEREF", instruction.argval)]


@parts_of("LOAD_COMMON_CONSTANT")
def common_constant(instruction: dis.Instruction) -> list[Part]:
    return [("LOAD_CONST", COMMON_CONSTANTS[flags(instruction)])]


@parts_of("LOAD_ASSERTION_ERROR")
def assertion_error(instruction: dis.Instruction) -> list[Part]:
    return [("LOAD_CONST", AssertionError)]


@parts_of("LOAD_SPECIAL")
def special_method(instruction: dis.Instruction) -> list[Part]:
    return [("LOAD_SPECIAL", SPECIAL_METHODS[flags(instruction)])]


# ---- operators ----


@parts_of("BINARY_OP")
def binary_op(instruction: dis.Instruction) -> list[Part]:
    """Since 3.14 it is also the index: `a[b]`."""
    if instruction.argrepr == "[]":
        return [("BINARY_SUBSCR", None)]
    return [("BINARY_OP", instruction.argrepr)]


@parts_of("BINARY_SLICE", "STORE_SLICE")
def slice_op(instruction: dis.Instruction) -> list[Part]:
    return [("BUILD_SLICE", 2), (instruction.opname.replace("SLICE", "SUBSCR"), None)]


@parts_of("COMPARE_OP")
def compare(instruction: dis.Instruction) -> list[Part]:
    parts: list[Part] = [("COMPARE_OP", instruction.argval)]
    if FROM_3_13 and flags(instruction) & AS_BOOL:
        parts.append(("TO_BOOL", None))
    return parts


@parts_of("IS_OP", "CONTAINS_OP")
def compare_or_not(instruction: dis.Instruction) -> list[Part]:
    """`is`, `in`; the argument: is it `is not`, `not in`?"""
    return [(instruction.opname, bool(instruction.arg))]


@parts_of("UNPACK_EX")
def unpack_with_star(instruction: dis.Instruction) -> list[Part]:
    """`a, *b, c = x`: how many names stand before the star, and how many behind it."""
    before = flags(instruction) & 255
    behind = flags(instruction) >> 8
    return [("UNPACK_EX", (before, behind))]


# ---- text ----


@parts_of("FORMAT_VALUE")
def format_value(instruction: dis.Instruction) -> list[Part]:
    """`f"{value!r:format}"` up to 3.12; the value lies below the format, where there is one."""
    conversion = CONVERSIONS[flags(instruction) & CONVERSION]
    has_format = bool(flags(instruction) & HAS_FORMAT)

    parts: list[Part] = []
    if conversion:
        parts.append(("CONVERT_VALUE", conversion))
    if conversion and has_format:
        # The value is under the format: it comes up, and goes back.
        parts = [SWAP_TWO, *parts, SWAP_TWO]

    if has_format:
        parts.append(("FORMAT_WITH_SPEC", None))
    else:
        parts.append(("FORMAT_SIMPLE", None))
    return parts


@parts_of("CONVERT_VALUE")
def convert_value(instruction: dis.Instruction) -> list[Part]:
    return [("CONVERT_VALUE", CONVERSIONS[flags(instruction)])]


@parts_of("BUILD_INTERPOLATION")
def build_interpolation(instruction: dis.Instruction) -> list[Part]:
    """A `{value}` of a t-string. The argument: its conversion, and whether a format specification
    lies on top of the value and its text."""
    conversion = CONVERSIONS[flags(instruction) >> INTERPOLATION_FLAGS]
    has_format = bool(flags(instruction) & INTERPOLATION_HAS_FORMAT)
    return [("BUILD_INTERPOLATION", (conversion, has_format))]


# ---- calls and functions ----


@parts_of("CALL_FUNCTION_EX")
def call_function_ex(instruction: dis.Instruction) -> list[Part]:
    """Since 3.14 it has no argument: there is always a slot for the keywords, NULL where there are
    none."""
    return [("CALL_FUNCTION_EX", FROM_3_14 or bool(instruction.arg))]


@parts_of("CALL_FUNCTION_EX without keywords")
def call_function_ex_without_keywords(instruction: dis.Instruction) -> list[Part]:
    return [("CALL_FUNCTION_EX", False)]


@parts_of("CALL_INTRINSIC_1", "CALL_INTRINSIC_2")
def call_intrinsic(instruction: dis.Instruction) -> list[Part]:
    """Each of these functions of CPython is an op of its own here."""
    return [(instruction.argrepr.removeprefix("INTRINSIC_"), None)]


@parts_of("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE")
def function_attributes(instruction: dis.Instruction) -> list[Part]:
    """MAKE_FUNCTION with flags is several instructions here: one makes the function, and one gives
    it each of its attributes."""
    parts: list[Part] = []
    if instruction.opname == "MAKE_FUNCTION":
        parts.append(("MAKE_FUNCTION", None))
    for flag, name in FUNCTION_ATTRIBUTES:
        if flags(instruction) & flag:
            parts.append(("SET_FUNCTION_ATTRIBUTE", name))
    return parts


@parts_of("RETURN_CONST")
def return_const(instruction: dis.Instruction) -> list[Part]:
    return [("LOAD_CONST", instruction.argval), ("RETURN_VALUE", None)]


# ---- loops and `with` ----


@parts_of("GET_ITER")
def get_iter(instruction: dis.Instruction) -> list[Part]:
    """`iter(x)`, or what `yield from x` takes values from; with the second slot that an iterator
    has since 3.15."""
    op = "GET_YIELD_FROM_ITER" if instruction.arg else "GET_ITER"
    parts: list[Part] = [(op, None)]
    if FROM_3_15:
        parts.append(PUSH_NULL)
    return parts


@parts_of("POP_ITER")
def pop_iter(instruction: dis.Instruction) -> list[Part]:
    """The iterator of a loop that is left early."""
    if FROM_3_15:
        return [POP_TOP, POP_TOP]
    return [POP_TOP]


@parts_of("BEFORE_WITH", "BEFORE_ASYNC_WITH")
def before_with(instruction: dis.Instruction) -> list[Part]:
    """Since 3.14 the `__exit__` has a second slot."""
    entered: Part = (instruction.opname, None)
    if FROM_3_14:
        return [entered, PUSH_NULL, SWAP_TWO]
    return [entered]


@parts_of("WITH_EXCEPT_START")
def with_except_start(instruction: dis.Instruction) -> list[Part]:
    """The argument: in how many slots the `__exit__` is."""
    slots = 2 if FROM_3_14 else 1
    return [(instruction.opname, slots)]
