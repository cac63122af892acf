"""What the reference models use beside plain arithmetic: interpolation, losses, lists of tensors. All of it becomes loops."""

from __future__ import annotations

import pytest
import torch
from aten_graphs import agree, lowered
from torch.nn import functional as F

from course_lib.lowering import ExternKernel

aten = torch.ops.aten


def no_extern(graph) -> None:
    assert not [str(node) for node in graph.nodes if isinstance(node, ExternKernel)]


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
def test_interpolation(mode):
    x = torch.randn(2, 3, 5, 6)
    no_extern(
        agree(
            lambda x: (
                F.interpolate(x, scale_factor=2.0, mode=mode),
                F.interpolate(x, (7, 4), mode=mode),
            ),
            x,
        )
    )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_and_its_derivative(reduction):
    x, target, weight = torch.randn(6, 5), torch.tensor([0, 4, -100, 2, 2, 1]), torch.rand(5)
    no_extern(
        agree(lambda x, t, w: F.cross_entropy(x, t, w, reduction=reduction), x, target, weight)
    )
    no_extern(
        agree(
            lambda x, t: F.nll_loss(x, t, ignore_index=2, reduction=reduction),
            torch.randn(6, 5, 2, 2).log_softmax(1),
            target.clamp(0)[:, None, None].expand(6, 2, 2),
        )
    )
    number = {"none": 0, "mean": 1, "sum": 2}[reduction]
    grad, total = torch.randn(6 if reduction == "none" else ()), torch.tensor(3.5)
    for w in (None, weight):
        no_extern(
            agree(
                lambda g, x, t, n: aten.nll_loss_backward(g, x, t, w, number, -100, n),
                grad,
                x,
                target,
                total,
            )
        )


def test_a_class_that_is_not_there_raises():
    from course_lib.viz.evaluator import evaluate

    x, target = torch.randn(2, 3), torch.tensor([0, 7])
    with pytest.raises(IndexError, match="out of range: 7"):
        evaluate(lowered(F.cross_entropy, x, target), x, target)


def test_lists_of_tensors_one_by_one():
    xs, ys = [torch.randn(3), torch.randn(2, 2)], [torch.rand(3), torch.rand(2, 2)]

    def steps(a, b, c, d):
        moved = torch._foreach_add([a, b], [c, d], alpha=0.5)
        moved = torch._foreach_addcdiv(moved, [a, b], torch._foreach_sqrt([c, d]), value=-0.1)
        moved = torch._foreach_addcmul(moved, [a, b], [c, d], [1.0, 2.0])
        moved = torch._foreach_lerp(torch._foreach_mul(moved, [2.0, 3.0]), [c, d], 0.25)
        return (
            *torch._foreach_maximum(moved, 0.1),
            *torch._foreach_norm([a, b]),
            *torch._foreach_pow(2.0, [c, d]),
        )

    no_extern(agree(steps, *xs, *ys))


def test_batch_norm_in_training_returns_new_statistics():
    x, w, b = torch.randn(4, 3, 5), torch.rand(3), torch.randn(3)
    mean, var = torch.randn(3), torch.rand(3)
    op = aten._native_batch_norm_legit_functional.default
    no_extern(agree(lambda *args: op(*args, True, 0.1, 1e-5), x, w, b, mean, var))
