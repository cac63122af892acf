"""What was compiled, by function: the compiles of a run put into a tree.

In:  a `Recording`.
Out: `Function`s (with their resume functions below them), each with its `Compile`s: why it was
     compiled, what was captured, what the back half made of it (`Build`, `Program`), how long each
     stage took, and what did not work.
In PyTorch: the tree of stacks that `tlparse` shows first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from course_lib import frames
from course_lib.frames.resume import Resume
from course_lib.viz.kit.style import place
from course_lib.viz.pictures.capture.cut_frame import line_of, resumed_by
from course_lib.viz.recording import Recording, plain
from course_lib.viz.report.compile_reader import read
from course_lib.viz.report.compiles import FOREIGN, Compile


@dataclass
class Function:
    """A code object that was met, and the resume functions of it."""

    name: str
    where: str
    resume: Resume | None = None
    above: Function | None = None
    """What it resumes."""
    compiles: list[Compile] = field(default_factory=list)
    below: list[Function] = field(default_factory=list)
    which: str = ""
    """What tells it from others of the same name: ' (break 1 of 2)' for breaks in one line, or the
    place where it is written."""

    @property
    def all_compiles(self) -> list[Compile]:
        """The compiles of this function, and those of all functions that resume it."""
        compiles = list(self.compiles)
        for function in self.below:
            compiles += function.all_compiles
        return compiles

    @property
    def total_seconds(self) -> float:
        return sum(compile.total_seconds for compile in self.all_compiles)

    @property
    def title(self) -> str:
        """'M.forward', 'M.forward, from line 7 on'."""
        name = self.given or self.name
        line = line_of(self.resume) if self.resume else None
        if line:
            function = self.given or self.name.split(" from ")[0]
            name = f"{function}, from line {line} on"
        return name + self.which

    @property
    def given(self) -> str:
        """The name of what `cl.compile` was given, where the code's own name is a decorator's."""
        if self.above:
            return self.above.given
        if self.compiles:
            return self.compiles[0].given
        return ""


def compiles_of(recording: Recording) -> list[Compile]:
    """All of them, in order."""
    every = read(recording)
    for _, function in walk(functions_of(every)):
        for compile in function.compiles:
            compile.title = function.title

    compiles = told_once(every, recording)
    for number, compile in enumerate(compiles, 1):
        compile.number = number
    return compiles


def told_once(compiles: list[Compile], recording: Recording) -> list[Compile]:
    """The compiles, without those that only repeat another one.

    At the recompile limit every call that fits no entry is recorded as one more compile: the first
    of each function stands for all, and counts them (`alike`)."""
    # (the number of the code, why it runs in eager) → the first of its kind
    first: dict[tuple[int, str], Compile] = {}
    told = []
    for compile in compiles:
        is_refused = compile.in_eager and compile.failures and compile.code is not None
        if not is_refused:
            told.append(compile)
            continue

        key = frames.number(compile.code), plain(compile.in_eager)
        if key in first:
            first[key].alike += 1
        else:
            first[key] = compile
            told.append(compile)

    # A recording counts more of such calls than it keeps events of.
    for (code, why), compile in first.items():
        refused_calls = recording.counts.get(("refused", code, why))
        if refused_calls:
            compile.alike = refused_calls.times - 1

        for what, count in recording.counts.items():
            if isinstance(what, tuple) and what[:2] == ("failed", code):
                compile.later.append((count.first, count.times))
    return told


def functions_of(compiles: list[Compile]) -> list[Function]:
    """The functions that were compiled, as a tree: resume functions below what they resume.

    A decorator's code stands for several functions: those that `cl.compile` was given are told
    apart."""
    function_by_key: dict[Key, Function] = {}
    for compile in compiles:
        unseen = Function(compile.name, compile.where)
        function_by_key.setdefault(key_of(compile), unseen).compiles.append(compile)

    top = hang_up(function_by_key)
    tell_apart_by_line(top)
    for function in function_by_key.values():
        tell_apart_by_break(function.below)
    return top


class Key(NamedTuple):
    """What compiles of one function have in common."""

    # The number of its code object, or its name where no code was recorded
    code: int | str
    # What `cl.compile` was given; without code, where it was compiled
    given: str


def key_of(compile: Compile) -> Key:
    """Two compiles with the same key are of one function."""
    if compile.code is not None:
        return Key(frames.number(compile.code), compile.given)
    return Key(compile.name, compile.where if compile.name == FOREIGN else "")


def hang_up(function_by_key: dict[Key, Function]) -> list[Function]:
    """Hang each resume function below the function that it resumes; gives those that resume
    nothing."""
    # Several functions may have one code (a decorator's): the first stands for them.
    function_of_code: dict[int | str, Function] = {}
    for key, function in function_by_key.items():
        function_of_code.setdefault(key.code, function)

    functions = list(function_by_key.values())
    codes = [f.compiles[0].code for f in functions if f.compiles[0].code is not None]

    top: list[Function] = []
    for function in functions:
        function.resume = None
        function.above = None
        code = function.compiles[0].code
        if code is not None:
            function.resume = resumed_by(code, codes)
        if function.resume is not None:
            function.above = function_of_code.get(frames.number(function.resume.original))

        siblings = function.above.below if function.above else top
        siblings.append(function)
    return top


def tell_apart_by_line(functions: list[Function]) -> None:
    """Functions of one name get the place where they are written."""
    for namesakes in by(functions, lambda function: function.title).values():
        if len(namesakes) == 1:
            continue
        for function in namesakes:
            filename, _, line = function.where.rpartition(":")
            function.which = f" ({place(filename, int(line))})"


def tell_apart_by_break(functions: list[Function]) -> None:
    """Resume functions that go on in one line get the number of the break in it."""
    for namesakes in by(functions, lambda function: function.title).values():
        namesakes.sort(key=lambda function: function.resume.offset)
        for number, function in enumerate(namesakes, 1):
            function.which = f" (break {number} of {len(namesakes)})" if len(namesakes) > 1 else ""


def by(items: Any, key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    """The items with the same key together."""
    groups: dict[Any, list[Any]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def walk(functions: list[Function], depth: int = 0) -> Iterator[tuple[int, Function]]:
    """Every function of the tree, and how deep it stands."""
    for function in functions:
        yield depth, function
        yield from walk(function.below, depth + 1)
