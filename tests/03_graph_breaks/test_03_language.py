"""Every part of the language, compared with eager: results, side effects, exceptions, identity, number of graph breaks."""

import pytest
from language_programs import PROGRAMS
from observed import run

import course_lib as cl


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_eager(name):
    function, make, breaks = PROGRAMS[name]
    compiled = cl.compile(function, backend="eager")
    for turn in range(3):
        with cl.record() as trace:
            ours = run(compiled, make, turn)
        assert ours == run(function, make, turn), f"call {turn}"
        if turn == 0:  # where eager raises, the graph ends
            found = [
                problem.reason
                for problem in trace.graph_breaks
                if not problem.reason.startswith("raises ")
            ]
            assert len(found) <= breaks, found
