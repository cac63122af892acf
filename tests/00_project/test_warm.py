"""A kernel that is forked into its sandbox has the walls of one that was started there."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.grading import kernel, sandbox, warm
from course_lib.grading.runner import Limits, run_notebook


@pytest.fixture(autouse=True)
def from_the_first_on(request, monkeypatch):
    """Kernels are forked from the first one on."""
    if "both" not in request.fixturenames:
        monkeypatch.setattr(warm, "WORTH", 0)


needs_walls = pytest.mark.skipif(bool(sandbox.why_no_sandbox()), reason=sandbox.why_no_sandbox())

# answers by raising, as the grader's own cells do
LOOK = r"""
import json, os, resource, signal, sys, threading
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
rights = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp", "Umask",
          "SigBlk", "SigIgn")
env = {name: os.environ[name] for name in sorted(os.environ)}
def mounts():
    return sorted(" ".join(line.split()[:4]) for line in open("/proc/self/mounts"))
def opened():
    found = []
    for n in os.listdir("/proc/self/fd"):
        try:
            about = os.readlink(f"/proc/self/fd/{n}")
        except OSError:
            continue
        if "/ipython/" not in about:  # the history's files come and go
            found.append(about.split(":")[0] if ":" in about else about)
    return sorted(set(found))
def refused(what):
    try:
        what()
    except OSError as error:
        return error.__class__.__name__
    return "allowed"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
seen = {
    "rights": {name: status.get(name) for name in rights},
    "limits": {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
    "environment": env,
    "mounts": mounts(),
    "top": sorted(os.listdir("/")),
    "work": os.getcwd(),
    "path": sys.path,
    "opened": opened(),
    "processes": len([n for n in os.listdir("/proc") if n.isdigit()]),
    "network": sorted(os.listdir("/sys/class/net")) if os.path.isdir("/sys/class/net") else [],
    "interfaces": open("/proc/net/dev").read().count(":"),
    "host": os.uname().nodename,
    "nice": os.nice(0),
    "write /": refused(lambda: open("/x", "w")),
    "write /usr": refused(lambda: open("/usr/x", "w")),
    "kill all": refused(lambda: os.kill(1, 9)),
    "mount": libc.mount(b"none", b"/tmp", b"tmpfs", 0, None),
    "namespaces": len(os.listdir("/proc/self/ns")),
    "main": sys.modules["__main__"].__name__,
    "argv": sys.argv[1:2],
    "tracing": [str(sys.gettrace()), str(threading.gettrace())],
    "handlers": [str(signal.getsignal(n)).split(" at ")[0] for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)],
    "collector": __import__("gc").isenabled(),
    "bytecode": sys.dont_write_bytecode,
}
raise RuntimeError(json.dumps(seen))
"""


def look(folder: Path, group: Path | None = None) -> dict:
    """What a cell sees in a sandbox that has this folder."""
    nb = new_notebook(cells=[new_code_cell(LOOK)])
    (run,) = run_notebook(nb, folder, Limits(), sandbox.Sandbox(folder, pen=group))
    assert run.ename == "RuntimeError", run
    text = run.evalue.replace(str(folder), "FOLDER")
    return json.loads(text)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """The same looks from a warm kernel and from one that was started in the ordinary way."""
    if sandbox.why_no_sandbox():
        pytest.skip(sandbox.why_no_sandbox())
    seen = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm, "WORTH", 0)
        seen["warm"] = look(tmp_path_factory.mktemp("a"))
        if warm.NURSERY.why_not:
            pytest.skip(f"kernels cannot be forked into a sandbox here: {warm.NURSERY.why_not}")
        patch.setattr(warm, "WORTH", 1 << 30)
        seen["cold"] = look(tmp_path_factory.mktemp("b"))
    return seen


SAME = (
    "limits", "environment", "mounts", "top", "work", "path", "opened", "network", "interfaces",
    "host", "nice", "write /", "write /usr", "mount", "namespaces", "main", "argv",
    "tracing", "handlers", "collector", "bytecode",
)  # fmt: skip


@pytest.mark.slow
@needs_walls
@pytest.mark.parametrize("what", SAME)
def test_inside_a_warm_kernel_it_looks_as_inside_a_cold_one(both, what):
    assert both["warm"][what] == both["cold"][what]


@pytest.mark.slow
@needs_walls
def test_a_warm_kernel_has_no_right_that_a_cold_one_has_not(both):
    warm_rights, cold_rights = both["warm"]["rights"], both["cold"]["rights"]
    for name in warm_rights:
        if name.startswith("Cap"):
            assert not int(warm_rights[name], 16) & ~int(cold_rights[name], 16), name
        else:
            assert warm_rights[name] == cold_rights[name], name
    assert both["warm"]["processes"] <= both["cold"]["processes"] + 1  # the sleeper


@pytest.mark.slow
@needs_walls
def test_kernels_of_two_students_share_nothing(tmp_path):
    """What one leaves (names, files in /tmp, a process) the next does not find; and nothing runs on."""
    first = """
