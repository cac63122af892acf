"""The bytecode of CPython 3.11 to 3.15 is one instruction set here."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import dis
import functools
import inspect
import json
import statistics
import sys
import types
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.frames import JUMPS, exception_table, instructions


def program(function):
    """The instructions as text, without offsets."""
    return [str(i) for i in instructions(getattr(function, "__code__", function))]


def callee_and_null(load):
    """`load` and the NULL beside what it loads, as this version's CALL wants them."""
    return [load, "PUSH_NULL", "SWAP 2"] if sys.version_info < (3, 13) else [load, "PUSH_NULL"]


def all_codes(module):
    """Every code object of a module's source."""

    def within(code):
        yield code
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                yield from within(const)

    return list(within(compile(inspect.getsource(module), module.__file__, "exec")))


# ---- one program, one text -------------------------------------------------------------------------------------------


def test_names_constants_and_operators_are_resolved():
    def f(x, y):
        z = x + y
        z -= 1
        return z if x < 2 else -y

    text = program(f)
    assert text[:4] == ["LOAD_FAST x", "LOAD_FAST y", "BINARY_OP +", "STORE_FAST z"]
    assert {
        "BINARY_OP -=",
        "COMPARE_OP <",
        "LOAD_CONST 2",
        "UNARY_NEGATIVE",
        "RETURN_VALUE",
    } <= set(text)


def test_a_call_of_a_global_puts_a_null_beside_it():
    def f(x):
        return abs(x)

    assert program(f) == [
        *callee_and_null("LOAD_GLOBAL abs"),
        "LOAD_FAST x",
        "CALL 1",
        "RETURN_VALUE",
    ]


def test_a_method_call_is_a_bound_method_and_a_null():
    def f(x):
        return x.add(1)

    assert program(f) == [
        "LOAD_FAST x",
        *callee_and_null("LOAD_ATTR add"),
        "LOAD_CONST 1",
        "CALL 1",
        "RETURN_VALUE",
    ]


def test_keyword_arguments_leave_their_names_on_the_stack():
    def f(g, x):
        return g(x, k=1)

    text = program(f)
    assert text[-5:] == [
        "LOAD_FAST x",
        "LOAD_CONST 1",
        "LOAD_CONST ('k',)",
        "CALL_KW 2",
        "RETURN_VALUE",
    ]
    assert sorted(text[:2]) == ["LOAD_FAST g", "PUSH_NULL"]


def test_a_call_with_star_arguments_says_whether_a_dict_is_on_top():
    def f(g, a, k):
        g(*a)
        g(**k)

    assert [str(i) for i in instructions(f.__code__) if i.op == "CALL_FUNCTION_EX"] == [
        "CALL_FUNCTION_EX False",
        "CALL_FUNCTION_EX True",
    ]


def test_returning_a_constant_is_two_instructions():
    def f():
        return 7

    load, ret = instructions(f.__code__)
    assert (str(load), str(ret)) == ("LOAD_CONST 7", "RETURN_VALUE")
    # 3.12 and 3.13 have one instruction that does both
    assert (load.offset == ret.offset) == ((3, 12) <= sys.version_info < (3, 14))


def test_a_function_is_made_from_its_code_and_then_given_its_attributes():
    def f(x):
        def g(a: int = 1, *, b=2):
            return x

        return g

    text = program(f)
    make = max(at for at, i in enumerate(text) if i == "MAKE_FUNCTION")
    assert text[make - 3 : make - 1] == ["LOAD_CLOSURE x", "BUILD_TUPLE 1"]
    assert text[make - 1].startswith("LOAD_CONST <code of ")
    # 3.14 makes a function first, which gives the annotations when they are asked for
    annotations = "annotate" if sys.version_info >= (3, 14) else "annotations"
    assert text[make + 1 : make + 6] == [
        "SET_FUNCTION_ATTRIBUTE closure",
        f"SET_FUNCTION_ATTRIBUTE {annotations}",
        "SET_FUNCTION_ATTRIBUTE kwdefaults",
        "SET_FUNCTION_ATTRIBUTE defaults",
        "STORE_FAST g",
    ]


def test_an_f_string_converts_and_then_formats():
    def f(x, width):
        return f"{x}{x!r:>{width}}"

    text = program(f)
    assert text[:2] == ["LOAD_FAST x", "FORMAT_SIMPLE"] and "CONVERT_VALUE repr" in text
    assert text[-3:] == ["FORMAT_WITH_SPEC", "BUILD_STRING 2", "RETURN_VALUE"]


def test_a_super_call_has_its_name_and_form():
    class A(list):
        def zero(self):
            return super().copy()

        def two(self):
            return super(A, self).copy()  # noqa: UP008

    if sys.version_info >= (3, 12):
        assert "LOAD_SUPER_ATTR ('copy', False)" in program(A.zero)
        assert "LOAD_SUPER_ATTR ('copy', True)" in program(A.two)
    else:
        assert "LOAD_ATTR copy" in program(A.zero)


