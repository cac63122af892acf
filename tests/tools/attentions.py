"""Attention as people write it, without a library: small programs for tests, and their inputs.

The sizes are no powers of two, and there are more columns than rows: blocks end in the middle.
"""

from __future__ import annotations

import torch

# Batch, heads, rows, columns, and the width of a head
B, H, M, N, D = 2, 4, 150, 200, 32
INF = float("inf")


def heads(count=H, rows=N, dtype=torch.float32):
    return torch.randn(B, count, rows, D, dtype=dtype)


def positions():
    return torch.arange(M)[:, None], torch.arange(N)


def plain(q, k, v):
    return torch.softmax(q @ k.mT * D**-0.5, -1) @ v


def causal(q, k, v):
    i, j = positions()
    return torch.softmax(torch.where(i >= j, q @ k.mT, -INF), -1) @ v


def shut(q, k, v, mask):
    """Whole rows are masked: eager gives NaN."""
    return torch.softmax((q @ k.mT).masked_fill(~mask, -INF), -1) @ v


def bias(q, k, v, bias):
    return torch.softmax(q @ k.mT + bias, -1) @ v


def soft_cap(q, k, v):
    return torch.softmax(20 * torch.tanh(q @ k.mT / 20), -1) @ v


def alibi(q, k, v, slope):
    i, j = positions()
    return torch.softmax(q @ k.mT - (i - j).abs() * slope, -1) @ v


def repeated(q, k, v):
    return plain(q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))


def differential(q, k, v):
    one, other = torch.softmax(q @ k.mT, -1), torch.softmax(q @ k.mT * 0.3, -1)
    return (one - 0.4 * other) @ v


def from_logarithms(q, k, v):
    return torch.log_softmax(q @ k.mT, -1).exp() @ v
