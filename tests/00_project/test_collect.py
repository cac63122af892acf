"""A class's folder as it comes: who handed in what, and a reason for all that is left out."""

from __future__ import annotations

import csv
import io
import json
import os
import stat
import unicodedata
import zipfile
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.grading import unpack
from course_lib.grading.cli import main
from course_lib.grading.collect import collect, file_name, write_class
from course_lib.grading.notebooks import CourseError, Lesson, lessons

ONE, TWO = "01_eager_overhead", "02_bytecode_capture"


@pytest.fixture
def course(tmp_path) -> list[Lesson]:
    """Two lessons, each with one graded cell."""
    for lesson, name in ((ONE, "overhead"), (TWO, "capture")):
        path = tmp_path / "course" / "solutions" / lesson / f"{lesson}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_bytes(notebook(name))
    return lessons(tmp_path / "course")


def notebook(grade_id: str = "", text: str = "x = 1") -> bytes:
    cell = new_code_cell(text)
    if grade_id:
        cell.metadata["nbgrader"] = {"grade_id": grade_id, "solution": True, "grade": False}
    return nbformat.writes(new_notebook(cells=[cell])).encode()


def text_in(item) -> str:
    """The code of a collected notebook's only cell."""
    return "".join(json.loads(item.text)["cells"][0]["source"])


