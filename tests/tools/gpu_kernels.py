"""Do the Triton kernels of real models compile for a GPU? Without one.

    python tests/tools/gpu_kernels.py [NAME ...] [--target sm_90] [--dtype float16] [--dynamic]

Each model (random weights, but sizes at which a GPU splits reductions and walks along rows) is captured, differentiated, and
printed in Triton, for eager's random numbers and for those of a formula; nothing of it is run. The distinct kernels are then
compiled for the target in another process. A line for each model, and every kernel that is refused, with Triton's reason.
Needs `transformers` for names that begin with `hf/`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

import course_lib as cl
from course_lib import events, lowering
from course_lib.viz.pictures.codegen.inspect_kernel import function_parameters, gpu

COMPILE = """
import importlib, json, sys, types
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
import linecache
for line in sys.stdin:
    job = json.loads(line)
    file = f"<kernel {job['number']}>"
    linecache.cache[file] = (len(job["source"]), None, job["source"].splitlines(True), file)
    names = {"__name__": "kernels"}
    try:
        exec(compile(job["source"], file, "exec"), names)
        attrs = {(n,): [["tt.divisibility", 16]] for n in range(job["pointers"])}
        src = ASTSource(names[job["name"]], job["signature"], {k: v for k, v in job["meta"].items()}, attrs)
        triton.compile(src, target=GPUTarget(*job["target"]), options={"num_warps": job["warps"], "enable_fp_fusion": False})
        print(json.dumps([job["number"], ""]), flush=True)
    except Exception as error:
        print(json.dumps([job["number"], f"{type(error).__name__}: {error}"[-1500:]]), flush=True)
"""


def layers(**options: Any) -> Callable[[], tuple[nn.Module, tuple[Any, ...]]]:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        layer = nn.TransformerEncoderLayer(256, 8, 1024, **options)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (
            torch.randn(16, 256, 256),
        )

    return make


class Loss(nn.Module):
    """A language model's last layer: logits over many classes, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.LayerNorm(256), nn.Linear(256, 32003)

    def forward(self, x, labels):
        return F.cross_entropy(
            self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten(), label_smoothing=0.1
        )


class Images(nn.Module):
    """Convolutions with norms of each kind, pooling, and a squeeze-and-excite gate."""

    def __init__(self, norm: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.a, self.b, self.c = (
            nn.Conv2d(3, 64, 3, 2, 1),
            nn.Conv2d(64, 64, 3, 1, 1, groups=64),
            nn.Conv2d(64, 128, 1),
        )
        self.one, self.two, self.three = norm(64), norm(64), norm(128)
        self.gate, self.head = nn.Linear(128, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.one(self.a(x))), 3, 2, 1)
        x = x + F.silu(self.two(self.b(x)))
        x = F.hardswish(self.three(self.c(x)))
        x = x * self.gate(x.mean((2, 3))).sigmoid()[:, :, None, None]
        x = F.interpolate(x, scale_factor=2, mode="bilinear") + F.interpolate(
            x, scale_factor=2, mode="nearest"
        )
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def images(norm: Callable[[int], nn.Module]) -> Callable[[], tuple[nn.Module, tuple[Any, ...]]]:
    return lambda: (Images(norm), (torch.randn(32, 3, 96, 96),))


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    **{
        f"encoder{' norm first' * first}{' batch first' * batch}": layers(
            norm_first=first, batch_first=batch
        )
        for first in (False, True)
        for batch in (False, True)
    },
    "encoder gelu no bias": layers(
        norm_first=True, batch_first=True, activation="gelu", bias=False
    ),
    "encoder-decoder": lambda: (
        nn.Transformer(256, 8, 1, 1, 512, batch_first=True),
        (torch.randn(16, 128, 256), torch.randn(16, 256, 256)),
    ),
    "loss": lambda: (Loss(), (torch.randn(8, 256, 256), torch.randint(0, 32003, (8, 256)))),
    "images batch_norm": images(nn.BatchNorm2d),
    "images group_norm": images(lambda n: nn.GroupNorm(8, n)),
    "images instance_norm": images(lambda n: nn.InstanceNorm2d(n, affine=True)),
    "images layer_norm": images(ChannelNorm),
}


def hf(
    name: str,
    model: str,
    config: str,
    inputs: Callable[[], tuple[Any, ...]] | None = None,
    **sizes: Any,
) -> None:
    def make() -> tuple[nn.Module, tuple[Any, ...]]:
        import transformers

        made = getattr(transformers, model)(getattr(transformers, config)(**sizes))
        made.config.use_cache = False
        return made, (inputs() if inputs else (torch.randint(2, 999, (8, 256)),))

    MODELS[f"hf/{name}"] = make


