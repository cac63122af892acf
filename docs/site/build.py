"""Build the site of the course: `make site`.

In:  notebooks with their stored outputs, `docs/`, docstrings. Out: `build/site/index.html` and what it needs: a folder that can
be browsed from a disk, with navigation and search, without a server and without a network. No notebook is run.

The pages are collected in `build/site-source`, in the folders that they have in the repository, so that their links hold.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
LISTED = ("docs/find-the-slow-line", "docs/gallery", "docs/operator-coverage", "docs/index", "docs/trials")
ROOMS = ("frames", "capture", "sizes", "guards", "autograd", "lowering", "scheduling", "codegen", "runtime", "simulator", "viz",
         "grading", "languages", "bench", "lessons", "tools")
NO_PAGE = {"course_lib.__main__", "course_lib.grading.nbgrader_config", "course_lib.grading.nbval_versions"}
WIDGET = "application/vnd.jupyter.widget-view+json"


def collect(root: Path, to: Path) -> None:
    """Every page but the explorer's, under `to`."""
    shutil.rmtree(to, ignore_errors=True)
    for path in (
        *root.glob("docs/**/*.md"),
        *root.glob("*.md"),
        *root.glob("docs/pictures/**/*.svg"),
        root / "tests/coverage.toml",
    ):
        if HERE.name not in path.relative_to(root).parts[:2]:
            write(to / path.relative_to(root), path.read_text(encoding="utf-8"))
    for path in root.glob("docs/*.pdf"):
        shutil.copyfile(path, to / path.relative_to(root))
    for path in (*root.glob("notebooks/*.ipynb"), *root.glob("exercises/*/*.ipynb")):
        nb = shown(json.loads(path.read_text(encoding="utf-8")))
        write(to / path.relative_to(root), json.dumps(nb, ensure_ascii=False))
    glossary = (root / "notebooks/glossary.md").read_text(encoding="utf-8")
    write(to / "notebooks/glossary.md", with_terms(glossary))
    for path in root.glob("notebooks/glossary.*.md"):  # in other languages
        write(to / path.relative_to(root), path.read_text(encoding="utf-8"))
    for room, modules in modules_of(root).items():
        write(to / f"reference/{room}.md", reference_page(room, modules))
    write(to / "reference/index.md", reference_index(root))
    write(to / "explorer.md", (HERE / "explorer.md").read_text(encoding="utf-8"))
    write(to / "index.md", index(to))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def shown(nb: dict[str, Any]) -> dict[str, Any]:
    """A notebook as the site shows it: widgets by their static form, folded code folded, a heading on top."""
    for cell in nb["cells"]:
        if cell["cell_type"] == "markdown":  # who reads the site has no copy: the link leads to the exercise
            cell["source"] = re.sub(r"\]\(\.\./work/(\w+)\.ipynb\)", r"](../exercises/\1/\1.ipynb)", "".join(cell["source"]))
        asks = "Predict(" in "".join(cell["source"])  # the answer stands in the source
        if cell["cell_type"] == "code" and (asks or cell["metadata"].get("jupyter", {}).get("source_hidden")):
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", []), "hide-input"]
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "text/html" in data:
                data.pop(WIDGET, None)
    return nb


def with_terms(glossary: str) -> str:
    """The glossary with its terms as Sphinx knows them, so that the search finds them first."""
    head = glossary[: glossary.index("- **")]
    entries: dict[str, list[str]] = {}  # a term that two lessons define stands once, with both definitions
    names: dict[str, str] = {}
    for term, rest in re.findall(r"(?m)^- \*\*(.+?)\*\*(.*)$", glossary):
        entries.setdefault(term.lower(), []).append(rest.strip(" ,:").replace("): ", ") ", 1))
        names.setdefault(term.lower(), term)
    terms = [f"{names[key]}\n  {' '.join(said)}\n" for key, said in entries.items()]
    return head + "::::{glossary}\n" + "\n".join(terms) + "::::\n"


