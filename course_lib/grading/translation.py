"""Which texts of the course are translated, and whether their translations are those of today's
English.

In:  notebooks, exercises and the glossary in English, the catalogs in `course_lib/languages/`. Out:
     catalogs in step with them.

    course translate              brings every catalog up to date, and writes the editions
                                  (`edition`)
    course translate zh_Hans 07   begins the catalogs of lesson 07

A text that was edited since its translation is marked in its catalog and shown in English until
somebody translates it anew. `stale` says which texts a catalog does not know of yet: the test that
CI runs.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from course_lib.languages import catalog, known
from course_lib.languages.catalog import Entry, Source
from course_lib.languages.messages import FILE as CHECKS
from course_lib.syntax import parse

from .errors import CourseError
from .words_of_checks import words_of_checks, words_of_module

CATALOGS = Path("course_lib/languages")
GLOSSARY = Path("notebooks/glossary.md")
SPEAKING = ("checks.py", "doctor_looks.py")
"""The files that say something to a learner, and do not say it by `phrase`."""
NOTES_BELOW = (
    "This part is not translated yet.",
    "The English text of this part has changed since it was translated.",
)
"""The notes that stand below a text that is shown in English in another edition."""


@dataclass(frozen=True)
class Part:
    """What one catalog translates.

    `english` is the file that it comes from, `catalog` the catalog's name; both are relative."""

    english: Path
    catalog: Path

    def file(self, root: Path, language: str) -> Path:
        return root / CATALOGS / language / self.catalog

    def sources(self, root: Path) -> list[Source]:
        """The English texts of today."""
        text = (root / self.english).read_text(encoding="utf-8")
        if self.english == GLOSSARY:
            return glossary_sources(text)
        return prose(text)


def parts(root: Path) -> list[Part]:
    """All that can be translated, but labels: each lesson, each exercise, the glossary."""
    translatable = [
        Part(path.relative_to(root), Path("notebooks", f"{path.stem}.po"))
        for path in sorted(root.glob("notebooks/[0-9][0-9]_*.ipynb"))
    ]
    # exercises/NN_name/NN_name.ipynb: another notebook beside it is none of the course's
    translatable += [
        Part(path.relative_to(root), Path("exercises", f"{path.stem}.po"))
        for path in sorted(root.glob("exercises/*/*.ipynb"))
        if path.stem == path.parent.name
    ]
    return [*translatable, Part(GLOSSARY, Path("glossary.po"))]


def prose(notebook: str) -> list[Source]:
    """The text cells of a notebook, by the ids of the cells.

    (Read as JSON: a hundred times as fast as with nbformat.)"""
    return [
        Source(cell["id"], "".join(cell["source"]))
        for cell in json.loads(notebook)["cells"]
        if cell["cell_type"] == "markdown"
    ]


def glossary_sources(text: str) -> list[Source]:
    """The glossary's head, and each of its lines, by the term and the lesson that defines it."""
    sources = [Source("head", text[: text.index("- **")].strip())]
    for line in text.splitlines():
        term = re.match(r"- \*\*(.+?)\*\*.*?\((\d\d)\)", line)
        if term:
            sources.append(Source(f"{term[1]} ({term[2]})", line))
    return sources


# ---- labels in code ------------------------------------------------------------------------------


def labels_in_code(notebook: str) -> list[str]:
    """What a lesson's code says to its reader: the texts of `Predict` questions, and captions."""
    texts: list[str] = []
    for cell in json.loads(notebook)["cells"]:
        if cell["cell_type"] == "code":
            texts += _labels_of("".join(cell["source"]))
    return list(dict.fromkeys(texts))


def _labels_of(code: str) -> Iterator[str]:
    """The labels in one cell; none where it is no Python."""
    try:
        tree = parse("\n".join(_without_magic(line) for line in code.split("\n")))
    except SyntaxError:
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            for keyword in node.keywords:
                if keyword.arg in ("caption", "because"):
                    yield from _texts(keyword.value)
            if name == "Predict":
                for argument in node.args:
                    yield from _texts(argument)


def _without_magic(line: str) -> str:
    """A line for IPython alone is no Python: `!course check 1`, `%time`."""
    return "pass" if line.startswith(("!", "%")) else line


def _texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.List):
        for item in node.elts:
            yield from _texts(item)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        # The whole text, if it has two letters side by side: a number or a sign is the same in
        # every language.
        yield from re.findall(r"(?s)^.*[A-Za-z]{2}.*$", node.value)


def _label_sources(root: Path, language: str, entries: list[Entry]) -> list[Source]:
    """The labels that are there, the notes below untranslated texts, and what the code of the
    translated lessons says."""
    texts = [entry.english for entry in entries if not entry.stale]
    texts += NOTES_BELOW
    for part in parts(root):
        is_lesson = part.catalog.parent.name == "notebooks"
        if is_lesson and part.file(root, language).is_file():
            texts += labels_in_code((root / part.english).read_text(encoding="utf-8"))
    return [Source("", text) for text in dict.fromkeys(texts)]


def words_said(root: Path) -> list[str]:
    """What the checks of all exercises say, and the commands that a learner runs."""
    words: list[str] = []
    for path in sorted((root / "solutions").glob("[0-9][0-9]_*/*.ipynb")):
        words += words_of_checks(path.read_text(encoding="utf-8"))
    library = root / "course_lib"
    for path in sorted((*library.glob("grading/**/*.py"), *library.glob("tools/*.py"))):
        source = path.read_text(encoding="utf-8")
        # a file that says something itself, or imports `phrase` (alone, or behind other names)
        if path.name in SPEAKING or "import phrase" in source or ", phrase" in source:
            words += words_of_module(source)
    return list(dict.fromkeys(words))