def test_star_lists_become_tuples():
    def f(a, b):
        first, *b, last = a
        return (*a, *b, first, last)

    assert {"LIST_TO_TUPLE", "UNPACK_EX (1, 1)"} <= set(program(f))


def test_is_and_in_say_whether_they_are_negated():
    def f(a, b):
        return a is not b, a in b

    assert {"IS_OP True", "CONTAINS_OP False"} <= set(program(f))


def test_a_class_body_loads_names_and_cells():
    def f(x):
        class C:
            y = x

            def get(self):
                return __class__

        return C

    body = next(const for const in f.__code__.co_consts if isinstance(const, types.CodeType))
    text = program(body)
    assert {
        "LOAD_LOCALS",
        "LOAD_FROM_DICT_OR_DEREF x",
        "STORE_NAME y",
        "LOAD_CLOSURE __class__",
    } <= set(text)


# ---- control flow ----------------------------------------------------------------------------------------------------


def loop(xs):
    total = 0
    for x in xs:
        if x is None:
            continue
        total += x
    return total


def test_a_loop_leaves_behind_what_the_version_keeps_for_itself():
    code = loop.__code__
    by_offset = {i.offset: i for i in reversed(instructions(code))}
    (for_iter,) = (i for i in instructions(code) if i.op == "FOR_ITER")
    assert (
        str(by_offset[for_iter.arg]) == "LOAD_FAST total"
        and by_offset[for_iter.arg].line == code.co_firstlineno + 6
    )
    back = [i for i in instructions(code) if i.op == "JUMP" and i.arg == for_iter.offset]
    assert back, "the body jumps back to FOR_ITER"
    assert not {"END_FOR", "JUMP_BACKWARD", "CACHE", "RESUME", "NOP"} & {
        i.op for i in instructions(code)
    }


def test_next_offset_is_where_cpythons_own_next_instruction_begins():
    def f(x):
        return abs(x) + 1

    (call,) = (i for i in instructions(f.__code__) if i.op == "CALL")
    raw = list(dis.get_instructions(f))
    at = next(n for n, i in enumerate(raw) if i.opname == "CALL")
    assert call.next_offset == raw[at + 1].offset
    assert instructions(f.__code__)[-1].next_offset == len(f.__code__.co_code)


def test_a_jump_that_needs_extended_arg_has_its_whole_target():
    body = "\n    ".join(f"x = g(x, {n})" for n in range(300))
    namespace = {}
    exec(f"def f(x, g):\n  while x:\n    {body}\n  return 5", namespace)
    program = instructions(namespace["f"].__code__)
    offsets = {i.offset for i in program}
    far = [i for i in program if i.op in JUMPS and abs(i.arg - i.offset) > 512]
    assert far and all(i.arg in offsets for i in far)


def test_the_exception_table_is_in_offsets_of_instructions():
    def f(x):
        try:
            return abs(x)
        except ValueError:
            return 1

    program = {i.offset: i for i in reversed(instructions(f.__code__))}
    first = exception_table(f.__code__)[0]
    (call,) = (i for i in program.values() if i.op == "CALL" and i.arg == 1)
    assert (
        first.start <= call.offset < first.end
        and program[first.target].op == "PUSH_EXC_INFO"
        and first.depth == 0
    )


# ---- cells -----------------------------------------------------------------------------------------------------------


def test_cells_are_loaded_by_load_closure_and_their_content_by_load_deref():
    def f(x):
        g = lambda: x
        return g, x

    text = program(f)
    assert text[0] == "LOAD_CLOSURE x" and "LOAD_DEREF x" in text and "MAKE_CELL x" not in text


@pytest.mark.skipif(sys.version_info < (3, 12), reason="3.11 does not inline comprehensions")
def test_an_inlined_comprehension_may_keep_a_plain_value_in_the_slot_of_a_cell():
    def plain(x):
        g = lambda: x
        return [x + 1 for x in (1, 2)], g

    def cells(xs):
        return [lambda: x for x in xs]

    text = program(plain)
    assert "STORE_FAST x" in text and "LOAD_FAST x" in text and text.count("LOAD_CLOSURE x") == 1
    text = program(cells)
    assert [t for t in text if t.endswith(" x")] == [
        "LOAD_FAST_AND_CLEAR x",
        "MAKE_CELL x",
        "STORE_DEREF x",
        "LOAD_CLOSURE x",
        "STORE_FAST x",
        "STORE_FAST x",
    ]


# ---- every program ---------------------------------------------------------------------------------------------------

