"""The simulated GPU beside a recorded one: the 48 kernels of the discovery, our own, random ones."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import course_lib  # noqa: F401  (before Triton)

sys.path.insert(0, str(Path(__file__).parents[1] / "tools" / "simulated"))

pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("nothing is simulated where there is a GPU", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def table():
    return __import__("table")


@pytest.fixture(scope="module")
def answers(table):
    return table.discovery()


def test_every_answer_of_the_discovery_is_of_one_of_four_kinds(table, answers):
    kinds = {table.SAME, table.REFUSED, table.ROUNDING, table.WHY}
    assert [row for row in answers if row.kind not in kinds] == []


def test_all_48_kernels_are_there(answers):
    assert len({row.name.split()[0] for row in answers}) == 48


def test_no_reason_is_given_that_is_not_needed(table, answers):
    used = {row.why for row in answers if row.kind == table.WHY}
    unused = [name for name, why in table.REASONS.items() if why not in used]
    assert set(unused) <= table.NOT_ALWAYS


def test_our_own_kernels_give_what_the_gpu_gave(table):
    _, rows = table.programs(own=True)
    assert len(rows) >= 150
    newer = [row.name for row in rows if row.kind == table.WHY]
    assert set(newer) == (set(table.NEWER_PROGRAMS) if table.TRITON >= (3, 9) else set())
    assert [row for row in rows if row.kind not in (table.SAME, table.ROUNDING, table.WHY)] == []


@pytest.mark.parametrize("first", [0, 300])
def test_random_kernels_give_what_the_gpu_gave(table, first):
    _, rows = table.programs(own=False, first=first, last=first + 150)
    assert [row for row in rows if row.kind == "DIFFERENT"] == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 3200, 400))
def test_all_random_kernels_give_what_the_gpu_gave(table, first):
    _, rows = table.programs(own=False, first=first, last=first + 400)
    assert [row for row in rows if row.kind == "DIFFERENT"] == []


def found(seed):
    """Was the planted fault named? The sentences otherwise."""
    from random_small_kernels import planted
    from small_kernels import run

    from course_lib import simulator

    program, word = planted(seed)
    try:
        run(program, "cpu")
    except simulator.GPUFault as fault:
        named = any(word in sentence for sentence in fault.sentences)
        return None if named else (program.name, fault.sentences)
    return program.name, "nothing was found"


def test_planted_faults_are_found():
    assert [missed for seed in range(100) if (missed := found(seed))] == []


@pytest.mark.slow
def test_500_planted_faults_are_found():
    missed = [answer for seed in range(500) if (answer := found(seed))]
    assert len(missed) <= 25, missed


def test_the_compilers_own_table_of_the_language_is_made_without_patches():
    """Triton's compiler takes `max` from the language when it is imported first. In a launch that would be the simulator's."""
    program = (
        "import sys, course_lib, triton\n"
        "from course_lib.simulator import launching\n"
        "before = launching.tl.core.builtin_max\n"
        "with launching.language_of_the_simulator():\n"
        "    from triton.compiler.code_generator import CodeGenerator\n"
        "print(CodeGenerator.builtin_namespace['max'] is before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )
    assert done.stdout == "True\n", done.stderr


def test_a_question_whether_triton_is_installed_leaves_the_simulator_to_the_import():
    """torch 2.15 asks it while torch is imported. The interpreter was chosen then, and never mended."""
    program = (
        "import importlib.util, os, course_lib\n"
        "importlib.util.find_spec('triton')\n"
        "importlib.util.find_spec('triton')\n"
        "print(os.environ.get('TRITON_INTERPRET'))\n"
        "import triton\n"
        "from triton.runtime import interpreter\n"
        "print(os.environ.get('TRITON_INTERPRET'), interpreter.InterpreterBuilder.create_fmul.__qualname__)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "None\n1 contract.<locals>.create_fmul\n", done.stderr
