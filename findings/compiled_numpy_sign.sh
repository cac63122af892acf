#!/bin/sh
# One would guess that NaN stays NaN in `np.sign`, compiled or not.
# torch 2.13.0 replaces `np.sign` by `torch.sign`, for which the sign of NaN is 0. So a compiled function hides a NaN that the same
# function shows without being compiled, and says nothing. Other functions keep it: `np.sqrt`, `np.maximum`.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU) and NumPy 2.4.6. For our users: `course_lib` captures a function of NumPy only where torch's
# gives NumPy's very result.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch


def signs(x):
    return np.sign(x.numpy())


def larger(x):
    return np.maximum(x.numpy(), 0.0)


x = torch.tensor([2.0, float("nan"), -3.0])
print("torch", torch.__version__, "numpy", np.__version__)
got = {}
for function in (signs, larger):
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    got[function.__name__] = [run(x).tolist() for run in (function, compiled)]
    print(f"{function.__name__:6} eager {got[function.__name__][0]}, compiled {got[function.__name__][1]}")

seen = str(got["signs"]) == "[[1.0, nan, -1.0], [1.0, 0.0, -1.0]]" and str(got["larger"]) == "[[2.0, nan, 0.0], [2.0, nan, 0.0]]"
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
