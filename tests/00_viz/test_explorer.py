"""The explorer: what belongs together lights up in every list, by mouse and by keyboard, in a notebook and as a page alone."""

from __future__ import annotations

import json
import sys

import pytest
import torch

import course_lib as cl
from course_lib import viz
from course_lib.bench.models import TinyBlock
from course_lib.viz.explorer.provenance import PANES
from course_lib.viz.mirror import course


@pytest.fixture(scope="module")
def tiny():
    return cl.explore(TinyBlock(64, 2), torch.randn(2, 4, 64))


@pytest.fixture(scope="module")
def tiny_page(tiny, tmp_path_factory):
    return tiny.save(tmp_path_factory.mktemp("explorer") / "explorer.html")


def test_the_table_leads_from_each_line_to_its_kernel(tiny):
    rows = [line.split("  ") for line in str(tiny).splitlines()]
    gelu = next(row for row in rows if "gelu" in row)
    assert gelu[0] == "25: x = torch.nn.functional.gelu(x)" and gelu[-1] == "fused_gelu_mul_add"
    assert "var_mean, getitem ×2, add ×2, rsqrt, sub, mul ×2" in str(tiny)


def test_a_saved_notebook_keeps_the_table(tiny, monkeypatch):
    pytest.importorskip("anywidget")
    data, _ = tiny._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"] == str(tiny) and "<code>gelu</code>" in data["text/html"]
    monkeypatch.setitem(sys.modules, "anywidget", None)
    assert set(viz.Explorer(cl_trace())._repr_mimebundle_()) == {"text/html", "text/plain"}


def cl_trace():
    """Something small."""
    with cl.record() as trace:
        cl.compile(lambda x: (x + 1).relu())(torch.ones(3))
    return trace


def test_the_browser_gets_every_row_with_its_links(tiny):
    data, rows = json.loads(tiny.data), list(tiny.provenance)
    assert [pane["key"] for pane in data["panes"]] == [key for key in PANES if key != "machine"]
    assert data["panes"][-1]["end"] == len(data["rows"]) == len(rows)
    for sent, row in zip(data["rows"], rows, strict=True):
        assert sent["text"] == row.text and [rows[n] for n in sent.get("up", [])] == row.up
    load = data["rows"][rows.index(tiny.provenance.find("bytecode", "LOAD_FAST x"))]
    pushed = [[data["strings"][n] for n in part] for part in load["stack"]]
    assert pushed == [[], [], ["x: f32[2, 4, 64]"]]


def test_a_call_with_gradients_shows_the_joint_graph():
    explorer = cl.explore(
        lambda x, w: (x @ w).relu().sum(),
        torch.randn(3, 4),
        torch.randn(4, 5, requires_grad=True),
        train=True,
    )
    assert '"title":"Joint graph"' in explorer.data
    assert {"forward", "backward"} <= {
        row.text for row in explorer.provenance.rows["loops"] if row.kind == "head"
    }


def test_machine_code_is_there_when_a_processor_is_named():
    explorer = cl.explore(lambda x: torch.softmax(x, -1), torch.randn(4, 64), target="x86-64-v3")
    row = explorer.provenance.find("machine", "vdivps")
    assert "// div (" in row.up[0].text
    assert not any(
        one.text.lstrip().startswith((".loc", ".cfi"))
        for one in explorer.provenance.rows["machine"]
    )


def test_ptx_leads_back_to_the_lines_of_a_triton_kernel():
    triton = pytest.importorskip("triton")
    del triton
    with cl.record() as trace:
        cl.compile(lambda x: (x * 2).exp(), options={"codegen": "triton"})(torch.randn(300))
    provenance = trace.explorer(target="sm_90").provenance
    heads = [row.text.split("(")[-1] for row in provenance.rows["machine"] if row.kind == "head"]
    assert heads == ["ttir)", "ttgir)", "llir)", "ptx)"]
    found = {
        "math.exp": "exp(",
        "tt.store": "tl.store",
        "ld.global": "tl.load",
        "st.global": "tl.store",
    }
    for instruction, line in found.items():
        row = provenance.find("machine", instruction)
        assert [one.text.strip() for one in row.up if line in one.text], instruction


def test_a_trace_is_saved_as_the_explorer_of_all_that_was_compiled(tmp_path, page):
    page.goto(cl_trace().save(tmp_path / "explorer.html").as_uri())
    assert page.get_by_role("tree", name="FX graph").get_by_text("relu = relu(add)").is_visible()


def test_what_was_compiled_before_is_not_there_to_be_explored():
    with (
        pytest.raises(LookupError, match="nothing was compiled while recording"),
        cl.record() as trace,
    ):
        trace.explorer()


