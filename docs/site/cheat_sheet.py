"""The cheat sheet as a page and as a PDF, both from `docs/cheat-sheet.md`: `make cheat-sheet`.

In:  a Markdown file: a title, and sections with tables, lists and code. (A translation is another such file.)
Out: `cheat-sheet.html` beside it, one file without scripts, and `cheat-sheet.pdf`, one page of A4, printed by Chromium.

Each section is a box; the boxes flow in columns: three on paper, as many as fit on a screen, one on a phone.
The title of both ends in the first letters of the source's digest, so that a test sees a page that is out of date.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "docs" / "cheat-sheet.md"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")

STYLE = """
:root { color-scheme: light dark; --line: #8a8f98; --head: #2f6db3; --code: rgb(128 128 128 / .14); }
* { box-sizing: border-box; }
body { font: 14px/1.4 system-ui, "DejaVu Sans", sans-serif; margin: 1rem; }
h1 { font-size: 1.5em; margin: 0 0 .5rem; }
h2 { font-size: 1.1em; margin: 0 0 .3rem; border-bottom: 2px solid var(--head); }
.boxes { columns: 3 24rem; column-gap: 1.2rem; }
section { break-inside: avoid; margin: 0 0 .8rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .1rem .3rem; border-bottom: 1px solid var(--line); overflow-wrap: break-word; }
ul { margin: 0; padding-left: 1.1rem; }
p { margin: .3rem 0; }
code { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .92em; background: var(--code); overflow-wrap: break-word; }
pre { margin: 0; padding: .3rem; background: var(--code); white-space: pre-wrap; }
pre code { background: none; }
@media (max-width: 30rem) { th, td, code { overflow-wrap: anywhere; } }
@page { size: A4 landscape; margin: 7mm; }
@media print {
  :root { color-scheme: light; }
  body { font-size: 7.6pt; line-height: 1.25; margin: 0; }
  .boxes { columns: 3; column-gap: 5mm; }
  section { margin-bottom: 2mm; }
}
"""


def digest(text: str) -> str:
    """The first letters of the source's digest."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def page(text: str, language: str = "en") -> str:
    """The Markdown text as a whole HTML page."""
    markdown = MarkdownIt("commonmark").enable("table")
    head, *sections = re.split(r"(?m)^(?=## )", text)
    title = head.removeprefix("# ").strip()
    boxes = "\n".join(f"<section>\n{box(markdown.render(part))}</section>" for part in sections)
    return (
        f'<!doctype html>\n<html lang="{language}">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)} ({digest(text)})</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{html.escape(title)}</h1>\n<div class="boxes">\n{boxes}\n</div>\n</main>\n</body>\n</html>\n'
    )


def box(text: str) -> str:
    """One section: a cell at the head of a column that says nothing is no heading."""
    return text.replace("<th></th>", "<td></td>")


def browser() -> str:
    """The program that prints."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise SystemExit("No Chromium is here to print the PDF: install it, or write the page alone with --html.")
    return found


def print_pdf(source: Path, to: Path) -> None:
    """Print a page."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--disable-gpu", "--no-sandbox", "--no-pdf-header-footer", f"--user-data-dir={profile}"]
        said = subprocess.run([browser(), *options, f"--print-to-pdf={to}", source.as_uri()], capture_output=True, text=True, timeout=120)
    if said.returncode or not to.is_file():
        raise SystemExit(f"The PDF was not printed: {said.stderr[-500:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the cheat sheet as HTML and PDF.")
    parser.add_argument("source", type=Path, nargs="?", default=SOURCE)
    parser.add_argument("--html", action="store_true", help="the page alone")
    parser.add_argument("--language", default="en")
    args = parser.parse_args()

    to = args.source.resolve().with_suffix(".html")
    to.write_text(page(args.source.read_text(encoding="utf-8"), args.language), encoding="utf-8")
    print(f"written: {to}")
    if not args.html:
        print_pdf(to, to.with_suffix(".pdf"))
        print(f"written: {to.with_suffix('.pdf')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
