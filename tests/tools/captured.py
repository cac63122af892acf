"""What capture gives for many programs, kept in a folder, so that two commits can be compared.

    python tests/tools/captured.py before      (with the first commit)
    python tests/tools/captured.py after       (with the second)
    diff -r before after

In:  the programs of `programs.py`, `language_programs` and `dynamo_programs.py`, and seeds of `random_programs.py`.
Out: one file for each program. For each capture of two calls: the graph with shapes and lines, the guards with their
     sources and causes, the head, and what ended the graph. With `--steps` each interpreted instruction, too, with the
     stack before and after it. The last line printed is one digest of all files.

Nothing is compiled: the graphs run as they are (backend "eager").
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dynamo_programs
import language_programs
import programs
import random_programs
import torch

import course_lib as cl
from course_lib import capture, events
from course_lib.capture import CaptureResult, Unsupported, literal
from course_lib.pipeline import Pipeline

ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\b1[34]\d{13}\b")
FOLDERS = str(Path(__file__).resolve().parent), str(Path(cl.__file__).resolve().parents[1])


def text_of(result: CaptureResult) -> str:
    """One capture as text."""
    lines = [f"== {result.name}, {result.operations} operations, looks up: {result.looks_up}"]

    for node in result.graph.graph.nodes:
        about = {
            name: str(node.meta[name])
            for name in sorted(node.meta)
            if name not in ("val", "location")
        }
        place = node.meta.get("location")
        value = node.meta.get("val")
        lines.append(f"{node.format_node()}  # {value} {about} at {place}")

    for guard in result.guards:
        tests = [f"{test.left} {test.op} {literal(test.right)}" for test in guard.tests]
        lines.append(f"guard {guard.kind} {guard.source.expr} ({guard.source}): {tests}")
        lines.append(f"    {guard.cause} {guard.inner}")

    lines.append(result.head.source)
    lines += sorted(result.head.names)
    lines.append(f"ended by: {problem_text(result.problem)}")
    return "\n".join(lines)


def problem_text(problem: Unsupported | None) -> str:
    """A graph break with all that it tells."""
    if problem is None:
        return "nothing"
    return f"{problem}\n{problem.instruction} {problem.offset} {problem.as_eager}"


def kept_in(kept: list[str]) -> Callable[..., CaptureResult]:
    """A `capture` stage that keeps the text of each result in `kept`."""

    def stage(*args: Any) -> CaptureResult:
        try:
            result = capture.capture(*args)
        except Unsupported as problem:
            kept.append(f"refused: {problem_text(problem)}")
            raise
        kept.append(text_of(result))
        return result

    return stage


def captured(function: Callable[..., Any], calls: list[Any], steps: bool) -> str:
    """The text of all captures while `function` is compiled and called with each of these arguments."""
    kept: list[str] = []
    cl.reset()
    torch.manual_seed(0)
    pipeline = Pipeline().replace(capture=kept_in(kept))
    trace = cl.record() if steps else contextlib.nullcontext()

    with trace as recorded, contextlib.redirect_stdout(io.StringIO()):
        compiled = cl.compile(function, backend="eager", pipeline=pipeline)
        for args in calls:
            try:
                compiled(*args)
            except Exception as error:
                kept.append(f"raises {type(error).__name__}: {error}")

    if steps:
        ran = [event for event in recorded.events if isinstance(event, events.InstructionRun)]
        kept += map(str, ran)

    text = ADDRESS.sub("0x...", "\n".join(kept))
    for folder in FOLDERS:
        text = text.replace(folder, "")
    return text


def jobs(seeds: range) -> Iterator[tuple[str, Callable[[], Any], Callable[[], list[Any]]]]:
    """Name, what makes the function, what makes the arguments of its calls."""
    for name, (function, make) in programs.PROGRAMS.items():
        yield f"program_{name}", lambda f=function: f, lambda m=make: [m(), m()]

    for prefix, module in (("language", language_programs), ("dynamo", dynamo_programs)):
        for name, (function, make, _) in module.PROGRAMS.items():
            yield f"{prefix}_{name}", lambda f=function: f, lambda m=make: [m(0), m(1)]

    for seed in seeds:
        arguments = functools.partial(random_programs.arguments, seed)
        make_function = functools.partial(random_programs.make, seed)
        yield (
            f"seed_{seed:05}",
            lambda m=make_function: m()[0],
            lambda a=arguments: [a(0), a(1)],
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200, help="how many seeds")
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--steps", action="store_true", help="each interpreted instruction, too")
    args = parser.parse_args()

    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    digest, count = hashlib.sha256(), 0

    for name, make_function, make_calls in jobs(range(args.start, args.start + args.count)):
        if args.only not in name:
            continue
        torch.manual_seed(0)
        text = captured(make_function(), make_calls(), args.steps)
        (args.folder / f"{name}.txt").write_text(text)
        digest.update(text.encode())
        count += 1

    print(f"{count} programs, digest {digest.hexdigest()[:16]}")


if __name__ == "__main__":
    sys.exit(main())
