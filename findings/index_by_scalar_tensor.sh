#!/bin/sh
# One would guess that `x[i]` is a copy where `i` is a tensor, as for every index of tensors, so that `x[i].add_(1)` leaves x alone.
# In torch 2.13.0 an integer tensor without dimensions counts as a number there: `x[torch.tensor(0)]` is a view of x, and writing to it writes
# to x. `x[torch.tensor([0])]` is a copy. (`x.argmax()` gives the first kind, so `x[x.argmax()]` is a view.)
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: `row = x[x.argmax()]` wants `.clone()` before it is written to. Capture follows
# eager, compiled or not (tests/07_lowering_to_loops/test_10_special_numbers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch

print("torch", torch.__version__)
x = torch.zeros(3)
x[torch.tensor([0])].add_(100)
after_list = x.tolist()
x[torch.tensor(0)].add_(100)
after_number = x.tolist()
print("x after x[tensor([0])].add_(100)", after_list)
print("x after x[tensor(0)].add_(100)  ", after_number)

seen = after_list == [0.0, 0.0, 0.0] and after_number == [100.0, 0.0, 0.0]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
