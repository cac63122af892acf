"""Each mend of Triton's interpreter: a small kernel that is wrong without it in some version, and right with it."""

import importlib
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import course_lib  # noqa: F401  (before Triton)

pytest.importorskip("triton")
if torch.cuda.is_available():
    pytest.skip("nothing is simulated where there is a GPU", allow_module_level=True)

from course_lib import simulator, versions

simulator.mend_triton()
mends = importlib.import_module("course_lib.simulator.mends")
FIRST, LAST, Mend = mends.FIRST, mends.LAST, mends.Mend

HERE = Path(__file__).parent
CASES = HERE.parent / "tools" / "simulated" / "cases.py"
TRITON = versions.minor(__import__("triton").__version__)

sys.path.insert(0, str(CASES.parent))
cases = __import__("cases")


@pytest.fixture(scope="module")
def plain():
    """What Triton's interpreter gives by itself, in a process of its own: name → answer."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", str(CASES)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_each_mend_has_a_case_and_each_case_a_mend():
    assert {mend.name for mend in mends.MENDS} == set(cases.CASES)


@pytest.mark.parametrize("mend", mends.MENDS, ids=lambda mend: mend.name)
@pytest.mark.filterwarnings("ignore")
def test_with_the_mend_a_kernel_gives_what_a_gpu_gives(mend):
    with simulator.using(collect=True):
        assert cases.answer(mend.name) == cases.CASES[mend.name].on_a_gpu


@pytest.mark.parametrize("mend", mends.MENDS, ids=lambda mend: mend.name)
def test_without_it_the_kernel_is_wrong_in_the_versions_that_are_named(mend, plain):
    if not mend.needed(TRITON):
        pytest.skip(f"not needed in Triton {TRITON[0]}.{TRITON[1]}")
    assert plain[mend.name] != cases.CASES[mend.name].on_a_gpu, "it may be dropped for this version"


def test_a_mend_says_for_which_versions_it_is():
    short = Mend("x", "is wrong", None, (3, 7), (3, 8))
    assert [short.needed((3, minor)) for minor in (6, 7, 8, 9)] == [False, True, True, False]
    assert str(short) == "x (Triton 3.7 to 3.8): is wrong"


def python(program: str, **environment: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


WITH_ANOTHER_VERSION = """
import warnings

import course_lib
from course_lib import versions

versions.minor = lambda version: {version}
if not {whole}:  # as if it had lost a class that the checks need
    import importlib
    before = importlib.import_module
    def lacks_it(name, *rest):
        if name == "course_lib.simulator.mends.watched":
            raise AttributeError("no ScanOps")
        return before(name, *rest)
    importlib.import_module = lacks_it

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    import triton
print(*[warning.message for warning in warned], sep="\\n")
"""


@pytest.mark.parametrize("version", [(4, 0), (3, 5)])
@pytest.mark.parametrize("whole", [True, False])
def test_an_unknown_version_says_so_in_one_line_and_can_be_imported(version, whole):
    said = python(WITH_ANOTHER_VERSION.format(version=version, whole=whole), TRITON_INTERPRET="")
    begin = f"the simulator was tried with Triton {FIRST[0]}.{FIRST[1]} to {LAST[0]}.{LAST[1]}, and this is"
    assert len(said.splitlines()) == 1
    assert said.startswith(begin)
    end = "may differ from a GPU" if whole else "(no ScanOps): kernels do not run as on a GPU"
    assert said.endswith(end)


def test_a_known_version_says_nothing():
    known = WITH_ANOTHER_VERSION.format(version=LAST, whole=True)
    assert python(known, TRITON_INTERPRET="") == ""


WHICH = "; from triton.runtime.interpreter import InterpreterBuilder as B; print(B.cast_impl.__module__)"


def test_nothing_is_mended_without_course_lib():
    said = python("import triton" + WHICH, TRITON_INTERPRET="1")
    assert said == "triton.runtime.interpreter"


def test_importing_course_lib_first_is_enough():
    said = python("import course_lib, triton" + WHICH, TRITON_INTERPRET="")
    assert said.startswith("course_lib.simulator")


FIRST_KERNEL = """
import os
import warnings

import torch

import course_lib
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i) * 2)


