"""`course slides`: a lesson's notebook as slides with speaker notes, in pages that need no network.

In:  notebooks with stored outputs (nothing is run). Out: a folder with `index.html`, a page for
each lesson, and reveal.js beside them (from the package `sphinx-revealjs`, of the extra `site`).

What goes onto a slide follows from the lesson's spine: `##` begins a column, `###` and each picture
a slide below. A slide carries the heading, the first sentences, tables, short lists, code and
outputs; what the notebook says beyond that becomes the speaker's notes. Jupyter's own mark of a
cell (`slideshow.slide_type`) has the last word.
"""

from __future__ import annotations

import ast
import copy
import html
import importlib.util
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from nbformat.v4 import new_markdown_cell

from .notebooks import Cell, CourseError, Notebook, read

HERE = Path(__file__).with_name("deck")
# What one slide holds: characters of prose, items of a list, rows of a table, lines of code.
LEAD = 300
MOST_ITEMS = 6
MOST_ROWS = 12
MOST_LINES = 18

_FRAME_LINES = 2
"""Lines that are no row and no code: a table's head and the rule below it, the two fences."""

KEPT = ("dist/reveal.js", "dist/reveal.css", "plugin/notes/notes.js", "LICENSE")
SENTENCE_END = re.compile(r"(?<=[.!?:])\s+(?=[A-Z`*\[“\"])")
DETAILS = re.compile(r"<details>\s*<summary>(.*?)</summary>(.*?)</details>", re.DOTALL)
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)")
ONLY_SETS_UP = re.compile(r"(import |from |_ = |os\.environ\[|$|#)")


@dataclass(frozen=True)
class Split:
    """A piece of prose: what is shown, and what is said.

    `said` is empty where all of it is shown."""

    shown: str
    said: str = ""


def make_slides(notebooks: list[Path], out: Path) -> list[Path]:
    """Write a page of slides for each notebook, the index, and what they need; the pages come
    back."""
    reveal = reveal_folder()
    out.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        (out / "reveal").mkdir(exist_ok=True)
        shutil.copyfile(reveal / name, out / "reveal" / Path(name).name)

    for name in ("deck.css", "deck.js"):
        shutil.copyfile(HERE / name, out / name)

    pages: list[Path] = []
    titles: list[str] = []
    for path in notebooks:
        nb = read(path)
        page = out / f"{path.stem}.html"
        title = title_of(nb)
        page.write_text(as_page(planned(nb), title), encoding="utf-8")
        pages.append(page)
        titles.append(title)

    (out / "index.html").write_text(index(pages, titles), encoding="utf-8")

    return pages


def lesson_notebooks(root: Path, wanted: list[str]) -> list[Path]:
    """The lessons' notebooks, or those with the numbers `wanted`."""
    notebook_of_number = {
        path.name[:2]: path for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    }
    if unknown := [number for number in wanted if number[:2].zfill(2) not in notebook_of_number]:
        raise CourseError(
            f"There is no lesson {unknown[0]!r}. Lessons: {', '.join(notebook_of_number)}."
        )
    return [notebook_of_number[number[:2].zfill(2)] for number in wanted] or list(
        notebook_of_number.values()
    )


def reveal_folder() -> Path:
    """Where reveal.js lies. Looked up without an import, which would bring Sphinx."""
    package = importlib.util.find_spec("sphinx_revealjs")
    if package is None or not package.submodule_search_locations:
        raise CourseError(
            "Slides need reveal.js, which comes with the extra `site`: pip install -e '.[site]'."
        )
    return Path(next(iter(package.submodule_search_locations))) / "_static" / "revealjs"


def as_page(nb: Notebook, title: str) -> str:
    """`nb`, whose cells say what slide they belong to, as one HTML page."""
    from nbconvert.exporters import SlidesExporter
    from traitlets.config import Config

    template = {"template_name": "deck", "extra_template_basedirs": [str(HERE.parent)]}
    config = Config(
        {
            "SlidesExporter": {
                **template,
                "exclude_input_prompt": True,
                "exclude_output_prompt": True,
            }
        }
    )
    nb.metadata["title"] = title
    return SlidesExporter(config=config).from_notebook_node(nb)[0]


