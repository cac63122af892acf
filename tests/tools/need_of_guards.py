"""Is each guard on sizes needed? Drops one at a time, and looks for sizes outside it where the compiled program is wrong.

    python tests/tools/need_of_guards.py --start 1000000 --count 20     (random programs of random_sizes.py)

A program is compiled once with `dynamic=True`. For each of its guards on sizes the entry gets a check without that one. Then
sizes are looked for that this guard alone refuses, and the compiled program is called with them beside eager, each call in a
process of its own, for what runs without its guard may write anywhere. What comes of a guard:

    needed          with some of these sizes the program is wrong, raises, or ends the process
    maybe needless  it was right with all that were tried: another entry is compiled for nothing
    implied         what it refuses of the sizes tried is refused by another guard as well
    never fails     none of the sizes tried is refused by it

The last lines say how many there were of each, and list the guards that may be needless with the line that asked.
"""

from __future__ import annotations

import argparse
import os
import pickle
import select
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from random_sizes import Case, case_of, difference, inputs_of, outcome, sizes_of

import course_lib as cl
from course_lib.frames import number
from course_lib.guards import Check
from course_lib.runtime import compiler

POOL = [0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 31, 33, 50, 64, 90, 127, 300]
CANDIDATES = 400
TRIES = 6
"""Calls without a guard, each with other sizes."""
PATIENCE = 20.0
"""Seconds for one call."""


@dataclass
class Verdict:
    """What was found about one guard. `kind`: one of those above; `seen`: what went wrong, or what was tried."""

    kind: str
    guard: Any
    seen: str = ""

    def __str__(self) -> str:
        return f"{self.kind:14} {self.guard}    {self.seen}"


@dataclass
class Compiled:
    """A program, and the one entry that was compiled for it."""

    function: Callable[..., Any]
    code: Any
    entry: Any
    head: Any
    watcher: Any
    case: Case
    train: bool

    def holds(self, check: Any, inputs: Sequence[torch.Tensor]) -> bool:
        """Would this check let the entry serve these inputs, as `outcome` hands them in?"""
        leaves = tuple(x.detach().requires_grad_(self.train) for x in inputs)
        with torch.set_grad_enabled(self.train):
            return bool(check(Case.run, self.case, leaves))

    def only(self, check: Any) -> None:
        """From now on the entry is the only one, behind this check."""
        self.watcher[number(self.code)] = [(check, self.head)]


def compiled_once(case: Case, inputs: Sequence[torch.Tensor], train: bool) -> Compiled | None:
    """The program compiled for these inputs; None where there is no entry, or more than one graph."""
    cl.reset()
    function = cl.compile(case.run, dynamic=True)
    if isinstance(outcome(function, list(inputs), train), Exception):
        return None
    asker = function._course_compiler
    code = Case.run.__code__
    state = asker.codes.get(number(code))
    entries = asker.watcher.entries(code)
    if state is None or len(state.entries) != 1 or not entries:
        return None
    head = entries[0][1]
    return Compiled(function, code, state.entries[0], head, asker.watcher, case, train)


def verdicts(case: Case, seed: int, train: bool) -> Iterator[Verdict]:
    """Each guard on sizes of the program, and what was found about it."""
    first = [list(x.shape) for x in inputs_of(case, sizes_of(seed, 0), 0)]
    if isinstance(outcome(case.run, made(case, first), train), Exception):
        return
    compiled = compiled_once(case, made(case, first), train)
    if compiled is None:
        return

    guards = compiled.entry.check.guards
    parameters = list(Case.run.__code__.co_varnames[:2])
    candidates = list(others_like(first, Random(seed)))
    for dropped in guards:
        if dropped.kind == "sizes":
            others = Check([guard for guard in guards if guard is not dropped], parameters)
            alone = Check([dropped], parameters)
            yield verdict_on(compiled, dropped, alone, others, candidates)


