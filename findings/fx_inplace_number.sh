#!/bin/sh
# One would guess that a `GraphModule` and `fx.Interpreter` compute the same from one graph.
# torch 2.13.0 prints `operator.iadd` as `x += 1;  iadd = x`. For a tensor both names mean the same tensor afterwards. For a number, `+=`
# gives the name `x` a new value, so a later use of `x` sees the sum: the module returns (2, 2), the Interpreter (1, 2).
#
# Seen 2026-11-28 with torch 2.13.0 (CPU). For our users: a graph that mixes sizes and tensors writes `operator.add` for numbers, and an
# in-place operator for tensors only.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import operator

import torch
from torch import fx

graph = fx.Graph()
x = graph.placeholder("x")
graph.output((x, graph.call_function(operator.iadd, (x, 1))))
module = fx.GraphModule({}, graph)

print("torch", torch.__version__)
print(module.code.strip())
printed, interpreted = module(1), fx.Interpreter(module).run(1)
print("module     ", printed)
print("Interpreter", interpreted)

seen = printed == (2, 2) and interpreted == (1, 2)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
