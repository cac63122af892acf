"""Every file of a download, zips in zips included, one after the other. Nothing is written.

In:  a folder or a zip. Out: `Piece`s (a file that can be read), `Folder`s, and `Left`s: what is
there and not looked at, with a reason. One folder or zip that cannot be opened is one `Left`, and
the rest goes on.

A zip of a stranger may be made to harm: names that lead out of it, links, millions of entries,
gigabytes behind a few bytes. Such an entry is a `Left`. Bytes are read only when somebody asks for
them.
The PyTorch counterpart: none.
"""

from __future__ import annotations

import io
import os
import stat
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .corners.leftovers import leftover
from .notebooks import CourseError

Parts = tuple[str, ...]  # a path below the download, zips counting as folders

DEEPEST = 4  # zips in zips
DEEPEST_FOLDER = 40  # folders in folders
MOST_ENTRIES = 50_000  # files and folders of all zips
LARGEST_ENTRY = 512 << 20  # bytes of one file in a zip, unpacked
LARGEST_ZIPS = 4 << 30  # bytes of all notebooks and zips in zips, unpacked

OTHER_ARCHIVES = (".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".zst")
LINK = "It is a link to another place."


@dataclass(frozen=True)
class Piece:
    """A file: its path below the download, its size and time, and how to get its bytes (OSError: it
    cannot be read)."""

    parts: Parts
    size: int
    changed: float
    load: Callable[[], bytes]


@dataclass(frozen=True)
class Folder:
    """A folder, or a zip that was opened."""

    parts: Parts


@dataclass(frozen=True)
class Left:
    """What was left out, and why. `harmless`: no work of a student can be in it."""

    parts: Parts
    why: str
    harmless: bool = False
    link: bool = False


Entry = Piece | Folder | Left


@dataclass
class _Budget:
    """What the zips of one download may still hold: files, and bytes of notebooks and zips."""

    entries: int
    unpacked: int


@dataclass(frozen=True)
class _Place:
    """Where the walk is. `depth`: how many zips it is in; `budget` is one for the whole walk."""

    parts: Parts
    depth: int
    budget: _Budget

    def below(self, name: str, depth: int = 0) -> _Place:
        return _Place((*self.parts, name), self.depth + depth, self.budget)


def files_of(download: Path, leave_out: tuple[Path, ...] = ()) -> Iterator[Entry]:
    """All that is in a download, in the order of the names.

    `leave_out`: folders that are not looked at."""
    require_a_download(download)
    top = _Place((), 0, _Budget(MOST_ENTRIES, LARGEST_ZIPS))
    if download.is_dir():
        yield from _folder(download, top, {os.path.realpath(path) for path in leave_out})
    else:
        yield from _zip_file(download.read_bytes, top)


def require_a_download(download: Path) -> None:
    """Raise `CourseError` unless it is a folder or a zip."""
    if download.is_dir() or zipfile.is_zipfile(download):
        return
    if download.exists():
        raise CourseError(f"{download} is no folder and no zip. Give the class's folder, or a zip.")
    raise CourseError(f"{download} is no folder. Give the one that holds the students' work.")


# ---- folders -------------------------------------------------------------------------------------


def _folder(folder: Path, place: _Place, leave_out: set[str]) -> Iterator[Entry]:
    """All that is in a folder; `leave_out`: the true paths of folders with marks."""
    try:
        with os.scandir(folder) as directory:
            entries = sorted(directory, key=_by_name)
    except OSError as error:
        yield Left(place.parts, f"The folder cannot be opened ({error.strerror}).")
        return

    for entry in entries:
        here = place.below(printable(entry.name))
        if what_it_is := leftover(entry.name):
            yield Left(here.parts, f"It is {what_it_is}.", harmless=True)
        elif os.path.realpath(entry.path) in leave_out:
            yield Left(here.parts, "It holds marks of `course grade`.", harmless=True)
        else:
            yield from _entry(entry, here, leave_out)


def _by_name(entry: os.DirEntry[str]) -> bytes:
    """By bytes, for a name on a disk need not be letters."""
    return os.fsencode(entry.name)


def _entry(entry: os.DirEntry[str], here: _Place, leave_out: set[str]) -> Iterator[Entry]:
    """A file or folder, with all that is in it. Links are not followed."""
    path = Path(entry.path)
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as error:
        yield Left(here.parts, f"It cannot be looked at ({error.strerror}).")
        return

    if stat.S_ISLNK(status.st_mode):
        yield Left(here.parts, LINK, link=True)
    elif stat.S_ISDIR(status.st_mode) and len(here.parts) > DEEPEST_FOLDER:
        yield Left(here.parts, f"It lies more than {DEEPEST_FOLDER} folders deep.")
    elif stat.S_ISDIR(status.st_mode) and _holds_marks(path):
        yield Left(here.parts, "It holds marks of `course grade`.", harmless=True)
    elif stat.S_ISDIR(status.st_mode):
        yield Folder(here.parts)
        yield from _folder(path, here, leave_out)
    elif not stat.S_ISREG(status.st_mode):
        yield Left(here.parts, "It is no ordinary file.")
    else:
        piece = Piece(here.parts, status.st_size, status.st_mtime, path.read_bytes)
        yield from _file(piece, here)


def _holds_marks(folder: Path) -> bool:
    try:
        return (folder / "marks.jsonl").is_file() and (folder / "grades.csv").is_file()
    except OSError:  # it cannot be looked into
        return False


def _file(piece: Piece, here: _Place) -> Iterator[Entry]:
    """A file as it is, or what a zip holds."""
    name = piece.parts[-1].lower()
    if name.endswith(OTHER_ARCHIVES):
        yield Left(piece.parts, "It is an archive of another kind than zip. Unpack it by hand.")
    elif not name.endswith(".zip"):
        yield piece
    elif here.depth >= DEEPEST:
        yield Left(piece.parts, f"It lies in more than {DEEPEST} zips. Unpack it by hand.")
    elif piece.size > LARGEST_ENTRY:
        yield Left(piece.parts, f"The zip is larger than {LARGEST_ENTRY >> 20} MiB.")
    else:
        yield from _zip_file(piece.load, here)


# ---- zips ----------------------------------------------------------------------------------------


def _zip_file(load: Callable[[], bytes], place: _Place) -> Iterator[Entry]:
    """All that is in a zip; `load` gives its bytes."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(load()))
        entries = archive.infolist()
    except OSError as error:
        yield Left(place.parts, f"The zip cannot be read ({error.strerror or error}).")
        return
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OverflowError):
        yield Left(place.parts, "It is no zip that can be opened: it is damaged or cut short.")
        return

    yield Folder(place.parts)
    place_in_zip = _Place(place.parts, place.depth + 1, place.budget)
    for number, entry in enumerate(entries):
        place.budget.entries -= 1
        if place.budget.entries < 0:
            rest = len(entries) - number
            yield Left(
                place.parts, f"{rest} of its files: all zips hold more than {MOST_ENTRIES} files."
            )
            return
        yield from _in_zip(archive, entry, place_in_zip)


def _in_zip(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, zip_place: _Place) -> Iterator[Entry]:
    """One entry of a zip."""
    name = _name_in_zip(entry)
    steps = [step for step in name.split("/") if step not in ("", ".")]
    here = _Place((*zip_place.parts, *map(printable, steps)), zip_place.depth, zip_place.budget)

    why_left_out, harmless = _why_not(entry, name, steps, zip_place.budget)
    if why_left_out:
        is_link = why_left_out == LINK
        yield Left(here.parts, why_left_out, harmless, link=is_link)
    elif name.endswith("/"):
        yield Folder(here.parts)
    else:
        if _is_read(name):
            zip_place.budget.unpacked -= entry.file_size
        load = _Load(archive, entry)
        yield from _file(Piece(here.parts, entry.file_size, _time_of(entry), load), here)


def _why_not(
    entry: zipfile.ZipInfo, name: str, steps: list[str], budget: _Budget
) -> tuple[str, bool]:
    """Why an entry of a zip is left out, and whether that is harmless; ("", False) if it is
    taken. `steps`: the folders and the file of its name."""
    # /etc/x, ../x, and on Windows C:/x
    if name.startswith("/") or ".." in steps or (steps and steps[0].endswith(":")) or not steps:
        return "Its name leads out of the zip.", False
    if what_it_is := next(filter(None, map(leftover, steps)), ""):
        return f"It is {what_it_is}.", True
    # The upper half holds the file's mode on Unix; bit 0 of the flags says that it is encrypted.
    if stat.S_ISLNK(entry.external_attr >> 16):
        return LINK, False
    if entry.flag_bits & 1:
        return "It is behind a password.", False
    if entry.file_size > LARGEST_ENTRY:
        return f"Unpacked it is larger than {LARGEST_ENTRY >> 20} MiB.", False
    if _is_read(name) and entry.file_size > budget.unpacked:
        return f"Unpacked, all zips hold more than {LARGEST_ZIPS >> 30} GiB of notebooks.", False
    if len(steps) > DEEPEST_FOLDER:
        return f"It lies more than {DEEPEST_FOLDER} folders deep.", False

    return "", False


def _is_read(name: str) -> bool:
    """Whether the bytes of such a file will be wanted: of others only the name is told."""
    return ".ipynb" in name.lower() or name.lower().endswith(".zip")


@dataclass(frozen=True)
class _Load:
    """Reads one entry of a zip when it is called."""

    archive: zipfile.ZipFile
    entry: zipfile.ZipInfo

    def __call__(self) -> bytes:
        try:
            return self.archive.read(self.entry)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
            # 0: no error of the operating system has this number
            raise OSError(0, f"the zip is damaged: {error}") from error


def _name_in_zip(entry: zipfile.ZipInfo) -> str:
    """The entry's name: a Mac writes UTF-8 without saying so, an old Windows writes backslashes."""
    name = entry.filename
    # Without the flag "the name is UTF-8" `zipfile` has read it as cp437, the letters of DOS.
    if not entry.flag_bits & 0x800:
        with suppress(UnicodeError):
            name = name.encode("cp437").decode("utf-8")
    return name.replace("\\", "/")


def _time_of(entry: zipfile.ZipInfo) -> float:
    """Seconds since 1970; 0.0 where the zip says no true time."""
    try:
        # `mktime` needs neither weekday nor day of the year (0, 0), and finds out itself whether it
        # was summer time (-1).
        return time.mktime((*entry.date_time, 0, 0, -1))
    except (ValueError, OverflowError):  # month 0, as some programs write
        return 0.0


def printable(name: str) -> str:
    """The name in letters that can be printed and stored; a byte that is no letter is written
    out."""
    try:
        text = os.fsencode(name).decode("utf-8", errors="backslashreplace")
    except UnicodeEncodeError:  # half a letter, in the name of a zip's entry
        text = name.encode("utf-8", errors="backslashreplace").decode()
    # `ascii` puts quotes around
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)
