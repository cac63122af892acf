"""What takes seconds to load (torch, all of the compiler) is loaded when it is wanted, and then it is all there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import course_lib as cl

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "numpy", "sympy", "rfc3987_syntax")


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_course_lib_alone_loads_no_torch():
    program = "import sys, course_lib, course_lib.grading; print(*sys.modules)"
    assert not {"torch", "numpy", "course_lib.capture"} & set(run(program).split())


WATCHED = f"""import sys, json
from course_lib.grading.cli import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
print(json.dumps([name for name in {HEAVY} if sys.modules.get(name)]))"""


@pytest.mark.parametrize(
    "command", ["--help", "progress", "check --help", "check nothing", "start nothing"]
)
def test_a_learners_command_loads_no_torch_in_its_own_process(command):
    assert json.loads(run(WATCHED, *command.split()).splitlines()[-1]) == []


@pytest.mark.slow
def test_every_public_name_is_there_whichever_is_asked_for_first():
    program = "import sys, course_lib as cl; [getattr(cl, name) for name in sys.argv[1:]]; print(*sorted(vars(cl)))"
    # these come from the pictures and from the simulator, which are loaded only when they are wanted
    lazy = {"explain", "explore", "mirror", "record", "set_logs", "simulate_gpu"}
    every = set(cl.__all__) - lazy
    for first in ("compile", "record", "capture"):
        found = set(run(program, first, *cl.__all__).split())
        assert every <= found, first
    assert set(cl.__all__) <= set(dir(cl))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = cl.nothing


MODES = {
    "the meta device": "torch.device('meta')",
    "inference": "torch.inference_mode()",
    "fake tensors": "FakeTensorMode()",
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_mode_that_is_on_at_the_first_use_changes_nothing_of_what_is_loaded(mode):
    program = f"""import torch, course_lib as cl
from torch._subclasses import FakeTensorMode
torch.set_default_dtype(torch.float64)
with {MODES[mode]}:
    cl.compile
x = torch.arange(6.0).reshape(2, 3)
print(torch.equal(cl.compile(lambda x: torch.softmax(x, 1) + 1)(x), torch.softmax(x, 1) + 1))"""
    assert run(program).strip() == "True"


def test_a_function_may_ask_whether_it_is_compiled_before_anything_else_was_asked():
    program = """import torch, course_lib as cl
from course_lib.compiler import compile
print(compile(lambda x: x + 1 if cl.is_compiling() else x)(torch.zeros(1)).item())"""
    assert run(program).strip() == "1.0"


@pytest.mark.slow
@pytest.mark.parametrize(
    "module",
    ["frames.hook", "capture", "guards", "autograd", "lowering", "scheduling", "codegen", "runtime", "viz", "bench", "lessons", "tools"],
)  # fmt: skip
def test_any_room_can_be_the_first_that_is_imported(module):
    run(f"import course_lib.{module}")
