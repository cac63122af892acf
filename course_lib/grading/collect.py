"""What a class handed in: from a platform's download, a folder or a zip, to one notebook for each
student and lesson.

In:  a download as Canvas, Moodle, Blackboard or Brightspace give it; folders `STUDENT/...`; one
file for each student; zips of these. Out: `Collected`: the `Submission`s, and a `Row` for every
file that was there, with what became of it.

    found = collect(Path("submissions.zip"), lessons(root))

Which student? The names on the file's path say it (`whose.py`). Which lesson? The file's name or a
folder's, else the names of the cells that are graded. Several attempts: the newest that can be read
counts. What is left out has a reason in its row. The PyTorch counterpart: none.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import nbformat

from .errors import NotReadable
from .notebooks import CourseError, Lesson, grading_metadata, read
from .reader import LARGEST_FILE, notebook_from
from .tables import write_table
from .unpack import LINK, Entry, Folder, Left, Parts, Piece, files_of
from .whose import NOTEBOOK, Names, Owner, Whose

COLUMNS = ("student", "lesson", "file", "counts", "why")
NO_NOTEBOOK = "It is no notebook."
SHOWN = 20  # lines about what was left out
FEW = 5  # of them, in an error

StudentKey = tuple[str, str]
"""`Owner.key`: two owners with the same one are one student."""
LessonOfStudent = tuple[str, StudentKey]
"""A lesson's name, and whose submission of it."""


@dataclass(frozen=True)
class Submission:
    """One student's notebook for one lesson.

    `text` is None if it cannot be read, and `trouble` says why."""

    student: str
    lesson: str
    text: str | None
    trouble: str = ""

    @property
    def key(self) -> str:
        return f"{self.student}/{self.lesson}"


@dataclass(frozen=True)
class Row:
    """What became of one file or folder of the download; `harmless`: no submission is lost by
    it."""

    student: str
    lesson: str
    file: str
    counts: bool
    why: str = ""
    harmless: bool = False

    def __str__(self) -> str:
        return f"{self.file}: {self.why}"


@dataclass(frozen=True)
class Candidate:
    """A notebook of the download that may be somebody's submission."""

    parts: Parts
    owner: Owner
    lesson: str
    changed: float
    text: str | None
    trouble: str = ""
    note: str = ""
    piece: Piece | None = None

    @property
    def file(self) -> str:
        return "/".join(self.parts)

    def newness(self) -> tuple[bool, tuple[int, ...], float, int, bool]:
        """Larger for what counts before another attempt: readable, then the platform's number, then
        the time."""
        copy = re.search(r"\((\d+)\)", self.parts[-1])
        number = int(copy[1]) if copy else 0
        exact = self.parts[-1] == f"{self.lesson}.ipynb"
        return self.text is not None, self.owner.attempt, self.changed, number, exact


@dataclass
class Collected:
    """The submissions in the order of their keys, and a row for every file."""

    download: Path
    submissions: list[Submission] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    pieces: dict[str, Piece] = field(default_factory=dict)  # by the key of its submission

    @property
    def without_a_mark(self) -> list[str]:
        """Students of whom something was left out, and nothing is marked."""
        marked = {item.student for item in self.submissions}
        left = {row.student for row in self.rows if not row.harmless and row.student}
        return sorted(left - marked)

    @property
    def told(self) -> list[str]:
        """The lines about what a teacher should look at."""
        odd = [row for row in self.rows if row.why and not row.harmless]
        odd.sort(key=_is_other_file)
        lines = [str(row) for row in odd[:SHOWN]]
        if len(odd) > SHOWN:
            lines.append(f"... and {len(odd) - SHOWN} more: they are in collected.csv")
        if leftovers := sum(row.harmless for row in self.rows):
            files = "file is no submission" if leftovers == 1 else "files are no submissions"
            lines.append(f"{leftovers} {files} (collected.csv says which)")
        return lines

    def write(self, path: Path) -> None:
        """`collected.csv`: a row for every file."""
        rows = []
        for row in self.rows:
            counts = "yes" if row.counts else "no"
            known = {"student": row.student, "lesson": row.lesson, "file": row.file}
            rows.append({**known, "why": row.why, "counts": counts})
        write_table(path, COLUMNS, rows)


