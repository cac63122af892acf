#!/bin/sh
# nbdime 4.0.4: `nbmerge --merge-strategy use-remote` keeps the local side's line, too, and joins it to the remote's line.
#
# Three notebooks of one cell. The local side adds a line below the cell's only line; the remote side changes that line. Their
# changes meet, and one would guess that `use-remote` gives the remote's text. It gives both in one line, which is no Python any more.
#
# Seen 2026-11-28 with nbdime 4.0.4. For our users: `course update` merges learners' copies by itself and does not use this strategy.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check nbdime==4.0.4
cd "$place"

"$place/venv/bin/python" - <<'EOF'
import nbformat
from nbformat.v4 import new_code_cell, new_notebook

for name, source in {
    "base": "total(1, 2)",
    "local": "total(1, 2)\nprint('mine')",
    "remote": "total(3, 2)",
}.items():
    nbformat.write(new_notebook(cells=[new_code_cell(source, id="total")]), f"{name}.ipynb")
EOF

for strategy in use-remote use-base use-local; do
    "$place/venv/bin/nbmerge" --merge-strategy "$strategy" --out "$strategy.ipynb" base.ipynb local.ipynb remote.ipynb \
        >/dev/null 2>&1 || true
done

"$place/venv/bin/python" - <<'EOF'
import importlib.metadata
import nbformat

print("nbdime", importlib.metadata.version("nbdime"))
got = {s: nbformat.read(f"{s}.ipynb", 4).cells[0].source for s in ("use-remote", "use-base", "use-local")}
for strategy, source in got.items():
    print(f"{strategy:11} {source!r}")
print("expected    use-remote 'total(3, 2)', use-base 'total(1, 2)'")
seen = got["use-remote"] == "total(3, 2)print('mine')"
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
EOF
