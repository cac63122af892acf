"""What the picture tests share: recordings (one made by hand, the others by compiling for real), and a browser."""

from __future__ import annotations

import json
import linecache
import os
import re
import shutil

import pytest
import torch

import course_lib as cl
from course_lib import events
from course_lib.bench.models import Transformer
from course_lib.viz.recording import Recording

SOURCE = """def helper(a, b):
    return a * b

def f(x, w):
    y = helper(x, w)
    return y.relu()
"""
CELL = "/tmp/ipykernel_99/123.py"
X, W, MUL, RELU = "x: float32[2, 3]", "w: float32[3]", "mul: float32[2, 3]", "relu: float32[2, 3]"


def run(offset, op, arg, function, line, depth, before, after, node=""):
    return events.InstructionRun(
        offset, op, arg, function, CELL, line, depth, tuple(before), tuple(after), node
    )


@pytest.fixture
def by_hand() -> Recording:
    """`f` as the interpreter reports it: a call is told after what it called."""
    linecache.cache[CELL] = (len(SOURCE), None, SOURCE.splitlines(keepends=True), CELL)
    recording = Recording()
    recording.events += [
        events.FrameSeen("f", f"{CELL}:4"),
        run(2, "LOAD_GLOBAL", "helper", "f", 5, 0, [], ["helper()"]),
        run(14, "LOAD_FAST", "x", "f", 5, 0, ["helper()"], ["helper()", X]),
        run(16, "LOAD_FAST", "w", "f", 5, 0, ["helper()", X], ["helper()", X, W]),
        run(2, "LOAD_FAST", "a", "helper", 2, 1, [], [X]),
        run(4, "LOAD_FAST", "b", "helper", 2, 1, [X], [X, W]),
        run(6, "BINARY_OP", "*", "helper", 2, 1, [X, W], [MUL], "mul"),
        run(10, "RETURN_VALUE", "", "helper", 2, 1, [MUL], [MUL]),
        run(18, "CALL", "2", "f", 5, 0, ["helper()", X, W], [MUL]),
        run(32, "STORE_FAST", "y", "f", 5, 0, [MUL], []),
        run(34, "LOAD_FAST", "y", "f", 6, 0, [], [MUL]),
        run(58, "CALL", "0", "f", 6, 0, [MUL], [RELU], "relu"),
        run(72, "RETURN_VALUE", "", "f", 6, 0, [RELU], [RELU]),
    ]
    return recording


def scaled_softmax(x, w, linear):
    y = torch.softmax(x * w, -1)
    return linear(y).relu() + x


def compile_small():
    torch.manual_seed(0)
    linear = torch.nn.Linear(64, 64)
    compiled = cl.compile(scaled_softmax)
    with torch.no_grad(), cl.record() as trace:
        compiled(torch.randn(32, 64), torch.randn(64), linear)
        compiled(torch.randn(16, 64), torch.randn(64), linear)
    return trace


@pytest.fixture(scope="session")
def trace():
    """A function compiled for two shapes: two graphs, a guard that failed, fused kernels and a library call."""
    return compile_small()


@pytest.fixture(scope="session")
def trace_again():
    """The same once more."""
    return compile_small()


@pytest.fixture(scope="session")
def transformer():
    """A training step of a transformer of six layers."""
    with cl.record() as trace:
        cl.compile(Transformer(6, 32, 2))(torch.randn(2, 8, 32))
    return trace


PAGE = """<meta charset=utf-8><style>%s</style><div id=here></div><script type=module>
%s
const state = %s, changed = [], sent = window.sent = [];
const model = { get: (name) => state[name], on: (_, what) => changed.push(what), save_changes: () => sent.push({ ...state }),
  set: (name, value) => { state[name] = value; changed.forEach((what) => what()); } };
renderLive({ model, el: document.getElementById("here") });
</script>"""


@pytest.fixture(scope="session")
def browser():
    """A headless Chromium, where there is one. Its loop stays in the process, and what it leaves to be collected would run in
    frames that other tests watch: so these tests have a process of their own (`make test-browser`)."""
    if not os.environ.get("COURSE_BROWSER"):
        pytest.skip("tests in a browser run by themselves: make test-browser")
    playwright = pytest.importorskip("playwright.sync_api")
    pytest.importorskip("anywidget")
    chromium = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    if not chromium:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as browsers:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        running = browsers.chromium.launch(executable_path=chromium, args=flags)
        yield running
        running.close()


@pytest.fixture
def page(browser):
    """An empty page. What its scripts raise fails the test."""
    errors: list[str] = []
    made = browser.new_page(viewport={"width": 1280, "height": 1000})
    made.set_default_timeout(10_000)
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    made.close()
    assert errors == []


@pytest.fixture
def live(page):
    """`live(widget)`: the page, with the widget in it and no kernel behind it."""

    def show(widget):
        own = [
            name
            for name in widget.keys
            if not name.startswith("_") and name not in ("layout", "tabbable", "tooltip")
        ]
        state = {name: getattr(widget, name) for name in own}
        page.set_content(
            PAGE
            % (
                widget._css,
                re.sub(r"export default .*", "", widget._esm),
                json.dumps(state),
            )
        )
        return page

    return show
