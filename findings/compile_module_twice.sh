#!/bin/sh
# One would guess that `torch.compile` of a module that is compiled already gives a module: the same one, or one around it.
# torch 2.13.0 gives a plain function. It computes, but has no `parameters()`, no `train()` and no `state_dict()`. And of a compiled
# `nn.Sequential`, `len` answers and `[0]` does not: "object is not subscriptable".
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: a library that compiles what it is given, and a user who has done so, meet here.
# `cl.compile` of a compiled module is a module; `len`, `[0]` and a loop over it work (tests/03_graph_breaks/test_26_compiled_module.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from torch import nn

print("torch", torch.__version__)
once = torch.compile(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), backend="eager")
twice = torch.compile(once, backend="eager")
print("once: ", type(once).__name__, "len", len(once))
print("twice:", type(twice).__name__, "has parameters():", hasattr(twice, "parameters"))
try:
    first = once[0]
except TypeError as error:
    first = error
print("once[0]:", repr(first))

is_module = isinstance(once, nn.Module), isinstance(twice, nn.Module)
seen = is_module == (True, False) and len(once) == 2 and isinstance(first, TypeError)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
