"""The course in another language: notebooks with the same code and outputs, and other prose.

In:  the executed English notebooks, a language's catalogs. Out: `notebooks/zh/NN_name.ipynb`,
`notebooks/glossary.zh.md`; the prose of a learner's copy.

No cell is run: code and outputs are those of the English notebook, letter by letter, but for the
labels in pictures (`languages`). A text without a translation, or whose English has changed since,
is shown in English with a mark below it.
PyTorch has no counterpart.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import nbformat

from course_lib.languages import catalog, folder_of, translate, translate_html
from course_lib.languages.catalog import Entry

from .notebooks import Notebook, code_digest, outputs_digest, read, to_text
from .translation import CATALOGS, GLOSSARY, NOTES_BELOW, Part, glossary_sources, parts

_CODE = re.compile(r"(```.*?```|`[^`\n]+`)", re.S)
"""Code, in which `kernel[grid](x)` is no link."""
_ADDRESS = re.compile(r'(\]\(|\b(?:href|src)=")(?![a-z]+:|[#/])([^)"\s]+)')
"""The address of a link or a picture that is a path: no URL, no place in the same page."""


def write(root: Path, language: str) -> list[Path]:
    """Write the lessons and the glossary of a language. Gives the files that changed."""
    folder = root / "notebooks" / folder_of(language)
    texts = {
        folder / part.english.name: to_text(lesson(root, part, language)) for part in lessons(root)
    }
    if has_glossary(root, language):
        texts[glossary_file(root, language)] = glossary(root, language)
    return [path for path, text in texts.items() if _write(path, text)]


def _write(path: Path, text: str) -> bool:
    """Whether that changed the file."""
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return True


# ---- lessons -------------------------------------------------------------------------------------


def lessons(root: Path) -> list[Part]:
    """The parts that are notebooks of `notebooks/` (others are exercises, and the glossary)."""
    return [
        part
        for part in parts(root)
        if part.english.suffix == ".ipynb" and part.english.parts[0] == "notebooks"
    ]


def lesson(root: Path, part: Part, language: str) -> Notebook:
    """A lesson in `language`: as many cells as in English, none dropped, none run."""
    nb = read(root / part.english)
    file = part.file(root, language)
    # Without a catalog every text is shown in English, with the mark.
    known = by_english(catalog.read(file)) if file.is_file() else {}
    names = {other.english.name for other in lessons(root)}
    for cell in nb.cells:
        if cell.cell_type == "markdown":
            cell.source = relinked(in_language(cell.source, known, language), names, root, language)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                data["text/html"] = translate_html("".join(data["text/html"]), language)
    nb.metadata["course"] = {"code": code_digest(nb), "outputs": outputs_digest(nb)}
    return nb


def by_english(entries: list[Entry]) -> dict[str, Entry]:
    """English text → its entry in a catalog."""
    return {entry.english: entry for entry in entries}


def in_language(english: str, known: dict[str, Entry], language: str) -> str:
    """The translation of a text, or the English with a mark."""
    entry = known.get(english)
    if entry is not None and entry.is_translated:
        return entry.text
    missing, outdated = NOTES_BELOW
    mark = outdated if entry is not None and entry.stale else missing
    return f"{english}\n\n<small>{translate(mark, language)}</small>"


def relinked(text: str, names: set[str], root: Path, language: str) -> str:
    """`text` with its addresses as seen from one folder further down.

    A lesson's stays: it lies in the same folder."""

    def address(match: re.Match[str]) -> str:
        """One link with its address; `before` is what stands in front of the address."""
        before, path = match.groups()
        if path.split("#")[0] in names:
            return match[0]
        if path == GLOSSARY.name and has_glossary(root, language):
            path = glossary_file(root, language).name
        return f"{before}../{path}"

    # (`split` by a group gives text and code in turn: code has the odd numbers.)
    pieces = _CODE.split(text)
    return "".join(
        piece if number % 2 else _ADDRESS.sub(address, piece) for number, piece in enumerate(pieces)
    )


# ---- the glossary --------------------------------------------------------------------------------


def has_glossary(root: Path, language: str) -> bool:
    return (root / CATALOGS / language / "glossary.po").is_file()


def glossary_file(root: Path, language: str) -> Path:
    return root / GLOSSARY.with_name(f"glossary.{folder_of(language)}.md")


def glossary(root: Path, language: str) -> str:
    """The glossary with its lines in `language`, in the order of the English terms."""
    known = by_english(catalog.read(root / CATALOGS / language / "glossary.po"))
    head, *lines = [
        in_language(source.english, known, language)
        for source in glossary_sources((root / GLOSSARY).read_text(encoding="utf-8"))
    ]
    # A line with a mark stays one line of the list.
    return "\n".join([head, "", *(line.replace("\n\n", " ") for line in lines)]) + "\n"


# ---- exercises -----------------------------------------------------------------------------------


def exercise_in(exercise: Notebook, language: str) -> Notebook:
    """An exercise, or a copy of one, with the course's prose in `language`.

    What a learner wrote stays."""
    exercise = nbformat.from_dict(exercise)
    known = _of_exercises(language)
    folder = folder_of(language)
    for cell in exercise.cells:
        if cell.cell_type == "markdown" and cell.source in known:
            # Its links lead to the lessons in the same language.
            text = in_language(cell.source, known, language)
            cell.source = re.sub(r"\]\(((?:\.\./)+notebooks)/(\d\d_)", rf"](\1/{folder}/\2", text)
    return exercise


@functools.cache
def _of_exercises(language: str) -> dict[str, Entry]:
    """All texts of all exercises that are in a catalog, by their English."""
    from course_lib.languages.chosen import CATALOGS as FOLDER

    known: dict[str, Entry] = {}
    for file in sorted((FOLDER / language / "exercises").glob("*.po")):
        known |= by_english(catalog.read(file))
    return known
