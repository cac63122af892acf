"""Ours around torch.compile, inside it, and with its back half: the answers are eager's."""

from __future__ import annotations

import warnings

import pytest
import torch

import course_lib as cl
from course_lib.frames import installed

pytestmark = [
    pytest.mark.skipif(not installed(), reason="capture needs the frame hook"),
    pytest.mark.filterwarnings("ignore:Dynamo does not know how to trace the builtin"),
]
LOG: list[int] = []


@pytest.fixture(autouse=True)
def forget():
    cl.reset()
    torch._dynamo.reset()
    yield
    cl.reset()
    torch._dynamo.reset()


def ours(f):
    return cl.compile(f, backend="eager")


def theirs(f):
    return torch.compile(f, backend="eager")


def plain(x):
    return torch.sin(x) * 2 + x.shape[0]


def broken(x):
    y = x * 3
    LOG.append(len(LOG))
    if y.sum() > 0:
        return y - 1
    return y + 1


def nested(compiler, f):
    inner = compiler(f)

    def outer(x):
        return inner(x * 2) + inner(x)

    return outer


MODEL = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 3))
WAYS = {
    "ours around theirs": lambda f: ours(theirs(f)),
    "theirs around ours": lambda f: theirs(ours(f)),
    "ours calls theirs": lambda f: ours(nested(theirs, f)),
    "theirs calls ours": lambda f: theirs(nested(ours, f)),
    "theirs breaks and calls ours": lambda f: theirs(
        nested(ours, f) if f is not plain else nested(ours, broken)
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("f", [plain, broken, MODEL], ids=["plain", "broken", "module"])
def test_each_within_the_other_is_eager(way, f):
    compiled = WAYS[way](f)
    eager = (
        nested(lambda f: f, broken if "breaks" in way and f is plain else f) if "call" in way else f
    )
    for rows in (2, 2, 5, 7, 2):
        x, turn = torch.randn(rows, 3), torch.get_rng_state()
        LOG.clear()
        expected, logged = eager(x), len(LOG)
        torch.set_rng_state(turn)
        LOG.clear()
        torch.testing.assert_close(compiled(x), expected)
        assert len(LOG) == logged


def test_what_torch_compile_compiled_is_part_of_our_graph():
    graphs = []
    inner = theirs(plain)
    compiled = cl.compile(
        lambda x: inner(x) + 1,
        backend=lambda gm, _: graphs.append(gm) or gm.forward,
        fullgraph=True,
    )
    x = torch.randn(4, 3)
    torch.testing.assert_close(compiled(x), plain(x) + 1)
    assert len(graphs) == 1


@pytest.mark.slow
def test_torchs_back_half_serves_every_size():
    compiled = cl.compile(plain, backend="torch_inductor")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rows in (4, 5, 6, 7, 5):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(compiled(x), plain(x))