def test_the_saved_page_is_small_and_asks_nothing_of_a_network(tiny, tiny_page, tmp_path):
    text = tiny_page.read_text(encoding="utf-8")
    assert len(text.encode()) < 2_000_000
    assert "http" not in text and "import " not in text.split("<script>")[1].split("</script>")[0]
    assert tiny.save(tmp_path / "table.txt").read_text() == f"{tiny}\n"
    with pytest.raises(ValueError, match=r"not '\.pdf'"):
        tiny.save(tmp_path / "explorer.pdf")


def test_a_source_that_talks_of_scripts_does_not_end_the_page(tmp_path, page):
    def tricky(x):
        return x + len("</script><!--<script>")

    page.goto(cl.explore(tricky, torch.ones(2)).save(tmp_path / "page.html").as_uri())
    assert page.get_by_role("tree", name="Python").get_by_text("</script><!--<script>").is_visible()


# ---- in a browser -------------------------------------------------------------------------------------------------------

LIT = "[...document.querySelectorAll('.cl-x-%s .cl-x-lit:not(.cl-x-is-head) .cl-x-text')].map((row) => row.textContent.trim())"


BOXES = ".cl-x-pane, .cl-x-thread, .cl-x-time"


def settled(page):
    """Wait until it is painted."""
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def lit(page, pane):
    """What is lit and seen in a list."""
    settled(page)
    return page.evaluate(LIT % pane)


def test_pointing_at_a_line_lights_what_belongs_to_it_in_every_list(tiny_page, page):
    page.goto(tiny_page.as_uri())
    page.get_by_role("treeitem", name="x = x * 1.41421356 + 0.01").hover()
    assert lit(page, "source") == ["x = x * 1.41421356 + 0.01"]
    assert [row.split(" = ")[0] for row in lit(page, "fx")] == ["mul", "add"]
    page.get_by_role("treeitem", name="x = x * 1.41421356 + 0.01").click()
    assert lit(page, "groups")[0] == "fused_gelu_mul_add"
    assert any("1.4142135f" in row for row in lit(page, "code")), (
        "a click scrolls the other lists there"
    )
    page.get_by_role("tree", name="Generated code").get_by_text("1.4142135f").click()
    assert lit(page, "source") == ["x = x * 1.41421356 + 0.01"], "and back"
    assert page.get_by_role("button", name="Fused groups fused_gelu_mul_add").is_visible()


def test_it_is_used_by_keyboard_alone_and_says_what_is_lit(tiny, live):
    page = live(tiny.widget)
    tree = page.get_by_role("tree", name="FX graph")
    tree.focus()
    assert tree.get_attribute("data-lm-suppress-shortcuts") == "true", (
        "JupyterLab would eat the arrow keys"
    )
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    status = page.get_by_role("status")
    assert "add_1 = add(linear_1, x)" in status.text_content()
    assert (
        "Python: 28: return x + residual" in status.text_content()
        and "Fused groups: fused_add" in status.text_content()
    )
    active = tree.locator("[aria-selected='true']", has_text="add_1")
    active.wait_for()  # rows are painted with the next frame
    assert active.get_attribute("id") == tree.get_attribute("aria-activedescendant")
    page.keyboard.press("Tab")  # the next list, as the legend says
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith(
        "ATen graph"
    )
    page.keyboard.press("ArrowDown")
    assert "add_3 = add.Tensor(view_3, x)" in status.text_content(), (
        "the first row is the one that is lit"
    )
    page.keyboard.press("Escape")
    assert status.text_content() == "Nothing is lit." and lit(page, "fx") == []


def test_calls_fold_and_unfold(tiny, live):
    page = live(tiny.widget)
    tree = page.get_by_role("tree", name="Bytecode")
    call = tree.get_by_role("treeitem", name="CALL 1").first
    call.click()
    rows = len(tiny.provenance.rows["bytecode"])
    for key, opened in (("ArrowLeft", "false"), ("ArrowRight", "true")):
        page.keyboard.press(key)
        page.wait_for_function(
            "opened => document.querySelector('.cl-x-focus').ariaExpanded === opened", arg=opened
        )
        assert (call.get_attribute("aria-setsize") == str(rows)) == (opened == "true")


