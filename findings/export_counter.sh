#!/bin/sh
# One would guess that `torch.export` refuses a module whose `forward` counts its calls in an int, or keeps the counter as state.
# torch 2.13.0 does neither: the count of the one traced call becomes a constant of the program. Without a warning the program returns
# x + 1 in each call, where the module returns x + 1, x + 2, x + 3. (It does warn where `forward` stores a tensor in an attribute.)
#
# Seen 2026-11-28 with torch 2.13.0 (CPU). For our users: state of an exported module is a buffer (`register_buffer`), which the program
# keeps. `course_lib` makes an int attribute an input of the graph, so its result is eager's.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import warnings

import torch


class Counts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x + self.calls


module = Counts()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    exported = torch.export.export(module, (torch.zeros(1),)).module()
told = [str(one.message) for one in told if "calls" in str(one.message) or "attribute" in str(one.message)]
from_program = [exported(torch.zeros(1)).item() for _ in range(3)]
after_export = module.calls
from_module = [module(torch.zeros(1)).item() for _ in range(3)]

print("torch", torch.__version__)
print("calls counted after the export:", after_export)
print("program", from_program)
print("module ", from_module)
print("warnings about it:", told)

seen = from_program == [1, 1, 1] and from_module == [1, 2, 3] and after_export == 0 and not told
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
