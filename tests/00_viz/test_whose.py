"""What happens in a library is told at the line of the program that called it, and by the name that stands there."""

from __future__ import annotations

import contextlib
import io
import re
import sys
import types
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import course_lib as cl
from course_lib import events
from course_lib.frames import installed
from course_lib.viz.report.compile_tree import compiles_of, functions_of
from course_lib.viz.report.findings import findings
from course_lib.viz.report.page import report

pytestmark = pytest.mark.skipif(
    not installed(), reason="breaks and guards are made by the frame hook"
)
HERE = Path(__file__).name


def distinct(x):
    return torch.unique(x).sum()


def chosen(x):
    return x[x > 0].sum()


def seeded(x):
    torch.manual_seed(0)
    return x + 1


def packed(x):
    return nn.utils.rnn.pack_padded_sequence(x[None], torch.tensor([3]), batch_first=True).data


def recorded(function, *args, **options):
    cl.reset()
    with cl.record() as trace:
        cl.compile(function, backend="eager", **options)(*args)
    return trace


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (distinct, "the result of torch.unique depends on the data in the tensor"),
        (chosen, "the result of x[x > 0] depends on the data in the tensor"),
        (seeded, "torch.manual_seed calls torch._dynamo."),
        (
            packed,
            "the result of nn.utils.rnn.pack_padded_sequence depends on the data in the tensor",
        ),
    ],
)
def test_a_break_inside_torch_is_told_at_the_users_call_and_by_its_name(function, said, capsys):
    x = torch.randn(4, 8)
    trace = recorded(function, x)
    problem, line = trace.graph_breaks[0], function.__code__.co_firstlineno + 1
    assert (
        problem.reason.startswith(said)
        and problem.location.filename == __file__
        and problem.location.line == line
    )
    (found,) = (finding for finding in findings(compiles_of(trace)) if finding.mark == "✂")
    assert found.title.startswith(f"{HERE}:{line} ends a graph: {said[:40]}")
    assert (
        str(trace.break_card()).splitlines()[1].startswith(f"{HERE}:{line} in {function.__name__}")
    )
    assert said in str(trace.breaks()) and said in str(trace.bytecode(function))
    cl.reset()
    cl.set_logs("graph_breaks")
    try:
        with contextlib.redirect_stderr(io.StringIO()) as log:
            cl.compile(function, backend="eager")(x)
    finally:
        cl.set_logs()
    assert (
        log.getvalue().startswith(f"[graph_breaks] {said}")
        and f"at {__file__}:{line}" in log.getvalue()
    )


def test_the_card_says_where_in_torch_it_was():
    (found,) = findings(compiles_of(recorded(seeded, torch.ones(2))))
    assert re.search(r"it goes on to .*\(torch/\w+\.py:\d+\)", found.body)


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A package that is installed: its layer looks at its configuration."""
    folder = tmp_path / "lib" / "python3.11" / "site-packages"
    folder.mkdir(parents=True)
    (folder / "some_library.py").write_text(
        "from torch import nn\n\nclass Layer(nn.Module):\n    def __init__(self, config):\n        super().__init__()\n"
        "        self.config = config\n\n    def forward(self, x):\n        return x * self.config.scale\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    yield __import__("some_library")
    del sys.modules["some_library"]


def test_a_guard_on_a_librarys_configuration_names_the_users_line_and_the_librarys_as_a_detail(
    library,
):
    config = types.SimpleNamespace(scale=2.0)
    layer = library.Layer(config)

    def model(x):
        y = x + 1
        return layer(y)

    cl.reset()
    compiled = cl.compile(model, backend="eager", dynamic=False)
    with cl.record() as trace:
        compiled(torch.ones(2))
        config.scale = 3.0
        compiled(torch.ones(2))
    line = model.__code__.co_firstlineno + 2
    (guard,) = (guard for guard in trace.captures[0].guards if "scale == " in guard.expr)
    assert (guard.cause.line, guard.cause.filename) == (line, __file__)
    assert guard.inner.line == 9 and guard.inner.filename.endswith("some_library.py")
    (found,) = findings(compiles_of(trace))
    assert (
        f"tested because of {HERE}:{line}: <code>return layer(y)</code> (in some_library.py:9)"
        in found.body
    )
    assert f"# {HERE}:{line}: return layer(y) (in some_library.py:9)" in " ".join(
        str(trace.guards_table(0)).split()
    )
    assert "in some_<wbr>library.<wbr>py:9" in trace.guards_table(0).body


def test_of_a_library_that_is_compiled_itself_its_own_line_is_named(library):
    trace = recorded(library.Layer(types.SimpleNamespace(scale=2.0)), torch.ones(2))
    (guard,) = (guard for guard in trace.guards if "scale == " in guard.expr)
    assert guard.cause.line == 9 and "(in some_library" not in str(trace.guards_table())


WRAPPED = """
import functools