def modules_of(root: Path) -> dict[str, list[str]]:
    """Room → its modules; what stands beside the rooms is called `compiler`."""
    found: dict[str, list[str]] = {"compiler": [], **{room: [] for room in ROOMS}}
    for path in sorted((root / "course_lib").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if name not in NO_PAGE:
            found[parts[1] if len(parts) > 2 else "compiler"].append(name)
    return found


def reference_page(room: str, modules: list[str]) -> str:
    title = "The public names and the compiler" if room == "compiler" else f"The room `{room}`"
    parts = [f"# {title}\n"]
    for module in modules:
        package = module.count(".") == 1 and room != "compiler"  # its public names stand with their own modules
        option = "   :no-members:\n" if package else "   :no-index:\n" if module == "course_lib" else ""
        # `attributes` has a function and a module called `change`: Sphinx would know two things by one name.
        inside = [other.removeprefix(f"{module}.") for other in modules if other.startswith(f"{module}.")]
        if inside and not option:
            option = f"   :exclude-members: {', '.join(name for name in inside if '.' not in name)}\n"
        parts.append(f"## `{module}`\n\n```{{eval-rst}}\n.. automodule:: {module}\n{option}```\n")
    return "\n".join(parts)


def reference_index(root: Path) -> str:
    pages = "\n".join(modules_of(root))
    return (
        "# Reference\n\nEvery module of `course_lib` by its docstrings, a page for each room. What passes from one room to the "
        f"next stands in [the overview](../docs/index.md).\n\n```{{toctree}}\n:maxdepth: 1\n\n{pages}\n```\n"
    )


def index(source: Path) -> str:
    """The front page, with what is there filled in."""
    pages = sorted(
        page.relative_to(source).with_suffix("").as_posix() for page in source.rglob("*") if page.suffix in (".md", ".ipynb")
    )
    lessons = [page for page in pages if re.match(r"notebooks/\d\d_", page)]
    exercises = [page for page in pages if page.startswith("exercises/")]
    docs = [page for page in pages if page.startswith("docs/") and "/design/" not in page and page not in LISTED]
    design = [page for page in pages if page.startswith("docs/design/")]
    others = [page for page in pages if page.startswith("notebooks/") and page not in lessons and not page.endswith("glossary")]
    text = (HERE / "index.md").read_text(encoding="utf-8")
    for name, found in (("LESSONS", lessons), ("EXERCISES", exercises), ("DOCS", docs + others), ("DESIGN", design)):
        text = text.replace(name, "\n".join(found))
    return text


LONGEST_TEXT = 30_000  # letters of a page that the search shows something of


def texts_of(source: Path) -> str:
    """A script with the words of every page, by its name: the search shows what stands around a hit."""
    texts = {}
    for page in sorted((*source.rglob("*.md"), *source.rglob("*.ipynb"))):
        text = page.read_text(encoding="utf-8")
        if page.suffix == ".ipynb":
            cells = json.loads(text)["cells"]
            text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        name = page.relative_to(source).with_suffix("").as_posix()
        texts[name] = words_of(text)[:LONGEST_TEXT]
    return f"window.courseTexts = {json.dumps(texts, ensure_ascii=False)};\n"


def words_of(markdown: str) -> str:
    """The text of a page in one line, without the signs of Markdown and HTML."""
    bare = re.sub(r"(?ms)^(```|:::).*?$", " ", markdown)
    bare = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", bare)
    bare = re.sub(r"<[^>]+>|[*`#|]+|-{3,}", " ", bare)
    return " ".join(bare.split())


def make_explorers(to: Path) -> None:
    """The explorer's pages. Models are compiled: a block of a GPT for the front page, `TinyBlock` for inference and for training."""
    import torch

    import course_lib as cl
    from course_lib import config
    from course_lib.bench.models import GPTBlock, TinyBlock

    config.measure_products = False  # whose figures are those of this moment's machine
    to.mkdir(parents=True, exist_ok=True)
    tiny = TinyBlock(hidden=64, expansion=4)
    block = GPTBlock(hidden=64, heads=4, context=32)
    for name, model, shape, train in (
        ("front", block, (2, 16, 64), False),
        ("inference", tiny, (2, 8, 64), False),
        ("training", tiny, (2, 8, 64), True),
    ):
        cl.reset()
        cl.explore(model, torch.randn(shape), train=train).save(to / f"{name}.html")


def main() -> int:
    from sphinx.cmd.build import build_main

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--jobs", default="1", help="processes of Sphinx")
    args = parser.parse_args()
    source = args.out.with_name(f"{args.out.name}-source")
    collect(ROOT, source)
    shutil.rmtree(args.out, ignore_errors=True)
    options = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(HERE), "-d", str(source / ".doctrees"), "-j", args.jobs]
    status = build_main([*options, str(source), str(args.out)])
    if status == 0:
        write(args.out / "_static" / "texts.js", texts_of(source))
        make_explorers(args.out / "_static" / "explorer")
        print(f"open {args.out / 'index.html'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
