"""The trace report: it answers what a person asks first, for runs that nobody prepared for it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

import course_lib as cl
from course_lib import events
from course_lib.bench.models import TinyBlock
from course_lib.pipeline import Pipeline
from course_lib.viz.mirror import course
from course_lib.viz.pictures.codegen.kernel_origins import kernels_of
from course_lib.viz.report.compile_time import bars_of
from course_lib.viz.report.compile_tree import compiles_of, functions_of
from course_lib.viz.report.compiles import FOREIGN
from course_lib.viz.report.findings import findings
from course_lib.viz.report.page import Run, report

HERE = Path(__file__).name


def branchy(x, scale):
    y = torch.sin(x) * scale
    if y.sum() > 0:
        y = y + 1
    return y.relu()


@pytest.fixture(scope="module")
def recorded():
    """A graph break, a recompile, a model that learns, and one whose sizes are symbolic."""
    cl.reset()
    torch.manual_seed(0)
    with cl.record() as trace:
        compiled = cl.compile(branchy)
        compiled(torch.ones(8), 2)
        compiled(torch.ones(8), 3)
        cl.compile(TinyBlock(16, 2))(torch.randn(4, 16)).sum().backward()
        sizes = cl.compile(lambda x: torch.tanh(x) * 2, dynamic=True)
        for size in (5, 6):
            sizes(torch.randn(size))
    return trace


@pytest.fixture(scope="module")
def html(recorded):
    return report(recorded, Run("python train.py", seconds=100.0))


def test_the_first_finding_is_the_line_that_broke_and_what_to_do(recorded, html):
    found = findings(compiles_of(recorded))
    at = branchy.__code__.co_firstlineno + 2
    assert found[0].mark == "✂" and f"{HERE}:{at} ends a graph (2 times)" in found[0].title
    assert "if y.sum() &gt; 0:" in found[0].body and "torch.where" in found[0].body
    assert html.index(f"{HERE}:{at} ends a graph") < html.index("Every compile")


def test_a_recompile_names_the_guard_what_was_found_and_what_to_do(recorded, html):
    again = next(finding for finding in findings(compiles_of(recorded)) if finding.mark == "◆")
    assert "branchy was compiled twice" in again.title
    assert "scale: expected 2, got 3" in again.body
    assert "scale: expected 2, got 3" in html.partition("Guards that failed")[2]


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * 2 if self.calls % 2 else x + 1


def test_who_counts_in_forward_is_told_to_count_outside():
    cl.reset()
    with cl.record() as trace:
        counter = cl.compile(Counter())
        for _ in range(4):
            counter(torch.ones(3))
    (again,) = (finding for finding in findings(compiles_of(trace)) if finding.mark == "◆")
    assert "self.calls" in again.body and "count outside of it, or in a tensor" in again.body


def passed_on(x, scale):
    return x


def test_what_had_nothing_to_compile_was_not_compiled_again():
    cl.reset()
    with cl.record() as trace:
        compiled = cl.compile(passed_on)
        compiled(torch.ones(3), 1)
        compiled(torch.ones(3, dtype=torch.float64), 1)
    titles = [finding.title for finding in findings(compiles_of(trace))]
    assert not any("1 times" in title for title in titles), titles


def section_of(html, name):
    return re.search(rf'<section id="{name}">(.*?)</section>', html, re.S)[1]


def test_what_fullgraph_does_not_allow_is_an_error_and_does_not_run_in_eager():
    cl.reset()
    with cl.record() as trace, pytest.raises(cl.Unsupported):
        cl.compile(branchy, fullgraph=True)(torch.ones(8), 2)
    (compile,) = compiles_of(trace)
    assert compile.outcome == "an error: a graph ends, which fullgraph=True does not allow"
    (found,) = findings([compile])
    assert (
        f":{branchy.__code__.co_firstlineno + 2} is an error" in found.title
        and "the function did not run" in found.body
    )
    page = report(trace)
    assert section_of(page, "eager").endswith(
        "<p>Nothing.</p>"
    ) and "the function did not run" in section_of(page, "breaks")


def test_at_the_recompile_limit_fullgraph_is_an_error_too(monkeypatch):
    monkeypatch.setattr(cl.config, "recompile_limit", 2)
    cl.reset()
    compiled = cl.compile(lambda x, k: x * k, fullgraph=True, dynamic=False, backend="eager")
    with cl.record() as trace, pytest.raises(cl.Unsupported, match="recompile limit"):
        for k in (2.5, 3.5, 4.5):
            compiled(torch.ones(3), k)
    compiles = compiles_of(trace)
    assert [c.outcome for c in compiles][
        -1
    ] == "an error: reached the recompile limit, which fullgraph=True does not allow"
    assert [f.mark for f in findings(compiles)] == ["◆"]
    assert "a call that fits no entry is an error" in findings(compiles)[0].title
    assert section_of(report(trace), "eager").endswith("<p>Nothing.</p>")


def test_entries_that_differ_in_what_they_expect_share_a_line():
    seen = []

    def f(x, n):
        seen.append(n)
        return x * n

    with torch.no_grad(), cl.record() as trace:
        compiled = cl.compile(f)
        for _ in range(6):
            compiled(torch.ones(3), 2)
    text = report(trace)
    last = (
        text.partition("Guards that failed")[2]
        .partition("Where compile time went")[0]
        .rpartition("<tr>")[2]
    )
    assert (
        "len(seen): expected 0, 1 … 4, got 5" in last
        and "5 entries" in last
        and last.count("<li>") == 2
    )
    again = next(finding for finding in findings(compiles_of(trace)) if finding.mark == "◆")
    assert "filled outside the compiled function" in again.body


def test_what_runs_behind_a_break_is_not_advised_before_the_break_is_mended():
    def f(x, n):
        total = 0.0
        for _ in range(n):
            x = x + 1
            total = total + x.sum().item()
        return x * total

    with warnings.catch_warnings(), torch.no_grad(), cl.record() as trace:
        warnings.simplefilter("ignore")
        compiled = cl.compile(f)
        compiled(torch.ones(3), 3)
    resumed = [
        one for one in findings(compiles_of(trace)) if one.mark == "◆" and "from line" in one.title
    ]
    assert resumed and all("mend the break first" in one.body for one in resumed)


def test_every_link_leads_to_something_on_the_page(html):
    targets = set(re.findall(r' id="([^"]+)"', html))
    links = re.findall(r'href="#([^"]+)"', html)
    assert len(links) > 20
    assert not [name for name in links if name not in targets]


def test_the_page_needs_no_network_and_runs_no_script(html):
    assert not re.search(r"<script|<link|<img|src=|url\(", html)
    assert not [url for url in re.findall(r"https?://[^\"'<\s]+", html) if "w3.org" not in url]


def test_kernels_know_the_lines_they_came_from(recorded):
    forward = next(c for c in compiles_of(recorded) if c.name == "TinyBlock.forward").programs[0]
    said = {one.name: [at.text for at in one.lines] for one in kernels_of(forward)}
    gelu = next(lines for name, lines in said.items() if "gelu" in name)
    assert "x = torch.nn.functional.gelu(x)" in gelu and "x = x * 1.41421356 + 0.01" in gelu
    assert all(lines for lines in said.values())


def test_resume_functions_stand_below_what_they_resume(recorded):
    top = {function.name: function for function in functions_of(compiles_of(recorded))}
    assert [below.resume.original.co_name for below in top["branchy"].below] == ["branchy"]
    assert top["branchy"].below[0].title.startswith("branchy, from line")


def test_resume_functions_of_one_line_have_titles_of_their_own():
    def sums(x, y):
        return x.sin() + x.sum().item() + y.cos() + y.sum().item() * x

    with cl.record() as trace:
        cl.compile(sums, backend="eager")(torch.ones(3), torch.ones(3))
    _, first, second = (compile.title.split(" on ")[-1] for compile in compiles_of(trace))
    assert (first, second) == ("(break 1 of 2)", "(break 2 of 2)")


def test_the_guard_that_fails_most_often_is_named_with_what_to_do_and_the_others_with_their_lines():
    def named(x, name):
        return x * 2 if name else x

    with cl.record() as trace:
        compiled = cl.compile(named, backend="eager", dynamic=False)
        for size, name in ((3, "a"), (3, "b"), (3, "c"), (4, "c")):
            compiled(torch.ones(size), name)
    (card,) = (one for one in findings(compiles_of(trace)) if one.mark == "◆")
    assert "The guard that failed at 2 of the 3 calls that fitted no entry" in card.body
    assert "<code>name: expected" in card.body and "keep it from changing" in card.body
    assert "<li><code>x.shape[0]</code></li>" in card.body


def test_a_number_that_must_be_one_value_is_told_as_a_number():
    with cl.record() as trace:
        compiled = cl.compile(
            lambda x, k: x * 2 if k == 4 else x + float(f"{k}"), backend="eager", dynamic=True
        )
        for k in (4, 5, 6):
            compiled(torch.ones(3), k)
    (card,) = (one for one in findings(compiles_of(trace)) if one.mark == "◆")
    assert (
        "got another number" in card.body
        and "pass the number as a tensor" in card.body
        and "mark_dynamic" not in card.body
    )


def test_what_compile_makes_anew_and_what_is_planned_anew_are_told(monkeypatch):
    monkeypatch.setattr(Pipeline, "needs_numbers", lambda *args: "the test asks for it")

    def scaled(x):
        return x * 2

    with cl.record() as trace:
        for _ in range(3):
            cl.compile(scaled, backend="eager")(torch.ones(3))
        sized = cl.compile(lambda x: x.sin() + 1, dynamic=True)
        for size in range(3, 8):
            sized(torch.ones(size))
    titles = [one.title for one in findings(compiles_of(trace))]
    assert any("scaled was compiled 3 times as something new" in title for title in titles)
    assert any("was planned anew for 5 sets of sizes or numbers" in title for title in titles)


def test_a_program_without_a_cuda_graph_is_compiled_all_the_same():
    with cl.record() as trace:
        cl.compile(lambda x: x.sin() + 1, mode="reduce-overhead")(torch.ones(3))
    (compile,) = compiles_of(trace)
    assert compile.outcome == "compiled" and not findings([compile])
    assert "without a CUDA graph: its tensors are on cpu" in report(trace)


def test_functions_of_one_name_are_told_apart():
    def make():
        first = lambda x: x.sin()
        second = lambda x: x.cos()
        return first, second

    with cl.record() as trace:
        compiled = [cl.compile(one, backend="eager", dynamic=False) for one in make()]
        for size in (2, 3):
            for one in compiled:
                one(torch.ones(size))
    titles = {compile.title for compile in compiles_of(trace)}
    assert len(titles) == 2 and all("test_report.py:" in title for title in titles)
    assert (
        "entry 2, compiled" in trace.timeline(compiled[1]).text
        and "entry 3" not in trace.timeline(compiled[1]).text
    )


def test_what_stood_on_the_stack_is_not_blamed_on_the_def_line():
    def pair(x):
        return x.sin() + torch.ones(int(x.sum().item()) * 0 + 1).expand(x.shape)

    with cl.record() as trace:
        compiled = cl.compile(pair, backend="eager", dynamic=False)
        compiled(torch.ones(3)), compiled(torch.ones(4))
    page = report(trace)
    assert "def pair" not in page.split('id="breaks"')[0]


def test_what_is_built_for_later_sizes_belongs_to_the_compile_whose_graph_it_is(monkeypatch):
    monkeypatch.setattr(Pipeline, "needs_numbers", lambda *args: "the test asks for it")
    with cl.record() as trace:
        sized = cl.compile(lambda x: (x @ x.mT).relu(), dynamic=True)
        for size in (4, 5):
            sized(torch.randn(3, size))
    (symbolic,) = compiles_of(trace)
    assert len(symbolic.builds) == 2
    assert all(build.programs[0].compiled is not None for build in symbolic.builds)


def test_a_graph_of_another_compiler_has_a_place():
    cl.reset()
    with cl.record() as trace:
        torch.compile(lambda x: x.sin() + 1, backend=course)(torch.randn(4))
    torch._dynamo.reset()
    (compile,) = compiles_of(trace)
    assert compile.name == FOREIGN and compile.programs[0].kernels
    assert "handed its graph over" in report(trace)


def test_kernels_of_a_graph_that_another_compiler_captured_know_their_lines_too():
    cl.reset()
    with cl.record() as trace:
        torch.compile(branchy, backend=course)(torch.ones(8), 2)
        torch.compile(TinyBlock(16, 2), backend=course)(torch.randn(4, 16)).sum().backward()
    torch._dynamo.reset()
    first, second, model = compiles_of(trace)
    line = branchy.__code__.co_firstlineno
    assert [compile.where for compile in (first, second)] == [
        f"{__file__}:{line + 1}",
        f"{__file__}:{line + 3}",
    ]
    assert [at.line for at in kernels_of(first.programs[0])[0].lines][:1] == [line + 1]
    assert {program.part for program in model.programs} == {"forward", "backward"}
    for program in model.programs:
        for kernel in kernels_of(program):
            assert kernel.lines and all(
                at.filename.endswith("models.py") and at.text for at in kernel.lines
            ), kernel.name


def test_a_kernel_that_only_fills_memory_knows_who_needs_it():
    cl.reset()
    model = torch.nn.Dropout(0.5)
    with cl.record() as trace:
        cl.compile(lambda x: (model(x) * 2, torch.zeros(3)))(torch.randn(4, 8))
    kernels = [
        kernel
        for compile in compiles_of(trace)
        for program in compile.programs
        for kernel in kernels_of(program)
    ]
    assert sum("fill" in kernel.name for kernel in kernels) == 2
    assert all(kernel.lines for kernel in kernels)


def by_name(x, name):
    return x * len(name)


def by_number(x, scale):
    return x * scale


def test_calls_at_the_recompile_limit_are_counted_not_listed():
    cl.reset()
    compiled = cl.compile(by_name)
    with cl.record() as trace, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(cl.config.recompile_limit + 40):
            compiled(torch.ones(4), f"name {number}")
    compiles = compiles_of(trace)
    assert len(compiles) == cl.config.recompile_limit + 1 and compiles[-1].alike == 39
    assert compiles[
        -1
    ].outcome == "in eager after all, as 39 more" and "and 39 calls more" in report(trace)


def test_what_is_advised_about_a_value_fits_it():
    cl.reset()
    with cl.record() as trace, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        said, number = cl.compile(by_name), cl.compile(by_number)
        for name, scale in (("a", 0.0), ("ab", 1.5)):
            said(torch.ones(4), name)
            number(torch.ones(4), scale)
    by_guard = {
        finding.body.split("<code>")[1].split(":")[0]: finding.body
        for finding in findings(compiles_of(trace))
    }
    assert "as a tensor" not in by_guard["name"] and "keep it from changing" in by_guard["name"]
    assert (
        all("as a tensor" in body for guard, body in by_guard.items() if guard != "name")
        and len(by_guard) == 2
    )
    assert f"is called with, {HERE}:{by_name.__code__.co_firstlineno}" in report(trace)


def test_compile_time_adds_up(recorded):
    told = sum(event.seconds for event in recorded.of(events.StageTimed))
    assert sum(bar.seconds for bar in bars_of(recorded)) == pytest.approx(told)
    assert "branchy" in recorded.compile_time().alt


def test_a_run_that_compiles_nothing_is_one_sentence():
    with cl.record() as trace:
        torch.ones(2) + 1
    html = report(trace)
    assert "Nothing was compiled" in html and "--torch-compile" in html and "<section" not in html
    with pytest.raises(LookupError, match="nothing was compiled"):
        trace.compile_time()


def test_a_part_that_cannot_be_shown_is_told_and_the_rest_is_there(recorded, monkeypatch):
    def broken(*args):
        raise RuntimeError("no such <colour>")

    monkeypatch.setattr("course_lib.viz.report.page.kernels_html", broken)
    html = report(recorded, drawings=False)
    assert (
        "This part could not be shown: RuntimeError: no such &lt;colour&gt;" in html
        and "Every compile" in html
    )


def test_record_with_a_folder_writes_the_report_however_the_block_ends(tmp_path):
    cl.reset()
    with pytest.raises(ZeroDivisionError), cl.record(tmp_path / "new" / "folder"):
        cl.compile(lambda x: x * 3)(torch.ones(3))
        1 / 0
    html = (tmp_path / "new" / "folder" / "report.html").read_text()
    assert "ZeroDivisionError" in html and "x * 3" in html


# ---- whole programs -------------------------------------------------------------------------------------------------

SCRIPT = """
import os, sys, torch
@torch.compile
def f(x):
    return x.relu() * 2
