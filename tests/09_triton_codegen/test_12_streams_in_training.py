"""Training with attention in Triton: forward stores numbers of each row, backward computes scores again in two kernels."""

from __future__ import annotations

import pytest
import torch
from attention_gradients import HALF, SMALL, VARIANTS, check
from random_attention import check_training, gradients, small_tiles

import course_lib as cl
from course_lib import events

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("name", VARIANTS)
def test_results_and_gradients_without_a_matrix_of_scores(name):
    outcome = check(name, DEVICE)
    assert outcome.fault == ""
    assert outcome.streams == VARIANTS[name].streams, outcome.notes
    assert "block by block" in outcome.notes


def trained(name, inputs, given):
    """Results and gradients of a variant in Triton, and the sources of its streams."""
    seen = []
    with small_tiles(), events.listener(seen.append):
        compiled = cl.compile(
            lambda *x: (VARIANTS[name].function(*x),), options={"codegen": "triton"}
        )
        got = gradients(compiled, inputs, range(3), [given])
    built = [event.compiled for event in seen if isinstance(event, events.KernelsBuilt)]
    kernels = [kernel for graph in built for kernel in graph.kernels]
    return got, [kernel.source for kernel in kernels if kernel.name.startswith("streamed")]


def test_what_two_ends_share_is_loaded_once():
    inputs = [each.to(DEVICE) for each in SMALL.queries_keys_values(HALF)]
    _, (forward, keys_and_values, queries) = trained("plain", inputs, torch.randn_like(inputs[0]))
    loops = [text.split("    for n0")[1] for text in (forward, keys_and_values, queries)]
    assert [loop.count("tl.dot(") for loop in loops] == [2, 4, 3]
    # Queries and the gradient of the result: products of scores need them, and so do the ends.
    operands = [
        line for line in loops[1].splitlines() if line.strip().startswith(("keys", "values"))
    ]
    assert [line.split(" = ")[0].strip() for line in operands] == ["keys", "keys1"]
    # What is the same for a row is known before the walk, and no score is divided.
    assert "1.0 / " in queries.split("    for n0")[0]
    assert " / " not in loops[2]


@pytest.mark.parametrize("name", ["causal", "linear"])
@pytest.mark.parametrize("where", ["k", "v", "gradient"])
def test_what_is_not_finite_in_a_hidden_block_is_seen(name, where):
    """The last keys are hidden from all queries, and the first queries see few keys."""
    q, k, v = (each.to(DEVICE) for each in SMALL.queries_keys_values())
    given = torch.randn_like(q)
    place = (0, 1, 3 if where == "gradient" else 85, 5)
    {"k": k, "v": v, "gradient": given}[where][place] = float("inf")
    got, _ = trained(name, (q, k, v), given)

    def eager(*inputs):
        return (VARIANTS[name].function(*inputs),)

    want = gradients(eager, (q, k, v), range(3), [given])
    for one, other in zip((*got[0], *got[1]), (*want[0], *want[1]), strict=True):
        assert torch.equal(one.isfinite(), other.isfinite())
        kept = one.isfinite()
        torch.testing.assert_close(one[kept], other[kept], rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(DEVICE == "cuda", reason="these programs make their tensors on the CPU")
@pytest.mark.parametrize("seed", [2, 5, 11, 17])
def test_random_programs(seed):
    """(`python tests/tools/random_attention.py --training --codegen triton` runs more.)"""
    assert check_training(seed, "triton").fault == ""


@pytest.mark.skipif(DEVICE == "cuda", reason="this program makes its tensors on the CPU")
def test_a_mask_may_hide_blocks_of_a_stream_that_ends_in_no_product():
    """A window, of which some rows see nothing. A first stream gives numbers of each row only: it has no values to look at."""
    assert check_training(28, "triton").fault == ""
