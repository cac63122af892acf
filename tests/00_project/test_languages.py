"""The course in other languages: catalogs in step with the English, editions with the same code, labels at one place.

No notebook is run here. The outputs of an edition are those of the English one, which `make test-notebooks` runs and compares.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import nbformat
import pytest
import torch
from markdown_it import MarkdownIt

from course_lib.grading import edition, translation
from course_lib.grading.checks import CheckFailed, check_close, check_equal
from course_lib.grading.handed_out import as_copy, handed_out
from course_lib.grading.line_of_answer import line_of_the_answer
from course_lib.grading.notebooks import find_lesson, graded_cells
from course_lib.grading.progress import Progress, Standing
from course_lib.grading.translation import Part
from course_lib.grading.words_of_checks import words_of_checks, words_of_module
from course_lib.languages import (
    catalog,
    known,
    labels,
    messages,
    phrase,
    translate,
    translate_html,
    translate_message,
)
from course_lib.languages.catalog import Entry, Source
from course_lib.viz.kit.style import Picture
from course_lib.viz.widgets.predict import Predict

CHINESE = "zh_Hans"
CODE = re.compile(r"```.*?```|`[^`\n]+`", re.S)
LINK = re.compile(r'\]\(([^)\s]+)\)|(?:href|src)="([^"]+)"')


@pytest.fixture
def speaks_chinese(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")


def translated_entries(root: Path) -> list[tuple[str, Entry]]:
    """Every translation of prose, with the file and cell that it belongs to."""
    return [
        (f"{language}/{part.catalog}: {entry.name}", entry)
        for language in known()
        for part in translation.parts(root)
        if part.file(root, language).is_file()
        for entry in catalog.read(part.file(root, language))
        if entry.is_translated
    ]


# ---- in step with the English ---------------------------------------------------------------------------------------


def test_the_catalogs_know_every_english_text_of_today(root):
    assert not (told := translation.stale(root)), "\n".join(told)


@pytest.fixture
def small_course(tmp_path, monkeypatch):
    """A course of one lesson with two text cells, both translated into one language."""
    cells = [
        {
            "cell_type": "markdown",
            "id": "cell-00",
            "metadata": {},
            "source": "# A lesson about guards",
        },
        {
            "cell_type": "code",
            "id": "cell-01",
            "metadata": {},
            "source": "1 + 1",
            "outputs": [],
            "execution_count": 1,
        },
        {
            "cell_type": "markdown",
            "id": "cell-02",
            "metadata": {},
            "source": "A guard is a test of one assumption.",
        },
    ]
    write_lesson(tmp_path, cells)
    (tmp_path / translation.GLOSSARY).write_text(
        "# Glossary\n\n- **guard** (00): a test.\n", encoding="utf-8"
    )
    folder = tmp_path / translation.CATALOGS / CHINESE
    (folder / "notebooks").mkdir(parents=True)
    (part,) = (part for part in translation.parts(tmp_path) if part.english.suffix == ".ipynb")
    entries = [Entry(s.name, s.english, f"译：{s.english}") for s in part.sources(tmp_path)]
    about = translation._about(part, CHINESE)
    part.file(tmp_path, CHINESE).write_bytes(catalog.to_po(entries, CHINESE, about))
    marks = [Source("", text) for text in translation.NOTES_BELOW]
    empty = catalog.brought_up_to_date([], marks)
    (folder / "labels.po").write_bytes(
        catalog.to_po(empty, CHINESE, f"Labels of pictures and questions in {CHINESE}.")
    )
    monkeypatch.setattr(translation, "known", lambda: (CHINESE,))
    return tmp_path, part, cells


def write_lesson(root: Path, cells: list[dict]) -> None:
    path = root / "notebooks" / "00_small.ipynb"
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}),
        encoding="utf-8",
    )


def shown_cells(root: Path, part: Part) -> list[str]:
    return [cell.source for cell in edition.lesson(root, part, CHINESE).cells]


def test_a_heading_that_all_lessons_have_is_one_heading_in_chinese_too(root):
    """ "The real thing" is one part of every lesson, and a reader knows it by its name."""
    said: dict[str, set[str]] = {}
    for file in sorted((root / translation.CATALOGS / CHINESE / "notebooks").glob("*.po")):
        for entry in catalog.read(file):
            english, text = (
                re.findall(r"(?m)^## .+$", side) for side in (entry.english, entry.text)
            )
            for heading, translated in zip(english, text, strict=True):
                said.setdefault(heading, set()).add(translated)
    assert len(said["## The real thing"]) == 1
    assert {heading: texts for heading, texts in said.items() if len(texts) > 1} == {}


def test_a_cell_that_was_edited_is_told_and_shown_in_english_with_a_mark(small_course):
    root, part, cells = small_course
    assert not translation.stale(root)
    cells[2]["source"] = "A guard is a test of one assumption about a call."
    write_lesson(root, cells)

    (told,) = translation.stale(root)
    assert (
        "00_small.ipynb, cell-02: its English has changed" in told
        and "Run `course translate`" in told
    )
    translation.keep_in_step(root)
    assert not translation.stale(root)
    entry = catalog.read(part.file(root, CHINESE))[1]
    assert entry.stale and entry.before == "A guard is a test of one assumption."
    first, code, edited = shown_cells(root, part)
    assert first.startswith("译：") and code == "1 + 1"
    assert (
        edited.startswith("A guard is a test of one assumption about a call.")
        and "<small>" in edited
    )


def test_an_edit_that_is_taken_back_gives_the_translation_back(small_course):
    root, part, cells = small_course
    before = part.file(root, CHINESE).read_bytes()
    english, cells[2]["source"] = cells[2]["source"], "A guard is a test of some assumption."
    write_lesson(root, cells)
    translation.keep_in_step(root)
    assert part.file(root, CHINESE).read_bytes() != before
    cells[2]["source"] = english
    write_lesson(root, cells)
    translation.keep_in_step(root)
    assert part.file(root, CHINESE).read_bytes() == before


def test_a_cell_that_moved_keeps_its_translation_and_a_new_one_is_told(small_course):
    root, part, cells = small_course
    new = {
        "cell_type": "markdown",
        "id": "cell-00",
        "metadata": {},
        "source": "Wholly different words stand here.",
    }
    moved = [new, *({**cell, "id": f"cell-{i:02d}"} for i, cell in enumerate(cells, 1))]
    write_lesson(root, moved)
    (told,) = translation.stale(root)
    assert "cell-00: is new" in told
    translation.keep_in_step(root)
    sources = shown_cells(root, part)
    assert len(sources) == 4 and sources[0].startswith("Wholly") and "<small>" in sources[0]
    assert sources[1].startswith("译：") and sources[3].startswith("译：")


def test_catalogs_read_back_as_they_were_written(tmp_path):
    entries = [
        Entry("cell-00", 'A "quoted" \\n text,\nwith\ttabs and\n\nan empty line', "译文\n第二行"),
        Entry("cell-01", "no translation"),
        Entry("cell-02", "new text", "旧译文", stale=True, before='old "text"\nin \\two lines'),
        Entry("cell-03", "new text", "旧译文", stale=True, before="a long  line " * 20 + "\n  end"),
    ]
    path = tmp_path / "one.po"
    path.write_bytes(catalog.to_po(entries, CHINESE, "A test."))
    assert catalog.read(path) == entries


# ---- editions -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chinese(root):
    """Lesson → its Chinese edition and the English original."""
    return {
        part.english.name: (
            edition.lesson(root, part, CHINESE),
            json.loads((root / part.english).read_text()),
        )
        for part in edition.lessons(root)
        if part.file(root, CHINESE).is_file()
    }


@pytest.fixture(scope="module")
def root():
    return Path(__file__).parents[2]


def test_an_edition_has_the_same_cells_code_and_outputs(chinese):
    for name, (ours, english) in chinese.items():
        assert len(ours.cells) == len(english["cells"]), name
        for cell, original in zip(ours.cells, english["cells"]):
            assert cell.id == original["id"] and cell.cell_type == original["cell_type"], name
            if cell.cell_type == "code":
                assert cell.source == "".join(original["source"]), (name, cell.id)
                assert plain_outputs(cell) == plain_outputs(original), (name, cell.id)


def plain_outputs(cell) -> list:
    """What a cell printed and the plain form of its pictures: no label is translated in them."""
    return [
        "".join(output.get("text", "")) + "".join(output.get("data", {}).get("text/plain", ""))
        for output in cell["outputs"]
    ]


def test_the_links_of_an_edition_lead_somewhere_from_its_own_folder(root, chinese):
    names = {part.english.name for part in edition.lessons(root)}
    for lesson, (ours, _) in chinese.items():
        for cell in ours.cells:
            if cell.cell_type == "markdown":
                for target in links(cell.source):
                    path = target.split("#")[0]
                    is_copy = path.startswith(
                        "../../work/"
                    )  # a learner's own, which `course start` makes
                    there = path in names or (root / "notebooks/zh" / path).resolve().exists()
                    assert is_copy or there or ":" in path, (lesson, cell.id, target)


def links(text: str) -> list[str]:
    return [one or other for one, other in LINK.findall(CODE.sub("", text))]


def test_pictures_speak_the_language_of_the_edition(chinese):
    ours, _ = chinese["00_start_here.ipynb"]
    shown = "".join(
        "".join(output.get("data", {}).get("text/html", ""))
        for cell in ours.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )
    assert "前半段：从 Python 帧到图" in shown and "FRONT HALF" not in re.sub(
        r"<pre.*?</pre>", "", shown, flags=re.S
    )
    assert 'aria-label="从 Python 帧到内核' in shown or 'aria-label="流水线依次为' in shown


def test_a_lesson_without_a_catalog_is_there_in_english_with_a_mark_below_each_text(root):
    part = next(part for part in edition.lessons(root) if part.english.name.startswith("15_"))
    nb = edition.lesson(root, part, "de")
    texts = [cell.source for cell in nb.cells if cell.cell_type == "markdown"]
    assert texts and all("noch nicht übersetzt" in text for text in texts)


def test_another_language_is_one_folder_of_catalogs(root):
    """German is a stub: two texts of one lesson, and the marks."""
    part = edition.lessons(root)[0]
    cells = edition.lesson(root, part, "de").cells
    assert cells[0].source == "# 00 · Hier geht es los"
    assert cells[1].source.startswith("## Promise") and "noch nicht übersetzt" in cells[1].source


def test_the_glossary_in_chinese_is_what_the_catalog_gives(root):
    stored = edition.glossary_file(root, CHINESE).read_text(encoding="utf-8")
    assert stored == edition.glossary(root, CHINESE), (
        "run `course translate` and commit notebooks/glossary.zh.md"
    )
    assert stored.count("\n- **") == (root / translation.GLOSSARY).read_text(
        encoding="utf-8"
    ).count("\n- **")


def test_the_chinese_first_page_lists_the_same_lessons_with_the_same_minutes(root):
    rows = [
        re.findall(
            r"(?m)^\| \*\*(\d\d) .+?\*\* \| ([\d +]+) \|", (root / page).read_text(encoding="utf-8")
        )
        for page in ("README.md", "README.zh.md")
    ]
    assert len(rows[0]) == 17 and rows[0] == rows[1]


# ---- translations ---------------------------------------------------------------------------------------------------


def test_a_translation_keeps_links_headings_and_blocks_of_code(root):
    for where, entry in translated_entries(root):
        assert sorted(links(entry.english)) == sorted(links(entry.text)), where
        for mark in (r"(?m)^#+ ", r"(?m)^\|", r"```", r"</?details>"):
            assert len(re.findall(mark, entry.english)) == len(re.findall(mark, entry.text)), (
                where,
                mark,
            )


def test_bold_text_in_a_translation_is_bold(root):
    """`**图断裂。**后面` is not, by the rules of Markdown: a mark behind punctuation closes nothing in front of a letter."""
    to_html = MarkdownIt("commonmark").render
    for where, entry in translated_entries(root):
        html = re.sub(r"<(code|pre)\b.*?</\1>", "", to_html(entry.text), flags=re.S)
        assert "**" not in html, (where, re.findall(r".{0,20}\*\*.{0,20}", html))


def test_no_line_ends_inside_a_chinese_sentence(root):
    """A browser shows the end of a line as a space, and Chinese has none between its characters."""
    seam = re.compile(r"[\u3001-\u303f\u4e00-\u9fff\uff00-\uffef]\n *[\u4e00-\u9fff]")
    for where, entry in translated_entries(root):
        if where.startswith(CHINESE):
            found = seam.search(re.sub(r"(?m)^#.*\n|```[^`]*```", "", entry.text))
            assert not found, (where, found)


# ---- labels ---------------------------------------------------------------------------------------------------------


def test_a_label_is_found_by_its_words_whatever_its_numbers(monkeypatch):
    one = {"{1} nodes become {2} kernels": "{2} 个内核来自 {1} 个节点", "other numbers": "换了数"}
    monkeypatch.setattr("course_lib.languages.labels.labels", lambda language: one)
    assert translate("16 nodes become 5 kernels", CHINESE) == "5 个内核来自 16 个节点"
    assert translate("b) other numbers", CHINESE) == "b) 换了数"
    assert translate("nobody knows this", CHINESE) == "nobody knows this"
    assert translate("16 nodes become 5 kernels") == "16 nodes become 5 kernels"


@pytest.mark.parametrize(
    ("markup", "wanted"),
    [
        ("<p>other numbers</p>", "<p>换了数</p>"),
        (
            "<text x='1'><title>other numbers</title>other numbers</text>",
            "<text x='1'><title>换了数</title>换了数</text>",
        ),
        ('<svg aria-label="other numbers"></svg>', '<svg aria-label="换了数"></svg>'),
        ("<li>a) <code>f(x)</code>: other</li>", "<li>a) <code>f(x)</code>：别的</li>"),
        ("<pre>other numbers</pre>", "<pre>other numbers</pre>"),
        ("<style>other numbers</style>", "<style>other numbers</style>"),
        ("<p>a &lt; b</p>", "<p>a &gt; b</p>"),
        ("<p>unknown &amp; <b>other numbers</b></p>", "<p>unknown &amp; <b>换了数</b></p>"),
    ],
)
def test_labels_in_html(monkeypatch, markup, wanted):
    known_labels = {"other numbers": "换了数", "`f(x)`: other": "`f(x)`：别的", "a < b": "a > b"}
    monkeypatch.setattr("course_lib.languages.labels.labels", lambda language: known_labels)
    assert translate_html(markup, CHINESE) == wanted
    assert translate_html(markup) == markup  # no language was chosen


def test_pictures_and_questions_are_drawn_in_the_chosen_language(speaks_chinese):
    picture = Picture(
        "<svg><text>library call</text></svg>", "the answer", "the answer", "library call"
    )
    assert "库调用</text>" in picture.html and "<figcaption>答案" in picture.html
    assert picture.text == "library call"  # terminals and nbval: one text in all editions
    question = Predict("How often is it compiled?", ["once", "twice"], 0, because="…")
    assert "<li>a) 一次</li>" in question.picture.html


def test_every_label_can_be_filled_in():
    for language in known():
        for english, text in labels.labels(language).items():
            holes = set(re.findall(r"\{\d+\}", english))
            assert set(re.findall(r"\{\d+\}", text)) <= holes, (language, english)


def test_without_a_choice_nothing_is_read(monkeypatch):
    monkeypatch.delenv("COURSE_LANGUAGE", raising=False)
    monkeypatch.setattr(
        "course_lib.languages.labels.labels", lambda language: pytest.fail("a catalog was read")
    )
    assert translate("library call") == "library call"
    assert translate_html("<p>library call</p>") == "<p>library call</p>"


def test_a_notebook_of_an_edition_speaks_its_language_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_LANGUAGE", raising=False)
    (tmp_path / "notebooks" / "zh").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "notebooks" / "zh")
    assert translate("library call") == "库调用"
    monkeypatch.setenv("COURSE_LANGUAGE", "en")
    assert translate("library call") == "library call"


def test_a_language_that_is_not_there_is_said_in_one_sentence(monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "tlh")
    with pytest.raises(
        ValueError,
        match=r"'tlh', and the course has no such language\. Choose one of: en, de, zh_Hans",
    ):
        translate("library call")


# ---- what checks and commands say -----------------------------------------------------------------------------------


def test_all_that_checks_and_commands_say_is_translated(root):
    entries = catalog.read(root / translation.CATALOGS / CHINESE / messages.FILE)
    assert [entry.english for entry in entries] == translation.words_said(root)
    missing = [entry.english for entry in entries if not entry.is_translated]
    assert not missing, f"translate these in {messages.FILE}: {missing}"


def test_a_translated_sentence_holds_the_values_of_the_english_one():
    for language in known():
        for english, text in messages.sentences(language).items():
            holes = sorted(set(messages.VALUE.findall(english)))
            assert sorted(set(messages.VALUE.findall(text))) == holes, (language, english)


@pytest.mark.parametrize(
    ("code", "wanted"),
    [
        ('check(x, "what it is", "why")', ["what it is", "why"]),
        ('check(x, "a size", "", "two or more", n)', ["a size", "two or more"]),
        ('check_equal(3, "an answer", f"the graphs of {f.name}")', ["the graphs of {A}"]),
        ('check_equal(3, 2, f"{a} and {b} of {a}")', ["{A} and {B} of {A}"]),
        ('check_close(3, 2, what="the sum", why="one or " + two)', ["the sum", "one or {A}"]),
        ('check_runs(f, "it runs", hints={KeyError: "no such key"})', ["it runs", "no such key"]),
        ('check_graphs(3, 2, "the graphs", yes if z else "many of them")', ["the graphs", "many of them"]),
        ('why = "a reason"\ncheck(x, "a thing", why)', ["a thing", "a reason"]),
        ('for n, why in [(1, "a reason")]:\n  check(x, "a thing", why)', ["a thing", "a reason"]),
        (
            'for case, f in {"two rows": g}.items():\n  check_equal(f(), 3, f"{case}: the sum")',
            ["{A}: the sum", "two rows"],
        ),
        (
            'def right(x, what="the row"):\n  check(x, f"m of {what}")\nright(y, "a long row")',
            ["a long row", "m of {A}", "the row"],
        ),
        ('check(x, "x.exp() + 1", "softmax_backward")', []),
        ('!course check 1\ncheck(x, "a thing")', ["a thing"]),
    ],
)  # fmt: skip
def test_what_a_check_says_is_read_from_its_code(code, wanted):
    cell = {"cell_type": "code", "source": code}
    assert words_of_checks(json.dumps({"cells": [cell]})) == wanted


def test_what_a_command_says_is_read_from_its_code():
    source = 'WORDS = {"a": "one way"}\nsay(phrase("{n} of {all}", n=1), phrase(WORDS[key]))'
    assert words_of_module(source) == ["{n} of {all}", "one way"]


@pytest.fixture
def two_sentences(monkeypatch, speaks_chinese):
    """A catalog with a few sentences, in place of the course's own."""
    known_sentences = {
        "{A} of {B}": "{B} 的 {A}",
        "the gradient of {A}": "{A} 的梯度",
        "two rows": "两行",
        "{n} of {all} points": "{n}/{all} 分",
    }
    messages._patterns.cache_clear()
    monkeypatch.setattr(messages, "sentences", lambda language: known_sentences)
    yield
    messages._patterns.cache_clear()


