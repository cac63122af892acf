#!/bin/sh
# One would guess that a fake tensor has the strides of the real one: torch's compiler plans its memory by them.
# In torch 2.13.0 an element-by-element operation on a transposed tensor of shape [1, 5] gives (1, 5) in eager and (1, 1) on fake tensors.
# A dimension of size 1 makes no step, so nobody notices. Once it is expanded and moved, the next operation lays its result out by
# these strides: eager says (20, 10, 2, 1), the fake (2, 2, 4, 1).
#
# Seen 2026-11-28 with torch 2.13.0 (CPU). For our users: a compiled result may lie otherwise in memory than eager's there, with the same
# values; docs/design/not-yet.md says so, and the property test of views leaves such chains out.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import torch
from torch._subclasses.fake_tensor import FakeTensorMode


def column(x):
    return x.mT * 2


def expanded(x):
    return column(x).expand(2, 2, 5, 1).transpose(0, -1) * 2


print("torch", torch.__version__)
x = torch.randn(1, 5)
with FakeTensorMode() as mode:
    fake = mode.from_tensor(x)
    on_fakes = column(fake).stride(), expanded(fake).stride()
in_eager = column(x).stride(), expanded(x).stride()
print("eager", *in_eager)
print("fake ", *on_fakes)

seen = in_eager == ((1, 5), (20, 10, 2, 1)) and on_fakes == ((1, 1), (2, 2, 4, 1))
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
