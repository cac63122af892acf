#!/bin/sh
# One would guess that a notebook passes nbval once nbclient has run and stored it.
# nbval 0.11.0 does not follow an update of a display (`handle.update(...)`, as a progress line or a live table does it). nbclient 0.11.0
# stores what is shown in the end, "2 of 2"; nbval compares that with what was shown first, "1 of 2", and fails. The other way round, a
# notebook that stores the first text passes, whatever the update shows.
#
# Seen 2026-11-28 with nbval 0.11.0 and nbclient 0.11.0. For our users: no cell of the course updates an output of an earlier state; it
# shows the end once, or a widget whose text form is stored.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check nbval==0.11.0 nbclient==0.11.0 ipykernel==7.4.0 pytest==9.2.0
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import importlib.metadata
import subprocess
import sys

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook

notebook = new_notebook(
    cells=[
        new_code_cell("handle = display('1 of 2', display_id=True)"),
        new_code_cell("handle.update('2 of 2')"),
    ]
)


def verdict(name):
    nbformat.write(notebook, name)
    command = [sys.executable, "-m", "pytest", "-q", "--nbval", "--nbval-current-env", name]
    return subprocess.run(command, capture_output=True, text=True).returncode == 0


NotebookClient(notebook).execute()
stored = notebook.cells[0].outputs[0].data["text/plain"]
passes_as_stored = verdict("stored.ipynb")
notebook.cells[0].outputs[0].data["text/plain"] = "'1 of 2'"
passes_with_first = verdict("first.ipynb")

print("nbval", importlib.metadata.version("nbval"))
print("stored by nbclient:", stored)
print("passes as stored:", passes_as_stored)
print("passes with the first text:", passes_with_first)

seen = stored == "'2 of 2'" and not passes_as_stored and passes_with_first
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
