#!/bin/sh
# One would guess that removing dead code from a graph leaves the result alone.
# In torch 2.13.0 `Graph.eliminate_dead_code` removes `x.add_(1)` and `torch.relu_(x)` of a symbolically traced function when nobody uses
# what they return: the name of a method or of a builtin tells it nothing about what is written. The overload `aten.add_.Tensor` is kept,
# since its schema says so. No warning.
#
# Seen 2026-11-28 with torch 2.13.0 (CPU). For our users: give `is_impure_node`, or let dead code be removed from graphs of aten overloads
# only, as our compiler does.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from torch import fx


def with_method(x):
    x.add_(1)
    return x * 2


def with_builtin(x):
    torch.relu_(x)
    return x * 2


def with_overload(x):
    torch.ops.aten.add_.Tensor(x, 1)
    return x * 2


print("torch", torch.__version__)
found = {}
for function in (with_method, with_builtin, with_overload):
    traced = fx.symbolic_trace(function)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    found[function.__name__] = function(torch.tensor(-3.0)).item(), traced(torch.tensor(-3.0)).item()
    print(f"{function.__name__:13} before {found[function.__name__][0]}, after {found[function.__name__][1]}")

seen = found == {"with_method": (-4, -6), "with_builtin": (0, -6), "with_overload": (-4, -4)}
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