def made(case: Case, shapes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Inputs of these shapes, in the layouts of the program's own."""
    letters = iter("abcdefghi")
    dims = tuple("".join(next(letters) for _ in shape) for shape in shapes)
    sizes = {
        letter: size
        for names, shape in zip(dims, shapes, strict=True)
        for letter, size in zip(names, shape, strict=True)
    }
    return inputs_of(Case(dims, case.layouts, ()), sizes, 0)


def others_like(first: Sequence[Sequence[int]], draw: Random) -> Iterator[list[list[int]]]:
    """Shapes that differ from the first call's in one or two sizes, or in all of one size together."""
    known = [size for shape in first for size in shape]
    for _ in range(CANDIDATES):
        shapes = [list(shape) for shape in first]
        if draw.random() < 0.3:
            old, new = draw.choice(known), draw.choice([*POOL, *known])
            shapes = [[new if size == old else size for size in shape] for shape in shapes]
        for _ in range(draw.choice([1, 1, 2])):
            shape = draw.choice(shapes)
            shape[draw.randrange(len(shape))] = draw.choice([*POOL, *known])
        yield shapes


def verdict_on(
    compiled: Compiled,
    guard: Any,
    alone: Check,
    others: Check,
    candidates: Sequence[list[list[int]]],
) -> Verdict:
    """Look for sizes that this guard alone refuses, and call the program with them."""
    # Sizes 0 and 1 have entries of their own by design: what is found about these guards is counted apart.
    is_usual = guard.expr.endswith("] >= 2") and guard.expr.count(" ") == 2
    also = ", 0 and 1" if is_usual else ""
    refused = tried = 0
    for shapes in candidates:
        inputs = made(compiled.case, shapes)
        if compiled.holds(alone.function, inputs):
            continue
        refused += 1
        if not compiled.holds(others.function, inputs):
            continue
        tried += 1
        wrong = wrong_without(compiled, others, inputs)
        if wrong:
            return Verdict(f"needed{also}", guard, f"{shapes}: {wrong}"[:160])
        if tried == TRIES:
            break
    if tried:
        return Verdict(f"maybe needless{also}", guard, f"right with {tried} sets of sizes outside")
    return Verdict(f"implied{also}" if refused else "never fails", guard)


def wrong_without(compiled: Compiled, others: Check, inputs: Sequence[torch.Tensor]) -> str:
    """What goes wrong where the entry serves these inputs, in words; "" if nothing does."""
    train = compiled.train
    want = outcome(compiled.case.run, list(inputs), train)

    def call() -> str:
        compiled.only(others.function)
        with cl.record() as trace:
            got = outcome(compiled.function, list(inputs), train)
        if trace.of(cl.events.GuardsMade):
            return "it was compiled anew"
        return difference(got, want)

    return in_a_process_of_its_own(call)


def in_a_process_of_its_own(call: Callable[[], str]) -> str:
    """The text that `call` gives in a forked process, or how that process ended."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = call()
        except BaseException as error:
            said = "".join(traceback.format_exception_only(error))
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(said, pipe)
        os._exit(0)

    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        ready, _, _ = select.select([pipe], [], [], PATIENCE)
        if not ready:
            os.kill(child, signal.SIGKILL)
        given = pipe.read() if ready else b""
    _, status = os.waitpid(child, 0)
    if given:
        return str(pickle.loads(given))
    return "it does not come back" if not ready else f"the process ends with status {status}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--start", type=int, default=1_000_000)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=1e9)
    parser.add_argument(
        "--all", action="store_true", help="print every guard, not only those in doubt"
    )
    options = parser.parse_args()
    compiler.FLAGS = tuple("-O0" if flag == "-O3" else flag for flag in compiler.FLAGS)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # a forked process has none of its parent's threads

    said: Counter[str] = Counter()
    until = time.monotonic() + 60 * options.minutes
    for seed in range(options.start, options.start + options.count):
        if time.monotonic() > until:
            break
        found = list(verdicts(case_of(seed), seed, train=seed % 2 == 1))
        said["programs"] += bool(found)
        for each in found:
            said[each.kind] += 1
            if options.all or each.kind == "maybe needless":
                print(f"seed {seed}: {each}", flush=True)
    print(*(f"{count:6} {what}" for what, count in said.most_common()), sep="\n")


if __name__ == "__main__":
    main()
