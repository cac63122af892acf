"""What a widget or a picture cannot show is refused with one sentence: what, where, and what to do."""

from __future__ import annotations

import pytest
import torch

import course_lib as cl
from course_lib import viz
from course_lib.viz.widgets.choose import choose_buckets, choose_fusion
from course_lib.viz.widgets.move_tile import move_tile


def ask(question="?", options=("a", "b"), answer=0, because="so"):
    return viz.Predict(question, options, answer, because)


def chosen(number):
    question = ask()
    question.choice = number


SENTENCES = {
    "the question of Predict is a text in quotes, not 3": lambda _: ask(question=3),
    "options is a list of texts, not 'ab'": lambda _: ask(options="ab"),
    "options is a list of texts, not 5": lambda _: ask(options=5),
    "a question has 2 to 6 options, not 0": lambda _: ask(options=[]),
    "an option of Predict is a text in quotes, not 3": lambda _: ask(options=["a", 3]),
    "two options of the question read the same: leave one out": lambda _: ask(options=["a", "a"]),
    "counted from 0: write answer=1, not its text": lambda _: ask(answer="b"),
    "answer is the number of the right option, 0 to 1, not 'c'": lambda _: ask(answer="c"),
    "answer is the number of the right option, 0 to 1, not True": lambda _: ask(answer=True),
    "answer is the number of the right option, 0 to 1, not -1": lambda _: ask(answer=-1),
    "because, which says why the answer is right, is a text in quotes, not None": lambda _: ask(
        because=None
    ),
    "choice is the number of an option, 0 to 1, not 'a'": lambda _: chosen("a"),
    "expects the trace of `with cl.record() as trace:`, not 3": lambda _: viz.Stepper(3),
    "asked for by its name, its number or the function itself, not by 1.5": lambda trace: (
        trace.stepper(1.5)
    ),
    "there is no frame 9: there is 1 frame, number 0": lambda trace: trace.stepper(9),
    "no frame called 'nope' was captured; there are": lambda trace: trace.stepper("nope"),
    "an explorer expects the trace of": lambda _: viz.Explorer([]),
    "the target of an explorer is a text in quotes, not 3": lambda trace: trace.explorer(3),
    "explore expects a function or an nn.Module, got 3: pass the function itself": lambda _: (
        cl.explore(3)
    ),
    "mirror expects a function or an nn.Module, got Tensor": lambda _: cl.mirror(torch.ones(2)),
    "explain expects a function or an nn.Module, got None": lambda _: cl.explain(None),
    "choose_fusion expects a LoopGraph (trace.of(events.Lowered)[0].graph), not []": lambda _: (
        choose_fusion([])
    ),
    "choose_fusion needs two loops or more to put together; this graph has 1": lambda trace: (
        choose_fusion(trace.of(cl.events.Lowered)[0].graph)
    ),
    "choose_buckets needs at least one length": lambda _: choose_buckets([], [4]),
    "needs a border below the longest length, 5; 5 itself is always one": lambda _: choose_buckets(
        [3, 5], [9]
    ),
    "lengths of requests: each is a whole number, 1 or more, not -5": lambda _: choose_buckets(
        [-5], [1]
    ),
    "borders is a list of lengths to pad to, not 3": lambda _: choose_buckets([3, 5], 3),
    "shape and tile are both (n,) or both (rows, columns), not 5": lambda _: move_tile(5, 2),
    "each is a whole number, 1 or more, not 2.5": lambda _: move_tile((5,), (2.5,)),
    "speed-up bars of 'a': name → how many times as fast, not 3": lambda _: viz.speedup_bars(
        {"a": 3}
    ),
    "the value of 'b' in 'a' is a number, not 'c'": lambda _: viz.speedup_bars({"a": {"b": "c"}}),
    "a landscape is (first, second) → seconds, not 1 → 2": lambda _: viz.landscape({1: 2}),
    "the value of 'a' is a number, not 'b'": lambda _: viz.bars({"a": "b"}),
    "a launch timeline needs at least one launch": lambda _: viz.launch_timeline({}),
    "bandwidth, in bytes/s, is a number above 0, not 0": lambda trace: trace.roofline(0, 1),
    "a graph break is asked for by its number, not 'a'": lambda trace: trace.break_card("a"),
    "record takes the folder that its report goes to, a text or a Path, not 3": lambda _: cl.record(
        3
    ).__enter__(),
}


@pytest.fixture(scope="module")
def simple():
    cl.reset()
    with cl.record() as trace:
        cl.compile(lambda x: x.sin())(torch.ones(4))
    return trace


@pytest.mark.parametrize("sentence", SENTENCES)
def test_bad_input_is_refused_with_a_sentence(sentence, simple):
    with pytest.raises((TypeError, ValueError, LookupError)) as raised:
        SENTENCES[sentence](simple)
    said = str(raised.value.args[0])
    assert (
        sentence in said
        and "\n" not in said
        and raised.value.__cause__ is None
        and raised.value.__context__ is None
    )


def test_a_target_that_the_compiler_does_not_know_is_named(simple):
    with pytest.raises(ValueError, match="knows no target 'nope': take one like"):
        simple.explorer("nope")


def test_a_report_makes_the_folder_that_it_goes_to(simple, tmp_path):
    assert simple.report(tmp_path / "new" / "report.html").exists()
