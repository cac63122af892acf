"""Pages of a learner's own: how far the course is done, and a certificate when all of it is.

In:  a `Progress`, the log of tries, a name. Out: HTML files without scripts, that can be read,
     printed and sent.

A certificate holds its statement once more as JSON. Whoever has the teacher's key can sign it
(`course certify`), and whoever has the key can test the signature. It is a keyed hash (HMAC with
SHA-256): without the key nobody can make one, and nobody can test one. The PyTorch counterpart:
none.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from course_lib.languages import chosen, phrase

from .notebooks import CourseError
from .progress import Progress, Standing, lesson_in_language
from .tries import Try

STYLE = """
:root { color-scheme: light dark; --line: #8a8f98; --full: #2f6db3; --done: #2e7d4f; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
caption { text-align: left; font-weight: 600; padding: .5rem 0; }
th, td { text-align: left; padding: .3rem .5rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
td.number { text-align: right; white-space: nowrap; }
meter { width: 100%; min-width: 4rem; }
.certificate { border: 3px double var(--line); padding: 2rem; text-align: center; }
.certificate h1 { margin-top: 0; }
code { overflow-wrap: anywhere; }
@media print { body { margin: 0; } }
"""

# The state of a lesson (`Standing.state`) → how the page says it; "checked" has words of its own
STATES = {
    "not begun": "not begun",
    "begun": "begun, not checked",
    "changed": "changed since it was checked",
    "given": "given: starts later",
    "unreadable": "cannot be read",
}
STATEMENT = re.compile(
    r'<script type="application/json" id="statement">(.*?)</script>', flags=re.DOTALL
)
"""Where a certificate has its statement as JSON."""
LAST_TRIES = 10
"""So many tries stand on the page of progress."""
LEAST_KEY = 16
"""Bytes: a shorter key could be guessed."""
UNSIGNED = '<p id="signature">Not signed.</p>'


def page(title: str, body: str) -> str:
    """A whole HTML page."""
    language = (chosen() or "en").replace("_", "-")
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def save(path: Path, text: str) -> Path:
    """Write a page; it is whole, or as it was before."""
    if path.is_dir() or not path.parent.is_dir():
        raise CourseError(
            f"The page cannot be written to {path}: name a file in a folder that exists."
        )
    new = path.with_name(f"{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)
    except OSError as problem:
        new.unlink(missing_ok=True)
        raise CourseError(f"{path} cannot be written ({problem.strerror}).") from None
    return path


# ---- progress


def progress_page(progress: Progress, tries: Sequence[Try]) -> str:
    """The learner's own dashboard: a row for each lesson, what comes next, and the last tries."""
    points = sum(standing.points for standing in progress.lessons)
    out_of = sum(standing.out_of for standing in progress.lessons)
    rows = "\n".join(row_of(standing, tries) for standing in progress.lessons)
    title = phrase("My course")
    columns = [phrase(name) for name in ("lesson", "done", "points", "tries", "state")]
    head = "".join(f"<th scope='col'>{column}</th>" for column in columns)
    sum_of_points = phrase("{n} of {all} points", n=f"{points:g}", all=f"{out_of:g}")
    parts = [
        f"<h1>{title}</h1>",
        f"<p><strong>{sum_of_points}.</strong> {next_of(progress)}</p>",
        f"<table><caption>{phrase('Lessons')}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{rows}\n</tbody></table>",
        *(f"<p>{html.escape(note)}</p>" for note in progress.notes),
    ]
    if tries:
        latest = sorted(tries, key=lambda each: each.moment)[-LAST_TRIES:]
        items = "\n".join(
            f"<li>{each.moment:%Y-%m-%d %H:%M} UTC, {html.escape(each.lesson)}: {points_of(each)}</li>"
            for each in reversed(latest)
        )
        parts.append(f"<h2>{phrase('The last tries')}</h2>\n<ol>\n{items}\n</ol>")
    return page(title, "\n".join(parts))


def points_of(earned: Standing | Try) -> str:
    """'3 of 10'."""
    return phrase("{n} of {all}", n=f"{earned.points:g}", all=f"{earned.out_of:g}")


def row_of(standing: Standing, tries: Sequence[Try]) -> str:
    """A lesson's row of the table."""
    name = html.escape(standing.name)
    if standing.state == "checked":
        state = phrase("all points") if standing.done else phrase("points missing")
    else:
        state = phrase(STATES.get(standing.state, ""))
    if standing.update:
        state += phrase("; a newer exercise is there")
    count = sum(each.lesson == standing.name for each in tries)
    return (
        f"<tr><th scope='row'>{name}</th>"
        f"<td><meter min='0' max='{standing.out_of:g}' value='{standing.points:g}' "
        f"aria-label='{points_of(standing)}'></meter></td>"
        f"<td class='number'>{points_of(standing)}</td>"
        f"<td class='number'>{count}</td><td>{html.escape(state)}</td></tr>"
    )


def next_of(progress: Progress) -> str:
    """What comes next; HTML."""
    if progress.next is None:
        return phrase(
            "All of it is done: {command} writes a page that says so.",
            command="<code>course certificate</code>",
        )
    name = progress.next.name
    return phrase(
        "Next: {lesson}, then {copy}.",
        lesson=f"<code>{html.escape(lesson_in_language(name))}</code>",
        copy=f"<code>work/{html.escape(name)}.ipynb</code>",
    )


# ---- a certificate


@dataclass(frozen=True)
class Statement:
    """What a certificate says."""

    name: str
    date: str
    points: float
    out_of: float
    lessons: tuple[str, ...]
    # lessons that counted as given, for the learner joined later
    given: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The statement as JSON, always in the same letters: this is what is signed."""
        return json.dumps(vars(self), sort_keys=True, ensure_ascii=True)


def statement(progress: Progress, name: str, today: date) -> Statement:
    """What can be certified; raises CourseError while something is missing."""
    if not name.strip():
        raise CourseError('A certificate needs a name: `course certificate --name "Ann Example"`.')
    if progress.next is not None:
        missing = [standing.name for standing in progress.lessons if not standing.done]
        raise CourseError(
            f"There is no certificate yet: {', '.join(missing[:3])}{' and more' * (len(missing) > 3)} "
            "still wait for all points. `course progress` shows where you stand."
        )
    own_lessons = [standing for standing in progress.lessons if standing.state != "given"]
    return Statement(
        name.strip(),
        today.isoformat(),
        sum(standing.points for standing in own_lessons),
        sum(standing.out_of for standing in own_lessons),
        tuple(standing.name for standing in own_lessons),
        tuple(standing.name for standing in progress.lessons if standing.state == "given"),
    )


def certificate_page(statement: Statement) -> str:
    """The certificate, not signed yet."""
    given_paragraph = (
        f"<p>Joined late; given: {html.escape(', '.join(statement.given))}.</p>"
        if statement.given
        else ""
    )
    body = (
        '<div class="certificate">\n<h1>torch.compile, taken apart</h1>\n'
        f"<p>{html.escape(statement.name)}</p>\n"
        f"<p>has done all exercises of {len(statement.lessons)} lessons, {statement.points:g} of {statement.out_of:g} points, "
        f"and has written the stages of a compiler.</p>\n{given_paragraph}\n"
        f"<p>{statement.date}</p>\n{UNSIGNED}\n</div>\n"
        f'<script type="application/json" id="statement">{in_a_page(statement.text)}</script>'
    )
    return page(f"Certificate: {statement.name}", body)


def in_a_page(text: str) -> str:
    """JSON within a page: no sign of it may end the element."""
    return text.replace("<", "\\u003c")


def signature(text: str, key: bytes) -> str:
    """The keyed hash of a statement, in hexadecimal digits."""
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def statement_in(text: str, path: Path) -> Statement:
    """The statement that a page holds."""
    match = STATEMENT.search(text)
    try:
        fields: Any = json.loads(match[1]) if match else None
        # (JSON has lists for tuples. Without a statement, None raises TypeError here.)
        fields |= {"lessons": tuple(fields["lessons"]), "given": tuple(fields["given"])}
        return Statement(**fields)
    except (ValueError, TypeError, KeyError):
        raise CourseError(
            f"{path} is no certificate of this course: `course certificate` writes one."
        ) from None


def signed(text: str, key: bytes, path: Path) -> str:
    """The page with a signature.

    What it shows is written anew from the statement, so that both say the same."""
    statement = statement_in(text, path)
    line = f'<p id="signature">Signed: <code>{signature(statement.text, key)}</code></p>'
    return certificate_page(statement).replace(UNSIGNED, line)


def is_signed(text: str, key: bytes, path: Path) -> bool:
    """Whether this page is just what the holder of the key signed."""
    # Signed anew it must be the same page, letter by letter. The comparison takes as long for any
    # other page, so that its time tells nothing about the signature.
    return hmac.compare_digest(signed(text, key, path).encode(), text.encode())


def key_in(path: Path) -> bytes:
    """The teacher's key: any file of 16 bytes or more."""
    try:
        key = path.read_bytes().strip()
    except OSError as problem:
        raise CourseError(f"The key {path} cannot be read ({problem.strerror}).") from None
    if len(key) < LEAST_KEY:
        raise CourseError(
            f"The key {path} is too short: `openssl rand -hex 32 > {path}` writes a good one. Keep it to yourself."
        )
    return key