def collect(
    download: Path, course: Iterable[Lesson], leave_out: tuple[Path, ...] = ()
) -> Collected:
    """Look at every file of the download. Raises CourseError if nothing in it is a submission."""
    course = list(course)
    top = download
    if (download / "submitted").is_dir():
        top = download / "submitted"
    entries = [entry for entry in files_of(top, leave_out) if entry.parts]
    paths_that_count = [e.parts for e in entries if not (isinstance(e, Left) and e.harmless)]
    whose = Whose(paths_that_count, Names.of(course))
    around = whose.names.lesson_in(top.name)  # where the whole download is one lesson's

    collected = Collected(download)
    candidates: dict[LessonOfStudent, list[Candidate]] = defaultdict(list)
    closed = {entry.parts for entry in entries if isinstance(entry, Left)}
    look = _Look(whose, course, around, closed)
    for entry in entries:
        row_or_candidate = look.at(entry)
        if isinstance(row_or_candidate, Candidate):
            candidates[row_or_candidate.lesson, row_or_candidate.owner.key].append(row_or_candidate)
        elif row_or_candidate is not None:
            collected.rows.append(row_or_candidate)

    for missing in _folders_without_notebook(entries, look, candidates):
        candidates[missing.lesson, missing.owner.key].append(missing)

    labels = _labels(candidates)
    collected.rows = [_relabelled(row, labels) for row in collected.rows]
    for (lesson, key), several in candidates.items():
        _choose(collected, labels[lesson, key], several)
    collected.submissions.sort(key=_by_key)
    collected.rows.sort(key=_by_file)
    if not collected.submissions:
        raise CourseError(nothing_there(collected))
    return collected


def _is_other_file(row: Row) -> bool:
    return row.why == NO_NOTEBOOK


def _by_key(item: Submission) -> str:
    return item.key


def _by_file(row: Row) -> str:
    return row.file


def nothing_there(collected: Collected) -> str:
    """One sentence for a folder of another layout: what was expected, and what is there."""
    first_rows = [str(row) for row in collected.rows if not row.harmless][:FEW] or ["no files"]
    rest = len([row for row in collected.rows if not row.harmless]) - FEW
    more = f"; and {rest} more" if rest > 0 else ""
    return (
        f"{collected.download} holds no submission. Expected: STUDENT/NN_name/NN_name.ipynb, or a download of Canvas, Moodle, "
        f"Blackboard or Brightspace, as a folder or a zip. Found: {'; '.join(first_rows)}{more}"
    )


# ---- one file after the other --------------------------------------------------------------------


class _Look:
    """Looks at the entries of a download one by one."""

    def __init__(self, whose: Whose, course: list[Lesson], around: str, closed: set[Parts]) -> None:
        self.whose, self.course = whose, course
        self.around = around  # the lesson of all that names none itself, or ""
        # Folders that could not be opened. Each has a row already that says so.
        self.closed = closed
        self._ids: dict[str, set[str]] = {}

    def at(self, entry: Entry) -> Candidate | Row | None:
        """A notebook of a student's, or a row that says why it is none; None for a folder."""
        if isinstance(entry, Folder):
            has_entries = entry.parts in self.whose.children
            has_a_row = entry.parts in self.closed
            if has_entries or has_a_row:
                return None
            return self._empty(entry)
        if isinstance(entry, Left):
            return self._left(entry)
        if not NOTEBOOK.search(entry.parts[-1]):
            return self._row(entry.parts, NO_NOTEBOOK, harmless=self._beside(entry.parts))
        return self._notebook(entry)

    def _row(self, parts: Parts, why: str, harmless: bool = False) -> Row:
        owner = self.whose.owner(parts)
        student = owner.student if owner else ""
        return Row(student, self.whose.lesson(parts), "/".join(parts), False, why, harmless)

    def _beside(self, parts: Parts) -> bool:
        """Whether a notebook lies in the same place: then a file beside it takes nothing from
        anybody."""
        owner = self.whose.owner(parts)
        if owner is None:
            return True
        notebook_names = [name for name in self.whose.children[parts[:-1]] if NOTEBOOK.search(name)]
        owners = [self.whose.owner((*parts[:-1], name)) for name in notebook_names]
        return any(other is not None and other.key == owner.key for other in owners)

    def _empty(self, entry: Folder) -> Row | None:
        lesson = self.whose.lesson(entry.parts)
        if lesson and self.whose.owner(entry.parts):
            return None  # `_folders_without_notebook` tells it
        return self._row(entry.parts, "The folder is empty.")

    def _left(self, left: Left) -> Candidate | Row:
        owner, lesson = self.whose.owner(left.parts), self.whose.lesson(left.parts)
        name = left.parts[-1]
        is_submission = NOTEBOOK.search(name) or self.whose.names.lesson_in(name)
        if owner and lesson and not left.harmless and (is_submission or left.link):
            if left.why == LINK:
                trouble = "The notebook is a link to another place."
            else:
                trouble = left.why
            return Candidate(left.parts, owner, lesson, 0.0, None, trouble)
        return self._row(left.parts, left.why, left.harmless)

    def _notebook(self, piece: Piece) -> Candidate | Row:
        owner = self.whose.owner(piece.parts)
        if owner is None:
            return self._row(piece.parts, "No name on its path says whose it is.")

        text, trouble, ids = _read(piece)
        lesson, note = self._lesson(piece.parts, ids)
        if not lesson:
            why = trouble
            if text is not None:
                why = "it has no graded cell of a lesson"
            return self._row(piece.parts, f"Neither its name nor its cells say a lesson ({why}).")
        return Candidate(piece.parts, owner, lesson, piece.changed, text, trouble, note, piece)

    def _lesson(self, parts: Parts, ids: set[str]) -> tuple[str, str]:
        """The lesson, and a note where the name says one and the cells another."""
        lesson_of_name, lesson_of_cells = self.whose.lesson(parts), self._lesson_of_cells(ids)
        if lesson_of_name and lesson_of_cells and lesson_of_cells != lesson_of_name:
            return (
                lesson_of_cells,
                f"Its name says {lesson_of_name}, its cells are those of {lesson_of_cells}.",
            )
        return lesson_of_name or lesson_of_cells or self.around or self.whose.lesson_by_number(
            parts
        ), ""

    def _lesson_of_cells(self, ids: set[str]) -> str:
        """The one lesson whose graded cells these are; "" if there is none, or more than one."""
        if not ids:
            return ""
        shared = {lesson.name: len(ids & self._ids_of(lesson)) for lesson in self.course}
        most = max(shared.values(), default=0)
        best = [name for name, number in shared.items() if number == most]
        if most and len(best) == 1:
            return best[0]
        return ""

    def _ids_of(self, lesson: Lesson) -> set[str]:
        if lesson.name not in self._ids:
            self._ids[lesson.name] = _grade_ids(read(lesson.solution))
        return self._ids[lesson.name]


