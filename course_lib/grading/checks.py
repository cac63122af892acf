"""Checks that teach: what an exercise asserts, and what it says when the answer is not right yet.

In:  a learner's result beside what was expected. Out: nothing, or `CheckFailed`, which says What,
     Why, Expected, Got.

A check never trusts the learner's object to compare itself. An object whose `__eq__` always says
True would pass any `assert got == expected`; so `check_close` looks at the type first and compares
plain tensors with torch.
"""

from __future__ import annotations

import ast
import linecache
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from course_lib.languages import phrase, translate, translate_message

from . import quiet
from .cell_source import without_addresses
from .checked_call import checked_call
from .explained import ERROR_IN, listen
from .terminal import filled

# Looked up once, so that a cell which reassigns `torch.testing.assert_close` changes no verdict.
_assert_close = torch.testing.assert_close
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_NOT_GIVEN = object()  # None may be what was expected
_INDENT = 10
"""Columns: what stands behind "Expected:" and the like begins here, and so do its further lines."""
_MOST_LETTERS = 300
"""A longer value is cut: the message is read in a notebook cell."""
# How a kernel calls the file of a cell, with a line: another name each time, which tells a reader
# nothing
_CELL_FILE = re.compile(r"(?:/\S*/ipykernel_\d+/\d+\.py|<ipython-input-[^>]*>):(\d+)")
MOST_GUARDS = 8  # that a check shows
# The lines of `torch.testing.assert_close` about what differs, by their first words
_DIFFERENCES = {
    "Absolute": "Absolute difference: {value} (up to {limit} allowed)",
    "Relative": "Relative difference: {value} (up to {limit} allowed)",
    "Greatest absolute": "Greatest absolute difference: {value} at index {place} (up to {limit} allowed)",
    "Greatest relative": "Greatest relative difference: {value} at index {place} (up to {limit} allowed)",
}
_DIFFERENCE = re.compile(
    r"(?P<kind>[A-Za-z ]+) difference: (?P<value>\S+)(?: at index (?P<place>.+?))? "
    r"\(up to (?P<limit>\S+) allowed\)"
)
_LIBRARY = str(Path(__file__).parents[1])


class CheckFailed(AssertionError):
    """An exercise's check did not hold; the text says what to look at next.

    What, Why, the call that was asked with its inputs, Expected, Got. A text among the last two
    that could be taken for another value (`'3'` for 3) stands in quotes.
    """

    def __init__(
        self, what: str, why: str = "", expected: Any = _NOT_GIVEN, got: Any = _NOT_GIVEN
    ) -> None:
        what, why = translate_message(what), translate_message(why)
        lines = [("What", what), ("Why", why), ("Call", _call())]
        if expected is not _NOT_GIVEN:
            lines.append(("Expected", _short(expected)))
        if got is not _NOT_GIVEN:
            lines.append(("Got", _short(got)))

        message = "\n".join(
            filled(f"{translate(name)}:", _INDENT) + text for name, text in lines if text
        )
        super().__init__("\n" + _CELL_FILE.sub(phrase(r"a cell, line \1"), message))
        self.what, self.why = what, why

    def _render_traceback_(self) -> list[str]:
        """In a notebook the text is shown, and no lines of checks and of the course: IPython asks
        for it."""
        return [f"CheckFailed: {self}"]


def check(
    condition: Any, what: str, why: str = "", expected: Any = _NOT_GIVEN, got: Any = _NOT_GIVEN
) -> None:
    """Raise `CheckFailed` unless `condition` is exactly True.

    `what` says which property was looked at, `why` why it matters. A condition of another type than
    bool (a tensor, an object that overloads `==`) fails: compare with `check_equal` or
    `check_close` instead.
    """
    if type(condition) not in (bool, np.bool_):
        raise CheckFailed(
            what,
            "the comparison gave no bool: the answer's type is not the one asked for",
            "a bool",
            type(condition),
        )
    if not condition:
        raise CheckFailed(what, why, _in_words(expected), _in_words(got))


