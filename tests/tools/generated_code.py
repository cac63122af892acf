"""The code that is generated for random graphs and for `programs`, kept in a folder, so that two commits can be compared.

    python tests/tools/generated_code.py before --count 500      (with the first commit)
    python tests/tools/generated_code.py after --count 500       (with the second)
    diff -r before after

In:  seeds of `random_graphs`, and the programs of `tests/tools/programs.py`; with `--growing N` the long ones of `growing.py`, too.
Out: one file for each program and each language: what the scheduler decided, where buffers live, every kernel, and
     the program around them. The last line printed is one digest of all files.

No kernel is compiled. The drawn settings of `random_graphs` (`settings_of`) are in force while C++ is printed.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import growing
import programs
import random_graphs
import torch

import course_lib as cl
from course_lib.codegen.cpp import cpp_source
from course_lib.codegen.printer import identifier
from course_lib.codegen.triton import triton_source
from course_lib.codegen.wrapper import Wrapper
from course_lib.for_each_size import with_sizes
from course_lib.pipeline import Pipeline
from course_lib.scheduling import Fuse, FusedKernel
from course_lib.viz.evaluator import evaluate

PRINTERS = {"cpp": cpp_source, "triton": triton_source}
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def text_of(graph: Any, schedule: Any, plan: Any, codegen: str) -> str:
    """All that is generated for one graph, as text."""
    sources: dict[FusedKernel, Any] = {}
    for kernel in schedule.fused:
        name = identifier(kernel.name, [source.name for source in sources.values()])
        sources[kernel] = PRINTERS[codegen](kernel, graph.buffers, name)

    wrapper, _ = Wrapper(schedule.kernels, plan, graph, sources).print()
    tilings = [repr(getattr(source, "tiling", "")) for source in sources.values()]
    parts = [
        str(schedule),
        *map(str, schedule.decisions),
        *schedule.inlined,
        *schedule.removed,
        *map(str, plan.allocations),
        str(plan.free_after),
        *(source.source for source in sources.values()),
        *tilings,
        wrapper,
    ]
    return ADDRESS.sub("0x...", "\n".join(parts))


def printed(kept: list[str], codegen: str, settings: dict[str, int]) -> Callable[..., Any]:
    """A `build` stage that keeps the text in `kept` and runs the loops one by one."""

    def build(graph: Any, schedule: Any, plan: Any, _: str) -> Callable[..., Any]:
        with random_graphs.with_settings(settings):
            kept.append(text_of(graph, schedule, plan, codegen))

        def run(*inputs: Any) -> tuple[Any, ...]:
            return tuple(evaluate(graph, *inputs))

        return run

    return build


def random_graph(seed: int, codegen: str) -> str:
    """What is generated for the random program of a seed."""
    program = random_graphs.make(seed)
    draw = Random(seed)
    settings = random_graphs.settings_of(draw)
    kept: list[str] = []
    pipeline = Pipeline(build=printed(kept, codegen, settings))
    if draw.random() < 0.2:
        pipeline = pipeline.replace(fuse=always)

    torch.manual_seed(0)
    try:
        gm = with_sizes(program.graph(), program.arguments(0))
    except Exception:
        return "torch cannot trace it\n"

    pipeline.run_compile(gm, codegen, program.differentiate)
    return "\n".join(kept)


def always(producer: object, consumer: object) -> Fuse:
    """The greediest answer."""
    return Fuse(1)


def named_program(name: str, codegen: str) -> str:
    """What is generated when a program of `programs` is compiled and called."""
    function, make = programs.PROGRAMS[name]
    return generated_for(function, make(), codegen)


def grown_program(kind: str, count: int, train: bool, codegen: str) -> str:
    """What is generated for a program of `growing` with about `count` operations."""
    function, args = growing.GROWING[kind](count)
    return generated_for(function, [arg.requires_grad_(train) for arg in args], codegen)


def generated_for(function: Callable[..., Any], args: Sequence[Any], codegen: str) -> str:
    """What is generated when a function is compiled and called."""
    kept: list[str] = []
    pipeline = Pipeline(build=printed(kept, codegen, {}))
    cl.reset()
    torch.manual_seed(0)
    try:
        cl.compile(function, pipeline=pipeline, options={"codegen": codegen})(*args)
    except Exception as error:
        kept.append(f"raises {type(error).__name__}")

    return "\n".join(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--programs", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--growing", type=int, default=0, help="operations of the long programs")
    args = parser.parse_args()

    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, random_graphs.too_long)

    jobs: dict[str, Callable[[str], str]] = {}
    for seed in range(args.start, args.start + args.count):
        jobs[f"seed_{seed:05}"] = functools.partial(random_graph, seed)
    for name in programs.PROGRAMS if args.programs else ():
        jobs[name] = functools.partial(named_program, name)
    for kind in growing.GROWING if args.growing else ():
        for train in (False, True):
            name = f"{kind}_{args.growing}_{'train' if train else 'forward'}"
            jobs[name] = functools.partial(grown_program, kind, args.growing, train)

    digest = hashlib.sha256()
    for name, job in jobs.items():
        for codegen in PRINTERS:
            signal.alarm(random_graphs.LONGEST)
            text = job(codegen)
            signal.alarm(0)
            (args.folder / f"{name}.{codegen}.txt").write_text(text)
            digest.update(text.encode())

    print(f"{len(jobs)} programs, digest {digest.hexdigest()[:16]}")


if __name__ == "__main__":
    sys.exit(main())