def _read(piece: Piece) -> tuple[str | None, str, set[str]]:
    """The notebook without outputs, or None and why not; and the names of its graded cells."""
    name = piece.parts[-1]
    if piece.size > LARGEST_FILE:
        return None, f"{name} is larger than {LARGEST_FILE >> 20} MiB.", set()

    try:
        nb = notebook_from(piece.load(), name)
        return nbformat.writes(nb), "", _grade_ids(nb)
    except NotReadable as error:
        return None, f"{name} is not readable: {error.why}", set()
    except OSError as error:
        return None, f"The notebook cannot be read ({error.strerror or error}).", set()
    except MemoryError:
        return None, f"{name} is too large for this machine.", set()


def _grade_ids(nb: nbformat.NotebookNode) -> set[str]:
    names = {grading_metadata(cell).get("grade_id") for cell in nb.cells}
    return {name for name in names if name}


def _folders_without_notebook(
    entries: list[Entry],
    look: _Look,
    candidates: dict[LessonOfStudent, list[Candidate]],
) -> Iterable[Candidate]:
    """A lesson's folder of a student with no notebook in it: a submission without points, and with
    a reason."""
    whose = look.whose
    # All folders that have a notebook somewhere in them
    filled: set[Parts] = set()
    for several in candidates.values():
        for candidate in several:
            filled.update(candidate.parts[:depth] for depth in range(len(candidate.parts)))

    for entry in entries:
        parts = entry.parts
        is_folder = isinstance(entry, Folder) and parts not in look.closed
        if not is_folder or not whose.names.lesson_in(parts[-1]):
            continue
        owner, lesson = whose.owner(parts), whose.names.lesson_in(parts[-1])
        if owner is None or (lesson, owner.key) in candidates or parts in filled:
            continue
        file_names = list(whose.children.get(parts, ()))
        holds = f" It holds {', '.join(file_names[:4])}." if file_names else ""
        why = f"There is no {lesson}.ipynb in the submission.{holds}"
        yield Candidate(parts, owner, lesson, 0.0, None, why)


# ---- one student after the other -----------------------------------------------------------------


def _labels(candidates: dict[LessonOfStudent, list[Candidate]]) -> dict[LessonOfStudent, str]:
    """What each student is called.

    Two students of one name, or of names that differ in their encoding only, get a number."""
    groups: dict[str, list[Owner]] = defaultdict(list)
    twice: set[str] = set()
    # (lesson, folded name) → the keys of the students who handed it in
    by_lesson: dict[tuple[str, str], set[StudentKey]] = defaultdict(set)
    for (lesson, key), several in candidates.items():
        owner = several[0].owner
        groups[owner.folded].append(owner)
        by_lesson[lesson, owner.folded].add(key)
        if len(by_lesson[lesson, owner.folded]) > 1:
            twice.add(owner.folded)

    labels = {}
    for (lesson, key), several in candidates.items():
        owner = several[0].owner
        first = min(groups[owner.folded], key=_by_owner)
        labels[lesson, key] = (
            _numbered(owner, groups[owner.folded]) if owner.folded in twice else first.student
        )
    return labels


