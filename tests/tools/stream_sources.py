"""The kernels of random attention programs, kept in a folder, so that two commits can be compared.

    python tests/tools/stream_sources.py before --count 250      (with the first commit)
    python tests/tools/stream_sources.py after --count 250       (with the second)
    diff -r before after

In:  seeds of `random_attention`. `generated_code.py` prints no streams: its graphs have none.
Out: one file for each seed, language and kind (forward, or a forward and backward of training), with
     the source of each kernel and the program around them. The last line printed says how many
     kernels were streams, and one digest of all files.

No kernel is compiled. Where a backward is made, the kernels of its forward give zeros: what their
results are makes no difference to the source of the backward.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import torch
from random_attention import Program, Writer, compile_streamed, small_tiles

import course_lib as cl
from course_lib.runtime import compiled
from course_lib.scheduling import Streamed

ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
LANGUAGES = ("cpp", "triton")


def zeros(*passed: object) -> None:
    """Stands for a kernel: every tensor that is passed becomes 0, which is an index in range."""
    for each in passed:
        if isinstance(each, torch.Tensor):
            each.data.zero_()


class Kept:
    """What was printed for one program, and how many of its kernels are streams."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.streams = 0

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Keeps what is printed. Each kernel is replaced by `zeros`."""
        print_kernels = compiled.print_kernels

        def printed(*args):
            sources = print_kernels(*args)
            self.streams += sum(isinstance(kernel, Streamed) for kernel in sources)
            for source in sources.values():
                self.texts += [source.source, str(sorted(source.line_of))]
            return sources

        def no_triton(graph, sources, autotune):
            in_triton = [each for each in sources.values() if each.language == "triton"]
            return {source.name: zeros for source in in_triton}

        def no_cpp(sources):
            in_cpp = [each for each in sources.values() if each.language == "cpp"]
            return compiled.Library({source.name: zeros for source in in_cpp}, cached=False)

        with (
            patch.object(compiled, "print_kernels", printed),
            patch.object(compiled, "load_triton_kernels", no_triton),
            patch.object(compiled, "load_cpp_kernels", no_cpp),
        ):
            yield


def forward(program: Program, codegen: str) -> Kept:
    """What is printed for a program without gradients."""
    kept = Kept()
    with small_tiles(), kept.listening():
        graph = compile_streamed(program.function(), *program.inputs.values(), codegen=codegen)
        kept.texts.append(graph.wrapper_source)
    return kept


def training(program: Program, codegen: str) -> Kept:
    """What is printed for a program and its backward, with gradients of all that can have one."""
    kept = Kept()
    inputs = [value.detach() for value in program.inputs.values()]
    trained = [value.requires_grad_() for value in inputs if value.is_floating_point()]
    cl.reset()
    with small_tiles(), kept.listening():
        function = cl.compile(program.function(), options={"codegen": codegen})
        results = [result for result in function(*inputs) if result.requires_grad]
        given = [torch.ones_like(result) for result in results]
        torch.autograd.grad(results, trained, given, allow_unused=True)
    return kept


KINDS = {"forward": forward, "training": training}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=250)
    args = parser.parse_args()

    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")

    digest = hashlib.sha256()
    streams = 0
    for seed in range(args.start, args.start + args.count):
        for codegen in LANGUAGES:
            for kind, make in KINDS.items():
                kept = make(Writer(seed).write(), codegen)
                streams += kept.streams
                text = ADDRESS.sub("0x...", "\n".join(kept.texts))
                (args.folder / f"seed_{seed:05}.{kind}.{codegen}.txt").write_text(text)
                digest.update(text.encode())

    print(f"{args.count} programs, {streams} streams, digest {digest.hexdigest()[:16]}")


if __name__ == "__main__":
    sys.exit(main())
