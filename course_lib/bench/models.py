"""What is measured. This file stands for a user's code: plain PyTorch, and nothing of course_lib.

`TinyBlock` is the model of the script `day13_compile_bench.py`, line for line.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


class TinyBlock(nn.Module):
    def __init__(self, hidden, expansion):
        super().__init__()
        self.ln = nn.LayerNorm(hidden)
        self.fc1 = nn.Linear(hidden, hidden * expansion)
        self.fc2 = nn.Linear(hidden * expansion, hidden)

    def forward(self, x):
        residual = x
        x = self.ln(x)
        x = self.fc1(x)
        x = torch.nn.functional.gelu(x)
        x = x * 1.41421356 + 0.01
        x = self.fc2(x)
        return x + residual


class Attention(nn.Module):
    """Multi-head self-attention through torch's own kernel."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x):
        batch, seq, hidden = x.shape
        q, k, v = (
            self.qkv(x).view(batch, seq, 3, self.heads, hidden // self.heads).permute(2, 0, 3, 1, 4)
        )
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))


class Transformer(nn.Module):
    """Blocks of attention and a GELU network, each behind a LayerNorm and beside a residual."""

    def __init__(self, layers, hidden, heads):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(hidden),
                    "attention": Attention(hidden, heads),
                    "norm2": nn.LayerNorm(hidden),
                    "up": nn.Linear(hidden, 4 * hidden),
                    "down": nn.Linear(4 * hidden, hidden),
                }
            )
            for _ in range(layers)
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + layer["attention"](layer["norm1"](x))
            x = x + layer["down"](torch.nn.functional.gelu(layer["up"](layer["norm2"](x))))
        return x


class EncoderBlock(nn.Module):
    """A transformer block as tutorials write it: `nn.MultiheadAttention` and a GELU network. Lesson 13 trains six of them."""

    def __init__(self, d_model=512, nhead=8, dim_feedforward=2048):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(d_model, nhead, batch_first=True)
        self.ffn = nn.Sequential(
            nn.Linear(d_model, dim_feedforward), nn.GELU(), nn.Linear(dim_feedforward, d_model)
        )
        self.norm1 = nn.LayerNorm(d_model)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x):
        residual = x
        x = self.norm1(x)
        x, _ = self.self_attn(x, x, x)
        x = x + residual
        residual = x
        x = self.norm2(x)
        x = self.ffn(x)
        return x + residual


class DenseLayer(nn.Module):
    """Two convolutions, each behind a batch norm and a ReLU; what comes out is put beside what came in."""

    def __init__(self, width, growth):
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(width), nn.Conv2d(width, 4 * growth, 1, bias=False)
        self.norm2, self.conv2 = (
            nn.BatchNorm2d(4 * growth),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x):
        y = self.conv1(torch.relu(self.norm1(x)))
        return torch.cat((x, self.conv2(torch.relu(self.norm2(y)))), 1)


class DenseNet(nn.Module):
    """With its defaults DenseNet-121, as torchvision has it; with fewer and thinner layers something that a laptop can train."""

    def __init__(self, growth=32, blocks=(6, 12, 24, 16), stem=64, classes=1000):
        super().__init__()
        width = stem
        layers = [
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        ]
        for number, depth in enumerate(blocks):
            if number:
                layers += [
                    nn.BatchNorm2d(width),
                    nn.ReLU(),
                    nn.Conv2d(width, width // 2, 1, bias=False),
                    nn.AvgPool2d(2),
                ]
                width //= 2
            layers += [DenseLayer(width + growth * i, growth) for i in range(depth)]
            width += growth * depth
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU())
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def gelu_layer(x, weight, bias):
    """What `course demo` walks through: one GEMM and a loop behind it."""
    y = x @ weight + bias
    return torch.nn.functional.gelu(y) * 2


def scale_and_add(x, y):
    """Hardly any work: what is left is the cost of a call."""
    return x * 2 + y


def scaled_gelu(x, scale, bias, residual):
    """Scale, bias, GELU, residual: four operations, one pass over memory when fused."""
    return torch.nn.functional.gelu(x * scale + bias) + residual


