#!/bin/sh
# One would guess that a kernel which Triton's interpreter runs is also run when `@triton.autotune` stands above it: with a time for each
# configuration, or with the first of them.
# triton 3.7.1 asks for a driver before it tunes, also with TRITON_INTERPRET=1. Without a GPU a kernel with two configurations raises
# "0 active drivers"; with one configuration there is nothing to tune, and it runs.
#
# Seen 2026-11-29 with triton 3.7.1 and torch 2.13.0, without a GPU. For our users: the simulated GPU takes the first configuration
# (`course_lib/simulator/mends/`).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 triton==3.7.1 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import os
import pathlib
import runpy

KERNELS = """
import torch
import triton
import triton.language as tl


def count(x, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, at, at < size)


def launched(configurations):
    kernel = triton.autotune(configs=configurations, key=["size"])(triton.jit(count))
    x = torch.zeros(10)
    try:
        kernel[lambda meta: (triton.cdiv(10, meta["BLOCK"]),)](x, 10)
    except RuntimeError as error:
        return f"RuntimeError: {error}"
    return x.tolist() == list(range(10))


four, eight = triton.Config({"BLOCK": 4}), triton.Config({"BLOCK": 8})
got = [launched([four]), launched([four, eight])]
"""
os.environ["TRITON_INTERPRET"] = "1"
pathlib.Path("kernels.py").write_text(KERNELS)  # Triton reads a kernel's source from its file
ran = runpy.run_path("kernels.py")

if ran["torch"].cuda.is_available():
    raise SystemExit("this is about a machine without a GPU")
print("triton", ran["triton"].__version__)
print("one configuration: ", ran["got"][0])
print("two configurations:", ran["got"][1])

seen = ran["got"][0] is True and "0 active drivers" in str(ran["got"][1])
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
