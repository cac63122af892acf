"""A widget's output is its picture, so that a notebook opened again without its kernel has no widget that is missing."""

from __future__ import annotations

import configparser
import re
import sys
import types

import nbformat
import pytest
import torch
from lab_in_browser import ROOT, RUN_ALL, lab
from nbformat.v4 import new_code_cell, new_notebook, new_output

import course_lib as cl
from course_lib.bench.models import TinyBlock
from course_lib.grading.store import _without_live_part
from course_lib.viz import Predict
from course_lib.viz.widgets.choose import choose_buckets
from course_lib.viz.widgets.move_tile import move_tile

WIDGET = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def made():
    pytest.importorskip("anywidget")
    with torch.no_grad(), cl.record() as trace:
        cl.compile(TinyBlock(16, 2))(torch.randn(2, 3, 16))
    return {
        "explorer": trace.explorer(),
        "stepper": trace.stepper(),
        "predict": Predict("How many?", ["one", "two"], answer=0, because="It is so."),
        "choose": choose_buckets([3, 5, 9, 17], [4, 8]),
        "move_tile": move_tile((5, 6), (2, 4)),
    }


def bundle(shown) -> dict[str, str]:
    data = shown._repr_mimebundle_()
    return data[0] if isinstance(data, tuple) else data


NAMES = ["explorer", "stepper", "predict", "choose", "move_tile"]


@pytest.mark.parametrize("name", NAMES)
def test_in_jupyterlab_the_output_is_the_picture_with_a_name_that_its_widget_knows(
    name, made, monkeypatch
):
    monkeypatch.setenv("JPY_SESSION_NAME", "/course/notebooks/01_eager_overhead.ipynb")
    data = bundle(made[name])
    assert set(data) == {"text/html", "text/plain"}
    place = re.match(r'<figure id="cl-live-([0-9a-f]{16})" ', data["text/html"])
    assert place and place[1] == made[name].widget.get_state()["place"]
    assert "export default { initialize, render: renderLive };" in made[name].widget._esm
    assert made[name].widget._esm.count("export default") == 1


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_and_compared_is_the_picture_without_that_name(name, made, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    elsewhere = bundle(made[name])["text/html"]
    monkeypatch.setenv("JPY_SESSION_NAME", "a.ipynb")
    output = new_output("display_data", bundle(made[name]))
    rules = configparser.ConfigParser(interpolation=None)
    rules.read(ROOT / "tests" / "nbval_sanitize.cfg")
    rule = rules["generated-ids"]
    compared = re.sub(rule["regex"], rule["replace"], output["data"]["text/html"])
    assert compared == re.sub(rule["regex"], rule["replace"], elsewhere)
    assert _without_live_part(output)["data"]["text/html"] == elsewhere


@pytest.mark.parametrize("session", [None, "/work/a-jvsc-0a1b2c.ipynb", "/content/a.ipynb"])
def test_elsewhere_the_output_says_that_it_is_a_widget(session, made, monkeypatch):
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    if session:
        monkeypatch.setenv("JPY_SESSION_NAME", session)
    if session == "/content/a.ipynb":
        monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("colab"))
    assert set(bundle(made["predict"])) == {WIDGET, "text/html", "text/plain"}


CELLS = (
    """import torch
import course_lib as cl
from course_lib import viz
from course_lib.bench.models import TinyBlock
from course_lib.viz.widgets.choose import choose_buckets
from course_lib.viz.widgets.move_tile import move_tile
with torch.no_grad(), cl.record() as trace:
    cl.compile(TinyBlock(16, 2))(torch.randn(2, 3, 16))""",
    "guess = viz.Predict('How many?', ['one', 'two'], answer=0, because='It is so.')\nguess",
    "trace.stepper()",
    "choose_buckets([3, 5, 9, 17], [4, 8])",
    "move_tile((5, 6), (2, 4))",
    "trace.explorer()",
)
LIVE_FORMS = ".jp-OutputArea :is(fieldset, .cl-step, .cl-x)"
COMMAND = "async (name) => { await window.jupyterapp.commands.execute(name); }"


@pytest.mark.slow
def test_a_notebook_saved_in_jupyterlab_and_opened_again_shows_every_picture(browser, tmp_path):
    path = tmp_path / "all.ipynb"
    kernel = {"name": "python3", "display_name": "Python 3"}  # else Lab asks which
    cells = [new_code_cell(source) for source in CELLS]
    nbformat.write(new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    page = browser.new_page(viewport={"width": 1280, "height": 4000})
    page.set_default_timeout(60_000)
    with lab(served=tmp_path) as (address, token):

        def open_it():
            page.goto(f"{address}/lab/tree/all.ipynb?token={token}&reset")
            page.wait_for_selector(".jp-OutputArea-output, .jp-Notebook .jp-Cell")

        open_it()
        assert [cell["errors"] for cell in page.evaluate(RUN_ALL)] == [[]] * len(CELLS)
        page.locator(LIVE_FORMS).nth(4).wait_for()
        page.locator("fieldset input[type=radio]").nth(1).click()
        for sort in ("header button", ".cl-x-thread button", ".cl-bar button", "[type=checkbox]"):
            page.locator(f".jp-OutputArea {sort}").first.focus()
            page.keyboard.press("d")
            page.keyboard.press("d")
        assert page.locator(".jp-Notebook .jp-Cell").count() == len(CELLS)
        page.evaluate(COMMAND, "docmanager:save")
        page.evaluate(COMMAND, "kernelmenu:shutdown")
        open_it()
        page.wait_for_timeout(4000)
        assert page.locator(LIVE_FORMS).count() == 0
        assert page.locator(".jp-OutputArea figure.cl-fig").count() == 5
        assert "model not found" not in page.locator(".jp-Notebook").inner_text()
    saved = nbformat.read(path, as_version=4)
    assert all(WIDGET not in out.get("data", {}) for cell in saved.cells for out in cell.outputs)
    page.close()
