#!/bin/sh
# One would guess that Triton's interpreter adds bfloat16 as the GPU does, or refuses.
# Triton 3.9.0 keeps bfloat16 as the bits of a uint16, and `+` adds the bits: 1 + 2 gives inf, 2 + 2 gives -0. No word is said. The same
# kernel compiled for a GPU adds the numbers. `.to(tl.float32)` before the addition gives the right sum in both.
#
# Seen 2026-11-28 with triton 3.9.0 and torch 2.13.0 (CPU). For our users: a learner without a GPU computes in float32 and rounds at the
# end, as the kernels that `course_lib` prints do.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 triton==3.9.0 numpy==2.3.5
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import os
import pathlib
import runpy

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def add(first, second, out, size: tl.constexpr):
    at = tl.arange(0, size)
    tl.store(out + at, tl.load(first + at) + tl.load(second + at))


@triton.jit
def add_in_float32(first, second, out, size: tl.constexpr):
    at = tl.arange(0, size)
    total = tl.load(first + at).to(tl.float32) + tl.load(second + at).to(tl.float32)
    tl.store(out + at, total.to(tl.bfloat16))


first = torch.tensor([1.0, 2.0], dtype=torch.bfloat16)
second = torch.tensor([2.0, 2.0], dtype=torch.bfloat16)
got = {}
for kernel in (add, add_in_float32):
    out = torch.empty_like(first)
    kernel[(1,)](first, second, out, 2)
    got[kernel.__name__] = out.tolist()
"""
os.environ["TRITON_INTERPRET"] = "1"
pathlib.Path("kernels.py").write_text(KERNELS)  # Triton reads a kernel's source from its file
ran = runpy.run_path("kernels.py")

print("triton", ran["triton"].__version__)
for name, values in ran["got"].items():
    print(f"{name:15} {values}")
print("expected        [3.0, 4.0]")

seen = ran["got"] == {"add": [float("inf"), 0.0], "add_in_float32": [3.0, 4.0]}
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
