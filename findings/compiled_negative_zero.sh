#!/bin/sh
# One would guess that a compiled function divides by -0.0 when it is given -0.0: eager's result is -inf then.
# torch 2.13.0 makes a constant of a float argument and guards it with `==`. 0.0 and -0.0 are equal, so the program for 0.0 serves -0.0, too:
# the result is +inf, and no word is said. The other way round it is -inf for 0.0. From a second value on the number is an input, and the
# sign is right: it depends on what was called first.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU; needs g++ for the default backend, so this uses "eager", where it is the same). For our users:
# `course_lib` guards a float by its bits; tests/05_dynamic_shapes/test_02_floats.py draws -0.0 among its numbers.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch


def divided(x, n):
    return x / n


print("torch", torch.__version__)
one = torch.ones(1)
compiled = torch.compile(divided, backend="eager")
first, second = compiled(one, 0.0).item(), compiled(one, -0.0).item()
print("eager   ", divided(one, 0.0).item(), divided(one, -0.0).item())
print("compiled", first, second)

seen = (first, second) == (float("inf"), float("inf")) and divided(one, -0.0).item() == float("-inf")
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
