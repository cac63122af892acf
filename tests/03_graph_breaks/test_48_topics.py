"""Programs by topic: errors, warnings, identity, writes in place, objects, flow, parts of torch. They do what they do in eager.

`python tests/tools/topics NAME` runs one by itself; what is compared is in `topics/seen.py`.
"""

import pytest
from topics import PROGRAMS
from topics.__main__ import allowed, check

# `make test-fast` runs one in four of them.
NAMES = [
    pytest.param(name, marks=[pytest.mark.slow] if at % 4 else [])
    for at, name in enumerate(PROGRAMS)
]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_gives_what_eager_gives_in_few_graphs(name):
    differences = check(name, PROGRAMS[name], "eager", allowed(name))
    assert not differences, "\n".join(differences)
