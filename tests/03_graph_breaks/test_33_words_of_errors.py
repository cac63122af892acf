# ruff: noqa: F841, RUF059, B007, B016  (each function is there to fail)
"""An error that the interpreter raises itself has the words that this CPython has for it.

A program that catches an error may look at its text. Each function below provokes one error, in eager and compiled.
The words differ from version to version; the expected ones are always those of eager.
"""

from __future__ import annotations

import pytest
import torch

import course_lib as cl


class OwnList(list):
    """A subclass: CPython asks it for its iterator."""


class Endless:
    def __iter__(self):
        while True:
            yield 1


ITEMS = {
    "a tuple": (1, 2, 3),
    "a list": [1, 2, 3],
    "a dict": {1: 1, 2: 2, 3: 3},
    "a set": {1, 2, 3},
    "a string": "abc",
    "bytes": b"abc",
    "a range": range(3),
    "keys of a dict": {1: 1, 2: 2, 3: 3}.keys(),
    "a subclass of list": OwnList([1, 2, 3]),
    "a size of a tensor": torch.Size([1, 2, 3]),
    "a tensor of three rows": torch.ones(3, 2),
    "an endless iterator": Endless(),
    "a tuple of one": (1,),
    "a list of one": [1],
    "a dict of one": {1: 1},
    "an empty string": "",
    "a number": 3,
    "None": None,
}


def unpack_two(x, items):
    one, two = items
    return x


def unpack_a_new_list(x, items):
    one, two = [*items, 1, 2]
    return x


def unpack_a_new_tuple(x, items):
    one, two = (x, x + 1, x + 2)
    return x


def unpack_four_and_more(x, items):
    one, two, three, four, *more = items
    return x


def unpack_an_iterator(x, items):
    one, two = iter(items)
    return x


def unpack_in_a_loop(x, items):
    for one, two in [(1, 2), items]:
        x = x + 1
    return x


UNPACKING = [
    unpack_two,
    unpack_a_new_list,
    unpack_a_new_tuple,
    unpack_four_and_more,
    unpack_an_iterator,
    unpack_in_a_loop,
]


def two_arguments(a, b):
    return a


def named_only(a, *, b):
    return a


def call_with_too_few(x):
    return two_arguments(x)


def call_with_too_many(x):
    return two_arguments(x, 1, 2)


def call_without_a_name(x):
    return named_only(x)


def call_with_a_wrong_name(x):
    return two_arguments(x, b=1, c=2)


def call_with_a_name_twice(x):
    return two_arguments(x, a=1, b=2)


def call_with_a_name_twice_in_dicts(x):
    return two_arguments(**{"a": x}, **{"a": 1})


def call_with_no_mapping(x):
    return two_arguments(x, **3)


def call_with_nothing_to_iterate(x):
    return two_arguments(x, *3)


def call_a_number(x):
    number = 3
    return number(x)  # type: ignore[operator]


def list_of_no_items(x):
    return [x, *3]


def set_of_no_items(x):
    return {1, *3}


def dict_of_no_mapping(x):
    return {"a": x, **3}


def loop_over_a_number(x):
    for _ in 3:
        x = x + 1
    return x


def index_a_number(x):
    number = 3
    return number[0] + x


def write_into_a_number(x):
    number = 3
    number[0] = x


def write_into_a_tuple(x):
    items = (1, 2)
    items[0] = x


def delete_from_a_tuple(x):
    items = (1, 2)
    del items[0]


def index_behind_a_list(x):
    return [1, 2][5] + x


def missing_key(x):
    return {"a": 1}["b"] + x


def attribute_of_a_number(x):
    number = 3
    return number.nothing + x


def write_an_attribute_of_a_number(x):
    number = 3
    number.nothing = x


def attribute_of_none(x):
    nothing = None
    return nothing.shape


def read_an_unbound_local(x):
    if x is None:
        y = 1
    return x + y


def delete_an_unbound_local(x):
    if x is None:
        y = 1
    del y


def read_an_unbound_cell(x):
    def inner():
        return y

    got = inner()
    y = x
    return got + y


def read_an_unknown_name(x):
    return x + no_such_name  # noqa: F821


def import_an_unknown_module(x):
    import no_such_module_here  # noqa: F401


def import_an_unknown_name(x):
    from contextlib import no_such_name  # noqa: F401


def raise_a_number(x):
    raise 3  # type: ignore[misc]


def raise_without_an_error(x):
    raise


def enter_a_number(x):
    with 3:
        return x


def add_a_number_to_a_string(x):
    return "a" + 3


def add_a_string_to_a_number(x):
    return 3 + "a"


def compare_a_number_with_a_string(x):
    return 3 < "a"


def look_into_a_number(x):
    return 1 in 3


def divide_by_zero(x):
    return 1 / 0


def remainder_by_zero(x):
    return 1 % 0


def floor_by_zero(x):
    return 1.0 // 0


def a_zero_power(x):
    return 0.0**-1


def an_unhashable_key(x):
    return {[1]: x}


def an_unhashable_item(x):
    return {[1], 2}


def negate_a_string(x):
    return -"a"


def match_two_many(x):
    class Point:
        __match_args__ = ("a",)

    match Point():
        case Point(1, 2):
            return x
    return x + 1


def end_of_an_iterator(x):
    return next(iter(())) + x


def a_wrong_format(x):
    return f"{3:no}"


def a_failed_assertion(x):
    assert x is None, "it is something"


def an_unknown_int(x):
    return int("three")


def a_generator_of_a_number(x):
    def all_of(items):
        yield from items

    return list(all_of(3))


def strict_zip(x):
    return list(zip([1], [1, 2], strict=True))


OTHERS = [
    value
    for value in list(globals().values())
    if getattr(value, "__module__", "") == __name__
    and getattr(value, "__code__", None) is not None
    and value.__code__.co_varnames[: value.__code__.co_argcount] == ("x",)
]


def words_of(function, *arguments) -> str:
    """The class of the error that `function` raises, and its text."""
    try:
        function(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def caught(function):
    """A program that calls `function` and returns the words of its error. It is one frame, and one more."""

    def program(*arguments):
        try:
            function(*arguments)
        except Exception as error:
            return type(error).__name__, str(error)
        return "no error", ""

    return program


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("function", UNPACKING)
def test_a_wrong_number_of_items_is_told_in_pythons_words(function, name):
    arguments = torch.ones(2), ITEMS[name]
    if name == "an endless iterator" and function in (unpack_a_new_list, unpack_four_and_more):
        pytest.skip("it has no end in eager either")

    expected = caught(function)(*arguments)
    cl.reset()
    got = cl.compile(caught(function), backend="eager")(*arguments)

    assert got == expected


@pytest.mark.parametrize("function", OTHERS, ids=lambda function: function.__name__)
def test_an_error_of_an_instruction_is_told_in_pythons_words(function):
    expected = caught(function)(torch.ones(2))
    assert expected[0] != "no error"

    cl.reset()
    got = cl.compile(caught(function), backend="eager")(torch.ones(2))
    assert got == expected

    cl.reset()
    assert words_of(cl.compile(function, backend="eager"), torch.ones(2)) == ": ".join(expected)