# ---- in step with the English --------------------------------------------------------------------


@dataclass(frozen=True)
class Update:
    """What one catalog has to become: its file's text, and what changes, a sentence each."""

    file: Path
    text: bytes
    said: list[str]


def update_of(root: Path, part: Part, language: str) -> Update | None:
    """What brings a catalog up to date; None where it is, or where it was not begun."""
    file = part.file(root, language)
    if not file.is_file():
        return None
    old = catalog.read(file)
    new = catalog.brought_up_to_date(old, part.sources(root))
    text = catalog.to_po(new, language, _about(part, language))
    if text == file.read_bytes():
        return None
    return Update(file, text, _differences(part, language, old, new))


def _about(part: Part, language: str) -> str:
    return f"{part.english.as_posix()} in {language}. `course translate` keeps it in step with the English."


def _differences(part: Part, language: str, old: list[Entry], new: list[Entry]) -> list[str]:
    """What the English has that the catalog does not know of, a sentence each."""
    where, known_entries = part.english.as_posix(), {(entry.english, entry.stale) for entry in old}
    sentences = []
    for entry in new:
        if (entry.english, entry.stale) in known_entries:
            continue
        if entry.stale:
            sentences.append(
                f"{where}, {entry.name}: its English has changed since it was translated into {language}"
            )
        elif not entry.text:
            sentences.append(
                f"{where}, {entry.name}: is new, and not yet in the catalog of {language}"
            )
    return sentences or [
        f"{where}: its texts have moved; the catalog of {language} has them in the old order"
    ]


def labels_update(root: Path, language: str) -> Update | None:
    """What is new in the catalog of labels of a language; None if nothing is."""
    file = root / CATALOGS / language / "labels.po"
    old = catalog.read(file)
    sources = _label_sources(root, language, old)
    return _update_of_short_texts(file, old, sources, language, "Labels of pictures and questions")


def checks_update(root: Path, language: str) -> Update | None:
    """What is new in the catalog of what checks and commands say; None if nothing is, or where it
    was not begun."""
    file = root / CATALOGS / language / CHECKS
    if not file.is_file():
        return None
    sources = [Source("", text) for text in words_said(root)]
    about = "What checks and commands say"
    return _update_of_short_texts(file, catalog.read(file), sources, language, about)


def _update_of_short_texts(
    file: Path, old: list[Entry], sources: list[Source], language: str, about: str
) -> Update | None:
    """A catalog whose texts have no name, brought up to date; None where it is."""
    new = catalog.brought_up_to_date(old, sources)
    text = catalog.to_po(new, language, f"{about} in {language}.")
    if text == file.read_bytes():
        return None
    known_already = {entry.english for entry in old}
    unknown = [entry.english for entry in new if entry.english not in known_already]
    if not unknown:
        return Update(file, text, [f"{file.name}: not written as `course translate` writes it"])
    more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
    sentence = f"{file.name}, {unknown[0]!r}{more}: not yet in the catalog of {language}"
    return Update(file, text, [sentence])


def updates(root: Path) -> list[Update]:
    """What brings all catalogs of all languages up to date."""
    all_updates = []
    for language in known():
        all_updates += [update_of(root, part, language) for part in parts(root)]
        all_updates += [labels_update(root, language), checks_update(root, language)]
    return [update for update in all_updates if update is not None]


def stale(root: Path) -> list[str]:
    """What the catalogs do not know of yet: which text, and what to do.

    Nothing where all are in step."""
    todo = "Run `course translate` and commit course_lib/languages: the part is shown in English until somebody translates it."
    return [f"{change}. {todo}" for update in updates(root) for change in update.said]


def keep_in_step(root: Path) -> list[str]:
    """Write what brings the catalogs up to date; what changed, a sentence each."""
    needed_updates = updates(root)
    for update in needed_updates:
        update.file.write_bytes(update.text)
    return [change for update in needed_updates for change in update.said]


def begin(root: Path, language: str, numbers: list[str]) -> None:
    """Make the catalogs of these lessons, and that of what checks say, with nothing translated in
    them.

    Raises CourseError for an unknown language."""
    if language not in known():
        raise CourseError(
            f"There is no language {language!r}. Make {CATALOGS / language / 'labels.po'} with the header of another "
            f"language's first. There are: {', '.join(known())}."
        )
    checks = root / CATALOGS / language / CHECKS
    if numbers and not checks.is_file():
        checks.write_bytes(
            catalog.to_po([], language, f"What checks and commands say in {language}.")
        )
    for part in parts(root):
        file = part.file(root, language)
        if part.english.stem[:2] in numbers and not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            entries = [Entry(source.name, source.english) for source in part.sources(root)]
            file.write_bytes(catalog.to_po(entries, language, _about(part, language)))


@dataclass(frozen=True)
class State:
    """How far the translation of one part is: texts in all, translated, and translated from an
    English that has changed."""

    part: Part
    texts: int
    translated: int
    stale: int

    def __str__(self) -> str:
        changed = f", {self.stale} stale" if self.stale else ""
        return f"{self.part.catalog.with_suffix('').as_posix()}: {self.translated} of {self.texts} translated{changed}"


def states(root: Path, language: str) -> list[State]:
    """How far each part is in this language; a part that nobody has begun is left out."""
    states_of_parts = []
    for part in parts(root):
        if part.file(root, language).is_file():
            entries = catalog.read(part.file(root, language))
            translated = sum(entry.is_translated for entry in entries)
            states_of_parts.append(
                State(part, len(entries), translated, sum(entry.stale for entry in entries))
            )
    return states_of_parts