if "compile" in sys.argv: f(torch.ones(3))
if "crash" in sys.argv: raise ValueError("the data is gone")
if "kill" in sys.argv: os.kill(os.getpid(), 9)
if "fork" in sys.argv:
    child = os.fork()
    if child == 0:
        torch.compile(lambda x: x.sin() + 1)(torch.ones(3))
        sys.exit(0)
    os.waitpid(child, 0)
"""


def run(tmp_path, *arguments):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [
        sys.executable,
        "-m",
        "course_lib",
        "report",
        "--torch-compile",
        "--out",
        str(tmp_path / "out"),
        str(script),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(cl.__file__).parents[1]),
        "OMP_NUM_THREADS": "1",
    }
    environment.pop("COURSE_TRACE_PROCESS", None)
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, env=environment)
    pages = {path.name: path.read_text() for path in (tmp_path / "out").glob("*.html")}
    return done, pages


@pytest.mark.slow
def test_a_script_that_crashes_keeps_its_traceback_its_status_and_gets_its_report(tmp_path):
    done, pages = run(tmp_path, "compile", "crash")
    assert (
        done.returncode == 1
        and "ValueError: the data is gone" in done.stderr
        and "runpy" not in done.stderr
    )
    assert (
        "ValueError: the data is gone" in pages["report.html"]
        and "1 graph captured" in pages["report.html"]
    )


@pytest.mark.slow
def test_a_script_that_is_killed_has_a_report_of_what_was_compiled_before(tmp_path):
    done, pages = run(tmp_path, "compile", "kill")
    assert done.returncode == 137 and "signal 9" in done.stderr
    assert (
        "1 graph captured" in pages["report.html"]
        and "was ended from outside" in pages["report.html"]
    )


@pytest.mark.slow
def test_a_script_that_forks_has_a_report_for_each_process(tmp_path):
    done, pages = run(tmp_path, "compile", "fork")
    assert done.returncode == 0, done.stderr
    child = next(name for name in pages if name != "report.html")
    assert "x.relu()" in pages["report.html"] and "x.sin()" not in pages["report.html"]
    assert "x.sin()" in pages[child] and "x.relu()" not in pages[child]
    assert f'href="{child}"' in pages["report.html"]


@pytest.mark.slow
def test_a_script_may_go_elsewhere_and_leave_with_a_status(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import os, sys; os.chdir('/'); assert os.path.exists(__file__); sys.exit(7)")
    command = [sys.executable, "-m", "course_lib", "report", "--out", "out", "script.py"]
    environment = {**os.environ, "PYTHONPATH": str(Path(cl.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 7 and not done.stdout
    assert "The program left by sys.exit(7)" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.slow
def test_a_module_is_run_and_what_cannot_be_run_is_one_sentence(tmp_path):
    (tmp_path / "mine.py").write_text("import sys; print(sys.argv[1:])")
    (tmp_path / "file").touch()
    environment = {**os.environ, "PYTHONPATH": f"{Path(cl.__file__).parents[1]}:{tmp_path}"}

    def course(*arguments):
        command = [sys.executable, "-m", "course_lib", "report", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path
        )

    assert course("--out", "out", "-m", "mine", "--help").stdout == "['--help']\n"
    for arguments, said in (
        ([], "course: which program?"), (["-m"], "course: which program?"), (["nosuch.py"], "course: there is no file nosuch.py"),
        (["--out", "file", "mine.py"], "course: the report cannot be written into file"),
    ):  # fmt: skip
        done = course(*arguments)
        assert (
            done.returncode == 2 and done.stderr.startswith(said) and "Traceback" not in done.stderr
        )
    assert not (tmp_path / "compile_report").exists()
    done = subprocess.run(
        [sys.executable, "-c", "import course_lib; print('ran')"], capture_output=True, text=True, cwd=tmp_path,
        env={**environment, "COURSE_TRACE": str(tmp_path / "file")},
    )  # fmt: skip
    assert done.stdout == "ran\n" and "is no folder to write into" in done.stderr


@pytest.mark.slow
def test_a_script_that_never_compiles_is_told_so(tmp_path):
    done, pages = run(tmp_path)
    assert done.returncode == 0 and "nothing was compiled" in done.stderr
    assert list(pages) == ["report.html"] and "Nothing was compiled" in pages["report.html"]


def test_of_graphs_that_torch_captured_the_report_does_not_say_that_none_broke():
    cl.reset()
    torch._dynamo.reset()

    def broken(x):
        y = torch.relu(x) + 1
        torch._dynamo.graph_break()
        return y.sum()

    with torch.no_grad(), cl.record() as trace:
        torch.compile(broken, backend="course")(torch.ones(8))
    first = section_of(report(trace), "first")
    assert "No graph broke" not in first and "TORCH_LOGS" in first
    assert "TORCH_LOGS" not in report(simple_trace())


def simple_trace():
    with torch.no_grad(), cl.record() as trace:
        cl.compile(lambda x: x.tan())(torch.ones(3))
    return trace
