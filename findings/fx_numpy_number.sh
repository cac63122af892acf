#!/bin/sh
# One would guess that `symbolic_trace` takes `np.float64(0.5)` as the float that it is (it is a subclass of Python's).
# torch 2.13.0 writes constants into the code of a graph by `repr`, and NumPy 2 prints `np.float64(0.5)`. The trace succeeds; the first call
# raises NameError: name 'np' is not defined. `fx.Interpreter` runs the same graph. A complex number with nan or inf ends likewise (`infj`).
#
# Seen 2026-11-29 with torch 2.13.0 and NumPy 2.4.6. For our users: `float(...)` around numbers from NumPy before a module is traced.
# `course_lib` makes such a number an input or Python's float; its graphs print as Python reads them.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import numpy as np
import torch
from torch import fx


def scaled(x):
    return x * np.float64(0.5)


print("torch", torch.__version__, "NumPy", np.__version__)
module = fx.symbolic_trace(scaled)
print(module.code.strip())
one = torch.ones(1)
interpreted = fx.Interpreter(module).run(one).item()
try:
    called = module.forward(one)
except NameError as error:
    called = error
print("Interpreter", interpreted)
print("module     ", repr(called))

seen = interpreted == 0.5 and isinstance(called, NameError)
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
