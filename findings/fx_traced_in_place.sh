#!/bin/sh
# One would guess that `symbolic_trace` records `y += 1` as the write that it is, or refuses, as it refuses `y[0] = 5`.
# torch 2.13.0 records `y + 1`: a Proxy has no `__iadd__`, so Python takes `__add__`. A function that writes to its argument through `+=`
# becomes a module that leaves it alone and returns another number. `y.add_(1)` is recorded as a write.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: capture from bytecode (lesson 02) sees the instruction, and keeps the write.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from torch import fx


def plus_is(x):
    y = x
    y += 1
    return x * 10


def add_(x):
    y = x
    y.add_(1)
    return x * 10


def outcome(function):
    x = torch.zeros(2)
    result = function(x)
    return x.tolist(), result.tolist()


print("torch", torch.__version__)
eager = outcome(plus_is)
traced = outcome(fx.symbolic_trace(plus_is))
print("`+=` in eager:       argument and result", *eager)
print("`+=` traced:         argument and result", *traced)
method = outcome(fx.symbolic_trace(add_))
print("`.add_(1)` traced:   argument and result", *method)

right, kept = ([1.0, 1.0], [10.0, 10.0]), ([0.0, 0.0], [0.0, 0.0])
seen = eager == method == right and traced == kept
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
