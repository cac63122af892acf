"""Whose file is this, and which lesson is it? What the names on its path say.

In:  the paths of a download (below its top, zips counting as folders) and the course's lessons.
Out: for a path, an `Owner` and the name of a lesson, or None and "".

The outermost name that says a student decides: `ann/` in
`ann/01_eager_overhead/01_eager_overhead.ipynb`, a platform's name (`corners/systems.py`), or what
is left of `ann_01_eager_overhead.ipynb` without the lesson. Folders around all students
(`submitted/`, `submissions (2).zip`) say nothing.
The PyTorch counterpart: none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field

from .corners.systems import Signed, signed
from .notebooks import Lesson
from .unpack import Parts

# folders that hold the students' folders
AROUND = re.compile(
    r"(all[ _-]?)?(submitted|submissions?|downloads?|students|class|handed[ _-]?in|collected)([ _-]?\(\d+\))?"
    r"|(assignments?|abgaben?|week|homework)[ _-]?\(?\d*\)?",
    re.IGNORECASE,
)
# what is left of a name that a browser, a system or a learner made from a lesson's
COPY = re.compile(
    r"(\(?\d{0,3}\)?|copy( of)?|kopie( von)?|copie( de)?|copia( de)?|final|new|version|v\d+|solution|answers?|exercise|"
    r"lesson|notebook|submission|assignment|late|resubmission|attempt|of|my|\W|_)*",
    re.IGNORECASE,
)
# a browser or a mail program may put a second ending behind
NOTEBOOK = re.compile(r"\.ipynb(\.txt|\.json|_)?$", re.IGNORECASE)


@dataclass(frozen=True)
class Owner:
    """A student as the names say. `number` is the platform's, `raw` the name as it stands there."""

    student: str
    number: str = ""
    raw: str = ""
    # The platform's numbers of this attempt: the larger tuple is the newer attempt
    attempt: tuple[int, ...] = ()
    late: bool = False

    @property
    def key(self) -> tuple[str, str]:
        """Two with the same key are one student."""
        return self.raw, self.number

    @property
    def folded(self) -> str:
        """The name without what systems write in different ways: accents as two letters,
        capitals."""
        return unicodedata.normalize("NFKC", self.student).casefold()


@dataclass(frozen=True)
class Names:
    """The lessons' names as patterns."""

    patterns: dict[str, re.Pattern[str]]
    numbers: dict[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, course: Iterable[Lesson]) -> Names:
        course = list(course)
        numbers = {int(lesson.number): lesson.name for lesson in course if lesson.number.isdigit()}
        return cls({lesson.name: _pattern(lesson.name) for lesson in course}, numbers)

    def lesson_in(self, name: str) -> str:
        """The lesson that a file's or folder's name says, or ""; of several the longest."""
        text = _plain(name)
        matching_lessons = [
            (len(m[0]), lesson) for lesson, p in self.patterns.items() if (m := p.search(text))
        ]
        if matching_lessons:
            return max(matching_lessons)[1]
        return ""

    def number_in(self, name: str) -> str:
        """The lesson of `lesson 3`, `03.ipynb`: good where nothing else says one."""
        stem = NOTEBOOK.sub("", _plain(name))
        match = re.fullmatch(
            r"(?:lesson|exercise|notebook|nb)?[ _-]*0*(\d{1,2})(?: *\(\d+\))?", stem, re.I
        )
        if match:
            return self.numbers.get(int(match[1]), "")
        return ""

    def without_lesson(self, name: str) -> str:
        """What is left of a name without its lesson and its ending: often the student."""
        text = NOTEBOOK.sub("", re.sub(r"\.zip$", "", name, flags=re.IGNORECASE))
        lesson = self.lesson_in(text)
        if lesson:
            text = self.patterns[lesson].sub(" ", text)
            # the number of a copy: `ann_01_eager_overhead (2).ipynb`
            text = re.sub(r"\(\d+\)", " ", text)
        elif self.number_in(text):
            text = ""

        text = text.strip(" _-.,+")

        # "copy 2" says nothing. Three digits may be the number of a student.
        may_be_student = not lesson and re.search(r"\d{3}", text)
        if COPY.fullmatch(text) and not may_be_student:
            return ""
        return text


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