def wrapped(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        finally:
            kwargs.clear()
    return wrapper


@wrapped
def run(x):
    y = x.sin()
    print(end="")
    return inner(y.cos())


def inner(x):
    print(end="")
    return x
"""


def test_breaks_of_a_library_are_one_finding_at_the_line_that_called_it_and_what_follows_from_it_comes_last(
    library,
):
    file = Path(library.__file__).with_name("wrapped_library.py")
    file.write_text(WRAPPED)
    import wrapped_library

    def model(x):
        y = x + 1
        return wrapped_library.run(y)

    line, compiles = model.__code__.co_firstlineno + 2, compiles_of(recorded(model, torch.ones(3)))
    first, second = (found for found in findings(compiles) if found.mark == "✂")
    assert first.title.startswith(
        f"{HERE}:{line} ends a graph (3 times): wrapped_library.run: print has an effect"
    )
    assert "it goes on to" in first.body and "run (wrapped_library.py:18)" in first.body
    assert (
        second.title.startswith("wrapped_library.py:23 ends a graph (2 times)")
        and second.weight < 20 < first.weight
    )
    assert (
        f"called, in the end, by {HERE}:{line}: <code>return wrapped_library.run(y)</code>"
        in second.body
    )
    del sys.modules["wrapped_library"]


def test_a_library_that_is_compiled_itself_is_told_with_the_line_that_calls_it(library):
    config = types.SimpleNamespace(scale=2.0)
    layer = cl.compile(library.Layer(config), backend="eager", dynamic=False)
    cl.reset()
    with cl.record() as trace:
        layer(torch.ones(2))
        config.scale = 3.0
        layer(torch.ones(2))
    (found,) = findings(compiles_of(trace))
    line = (
        test_a_library_that_is_compiled_itself_is_told_with_the_line_that_calls_it.__code__.co_firstlineno
        + 7
    )
    assert (
        f"tested because of {HERE}:{line}: <code>layer(torch.ones(2))</code> (in some_library.py:9)"
        in found.body
    )


def test_of_fifty_keys_the_ones_that_differ_can_be_read(library):
    config = types.SimpleNamespace(scale=2.0, **{f"an_option_{n}": n for n in range(50)})
    layer = cl.compile(lambda x: x * len(vars(config)), backend="eager")
    cl.reset()
    with cl.record() as trace:
        layer(torch.ones(2))
        config.new_one = 3.0
        layer(torch.ones(2))
    page = report(trace)
    told = re.search(r'<section id="guards">(.*?)</section>', page, re.S)[1]
    assert "new_one&#x27;)" in told.replace("<wbr>", "") and len(re.sub("<[^>]*>", "", told)) < 1200


@pytest.fixture(scope="module")
def torchs_own():
    """An optimizer's step and a function of torch, compiled themselves."""
    cl.reset()
    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    step, gelu = cl.compile(torch.optim.Adam(model.parameters()).step), cl.compile(F.gelu)
    with cl.record() as trace:
        for _ in range(2):
            model(x).sum().backward()
            step()
        gelu(x)
        gelu(torch.randn(5, 8))
    return trace


def test_what_is_torchs_own_is_told_by_its_name_at_the_line_that_calls_it(torchs_own):
    compiles, page = compiles_of(torchs_own), report(torchs_own)
    names = [function.title for function in functions_of(compiles)]
    assert names[0] == "Adam.step" and "gelu" in names
    assert (
        "compiler.py" not in page.partition('id="compiles"')[0]
        and "lambda" not in page.partition('id="compiles"')[0]
    )
    first = torchs_own_line()
    broke = next(finding for finding in findings(compiles) if finding.mark == "✂")
    assert broke.title.startswith(f"{HERE}:{first} ends a graph: calls torch.optim.adam.Adam.step")
    assert "step()\n^^^^^^" in broke.body and "compiled apart" in broke.body
    gelu = next(c for c in compiles if c.title == "gelu")
    assert gelu.where == f"{__file__}:{first + 1}" and gelu.result.name == "gelu"
    assert f"{HERE}:{first + 1} <code>gelu(x)</code>" in page


def torchs_own_line():
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if line.strip() == "step()")


def test_two_of_them_are_not_taken_for_one_function(torchs_own):
    assert not any(
        "as something new" in finding.title for finding in findings(compiles_of(torchs_own))
    )
    assert [event.name for event in torchs_own.of(events.Recompiled)] == ["gelu"]


def test_a_log_names_them_too():
    cl.reset()
    cl.set_logs("graph_breaks", "guards")
    try:
        with contextlib.redirect_stderr(io.StringIO()) as log:
            cl.compile(F.relu, backend="eager")(torch.ones(2))
    finally:
        cl.set_logs()
    assert log.getvalue().startswith(f"[guards] relu, {__file__}:")


def test_a_decorated_function_has_the_name_of_what_was_compiled(library):
    file = Path(library.__file__).with_name("decorating_library.py")
    model = "class Model(__import__('torch').nn.Module):\n    forward = wrapped(lambda self, x: run(x) * 2)\n"
    file.write_text(f"{WRAPPED}\n\n{model}")
    import decorating_library

    model = cl.compile(decorating_library.Model(), backend="eager")
    with cl.record() as trace:
        model(torch.ones(3))
        model(torch.ones(4))
    del sys.modules["decorating_library"]
    titles = [function.title for function in functions_of(compiles_of(trace))]
    assert titles[0] == "Model.forward" and not any("compiled_" in title for title in titles)
    assert any(
        found.title.startswith("Model.forward was compiled")
        for found in findings(compiles_of(trace))
    )
