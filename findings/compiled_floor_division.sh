#!/bin/sh
# One would guess that `x // 1` of a compiled function is eager's: for inf that is nan, as in Python and NumPy.
# torch 2.13.0 compiles a division of floats that rounds down as `floor(x / y)`. That is inf for inf // 1, and no nan shows that the program
# went wrong before. Eager computes the rest first. For 1 // 0.1 eager says 9 (0.1 is a little more than a tenth), and the kernel says 10.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU; needs g++). For our users: a bucket `x // width` may be one higher when compiled by torch. The
# kernels of `course_lib` give eager's (tests/07_lowering_to_loops/test_10_special_numbers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import math

import torch


def whole(x, width):
    return x // width


print("torch", torch.__version__)
x, width = torch.tensor([math.inf, 1.0]), torch.tensor([1.0, 0.1])
eager, compiled = whole(x, width).tolist(), torch.compile(whole)(x, width).tolist()
print("eager   ", eager)
print("compiled", compiled)

seen = math.isnan(eager[0]) and eager[1] == 9 and compiled[0] == math.inf
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
