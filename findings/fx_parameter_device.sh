#!/bin/sh
# One would guess that a function with a parameter `device` is traced like one with a parameter `d`.
# torch 2.13.0 writes a constant device as `device(type='cpu')` into the code of a graph, and keeps the parameter's name: there the parameter
# hides the class. The traced function raises TypeError: 'str' object is not callable. A parameter `inf` does the same to `math.inf`, and
# there is no error: x + math.inf is computed as x + inf, with the caller's number.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: rename such a parameter before a trace by torch.fx. `course_lib` does not trace by
# names (inputs of its graphs have names of their own).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import math

import torch
from torch import fx


def moved(x, device):
    return x.to(torch.device("cpu"))


def far(x, inf):
    return x + math.inf


print("torch", torch.__version__)
one = torch.ones(1)
try:
    called = fx.symbolic_trace(moved).forward(one, "cpu")
except TypeError as error:
    called = error
sums = far(one, 1.0).item(), fx.symbolic_trace(far)(one, 1.0).item()
print("a parameter `device`:", repr(called))
print("a parameter `inf`: eager", sums[0], "traced", sums[1])

seen = isinstance(called, TypeError) and sums == (math.inf, 2.0)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
