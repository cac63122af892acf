#!/bin/sh
# One would guess that `x == 257` is False for bytes and `x > 200` is False for int8: no such number has that dtype. NumPy 2 says so.
# torch 2.13.0 converts the number to the dtype first, and keeps its low bits: 257 is 1, -1 is 255, 200 is -56. So 1 == 257, 1 < -1 and, for
# int8, 1 > 200 are all True. No word is said, where `torch.full_like(x, 257)` raises.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU) and NumPy 2.4.6. For our users: masks and labels in uint8 are compared after `.int()`. A compiled
# function gives eager's answer (tests/07_lowering_to_loops/test_10_special_numbers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch


def answers(byte, small):
    return [bool((byte == 257)[0]), bool((byte < -1)[0]), bool((small > 200)[0])]


print("torch", torch.__version__, "NumPy", np.__version__)
of_torch = answers(torch.tensor([1], dtype=torch.uint8), torch.tensor([1], dtype=torch.int8))
of_numpy = answers(np.array([1], np.uint8), np.array([1], np.int8))
print("1 == 257, 1 < -1, 1 > 200: torch", of_torch, "NumPy", of_numpy)

seen = of_torch == [True, True, True] and of_numpy == [False, False, False]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
