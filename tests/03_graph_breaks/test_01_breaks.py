"""Graph breaks: where the graph ends, what the head does in Python, and how the rest is captured again."""

import pytest
import torch
from torch.testing import assert_close

import course_lib as cl
from course_lib import frames
from course_lib.frames.resume import Slot, live, resume_at, resumed

pytestmark = pytest.mark.skipif(
    not frames.installed(), reason="without the hook resume functions are not captured"
)


def broken(function, *args):
    """The recording of one compiled call, which agrees with eager."""
    with cl.record() as trace:
        assert_close(cl.compile(function, backend="eager")(*args), function(*args))
    return trace


def operations(trace):
    return [[n.name for n in gm.graph.nodes if n.op.startswith("call_")] for gm in trace.graphs]


def test_a_branch_on_data_is_a_visible_if_with_two_resume_functions():
    def bar(a, b):
        x = a / (torch.abs(a) + 1)
        if b.sum() < 0:
            b = b * -1
        return x * b

    trace = broken(bar, torch.ones(3), torch.ones(3))
    assert operations(trace) == [["abs_1", "add", "truediv", "sum_1", "lt"], ["mul"]]
    head = trace.captures[0].head.source
    assert "if __out[0]:" in head and head.count("return ") == 2
    assert "data in a tensor" in trace.graph_breaks[0].reason


def test_a_break_has_reason_place_instruction_stack_and_hint():
    def inner(x):
        return x.sum().item()

    def outer(x):
        return inner(x) + 1

    problem = broken(outer, torch.ones(2)).graph_breaks[0]
    assert "item" in problem.reason and problem.hint
    assert problem.location.text == "return x.sum().item()" and "^" in problem.location.caret
    assert problem.instruction.startswith("CALL") and problem.offset > 0
    assert [place.function.split(".")[-1] for place in problem.stack] == ["outer", "inner"]


def test_a_break_in_a_callee_ends_the_callers_graph_and_both_rests_are_captured():
    def inner(x):
        y = x.sin()
        print(end="")
        return y.cos()

    def outer(x):
        return inner(x.exp()).neg()

    assert operations(broken(outer, torch.ones(2))) == [["exp"], ["sin"], ["cos"], ["neg"]]


def test_a_half_built_call_stays_on_the_stack():
    def f(x):
        return max(x.sum().item(), 1) + torch.add(x, x.max().item(), alpha=len([1, int(x.min())]))

    broken(f, torch.ones(3))


def test_the_head_runs_exit_of_a_with_block_once_and_with_the_exception():
    seen = []

    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, trace):
            seen.append(kind)
            return True

    def f(x, fails):
        with Manager():
            y = x * 2
            int(fails)
            y = y + 1
        return y

    def g(x, fails):
        y = x
        with Manager():
            y = x * 2
            y = y + int(fails)
        return y

    x = torch.ones(2)
    compiled = cl.compile(f, backend="eager")
    assert_close(compiled(x, torch.tensor(1)), x * 2 + 1)
    assert_close(cl.compile(g, backend="eager")(x, torch.tensor([1, 2])), x * 2)
    assert seen == [None, ValueError]


def test_grad_mode_is_kept_over_a_break():
    def f(x):
        with torch.no_grad():
            y = x * 2
            print(end="")
            z = y + x
        return z, x * 3

    x = torch.ones(2, requires_grad=True)
    z, w = cl.compile(f, backend="eager")(x)
    assert not z.requires_grad and w.requires_grad and torch.is_grad_enabled()


def test_an_exception_in_the_except_block_after_a_break_is_the_real_one():
    def f(x):
        try:
            raise KeyError("first")
        except KeyError:
            print(end="")
            y = x + 1
            if y.sum() > 0:
                raise
        return y

    with pytest.raises(KeyError, match="first"):
        cl.compile(f, backend="eager")(torch.ones(2))


def test_a_long_loop_with_a_break_in_each_turn_does_not_nest_deeper_and_deeper():
    def f(x):
        while x.sum() < 5000:
            x = x + 1
        return x

    broken(f, torch.zeros(2))


def test_a_live_generator_is_made_in_python():
    def numbers():
        yield 1
        yield 2

    def f(x):
        made = numbers()
        x = x * next(made)
        print(end="")
        return x * next(made)

    broken(f, torch.ones(2))


def test_fullgraph_raises_and_names_the_line():
    def f(x):
        return x * x.data_ptr()

    with pytest.raises(cl.Unsupported, match=r"test_01_breaks\.py") as caught:
        cl.compile(f, fullgraph=True)(torch.ones(2))
    assert "x.data_ptr()" in str(caught.value)


def test_disable_with_and_without_what_it_calls():
    def leaf(x):
        return x * 2

    for recursive, graphs in ((True, [["add"], ["sub"]]), (False, [["add"], ["mul"], ["sub"]])):
        off = cl.disable(lambda x: leaf(x), recursive=recursive)
        assert operations(broken(lambda x, off=off: off(x + 1) - 1, torch.ones(2))) == graphs


def test_what_is_allowed_in_a_graph_and_what_is_not():
    @cl.allow_in_graph
    def black_box(x):
        return x * 2 if x.dtype is torch.float32 else x

    assert operations(broken(lambda x: black_box(x) + 1, torch.ones(2))) == [["black_box", "add"]]
    cl.disallow_in_graph(torch.erfinv)
    assert operations(broken(lambda x: torch.erfinv(x * 0.1) + 1, torch.ones(2))) == [
        ["mul"],
        ["add"],
    ]


def test_a_resume_function_is_a_prologue_and_the_same_bytecode():
    def f(x):
        y = abs(x)
        return max(y, 3) + y

    offset = next(i.next_offset for i in frames.instructions(f.__code__) if i.op == "CALL")
    made = resume_at(f.__code__, offset, (Slot.VALUE,), frozenset({"y"}))
    assert made.code.co_code.endswith(f.__code__.co_code) and resumed(made.code) is made
    assert resume_at(made.code, offset + made.shift, (Slot.VALUE,), frozenset({"y"})) is made
    stored = next(i.next_offset for i in frames.instructions(f.__code__) if i.op == "STORE_FAST")
    assert "y" not in live(f.__code__)[offset] and "y" in live(f.__code__)[stored]


def test_an_error_raised_while_another_is_handled_is_told_with_its_line():
    def f(x):
        try:
            x.undefined
        except AttributeError as error:
            raise ValueError("wrapped") from error

    with cl.record() as trace, pytest.raises(ValueError, match="wrapped"):
        cl.compile(f, backend="eager")(torch.ones(3))
    assert "ValueError: wrapped" in trace.graph_breaks[-1].reason
    assert trace.graph_breaks[-1].location.text == 'raise ValueError("wrapped") from error'


def test_a_break_at_open_names_it_as_the_user_wrote_it_on_every_python():
    from course_lib.capture.values import name_of

    assert name_of(open) == "open"  # its module is io on 3.11, _io on 3.12
