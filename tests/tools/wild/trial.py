"""Programs, each tried in a process of its own: `python trial.py NAME ...` prints a line of JSON for each.

Eager, ours and torch.compile each make the program anew, from the same seed, and train it for three steps: a size, another one,
the first again. What each step gives, its gradients, and what the steps left in parameters and buffers must be eager's.
The processes are forks of this one, which has imported torch and the compiler.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import resource
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import torch
import torch._dynamo  # here, and not in each fork anew
from table import Training, declare_operators, load
from torch.utils._pytree import tree_leaves

import course_lib as cl

SIZES = (2, 3, 2)
STEADY = 15
"""Steps that are timed once everything is compiled."""
TOLERANCE = 2e-3
"""Of the largest number of a tensor; sums of float32 in another order differ, and three steps of training let that grow."""


def cpu() -> float:
    """Seconds of CPU that this process and the compilers it started took."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def seed(number: int) -> None:
    """The same random numbers for each way to run a program."""
    import random

    import numpy as np

    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


# ---- playing a program ---------------------------------------------------------------------------------


class Player:
    """A program, made anew, and how it is called."""

    def __init__(self, make: Callable[[], Training], compiled: Callable[[Any], Any] | None = None):
        seed(0)
        self.training = make()
        self.call = self.training.call if compiled is None else compiled(self.training.call)
        self.trained = [p for p in self.training.trained() if p.requires_grad]
        self.optimizer = torch.optim.SGD(self.trained, lr=1e-3) if self.trained else None

    def step(self, size: int, number: int) -> list[Any]:
        """One call, backward and step of the optimizer: results and gradients."""
        seed(number)
        inputs = self.training.inputs(size)
        result = self.call(**inputs) if isinstance(inputs, dict) else self.call(*inputs)

        found = parts(result)
        loss = sum(
            t.float().square().sum()
            for t in found
            if isinstance(t, torch.Tensor) and t.is_floating_point()
        )
        if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
            return [kept(part) for part in found]

        if self.optimizer is not None:
            self.optimizer.zero_grad()
        loss.backward()
        gradients = [p.grad for p in self.trained]
        answers = [kept(part) for part in [*found, *gradients]]
        if self.optimizer is not None:
            self.optimizer.step()
        return answers

    def left(self) -> list[Any]:
        """What the steps left behind: parameters, and the module's buffers."""
        module = self.training.call
        buffers = list(module.buffers()) if isinstance(module, torch.nn.Module) else []
        return [kept(part) for part in [*self.trained, *buffers]]

    def play(self) -> list[list[Any]]:
        return [*(self.step(size, 10 + i) for i, size in enumerate(SIZES)), self.left()]


def kept(part: Any) -> Any:
    """A part of a result, so that nothing changes it later."""
    return part.detach().clone() if isinstance(part, torch.Tensor) else part


def parts(value: Any, depth: int = 0) -> list[Any]:
    """The tensors and numbers in a result: in containers, and in the attributes of a package's own records."""
    if isinstance(value, (torch.Tensor, int, float, str, bool, type(None))):
        return [value]
    if isinstance(value, dict):
        return [part for one in value.values() for part in parts(one, depth)]
    if isinstance(value, (list, tuple)):
        return [part for one in value for part in parts(one, depth)]
    if depth < 2 and hasattr(value, "__dict__"):
        return [part for one in vars(value).values() for part in parts(one, depth + 1)]
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]


# ---- comparing -----------------------------------------------------------------------------------------


def difference(ours: list[list[Any]], eagers: list[list[Any]]) -> str:
    """What is not as in eager, in words; "" if nothing is."""
    for turn, (got, wanted) in enumerate(zip(ours, eagers)):
        where = f"step {turn + 1}" if turn < len(SIZES) else "what is left"
        if len(got) != len(wanted):
            return f"{where}: {len(got)} parts for {len(wanted)}"
        for place, (one, other) in enumerate(zip(got, wanted)):
            if found := difference_of(one, other):
                return f"{where}, part {place}: {found}"
    return ""


def difference_of(got: Any, wanted: Any) -> str:
    """The same for one part of a result."""
    if type(got) is not type(wanted):
        return f"a {type(got).__name__}, in eager a {type(wanted).__name__}"
    if not isinstance(got, torch.Tensor):
        return "" if same_number(got, wanted) else f"{got!r}, in eager {wanted!r}"
    if got.layout != wanted.layout or got.is_nested or got.layout != torch.strided:
        return ""

    for name in ("shape", "dtype"):
        if getattr(got, name) != getattr(wanted, name):
            return f"{name} {getattr(got, name)}, in eager {getattr(wanted, name)}"
    if not wanted.numel():
        return ""

    if wanted.dtype == torch.bool or not (wanted.is_floating_point() or wanted.is_complex()):
        return "" if torch.equal(got, wanted) else "other numbers"
    scale = wanted.abs().nan_to_num().max().item() or 1.0
    if torch.allclose(got, wanted, rtol=TOLERANCE, atol=TOLERANCE * scale, equal_nan=True):
        return ""
    return f"off by {(got - wanted).abs().nan_to_num().max().item():.2g}, largest {scale:.2g}"


def same_number(got: Any, wanted: Any) -> bool:
    """Two numbers or texts."""
    if isinstance(wanted, float):
        return abs(got - wanted) <= TOLERANCE * abs(wanted) or (got != got and wanted != wanted)
    return got == wanted


# ---- graphs --------------------------------------------------------------------------------------------


