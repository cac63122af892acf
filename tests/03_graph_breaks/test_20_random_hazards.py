"""Random programs of what goes wrong, warns, hooks in and keeps state agree with eager. (`random_hazards.py` runs more.)"""

from __future__ import annotations

import pytest
import random_hazards

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("start", range(0, 60, 10))
def test_captured_programs_do_what_eager_does(start):
    assert [random_hazards.differs(seed, "eager") for seed in range(start, start + 10)] == [""] * 10


@pytest.mark.parametrize("start", range(100, 130, 10))
def test_compiled_programs_do_what_eager_does(start):
    said = [random_hazards.differs(seed, "inductor") for seed in range(start, start + 10)]
    assert said == [""] * 10


def test_the_comparison_sees_a_difference(monkeypatch):
    """A compiler that drops what a program wrote is told."""

    def forgets(function, **options):
        def run(x, y, w, m, i, out, box):
            result = function(x, y, w, m, i, out, box)
            out.zero_()
            return result

        return run

    monkeypatch.setattr(random_hazards.cl, "compile", forgets)
    told = [random_hazards.differs(seed) for seed in range(60)]

    assert any("what was written" in said for said in told)