def index(pages: list[Path], titles: list[str]) -> str:
    """The page that leads to each lesson's slides."""
    links = "\n".join(
        f'<li><a href="{page.name}">{html.escape(title)}</a></li>'
        for page, title in zip(pages, titles, strict=True)
    )
    return (HERE / "index_page.html").read_text(encoding="utf-8").replace("LINKS", links)


def title_of(nb: Notebook) -> str:
    """The heading that the notebook begins with."""
    match = None
    if nb.cells:
        match = re.search(r"(?m)^# (.+)$", nb.cells[0].source)
    if match:
        return match[1]
    return "Slides"


# ---- what goes where -----------------------------------------------------------------------------


def planned(nb: Notebook) -> Notebook:
    """The notebook cut into slides: each cell says its `slide_type`, and what is said but not shown
    is a cell of notes."""
    nb = copy.deepcopy(nb)
    deck = Deck()

    for cell in nb.cells:
        own_type = cell.metadata.get("slideshow", {}).get("slide_type", "-")
        if own_type in ("skip", "notes"):
            deck.add(cell, own_type)
        elif cell.cell_type == "markdown":
            deck.prose(cell, own_type)
        else:
            deck.code(cell, own_type)

    deck.say()
    nb.cells = deck.cells

    return nb


class Deck:
    """The cells of the slides so far, and where in the lesson they are."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.where: list[str] = []  # the headings that hold here: section, subsection
        self.waiting_notes: list[str] = []  # notes of the slide that is being filled
        self.has_outputs = True  # the slide shows outputs: the next code cell begins another

    def add(self, cell: Cell, slide_type: str) -> None:
        cell.metadata["slideshow"] = {"slide_type": slide_type}
        self.cells.append(cell)

    def begin(self, slide_type: str) -> None:
        """Later cells stand on a new slide.

        One below another is told where it is; a section has its heading."""
        self.say()
        self.has_outputs = False
        if slide_type == "subslide":
            kicker = " · ".join(html.escape(heading) for heading in self.where)
            self.add(new_markdown_cell(f'<p class="where">{kicker}</p>'), slide_type)

    def make_room(self, own_type: str) -> None:
        """For a cell without a heading: a new slide if the instructor's mark says so, or if this
        one has its picture."""
        if own_type in ("slide", "subslide"):
            self.begin("slide")
        elif own_type == "-" and self.has_outputs:
            self.begin("subslide")

    def say(self) -> None:
        """Put the notes of the slide before behind its cells."""
        if self.waiting_notes:
            self.add(new_markdown_cell("\n\n".join(self.waiting_notes)), "notes")
            self.waiting_notes = []

    def prose(self, cell: Cell, own_type: str) -> None:
        """Put a cell of prose on slides: a new one from each heading on."""
        for n, part in enumerate(sections(cell.source)):
            heading = re.match(r"(#{1,3}) +(.+)\n?", part)
            split = divided(part[heading.end() :] if heading else part)
            shown = split.shown
            slide_type = "-"
            if heading:
                level = len(heading[1])
                # (a slide below another was begun by the cell that says where it is)
                slide_type = "slide" if level < 3 else "-"
                self.where = self.where[:1] if level == 3 else []
                self.begin("subslide" if level == 3 else "slide")
                self.where.append(heading[2])
                shown = f"{heading[0].strip()}\n\n{shown}"
            else:
                self.make_room(own_type)

            self.add(
                new_markdown_cell(shown), own_type if own_type != "-" and n == 0 else slide_type
            )
            if split.said:
                self.waiting_notes.append(split.said)

    def code(self, cell: Cell, own_type: str) -> None:
        """Put a cell of code and its outputs on a slide; one that only sets up is left out."""
        if (
            own_type == "-"
            and not cell.outputs
            and all(map(ONLY_SETS_UP.match, cell.source.splitlines()))
        ):
            return self.add(cell, "skip")

        self.make_room(own_type)

        for output in cell.outputs:
            data = output.get("data", {})
            data.pop("application/vnd.jupyter.widget-view+json", None)
            if "text/html" in data:
                data.pop("text/plain", None)

        # the source holds the answer
        if "Predict(" in cell.source or cell.metadata.get("jupyter", {}).get("source_hidden"):
            cell.metadata["tags"] = ["quiet"]
            self.waiting_notes.append(answer_of(cell.source))

        self.add(cell, own_type)
        self.has_outputs = bool(cell.outputs)


def answer_of(source: str) -> str:
    """What the speaker needs of a cell whose source is hidden: the answer of its question and why,
    or else the source."""
    for call in ast.walk(ast.parse(source)) if "Predict(" in source else ():
        if (
            isinstance(call, ast.Call)
            and ast.unparse(call.func).endswith("Predict")
            and len(call.args) == 2
        ):
            options, rest = (
                ast.literal_eval(call.args[1]),
                {word.arg: ast.literal_eval(word.value) for word in call.keywords},
            )
            return f"**Answer: {chr(97 + rest['answer'])}) {options[rest['answer']]}.** {rest['because']}"

    return f"```python\n{source}\n```"


def sections(text: str) -> list[str]:
    """Prose cut before each heading; a comment in fenced code is none."""
    sections_so_far = [""]
    fenced = False
    for line in text.splitlines(keepends=True):
        fenced ^= line.lstrip().startswith("```")
        if re.match(r"#{1,3} ", line) and not fenced:
            sections_so_far.append("")
        sections_so_far[-1] += line
    return [part for part in sections_so_far if part.strip()]


def divided(text: str) -> Split:
    """Prose as it is shown and said.

    Questions whose answers are folded are shown, their answers said."""
    whole = DETAILS.sub(lambda found: f"**{found[1].strip()}**\n\n{found[2].strip()}", text).strip()
    shown: list[str] = []
    prose = 0  # characters of it that are shown
    for block in blocks(DETAILS.sub(asked, text)):
        on_slide = shortened(block)
        # A list, a table, a picture, a quotation or code has limits of its own (`shortened`).
        if re.match(r"[|>\-*\d`<!]", on_slide):
            shown.append(on_slide)
        elif on_slide and prose < LEAD:
            shown.append(on_slide)
            prose += len(on_slide)

    joined = "\n\n".join(shown)

    return Split(LINK.sub(link_of, joined), "" if joined == whole else LINK.sub(link_of, whole))


def asked(details: re.Match[str]) -> str:
    """The question above a folded answer; what is no question (a solution, a longer listing) is not
    shown."""
    question = re.sub(r"</?code>", "`", details[1]).strip()
    if re.match(r"\d+\. ", question):
        return f"{question}\n\n"
    return ""


def link_of(link: re.Match[str]) -> str:
    """Lessons lead to their slides; other files are not there."""
    text, to = link.groups()
    if to.startswith(("http:", "https:", "#")):
        return link[0]
    lesson = re.fullmatch(r"(\d\d_\w+)\.ipynb", to)
    if lesson:
        return f"[{text}]({lesson[1]}.html)"
    return text


def blocks(text: str) -> list[str]:
    """Paragraphs, lists, tables and fenced code, apart."""
    blocks_so_far = [""]
    fenced = False
    for line in text.strip().splitlines():
        fenced ^= line.lstrip().startswith("```")
        if line.strip() or fenced:
            blocks_so_far[-1] += line + "\n"
        elif blocks_so_far[-1]:
            blocks_so_far.append("")
    return [block.rstrip() for block in blocks_so_far if block.strip()]


def shortened(block: str) -> str:
    """A block as it fits on a slide; empty if it does not."""
    lines = block.splitlines()
    if block.startswith("|"):
        if len(lines) <= MOST_ROWS + _FRAME_LINES:
            return block
        return ""
    if block.startswith("```"):
        if len(lines) <= MOST_LINES + _FRAME_LINES:
            return block
        return ""
    if re.match(r"(-|\*|\d+\.) ", block):
        if len(lines) <= MOST_ITEMS:
            return block
        return ""
    if len(block) <= LEAD or block.startswith(("<", "!")):
        return block
    shown = ""

    for sentence in SENTENCE_END.split(block):
        if shown and len(shown) + len(sentence) > LEAD:
            break
        shown = f"{shown} {sentence}".strip()

    return shown.removesuffix(":")