def test_a_message_is_found_by_its_words_and_keeps_its_values(two_sentences):
    assert translate_message("the gradient of x") == "x 的梯度"
    assert translate_message("the gradient of two rows") == "两行 的梯度"
    assert translate_message("the shape of (2, 3)") == "(2, 3) 的 the shape"
    assert translate_message("nobody knows this") == "nobody knows this"


def test_a_sentence_of_a_command_is_filled_in(two_sentences, monkeypatch):
    assert phrase("{n} of {all} points", n=3, all="14") == "3/14 分"
    monkeypatch.setenv("COURSE_LANGUAGE", "en")
    assert phrase("{n} of {all} points", n=3, all="14") == "3 of 14 points"


def test_a_sentence_of_a_command_is_no_pattern_for_the_message_of_a_check(speaks_chinese):
    assert translate_message("nobody knows 3 of these") == "nobody knows 3 of these"


def test_what_torch_says_of_a_difference_is_translated(speaks_chinese):
    """And is torch's own line in English: a new wording of torch would pass untranslated."""
    for got, wanted in ((1.0, 2.0), (torch.ones(2), torch.zeros(2))):
        with pytest.raises(CheckFailed) as failed:
            check_close(got, wanted, "the sum")
        assert "difference" not in str(failed.value) and str(failed.value).count("允许") == 2


