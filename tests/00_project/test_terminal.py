"""What a command prints arrives on every terminal, whichever signs it can show."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from course_lib.grading import cli
from course_lib.grading.terminal import Folding, folded, plain

TERMINALS = {
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "cp437, an old Windows": {"PYTHONIOENCODING": "cp437"},
    "cp1252": {"PYTHONIOENCODING": "cp1252"},
    "koi8-r": {"PYTHONIOENCODING": "koi8-r"},
    "LC_ALL=C without UTF-8 mode": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    "LC_ALL=POSIX": {"LC_ALL": "POSIX"},
    "utf-8": {"PYTHONIOENCODING": "utf-8"},
}
# signs by number: not every one of these terminals could hand them over in a command
PROGRAM = r"""
import sys
from course_lib.grading.terminal import show_every_sign
show_every_sign()
print("\u2713 \u017dofia \u738b \udcff 3 of 4")
print("\u2717 Ren\u00e9", file=sys.stderr)
"""


@pytest.mark.parametrize("terminal", TERMINALS)
def test_every_line_arrives_on_this_terminal(terminal):
    left_out = ("PYTHONIOENCODING", "PYTHONUTF8", "LC_ALL", "LANG")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment | TERMINALS[terminal], capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    assert done.stdout.rstrip().endswith(b"3 of 4") and b"ofia" in done.stdout
    assert b"\\udcff" in done.stdout
    assert b"Ren" in done.stderr


@pytest.mark.parametrize(
    ("sign", "letters"),
    [("✓", "+"), ("é", "e"), ("ﬁ", "fi"), ("½", "12"), ("王", "\\u738b"), ("😀", "\\U0001f600")],
)
def test_a_sign_is_written_in_letters_that_every_terminal_has(sign, letters):
    assert plain(sign).replace("⁄", "") == letters


LONG = (
    "the notebook of this lesson cannot be read: take the last kept version of it, or save it again"
)
LINES = {
    "a sentence": (LONG, 0),
    "further in": (f"    {LONG}", 4),
    "a part of a check": (f"    Why:      {LONG}", 14),
    "an exercise": (f"✗ {LONG}", 2),
    "a long path": (f"course: /{'folder/' * 12} {LONG}", 0),
}


@pytest.mark.parametrize("kind", LINES)
def test_a_long_line_goes_on_below_between_words_as_far_in_as_it_began(kind):
    line, indent = LINES[kind]
    first, *rest = folded(line, 50).splitlines()
    assert rest and all(row.startswith(" " * indent + row.strip()) for row in rest)
    assert " ".join([first, *(row.strip() for row in rest)]) == line
    assert all(len(row) <= 50 or "/folder" in row for row in (first, *rest))
    assert folded(line, 500) == line


def test_what_is_written_in_pieces_arrives_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    below = io.StringIO()
    stream = Folding(below)
    print("one", end=" ", file=stream)
    print("two", file=stream)
    print("ready?", end=" ", file=stream, flush=True)
    assert below.getvalue() == "one two\nready? "
    print(LONG, file=stream)
    assert all(len(line) <= 40 + len("ready? ") for line in below.getvalue().splitlines())


def test_help_fits_80_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    top = cli.parser()
    for one in (top, *top._subparsers._group_actions[0].choices.values()):
        assert all(len(line) <= 80 for line in one.format_help().splitlines()), one.prog
