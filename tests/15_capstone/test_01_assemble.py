"""The learner's stages in one compiler: which are let in, why others are not, and that it computes what eager computes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from tiny_course import edit

from course_lib import config
from course_lib.bench.models import GPT, GPTBlock
from course_lib.frames import installed
from course_lib.grading import capstone, cli, differences, runner
from course_lib.grading.answers import fresh, load
from course_lib.grading.marks import Report
from course_lib.grading.notebooks import CourseError, find_lesson, to_text
from course_lib.grading.parts import PARTS
from course_lib.grading.progress import progress, remember, start_at

pytestmark = [
    pytest.mark.skipif(not installed(), reason="compiling needs the frame hook"),
    pytest.mark.skipif(config.find_cxx() is None, reason="compiling needs a C++ compiler"),
]

NAMES = [part.name for part in PARTS]


@pytest.fixture
def course(root, tmp_path, monkeypatch) -> Path:
    """A course of this learner's own: the real solutions, and one exercise that nobody has touched."""
    (tmp_path / "solutions").symlink_to(root / "solutions")
    handed_out(tmp_path, "08")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def handed_out(course: Path, number: str) -> Path:
    """The untouched exercise of a lesson, in the learner's folder."""
    lesson = find_lesson(course, number)
    lesson.exercise.parent.mkdir(parents=True, exist_ok=True)
    lesson.exercise.write_text(to_text(fresh(lesson)), encoding="utf-8")
    return lesson.exercise


def solved(course: Path, number: str) -> Path:
    """The exercise of a lesson with the reference answers in it."""
    lesson = find_lesson(course, number)
    lesson.exercise.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(lesson.solution, lesson.exercise)
    return lesson.exercise


def why(assembly, name: str) -> str:
    return next(verdict.why for verdict in assembly.verdicts if verdict.part.name == name)


def as_eager(assembly) -> None:
    block, x = GPTBlock(16, 2, 8), torch.randn(2, 8, 16)
    assert differences.worst(block, assembly.compile(block, fullgraph=True), (x,)) < 1e-4


# ---- nothing, everything, and the middle ------------------------------------------------------------------------------


def test_with_nothing_solved_every_part_is_ours_and_says_so(course):
    mine = capstone.assemble()
    assert [verdict.owner for verdict in mine.verdicts] == ["ours"] * len(PARTS)
    assert (
        why(mine, "fuse_all")
        == "not solved yet: NotImplementedError in fuse_all, makes_a_circle, traffic"
    )
    # no notebook at all
    assert why(mine, "my_lower") == "not solved yet: NotImplementedError in my_lower"
    as_eager(mine)


def test_what_is_given_stands_in_for_lessons_before_the_start(course):
    mine = capstone.assemble(given="08")
    owners = {verdict.part.name: verdict.owner for verdict in mine.verdicts}
    assert {name for name in NAMES if owners[name] == "given"} == {
        part.name for part in PARTS if part.lesson < "08"
    }
    assert owners["legal"] == "ours"
    as_eager(mine)


def test_a_compiler_of_twelve_parts_trains_a_gpt_as_eager_does(course):
    whole, net = capstone.assemble(given=15), GPT(12, 1, 16, 2, 8)
    tokens = torch.randint(0, 12, (3, 8))
    fast = whole.compile(net, fullgraph=True)
    for _ in range(2):
        assert differences.worst(net, fast, (tokens, tokens.roll(-1, 1))) < 1e-4
        tokens = torch.randint(0, 12, (3, 8))
    served = {name for name, counts in whole.uses.items() if counts["yours"]}
    assert served >= {
        "make_check",
        "what_to_keep",
        "frugal",
        "my_lower",
        "legal",
        "my_plan",
        "kernel_source",
    }
    assert "aten._to_copy" in str(whole)  # why `derivative` did not serve


@pytest.mark.slow
def test_the_reference_answers_all_pass_their_trials(root):
    whole = capstone.assemble(root / "solutions")
    assert [(v.part.name, v.owner, v.why) for v in whole.verdicts] == [
        (name, "yours", "") for name in NAMES
    ]
    as_eager(whole)


# ---- the learner's own, good and bad ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_right_answer_is_let_in_and_the_checks_in_the_learners_copy_do_not_matter(course):
    path = solved(course, "08")
    edit(
        path,
        "check_equal(traffic([mul], [mul], set(), sizes), 100",
        'raise SystemExit("not run"); print((',
    )
    mine = capstone.assemble()
    assert {v.part.name for v in mine.verdicts if v.owner == "yours"} == {
        "legal",
        "fuse_all",
        "my_plan",
    }
    as_eager(mine)


@pytest.mark.slow
def test_wrong_endless_and_crashing_answers_stay_outside_each_with_its_reason(course):
    path = solved(course, "08")
    edit(path, "free.remove(fits)\n", "pass\n")  # storage that is given away twice
    edit(path, "    kernels = [[work] for work in program]\n", "    while True: pass\n")
    edit(path, "    index, rindex = second.symbols\n", "    import os; os.abort()\n")
    mine = capstone.assemble(limits=runner.Limits(cell_seconds=45))
    assert not mine.mine
    assert "it ran longer than 45 seconds" in why(mine, "fuse_all").lower()
    assert "crashed" in why(mine, "legal")
    assert "differs from eager" in why(mine, "my_plan")