def test_the_line_of_the_answer_is_found_in_a_message_in_chinese(speaks_chinese):
    with pytest.raises(CheckFailed) as failed:
        check_equal(None, 2, "f(3)")
    cell = as_cell("def f(x):\n    print(x)")
    assert "`print`" in line_of_the_answer(str(failed.value), [cell])
    assert "\n行:" in line_of_the_answer(str(failed.value), [cell])


def as_cell(source: str):
    return nbformat.v4.new_code_cell(source)


def test_each_sentence_of_a_command_gets_its_values(root):
    """`phrase("{n} points", n=3)`: as many values as holes, and of the same names."""
    for path in (root / "course_lib" / "grading").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "phrase":
                continue
            if isinstance(node.args[0], ast.Constant):
                holes = set(messages.VALUE.findall(node.args[0].value))
                given = {keyword.arg for keyword in node.keywords}
                assert holes == given, (path.name, node.lineno)


def test_progress_speaks_the_language(speaks_chinese):
    text = str(Progress((Standing("01_eager_overhead", "begun", 2, 14),)))
    assert "已开始：`course check 01`" in text and "2/14 分" in text
    assert "接下来：notebooks/zh/01_eager_overhead.ipynb" in text


def test_a_copy_says_in_which_language_it_was_made(root, tmp_path, monkeypatch):
    """The kernel that runs it, and `course check`, speak that language without being told."""
    lesson = find_lesson(root, "1")
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")
    chinese_copy, path = as_copy(handed_out(lesson)), tmp_path / "01_eager_overhead.ipynb"
    path.write_text(json.dumps(chinese_copy), encoding="utf-8")
    monkeypatch.delenv("COURSE_LANGUAGE")
    assert "language" not in as_copy(handed_out(lesson)).metadata["course"]

    assert translate("library call") == "library call"
    monkeypatch.setenv("JPY_SESSION_NAME", str(path))
    assert translate("library call") == "库调用"
    monkeypatch.setenv("COURSE_LANGUAGE", "en")
    assert translate("library call") == "library call"


# ---- exercises and checks -------------------------------------------------------------------------------------------


def test_a_check_speaks_the_language_and_gives_the_same_verdict(speaks_chinese):
    check_equal(2, 2, "what was asked")
    with pytest.raises(CheckFailed) as failed:
        check_equal(3, 2, "what was asked", "why it matters")
    assert "检查内容" in str(failed.value) and "期望" in str(failed.value)


def test_a_learners_copy_is_in_the_chosen_language_and_is_marked_alike(root, speaks_chinese):
    lesson = find_lesson(root, "1")
    english, ours = handed_out(lesson), as_copy(handed_out(lesson))
    assert [cell.id for cell in ours.cells] == [cell.id for cell in english.cells]
    assert graded_cells(ours) and [c.source for c in graded_cells(ours)] == [
        c.source for c in graded_cells(english)
    ]
    part = next(
        p for p in translation.parts(root) if p.catalog == Path("exercises", f"{lesson.name}.po")
    )
    if part.file(root, CHINESE).is_file():
        assert re.search("[\u4e00-\u9fff]", ours.cells[0].source)
