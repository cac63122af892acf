"""Sphinx settings of the site. `docs/site/build.py` collects the pages and calls Sphinx with these."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
ABOUT = tomllib.loads((HERE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "torch.compile, taken apart"
author = ABOUT["authors"][0]["name"]
version = release = ABOUT["version"]
copyright = f"{author}, {ABOUT['license']} licence"

extensions = ["myst_nb", "sphinx.ext.autodoc"]
root_doc = "index"
default_role = "code"  # docstrings write `names` as Markdown does

# Notebooks: what is stored is shown, nothing is run.
nb_execution_mode = "off"
nb_merge_streams = True
nb_ipywidgets_js = {}  # widgets have a static form; their scripts would come from a network
myst_enable_extensions = ["colon_fence", "deflist", "html_image"]
myst_heading_anchors = 4
suppress_warnings = [
    "ref.python",  # two classes of one name: an annotation leads to one of them
    "myst.header",  # an exercise begins with the heading of its level
    "misc.highlighting_failure",  # cells with %magic, logs shown as code
    "myst.xref_missing",  # links within a page that nbconvert would make
]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_inherit_docstrings = False  # what torch says of a method is no text of ours
autodoc_preserve_defaults = True  # as the source says them, not by their repr
autodoc_default_options = {"members": True}
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "sphinx_book_theme"
html_title = project
html_favicon = str(HERE / "static" / "favicon.svg")
html_static_path = [str(HERE / "static")]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_show_search_summary = False  # it reads pages by `fetch`, which browsers forbid for files
html_copy_source = False
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_persistent": [],
    "navbar_end": [],
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": False,
    "use_fullscreen_button": False,
    "navigation_with_keys": False,
}

BEGINS = re.compile(r"\s*(?:(In|Out|In PyTorch|Beside):\s+|(- |\d+\. ))")
CODE = re.compile(r"(\w?)`([^`]+)`(\w?)")


def readable(app, what, name, obj, options, lines: list[str]) -> None:
    """Docstrings are plain text with Markdown's backticks, lists and indented examples: say it in reStructuredText."""
    # Some objects have no module, and of some it is None: an instance of a class made in C.
    home = getattr(obj, "__module__", None) or "course_lib"
    if not home.startswith("course_lib"):  # of another library, under a name of ours
        lines[:] = [escaped(lines[0]) if lines else ""]
        return
    if lines[:1] and lines[0].startswith("Alias for field number"):  # what Python says of a named tuple's fields
        lines[:] = []
        return
    made: list[str] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        rows = block.splitlines()
        example = any(re.search(r"\S {3,}\S", row) and not BEGINS.match(row) for row in rows)
        if example or (rows and all(row.startswith("  ") and not BEGINS.match(row) for row in rows)):
            made += ["::", "", *(f"    {row}" for row in rows), ""]
            continue
        for part in parts(rows):
            made += [marked(part), ""]
    lines[:] = made


def parts(rows: list[str]) -> list[str]:
    """A block's paragraphs and list items, each in one line."""
    found = [""]
    for row in rows:
        if found[-1] and BEGINS.match(row):
            found.append("")
        found[-1] = f"{found[-1]} {row.strip()}".strip()
    return found


def marked(part: str) -> str:
    begins = BEGINS.match(part)
    word, bullet = begins.groups() if begins else (None, None)
    head = f"**{word}:** " if word else bullet or ""
    rest = part[begins.end() :] if begins else part
    said, last = "", 0
    for code in CODE.finditer(rest):
        before, text, after = code.groups()
        said += (
            escaped(rest[last : code.start()])
            + (f"{before}\\ " if before else "")
            + f"``{text.strip()}``"  # reStructuredText knows no code that begins with a space
            + (f"\\ {after}" if after else "")
        )
        last = code.end()
    return head + said + escaped(rest[last:])


def escaped(text: str) -> str:
    """Text without backticks, in which only *emphasis* of words means something."""
    return re.sub(r"(?<!\w)(\\\*)(\w[^*`]*?\w|\w)\\\*(?!\w)", r"*\2*", re.sub(r"([\\*_|`])", r"\\\1", text))


VALUE_LETTERS = 70  # a constant's value that is longer is a table, and often names objects and folders of one machine


def without_long_values(app, domain, objtype, content) -> None:
    from sphinx import addnodes

    for signature in content.parent.children[: content.parent.index(content)]:
        for note in [*signature.findall(addnodes.desc_annotation)]:
            if is_long_value(note.astext().strip()):
                note.parent.remove(note)


def is_long_value(text: str) -> bool:
    """What follows a constant's name is not shown: it is no value that is short and the same everywhere."""
    return text.startswith("=") and (len(text) > VALUE_LETTERS or bool(re.search(r" at 0x|['\"]/", text)))


def setup(app) -> None:
    app.connect("object-description-transform", without_long_values)
    app.connect("autodoc-process-docstring", readable)
