"""`COURSE_LOGS` and `cl.set_logs`: the topics, what each says, and that nothing is said unasked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import course_lib as cl
from course_lib.bench.models import TinyBlock
from course_lib.viz.recording.logs import LOGS

DESIGN = "graph_breaks guards recompiles dynamic graph_code aot_graphs schedule fusion output_code perf_hints".split()


def said(capfd, *names, call):
    cl.reset()
    cl.set_logs(*names)
    try:
        call()
    finally:
        cl.set_logs()
    return capfd.readouterr().err


def train():
    cl.compile(TinyBlock(8, 2))(torch.randn(4, 8)).sum().backward()


def broken():
    def f(x, n):
        if x.sum() > 0:
            x = x + n
        return x * 2

    compiled = cl.compile(f)
    compiled(torch.ones(4), 1)
    compiled(torch.ones(4), 2)


def test_the_topics_are_those_of_the_design_and_each_says_what_it_is_about():
    assert list(LOGS) == DESIGN
    assert all(log.about and log.says for log in LOGS.values())


@pytest.mark.parametrize(
    "name, call, wanted",
    [
        ("graph_breaks", broken, "a branch depends on the data in a tensor"),
        ("guards", train, "type(self) is TinyBlock"),
        ("guards", broken, "[guards] broken.<locals>.f, "),
        ("recompiles", broken, "is compiled again: 2 entries"),
        ("graph_code", train, "gelu"),
        ("aot_graphs", train, "backward graph\n"),
        ("schedule", train, "in all, instead of"),
        ("fusion", train, "fuse, saves"),
        ("output_code", train, "def call("),
        ("perf_hints", broken, "torch.where"),
    ],
)
def test_each_topic_says_its_thing_under_its_name_and_nothing_else(capfd, name, call, wanted):
    text = said(capfd, name, call=call)
    assert wanted in text
    assert all(line.startswith((f"[{name}] ", "    ")) or not line for line in text.splitlines())
    assert "\x1b" not in text  # readable without colours


def test_a_symbolic_size_is_told(capfd):
    def call():
        compiled = cl.compile(
            lambda x: x * 2 if x.shape[0] > 2 else x, backend="eager", dynamic=True
        )
        compiled(torch.ones(5))

    assert "x.shape[0]" in said(capfd, "dynamic", call=call)


def test_a_joint_graph_is_told_with_what_is_kept(capfd):
    text = said(capfd, "aot_graphs", call=train)
    assert [
        part in text for part in ("joint graph\n", "saved: ", "forward graph\n", "backward graph\n")
    ] == [True] * 4
    assert (
        text.index("joint graph\n")
        < text.index("saved: ")
        < text.index("forward graph\n")
        < text.index("backward graph\n")
    )


def test_without_a_name_nothing_is_said(capfd):
    assert said(capfd, call=broken) == ""


def test_an_unknown_topic_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="there is no log 'guard'; there are graph_breaks, guards"):
        cl.set_logs("guard")


@pytest.mark.slow
def test_the_environment_sets_what_it_can_and_never_stops_a_program():
    program = "import torch, course_lib as cl; cl.compile(lambda x: x * 2, backend='eager')(torch.ones(2)); print('done')"
    environment = {
        **os.environ,
        "COURSE_LOGS": "help,gaurds,graph_code",
        "PYTHONPATH": str(Path(cl.__file__).parents[1]),
    }
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0 and done.stdout == "done\n"
    assert (
        "there is no log gaurds" in done.stderr
        and "[graph_code] <lambda>: def forward" in done.stderr
    )
    assert all(f"{name:<13} {log.about}" in done.stderr for name, log in LOGS.items())


def test_a_log_says_nothing_in_the_way_python_shows_objects(capfd):
    for call in (train, broken):
        text = said(capfd, *DESIGN, call=call)
        assert not [
            line
            for line in text.splitlines()
            if "object at 0x" in line or "Result(" in line or "Guard(" in line
        ]
