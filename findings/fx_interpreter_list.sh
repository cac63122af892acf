#!/bin/sh
# One would guess that a function called from a graph gets the same arguments from `fx.Interpreter` and from the module's own code.
# In torch 2.13.0 the Interpreter hands over the graph's own `immutable_list` where the code builds a plain list. A function that sorts or
# fills its list works in the module and raises TypeError in the Interpreter.
#
# Seen 2026-11-28 with torch 2.13.0 (CPU). For our users: an operator of one's own that is called in a graph copies a list before it changes
# it; checking a graph in the Interpreter alone is not checking the module.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from torch import fx


@fx.wrap
def largest_first(sizes):
    sizes.sort(reverse=True)
    return sizes


print("torch", torch.__version__)
graph = fx.Graph()
one = graph.placeholder("one")
graph.output(graph.call_function(largest_first, ([one, 5, 3],)))
module = fx.GraphModule({}, graph)
printed = module(1)
print("module     ", printed)
try:
    interpreted = fx.Interpreter(module).run(1)
except TypeError as error:
    interpreted = f"TypeError: {str(error).splitlines()[0]}"
print("Interpreter", interpreted)

seen = printed == [5, 3, 1] and str(interpreted).startswith("TypeError: 'immutable_list'")
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
