"""Run the programs of all topics beside eager.

    python tests/tools/topics [NAME ...] [--backend eager] [--torch]

A name is a program's or a topic's. `--torch`: count the graphs of torch.compile instead, and keep them in `graphs.json`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import torch

import course_lib as cl
from topics import PROGRAMS
from topics.kit import Program
from topics.seen import differences, observe

MANY = 1000
GRAPHS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "graphs.json")


def chosen(names: list[str]) -> dict[str, Program]:
    if not names:
        return PROGRAMS
    return {
        name: program
        for name, program in PROGRAMS.items()
        if name in names or name.split(".")[0] in names
    }


def of_torch(program: Program) -> dict[str, Any]:
    """How many graphs torch.compile makes in the first call, and whether any call differs from eager's."""
    torch._dynamo.reset()
    graphs = []

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = torch.compile(program.function, backend=backend)
    first, wrong = 0, False
    for turn in range(3):
        theirs = observe(compiled, program.make, turn)
        if turn == 0:
            first = len(graphs)
        wrong = wrong or bool(differences(theirs, observe(program.function, program.make, turn)))
    return {"graphs": first, "as eager": not wrong}


def count_of_torch(names: list[str]) -> None:
    import torch._dynamo  # noqa: F401

    with open(GRAPHS) as file:
        known = json.load(file)
    for name, program in chosen(names).items():
        if name not in known or names:
            known[name] = of_torch(program)
            print(name, known[name], flush=True)
    kept = {name: known[name] for name in sorted(known) if name in PROGRAMS}
    with open(GRAPHS, "w") as file:
        json.dump(kept, file, indent=1)
        file.write("\n")


def counting(graphs: list[Any]) -> Any:
    """A backend that runs each graph as it is, and keeps it."""

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    return backend


def check(name: str, program: Program, backend: str, most: int) -> list[str]:
    """In what three calls of `program` differ from eager's; `most`: how many graphs the first may make (with "eager")."""
    cl.reset()
    graphs: list[Any] = []
    chosen_backend = counting(graphs) if backend == "eager" else backend
    with cl.record() as trace:
        compiled = cl.compile(program.function, backend=chosen_backend)
        for turn in range(3):
            ours = observe(compiled, program.make, turn)
            if turn == 0 and len(graphs) > most:
                reasons = [problem.reason for problem in trace.graph_breaks]
                return [f"{len(graphs)} graphs, {most} are allowed: {reasons}"]
            found = differences(ours, observe(program.function, program.make, turn))
            if found:
                return [f"call {turn}", *found]
    return []


@functools.cache
def graphs_of_torch() -> dict[str, Any]:
    """What `--torch` has kept."""
    with open(GRAPHS) as file:
        return json.load(file)


def allowed(name: str) -> int:
    """How many graphs a program may make: its own number, or as many as torch.compile makes.

    Any number where torch.compile leaves the function to Python, or differs from eager."""
    if PROGRAMS[name].graphs is not None:
        return PROGRAMS[name].graphs
    theirs = graphs_of_torch().get(name, {})
    return theirs.get("graphs") or MANY if theirs.get("as eager") else MANY


def compare(names: list[str], backend: str) -> int:
    """Print what differs from eager, and the programs with more graphs than torch.compile has."""
    programs = chosen(names)
    wrong = 0
    for name, program in programs.items():
        found = check(name, program, backend, allowed(name))
        if found:
            wrong += 1
            print(f"=== {name}", *found, sep="\n", flush=True)
    print(f"{len(programs)} programs, {wrong} differ")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--torch", action="store_true")
    args = parser.parse_args()
    if args.torch:
        count_of_torch(args.names)
    else:
        sys.exit(bool(compare(args.names, args.backend)))


if __name__ == "__main__":
    main()
