#!/bin/sh
# One would guess that a notebook which goes to a script of jupytext's percent format and back is the same but for its outputs, since
# tags and other metadata are kept.
# jupytext 1.19.6 does not write the ids of cells: the way back gives each a new, random one. And a line that begins with `# %%` inside of
# a code cell begins a cell there: one cell comes back as two.
#
# Seen 2026-11-29 with jupytext 1.19.6. For our users: learners' copies are merged by the ids of cells, so a copy that went through a
# script is merged as if all of its cells were new.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check jupytext==1.19.6 nbformat==5.11.1
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import importlib.metadata

import jupytext
from nbformat import v4

notebook = v4.new_notebook(
    cells=[
        v4.new_code_cell("x = 1", id="answer", metadata={"tags": ["mine"]}),
        v4.new_code_cell("y = 2\n# %% the second part\nz = 3", id="split"),
    ]
)
back = jupytext.reads(jupytext.writes(notebook, fmt="py:percent"), fmt="py:percent")

print("jupytext", importlib.metadata.version("jupytext"))
for cell in back.cells:
    print(cell.cell_type, "tags", cell.metadata.get("tags", []), "id kept:", cell.id in ("answer", "split"), repr(cell.source))

seen = (
    [cell.source for cell in back.cells] == ["x = 1", "y = 2", "z = 3"]
    and back.cells[0].metadata.get("tags") == ["mine"]
    and not {"answer", "split"} & {cell.id for cell in back.cells}
)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
