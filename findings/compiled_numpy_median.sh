#!/bin/sh
# One would guess that a compiled function gives NumPy's results with NumPy's shapes.
# torch 2.13.0 replaces NumPy's functions by its own. Its `median` and `percentile` of a whole array give an array of shape (1,), where
# NumPy gives a number: `float(...)` of it still works, a comparison of shapes or a sum with a column does not mean the same any more.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU) and NumPy 2.4.6. For our users: `course_lib` leaves these functions to NumPy.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch


def shapes(x):
    array = x.numpy()
    return [np.shape(np.median(array)), np.shape(np.percentile(array, 50)), np.shape(np.mean(array))]


def values(x):
    array = x.numpy()
    return np.median(array), np.percentile(array, 50), np.mean(array)


x = torch.arange(4.0)
print("torch", torch.__version__, "numpy", np.__version__)
eager = values(x)
compiled = torch.compile(values, backend="eager", fullgraph=True)(x)
for name, one, other in zip(("median", "percentile", "mean"), eager, compiled):
    print(f"{name:10} eager {one} of shape {np.shape(one)}, compiled {other} of shape {np.shape(other)}")

seen = [np.shape(one) for one in eager] == [()] * 3 and [np.shape(one) for one in compiled] == [(1,), (1,), ()]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
