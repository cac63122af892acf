#!/bin/sh
# One would guess that a cell made by `nbformat.v4.new_markdown_cell` fits into any notebook of format 4, or that `nbformat.write` refuses.
# nbformat 5.11.1 gives each new cell an id. A notebook of format 4.4, as editors wrote it before 2021, allows none. `write` writes such a
# notebook all the same, logs an error, and gives no exception; `nbformat.validate` then calls the file invalid.
#
# Seen 2026-11-29 with nbformat 5.11.1. For our users: a script that adds a cell to an old notebook sets `nbformat_minor = 5` first. All
# notebooks of the course have format 4.5.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check nbformat==5.11.1
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import json
import logging
import pathlib

import nbformat
from nbformat import v4

logging.disable(logging.CRITICAL)
old = {
    "cells": [{"cell_type": "markdown", "source": "old", "metadata": {}}],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 4,
}
pathlib.Path("old.ipynb").write_text(json.dumps(old))

notebook = nbformat.read("old.ipynb", as_version=4)
notebook.cells.append(v4.new_markdown_cell("new"))
nbformat.write(notebook, "new.ipynb")

print("nbformat", nbformat.__version__)
written = json.loads(pathlib.Path("new.ipynb").read_text())
has_id = ["id" in cell for cell in written["cells"]]
print("format 4." + str(written["nbformat_minor"]) + ", cells with an id:", has_id)
try:
    nbformat.validate(nbformat.read("new.ipynb", as_version=4))
    said = "valid"
except nbformat.ValidationError as error:
    said = str(error).splitlines()[0]
print(said)

seen = has_id == [False, True] and "'id' was unexpected" in said
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