def our_graphs(make: Callable[[], Training]) -> dict[str, Any]:
    """Graphs and breaks of the first call, by capture alone."""
    seed(0)
    training = make()
    seed(10)
    inputs = training.inputs(SIZES[0])
    explain = cl.explain(training.call)
    found = explain(**inputs) if isinstance(inputs, dict) else explain(*inputs)
    with_work = [one for one in found.captures if one.operations]
    reasons = Counter(f"{one.reason} [{short(one)}]" for one in found.breaks)
    return {
        "graphs": len(with_work),
        "breaks": len(found.breaks),
        "reasons": dict(reasons.most_common(12)),
    }


def short(problem: Any) -> str:
    """Where a graph broke: file and line."""
    return "/".join(str(problem.location).split("/")[-3:])[:120]


def torch_graphs(make: Callable[[], Training]) -> dict[str, Any]:
    """The same of torch.compile."""
    from torch._dynamo.utils import counters

    made = []

    def backend(graph: Any, inputs: Any) -> Any:
        calls = [node for node in graph.graph.nodes if node.op.startswith("call_")]
        made.append(len(calls))
        return graph.forward

    torch._dynamo.reset()
    counters.clear()
    seed(0)
    training = make()
    seed(10)
    inputs = training.inputs(SIZES[0])
    compiled = torch.compile(training.call, backend=backend)
    compiled(**inputs) if isinstance(inputs, dict) else compiled(*inputs)
    reasons = {first_line(text): times for text, times in counters["graph_break"].items()}
    torch._dynamo.reset()
    return {
        "graphs": len([one for one in made if one]),
        "breaks": sum(reasons.values()),
        "reasons": reasons,
    }


def first_line(text: str) -> str:
    return text.strip().splitlines()[0][:120] if text.strip() else ""


# ---- one trial -----------------------------------------------------------------------------------------


def first_and_steady(player: Player, steady: bool = True) -> tuple[list[list[Any]], float, float]:
    """The three steps, the CPU time of the first of them, and the median time of a step (ms) once all is compiled."""
    before = cpu()
    answers = [player.step(SIZES[0], 10)]
    spent = cpu() - before
    answers += [player.step(size, 11 + i) for i, size in enumerate(SIZES[1:])]
    answers.append(player.left())

    times = []
    for number in range(STEADY if steady else 1):
        before = time.thread_time()
        player.step(SIZES[0], 20 + number)
        times.append(time.thread_time() - before)
    return answers, spent, 1000 * statistics.median(times)


def tried(name: str, with_torch: bool, capture_only: bool) -> dict[str, Any]:
    """Everything that is asked of one program."""
    found = load()[name]
    row: dict[str, Any] = {"name": name, "package": found.packages[0]}
    row["version"] = version(found.packages[0])

    try:
        eager, _, row["eager_ms"] = first_and_steady(Player(found.make), not capture_only)
    except Exception as error:
        return row | {"program": f"{type(error).__name__}: {error}"[:300]}

    backend = {"backend": "eager"} if capture_only else {}
    try:
        player = Player(found.make, lambda call: cl.compile(call, **backend))
        ours, row["first_ours_s"], row["ours_ms"] = first_and_steady(player, not capture_only)
        row["wrong"] = difference(ours, eager)
    except Exception as error:
        import traceback

        row["wrong"] = f"{type(error).__name__}: {error}"[:400]
        row["trace"] = traceback.format_exc()[-3000:]

    for key, graphs in (("ours", our_graphs), ("torch", torch_graphs)):
        try:
            row[key] = graphs(found.make)
        except Exception as error:
            row[key] = {"error": f"{type(error).__name__}: {first_line(str(error))}"}

    if capture_only:
        for name_of_time in ("eager_ms", "ours_ms", "first_ours_s"):
            row.pop(name_of_time, None)
    if with_torch:
        row |= torchs_own(found.make, eager)
    return row


def torchs_own(make: Callable[[], Training], eager: list[list[Any]]) -> dict[str, Any]:
    """torch.compile with TorchInductor: what it takes, and is it right?"""
    import torch._inductor.config as inductor

    inductor.fallback_random = True
    try:
        answers, first, steady = first_and_steady(Player(make, torch.compile))
    except Exception as error:
        return {"torch_wrong": f"{type(error).__name__}: {first_line(str(error))}"}
    return {"first_torch_s": first, "torch_ms": steady, "torch_wrong": difference(answers, eager)}


def in_a_fork(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """The row of a program, made by a fork of this process. It is ended at the limit."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        # what programs print is not for the one who reads rows
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        signal.alarm(options.limit)
        row = tried(name, options.torch, options.capture)
        with os.fdopen(writing, "w") as file:
            json.dump(row, file)
        os._exit(0)

    os.close(writing)
    with os.fdopen(reading) as file:
        text = file.read()
    _, status = os.waitpid(child, 0)
    row = {"name": name, "package": load()[name].packages[0]}
    if text:
        return json.loads(text)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM:
        return row | {"limit": options.limit}
    return row | {"died": f"its process ended with status {status}"}


def vision_can_be_imported() -> bool:
    """Can torchvision be imported as it is (or is it not there at all)?"""
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        return True
    except Exception:
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--torch", action="store_true", help="time torch.compile, too")
    parser.add_argument("--capture", action="store_true", help="capture alone, no kernels")
    parser.add_argument("--limit", type=int, default=240, help="seconds for one program")
    options = parser.parse_args()

    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    declared = None if vision_can_be_imported() else declare_operators()
    load()
    for name in options.names:
        print(json.dumps(in_a_fork(name, options)), flush=True)
    del declared


if __name__ == "__main__":
    main()
