#!/bin/sh
# One would guess that `x[torch.randperm(8)]`, a shuffle, compiles like any other index: eager, and `torch.compile` with "aot_eager", run it.
# In torch 2.13.0 the default backend raises BackendCompilerFailed: TorchInductor has a pattern for an index by a permutation that is cut
# (`randperm(n)[:k]`), takes this program for it, and misses the pattern's input `slice_shape`. `x + torch.randperm(8)` compiles.
#
# Seen 2026-11-29 with torch 2.13.0 (CPU). For our users: write `x.index_select(0, order)` with an order that is made outside, or
# cut the permutation yourself. Ours compiles it.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

cat > shuffle.py <<'PYTHON'
import torch


def shuffled(x):
    return x[torch.randperm(8)]


print("torch", torch.__version__)
x = torch.arange(8.0)
found = {}
for backend in ("eager", "aot_eager", "inductor"):
    try:
        found[backend] = sorted(torch.compile(shuffled, backend=backend)(x).tolist()) == x.tolist()
    except Exception as error:
        found[backend] = type(error).__name__
        print(str(error).splitlines()[1][:140])
    print(f"{backend:9} {found[backend]}")

seen = found == {"eager": True, "aot_eager": True, "inductor": "BackendCompilerFailed"}
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
"$place/venv/bin/python" -W ignore shuffle.py
