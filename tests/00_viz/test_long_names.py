"""Names of 90 characters: nothing lies over something else, and what tells two of them apart is there to be read."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import course_lib as cl
from course_lib.frames import installed
from course_lib.viz.kit.style import page as page_of

pytestmark = pytest.mark.skipif(
    not installed(), reason="what is behind a graph break needs the frame hook"
)
LONG = ("a_name_as_long_as_a_program_that_writes_programs_may_well_make_it_" * 2)[:90]
CLASS = LONG.title().replace("_", "")
SOURCE = f"""
class {CLASS}(nn.Module):
    def __init__(self):
        super().__init__()
        self.{LONG} = nn.Linear(8, 8)
        self.{LONG}_norm = nn.LayerNorm(8)

    def forward(self, {LONG}_input):
        {LONG}_inside = self.{LONG}({LONG}_input)
        print(end="")
        return self.{LONG}_norm({LONG}_inside).relu() * {LONG}_factor


def {LONG}_function(module, x):
    return module(x)


{LONG}_factor = 3.0
"""
OVERFLOWS = """() => [...document.querySelectorAll("td, th, p, li, h3")]
  .filter((e) => e.scrollWidth > e.clientWidth + 1 && e.clientWidth)
  .map((e) => `${e.tagName} ${e.textContent.slice(0, 60)}: ${e.scrollWidth} in ${e.clientWidth}`)"""
OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll("svg text")].map((e) => [e.textContent, e.getBoundingClientRect()]);
  const apart = (a, b) => a.left > b.right - 1 || b.left > a.right - 1 || a.top > b.bottom - 4 || b.top > a.bottom - 4;
  return boxes.flatMap(([text, a], i) =>
    boxes.slice(i + 1).filter(([_, b]) => !apart(a, b)).map(([other]) => `${text} | ${other}`));
}"""
OUTSIDE = """() => [...document.querySelectorAll("svg g.node")].flatMap((node) => {
  const frame = node.querySelector("path, polygon").getBoundingClientRect();
  const outside = ({ left, right }) => left < frame.left || right > frame.right;
  return [...node.querySelectorAll("text")].filter((e) => outside(e.getBoundingClientRect())).map((e) => e.textContent);
})"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    names = {"nn": nn}
    path = folder / "made.py"
    path.write_text(SOURCE)
    exec(compile(SOURCE, str(path), "exec"), names)
    with cl.record(folder) as trace:
        compiled = cl.compile(names[f"{LONG}_function"])
        module = names[CLASS]()
        compiled(module, torch.randn(4, 8))
        compiled(module, torch.randn(5, 8))
        names[f"{LONG}_factor"] = 4.0
        compiled(module, torch.randn(5, 8))
    return trace, folder / "report.html"


@pytest.mark.parametrize("width", [1280, 800])
def test_nothing_in_the_report_is_wider_than_its_place(recorded, page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"file://{recorded[1]}")
    assert page.evaluate(OVERFLOWS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_guard_tree_shows_both_ends_of_a_name_and_what_was_found(recorded, page):
    trace = recorded[0]
    broken = next(
        n for n, result in enumerate(trace.captures) if f"{LONG}_factor" in str(result.guards)
    )
    page.set_content(page_of(trace.guards_tree(broken).html, "guards"))
    assert page.evaluate(OVERLAPS) == []
    shown = "\n".join(
        page.locator("svg text").evaluate_all("all => all.map((e) => e.lastChild.textContent)")
    )
    assert "_factor" in shown and "_norm" in shown and "expected 3.0, got 4.0" in shown


def test_a_deep_tree_leaves_room_for_its_last_names(page):
    model = inner = nn.Module()
    for _ in range(14):
        inner.part = inner = nn.Sequential(nn.Identity())[0]
    inner.scale = 2.0
    path = "model" + ".part" * 14
    compiled = cl.compile(eval(f"lambda model, x: x * {path}.scale"), backend="eager")
    with cl.record() as trace:
        compiled(model, torch.ones(2))
    picture = trace.guards_tree()
    page.set_content(page_of(picture.html, "guards"))
    assert page.evaluate(OVERLAPS) == [] and ">.scale</text>" in picture.body.replace(
        "<title>.scale</title>", ""
    )


def test_two_weights_can_be_told_apart_in_a_graph_and_no_name_is_wider_than_its_box(recorded, page):
    for picture in (recorded[0].graph(), recorded[0].aten(), recorded[0].graph(by_module=True)):
        page.set_content(page_of(picture.html, "graph"))
        assert page.evaluate(OUTSIDE) == []
    assert (
        ".weight</text>" in recorded[0].graph().body and ".bias</text>" in recorded[0].graph().body
    )


def test_what_a_module_is_called_is_not_wider_than_its_box_and_no_arrow_goes_through_it(page):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.transformer_embeddings = nn.Linear(8, 8)
            self.transformer_final_norm = nn.LayerNorm(8)

        def forward(self, x):
            return self.transformer_final_norm(self.transformer_embeddings(x)).relu()

    cl.reset()
    with cl.record() as trace:
        cl.compile(Model())(torch.randn(2, 8)).sum().backward()
    page.set_content(page_of(trace.graph(by_module=True).html, "graph"))
    assert page.evaluate(OUTSIDE) == []
    drawn = trace.joint(detail="modules").body
    title = drawn.index(">self.transformer_final_norm</text>")
    assert "paint-order: stroke" in drawn[drawn.rindex("<text", 0, title) : title]
