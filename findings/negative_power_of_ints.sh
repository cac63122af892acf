#!/bin/sh
# One would guess that `2 ** torch.tensor([-1])` is 0.5, or that it raises as `torch.tensor([2]) ** -1` does: "integers to negative integer
# powers are not allowed".
# torch 2.13.0 looks at the exponent only where it is a number. Of a tensor of exponents the result is an integer: 0, or 1 and -1 for these
# bases. No word is said.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: `0.5 ** steps` and `2.0 ** -steps` are meant, with a point. `course_lib` gives
# eager's integers, and raises where eager raises (tests/07_lowering_to_loops/test_10_special_numbers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch

print("torch", torch.__version__)
halves = 2 ** torch.tensor([-1, -2])
print("2 ** tensor([-1, -2])  ", halves)
bases = torch.tensor([2, 1, -1]) ** torch.tensor([-1, -1, -1])
print("tensor ** tensor       ", bases)
try:
    raised = torch.tensor([2]) ** -1
except RuntimeError as error:
    raised = error
print("tensor([2]) ** -1      ", repr(raised))

seen = halves.tolist() == [0, 0] and bases.tolist() == [0, 1, -1] and isinstance(raised, RuntimeError)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
