"""Models with `dynamic=True` over twelve sizes: how many graphs, how many compiles, and are results and gradients eager's?

    python tests/tools/models_of_sizes.py             (a table, one line a model)
    python tests/tools/models_of_sizes.py lstm gru    (these alone, with the words of each error)
    python tests/tools/models_of_sizes.py --torch     (torch.compile as well; it takes half a minute a model)

The models are PyTorch's own layers, a `generate` loop with a growing cache, and a step of training on ragged batches. Each runs on
twelve sets of sizes in turn (0 and 1 are not among them: they are graphs of their own), forward and backward, beside eager with
the same weights.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import course_lib as cl
from course_lib import events

LENGTHS = (5, 9, 3, 17, 12, 2, 31, 8, 23, 6, 14, 11)
Inputs = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Row:
    """A model, and what makes its inputs of a length."""

    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]


def tokens(n: int) -> Inputs:
    """Two texts of n words, as vectors of 16."""
    return [torch.randn(2, n, 16, requires_grad=True)]


def images(n: int) -> Inputs:
    """Images of 3 channels, n + 8 high and 2n + 8 wide."""
    return [torch.randn(2, 3, n + 8, 2 * n + 8, requires_grad=True)]


def sounds(n: int) -> Inputs:
    return [torch.randn(2, 4, 2 * n + 8, requires_grad=True)]


def batches(n: int) -> Inputs:
    return [torch.randn(n, 16, requires_grad=True)]


def words(n: int) -> Inputs:
    return [torch.randint(32, (2, n))]


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


class OutputOnly(nn.Module):
    """A recurrent layer, of which the outputs are asked for."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class Residual(nn.Module):
    """A block of a ResNet, and the mean of what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(a, 8, 3, padding=1) for a in (3, 8))
        self.norm, self.shortcut = nn.BatchNorm2d(8), nn.Conv2d(3, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(self.norm(self.first(x)).relu()) + self.shortcut(x)
        return self.head(y.relu().mean((2, 3)))


class UNet(nn.Module):
    """Down and up by two, with a skip; the larger image is cut to the smaller."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(11, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.interpolate(self.down(x).relu(), scale_factor=2.0)
        y = y[..., : x.shape[-2], : x.shape[-1]]
        return self.up(torch.cat([x, y], 1))


class Language(nn.Module):
    """Embedding, positions, a layer with a causal mask, and the loss of the next word."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(32, 16), nn.Embedding(64, 16)
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True)
        self.head = nn.Linear(16, 32)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        x = self.words(text) + self.places(torch.arange(length))
        later = nn.Transformer.generate_square_subsequent_mask(length)
        logits = self.head(self.layer(x, src_mask=later, is_causal=True))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), text[:, 1:].flatten())


class Cached(nn.Module):
    """One step of `generate`: a word more, and keys and values that grow by one."""

    def __init__(self) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Any:
        q, k, v = self.project(x).chunk(3, -1)
        keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
        return self.out(F.scaled_dot_product_attention(q, keys, values)), keys, values


def grown(n: int) -> Inputs:
    """A word, and a cache of n."""
    sizes = (1, n, n)
    return [torch.randn(2, size, 16, requires_grad=True) for size in sizes]


class Ragged(nn.Module):
    """A batch of texts of different length, as one row of vectors and the number of the text of each: a
    mean of each text, and the loss over all."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Linear(16, 16), nn.Linear(16, 4)

    def forward(
        self, rows: torch.Tensor, text: torch.Tensor, classes: torch.Tensor
    ) -> torch.Tensor:
        count = classes.shape[0]
        sums = rows.new_zeros(count, 16).index_add(0, text, F.gelu(self.layer(rows)))
        lengths = rows.new_zeros(count).index_add(0, text, torch.ones_like(rows[:, 0]))
        return F.cross_entropy(self.head(sums / lengths[:, None].clamp(min=1)), classes)


def ragged(n: int) -> Inputs:
    """n texts of one to five words."""
    lengths = torch.randint(1, 6, (n,))
    text = torch.arange(n).repeat_interleave(lengths)
    return [torch.randn(len(text), 16, requires_grad=True), text, torch.randint(4, (n,))]


def sequence(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: copy.deepcopy(nn.Sequential(*layers))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 4, 32, 0.0, batch_first=True)


def decoder() -> nn.Module:
    return nn.TransformerDecoderLayer(16, 4, 32, 0.0, batch_first=True)


class Translation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = encoder(), decoder()

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.decoder(target, self.encoder(source))


