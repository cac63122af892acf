"""Random programs with branches, loops, closures, exceptions, mutation and graph breaks, held against eager."""

import pytest
from random_programs import differs

from course_lib import frames


@pytest.mark.skipif(
    not frames.installed(), reason="without the hook resume functions are not captured"
)
@pytest.mark.parametrize("start", range(0, 60, 10))
def test_random_programs_agree_with_eager(start):
    """(`python tests/tools/random_programs.py --count 20000` runs as many as you have time for.)"""
    for seed in range(start, start + 10):
        assert differs(seed) == ""
