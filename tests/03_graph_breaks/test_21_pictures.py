"""Pictures of graph breaks: a break in full, a frame cut in pieces, the bytecode of a resume function."""

import re

import pytest
import torch

import course_lib as cl
from course_lib import frames
from course_lib.frames.resume import resume_at
from course_lib.viz.pictures.capture.resume_code import resume_code

pytestmark = pytest.mark.skipif(
    not frames.installed(), reason="without the hook resume functions are not captured"
)


def bar(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


def inner(x):
    y = x.sin()
    print(end="")
    return y.cos()


def outer(x):
    return inner(x + 1) * 2


def halves(x):
    while x.norm() > 1:
        x = x / 2
    return x


def turns(x):
    for i in range(3):
        x = x * 2
        print(i, end="")
    return x


def recorded(function, *calls):
    compiled = cl.compile(function, backend="eager")
    with cl.record() as trace:
        for args in calls:
            compiled(*args)
    return trace


def steady(text):
    """Without offsets, which differ by CPython version."""
    # 3.13: the condition alone
    return re.sub(r"(from|line) \d+", r"\1 N", text).replace("Python: if ", "Python: ")


def test_a_branch_is_cut_in_three_and_what_has_not_run_is_said():
    a, b = torch.ones(3), torch.full((3,), 2.0)
    once = steady(recorded(bar, (a, b)).cut(bar).text).splitlines()
    assert once[:3] == ["bar: graph 1", "  abs, add, truediv, sum, lt", "✂ Python: b.sum() < 0"]
    assert (
        "   bar from N (line N): not needed so far" in once and once.count("├→ hands on b, x") == 2
    )
    both = recorded(bar, (a, b), (a, -b)).cut()
    numbers = [line.split("graph ")[1] for line in both.text.splitlines() if "graph " in line]
    assert numbers == ["1", "3", "2"], (
        "the way that was captured first is the second graph, wherever it is drawn"
    )
    assert "not needed" not in both.text
    assert both.alt.startswith("bar in 3 pieces: 3 graphs, 1 graph break.")


def test_each_function_that_a_break_cuts_has_a_picture_of_its_own():
    trace = recorded(outer, (torch.ones(2),))
    assert (
        "✂ Python: inner(x + 1)" in trace.cut(outer).text
        and "1 stack value" in trace.cut("outer").text
    )
    assert "✂ Python: print(end=" in trace.cut(inner).text
    with pytest.raises(LookupError, match="no frame called 'other' was recorded"):
        trace.cut("other")


def by_length(x, steps):
    print(end="")
    x = x.sin()
    if len(steps) > 1:
        return x.cos() + x.sum().item()
    print(end="")
    return x.tan()


def test_a_resume_function_shows_each_of_its_captures_and_where_each_of_them_ends():
    x = torch.ones(3)
    picture = recorded(by_length, (x, [1, 2]), (x, [1]), (x, [1, 2, 3])).cut(by_length)
    lines = [line.strip() for line in picture.text.splitlines()]
    assert "captures 1, 3: sin, cos, sum" in lines and "capture 2: sin" in lines
    inside = lines[lines.index("capture 2: sin") :]
    assert inside[1:3] == ["✂ Python: x.sum().item()", '✂ Python: print(end="")']
    assert sum("graph " in line for line in lines) == 3 and "3 graph breaks" in picture.alt
    assert ">capture 2: sin</text>" in picture.body


@pytest.mark.parametrize("function", [halves, turns])
def test_a_loop_leads_back_and_the_drawing_ends(function):
    picture = recorded(function, (torch.ones(4) * 8,)).cut(function)
    assert ": drawn above" in picture.text
    assert "drawn elsewhere" not in picture.text or ": no graph" in picture.text, (
        "what follows the loop is drawn once, beside it"
    )
    assert len(picture.text.splitlines()) < 30


def test_a_card_has_reason_line_bytecode_calls_and_hint():
    trace = recorded(outer, (torch.ones(2),))
    text = trace.break_card().text
    assert text.startswith("✂ print has an effect outside the graph")
    assert re.search(r"▸\s+\d+ CALL 0|▸\s+\d+ CALL_KW", text) and "^^^^" in text
    assert "outer            return inner(x + 1) * 2" in text and "what to do" in text
    with pytest.raises(LookupError, match="there is no graph break 7; there are 2"):
        trace.break_card(7)


def test_the_bytecode_of_a_resume_function_stands_beside_the_original():
    place = next(i.next_offset for i in frames.instructions(inner.__code__) if i.op == "POP_TOP")
    made = resume_at(inner.__code__, place, (), frozenset())
    lines = resume_code(made).text.splitlines()
    assert sum(" new " in line for line in lines) == 1 and "JUMP" in lines[1]
    assert sum(" same " in line for line in lines) == sum(
        i.offset >= place for i in frames.instructions(inner.__code__)
    )


def test_pictures_follow_the_theme_and_are_the_same_each_time():
    def pictures():
        trace = recorded(bar, (torch.ones(3), torch.full((3,), 2.0)))
        return trace.cut(), trace.break_card()

    for one, two in zip(pictures(), pictures(), strict=True):
        assert one.text == two.text and one.caption and len(one.alt) > 10
        assert not re.search(r'#(?:000|fff)(?:000|fff)?\b|[":]\s*(?:black|white)\b', one.html)
        assert all(
            float(size) >= 11 for size in re.findall(r'font-size(?:="|:\s*)([\d.]+)', one.html)
        )
        assert all('fill="currentColor"' in text for text in re.findall(r"<text\b[^>]*>", one.html))