def zipped(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return out.getvalue()


def put(folder: Path, files: dict[str, bytes], later: int = 0) -> Path:
    """Write the files; each is a second newer than the one before."""
    for number, (name, data) in enumerate(files.items()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        os.utime(path, (1_800_000_000 + number + later,) * 2)
    return folder


A, B = notebook("overhead", "a"), notebook("overhead", "b")
N = notebook()  # a notebook that does not say its lesson
STUDENT = f"{ONE}/{ONE}.ipynb"

# what lies in the download, and who has which lesson
LAYOUTS = {
    "nbgrader": ({f"ann/{STUDENT}": N, f"bo/{STUDENT}": N}, {"ann": [ONE], "bo": [ONE]}),
    "numbers for names": ({f"student 0/{STUDENT}": N, f"student 1/{STUDENT}": N, f"1234567/{STUDENT}": N},
                          {"student 0": [ONE], "student 1": [ONE], "1234567": [ONE]}),
    "below submitted": ({f"submitted/ann/{STUDENT}": N, "notes/x.ipynb": N}, {"ann": [ONE]}),
    "one folder around all": (
        {f"week 1/ann/{STUDENT}": N, f"week 1/bo/{STUDENT}": N}, {"ann": [ONE], "bo": [ONE]}),
    "lesson first": ({f"{ONE}/ann/work.ipynb": N, f"{ONE}/bo.ipynb": N}, {"ann": [ONE], "bo": [ONE]}),
    "flat, student first": ({f"ann_{ONE}.ipynb": N, f"bo - {ONE}.ipynb": N}, {"ann": [ONE], "bo": [ONE]}),
    "flat, lesson first": ({f"{ONE}_ann.ipynb": N, f"{TWO}-ann (1).ipynb": N}, {"ann": [ONE, TWO]}),
    "flat, by the cells": ({"ann.ipynb": A, "bo.ipynb": notebook("capture")}, {"ann": [ONE], "bo": [TWO]}),
    "other words": ({"ann/01 Eager Overhead/x.ipynb": N, "bo/1-EAGER-overhead.ipynb": N},
                    {"ann": [ONE], "bo": [ONE]}),
    "no number": ({"ann/Eager Overhead.ipynb": N, "bo/EagerOverhead_final.ipynb": N}, {"ann": [ONE], "bo": [ONE]}),
    "a number alone": ({"ann/lesson 2.ipynb": N, "bo/01.ipynb": N}, {"ann": [TWO], "bo": [ONE]}),
    "other endings": ({f"ann/{ONE}.ipynb.txt": N, f"bo/{ONE}.IPYNB": N, f"cy/{ONE}.ipynb.json": N},
                      {"ann": [ONE], "bo": [ONE], "cy": [ONE]}),
    "browser copies": ({f"ann/{ONE}/{ONE} (1).ipynb": N, f"bo/{ONE}/{ONE}(2).ipynb": N,
                        f"cy/{ONE}/Copy of {ONE}.ipynb": N, f"di/{ONE}/{ONE}-Copy1.ipynb": N},
                       {name: [ONE] for name in ("ann", "bo", "cy", "di")}),
    "Canvas": ({f"exampleann_LATE_12345_6789_{ONE}-1.ipynb": N, f"otherbo_123_456_{ONE}.ipynb": N},
               {"exampleann": [ONE], "otherbo": [ONE]}),
    "Canvas, by the cells": ({"exampleann_1_2_Untitled.ipynb": A}, {"exampleann": [ONE]}),
    "Canvas, zips": ({"exampleann_1_2_work.zip": zipped({f"{ONE}.ipynb": N, f"x/{TWO}.ipynb": N})},
                     {"exampleann": [ONE, TWO]}),
    "Moodle": ({f"Ann Example_12345_assignsubmission_file_/{ONE}.ipynb": N,
                "Bo Ö_12346_assignsubmission_file_/work.ipynb": A}, {"Ann Example": [ONE], "Bo Ö": [ONE]}),
    "Moodle, flat": ({f"Ann Example_12345_assignsubmission_file_{ONE}.ipynb": N,
                      f"Bo Ö_12346_assignsubmission_file_{ONE} (1).ipynb": N},
                     {"Ann Example": [ONE], "Bo Ö": [ONE]}),
    "Moodle in a zip": ({"CS-Lesson 1-777.zip": zipped({f"Ann E_1_assignsubmission_file_/{ONE}.ipynb": N,
                                                       f"Bo E_2_assignsubmission_file_/{ONE}.ipynb": N})},
                        {"Ann E": [ONE], "Bo E": [ONE]}),
    "Blackboard": ({f"Lesson 1_ann1_attempt_2026-11-01-12-00-00_{ONE}.ipynb": N,
                    "Lesson 1_ann1_attempt_2026-11-01-12-00-00.txt": b"Name: Ann"}, {"ann1": [ONE]}),
    "Blackboard, lesson of the assignment": (
        {f"{ONE}_ann1_attempt_2026-11-01-12-00-00_work.ipynb": A}, {"ann1": [ONE]}),
    "Brightspace": ({f"123-456 - Ann Example - Nov 1, 2026 1200 PM/{ONE}.ipynb": N}, {"Ann Example": [ONE]}),
    "a zip for each student": ({"ann.zip": zipped({STUDENT: N}), f"bo_{ONE}.zip": zipped({"x.ipynb": A})},
                               {"ann": [ONE], "bo": [ONE]}),
    "zips in zips": ({"all.zip": zipped({"ann.zip": zipped({STUDENT: N}), "bo.zip": zipped({"w.zip": zipped({STUDENT: N})})})},
                     {"ann": [ONE], "bo": [ONE]}),
    "a zip of folders": ({"submissions (2).zip": zipped({f"ann/{STUDENT}": N, f"bo/{STUDENT}": N})},
                         {"ann": [ONE], "bo": [ONE]}),
    "a Mac's zip": ({"ann.zip": zipped({STUDENT: N, f"__MACOSX/{ONE}/._{ONE}.ipynb": b"\0\5"})}, {"ann": [ONE]}),
    "Windows' zip": ({"ann.zip": zipped({f"work\\{ONE}.ipynb": N})}, {"ann": [ONE]}),
    "leftovers": ({f"ann/{STUDENT}": N, f"__MACOSX/ann/._{ONE}.ipynb": N, f"._{ONE}.ipynb": N, ".DS_Store": b"",
                   "Thumbs.db": b"", "desktop.ini": b"", f"ann/.ipynb_checkpoints/{ONE}-checkpoint.ipynb": N,
                   f"ann/{ONE}/.{ONE}.ipynb.swp": b"", f".git/{ONE}.ipynb": N}, {"ann": [ONE]}),
    "names of other alphabets": ({f"王小明/{STUDENT}": N, f"Žofia Ňová_77_assignsubmission_file_/{ONE}.ipynb": N},
                                 {"王小明": [ONE], "Žofia Ňová": [ONE]}),
    "the cells against the folder": ({f"ann/{TWO}/work.ipynb": A}, {"ann": [ONE]}),
    "older marks in the folder": ({f"ann/{STUDENT}": N, "old/marks.jsonl": b"", "old/grades.csv": b"",
                                   f"old/feedback/ann/{ONE}.md": b""}, {"ann": [ONE]}),
    "a browser's copy, by the cells": ({"ann (1).ipynb": A, "ann.ipynb": notebook("capture")}, {"ann": [ONE, TWO]}),
    "GitHub Classroom": ({f"01-eager-overhead-annexample/{ONE}.ipynb": N, f"01-eager-overhead-bo/{ONE}.ipynb": N},
                         {"annexample": [ONE], "bo": [ONE]}),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_this_layout_is_understood(course, tmp_path, layout):
    files, expected = LAYOUTS[layout]
    found = collect(put(tmp_path / "class", files), course)
    got: dict[str, list[str]] = {}
    for item in found.submissions:
        assert item.text is not None, item
        got.setdefault(item.student, []).append(item.lesson)
    assert got == expected, found.told
    assert found.without_a_mark == []


@pytest.mark.parametrize(
    "layout", ["nbgrader", "Canvas", "Moodle", "leftovers", "flat, by the cells"]
)
def test_a_zip_of_it_is_understood_in_the_same_way(course, tmp_path, layout):
    files, expected = LAYOUTS[layout]
    (tmp_path / "download.zip").write_bytes(zipped(files))
    found = collect(tmp_path / "download.zip", course)
    assert {item.student for item in found.submissions} == set(expected)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_file_has_a_row(course, tmp_path, layout):
    files, _ = LAYOUTS[layout]
    folder = put(tmp_path / "class", files)
    found = collect(folder, course)
    told = {row.file.split("/")[0] for row in found.rows}
    if layout != "below submitted":  # there, what is beside `submitted/` is no part of the class
        assert told == {name.split("/")[0] for name in files}
    assert all(row.why for row in found.rows if not row.counts)


# the attempts of one student, in the order of their times, and which of them counts ("a" or "b")
ATTEMPTS = {
    "the later file": ({f"ann/{ONE} (1).ipynb": B, f"ann/{ONE}.ipynb": A}, "a"),
    "the later copy": ({f"ann/{ONE}.ipynb": B, f"ann/{ONE} (1).ipynb": A}, "a"),
    "Canvas numbers attempts": ({f"ann_1_20_{ONE}-2.ipynb": A, f"ann_1_10_{ONE}-1.ipynb": B,
                                 f"ann_1_5_{ONE}.ipynb": B}, "a"),
    "Canvas numbers files": ({f"ann_1_20_{ONE}.ipynb": A, f"ann_1_10_{ONE}.ipynb": B}, "a"),
    "Blackboard has the time": ({f"L_ann_attempt_2026-11-02-09-00-00_{ONE}.ipynb": A,
                                 f"L_ann_attempt_2026-11-01-12-00-00_{ONE}.ipynb": B}, "a"),
    "the newest is empty": ({f"ann/{ONE}.ipynb": A, f"ann/{ONE} (1).ipynb": b""}, "a"),
    "the newest is cut short": ({f"ann/{ONE}.ipynb": A, f"ann/{ONE} (1).ipynb": B[:50]}, "a"),
    "a scratch file beside it": ({f"ann/{ONE}/{ONE}.ipynb": A, f"ann/{ONE}/scratch.ipynb": N}, "a"),
    "in a zip and beside it": ({"ann/old.zip": zipped({f"{ONE}.ipynb": B}), f"ann/{ONE}.ipynb": A}, "a"),
}  # fmt: skip


@pytest.mark.parametrize("which", ATTEMPTS)
def test_of_several_attempts_the_newest_that_can_be_read_counts_and_it_says_so(
    course, tmp_path, which
):
    files, expected = ATTEMPTS[which]
    found = collect(put(tmp_path / "class", files), course)
    (item,) = found.submissions
    assert text_in(item) == expected
    others = [row for row in found.rows if not row.counts]
    assert len(others) == len(files) - 1 and all(row.why for row in others)
    told = " ".join(found.told)
    assert "counts" in told or "scratch" in told or "newer one cannot be read" in told


# what a stranger puts into a zip: a name in the zip, or bytes; and what is said
def _link() -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{ONE}/{ONE}.ipynb")
    entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    return entry


def _deep() -> bytes:
    data = zipped({STUDENT: A})
    for _ in range(unpack.DEEPEST + 1):
        data = zipped({"x.zip": data})
    return data


def _with(entry: zipfile.ZipInfo | str, data: bytes = A) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(entry, data)
    return out.getvalue()


def _damaged() -> bytes:
    data = bytearray(_with(f"{ONE}.ipynb", bytes(range(256)) * 40))
    data[200:260] = b"\xff" * 60
    return bytes(data)


HARMFUL = {
    "leads out": (_with(f"../../{ONE}.ipynb"), "leads out of the zip"),
    "leads out, Windows": (_with(f"..\\{ONE}.ipynb"), "leads out of the zip"),
    "absolute": (_with(f"/tmp/{ONE}.ipynb"), "leads out of the zip"),
    "a link": (_with(_link(), b"/etc/passwd"), "link"),
    "cut short": (_with(f"{ONE}.ipynb")[:-30], "damaged or cut short"),
    "no zip": (b"Rar!\x1a\x07", "damaged or cut short"),
    "empty file": (b"", "damaged or cut short"),
    "zips without end": (_deep(), "more than 4 zips"),
    "damaged inside": (_damaged(), "damaged"),
    "a bomb": (_with(f"{ONE}.ipynb", bytes(40 << 20)), "larger than 1 MiB"),
    "many files": (zipped({f"{n}.txt": b"" for n in range(80)}), "more than 50 files"),
}


@pytest.mark.parametrize("how", HARMFUL)
def test_a_zip_that_may_harm_is_a_word_and_the_others_are_collected(
    course, tmp_path, monkeypatch, how
):
    monkeypatch.setattr(unpack, "LARGEST_ENTRY", 1 << 20)
    monkeypatch.setattr(unpack, "MOST_ENTRIES", 50)
    data, words = HARMFUL[how]
    before = set(tmp_path.rglob("*"))
    folder = put(tmp_path / "class", {f"ann/{STUDENT}": A, "zoe.zip": data})
    found = collect(folder, course)
    good = [item.student for item in found.submissions if item.text is not None]
    assert good == ["ann"]
    assert words in " ".join(found.told) and "zoe" in " ".join(found.told)
    said = {item.student for item in found.submissions if item.trouble} | set(found.without_a_mark)
    assert said == {"zoe"}
    assert set(tmp_path.rglob("*")) - before == set(folder.rglob("*")) | {folder}


def test_two_students_of_one_name_stay_two(course, tmp_path):
    composed = unicodedata.normalize("NFC", "José")
    files = {
        f"Ann E_11_assignsubmission_file_/{ONE}.ipynb": A,
        f"Ann E_22_assignsubmission_file_/{ONE}.ipynb": B,
        f"{composed}/{STUDENT}": A,
        f"{unicodedata.normalize('NFD', composed)}/{STUDENT}": B,
        f"Bo/{STUDENT}": A,
        f"bo/{STUDENT}": B,
    }
    found = collect(put(tmp_path / "class", files), course)
    names = [item.student for item in found.submissions]
    folded = {unicodedata.normalize("NFKC", name).casefold() for name in names}
    assert len(names) == len(folded) == 6
    assert {"Ann E (11)", "Ann E (22)", composed} <= set(names)
    assert "Another student has the same name." in " ".join(found.told)


def test_one_student_whose_name_is_written_in_two_ways_stays_one(course, tmp_path):
    composed = unicodedata.normalize("NFC", "José")
    files = {
        f"{ONE}/{composed}/x.ipynb": A,
        f"{TWO}/{unicodedata.normalize('NFD', composed)}/x.ipynb": notebook("capture"),
    }
    found = collect(put(tmp_path / "class", files), course)
    assert [(item.student, item.lesson) for item in found.submissions] == [
        (composed, ONE),
        (composed, TWO),
    ]


# who handed in something that is no notebook, and what is said
NOTHING = {
    "a report": ({"bo/report.pdf": b"%PDF"}, "bo/report.pdf: It is no notebook."),
    "an empty folder": ({}, "bo: The folder is empty."),
    "another archive": ({"bo/work.rar": b"Rar!"}, "archive of another kind"),
    "a notebook of another course": ({"bo/poems.ipynb": N}, "Neither its name nor its cells"),
    "an unnamed broken one": ({"bo/x.ipynb": b"{"}, "Neither its name nor its cells"),
}


@pytest.mark.parametrize("what", ["a damaged zip", "a link", "an empty folder", "a report in it"])
def test_what_is_there_of_a_known_lesson_is_a_mark_with_a_reason(course, tmp_path, what):
    folder = put(tmp_path / "class", {f"ann/{STUDENT}": A})
    if what == "a damaged zip":
        put(folder, {f"bo_{ONE}.zip": b"PK"})
    elif what == "a link":
        (folder / "bo").mkdir()
        (folder / "bo" / ONE).symlink_to(folder / "ann" / ONE)
    elif what == "an empty folder":
        (folder / "bo" / ONE).mkdir(parents=True)
    else:
        put(folder, {f"bo/{ONE}/report.pdf": b"%PDF"})
    found = collect(folder, course)
    bo = found.submissions[1]
    assert (bo.student, bo.lesson, bo.text) == ("bo", ONE, None) and bo.trouble
    assert bo.trouble in " ".join(found.told) and not found.without_a_mark


@pytest.mark.parametrize("what", NOTHING)
def test_who_has_no_mark_is_named_and_the_command_fails(
    course, tmp_path, monkeypatch, capsys, what
):
    files, words = NOTHING[what]
    folder = put(tmp_path / "class", {f"ann/{STUDENT}": A, **files})
    (folder / "bo").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "course")
    assert main(["collect", str(folder), "--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().out
    assert words in said and "nothing of: bo" in said
    with (tmp_path / "out" / "collected.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert rows[f"ann/{STUDENT}"]["counts"] == "yes"
    assert all(row["why"] for row in rows.values() if row["counts"] == "no")


# a folder in which there is nothing to mark, and a word of what is said
OTHER_LAYOUTS = {
    "nothing": ({}, "Found: no files"),
    "the exercises": ({f"{ONE}/{ONE}.ipynb": A}, "says whose it is"),
    "a program": ({"src/main.py": b"", "README.md": b""}, "src/main.py"),
    "notebooks of another course": ({"ann/poems.ipynb": N}, "ann/poems.ipynb"),
}


@pytest.mark.parametrize("what", OTHER_LAYOUTS)
def test_another_layout_is_refused_in_a_sentence_and_nothing_is_written(
    course, tmp_path, monkeypatch, capsys, what
):
    files, words = OTHER_LAYOUTS[what]
    folder = put(tmp_path / "class", files)
    folder.mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "course")
    for command in ("grade", "collect"):
        more = ["--no-sandbox"] if command == "grade" else []
        assert main([command, str(folder), "--output", str(tmp_path / "out"), *more]) == 2
        said = capsys.readouterr().err
        assert words in said and "Expected: STUDENT/NN_name/NN_name.ipynb" in said
    assert not (tmp_path / "out").exists()


def test_a_file_or_a_path_that_is_not_there_is_a_sentence(course, tmp_path):
    (tmp_path / "x.pdf").write_bytes(b"%PDF")
    with pytest.raises(CourseError, match="no folder and no zip"):
        collect(tmp_path / "x.pdf", course)
    with pytest.raises(CourseError, match="is no folder"):
        collect(tmp_path / "nowhere", course)


def test_a_link_is_not_followed(course, tmp_path):
    folder = put(tmp_path / "class", {f"ann/{STUDENT}": A})
    (folder / "bo" / ONE).mkdir(parents=True)
    (folder / "bo" / STUDENT).symlink_to(folder / "ann" / STUDENT)
    (folder / "cy").symlink_to(folder / "ann")
    found = collect(folder, course)
    assert [(item.student, item.text is None) for item in found.submissions] == [
        ("ann", False),
        ("bo", True),
    ]
    assert found.without_a_mark == ["cy"] and "link" in found.submissions[1].trouble


def test_the_marks_in_the_folder_are_no_student(course, tmp_path):
    folder = put(tmp_path / "class", {f"ann/{STUDENT}": A, "grades/feedback/ann/x.md": b""})
    found = collect(folder, course, leave_out=(folder / "grades",))
    assert [item.student for item in found.submissions] == ["ann"] and not found.without_a_mark


def test_what_is_collected_is_the_same_file_and_an_earlier_one_is_kept(course, tmp_path):
    out = tmp_path / "out"
    first = put(tmp_path / "first", {f"ann_1_2_{ONE}.ipynb": B})
    second = put(tmp_path / "second", {f"ann_1_3_{ONE}-1.ipynb": A})
    assert write_class(collect(first, course), out) == 1
    assert write_class(collect(first, course), out) == 0
    assert write_class(collect(second, course), out) == 1
    assert (out / "ann" / STUDENT).read_bytes() == A
    assert [path.read_bytes() for path in (out / ".earlier").rglob("*.ipynb")] == [B]
    assert [item.student for item in collect(out, course).submissions] == ["ann"]


@pytest.mark.parametrize(
    "name", ["..", ".", "a/b", "../../x", "a\\b", "C:x", "", "a\0b", ".hidden", "x."]
)
def test_no_name_of_a_student_leads_out_of_the_folder(name):
    made = file_name(name)
    assert made and not set(made) & set("/\\:\0") and not made.startswith(".")


def _refuse(monkeypatch, module, function, path):
    """`function` fails for this path as it does for an account that may not read it."""
    real = getattr(module, function)

    def refusing(given, *more, **words):
        if str(given) == str(path):
            raise PermissionError(13, "Permission denied", str(path))
        return real(given, *more, **words)

    monkeypatch.setattr(module, function, refusing)


def closed_student(folder, monkeypatch):
    (folder / "bo" / ONE).mkdir(parents=True)
    _refuse(monkeypatch, os, "scandir", folder / "bo")


def closed_lesson(folder, monkeypatch):
    (folder / "bo" / ONE).mkdir(parents=True)
    _refuse(monkeypatch, os, "scandir", folder / "bo" / ONE)


def closed_notebook(folder, monkeypatch):
    put(folder, {f"bo/{STUDENT}": A})
    _refuse(monkeypatch, Path, "read_bytes", folder / "bo" / STUDENT)


def closed_zip(folder, monkeypatch):
    put(folder, {"bo.zip": zipped({STUDENT: A})})
    _refuse(monkeypatch, Path, "read_bytes", folder / "bo.zip")


def dangling_link(folder, monkeypatch):
    (folder / "bo").symlink_to(folder / "nowhere")


def link_to_itself(folder, monkeypatch):
    (folder / "bo").symlink_to(folder / "bo")


def pipe_for_a_notebook(folder, monkeypatch):
    (folder / "bo" / ONE).mkdir(parents=True)
    os.mkfifo(folder / "bo" / STUDENT)


def folders_without_end(folder, monkeypatch):
    put(folder, {f"bo/{'d/' * 60}{ONE}.ipynb": A})


def half_written(folder, monkeypatch):
    put(folder, {f"bo/{STUDENT}": A[: len(A) // 2]})


BAD = {bad.__name__: bad for bad in (
    closed_student, closed_lesson, closed_notebook, closed_zip, dangling_link, link_to_itself,
    pipe_for_a_notebook, folders_without_end, half_written)}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_one_bad_folder_is_one_students_matter(course, tmp_path, monkeypatch, what):
    folder = put(tmp_path / "class", {f"ann/{STUDENT}": A, f"cy/{STUDENT}": B})
    BAD[what](folder, monkeypatch)
    found = collect(folder, course)
    good = [item.student for item in found.submissions if item.text is not None]
    assert good == ["ann", "cy"]
    bad = [item for item in found.submissions if item.text is None]
    named = {item.student for item in bad} | set(found.without_a_mark)
    assert named == {"bo"} and "bo" in " ".join(found.told)
    assert all(item.trouble for item in bad)


def test_a_name_that_is_no_unicode_is_a_student(course, tmp_path):
    folder = tmp_path / "class"
    put(folder, {f"ann/{STUDENT}": A})
    try:
        put(folder, {os.fsdecode(b"n\xff") + f"/{STUDENT}": A})
    except OSError:
        pytest.skip("this file system takes only unicode")
    found = collect(folder, course)
    assert [item.student for item in found.submissions] == ["ann", "n\\xff"]
