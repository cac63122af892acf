"""The commands of `course`, a file a group: whose work they are.

    learner.py         check, progress, certificate, feedback
    learner_copies.py  start, update, undo, join, assemble
    teacher.py         grade, gradebook, tries, certify, collect, repair, example
    author.py          exercises, slides, translate
    tools.py           doctor, demo, bench, coverage, report, gallery

In:  the parsed arguments of one command. Out: text on the terminal, and an exit status.
Each file has an `add` that puts its commands into the parser of `cli`. A command imports what it
needs when it runs: `course doctor` must work where half of the packages are missing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from course_lib.grading.terminal import Help

Command = Callable[[argparse.Namespace], int]


@dataclass(frozen=True)
class Commands:
    """Where a group of commands adds its own: argparse's subparsers."""

    group: Any

    def add(self, function: Command, about: str) -> argparse.ArgumentParser:
        """A command with the function's name."""
        added = self.group.add_parser(
            function.__name__, help=about, description=about, formatter_class=Help
        )
        added.set_defaults(run=function)
        return added

    def add_with_own_options(self, function: Command, about: str) -> None:
        """A command that reads all words behind its name itself, `--help` too."""
        added = self.group.add_parser(function.__name__, help=about, add_help=False)
        added.add_argument("arguments", nargs=argparse.REMAINDER)
        added.set_defaults(run=function)


def say_beside(line: str) -> None:
    """A line about what goes on, beside what the command has to say in the end."""
    print(line, file=sys.stderr, flush=True)


def say(line: str) -> None:
    """A line at once: a class takes a while."""
    print(line, flush=True)