def _pattern(lesson: str) -> re.Pattern[str]:
    """`01_eager_overhead` in any spelling: capitals, blanks, `1-eager-overhead`, and without its
    number if it has two words."""
    number, _, title = lesson.partition("_")
    words = r"[\W_]*".join(map(re.escape, title.split("_")))
    number_pattern = rf"(?:(?<!\d)0*{number.lstrip('0') or 0}[\W_]*)"
    optional = "?" if "_" in title else ""
    return re.compile(rf"{number_pattern}{optional}{words}(?![^\W\d_])", re.IGNORECASE)


class Whose:
    """Says for each path of a download whose it is."""

    def __init__(self, paths: Iterable[Parts], names: Names) -> None:
        self.names = names
        self.children: dict[Parts, dict[str, None]] = {(): {}}
        for parts in paths:
            for depth, name in enumerate(parts):
                self.children.setdefault(parts[:depth], {})[name] = None
        self._around: dict[Parts, bool] = {}

    def owner(self, parts: Parts) -> Owner | None:
        """The student, by the outermost name that says one."""
        for depth, name in enumerate(parts):
            if signature := signed(name):
                return _signed_owner(signature)
            last = depth == len(parts) - 1
            if not last and self.is_around(parts[: depth + 1]):
                continue
            # `ann (1).ipynb` is a copy that a browser made
            plain = re.sub(r" ?\(\d{1,2}\)(?=\.\w+$)", "", name) if last else name
            if student := self.names.without_lesson(plain):
                return Owner(unicodedata.normalize("NFC", student), raw=student)

        return None

    def lesson(self, parts: Parts) -> str:
        """The lesson: by the file's name, else by the nearest folder's."""
        for name in reversed(parts):
            # A platform puts words before the file's name: only the name that it had counts.
            signature = signed(name)
            if lesson := self.names.lesson_in(
                signature.rest if signature and signature.rest else name
            ):
                return lesson
        return ""

    def lesson_of_file(self, parts: Parts) -> str:
        """The lesson that the file's own name says, or ""."""
        return self.lesson(parts[-1:])

    def lesson_by_number(self, parts: Parts) -> str:
        """The lesson of a name like `lesson 3`, the file's before the folders', or ""."""
        lessons_by_number = [self.names.number_in(name) for name in reversed(parts)]
        return next(filter(None, lessons_by_number), "")

    def is_around(self, parts: Parts) -> bool:
        """Whether this folder holds students' folders or files, and is no student's itself."""
        if parts not in self._around:
            self._around[parts] = self._is_around(parts)
        return self._around[parts]

    def _is_around(self, parts: Parts) -> bool:
        names_inside = list(self.children.get(parts, ()))
        if not names_inside:
            return False
        name = re.sub(r"\.zip$", "", parts[-1], flags=re.IGNORECASE)
        # `gradebook_COURSE_...zip` is Blackboard's name of a download.
        if AROUND.fullmatch(name) or name.lower().startswith("gradebook_"):
            return True

        # A folder with others beside it is one student's among them, unless the names of several
        # students are in it.
        alone = len(self.children[parts[:-1]]) == 1
        who = {signature.student for child in names_inside if (signature := signed(child))}
        if who:
            return alone or len(who) > 1
        return alone and self._holds_students(parts, names_inside)

    def _holds_students(self, parts: Parts, inside: list[str]) -> bool:
        """For the one folder at the top: do several names in it say a student, or has the one a
        lesson's folder?"""
        names = {self.names.without_lesson(child) for child in inside if self._counts(parts, child)}
        names.discard("")
        if len(names) != 1:
            return len(names) > 1

        # One name: a student's folder has a lesson's folder in it.
        for child in inside:
            path = (*parts, child)
            if path not in self.children or self.names.lesson_in(child):
                continue
            for below in self.children[path]:
                if (*path, below) in self.children and self.names.lesson_in(below):
                    return True
        return False

    def _counts(self, parts: Parts, child: str) -> bool:
        """A folder, a zip or a notebook; not a file beside them."""
        return (*parts, child) in self.children or bool(NOTEBOOK.search(child))


def _signed_owner(about: Signed) -> Owner:
    name = unicodedata.normalize("NFC", about.student)
    return Owner(name, about.number, about.student, about.attempt, about.late)
