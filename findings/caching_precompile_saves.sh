#!/bin/sh
# torch 2.13.0: TORCH_CACHING_PRECOMPILE=1 keeps nothing for the next process, unless save_cache_artifacts() is called.
#
# The setting is to keep what capture found, so that a second process captures nothing. The other caches of torch.compile are written
# while it compiles, so one would guess that this one is, too. It is written by `torch.compiler.save_cache_artifacts()`: with that call at
# the end of the first process the second finds everything; without it the second captures again, and nothing is said.
#
# Seen 2026-11-28 with torch 2.13.0 (CPU; needs g++). For our users: lesson 14 says so and makes the call.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check torch==2.13.0 numpy==2.3.5
cd "$place"

cat > program.py <<'PYTHON'
import sys

import torch
from torch._dynamo.utils import counters


def doubled(x):
    return torch.nn.functional.gelu(x * 2 + 1)


torch.compile(doubled)(torch.randn(8, 8))
if sys.argv[1] == "saves":
    torch.compiler.save_cache_artifacts()
print(counters["stats"]["unique_graphs"], "captured")
PYTHON

run() { TORCH_CACHING_PRECOMPILE=1 TORCHINDUCTOR_CACHE_DIR="$place/$1" venv/bin/python -W ignore program.py "$1" 2>/dev/null; }
venv/bin/python -c 'import torch; print("torch", torch.__version__)'
plain="$(run plain), then $(run plain)"
saves="$(run saves), then $(run saves)"
echo "without the call: $plain"
echo "with it:          $saves"

if [ "$plain" = "1 captured, then 1 captured" ] && [ "$saves" = "1 captured, then 0 captured" ]; then
    echo "as described"
else
    echo "the behaviour has changed"
    exit 1
fi
