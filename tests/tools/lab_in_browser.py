"""Open a notebook in JupyterLab in a real, headless browser, run every cell, and take a picture.

    python tests/tools/lab_in_browser.py notebooks/00_start_here.ipynb picture.png

In:  a notebook of this repository. Out: exit status 0 if every cell ran as it should; the picture.
Needs `pip install playwright` and a Chromium (`CHROMIUM=path`, else the one on the path); CI does not run it.
Lab is started by `make lab`, the way a learner starts it.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
]
FLAGS += ["--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"]

# Clicking Run before the kernel's connection has settled runs nothing: drive Lab's own object and await it.
RUN_ALL = """async () => {
    const app = window.jupyterapp, wait = () => new Promise(done => setTimeout(done, 100));
    let notebook = null;
    for (let i = 0; i < 300 && !(notebook && notebook.sessionContext); i++) { notebook = app.shell.currentWidget; await wait(); }
    await notebook.context.ready; await notebook.sessionContext.ready;
    const kernel = notebook.sessionContext.session.kernel; await kernel.info;
    for (let i = 0; i < 300 && !(kernel.connectionStatus === 'connected' && kernel.status === 'idle'); i++) await wait();
    await app.commands.execute('notebook:run-all-cells');
    const code = notebook.content.widgets.filter(cell => cell.model.type === 'code');
    const counted = () => code.every(cell => cell.model.executionCount || !cell.model.sharedModel.getSource().trim());
    for (let i = 0; i < 50 && !counted(); i++) await wait();
    return code.map(cell => ({
        source: cell.model.sharedModel.getSource(), count: cell.model.executionCount,
        tags: cell.model.getMetadata('tags') || [],
        errors: cell.model.outputs.toJSON().filter(output => output.output_type === 'error').map(output => output.evalue)}));
}"""


@contextmanager
def lab(folder: Path = ROOT, served: Path | None = None) -> Iterator[tuple[str, str]]:
    """`make lab` without a browser, on a free port: its address and token. `served`: show another folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token, address = secrets.token_hex(16), f"http://127.0.0.1:{port}"
    arguments = (
        f"--no-browser --port={port} --ServerApp.port_retries=0 --IdentityProvider.token={token}"
    )
    command = ["make", "lab", f"LAB_ARGS={arguments} --LabApp.expose_app_in_browser=True"]
    command += [f"SERVED={served}"] if served else []
    server = subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(1200):  # the first `make lab` installs everything
            try:
                urllib.request.urlopen(f"{address}/api?token={token}", timeout=2)
                break
            except OSError:
                if server.poll() is not None:
                    raise SystemExit("make lab ended; run it by hand to see why") from None
                time.sleep(0.5)
        yield address, token
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(20)
        time.sleep(2)  # Lab stops its kernels
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)


def run_in_browser(notebook: str, picture: Path, folder: Path = ROOT) -> list[str]:
    """Run `notebook` (relative to `folder`) top to bottom; what went wrong, a sentence each."""
    from playwright.sync_api import sync_playwright

    browser_path = (
        os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    )
    complaints: list[str] = []
    with lab(folder) as (address, token), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, headless=True, args=FLAGS
        )
        page = browser.new_page(viewport={"width": 1280, "height": 1600})
        page.on("pageerror", lambda error: complaints.append(f"the page raised {error}"))
        page.goto(f"{address}/lab/tree/{notebook}?token={token}&reset")
        page.wait_for_selector(".jp-NotebookPanel .jp-Notebook .jp-Cell", timeout=60_000)
        page.set_default_timeout(600_000)
        for cell in page.evaluate(RUN_ALL):
            head = (cell["source"].strip().splitlines() or ["(empty)"])[0][:60]
            meant = "raises-exception" in cell["tags"]
            if cell["source"].strip() and not cell["count"]:
                complaints.append(f"{head!r} was not run")
            if bool(cell["errors"]) != meant:
                complaints.append(
                    f"{head!r} {'raised ' + str(cell['errors']) if cell['errors'] else 'did not raise as it should'}"
                )
        page.evaluate(
            "document.querySelector('.jp-WindowedPanel-outer, .jp-Notebook').scrollTo(0, 0)"
        )
        page.wait_for_timeout(500)
        page.screenshot(path=str(picture))
        browser.close()
    return complaints


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    complaints = run_in_browser(sys.argv[1], Path(sys.argv[2]))
    print("\n".join(complaints) or f"every cell of {sys.argv[1]} ran as it should")
    return bool(complaints)


if __name__ == "__main__":
    sys.exit(main())
