"""What is absent and comes: slots, attributes, names of functions and classes. The answer is eager's.

PYTEST_DONT_REWRITE: a scenario's `assert` is the program's own."""

import enum
import functools
import types

import pytest
import torch
from scenarios import before_and_after, check, collect

SCENARIOS, scenario = collect()
ones = lambda: torch.ones(3)


@scenario
def a_slot_is_filled_and_emptied(c):
    class A:
        __slots__ = ("v",)

    a = A()
    f = lambda x: x + (a.v if hasattr(a, "v") else 10)
    return before_and_after(
        c, f, lambda: setattr(a, "v", 3), lambda: setattr(a, "v", 4), lambda: delattr(a, "v")
    )


@scenario
def a_slot_remembers(c):
    class A:
        __slots__ = ("kept",)

    a = A()

    def f(x):
        if not hasattr(a, "kept"):
            a.kept = x * 2
        return x + a.kept

    f = c(f)
    return [f(ones()), f(ones() + 1), a.kept]


@scenario
def an_attribute_behind_getattr(c):
    class A:
        __slots__ = ("v",)

        def __getattr__(self, name):
            return 100

    a = A()
    return before_and_after(
        c, lambda x: x + a.v, lambda: setattr(a, "v", 3), lambda: delattr(a, "v")
    )


@scenario
def a_module_gets_an_attribute(c):
    module = types.ModuleType("corner")
    return before_and_after(
        c, lambda x: x + getattr(module, "new", 5), lambda: setattr(module, "new", 1)
    )


@scenario
def a_function_remembers(c):
    def helper(x):
        if not hasattr(helper, "kept"):
            helper.kept = x * 2
        helper.count = getattr(helper, "count", 0) + 1
        return x + helper.kept + helper.count

    f = c(lambda x: helper(x) + 1)
    return [f(ones()), f(ones() + 1), f(ones()), helper.count, helper.kept]


@scenario
def a_function_gets_another_name_and_text(c):
    def helper():
        """one"""

    def change():
        helper.__doc__, helper.__name__ = "two", "other"

    return before_and_after(c, lambda x: (x + 1, helper.__doc__, helper.__name__), change)


@scenario
def a_member_of_an_enum_gets_an_attribute(c):
    class E(enum.Enum):
        A = 1

    return before_and_after(c, lambda x: x + getattr(E.A, "tag", 0), lambda: setattr(E.A, "tag", 5))


@scenario
def a_partial_gets_an_attribute(c):
    p = functools.partial(torch.add, 1)
    return before_and_after(c, lambda x: p(x) + getattr(p, "tag", 0), lambda: setattr(p, "tag", 5))


@scenario
def the_dict_of_a_class(c):
    class A:
        pass

    f = lambda x: (x + ("q" in A.__dict__), "r" in vars(A))
    return before_and_after(
        c, f, lambda: setattr(A, "q", 1), lambda: setattr(A, "r", 1), lambda: delattr(A, "q")
    )


@scenario
def a_switch_of_a_backend(c):
    # Without the C function, torch.testing forbids it: it freezes these switches where another test has imported it.
    before = torch._C._get_cudnn_benchmark()
    try:
        turn = lambda: torch._C._set_cudnn_benchmark(not before)
        return before_and_after(c, lambda x: (x + 1, torch.backends.cudnn.benchmark), turn)
    finally:
        torch._C._set_cudnn_benchmark(before)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_answer_is_eagers(name):
    check(SCENARIOS[name])