def _in_words(value: Any) -> Any:
    """What `check` compares is said in words ("two or more"): those of several are translated."""
    if type(value) is str and " " in value:
        return translate_message(value)
    return value


def check_equal(got: Any, expected: Any, what: str, why: str = "") -> None:
    """Raise `CheckFailed` unless `got` equals `expected` in type and value.

    For numbers, strings, None, and lists, tuples, sets and dicts of them, to any depth.
    """
    if not _same(got, expected):
        raise CheckFailed(what, why, expected, got)


def check_close(
    got: Any,
    expected: Any,
    what: str = "the result",
    why: str = "",
    rtol: float | None = None,
    atol: float | None = None,
) -> None:
    """Raise `CheckFailed` unless `got` is `expected` to within tolerance: same type, shape, dtype
    and values.

    `expected` is a tensor, a NumPy array or scalar, a number, or a tuple, list or dict of those.
    Tolerances default to torch's for the dtype; NaN equals NaN. A subclass of `torch.Tensor` is
    refused: it can answer comparisons as it likes.
    """
    kind = type(expected)
    if kind in (tuple, list):
        _check_structure(type(got) is kind and len(got) == len(expected), got, expected, what)
        for i, (g, e) in enumerate(zip(got, expected, strict=True)):
            check_close(g, e, f"{translate_message(what)}[{i}]", why, rtol, atol)
        return

    if kind is dict:
        _check_structure(
            type(got) is dict and _same(list(got), list(expected)), got, expected, what
        )
        for key in expected:
            part = f"{translate_message(what)}[{key!r}]"
            check_close(got[key], expected[key], part, why, rtol, atol)
        return

    if kind in _TENSORS:
        check(
            type(got) in _TENSORS, what, "a plain tensor was asked for", "torch.Tensor", type(got)
        )
    else:
        check(type(got) is kind, what, f"the type {kind.__name__} was asked for", kind, type(got))
    _check_values(got, expected, what, why, rtol, atol)


def _check_structure(is_same: bool, got: Any, expected: Any, what: str) -> None:
    """The same kind of container, with as many items or the same keys."""
    kind = "the keys differ" if type(expected) is dict else "the structure differs"
    check(is_same, what, kind, _structure(expected), _structure(got))


def check_runs(
    call: Callable[[], Any],
    what: str,
    why: str = "",
    hints: Mapping[type[Exception], str] | None = None,
) -> Any:
    """What `call()` gives; if it raises, `CheckFailed` with the error and the learner's line that
    it came from.

    `hints` has a better reason than `why` for some kinds of error. A stub's `NotImplementedError`
    and a check's own failure pass through: both say already what is to be done.
    """
    try:
        return call()
    except (CheckFailed, NotImplementedError):
        raise
    except Exception as error:
        for kind, hint in (hints or {}).items():
            if isinstance(error, kind):
                why = hint
                break
        error_text = f"{type(error).__name__}: {error}{_place(error)}"
        raise CheckFailed(what, why, phrase("an answer"), error_text) from error


def check_keeps(function: Callable[..., Any], *inputs: Any, why: str = "") -> Any:
    """What `function(*inputs)` gives; `CheckFailed` if an input is another afterwards.

    Whoever calls the function goes on with the inputs. Tensors, arrays, lists, tuples, sets and
    dicts are compared by what is in them, to any depth; another object counts as itself.
    """
    copies = _copied(inputs)
    result = function(*inputs)
    for number, (now, then) in enumerate(zip(inputs, copies, strict=True), 1):
        if not _is_kept(now, then):
            name = getattr(function, "__name__", "the answer")
            raise CheckFailed(
                f"input {number} of {name}, after the call",
                why or "it was changed in place, and the caller goes on with it: work on a copy",
                then,
                now,
            )
    return result