def test_the_scrubber_goes_back_to_before_the_graph_was_there(tiny, live):
    page = live(tiny.widget)
    slider = page.get_by_role("slider")
    slider.focus()
    page.keyboard.press("Home")
    settled(page)
    seen = (
        "document.querySelectorAll('.cl-x-%s .cl-x-row:not(.cl-x-later):not(.cl-x-is-head)').length"
    )
    assert [page.evaluate(seen % pane) for pane in ("bytecode", "fx", "loops", "code")] == [
        0,
        0,
        0,
        0,
    ]
    moment = next(
        n
        for n, one in enumerate(tiny.provenance.moments)
        if one.text.endswith("adds layer_norm to the graph")
    )
    for _ in range(moment):
        page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext").endswith("adds layer_norm to the graph")
    settled(page)
    now = page.locator(".cl-x-fx .cl-x-now .cl-x-text").all_inner_texts()
    assert any(text.startswith("layer_norm = ") for text in now)
    assert page.evaluate(seen % "aten") == 0
    assert page.get_by_role("button", name="ATen graph nothing").is_visible(), (
        "what is not made yet is not lit"
    )
    assert "layer_norm: f32[2, 4, 64]" in page.locator(".cl-x-stack").inner_text()
    slider.fill(str(tiny.provenance.find("bytecode", "LOAD_GLOBAL F").at))
    settled(page)
    outer = page.get_by_role("tree", name="Bytecode").get_by_role("treeitem", name="CALL 1").first
    assert "cl-x-later" not in (outer.get_attribute("class") or ""), (
        "the call is there while it is followed"
    )


def test_a_list_can_be_widened_hidden_and_brought_back(tiny, live):
    page = live(tiny.widget)
    page.get_by_role("button", name="hide Loops").click()
    assert not page.get_by_role("tree", name="Loops").is_visible()
    page.get_by_role("button", name="Loops ").click()
    assert page.get_by_role("tree", name="Loops").is_visible()
    before = page.locator(".cl-x-loops").bounding_box()["width"]
    page.get_by_role("button", name="Loops over the whole width").click()
    assert page.locator(".cl-x-loops").bounding_box()["width"] > 1.5 * before
    page.get_by_role("tree", name="Loops").focus()
    page.keyboard.press("w")
    assert page.locator(".cl-x-loops").bounding_box()["width"] == before, "by keyboard as well"
    page.keyboard.press("x")
    assert not page.get_by_role("tree", name="Loops").is_visible()
    page.keyboard.press("Enter")
    assert page.get_by_role("tree", name="Loops").is_visible()


@pytest.mark.parametrize("width", [1280, 800, 480])
def test_nothing_is_cut_off_or_overlaps(tiny_page, page, width):
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(tiny_page.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    boxes = page.evaluate(
        f"[...document.querySelectorAll('{BOXES}')].map((box) => box.getBoundingClientRect().toJSON())"
    )
    for n, a in enumerate(boxes):
        for b in boxes[n + 1 :]:
            beside = a["right"] <= b["left"] + 1 or b["right"] <= a["left"] + 1
            assert beside or a["bottom"] <= b["top"] + 1 or b["bottom"] <= a["top"] + 1


def test_of_a_large_model_only_what_is_seen_is_drawn(transformer, live):
    page = live(transformer.explorer().widget)
    page.get_by_role("tree", name="Generated code").focus()
    for key in ("End", "PageUp", "Home", "ArrowDown"):
        page.keyboard.press(key)
    assert lit(page, "code")
    assert page.evaluate("document.querySelectorAll('.cl-x-row').length") < 300


def test_a_function_without_tensors_can_be_explored_too():
    explorer = cl.explore(lambda a: a + 1, 3)
    assert (
        str(explorer) == "No operation was captured."
        and json.loads(explorer.data)["panes"][-1]["key"] == "bytecode"
    )


def grown(x, w):
    y = torch.relu(x @ w)
    return y.softmax(-1) + 1


def test_a_graph_that_torch_captured_has_its_lines_and_no_bytecode():
    with cl.record() as trace:
        compiled = torch.compile(grown, backend=course)
        for rows in (4, 6, 9):
            compiled(torch.randn(rows, 8), torch.randn(8, 8, requires_grad=True)).sum().backward()
    torch._dynamo.reset()
    explorer = trace.explorer()
    provenance, first = explorer.provenance, grown.__code__.co_firstlineno
    assert explorer.title == "grown" and not provenance.rows["bytecode"]
    assert [row.label for row in provenance.rows["source"]] == [
        "",
        *(str(first + n) for n in range(3)),
    ]
    relu = provenance.find("source", "relu(x @ w)")
    assert {one.pane for one in provenance.related(relu)} == {
        "source",
        "fx",
        "aten",
        "loops",
        "groups",
        "code",
    }
    assert [row.text for row in provenance.rows["fx"]].count("grown") == 2, (
        "one for four rows, one for all others"
    )
    assert f"{first + 1}: y = torch.relu(x @ w)" in explorer.picture.text
