"""Programs by topic: errors, warnings, identity, writes in place. They do what they do in eager.

`python tests/tools/topics NAME` runs one by itself; what is compared is in `topics/seen.py`.
"""

import pytest
from topics import PROGRAMS
from topics.__main__ import allowed, check


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_eager_gives_in_few_graphs(name):
    differences = check(name, PROGRAMS[name], "eager", allowed(name))
    assert not differences, "\n".join(differences)
