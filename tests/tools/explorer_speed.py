"""How long the explorer takes from input to paint: a training step of a transformer of six layers, in a headless browser.

    python tests/tools/explorer_speed.py

In:  nothing. Out: for pointing, clicking, keys and the scrubber, the median and the worst time in milliseconds, as the browser
itself measures it (Event Timing: from the input to the next frame on the screen, rounded to 8 ms; below 16 it says nothing).
Needs `pip install playwright` and a Chromium (`CHROMIUM=path`, else the one on the path).
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from playwright.sync_api import sync_playwright

import course_lib as cl
from course_lib.bench.models import Transformer

WATCH = """window.seen = [];
new PerformanceObserver((list) => { for (const one of list.getEntries()) window.seen.push([one.name, one.duration]); })
  .observe({ type: "event", durationThreshold: 16, buffered: true });"""
INPUTS = 30


def measure(page: Any, kinds: tuple[str, ...], act: Callable[[int], None]) -> list[float]:
    """The milliseconds of `INPUTS` inputs; 16 for one that was too quick to be told."""
    page.wait_for_timeout(300)
    page.evaluate("window.seen.length = 0")
    for n in range(INPUTS):
        act(n)
        page.wait_for_timeout(60)
    page.wait_for_timeout(500)
    told = sorted(
        (duration for name, duration in page.evaluate("window.seen") if name in kinds), reverse=True
    )[:INPUTS]
    return told + [16.0] * (INPUTS - len(told))


def main() -> int:
    file = Path(tempfile.mkdtemp()) / "explorer.html"
    explorer = cl.explore(Transformer(6, 128, 4), torch.randn(2, 16, 128), train=True)
    explorer.save(file)
    rows, moments = len(list(explorer.provenance)), len(explorer.provenance.moments)
    print(f"{rows:,} rows, {moments:,} moments, {file.stat().st_size / 1e6:.2f} MB")
    with sync_playwright() as browsers:
        path = (
            os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
        )
        browser = browsers.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        page.add_init_script(WATCH)
        start = time.perf_counter()
        page.goto(file.as_uri())
        page.wait_for_selector(".cl-x-row")
        print(f"open: {1000 * (time.perf_counter() - start):.0f} ms")
        tree = {
            name: page.get_by_role("tree", name=name).bounding_box()
            for name in ("Joint graph", "Generated code")
        }

        def point(n: int) -> None:
            box = tree["Generated code" if n % 2 else "Joint graph"]
            page.mouse.move(box["x"] + 60, box["y"] + 30 + 7 * n)

        def click(n: int) -> None:
            point(n)
            page.mouse.down()
            page.mouse.up()

        results = {
            "point": measure(page, ("pointerover", "mouseover"), point),
            "click": measure(page, ("click",), click),
        }
        page.get_by_role("tree", name="Loops").focus()
        results["arrow key"] = measure(
            page, ("keydown",), lambda n: page.keyboard.press("ArrowDown")
        )
        page.get_by_role("slider").focus()
        results["scrubber"] = measure(
            page, ("keydown",), lambda n: page.keyboard.press("PageDown" if n % 2 else "ArrowLeft")
        )
        browser.close()
    for name, milliseconds in results.items():
        print(
            f"{name:>10}: median {statistics.median(milliseconds):.0f} ms, worst {max(milliseconds):.0f} ms"
        )
    return int(max(map(max, results.values())) > 100)


if __name__ == "__main__":
    sys.exit(main())