def pointwise_chain(x):
    """Six operations that read and write memory once each in eager, once together when fused."""
    return torch.tanh(x * 1.5 + 0.5) * torch.sigmoid(x) - x.relu()


def bias_gelu(x, bias):
    """An epilogue: activation after a bias."""
    return torch.nn.functional.gelu(x + bias)


def softmax(x):
    """Two reductions over the rows (maximum, sum) and what belongs to them."""
    return torch.softmax(x, -1)


def layer_norm(x, weight, bias):
    """Mean and variance over the rows, then scale and shift."""
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias)


def rms_norm(x, weight):
    """LayerNorm without the mean, written out as models do."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def row_sum(x):
    """A reduction alone: it only reads."""
    return x.sum(-1)


FUNCTIONS: dict[Callable[..., torch.Tensor], tuple[tuple[int, ...], ...]] = {
    pointwise_chain: ((4096, 1024),),
    bias_gelu: ((4096, 1024), (1024,)),
    softmax: ((4096, 1024),),
    layer_norm: ((8192, 768), (768,), (768,)),
    rms_norm: ((8192, 768), (768,)),
    row_sum: ((4096, 1024),),
}
"""Function → the shapes of its arguments, for `course bench kernels`."""


def random_inputs(shapes, device="cpu", dtype=torch.float32, rows=None):
    """Fresh standard-normal tensors; `rows` replaces the first size of those with two or more dimensions."""
    shapes = [(rows, *shape[1:]) if rows and len(shape) > 1 else shape for shape in shapes]
    return tuple(torch.randn(shape).to(device, dtype) for shape in shapes)


class GPTBlock(nn.Module):
    """One block of a GPT as it is usually written down: causal attention spelled out, then a GELU network."""

    def __init__(self, hidden, heads, context):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.register_buffer("later", torch.ones(context, context).triu(1).bool())

    def forward(self, x):
        batch, seq, hidden = x.shape
        width = hidden // self.heads
        q, k, v = (
            self.qkv(self.ln1(x)).view(batch, seq, 3, self.heads, width).permute(2, 0, 3, 1, 4)
        )
        scores = (q @ k.transpose(-2, -1)) * width**-0.5
        weights = scores.masked_fill(self.later[:seq, :seq], -torch.inf).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, seq, hidden))
        return x + self.down(torch.nn.functional.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    """Embeddings, blocks, and a score for each token of the vocabulary; with `targets`, the loss."""

    def __init__(self, vocabulary, layers, hidden, heads, context):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, hidden), nn.Embedding(context, hidden)
        self.blocks = nn.ModuleList(GPTBlock(hidden, heads, context) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(hidden), nn.Linear(hidden, vocabulary, bias=False)

    def forward(self, tokens, targets=None):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.ln(x))
        if targets is None:
            return scores
        return torch.nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten())


FIRST_CALLS = {
    "pointwise chain": (lambda: scaled_gelu, ((1024, 1024), (1024,), (1024,), (1024, 1024)), False),
    "softmax": (lambda: softmax, ((4096, 4096),), False),
    "LayerNorm": (lambda: layer_norm, ((8192, 768), (768,), (768,)), False),
    "TinyBlock": (lambda: TinyBlock(768, expansion=4), ((32, 128, 768),), False),
    "transformer": (lambda: Transformer(layers=6, hidden=256, heads=4), ((8, 64, 256),), False),
    "transformer, training": (
        lambda: Transformer(layers=6, hidden=256, heads=4),
        ((8, 64, 256),),
        True,
    ),
    "x * 2 + y": (lambda: scale_and_add, ((4,), (4,)), False),
}
"""Name → how to make it, the shapes of its inputs, and whether backward is part of it: for `course bench compile`."""

TRAINED = {
    "TinyBlock 32x128x768": (lambda: TinyBlock(768, expansion=4), ((32, 128, 768),), True),
    "six-layer transformer, batch 64": (
        lambda: Transformer(layers=6, hidden=256, heads=4),
        ((64, 64, 256),),
        True,
    ),
}
"""The models of `course bench peak`."""
