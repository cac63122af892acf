#!/bin/sh
# One would guess that an int argument of a compiled function is a Python int: it may grow beyond 64 bits on the way to a small result.
# torch 2.13.0 compiles `x + (n * n * n * n) % 7` for all n after the second one, and lets the kernel compute it in 64 bits. For n = 10**6
# the product is 10**24: Python's rest is 1, the kernel's is 4. No error and no warning. With backend="eager" the result is Python's.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU; needs g++). For our users: what is hashed or seeded from a size or a step is computed outside of
# the compiled function. In `course_lib` a number of sizes that 64 bits may not hold is computed by Python
# (tests/05_dynamic_shapes/test_13_large_numbers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch


def with_rest(x, n):
    return x + (n * n * n * n) % 7


print("torch", torch.__version__)
zero = torch.zeros(1, dtype=torch.int64)
compiled = torch.compile(with_rest)
results = {}
for n in (3, 5, 10**6):
    results[n] = with_rest(zero, n).item(), compiled(zero, n).item()
    print(f"n = {n}: eager {results[n][0]}, compiled {results[n][1]}")

seen = results[3] == (4, 4) and results[10**6][0] == 1 and results[10**6][1] != 1
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