@pytest.mark.slow
def test_an_answer_half_written_says_what_is_missing(course):
    path = solved(course, "06")
    edit(
        path,
        "product = grad * output",
        "raise NotImplementedError('Exercise: write this part, then run the cell again.')",
    )
    edit(path, "    if node.target in EXPENSIVE:\n", "    if nodes_that_are_not_there:\n")
    mine = capstone.assemble()
    assert why(mine, "softmax, layer_norm").startswith("not solved yet: NotImplementedError")
    assert "nodes_that_are_not_there" in why(mine, "frugal")
    assert "what_to_keep" in [part.name for part in mine.mine]


def test_a_cell_that_raises_costs_its_own_names_only(course):
    path = solved(course, "08")
    edit(path, "def legal(first, second):", "1 / 0\ndef legal(first, second):")
    answers = load(find_lesson(course, "08"), course / "exercises")
    assert list(answers.failed) == ["legal"] and "ZeroDivisionError" in answers.failed["legal"]
    assert "my_plan" in answers.names and "legal" not in answers.names


def test_a_folder_without_notebooks_is_told(course, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(CourseError, match="no exercise notebooks"):
        capstone.assemble(tmp_path / "empty")


# ---- finding what is wrong --------------------------------------------------------------------------------------------


@pytest.fixture
def whole(course):
    return capstone.assemble(given=15)


def test_a_part_that_cannot_is_replaced_for_that_graph_and_told(whole):
    def cannot(gm):
        raise KeyError("aten.erfinv")

    broken = whole.exchange("my_lower", my_lower=cannot)
    as_eager(broken)
    assert "ours: KeyError: aten.erfinv" in str(broken)
    assert whole.uses.get("my_lower") is None  # the other assembly is another


def test_the_part_to_blame_is_found(whole):
    wrong = lambda x, dim, half_to_float: x * 0 + 1 / x.shape[dim]  # NaN where a score is -inf
    block, x = GPTBlock(16, 2, 8).eval(), torch.randn(2, 8, 16)
    with torch.no_grad():
        found = whole.exchange("softmax, layer_norm", softmax=wrong).suspects(block, x)
    assert {name for name, different in found.items() if different > 1e-4} == {
        "softmax, layer_norm",
        "all",
    }


def test_guard_checks_and_resume_functions_are_exchanged_only_while_it_compiles(whole):
    from course_lib import compiler
    from course_lib.frames import resume

    before, used = (compiler.Check, resume.make_resume), []

    def check_of(guards, parameters):
        used.append(parameters)
        return lambda function, *args: True

    def doubled(x):
        return x * 2

    called = whole.exchange("make_check", make_check=check_of).compile(doubled)
    assert torch.equal(called(torch.ones(2)), torch.full((2,), 2.0))
    assert used == [("x",)] and (compiler.Check, resume.make_resume) == before


def test_parts_that_are_not_there_are_told(whole):
    with pytest.raises(LookupError, match="'my_fuse' is not among your parts"):
        whole.only("my_fuse")


# ---- what one sees ----------------------------------------------------------------------------------------------------


def test_the_map_and_the_page_say_whose_each_part_is(course, tmp_path):
    mine = capstone.assemble(given="04")
    assert "▫ make_resume" in mine.map.text and "· make_check" in mine.map.text
    page = mine.save(tmp_path / "mine.html", "Ada & Co", {"largest difference": "1e-07"}).read_text(
        encoding="utf-8"
    )
    assert "The compiler of Ada &amp; Co" in page and "1e-07" in page and "make_resume" in page
    assert "08_fusion_and_scheduling" in page and "0 of 17" in page
    assert "<script src" not in page and "<link" not in page and "@import" not in page


def test_course_join_remembers_where_one_begins(course, capsys):
    assert cli.main(["join", "7"]) == 0
    assert "given: you start later" in capsys.readouterr().out
    standing = {s.name[:2]: s for s in progress(course).lessons}
    assert (
        standing["06"].done and not standing["07"].done and progress(course).next == standing["07"]
    )
    assert {part.lesson for part in capstone.assemble().mine} == {
        part.lesson for part in PARTS if part.lesson < "07"
    }
    assert {part.lesson for part in capstone.assemble(given=0).mine} == set()


def test_course_assemble_prints_the_table(course, capsys):
    assert cli.main(["assemble", "--page", "mine.html"]) == 0
    said = capsys.readouterr().out
    assert "not solved yet: NotImplementedError in my_plan" in said and Path("mine.html").is_file()


def test_what_lies_before_the_start_is_given_also_where_it_was_checked_or_begun(course):
    untouched, begun = find_lesson(course, "03"), find_lesson(course, "04")
    handed_out(course, "03")
    remember(untouched, Report("03", ()))  # looked at with `course check 3`, and nothing written
    edit(handed_out(course, "04"), "raise NotImplementedError", "return 1  #")
    start_at(course, find_lesson(course, "07"))
    standing = {s.name[:2]: s for s in progress(course).lessons}
    assert (
        standing["03"].state == "given"
        and standing["04"].state == "begun"
        and begun.exercise.is_file()
    )
    assert progress(course).next == standing["07"]


@pytest.mark.slow
def test_for_an_answer_that_fails_ours_is_given_with_the_reason(course):
    edit(solved(course, "08"), "free.remove(fits)\n", "pass\n")
    mine = capstone.assemble(given="09")
    owners = {verdict.part.name: verdict.owner for verdict in mine.verdicts}
    assert owners["my_plan"] == "given" and owners["legal"] == "yours"
    assert (
        why(mine, "my_plan").startswith("yours: it does not work yet")
        and why(mine, "my_lower") == ""
    )