x, out = torch.arange(4.0), torch.zeros(4)
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    double_kernel[(1,)](x, out, BLOCK=4)
print(out.tolist(), [str(warning.message) for warning in warned], os.environ["TRITON_DEFAULT_FP_FUSION"])
"""


@pytest.mark.parametrize("said_before", ["", "0"])
def test_the_first_kernel_of_a_process_runs_without_a_warning(said_before, tmp_path):
    """Triton 3.9 warns where `TRITON_DEFAULT_FP_FUSION` is unset. What somebody has set stays."""
    program = tmp_path / "first_kernel.py"
    program.write_text(FIRST_KERNEL)
    names = {"TRITON_INTERPRET", "TRITON_DEFAULT_FP_FUSION"}
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"CUDA_VISIBLE_DEVICES": ""}
    if said_before:
        environment["TRITON_DEFAULT_FP_FUSION"] = said_before

    done = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == f"[0.0, 2.0, 4.0, 6.0] [] {said_before or 1}"


BEFORE_TRITON = {
    "never_written": "import torch; simulator.never_written(torch.empty(3))",
    "faults_of_last_launch": "simulator.faults_of_last_launch()",
    "simulate_gpu": "course_lib.simulate_gpu()",
    "mend_triton": "simulator.switch.choose_interpreter(); simulator.mend_triton()",
}


@pytest.mark.parametrize("name", BEFORE_TRITON)
def test_each_function_of_the_room_may_come_before_triton(name):
    program = f"import course_lib; from course_lib import simulator; {BEFORE_TRITON[name]}"
    said = python(program + "; import triton" + WHICH, TRITON_INTERPRET="")
    assert said.startswith("course_lib.simulator")


TRITON_FIRST = """
import triton
import course_lib as cl

try:
    print(cl.simulate_gpu())
except RuntimeError as error:
    print(error)
"""


def test_triton_that_was_imported_for_its_interpreter_is_mended_afterwards():
    said = python(TRITON_FIRST + WHICH.removeprefix("; "), TRITON_INTERPRET="1")
    sentence, where = said.splitlines()
    assert sentence == "Triton's kernels run in the simulated GPU, with checks."
    assert where.startswith("course_lib.simulator")


@pytest.mark.parametrize(
    ("interpret", "begin"),
    [("", "Triton was imported for a GPU before: "), ("0", "TRITON_INTERPRET=0 switches ")],
)
def test_triton_that_was_imported_for_a_gpu_is_told_in_one_sentence(interpret, begin):
    said = python(TRITON_FIRST, TRITON_INTERPRET=interpret)
    assert said.startswith(begin)
    assert len(said.splitlines()) == 1


def test_simulate_gpu_as_a_block_takes_its_settings_back():
    before = simulator.settings.seed, simulator.settings.checks
    with simulator.simulate_gpu(seed=3, checks=False) as inside:
        assert (inside.seed, inside.checks) == (3, False)
        with simulator.simulate_gpu(seed=4):
            assert (inside.seed, inside.checks) == (4, False)
        assert inside.seed == 3
    assert (simulator.settings.seed, simulator.settings.checks) == before


def test_a_block_that_raises_takes_its_settings_back_too():
    block = simulator.simulate_gpu(seed=3)
    for _ in range(2):
        with pytest.raises(KeyError), block:
            assert simulator.settings.seed == 3
            raise KeyError
        assert simulator.settings.seed is None


def test_a_block_before_triton_switches_the_simulator_on():
    program = "import course_lib as cl\nwith cl.simulate_gpu(): import triton\n"
    assert python(program + WHICH.removeprefix("; "), TRITON_INTERPRET="").startswith("course_lib")


def test_nothing_is_mended_where_there_is_a_gpu():
    pretended = "import torch; torch.cuda.is_available = lambda: True; import course_lib as cl; cl.simulate_gpu(); import triton, os"
    said = python(
        pretended + "; print(os.environ.get('TRITON_INTERPRET', ''))" + WHICH, TRITON_INTERPRET=""
    )
    assert (
        said.splitlines() == ["", "triton.runtime.interpreter"]
        or said == "triton.runtime.interpreter"
    )


def test_a_setting_that_is_none_says_which_there_are():
    with pytest.raises(TypeError, match="no setting `check`; it has refusals, checks"):
        simulator.simulate_gpu(check=False)


def test_warnings_are_not_left_behind():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cases.answer("range")


triton = importlib.import_module("triton")
tl = triton.language


@triton.jit
def write(p, first, N: tl.constexpr):
    tl.store(p + first + tl.arange(0, N), 7)


@triton.jit
def add(p, first, N: tl.constexpr):
    tl.atomic_add(p + first + tl.arange(0, N), 7)


@triton.jit
def exchange_zero(p, first, N: tl.constexpr):
    tl.atomic_cas(p + first + tl.arange(0, N), 0, 7)


@pytest.mark.parametrize(
    "kernel", [write, add, exchange_zero], ids=lambda kernel: kernel.fn.__name__
)
@pytest.mark.parametrize("first", [6, 20], ids=["some lanes", "all lanes"])
def test_lanes_outside_of_the_tensor_are_told_and_leave_memory_alone(kernel, first):
    memory = torch.zeros(64, dtype=torch.int32)
    with simulator.using(collect=True, refusals=False):
        kernel[(1,)](memory[:10], first, 8)

    (sentence,) = simulator.faults_of_last_launch()
    assert f"p[{max(first, 10)}], outside: p ends at p[9]" in sentence
    assert memory.nonzero().ravel().tolist() == list(range(first, 10))