def two_texts(n: int) -> Inputs:
    return [*tokens(n), *tokens(3 * n // 2 + 1)]


ROWS = [
    Row("mlp", sequence(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), batches),
    Row("norms", sequence(nn.LayerNorm(16), nn.Linear(16, 16), nn.RMSNorm(16)), tokens),
    Row("batch_norm", sequence(nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU()), batches),
    Row("embedding_bag", sequence(nn.EmbeddingBag(32, 8), nn.Linear(8, 3)), words),
    Row("attention", SelfAttention, tokens),
    Row("encoder", encoder, tokens),
    Row(
        "encoder_norm_first",
        lambda: nn.TransformerEncoderLayer(16, 4, 32, 0.0, norm_first=True),
        tokens,
    ),
    Row("translation", Translation, two_texts),
    Row("language", Language, words),
    Row("lstm", lambda: OutputOnly(nn.LSTM(16, 8, batch_first=True)), tokens),
    Row("gru", lambda: OutputOnly(nn.GRU(16, 8, batch_first=True)), tokens),
    Row("rnn", lambda: OutputOnly(nn.RNN(16, 8, batch_first=True)), tokens),
    Row("conv1d", sequence(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.MaxPool1d(2)), sounds),
    Row("conv2d", sequence(nn.Conv2d(3, 8, 3, 2), nn.SiLU(), nn.AdaptiveAvgPool2d(1)), images),
    Row(
        "depthwise",
        sequence(nn.Conv2d(3, 6, 3, groups=3), nn.GroupNorm(2, 6), nn.Hardswish()),
        images,
    ),
    Row("transposed", sequence(nn.ConvTranspose2d(3, 4, 2, 2), nn.Tanh()), images),
    Row("residual", Residual, images),
    Row("unet", UNet, images),
    Row("generate", Cached, grown),
    Row("ragged", Ragged, ragged),
]


@dataclass
class Outcome:
    """What came of a model over all its sizes."""

    wrong: str = ""
    first: float = 0.0
    later: float = 0.0


def step(model: nn.Module, inputs: Inputs, gradients_of: nn.Module) -> list[Any]:
    """Results and gradients of one step; the inputs are leaves of this step's own."""
    own = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    gradients_of.zero_grad()
    results = model(*own)
    results = results if isinstance(results, tuple) else (results,)
    sum(result.float().sin().sum() for result in results).backward()  # type: ignore[union-attr]
    return [*results, *(x.grad for x in own), *(p.grad for p in gradients_of.parameters())]


def over_all_sizes(row: Row, compile: Callable[..., Any]) -> Outcome:
    torch.manual_seed(0)
    model = row.model()
    twin = copy.deepcopy(model)
    compiled = compile(twin, dynamic=True)
    outcome = Outcome()
    for number, length in enumerate(LENGTHS):
        inputs = row.inputs(length)
        want = step(model, inputs, model)
        start = time.perf_counter()
        try:
            got = step(compiled, inputs, twin)
            took = time.perf_counter() - start
            torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)
        except Exception as problem:
            first = (str(problem).strip() or " ").splitlines()[0]
            outcome.wrong = f"length {length}: {type(problem).__name__}: {first}"
            return outcome
        if number:
            outcome.later += took
        else:
            outcome.first = took
    return outcome


def of_ours(row: Row) -> str:
    cl.reset()
    with cl.record() as trace:
        outcome = over_all_sizes(row, cl.compile)
    graphs, breaks = len(trace.of(events.GraphCaptured)), len(trace.of(events.GraphBroke))
    by_numbers = len(trace.of(events.SizesAreNumbers)) + len(trace.of(events.FellBack))
    said = f"{graphs} | {breaks} | {by_numbers}"
    return f"{said} | {outcome.wrong or 'right'} | {outcome.first:.1f} s | {outcome.later:.2f} s"


def of_torch(row: Row) -> str:
    torch._dynamo.reset()
    counters = torch._dynamo.utils.counters
    counters.clear()
    outcome = over_all_sizes(row, torch.compile)
    graphs = counters["stats"]["unique_graphs"]
    return (
        f" | {graphs} | {outcome.wrong or 'right'} | {outcome.first:.1f} s | {outcome.later:.2f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("names", nargs="*")
    parser.add_argument("--torch", action="store_true", help="torch.compile as well")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch._logging.set_logs(all=50)
    torch.set_num_threads(1)

    width = None if options.names else 90
    print(
        "| model | compiles | breaks | not in symbols | forward and backward | first call | 11 later |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for row in ROWS:
        if not options.names or row.name in options.names:
            beside = of_torch(row) if options.torch else ""
            print(f"| {row.name} | {of_ours(row)[:width]}{beside} |", flush=True)


if __name__ == "__main__":
    main()
