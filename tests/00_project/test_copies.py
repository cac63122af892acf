"""The learner's copy: `course start`, `update`, `undo`, and what the other commands do with it."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from tiny_course import BIGGEST, DOUBLE, STUB, edit, tiny_course, with_answers

from course_lib.grading import copies, gate, handed_out, history, learners_files, writing
from course_lib.grading.answers import notebook_of
from course_lib.grading.cli import main
from course_lib.grading.commands import learner
from course_lib.grading.exercise_files import generate
from course_lib.grading.notebooks import CourseError, grading_metadata, read, to_text
from course_lib.grading.progress import Memory, progress, remembered, start_at


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    lesson = tiny_course(tmp_path)
    generate(lesson)
    monkeypatch.chdir(tmp_path)
    return lesson


@pytest.fixture
def copied(tiny):
    copies.start(tiny)
    return tiny


def answer(lesson, path=None, **answers):
    """Write answers into the copy, as a learner does in Lab."""
    path = path or lesson.copy
    nb = read(path)
    for cell in nb.cells:
        name = grading_metadata(cell).get("grade_id")
        if name in answers:
            cell.source = cell.source.replace(f"    {STUB}", answers[name])
    path.write_text(to_text(nb), encoding="utf-8")


def answers_in(path):
    return {
        grading_metadata(cell).get("grade_id"): cell.source
        for cell in read(path).cells
        if grading_metadata(cell).get("solution")
    }


def commit(lesson):
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "release"],
    ):
        subprocess.run(["git", "-C", str(lesson.root), *words], check=True)


def new_release(lesson):
    """The course changes a text and a check."""
    edit(lesson.solution, "Return twice each number.", "Return twice each number, as a list.")
    edit(lesson.solution, "'each number doubles'", "'every number doubles'")
    generate(lesson)


# ---- start


def test_start_makes_a_copy_and_never_writes_over_one(tiny, capsys):
    assert main(["start", "1"]) == 0
    assert "made work/01_tiny.ipynb" in capsys.readouterr().out
    answer(tiny, double=DOUBLE)
    before = tiny.copy.read_bytes()
    assert main(["start", "1"]) == 0 and main(["start"]) == 0
    assert tiny.copy.read_bytes() == before
    assert "is there already and stays as it is" in capsys.readouterr().out


def test_links_of_a_copy_lead_where_those_of_the_exercise_led(tiny):
    edit(
        tiny.solution,
        "# A tiny lesson",
        "# A tiny lesson\n\nSee [it](../../notebooks/01_tiny.ipynb).",
    )
    generate(tiny)
    copies.start(tiny)
    assert "(../notebooks/01_tiny.ipynb)" in read(tiny.copy).cells[0].source


def test_the_exercise_stays_as_it_was_handed_out(copied):
    before = copied.exercise.read_bytes()
    answer(copied, double=DOUBLE)
    new_release(copied)
    handed_out = copied.exercise.read_bytes()
    copies.update(copied)
    assert before != handed_out == copied.exercise.read_bytes()


# ---- update and undo


def test_update_brings_the_new_text_and_checks_and_keeps_the_answers(copied, capsys):
    answer(copied, double=DOUBLE)
    new_release(copied)
    assert copies.has_update(copied)
    assert main(["update", "1"]) == 0
    said = capsys.readouterr().out
    assert "your answers stay: double" in said and "`course undo 01` takes this back" in said
    text = copied.copy.read_text()
    assert "as a list" in text and "every number doubles" in text
    assert DOUBLE in answers_in(copied.copy)["double"]
    assert main(["update"]) == 0 and "1 copy with nothing new to get" in capsys.readouterr().out


def test_undo_brings_the_file_before_back_and_undo_again_takes_that_back(copied, capsys):
    answer(copied, double=DOUBLE)
    before = copied.copy.read_bytes()
    new_release(copied)
    copies.update(copied)
    after = copied.copy.read_bytes()
    for expected in (before, after, before):
        assert main(["undo", "1"]) == 0
        assert copied.copy.read_bytes() == expected
    # the copy names its own release: a further update merges it rightly
    assert copies.update(copied).word == "updated"
    assert read(copied.copy).cells == nbformat.reads(after.decode(), 4).cells
    capsys.readouterr()
    assert main(["undo", "1", "--list"]) == 0
    # of a version that two commands kept, the one that wrote is told
    assert "before `course update`" in capsys.readouterr().out
    assert main(["undo", "1", "--to", "1"]) == 0 and copied.copy.read_bytes() == before


def test_undo_brings_back_a_copy_that_was_deleted(copied, capsys):
    answer(copied, double=DOUBLE)
    history.keep_now(copied, "check")
    before = copied.copy.read_bytes()
    copied.copy.unlink()
    with pytest.raises(CourseError, match="is gone: `course undo 01` brings back"):
        learners_files.learners_file(copied)
    assert main(["undo", "1"]) == 0 and copied.copy.read_bytes() == before


def test_undo_and_feedback_speak_the_learners_language(copied, capsys, monkeypatch):
    history.keep_now(copied, "check")
    copied.copy.unlink()
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")
    assert main(["undo", "1"]) == 0
    said = capsys.readouterr().out
    assert "恢复成了`course check` 评分时的样子" in said and "is again" not in said
    assert main(["feedback", "1"]) == 0 and "哪一节或哪个练习：" in capsys.readouterr().out


def test_with_nothing_kept_undo_is_one_sentence(copied, capsys):
    assert main(["undo", "1"]) == 2 and "There is nothing to undo" in capsys.readouterr().err
    assert main(["undo", "1", "--to", "7"]) == 2 and "no version 7" in capsys.readouterr().err


def test_a_copy_that_cannot_be_read_is_not_written_over(copied, capsys):
    for spoilt in (b"", b"<<<<<<< HEAD\n", copied.copy.read_bytes()[:900]):
        copied.copy.write_bytes(spoilt)
        new_release(copied) if not copies.has_update(copied) and not spoilt else None
        assert main(["update", "1"]) == 2
        said = capsys.readouterr()
        assert "nothing was changed" in said.out and "Traceback" not in said.out + said.err
        assert copied.copy.read_bytes() == spoilt


def test_an_update_after_lab_wrote_the_old_notebook_over_it_gives_the_same(copied):
    """Lab had the notebook open, and its user chose "Overwrite"."""
    answer(copied, double=DOUBLE)
    in_lab = copied.copy.read_bytes()
    new_release(copied)
    copies.update(copied)
    after = copied.copy.read_bytes()
    copied.copy.write_bytes(in_lab)
    copies.update(copied)
    assert copied.copy.read_bytes() == after


def test_an_update_that_is_killed_between_its_two_files_is_done_by_the_next(copied, monkeypatch):
    answer(copied, double=DOUBLE)
    new_release(copied)
    before = copied.copy.read_bytes()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(copies, "write_kept", _interrupted)
        copies.update(copied)
    assert copied.copy.read_bytes() == before
    assert copies.update(copied).word == "updated"
    assert "as a list" in copied.copy.read_text() and DOUBLE in answers_in(copied.copy)["double"]


def _interrupted(*args):
    raise KeyboardInterrupt


def test_a_copy_from_another_machine_finds_its_exercise_in_the_clones_history(copied):
    commit(copied)
    answer(copied, double=DOUBLE)
    edit(copied.copy, "## Exercise 1.2: the biggest", "## Exercise 1.2: my heading")
    new_release(copied)
    shutil.rmtree(copied.work / ".base")
    done = copies.update(copied)
    text = copied.copy.read_text()
    assert "as a list" in text and "my heading" in text and "Kept by" not in text
    assert not any("changed on both sides" in line for line in done.said)


@pytest.mark.parametrize(
    "number", [errno.ENOSPC, errno.EROFS, errno.EACCES], ids=errno.errorcode.get
)
@pytest.mark.parametrize("command", ["start", "update", "undo", "exercises"])
def test_a_full_disk_or_one_for_reading_only_is_one_sentence_and_nothing_is_lost(
    copied, monkeypatch, capsys, number, command
):
    answer(copied, double=DOUBLE)
    history.keep_now(copied, "check")
    answer(copied, biggest=BIGGEST)
    new_release(copied)
    edit(copied.solution, "A tiny lesson", "A small lesson")
    if command == "start":
        copied.copy.rename(copied.root / "old.ipynb")
    files = {path: path.read_bytes() for path in copied.root.rglob("*") if path.is_file()}

    def full(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    words = [command, "1"]
    assert main(words) == 2
    said = "".join(capsys.readouterr())
    assert "Nothing was changed" in said and "Traceback" not in said
    assert {p: p.read_bytes() for p in copied.root.rglob("*") if p.is_file()} == files


@pytest.mark.parametrize("words", [["progress"], ["check", "1"], ["update"], ["undo", "1"]])
def test_what_a_killed_command_left_is_removed_by_the_next_one(copied, words, capsys):
    answer(copied, double=DOUBLE)
    before = copied.copy.read_bytes()
    history.keep_now(copied, "check")
    history.keep_now(copied, "check")
    left = [
        copied.work / f".{copied.copy.name}.4711.unfinished",
        history.folder(copied) / ".000002-x-update.ipynb.4711.unfinished",
    ]
    for path in left:
        path.write_bytes(b"half")
    main(words)
    said = capsys.readouterr().err
    assert not any(path.exists() for path in left) and copied.copy.read_bytes() == before
    assert said.count("Nothing is lost") == 1 and left[0].name in said
    main(words)
    assert "unfinished" not in capsys.readouterr().err


def test_a_command_that_is_killed_leaves_a_file_which_the_next_one_removes(copied, capsys):
    """The real thing: the process ends between writing the new file and giving it its name."""
    answer(copied, double=DOUBLE)
    new_release(copied)
    before = copied.copy.read_bytes()
    killed = (
        "import os, signal\nfrom course_lib.grading import cli, writing\n"
        "writing.Seen.complain_if_changed = lambda seen: os.kill(os.getpid(), signal.SIGKILL)\n"
        "cli.main(['update', '1'])"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", killed], env=environment, capture_output=True)
    assert done.returncode == -9 and list(copied.work.glob(".*.unfinished"))
    assert copied.copy.read_bytes() == before
    assert main(["update", "1"]) == 0 and not list(copied.work.rglob(".*.unfinished"))
    assert "Nothing is lost" in capsys.readouterr().err
    assert DOUBLE in answers_in(copied.copy)["double"]


def test_an_unfinished_file_in_a_folder_for_reading_only_stops_no_command(copied, monkeypatch):
    (copied.work / ".x.ipynb.4711.unfinished").write_bytes(b"half")

    def refused(*args, **more):
        raise CourseError("no")

    monkeypatch.setattr(writing, "alone", refused)
    assert main(["progress"]) == 0


def test_two_commands_at_once_do_not_write_both(copied, monkeypatch, capsys):
    answer(copied, double=DOUBLE)
    new_release(copied)
    before = copied.copy.read_bytes()
    monkeypatch.setattr(writing, "PATIENCE", 0.1)
    with writing.alone(copied.work):
        assert main(["update", "1"]) == 2
    assert "Another `course` command is writing" in capsys.readouterr().out
    assert copied.copy.read_bytes() == before


def test_a_spoilt_copy_says_how_to_get_a_kept_version(copied, capsys):
    answer(copied, double=DOUBLE)
    history.keep_now(copied, "check")
    whole = copied.copy.read_bytes()
    copied.copy.write_bytes(whole[:900])  # a crash while Lab saved
    for words in (["check", "1"], ["update", "1"], ["progress"]):
        main(words)
        assert "cut short" in (said := "".join(capsys.readouterr())) and "`course undo 01`" in said
    assert main(["undo", "1"]) == 0 and copied.copy.read_bytes() == whole
    # spoilt again: what the first undo replaced is kept, and is not what comes back
    copied.copy.write_bytes(b"")
    assert main(["undo", "1"]) == 0 and copied.copy.read_bytes() == whole


def test_what_lab_saved_during_an_update_stays(copied, monkeypatch, capsys):
    answer(copied, double=DOUBLE)
    new_release(copied)

    def merge_slowly(*notebooks):
        answer(copied, biggest=BIGGEST)  # Lab saves
        return merge(*notebooks)

    merge = copies.merge
    monkeypatch.setattr(copies, "merge", merge_slowly)
    assert main(["update", "1"]) == 2
    assert "was changed by another program just now" in capsys.readouterr().out
    assert BIGGEST in answers_in(copied.copy)["biggest"]


# ---- history


def test_history_is_bounded_and_never_loses_the_newest_nor_the_last_with_answers(
    copied, monkeypatch
):
    monkeypatch.setattr(history, "NEWEST", 8)
    answer(copied, double=DOUBLE)
    history.keep_now(copied, "check")
    empty = to_text(handed_out.as_copy(handed_out.handed_out(copied)))
    for number in range(20):
        copied.copy.write_text(empty.replace("A tiny lesson", f"A tiny lesson, {number}"))
        history.keep_now(copied, "check")
    kept = history.versions(copied)
    assert [version.number for version in kept] == [1, *range(14, 22)]
    assert DOUBLE in answers_in(kept[0].path)["double"]


def test_large_versions_go_first_but_the_newest_stay(copied, monkeypatch):
    monkeypatch.setattr(history, "ROOM", 100_000)
    for number in range(12):
        copied.copy.write_bytes(bytes([65 + number]) * 40_000)
        history.keep_now(copied, "check")
    assert len(history.versions(copied)) == history.ALWAYS


# ---- old clones: answers in exercises/


@pytest.mark.parametrize("repository", [False, True])
def test_answers_in_exercises_move_to_the_copy(tiny, repository, capsys):
    if repository:
        commit(tiny)
    handed_out = tiny.exercise.read_bytes()
    with_answers(tiny, double=DOUBLE)
    old = tiny.exercise.read_bytes()
    assert learners_files.learners_file(tiny) == tiny.exercise
    assert main(["start", "1"]) == 0
    said = capsys.readouterr().out
    assert (
        "Your answers in exercises/01_tiny/01_tiny.ipynb (double) are in work/01_tiny.ipynb now"
        in said
    )
    assert DOUBLE in answers_in(tiny.copy)["double"]
    assert tiny.exercise.read_bytes() == handed_out
    (kept,) = [v for v in history.versions(tiny) if v.path.read_bytes() == old]
    assert main(["undo", "1"]) == 0 and tiny.copy.read_bytes() != old  # the copy before
    assert main(["undo", "1", "--to", str(kept.number)]) == 0 and tiny.copy.read_bytes() == old
    assert learners_files.learners_file(tiny) == tiny.copy


def test_answers_in_both_places_are_put_together_and_what_differs_is_kept_beside(copied, capsys):
    answer(copied, double="    return [2 * n for n in numbers]")
    with_answers(copied, double=DOUBLE, biggest=BIGGEST)
    assert main(["start", "1"]) == 0
    said = capsys.readouterr().out
    assert "return [2 * n" in answers_in(copied.copy)["double"]
    assert BIGGEST in answers_in(copied.copy)["biggest"]
    assert "double: work/01_tiny.ipynb has another answer, which stays" in said
    assert DOUBLE in answers_in(copied.work / "01_tiny.other-1.ipynb")["double"]


def test_the_exercise_is_restored_only_once_the_copy_is_safe(tiny, monkeypatch, capsys):
    with_answers(tiny, double=DOUBLE)
    old = tiny.exercise.read_bytes()

    def refuse(seen, data):
        raise CourseError("no room")

    monkeypatch.setattr(writing, "write", refuse)
    assert main(["start", "1"]) == 2
    assert tiny.exercise.read_bytes() == old


def test_an_old_exercise_that_cannot_be_read_is_left_and_told(tiny, capsys):
    tiny.exercise.write_bytes(b"<<<<<<< HEAD\n{}\n=======\n")
    assert main(["start", "1"]) == 0
    said = capsys.readouterr().out
    assert "It is left as it is" in said and tiny.exercise.read_bytes().startswith(b"<<<<<<<")
    assert tiny.copy.is_file()


@pytest.mark.parametrize("layout", ["work", "exercises", "clone", "file"])
def test_answers_of_an_older_clone_are_brought_by_name(tiny, tmp_path, layout, capsys):
    old = tiny_course(tmp_path / "old")
    generate(old)
    with_answers(old, double=DOUBLE)
    if layout == "work":
        copies.start(old)
    place = {
        "work": old.work,
        "exercises": old.root / "exercises",
        "clone": old.root,
        "file": old.exercise,
    }[layout]
    new_release(tiny)
    assert main(["start", "1", "--from", str(place)]) == 0
    assert DOUBLE in answers_in(tiny.copy)["double"] and "as a list" in tiny.copy.read_text()


def test_answers_saved_before_ids_were_names_are_merged_with_the_release_they_came_from(
    tiny, tmp_path
):
    """What a learner has today who put `exercises/` aside, pulled, and brings the answers in."""
    old = read(tiny.exercise)
    del old.metadata["course"]
    tiny.exercise.write_text(to_text(old))
    commit(tiny)
    aside = tmp_path / "my_answers" / "01_tiny.ipynb"
    aside.parent.mkdir()
    with_answers(tiny, double=DOUBLE)
    edit(tiny.exercise, "## Exercise 1.2: the biggest", "## Exercise 1.2: my heading")
    shutil.move(tiny.exercise, aside)
    new_release(tiny)
    assert main(["start", "--from", str(aside.parent)]) == 0
    text = tiny.copy.read_text()
    assert DOUBLE in answers_in(tiny.copy)["double"]
    assert "as a list" in text and "my heading" in text and "Kept by" not in text


def test_making_exercises_refuses_where_a_file_has_answers(tiny, capsys):
    with_answers(tiny, double=DOUBLE)
    old = tiny.exercise.read_bytes()
    edit(tiny.solution, "A tiny lesson", "A small lesson")
    assert main(["exercises"]) == 2
    said = capsys.readouterr().err
    assert "has work in it (double)" in said and "`course start 01` moves it" in said
    assert tiny.exercise.read_bytes() == old
    assert main(["start", "1"]) == 0 and main(["exercises"]) == 0


@pytest.mark.parametrize("committed", [False, True])
def test_the_gate_lets_a_solved_exercise_pass_and_gives_a_learner_no_authors_command(
    tiny, committed
):
    if not committed:
        commit(tiny)
    with_answers(tiny, double=DOUBLE)
    if committed:
        commit(tiny)
    assert gate.static_complaints(tiny) == []


def test_the_gate_lets_an_exercise_pass_that_was_only_run(tiny):
    commit(tiny)
    nb = read(tiny.exercise)
    nb.cells[1].outputs = [nbformat.v4.new_output("stream", text="4")]
    tiny.exercise.write_text(to_text(nb))
    assert gate.static_complaints(tiny) == []
    commit(tiny)
    assert "is not what its solution gives" in gate.static_complaints(tiny)[0]


def test_update_moves_answers_of_an_old_clone_too(tiny):
    with_answers(tiny, double=DOUBLE)
    assert main(["update"]) == 0
    assert DOUBLE in answers_in(tiny.copy)["double"]


def test_the_gate_tells_a_text_that_an_author_changed_by_hand(tiny):
    edit(tiny.exercise, "Return twice each number.", "Return it.")
    commit(tiny)
    assert "is not what its solution gives" in gate.static_complaints(tiny)[0]


# ---- the other commands use the copy


def test_check_marks_the_copy_and_keeps_it(copied, capsys):
    answer(copied, double=DOUBLE)
    assert main(["check", "1"]) == 1
    assert "2 of 5 points" in capsys.readouterr().out
    assert [version.why for version in history.versions(copied)] == ["check"]
    assert "2 of 5" in str(progress(copied.root))
    assert not (copied.root / "exercises" / "progress.json").exists()


@pytest.mark.parametrize("left", [b"", b'{"cells": [{"cell'], ids=["empty", "cut short"])
def test_what_lab_had_saved_comes_back_after_it_was_killed_while_saving(copied, left, capsys):
    """Lab copies a notebook to `.~NAME` and writes over it in place; `kill -9` in between leaves this."""
    history.keep_now(copied, "check")
    answer(copied, double=DOUBLE)  # saved, and never marked: no history has it
    saved = copied.copy.read_bytes()
    aside = copied.copy.with_name(f".~{copied.copy.name}")
    aside.write_bytes(saved)
    copied.copy.write_bytes(left)
    for words in (["check", "1"], ["update", "1"], ["progress"]):
        main(words)
        assert "what JupyterLab had saved before: `course undo 01`" in "".join(capsys.readouterr())
    assert main(["undo", "1"]) == 0 and copied.copy.read_bytes() == saved
    assert "before JupyterLab was ended while it saved" in capsys.readouterr().out
    assert not aside.exists()


def test_a_file_that_lab_left_is_not_taken_where_the_copy_is_whole(copied, capsys):
    answer(copied, double=DOUBLE)
    copied.copy.with_name(f".~{copied.copy.name}").write_bytes(copied.copy.read_bytes()[:-1])
    assert main(["undo", "1"]) == 2 and "nothing to undo" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (1, ""),
        (59, "as saved 59 seconds ago"),
        (185, "as saved 3 minutes ago"),
        (9_000, "as saved 2 hours ago"),
        (400_000, "as saved 4 days ago"),
    ],
)
def test_check_says_how_old_the_file_is_for_lab_may_hold_what_is_not_saved(
    copied, age, said, capsys
):
    moment = copied.copy.stat().st_mtime - age
    os.utime(copied.copy, (moment, moment))
    learner.note_when_saved(copied, copied.copy)
    told = capsys.readouterr().err
    assert (said in told and "Ctrl+S saves it" in told) if said else not told


def test_check_without_a_copy_says_what_to_type(tiny, capsys):
    assert main(["check", "1"]) == 2
    assert (
        "You have no copy of 01_tiny yet: `course start 01` makes work/01_tiny.ipynb"
        in capsys.readouterr().err
    )


def test_a_renamed_copy_is_found(copied):
    copied.copy.rename(copied.work / "my first lesson.ipynb")
    with pytest.raises(
        CourseError, match=r"work/my first lesson.ipynb is a notebook of this lesson"
    ):
        learners_files.learners_file(copied)


def test_every_command_finds_a_renamed_copy_and_none_begins_a_second_one(copied, capsys):
    answer(copied, double=DOUBLE)
    copied.copy.rename(copied.work / "my first lesson.ipynb")
    for words in (["check", "1"], ["update", "1"], ["progress"], ["start", "1"], ["start"]):
        main(words)
        said = " ".join("".join(capsys.readouterr()).split())
        assert "work/my first lesson.ipynb is a notebook of this lesson" in said, words
        assert "give it the name work/01_tiny.ipynb again" in said, words
    assert not copied.copy.exists()


def test_progress_says_where_a_deleted_copy_is(copied, capsys):
    history.keep_now(copied, "check")
    copied.copy.unlink()
    main(["progress"])
    assert "work/01_tiny.ipynb is gone: `course undo 01` brings back" in capsys.readouterr().out


def test_assemble_reads_the_copy_and_in_an_old_clone_the_exercise(tiny):
    with_answers(tiny, double=DOUBLE)
    sources = [cell.source for cell in notebook_of(tiny, tiny.work).cells]
    assert any(DOUBLE in source for source in sources)
    copies.start(tiny)
    answer(tiny, biggest=BIGGEST)
    sources = [cell.source for cell in notebook_of(tiny, tiny.work).cells]
    assert any(BIGGEST in source for source in sources)


# ---- progress.json


def test_progress_of_an_old_clone_is_read_and_written_to_work(copied):
    old = copied.root / "exercises" / "progress.json"
    old.write_text(
        json.dumps({"01_tiny": {"points": 3, "answers": "x"}, "start": {"lesson": "01_tiny"}})
    )
    assert remembered(copied.root) == Memory({"01_tiny": {"points": 3, "answers": "x"}}, "01_tiny")
    start_at(copied.root, copied)
    assert (
        json.loads((copied.work / "progress.json").read_text())["lessons"]["01_tiny"]["points"] == 3
    )


@pytest.mark.parametrize(
    "text, why",
    [
        ("{", "it cannot be read"),
        ("", "it cannot be read"),
        ("\xff", "it cannot be read"),
        ("[]", "another shape"),
        ("5", "another shape"),
        ('{"01_tiny": 5}', "another shape"),
        ('{"01_tiny": {"points": "3", "answers": "x"}}', "another shape"),
        ('{"01_tiny": {"points": 3}}', "another shape"),
        ('{"start": {"lesson": 5}}', "another shape"),
        ('{"version": 2, "lessons": []}', "another shape"),
        ('{"version": 3, "lessons": {}}', "a newer version of the course"),
    ],
)
@pytest.mark.parametrize("place", ["work", "exercises"])
def test_a_progress_file_that_is_not_understood_counts_as_none_with_a_word(
    copied, text, why, place
):
    path = copied.root / place / "progress.json"
    path.write_bytes(text.encode("latin-1"))
    said = str(progress(copied.root))
    assert f"{place}/progress.json counts as none" in said and why in said and "0 of 5" in said
    start_at(copied.root, copied)
    everything = [p.read_bytes() for p in copied.root.rglob("progress*.json")]
    assert text.encode("latin-1") in everything


def test_one_notebook_that_cannot_be_read_is_one_line_of_progress(copied):
    copied.copy.write_bytes(b"<<<<<<< HEAD\n")
    said = str(progress(copied.root))
    assert "cannot be read, see below" in said and "conflict" in said


def test_a_newer_exercise_is_told_by_progress(copied):
    answer(copied, double=DOUBLE)
    new_release(copied)
    assert "newer exercise: `course update 01`" in str(progress(copied.root))


def test_git_does_not_look_at_work():
    root = Path(__file__).parents[2]
    done = subprocess.run(
        ["git", "-C", str(root), "check-ignore", "-q", "work/01_eager_overhead.ipynb"]
    )
    assert done.returncode in (0, 128)  # 128: no repository
