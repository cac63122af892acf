#!/bin/sh
# One would guess that `x ** 0.5` and `x ** torch.tensor([0.5])` give the same, since all numbers 0.5 are equal.
# torch 2.13.0 takes the square root for the number, and the power of C for the tensor. They differ where IEEE says so: the root of -inf is
# nan and the power is inf; the root of -0.0 is -0.0 and the power is 0.0.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: whoever makes a learnable exponent of a number changes the result for -inf. A
# compiler must not take one form for the other: `course_lib` did, where g++ vectorized (`gpp_pow_in_loops.sh`)
# (tests/07_lowering_to_loops/test_10_special_numbers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import math

import torch

print("torch", torch.__version__)
x = torch.tensor([-math.inf, -0.0, 4.0])
by_number, by_tensor = x**0.5, x ** torch.tensor([0.5])
print("x              ", x.tolist())
print("by the number  ", by_number.tolist())
print("by the tensor  ", by_tensor.tolist())

signs = by_number[1].signbit().item(), by_tensor[1].signbit().item()
seen = by_number[0].isnan().item() and by_tensor[0].item() == math.inf and signs == (True, False)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
