"""A layer compiles once for any length, where a question that torch asks on the way would split the lengths."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import course_lib as cl
from course_lib.frames import installed

pytestmark = pytest.mark.skipif(not installed(), reason="capture needs the frame hook")


def cut_to_the_input(x: torch.Tensor) -> torch.Tensor:
    """Half as long, twice as long, and cut: of an even length nothing is cut off."""
    y = F.interpolate(F.avg_pool1d(x, 3, 2, 1), scale_factor=2.0)[..., : x.shape[-1]]
    return torch.cat([x, y], 1)


LAYERS = {
    "MaxPool1d": nn.MaxPool1d(2),
    "MaxPool1d, padded": nn.MaxPool1d(3, 2, 1, ceil_mode=True),
    "max_pool1d of torch": lambda x: torch.max_pool1d(x * 2, 2) + 1,
    "max_pool1d by name": lambda x: F.max_pool1d(input=x, kernel_size=3, stride=1),
    "max_pool1d with places": lambda x: F.max_pool1d(x, 2, return_indices=True)[0],
    "max_pool1d of two dimensions": lambda x: F.max_pool1d(x[0], 2),
    "LPPool1d": nn.LPPool1d(2, 2),
    "AdaptiveMaxPool1d": nn.AdaptiveMaxPool1d(2),
    "a slice that may cut nothing": cut_to_the_input,
}


@pytest.mark.parametrize("name", LAYERS)
def test_one_graph_for_all_lengths(name):
    layer = LAYERS[name]
    compiled = cl.compile(layer, dynamic=True)
    with cl.record() as trace:
        for length in (18, 13, 30, 7):
            x = torch.randn(2, 4, length, requires_grad=True)
            twin = x.detach().clone().requires_grad_()
            want, got = layer(x), compiled(twin)
            torch.testing.assert_close(got, want)

            want.sin().sum().backward()
            got.sin().sum().backward()
            torch.testing.assert_close(twin.grad, x.grad)
    assert len(trace.of(cl.events.GraphCaptured)) == 1


def test_places_that_are_asked_for_are_given():
    compiled = cl.compile(lambda x: F.max_pool1d(x, 2, return_indices=True), dynamic=True)
    for length in (8, 6):
        x = torch.randn(2, length)
        for got, want in zip(compiled(x), F.max_pool1d(x, 2, return_indices=True), strict=True):
            assert got.equal(want)


WRITES = {
    "expanded": lambda x: x[:1].expand(2, -1).clone(),
    "a row, shown twice": lambda x: x.clone()[:1].expand(2, -1),
    "a part": lambda x: x.clone()[:, 1:],
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_asks_whether_a_view_shows_an_element_twice(name):
    def write(x):
        view = WRITES[name](x)
        view[0].add_(1)
        return view * 2

    compiled = cl.compile(write, dynamic=True)
    for length in (5, 9):
        x = torch.randn(3, length)
        torch.testing.assert_close(compiled(x), write(x))