def _by_owner(owner: Owner) -> tuple[str, str]:
    return owner.key


def _numbered(owner: Owner, others: list[Owner]) -> str:
    """The name with the platform's number, else with its place among those of one name."""
    if owner.number and len({other.number for other in others}) > 1:
        return f"{owner.student} ({owner.number})"
    place = sorted({other.key for other in others}).index(owner.key)
    if place:
        return f"{owner.student} ({place + 1})"
    return owner.student


def _relabelled(row: Row, labels: dict[LessonOfStudent, str]) -> Row:
    """The row with the name under which its student is marked."""
    names = {label for (_, (raw, _)), label in labels.items() if raw == row.student}
    if len(names) == 1:
        return replace(row, student=names.pop())
    return row


def _choose(collected: Collected, student: str, several: list[Candidate]) -> None:
    """Of one student's notebooks of one lesson the newest counts; the others are rows that say
    so."""
    candidates = [
        candidate for candidate in several if candidate.piece is None or _says_its_lesson(candidate)
    ]
    best = max(candidates or several, key=Candidate.newness)
    item = Submission(student, best.lesson, best.text, best.trouble)
    collected.submissions.append(item)
    if best.piece is not None:
        collected.pieces[item.key] = best.piece

    others = [candidate for candidate in several if candidate is not best]
    note = " ".join(_notes(best, others, student))
    collected.rows.append(Row(student, best.lesson, best.file, best.text is not None, note))
    for candidate in others:
        why = candidate.trouble or f"{best.file} is newer and counts."
        collected.rows.append(Row(student, candidate.lesson, candidate.file, False, why))


def _notes(best: Candidate, others: list[Candidate], student: str) -> list[str]:
    """What is to be said of the notebook that counts, a sentence each."""
    notes = [note for note in (best.note, best.trouble) if note]
    if any(candidate.text is not None for candidate in others):
        count = len(others) + 1
        notes.append(f"{count} notebooks were handed in; this one is the newest and counts.")
    # (The first place of `newness` says whether it can be read.)
    if any(candidate.newness()[1:] > best.newness()[1:] for candidate in others):
        notes.append("A newer one cannot be read.")
    if best.owner.late:
        notes.append("The platform calls it late.")
    if best.piece is not None and student != best.owner.student:
        notes.append("Another student has the same name.")
    return notes


def _says_its_lesson(one: Candidate) -> bool:
    """Whether the notebook itself is the lesson's, not only a folder around it."""
    stem = one.lesson.partition("_")[2] or one.lesson
    squeezed = re.sub(r"[\W_]", "", one.parts[-1]).casefold()
    return re.sub(r"[\W_]", "", stem).casefold() in squeezed or "nbgrader" in (one.text or "")


# ---- writing a class's folder --------------------------------------------------------------------


def file_name(text: str) -> str:
    """A name for a file or folder that every system takes, and that leads nowhere else."""
    name = re.sub(r'[\\/:*?"<>|\x00-\x1f]', "_", text).strip(" ")[:100]
    name = re.sub(r"^\.+|\.+$", "_", name)
    return name or "_"


def write_class(collected: Collected, folder: Path) -> int:
    """Write each submission as `STUDENT/NN_name/NN_name.ipynb`; how many files are new or changed
    comes back.

    A file that is there with another content is kept under `.earlier/`.
    """
    files_written = 0
    for item in collected.submissions:
        piece = collected.pieces.get(item.key)
        if piece is None:
            continue
        path = folder / file_name(item.student) / item.lesson / f"{item.lesson}.ipynb"
        try:
            files_written += write_file(path, piece.load(), folder)
        except OSError as error:
            raise CourseError(f"{path} cannot be written ({error.strerror}).") from None
    collected.write(folder / "collected.csv")
    return files_written


def write_file(path: Path, data: bytes, folder: Path) -> bool:
    """Write one file of a class's folder, whole; another content that it had is kept.

    False: it had this content."""
    if path.is_file() and path.read_bytes() == data:
        return False
    if path.is_file():
        _keep(path, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(data)
    new.replace(path)
    return True


def _keep(path: Path, folder: Path) -> None:
    """Move a file that is to be written again under `.earlier/`, where no earlier one is
    overwritten."""
    place = folder / ".earlier" / path.parent.relative_to(folder)
    place.mkdir(parents=True, exist_ok=True)
    number = 1 + sum(1 for _ in place.iterdir())
    path.replace(place / f"{path.stem}.{number}.ipynb")
