"""Run the small programs on the installed torch and on `course_lib`, and keep what they gave.

    python tests/tools/behaviours/run.py                  all programs; writes answers/torch-2.13.json (of this torch)
    python tests/tools/behaviours/run.py --lesson 05      the programs of a lesson: prints, writes nothing
    python tests/tools/behaviours/run.py NAME NAME        these programs: prints, writes nothing
    python tests/tools/behaviours/run.py --update NAME    these programs, written into the file of this torch
    python tests/tools/behaviours/run.py --missing        the programs that the file of this torch does not have yet
    python tests/tools/behaviours/run.py --check NAME     course_lib's answers against the stored ones; exit status 1: another
    python tests/tools/behaviours/page.py                 docs/behaviours.md anew, from all files in answers/

Each program runs in a process of its own, once for each engine. The process is forked from one that has loaded torch, so
it begins at once; what a program breaks, or leaves switched on, ends with it. A program that takes too long, or kills its
process, has that as its answer.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ANSWERS = HERE / "answers"
SAME = "as in eager"
"""Stands for a compiled program's values where they are eager's."""
AT_A_TIME = 40
SECONDS = 240
"""A program that takes longer is ended."""


@dataclass
class Running:
    """A forked process: the program and engine that it plays, the end of the pipe to read, and what came so far."""

    name: str
    engine: str
    pid: int
    reads: int
    started: float
    said: bytes = b""


def play(
    names: list[str], engines: list[str], jobs: int
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Play each program with each engine; gives name, engine and answer as they end."""
    from kit import PROGRAMS

    left = [
        (name, engine)
        for name in names
        for engine in engines
        if not (engine == "course" and PROGRAMS[name].torch_only)
    ]
    left.reverse()
    running: dict[int, Running] = {}
    while left or running:
        while left and len(running) < jobs:
            started = begin(*left.pop())
            running[started.reads] = started
        for ended in read_some(running):
            del running[ended.reads]
            yield ended.name, ended.engine, finish(ended)


def begin(name: str, engine: str) -> Running:
    """Fork a process that plays one program and writes its answer into a pipe."""
    reads, writes = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reads)
        in_the_child(name, engine, writes)
    os.close(writes)
    return Running(name, engine, pid, reads, time.monotonic())


def in_the_child(name: str, engine: str, writes: int) -> None:
    """Play it. What it prints goes nowhere; the process ends without the parent's `atexit` functions."""
    from kit import ENGINES, PROGRAMS, answer_of

    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    os.setpgid(0, 0)
    answer = answer_of(PROGRAMS[name], ENGINES[engine]())
    with os.fdopen(writes, "w", encoding="utf-8") as out:
        json.dump({"graphs": answer.graphs, "values": answer.values}, out)
    os._exit(0)


def read_some(running: dict[int, Running]) -> list[Running]:
    """Wait for a pipe; gives the processes that have ended or are too slow."""
    ready, _, _ = select.select(list(running), [], [], 1.0)
    ended = []
    for reads in ready:
        piece = os.read(reads, 65536)
        running[reads].said += piece
        if not piece:
            ended.append(running[reads])
    late = time.monotonic() - SECONDS
    for each in running.values():
        if each.started < late and each not in ended:
            os.killpg(each.pid, signal.SIGKILL)
            ended.append(each)
    return ended


def finish(ended: Running) -> dict[str, Any]:
    """The answer that the process wrote, or how it ended."""
    os.close(ended.reads)
    _, status = os.waitpid(ended.pid, 0)
    if ended.said:
        return json.loads(ended.said)
    if time.monotonic() - ended.started > SECONDS:
        return {"graphs": None, "values": [f"takes longer than {SECONDS} s"]}
    code = os.waitstatus_to_exitcode(status)
    how = f"signal {-code}" if code < 0 else f"status {code}"
    return {"graphs": None, "values": [f"the process ends with {how}"]}


# ---- the files ------------------------------------------------------------------------------------------------------


def load_programs() -> dict[str, Any]:
    """Import every file of programs, and what the engines need, before the first fork."""
    sys.path[:0] = [str(ROOT), str(HERE)]
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

    import breaks
    import capture
    import gradients
    import guards
    import kit
    import running
    import sizes
    import values

    assert {breaks, capture, gradients, guards, running, sizes, values}
    return kit.PROGRAMS


def load_engines() -> None:
    """Load both compilers before the first fork, and let TorchInductor write into a folder of its own."""
    import logging
    import warnings

    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp(prefix="behaviours-"))
    import torch
    import torch._inductor.compile_fx
    from kit import ENGINES

    logging.getLogger("torch").setLevel(logging.CRITICAL)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for make in ENGINES.values():
        engine = make()
        # The first compile loads modules for a second or two: once here, not in each process
        engine.watch(lambda x: x + 1)(torch.ones(2))
        engine.built(lambda x: x + 1)(torch.ones(2))
        engine.reset()


