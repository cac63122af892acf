#!/bin/sh
# One would guess that an empty tuple of dimensions means the same to all reductions: over none, as in NumPy, or over all.
# In torch 2.13.0 `x.sum(())`, `x.mean(())` and `x.amax(())` reduce over all, `x.all(())` and `x.any(())` over none. `x.nansum(())` has
# no dimensions in eager, and two for the code of a compiled function that asks: its fake tensor is wrong, without a word.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU) and NumPy 2.4.6. For our users: a tuple that may be empty (`dims_to_sum` of a broadcast gradient) is
# asked for before it is used. `course_lib` gives eager's shapes (tests/07_lowering_to_loops/test_10_special_numbers.py).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch

print("torch", torch.__version__, "NumPy", np.__version__)
x = torch.ones(3, 4)
shapes = {name: tuple(getattr(x, name)(()).shape) for name in ("sum", "mean", "amax", "all", "any", "nansum")}
for name, shape in shapes.items():
    print(f"{name}(()):", shape)
compiled = torch.compile(lambda x: tuple(x.nansum(()).shape), backend="eager")
print("nansum(()) for compiled code:", compiled(x))
print("sum of NumPy:", np.ones((3, 4)).sum(()).shape)

over_all = [shapes[name] for name in ("sum", "mean", "amax", "nansum")]
over_none = [shapes["all"], shapes["any"], compiled(x), np.ones((3, 4)).sum(()).shape]
seen = over_all == [()] * 4 and over_none == [(3, 4)] * 4
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