def _copied(value: Any) -> Any:
    """The value with every container and tensor in it copied; all else is the same object."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, dict):
        return {key: _copied(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_copied(part) for part in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    if isinstance(value, (set, frozenset)):
        return set(value)
    return value


def _is_kept(now: Any, then: Any) -> bool:
    """Whether an input says what its copy from before the call says."""
    for kinds, is_same in _KEPT:
        if isinstance(then, kinds):
            return isinstance(now, kinds) and is_same(now, then)
    return now is then or (type(then) in _PLAIN and _same(now, then))


def _same_tensor(now: torch.Tensor, then: torch.Tensor) -> bool:
    """Are both of one shape and dtype, with the same numbers? (NaN counts as NaN.)"""
    looks_same = now.shape == then.shape and now.dtype == then.dtype
    return looks_same and torch.allclose(now, then, rtol=0, atol=0, equal_nan=True)


def _same_array(now: np.ndarray, then: np.ndarray) -> bool:
    looks_same = now.shape == then.shape and now.dtype == then.dtype
    # NaN is not equal to itself
    return looks_same and bool(np.all((now == then) | ((now != now) & (then != then))))


def _same_dict(now: dict[Any, Any], then: dict[Any, Any]) -> bool:
    return list(now) == list(then) and all(_is_kept(now[key], then[key]) for key in then)


def _same_items(now: Sequence[Any], then: Sequence[Any]) -> bool:
    pairs = zip(now, then, strict=False)
    return len(now) == len(then) and all(_is_kept(one, other) for one, other in pairs)


_KEPT: tuple[tuple[tuple[type, ...], Callable[[Any, Any], bool]], ...] = (
    ((torch.Tensor,), _same_tensor),
    ((np.ndarray,), _same_array),
    ((dict,), _same_dict),
    ((list, tuple), _same_items),
    ((set, frozenset), operator.eq),
)
"""Kinds of inputs → how one is compared with its copy."""


def check_graphs(
    got: int,
    expected: int,
    what: str,
    why: str = "",
    guards: Sequence[str] = (),
    at_most: bool = False,
) -> None:
    """Raise `CheckFailed` unless so many graphs were captured; with `at_most`, so many or fewer.

    `guards`: what is to blame, from `watch_guards` or a trace: guards that failed, and breaks, with
    their lines.
    """
    if type(got) is int and (got == expected or (at_most and got < expected)):
        return

    wanted = phrase("at most {n}", n=expected) if at_most else expected
    blamed = list(dict.fromkeys(guards))
    lines = [translate_message(why)]
    if blamed:
        lines.append(phrase("The guards and breaks:"))
    lines += [f"  {guard}" for guard in blamed[:MOST_GUARDS]]
    if len(blamed) > MOST_GUARDS:
        lines.append(f"  {phrase('and {n} more', n=len(blamed) - MOST_GUARDS)}")
    raise CheckFailed(what, "\n".join(line for line in lines if line), wanted, got)


@contextmanager
def watch_guards() -> Iterator[list[str]]:
    """The guards that fail inside, and the breaks, each with its line: why there are as many graphs
    as there are."""
    from course_lib import events

    sentences: list[str] = []

    def note(event: events.Event) -> None:
        if isinstance(event, events.GuardFailed):
            sentences.append(_failed_guard(event))
        elif isinstance(event, events.GraphBroke):
            sentences.append(_break(event.problem))

    with events.listener(note):
        yield sentences


def _failed_guard(event: Any) -> str:
    """`x.shape[0]: expected 2, got 5, in `f`, from cell 3:2: y = x * x.shape[0]`."""
    cause = getattr(event.guard, "cause", None)
    guard = phrase("{guard}, in `{name}`", guard=event.got, name=event.name)
    if not cause:
        return guard
    return phrase("{guard}, from {place}: {line}", guard=guard, place=cause, line=cause.text)


def _break(problem: Any) -> str:
    """`a break in `f`, at cell 3:2: print(x) (calls print, ...)`."""
    place = problem.location
    if place is None:
        return phrase("a break: {reason}", reason=problem.reason)
    return phrase(
        "a break in `{function}`, at {place}: {line} ({reason})",
        function=place.function,
        place=place,
        line=place.text,
        reason=problem.reason,
    )


def _place(error: Exception) -> str:
    """The innermost line of a cell that an error went through: a cell's file lies neither in torch
    nor in this library."""
    place = ""
    step = error.__traceback__ and error.__traceback__.tb_next  # the first is this file's own
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        if "site-packages" not in file and not file.startswith((_LIBRARY, "<frozen")):
            place = linecache.getline(file, step.tb_lineno).strip() or place
        step = step.tb_next
    if place:
        return f"\n{phrase(ERROR_IN)}{place}"
    return ""


def _check_values(
    got: Any, expected: Any, what: str, why: str, rtol: float | None, atol: float | None
) -> None:
    """Compare two values of the same type: numbers, tensors, arrays; anything else must be
    equal."""
    if isinstance(expected, (*_TENSORS, np.ndarray, np.generic)):
        check(
            tuple(got.shape) == tuple(expected.shape),
            f"{what}: the shape",
            why,
            tuple(expected.shape),
            tuple(got.shape),
        )
        check(got.dtype == expected.dtype, f"{what}: the dtype", why, expected.dtype, got.dtype)
    elif type(expected) not in (int, float, complex):
        return check_equal(got, expected, what, why)

    try:
        _assert_close(got, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as error:
        # torch says the largest differences, each with the tolerance that it crossed. (A tolerance
        # of 0 is one that nobody asked for.)
        lines = [line.strip() for line in str(error).splitlines() if "difference" in line]
        limits = [_difference(line) for line in lines if "up to 0.0 allowed" not in line]
        reason = ". ".join(part for part in (translate_message(why), *limits) if part)
        raise CheckFailed(f"{what}: the values", reason, expected, got) from None


def _difference(line: str) -> str:
    """What torch says of a difference, in the chosen language; another line as it is."""
    found = _DIFFERENCE.fullmatch(line)
    if found is None or found["kind"] not in _DIFFERENCES:
        return line
    parts = found.groupdict()
    return phrase(_DIFFERENCES[parts.pop("kind")], **parts)


def _same(got: Any, expected: Any) -> bool:
    """Equality that only plain values decide; an unknown type is never the same as anything."""
    kind = type(expected)
    if type(got) is not kind:
        return False
    if kind in _PLAIN or kind in (
        torch.dtype,
        torch.Size,
        torch.device,
        range,
        slice,
        frozenset,
        set,
    ):
        return bool(got == expected)

    if kind in (list, tuple):
        return len(got) == len(expected) and all(
            _same(g, e) for g, e in zip(got, expected, strict=True)
        )

    if kind is dict:
        return _same(list(got), list(expected)) and all(
            _same(got[key], expected[key]) for key in expected
        )

    return bool(got is expected)


def _call() -> str:
    """What the check asked the answer; nothing where that cannot be told: the message itself must
    not fail."""
    try:
        # From the frame that made `CheckFailed` on, which is two above this one
        return ("\n" + " " * _INDENT).join(checked_call(sys._getframe(2)))
    except Exception:
        return ""


def _quoted(text: str) -> str:
    """The text as it is, or in quotes where it could be taken for a number, a list and so on."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return f"{text!r} (a str)"


def _structure(value: Any) -> str:
    """A container in words: how many items it has, or which keys."""
    if type(value) in (tuple, list):
        return f"{type(value).__name__} of {len(value)}"
    if type(value) is dict:
        return f"dict with keys {_short(list(value))}"
    return type(value).__name__


def _short(value: Any, limit: int = _MOST_LETTERS) -> str:
    """`value` in a few lines at most: the message is read in a notebook cell."""
    if isinstance(value, type):
        return value.__name__
    try:
        text = _quoted(value) if type(value) is str else repr(value)
    except Exception as error:  # a learner's __repr__ may fail; the check's message must not
        text = f"a {type(value).__name__} (its repr raised {type(error).__name__})"
    text = without_addresses(text).replace("\n", "\n" + " " * _INDENT)
    if len(text) <= limit:
        return text
    return text[:limit] + " …"


# From now on an error in a cell is explained below it.
listen()
# nbgrader counts a word on stderr as a failed check.
quiet.install()
