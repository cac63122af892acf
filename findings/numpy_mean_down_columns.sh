#!/bin/sh
# One would guess that the mean of 2**25 ones in float32 is 1 along each axis, since NumPy adds in pairs.
# NumPy 2.4.6 adds in pairs only along the axis that is contiguous in memory. Down the columns of a C-ordered array it adds row after row
# in float32: the sum stops at 2**24, and the mean of the ones is 0.5. The same numbers in a transposed copy give 1.
#
# Seen 2026-11-28 with NumPy 2.4.6 (the array takes 256 MiB). For our users: NumPy's float32 is no reference for a reduction. The tests
# compare with eager's result and with a float64 sum.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check numpy==2.4.6
cd "$place"

"$place/venv/bin/python" - <<'PYTHON'
import numpy as np

ones = np.ones((2**25, 2), np.float32)
down = ones.mean(axis=0).tolist()
along = np.ascontiguousarray(ones.T).mean(axis=1).tolist()

print("numpy", np.__version__)
print("mean down the columns    ", down)
print("the same numbers, in rows", along)

seen = down == [0.5, 0.5] and along == [1.0, 1.0]
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
