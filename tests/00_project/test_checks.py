"""What an exercise's checks accept, refuse, and say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import course_lib as cl
from course_lib.grading import (
    CheckFailed,
    check,
    check_close,
    check_equal,
    check_graphs,
    check_keeps,
    check_runs,
    watch_guards,
)


class SaysYes:
    """An answer that claims to equal everything, to be as long and as shaped as anything, and to be true."""

    shape, dtype = (2,), torch.float32

    def __eq__(self, other):
        return True

    def __bool__(self):
        return True

    def __len__(self):
        return 2

    __hash__ = None  # type: ignore[assignment]


class SaysYesTensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return torch.tensor(True)


class SaysYesInt(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


X = torch.tensor([1.0, 2.0])


@pytest.mark.parametrize(
    "expected", [X, np.array([1.0, 2.0]), 3.5, 7, [1, 2], (X, X), {"a": X}, "text", None, True]
)
@pytest.mark.parametrize(
    "got", [SaysYes(), torch.zeros(2).as_subclass(SaysYesTensor), SaysYesInt(7)]
)
def test_an_answer_that_claims_to_equal_everything_passes_nothing(got, expected):
    for compare in (check_close, check_equal):
        with pytest.raises(CheckFailed):
            compare(got, expected, "the answer")


@pytest.mark.parametrize("claim", [SaysYes(), 1, "yes", torch.tensor(True), None])
def test_a_condition_that_is_no_bool_fails(claim):
    with pytest.raises(CheckFailed, match="What:     the claim"):
        check(claim, "the claim")


def test_true_passes_and_numpys_true_too():
    check(True, "")
    check(np.bool_(True), "")


@pytest.mark.parametrize(
    "got, expected",
    [
        (X.clone(), X),
        (torch.nn.Parameter(X), X),
        (X + 1e-7, X),
        (torch.tensor([float("nan")]), torch.tensor([float("nan")])),
        (np.float32(2.0), np.float32(2.0)),
        (np.arange(3.0), np.arange(3.0)),
        (2**70, 2**70),
        (0.1 + 0.2, 0.3),
        ([X, (1, "a")], [X, (1, "a")]),
        ({"a": X}, {"a": X}),
    ],
)
def test_what_is_close_passes(got, expected):
    check_close(got, expected)


@pytest.mark.parametrize(
    "got, expected, what",
    [
        (X[:1], X, "the result: the shape"),
        (X.double(), X, "the result: the dtype"),
        (X + 1, X, "the result: the values"),
        (X.tolist(), X, "a plain tensor was asked for"),
        (1, 1.0, "the type float was asked for"),
        (True, 1, "the type int was asked for"),
        ([X], (X,), "the structure differs"),
        ([X, X], [X], "the structure differs"),
        ({"b": X}, {"a": X}, "the keys differ"),
        ([X, X + 1], [X, X], r"the result\[1\]: the values"),
    ],
)
def test_what_is_not_close_says_where(got, expected, what):
    with pytest.raises(CheckFailed, match=what):
        check_close(got, expected)


@pytest.mark.parametrize(
    "got, expected", [(1, True), (1.0, 1), ([1, True], [1, 1]), ({1: 2}, {True: 2}), ((1,), [1])]
)
def test_equal_values_of_another_type_are_not_equal(got, expected):
    with pytest.raises(CheckFailed):
        check_equal(got, expected, "it")


def test_the_message_teaches():
    with pytest.raises(CheckFailed) as caught:
        check_equal([3], [2], "number of kernels", "each kernel is one trip through memory")
    assert str(caught.value).splitlines() == [
        "",
        "What:     number of kernels",
        "Why:      each kernel is one trip through memory",
        "Expected: [2]",
        "Got:      [3]",
    ]


def test_a_difference_is_told_beside_the_limit_that_it_crossed():
    with pytest.raises(
        CheckFailed, match=r"(?m)^Why: .*Relative difference: 0\.5 \(up to 1e-09 allowed\)$"
    ) as failure:
        check_close(1.0, 2.0, "a speed", "it counts", rtol=1e-9, atol=0.0)
    assert "up to 0.0 allowed" not in str(failure.value)


def test_an_answer_whose_repr_fails_or_is_long_still_gives_a_message():
    class Broken:
        def __repr__(self):
            raise RuntimeError

    with pytest.raises(CheckFailed, match=r"a Broken \(its repr raised RuntimeError\)"):
        check_equal(Broken(), 1, "it")
    with pytest.raises(CheckFailed) as caught:
        check_equal("x" * 10_000, "y", "it")
    assert len(str(caught.value)) < 500


def test_an_answer_that_raises_is_told_in_words_with_its_line():
    def answer(numbers):
        return numbers["missing"]

    with pytest.raises(CheckFailed) as caught:
        check_runs(
            lambda: answer({}), "the answer runs", "why it should", {KeyError: "its keys are names"}
        )
    said = str(caught.value)
    assert "What:     the answer runs" in said and "Why:      its keys are names" in said
    assert (
        "KeyError: 'missing'" in said
        and 'the error came from the line: return numbers["missing"]' in said
    )
    with pytest.raises(CheckFailed, match="Why:      why it should"):
        check_runs(
            lambda: 1 / 0, "the answer runs", "why it should", {KeyError: "its keys are names"}
        )


def test_what_a_call_gives_passes_and_so_do_the_errors_that_explain_themselves():
    assert check_runs(lambda: 7, "the answer runs") == 7
    for error in (NotImplementedError("write this part"), CheckFailed("a check of its own")):

        def raises(error=error):
            raise error

        with pytest.raises(type(error), match=str(error).strip()):
            check_runs(raises, "the answer runs")


def test_a_wrong_number_of_graphs_shows_the_guards_that_failed():
    graphs = []

    def kept(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = cl.compile(lambda x: x * 2, backend=kept, dynamic=False)
    with watch_guards() as failed:
        for n in (2, 5, 7):
            compiled(torch.ones(n))
    check_graphs(len(graphs), 3, "right")
    with pytest.raises(CheckFailed) as raised:
        check_graphs(len(graphs), 1, "graphs for three lengths", "one serves all", failed)
    said = str(raised.value)
    assert "The guards and breaks:" in said and "x.shape[0]: expected 2, got 5" in said
    assert "Expected: 1" in said and "Got:      3" in said
    with watch_guards() as seen:
        cl.compile(lambda x: (print(end=""), x * 2)[1] + 1, backend="eager")(torch.ones(3))
    with pytest.raises(CheckFailed, match=r"a break in `.*<lambda>`, at .*print"):
        check_graphs(2, 1, "graphs", "", seen)
    many = [f"guard {n}" for n in range(30)]
    with pytest.raises(CheckFailed, match="and 22 more"):
        check_graphs(2, 1, "graphs", "", many)
    with pytest.raises(CheckFailed):
        check_graphs(True, 1, "graphs")
    check_graphs(len(graphs), 4, "as few as that are right", "", failed, at_most=True)
    with pytest.raises(CheckFailed, match=r"(?s)The guards and breaks:.*Expected: at most 2"):
        check_graphs(len(graphs), 2, "too many", "", failed, at_most=True)


def test_in_a_notebook_a_failed_check_shows_its_text_and_no_lines_of_the_course(capsys):
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_cell(
        "from course_lib.grading import check_equal\ncheck_equal(1, 2, 'a sum', 'it is')"
    )
    said = "".join(capsys.readouterr())
    assert "CheckFailed: \nWhat:     a sum\nWhy:      it is\n" in said and "Expected: 2" in said
    assert "checks.py" not in said and "Traceback" not in said


def clears(value):
    value.clear()


def adds_one(value):
    value += 1


def inner_item(value):
    value[0][1] = 7


CHANGED = {
    "a list": (clears, [1, 2]),
    "a dict": (clears, {"a": 1}),
    "a set": (clears, {1}),
    "a dict's order": (lambda d: d.update(a=d.pop("a")), {"a": 1, "b": 2}),
    "a list in a list": (inner_item, [[1, 2]]),
    "a tensor in a tuple": (lambda pair: pair[0].add_(1), (torch.zeros(2),)),
    "a tensor": (adds_one, torch.ones(2)),
    "a tensor of bools": (lambda x: x.logical_not_(), torch.tensor([True, False])),
    "a tensor's shape": (lambda x: x.resize_(1), torch.ones(2)),
    "an array": (adds_one, np.ones(2)),
    "an object in a list": (lambda items: items.__setitem__(0, object()), [object()]),
    "a tensor put in place of a number": (lambda items: items.__setitem__(0, X), [1.0]),
    "one that claims to be equal": (lambda items: items.__setitem__(0, SaysYes()), [X]),
}


@pytest.mark.parametrize("what", CHANGED)
def test_an_answer_that_changes_an_input_is_seen(what):
    change, given = CHANGED[what]
    with pytest.raises(CheckFailed, match=r"(?s)input 2 of answer, after the call.*in place"):
        check_keeps(answer_that(change), 1, given)


def answer_that(change):
    def answer(number, value):
        change(value)
        return number

    return answer


KEPT = ([1, [2.5, "a"]], {"a": {1}}, float("nan"), torch.tensor([float("nan"), 1.0]),
        np.array([np.nan]), object(), (X, [X]), torch.nn.Parameter(X.clone()), None, X.bool())  # fmt: skip


@pytest.mark.parametrize("given", KEPT, ids=lambda given: type(given).__name__)
def test_an_answer_that_leaves_its_inputs_gives_its_result(given):
    assert check_keeps(lambda value: value, given) is given
    # an item that is written anew and says the same is no change
    assert check_keeps(lambda items: items.__setitem__(0, float("1e9")), [float("1e9")]) is None


def test_the_message_shows_the_input_before_and_after():
    with pytest.raises(CheckFailed) as failed:
        check_keeps(answer_that(clears), 1, [3, 4], why="the list is the caller's")
    assert "Why:      the list is the caller's" in str(failed.value)
    assert "Expected: [3, 4]\nGot:      []" in str(failed.value)
