"""What a stage is tried on before it is let into somebody's compiler
(`course_lib.grading.capstone`). Plain PyTorch, small.

The file stands here because capture follows user code, and code of this room counts as such.
"""

from __future__ import annotations

import torch
from torch import nn

from course_lib.bench.models import GPTBlock


class SmallNet(nn.Module):
    """Two layers and a softmax written out: operators whose derivatives everybody knows."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 16), nn.Linear(16, 4)

    def forward(self, x):
        weights = (self.second(self.first(x).tanh()) / 2).exp()
        return weights / weights.sum(-1, keepdim=True)


def block():
    """A block of a GPT, and inputs for it."""
    return GPTBlock(16, 2, 8), [(torch.randn(2, 8, 16),), (torch.randn(2, 8, 16),)]


def small_net():
    return SmallNet(), [(torch.randn(5, 6),), (torch.randn(5, 6),)]


def with_a_print(x):
    y = torch.sin(x) + 1
    print(end="")
    return y * 2 - x


def counted(x, k):
    return torch.relu(x) * k if x.shape[0] > 2 else x - k


def broken_in_two():
    """A function whose graph ends in the middle."""
    return with_a_print, [(torch.randn(4),), (torch.randn(4),)]


def many_calls():
    """A function whose guards fail in several ways: another number, shape, dtype; and calls that
    fit an entry."""
    x, y = torch.randn(4, 3), torch.randn(2, 3)
    return counted, [
        (x, 2.0),
        (x + 1, 2.0),
        (x, 3.0),
        (y, 2.0),
        (x, 2),
        (x.double(), 2.0),
        (x.t().contiguous().t(), 2.0),
        (x, 2.0),
    ]
