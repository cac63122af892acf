"""What stays in the graph: assertions about data, modules and parameters made inside, cached functions, ..."""

import subprocess
import sys

import pytest
import torch
from dynamo_programs import PROGRAMS
from observed import run

import course_lib as cl


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_eager_in_few_graphs(name):
    function, make, allowed = PROGRAMS[name]
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = cl.compile(function, backend=backend)
    for turn in range(3):
        ours = run(compiled, make, turn)
        if turn == 0:
            assert len(graphs) <= allowed
        assert ours == run(function, make, turn), f"call {turn}"


def test_an_assertion_that_fails_leaves_everything_as_eager_does():
    seen = []

    def f(x, limit):
        seen.append(1)
        y = x * 2
        assert y.sum() < limit, f"more than {limit}"
        seen.append(2)
        return y

    compiled = cl.compile(f, backend="eager", fullgraph=True)
    assert compiled(torch.ones(3), 10).tolist() == [2, 2, 2]
    with pytest.raises(AssertionError, match="more than 10"):
        compiled(torch.ones(3) * 9, 10)
    assert seen == [1, 2, 1]


def test_importing_the_compiler_imports_no_other():
    """TorchDynamo and Triton take a second to import, and Triton settles for a mode when it is."""
    code = "import sys, course_lib; print({'triton', 'torch._dynamo', 'torch._inductor'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
