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
from typing import Any

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
    """What tells it from others of the same name: ' (break 1 of 2)' in one line, or where it
    stands."""

    @property
    def all_compiles(self) -> list[Compile]:
        """Its own, and those of all that resumes it."""
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
        return self.compiles[0].given if self.compiles else ""


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
    """At the recompile limit every call that fits no entry comes here: the first of each function
    stands for all."""
    first: dict[tuple[int, str], Compile] = {}
    """By the number of the code, and why it runs in eager."""
    first_compiles = []
    for compile in compiles:
        refused = compile.in_eager and compile.failures and compile.code is not None
        if not refused:
            first_compiles.append(compile)
            continue

        key = frames.number(compile.code), plain(compile.in_eager)
        if key in first:
            first[key].alike += 1
        else:
            first[key] = compile
            first_compiles.append(compile)

    # A recording counts more of such calls than it keeps events of.
    for (code, why), compile in first.items():
        refused_calls = recording.counts.get(("refused", code, why))
        if refused_calls:
            compile.alike = refused_calls.times - 1

        for what, count in recording.counts.items():
            if isinstance(what, tuple) and what[:2] == ("failed", code):
                compile.later.append((count.first, count.times))
    return first_compiles


def functions_of(compiles: list[Compile]) -> list[Function]:
    """The same as a tree: resume functions below what they resume.

    A decorator's code stands for several functions: those that `cl.compile` was given are told
    apart."""
    function_by_key: dict[Any, Function] = {}
    for compile in compiles:
        function = function_by_key.setdefault(
            key_of(compile), Function(compile.name, compile.where)
        )
        function.compiles.append(compile)

    top = hang_up(function_by_key)
    tell_apart_by_line(top)
    for function in function_by_key.values():
        tell_apart_by_break(function.below)
    return top


def key_of(compile: Compile) -> tuple[Any, str]:
    """What compiles of one function have in common."""
    if compile.code is not None:
        return frames.number(compile.code), compile.given
    return compile.name, compile.where if compile.name == FOREIGN else ""


def hang_up(function_by_key: dict[Any, Function]) -> list[Function]:
    """Hang each resume function below the function that it resumes; gives those that resume
    nothing."""
    # Function's key → its code; and the number of a code → the first function that has it
    codes = {}
    first: dict[Any, Function] = {}
    for key, function in function_by_key.items():
        first.setdefault(key[0], function)
        if function.compiles[0].code is not None:
            codes[key] = function.compiles[0].code

    top: list[Function] = []
    for key, function in function_by_key.items():
        function.resume = resumed_by(codes[key], list(codes.values())) if key in codes else None
        function.above = None
        if function.resume:
            function.above = first.get(frames.number(function.resume.original))

        beside = function.above.below if function.above else top
        beside.append(function)
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