def torch_version() -> str:
    """`2.13` of `2.13.0+cpu`."""
    from importlib.metadata import version

    return ".".join(version("torch").split(".")[:2])


def file_of(version: str) -> Path:
    return ANSWERS / f"torch-{version}.json"


def stored(version: str) -> dict[str, Any]:
    """A file of answers, or an empty one."""
    path = file_of(version)
    if not path.exists():
        return {"torch": version, "python": "", "answers": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def write(version: str, record: dict[str, Any]) -> None:
    """One line a program, so that a change can be read in a diff."""
    lines = [
        f"  {json.dumps(name)}: {json.dumps(answer, ensure_ascii=False)}"
        for name, answer in sorted(record["answers"].items())
    ]
    head = f'{{"torch": {json.dumps(record["torch"])}, "python": {json.dumps(record["python"])}, "answers": {{\n'
    ANSWERS.mkdir(exist_ok=True)
    file_of(version).write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")


def shortened(answers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The answers of one program, by engine: eager's values, and of the compilers what is not eager's."""
    eager = answers["eager"]["values"]
    short: dict[str, Any] = {"eager": eager}
    for engine in ("torch", "course"):
        if engine in answers:
            values = answers[engine]["values"]
            short[engine] = {
                "graphs": answers[engine]["graphs"],
                "values": SAME if values == eager else values,
            }
    return short


def answers_now(names: list[str], engines: list[str], jobs: int) -> dict[str, dict[str, Any]]:
    """Play programs; name → engine → answer."""
    found: dict[str, dict[str, Any]] = {}
    for name, engine, answer in play(names, engines, jobs):
        found.setdefault(name, {})[engine] = answer
    return found


def keep(names: list[str], jobs: int) -> None:
    """Play programs with every engine, and write their answers into the file of this torch, some at a time."""
    from importlib.metadata import version

    name_of_torch = torch_version()
    record = stored(name_of_torch)
    record |= {"torch": version("torch"), "python": platform.python_version()}
    for first in range(0, len(names), AT_A_TIME):
        some = names[first : first + AT_A_TIME]
        found = answers_now(some, ["eager", "torch", "course"], jobs)
        record["answers"] |= {name: shortened(answers) for name, answers in found.items()}
        write(name_of_torch, record)
        print(f"{first + len(some)} of {len(names)}", file=sys.stderr, flush=True)


def check(names: list[str], jobs: int) -> int:
    """Print each program whose answer by `course_lib` is not the stored one; 1 if there is one."""
    answers = stored(torch_version())["answers"]
    names = [name for name in names if "course" in answers.get(name, {})]
    wrong = 0
    for name, now in answers_now(names, ["course"], jobs).items():
        old = dict(answers[name]["course"])
        if old["values"] == SAME:
            old["values"] = answers[name]["eager"]
        if old != now["course"]:
            wrong += 1
            print(f"{name}: stored {old}, now {now['course']}")
    print(f"{len(names)} programs, {wrong} differ from {file_of(torch_version()).name}")
    return 1 if wrong or not names else 0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("names", nargs="*", help="programs; none: all")
    parser.add_argument("--lesson", action="append", help="the programs of this lesson: 05")
    parser.add_argument("--engine", action="append", choices=("eager", "torch", "course"))
    parser.add_argument(
        "--update", action="store_true", help="write the named programs into the file"
    )
    parser.add_argument(
        "--missing", action="store_true", help="programs without an answer in the file"
    )
    parser.add_argument(
        "--sources", action="store_true", help="print the files of torch that are named"
    )
    parser.add_argument(
        "--check", action="store_true", help="compare course_lib with what is stored"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    chosen = parser.parse_args(arguments)

    programs = load_programs()
    if chosen.sources:
        print("\n".join(sorted({program.where for program in programs.values()} - {""})))
        return 0
    unknown = [name for name in chosen.names if name not in programs]
    if unknown:
        print(f"no program is called {', '.join(unknown)}", file=sys.stderr)
        return 2
    lessons = chosen.lesson or [p.lesson for p in programs.values()]
    names = chosen.names or [name for name, p in programs.items() if p.lesson in lessons]
    everything = not chosen.names and not chosen.lesson and not chosen.engine
    if chosen.missing:
        names = [name for name in names if name not in stored(torch_version())["answers"]]
    load_engines()
    if chosen.check:
        return check(names, chosen.jobs)
    if everything or chosen.update or chosen.missing:
        keep(names, chosen.jobs)
        return 0

    found = answers_now(names, chosen.engine or ["eager", "torch", "course"], chosen.jobs)
    for name in names:
        for engine, answer in found.get(name, {}).items():
            print(f"{name:<45} {engine:<7} {answer['graphs']} {answer['values']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
