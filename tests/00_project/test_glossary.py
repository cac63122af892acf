"""The glossary has drifted if a term is out of place, if its lesson no longer speaks of it, or if it names what is not there."""

from __future__ import annotations

import operator
import re

import pytest
import torch
from torch import fx

import course_lib as cl
from course_lib import viz
from course_lib.grading.notebooks import read

ROOTS = {"torch": torch, "fx": fx, "cl": cl, "viz": viz, "aten": torch.ops.aten}


@pytest.fixture(scope="module")
def entries(root):
    """(term, lesson, definition), as they stand there."""
    text = (root / "notebooks/glossary.md").read_text(encoding="utf-8")
    found = re.findall(r"(?m)^- \*\*(.+?)\*\*(?:, [^(]+)? ?\((\d\d)\)[^:]*: (.+)$", text)
    assert len(found) == text.count("\n- **") > 200, "an entry is `- **term** (lesson): definition`"
    return found


def test_terms_stand_in_alphabetical_order_and_once_for_a_lesson(entries):
    names = [term.lower() for term, _, _ in entries]
    assert names == sorted(names)
    assert len({(term.lower(), lesson) for term, lesson, _ in entries}) == len(entries)


def test_the_lesson_that_a_term_is_of_speaks_of_it(entries, root):
    texts: dict[str, str] = {}
    for path in [*root.glob("notebooks/[01][0-9]_*.ipynb"), *root.glob("exercises/*/*.ipynb")]:
        said = " ".join(re.sub(r"[`*_]", "", cell.source).lower() for cell in read(path).cells)
        texts[path.name[:2]] = texts.get(path.name[:2], "") + said
    stems = lambda term: [word[:4] for word in re.findall(r"[a-z]{4,}", term.split(",")[0].lower())]
    missing = [
        (term, lesson)
        for term, lesson, _ in entries
        if any(stem not in texts[lesson] for stem in stems(term))
    ]
    assert not missing


def test_what_a_definition_names_in_code_exists(entries):
    missing = []
    for term, _, definition in entries:
        for code in re.findall(r"`(?:with )?(\w+(?:\.\w+)+)[^`]*`", definition):
            first, rest = code.split(".", 1)
            try:
                if first in ROOTS:
                    operator.attrgetter(rest)(ROOTS[first])
            except AttributeError:
                missing.append((term, code))
    assert not missing
