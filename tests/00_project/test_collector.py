"""Garbage is not collected while modules are loaded or a frame is compiled; before and after all is as the user had it."""

from __future__ import annotations

import gc

import pytest
import torch

import course_lib as cl


@pytest.mark.parametrize("collects", [True, False])
def test_a_compile_pauses_the_collector_and_leaves_it_as_it_was(collects):
    seen = []

    def watching(graph, inputs):
        seen.append(gc.isenabled())
        return graph.forward

    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert torch.equal(
            cl.compile(lambda x: x + 1, backend=watching)(torch.ones(2)), torch.full((2,), 2.0)
        )
        assert seen == [False] and gc.isenabled() == collects

        def fails(graph, inputs):
            raise RuntimeError("no code")

        with pytest.raises(RuntimeError, match="no code"):
            cl.compile(lambda x: x + 1, backend=fails)(torch.ones(2))
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()