import builtins, os, course_lib, subprocess, sys
builtins.left = course_lib.left = 1
open("/tmp/left", "w").write("x")
os.environ["LEFT"] = "1"
subprocess.Popen(["sleep", "987"], start_new_session=True)
"""
    second = """
import builtins, os, course_lib
assert not hasattr(builtins, "left") and not hasattr(course_lib, "left")
assert not os.path.exists("/tmp/left") and "LEFT" not in os.environ
for n in os.listdir("/proc"):
    assert not n.isdigit() or b"987" not in open(f"/proc/{n}/cmdline", "rb").read()
"""
    for number, source in enumerate((first, second)):
        folder = tmp_path / str(number)
        folder.mkdir()
        nb = new_notebook(cells=[new_code_cell(source)])
        (run,) = run_notebook(nb, folder, Limits(), sandbox.Sandbox(folder))
        assert run.ok, run.traceback
    assert not [
        p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "987"]
    ]


@pytest.mark.slow
@needs_walls
@pytest.mark.skipif(os.getuid() != 0, reason="only root needs the control group")
def test_a_warm_kernel_is_in_its_control_group(tmp_path):
    with sandbox.pen() as group:
        if group is None:
            pytest.skip("no control group can be made here")
        forks = (
            "import os\nmade = 0\ntry:\n    while made < 1000:\n        if os.fork() == 0:\n"
            "            import time; time.sleep(60); os._exit(0)\n        made += 1\n"
            "except OSError:\n    raise RuntimeError(made)"
        )
        nb = new_notebook(cells=[new_code_cell(forks)])
        limits = Limits(processes=10_000)
        (run,) = run_notebook(nb, tmp_path, limits, sandbox.Sandbox(tmp_path, pen=group))
        assert run.ename == "RuntimeError" and int(run.evalue) < sandbox.SPARE_PROCESSES

        # a hundred killed processes take a moment to go on a busy machine
        until = time.monotonic() + 30
        while (left := (group / "cgroup.procs").read_text()) and time.monotonic() < until:
            time.sleep(0.1)
        assert left == ""


@pytest.mark.slow
@needs_walls
def test_without_the_nursery_a_kernel_starts_in_the_ordinary_way(tmp_path, monkeypatch):
    broken = warm.Nursery()
    broken.expect(warm.WORTH)
    monkeypatch.setattr(warm, "SERVE", "raise SystemExit(3)")
    monkeypatch.setattr(kernel, "NURSERY", broken)
    nb = new_notebook(cells=[new_code_cell("x = 1")])
    (run,) = run_notebook(nb, tmp_path, Limits(), sandbox.Sandbox(tmp_path))
    assert run.ok and "no answer" in broken.why_not


@pytest.mark.slow
@needs_walls
def test_a_nursery_that_was_killed_is_started_again(tmp_path):
    nb = new_notebook(cells=[new_code_cell("x = 1")])
    for _ in range(2):
        folder = tmp_path / str(time.monotonic_ns())
        folder.mkdir()
        (run,) = run_notebook(nb, folder, Limits(), sandbox.Sandbox(folder))
        assert run.ok
        process = warm.NURSERY._process
        if process is None:
            pytest.skip(f"kernels cannot be forked into a sandbox here: {warm.NURSERY.why_not}")
        process.kill()
        process.wait()
    assert not warm.NURSERY.why_not


def test_for_one_or_two_submissions_nothing_is_imported_before(monkeypatch):
    monkeypatch.setattr(warm, "WORTH", 3)
    few, many = warm.Nursery(), warm.Nursery()
    assert [few.is_worth_it() for _ in range(4)] == [False, False, False, sys.platform == "linux"]
    many.expect(9)
    assert many.is_worth_it() is (sys.platform == "linux")


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_what_is_imported_before_is_there():
    import importlib.util

    for name in warm.IMPORTED:
        assert importlib.util.find_spec(name), name
