#!/bin/sh
# One would guess that Hypothesis draws each element of a large array by itself.
# `hypothesis.extra.numpy.arrays` of 6.170.17 draws a few places and fills the rest with one value. Of 10,000 floats no more than some
# hundred differ, in most of the examples one to ten. A test of a sort or a reduction sees next to no distinct numbers.
# `fill=st.nothing()` draws each element.
#
# Seen 2026-11-28 with hypothesis 6.170.17. For our users: tests of kernels draw a seed, and fill the tensor from it.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install -q --disable-pip-version-check hypothesis==6.170.17 numpy==2.4.6
cd "$place"

"$place/venv/bin/python" -W ignore - <<'PYTHON'
import statistics

import hypothesis
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

distinct = []


@settings(max_examples=100, database=None, derandomize=True)
@given(arrays(np.float64, 10_000, elements=st.floats(0, 1)))
def count(array):
    distinct.append(len(np.unique(array)))


count()
print("hypothesis", hypothesis.__version__)
print("examples", len(distinct))
print("distinct numbers of 10,000: most", max(distinct), "median", statistics.median(distinct))

seen = len(distinct) == 100 and max(distinct) < 1000 and statistics.median(distinct) < 100
print("as described" if seen else "the behaviour has changed")
raise SystemExit(not seen)
PYTHON