USUAL: dict[str, Any] = {
    "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 512, "vocab_size": 1000,
    "max_position_embeddings": 512,
}  # fmt: skip
PICTURES = lambda: (torch.randn(8, 3, 64, 64),)
OF_PICTURES = {k: v for k, v in USUAL.items() if k not in ("vocab_size", "max_position_embeddings")}
hf("bert", "BertForMaskedLM", "BertConfig", **USUAL)
hf(
    "gpt2",
    "GPT2LMHeadModel",
    "GPT2Config",
    n_embd=256,
    n_layer=2,
    n_head=8,
    n_positions=512,
    vocab_size=1000,
)
hf("llama", "LlamaForCausalLM", "LlamaConfig", num_key_value_heads=4, **USUAL)
hf("qwen3", "Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=4, head_dim=32, **USUAL)
hf("gemma2", "Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=4, head_dim=32, **USUAL)
hf("phi", "PhiForCausalLM", "PhiConfig", **USUAL)
hf(
    "opt",
    "OPTForCausalLM",
    "OPTConfig",
    hidden_size=256,
    num_hidden_layers=2,
    num_attention_heads=8,
    ffn_dim=512,
    vocab_size=1000,
)
hf(
    "bloom",
    "BloomForCausalLM",
    "BloomConfig",
    hidden_size=256,
    n_layer=2,
    n_head=8,
    vocab_size=1000,
)
hf("electra", "ElectraForMaskedLM", "ElectraConfig", embedding_size=128, **USUAL)
hf(
    "deberta-v2",
    "DebertaV2ForMaskedLM",
    "DebertaV2Config",
    relative_attention=True,
    pos_att_type=["p2c", "c2p"],
    **USUAL,
)
words = lambda length: torch.randint(2, 999, (8, length))
hf("t5", "T5ForConditionalGeneration", "T5Config", lambda: (words(256), None, words(128)),
   d_model=256, d_kv=32, d_ff=512, num_layers=2, num_heads=8, vocab_size=1000)  # fmt: skip
hf(
    "vit",
    "ViTForImageClassification",
    "ViTConfig",
    PICTURES,
    image_size=64,
    patch_size=8,
    **OF_PICTURES,
)
hf("swin", "SwinForImageClassification", "SwinConfig", PICTURES, image_size=64, patch_size=2, embed_dim=32, depths=[2, 2],
   num_heads=[2, 4], window_size=4)  # fmt: skip
hf(
    "convnext",
    "ConvNextForImageClassification",
    "ConvNextConfig",
    PICTURES,
    hidden_sizes=[32, 64],
    depths=[2, 2],
    num_stages=2,
)
hf(
    "resnet",
    "ResNetForImageClassification",
    "ResNetConfig",
    PICTURES,
    embedding_size=32,
    hidden_sizes=[32, 64],
    depths=[2, 2],
)
hf(
    "wav2vec2",
    "Wav2Vec2ForCTC",
    "Wav2Vec2Config",
    lambda: (torch.randn(4, 16000),),
    mask_time_prob=0.0,
    layerdrop=0.0,
    **OF_PICTURES,
)


def sources(model: nn.Module, inputs: tuple[Any, ...], dynamic: bool = False) -> dict[str, Any]:
    """The distinct kernels of a training step, by their text. `dynamic`: those for all sizes."""
    graphs: list[tuple[Any, Any]] = []
    captured = cl.compile(
        model,
        backend=lambda gm, examples: (graphs.append((gm, examples)), gm.forward)[1],
        dynamic=dynamic or None,
    )
    captured(*inputs)
    found: dict[str, Any] = {}
    for gm, examples in graphs:
        for more in ({}, lowering.PHILOX):
            pipeline = cl.Pipeline(decompositions=lowering.DECOMPOSITIONS | more)
            with cl.record() as trace:
                needs = any(isinstance(x, torch.Tensor) and x.requires_grad for x in examples)
                pipeline.run_compile(gm, "triton", needs)
            for event in (*trace.of(events.FellBack), *trace.of(events.SizesAreNumbers)):
                print(f"    fell back: {event.why[:300]}")
            found |= {
                k.source: k
                for event in trace.of(events.KernelsBuilt)
                for k in event.compiled.kernels
            }
    return {text: kernel for text, kernel in found.items() if kernel.language == "triton"}


def job(number: int, kernel: Any, target: str) -> str:
    meta = kernel.tiling.meta(interpreted=False)
    types = [*kernel.types, *["constexpr"] * len(meta)]
    signature = dict(zip(function_parameters(kernel), types, strict=True))
    return json.dumps({
        "number": number, "source": kernel.source, "name": kernel.name, "meta": meta, "signature": signature,
        "pointers": sum(t.startswith("*") for t in kernel.types), "target": gpu(target), "warps": kernel.tiling.warps(meta),
    })  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--dtype", default="float16")
    parser.add_argument("--dynamic", action="store_true", help="kernels for all sizes")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    dtype = getattr(torch, asked.dtype)
    known: set[str] = set()
    refused = 0
    for name, make in MODELS.items():
        if asked.names and not any(part in name for part in asked.names):
            continue
        model, inputs = make()
        inputs = tuple(
            x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x
            for x in inputs
        )
        kernels = {
            text: k
            for text, k in sources(model.to(dtype).train(), inputs, asked.dynamic).items()
            if text not in known
        }
        known |= kernels.keys()
        jobs = "\n".join(job(n, kernel, asked.target) for n, kernel in enumerate(kernels.values()))
        done = subprocess.run([sys.executable, "-c", COMPILE], input=jobs, capture_output=True, text=True,
                              env={**os.environ, "TRITON_INTERPRET": "0"})  # fmt: skip
        answers = dict(map(json.loads, done.stdout.splitlines()))
        bad = [
            (k, answers.get(n, done.stderr[-800:]))
            for n, k in enumerate(kernels.values())
            if answers.get(n, "no answer")
        ]
        print(f"{name}: {len(kernels)} new kernels, {len(bad)} refused", flush=True)
        for kernel, why in bad:
            print(f"--- {kernel.name}\n{kernel.source}\n{why}\n")
        refused += len(bad)
        cl.reset()
    print(f"{len(known)} kernels, {refused} refused")
    return refused > 0


if __name__ == "__main__":
    sys.exit(main())
