"""`make site`: what it collects, and that every link between its pages leads somewhere. (Sphinx is not needed here.)"""

from __future__ import annotations

import ast
import json
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[2]
BUILD = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/site/build.py")))
CONF = SimpleNamespace(**runpy.run_path(str(ROOT / "docs/site/conf.py")))
LINK = re.compile(r"(?<!`)\]\((?!https?:|#|mailto:)([^)\s#]+)")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "source"
    BUILD.collect(ROOT, folder)
    return folder


def prose(page: Path) -> str:
    """The text of a page without code, in which `kernel[(n,)](x, out)` is no link."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        text = "\n".join(
            "".join(cell["source"])
            for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "markdown"
        )
    return re.sub(r"(?ms)^```.*?^```|`[^`\n]*`", "", text)


def test_every_lesson_exercise_and_document_is_on_the_front_page_once(source):
    front = (source / "index.md").read_text(encoding="utf-8")
    for path in (
        *ROOT.glob("notebooks/*.ipynb"),
        *ROOT.glob("exercises/*/*.ipynb"),
        *ROOT.glob("docs/**/*.md"),
        *ROOT.glob("*.md"),
    ):
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        if not name.startswith("docs/site/"):
            assert len(re.findall(rf"(?m)^{re.escape(name)}$", front)) == 1, name
    assert not re.search(r"(?m)^[A-Z]{4,}$(?<!README)(?<!CONTRIBUTING)(?<!AGENTS)", front), (
        "a placeholder was not filled in"
    )


def test_every_link_between_pages_leads_to_a_page(source):
    dead = [
        f"{page.relative_to(source)}: {link}"
        for page in (*source.rglob("*.md"), *source.rglob("*.ipynb"))
        for link in LINK.findall(prose(page))
        if not (page.parent / link).resolve().exists()
    ]
    assert dead == []


def test_every_module_is_in_the_reference(source):
    told = {
        name
        for page in source.glob("reference/*.md")
        for name in re.findall(r"automodule:: (\S+)", page.read_text())
    }
    there = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in ROOT.glob("course_lib/**/*.py")
    }
    assert there - told == set(BUILD.NO_PAGE)


def test_every_term_of_the_glossary_is_a_term_of_the_site():
    glossary = (ROOT / "notebooks/glossary.md").read_text(encoding="utf-8")
    made = BUILD.with_terms(glossary)
    terms = re.findall(r"(?m)^- \*\*(.+?)\*\*", glossary)
    assert len(terms) > 100
    assert {
        term.lower() for term in re.findall(r"(?m)^(\S.*)\n  \S", made.split("::::{glossary}")[1])
    } == {term.lower() for term in terms}


def test_a_term_that_two_lessons_define_stands_once_with_both_definitions():
    made = BUILD.with_terms(
        "# Glossary\n\n- **tile** (09): a block.\n- **Tile** (11): what is tuned.\n"
    )
    assert made.endswith("::::{glossary}\ntile\n  (09) a block. (11) what is tuned.\n::::\n")


def test_a_widget_is_shown_by_its_static_form_and_a_questions_answer_is_folded():
    widget = {
        "output_type": "display_data",
        "data": {BUILD.WIDGET: {}, "text/html": "<p>static</p>"},
    }
    cells = [
        {
            "cell_type": "code",
            "source": ["q = viz.Predict(answer=1)"],
            "metadata": {},
            "outputs": [widget],
        }
    ]
    (cell,) = BUILD.shown({"cells": cells})["cells"]
    assert list(cell["outputs"][0]["data"]) == ["text/html"] and cell["metadata"]["tags"] == [
        "hide-input"
    ]


def test_nothing_is_run_and_nothing_comes_from_a_network():
    assert CONF.nb_execution_mode == "off" and CONF.nb_ipywidgets_js == {}
    assert not re.search(
        r"(?:src|href|url)\W{1,3}https?://",
        (ROOT / "docs/site/static/site.css").read_text()
        + (ROOT / "docs/site/explorer.md").read_text(),
    )


@pytest.mark.parametrize(
    "docstring, made",
    [
        ("In:  a `Graph`\n     of it. Out: more.", ["**In:** a ``Graph`` of it. Out: more.", ""]),
        (
            "Takes *args and my_name_ as they are.",
            [r"Takes \*args and my\_name\_ as they are.", ""],
        ),
        ("Two:\n- one `a`s\n- two", ["Two:", "", r"- one ``a``\ s", "", "- two", ""]),
        ("A *word* that counts.", ["A *word* that counts.", ""]),
        ("A number, ` 2 `.", ["A number, ``2``.", ""]),
        (
            "Like this:\n\n    x = 1\n    y = *x",
            ["Like this:", "", "::", "", "        x = 1", "        y = *x", ""],
        ),
    ],
)
def test_docstrings_become_what_sphinx_reads(docstring, made):
    lines = docstring.split("\n")
    CONF.readable(None, "function", "f", None, None, lines)
    assert lines == made


def test_the_text_of_an_object_without_a_module_is_read_and_nothing_is_said_for_torch():
    made_in_c = SimpleNamespace(__module__=None)
    lines = ["A `name`."]
    CONF.readable(None, "data", "x", made_in_c, None, lines)
    assert lines == ["A ``name``.", ""]
    assert CONF.autodoc_inherit_docstrings is False


def docstrings() -> dict[str, str]:
    """`file:line` → the docstring of each module, class and function of the library."""
    found = {}
    for path in sorted((ROOT / "course_lib").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node)
                if text:
                    found[f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}"] = text
    return found


@pytest.mark.slow
def test_sphinx_reads_every_docstring_without_a_complaint():
    """`make site` ends at the first complaint, and CI does not run it."""
    rst = pytest.importorskip("docutils.parsers.rst")
    from docutils import frontend, utils

    settings = frontend.get_default_settings(rst.Parser)
    settings.report_level = settings.halt_level = 5
    complaints = []
    for place, text in docstrings().items():
        lines = text.split("\n")
        CONF.readable(None, "function", "f", None, None, lines)
        document = utils.new_document(place, settings)
        rst.Parser().parse("\n".join(lines), document)
        told = document.parse_messages + document.transform_messages
        told += document.findall(lambda node: node.tagname == "system_message")
        complaints += [f"{place}: {message.astext()}" for message in told]
    assert complaints == []


@pytest.mark.parametrize(
    "text, left_out",
    [
        ("= 120", False),
        ("= ('cpp', 'triton')", False),
        # a type, however long
        (": dict[str, Callable[[int], str]] | None | tuple[str, ...] | frozenset[str]", False),
        ("= <function f at 0x7f12>", True),
        ("= '/home/ada/course/x.json'", True),
        ("= {" + "'add': 'a + b', " * 9 + "}", True),
    ],
)
def test_a_constants_value_is_shown_only_where_it_is_short_and_no_matter_of_the_machine(
    text, left_out
):
    assert CONF.is_long_value(text) == left_out
