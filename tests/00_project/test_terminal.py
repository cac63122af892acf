"""What a command prints arrives on every terminal, whichever signs it can show."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from course_lib.grading.terminal import plain

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
