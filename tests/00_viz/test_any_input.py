"""Whatever the public functions of viz are given, they draw it or refuse it with a sentence: no error comes from inside."""

from __future__ import annotations

import importlib
import inspect
import itertools
import pkgutil
import random
import traceback

import pytest
import torch

import course_lib as cl
from course_lib import events, viz
from course_lib.bench.models import TinyBlock

DRAWS_PARTS = {
    "kernels_in_a_row",
    "product_map",
    "drawn",
    "tuned",
    "card_of",
    "fusion_of",
    "all_code",
}
"""Parts of other pictures: no one calls them by hand."""
CALLS = {
    "mirror",
    "explore",
    "explain",
    "launches",
    "ablation",
    "side_by_side",
    "inductor_triton",
    "guard_costs",
    "each_call",
}
"""What they are given is called: it may raise what it likes."""


def pictures():
    """The functions of every module of viz that give a picture or a widget."""
    for info in pkgutil.walk_packages(viz.__path__, "course_lib.viz."):
        module = importlib.import_module(info.name)
        for name, function in vars(module).items():
            if (
                name.startswith("_")
                or name in DRAWS_PARTS | CALLS
                or getattr(function, "__module__", "") != module.__name__
            ):
                continue
            kinds = ("Picture", "Choose", "MoveTile")
            if (
                inspect.isfunction(function)
                and inspect.signature(function).return_annotation in kinds
            ):
                yield f"{info.name.rpartition('.')[2]}.{name}", function


PICTURES = dict(pictures())


@pytest.fixture(scope="module")
def values():
    cl.reset()
    with cl.record() as trained:
        cl.compile(TinyBlock(16, 2))(torch.randn(4, 16)).sum().backward()
    cl.reset()
    with cl.record() as captured:
        cl.compile(lambda x: x + 1, backend="eager")(torch.ones(3))
    return [
        None, 3, -1, 0, 1.5, float("nan"), float("inf"), "x", "", [], [1, 2], {}, {1: 2}, {"a": "b"}, {"a": None}, object(),
        torch.ones(2, 2), torch.ones(0, 3), len, torch.nn.ReLU(), viz.Trace(), trained, captured, trained.graphs[0],
        trained.guards, trained.of(events.Lowered)[0].graph, trained.of(events.Scheduled)[0].schedule,
    ]  # fmt: skip


def meant(error):
    """A sentence that this room wrote: raised by a `raise`, with no error behind it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    kinds = isinstance(error, (TypeError, ValueError, LookupError)) and not isinstance(
        error, (KeyError, IndexError)
    )
    return (
        kinds
        and (last.line or "").startswith("raise ")
        and "course_lib" in last.filename
        and "\n" not in str(error)
    )


def wrong(name, function, args):
    """What is wrong with the answer, or ''."""
    try:
        function(*args)._repr_mimebundle_()
    except Exception as error:
        if not meant(error):
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"{name}{args!r:.80}: {type(error).__name__}: {error!s:.90} ({last.name}: {last.line})"
    return ""


def test_there_are_pictures_to_ask():
    assert (
        len(PICTURES) > 40
        and {"bars.bars", "guard_trees.guard_tree", "views.index_map", "choose.choose_fusion"}
        <= PICTURES.keys()
    )


@pytest.mark.parametrize("name", PICTURES)
def test_any_value_is_drawn_or_refused_with_a_sentence(name, values):
    function = PICTURES[name]
    needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    chance = random.Random(0)
    tuples = list(itertools.product(values, repeat=max(1, len(needed)))) if len(needed) < 3 else []
    tuples = tuples or [[chance.choice(values) for _ in needed] for _ in range(600)]
    assert not (found := {said for args in tuples if (said := wrong(name, function, args))}), (
        "\n".join(sorted(found)[:5])
    )


METHODS = "bytecode stepper graph aten joint guards_table guards_tree timeline size_guards loops fusion memory code tiles autotuned"
METHODS += " break_card cut"


@pytest.mark.parametrize("method", METHODS.split())
def test_every_method_of_a_trace_draws_or_refuses(method, values):
    found = set()
    for trace in (value for value in values if isinstance(value, viz.Trace)):
        for args in [(), *((value,) for value in values)]:
            try:
                getattr(trace, method)(*args)
            except Exception as error:
                if not meant(error):
                    found.add(f"{method}{args!r:.80}: {type(error).__name__}: {error!s:.120}")
    assert not found, "\n".join(sorted(found)[:5])


DRAWN_BY = {"fx_graph": "trace.graph()", "pipeline_map": "trace.show()"}


def test_every_picture_is_in_the_gallery(root):
    headings = "".join(
        line
        for line in (root / "docs" / "gallery.md").read_text().splitlines()
        if line.startswith("## ")
    )
    names = [name.rpartition(".")[2] for name in PICTURES]
    missing = [name for name in names if DRAWN_BY.get(name, name.partition("_")[0]) not in headings]
    assert not missing, "draw them in course_lib/tools/gallery.py"