CANONICAL = frozenset(
    """
    POP_TOP PUSH_NULL COPY SWAP
    LOAD_CONST LOAD_FAST STORE_FAST DELETE_FAST LOAD_FAST_AND_CLEAR LOAD_CLOSURE LOAD_DEREF STORE_DEREF DELETE_DEREF
    MAKE_CELL LOAD_GLOBAL STORE_GLOBAL DELETE_GLOBAL LOAD_NAME STORE_NAME DELETE_NAME LOAD_LOCALS
    LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS LOAD_ATTR LOAD_SUPER_ATTR STORE_ATTR DELETE_ATTR BINARY_SUBSCR
    STORE_SUBSCR DELETE_SUBSCR BINARY_OP COMPARE_OP IS_OP CONTAINS_OP UNARY_NEGATIVE
    UNARY_POSITIVE UNARY_INVERT UNARY_NOT TO_BOOL JUMP POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE POP_JUMP_IF_NONE
    POP_JUMP_IF_NOT_NONE GET_ITER FOR_ITER RETURN_VALUE
    CALL CALL_KW CALL_FUNCTION_EX LIST_TO_TUPLE STOPITERATION_ERROR PREP_RERAISE_STAR MAKE_FUNCTION SET_FUNCTION_ATTRIBUTE
    BUILD_TUPLE BUILD_LIST BUILD_SET BUILD_MAP BUILD_CONST_KEY_MAP BUILD_SLICE BUILD_STRING UNPACK_SEQUENCE UNPACK_EX
    LIST_APPEND LIST_EXTEND SET_ADD SET_UPDATE MAP_ADD DICT_UPDATE DICT_MERGE CONVERT_VALUE FORMAT_SIMPLE
    FORMAT_WITH_SPEC IMPORT_NAME IMPORT_FROM IMPORT_STAR LOAD_BUILD_CLASS SETUP_ANNOTATIONS
    BEFORE_WITH WITH_EXCEPT_START PUSH_EXC_INFO POP_EXCEPT CHECK_EXC_MATCH CHECK_EG_MATCH RERAISE RAISE_VARARGS
    GET_LEN MATCH_SEQUENCE MATCH_MAPPING MATCH_KEYS MATCH_CLASS
    RETURN_GENERATOR YIELD_VALUE SEND END_SEND CLEANUP_THROW GET_YIELD_FROM_ITER GET_AWAITABLE GET_AITER GET_ANEXT
    END_ASYNC_FOR BEFORE_ASYNC_WITH ASYNC_GEN_WRAP TYPEVAR PARAMSPEC TYPEVARTUPLE SUBSCRIPT_GENERIC TYPEALIAS
    BUILD_INTERPOLATION BUILD_TEMPLATE
    TYPEVAR_WITH_BOUND TYPEVAR_WITH_CONSTRAINTS SET_FUNCTION_TYPE_PARAMS SET_TYPEPARAM_DEFAULT
    """.split()
)
"""Every op that `instructions` may give."""

MODULES = (
    json.decoder,
    argparse,
    dataclasses,
    typing,
    functools,
    statistics,
    inspect,
    asyncio.base_events,
    dis,
)
CODES = [code for module in MODULES for code in all_codes(module)]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CODES))
def test_any_code_of_the_standard_library_is_canonical(code):
    program = instructions(code)
    offsets = {i.offset for i in program}
    assert {i.op for i in program} <= CANONICAL
    assert all(i.arg in offsets for i in program if i.op in JUMPS)
    assert all(entry.target in offsets for entry in exception_table(code))
    assert [i.offset for i in program] == sorted(i.offset for i in program)
    assert all(
        i.offset < i.next_offset and i.next_offset in offsets | {len(code.co_code)} for i in program
    )
    lines = {offset: line for start, end, line in code.co_lines() for offset in range(start, end)}
    assert all(lines[i.offset] == i.line for i in program)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(CODES))
def test_nothing_but_the_meaningless_is_dropped(code):
    kept = {i.offset for i in instructions(code)}
    of_a_loop = {"END_FOR", "POP_TOP"} if sys.version_info >= (3, 12) else set()
    if sys.version_info >= (3, 14):
        of_a_loop = {"END_FOR", "POP_ITER"}
    # one instruction here, several of CPython's since 3.14
    several = ("BEFORE_WITH", "BEFORE_ASYNC_WITH", "CALL_FUNCTION_EX")
    within = {
        offset
        for i in instructions(code)
        if i.op in several
        for offset in range(i.offset, i.next_offset)
    }
    meaningless = {"RESUME", "NOP", "NOT_TAKEN", "PRECALL", "MAKE_CELL", "COPY_FREE_VARS"}
    begins = None  # where the EXTENDED_ARGs of the instruction begin
    for i in dis.get_instructions(code):
        begins = i.offset if begins is None else begins
        if i.opname != "EXTENDED_ARG":
            assert begins in kept | within or i.opname in meaningless | of_a_loop
            begins = None


def test_instructions_are_read_from_the_code_as_compiled_however_hot_it_is():
    def f(x, y):
        return x + y

    cold = program(f)
    for n in range(1000):
        f(n, n)
    assert "BINARY_OP_ADD_INT" in [i.opname for i in dis.get_instructions(f, adaptive=True)]
    assert program(f.__code__.replace()) == cold


def test_equal_code_of_two_files_keeps_its_own_inner_code():
    inner = lambda name: instructions(compile("lambda: 1", name, "eval"))[0].arg.co_filename
    assert (inner("a.py"), inner("b.py")) == ("a.py", "b.py")
