"""Which library computes a matrix product: measured once on this machine, then remembered.

In:  a `LoopGraph`, whose matrix products are calls of `aten.mm` and `aten.addmm`.
Out: the same graph; where oneDNN's linear layer is faster for such sizes, the call is one of that.

torch's own products of float32 go to MKL. On AMD's processors oneDNN can be twice as fast (Zen 5: 310-430 GFLOP/s against
170-200), on others it is slower (Zen 3: 69 against 83): a rule would be wrong somewhere, so both are run. What was found
out is kept on disk for this processor, number of threads and torch. `config.measure_products = False` leaves all as it is.
In PyTorch: `torch/_inductor/select_algorithm.py`, `AlgorithmSelectorCache` (there only with mode="max-autotune").
"""

import functools
import time
import timeit
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from course_lib import build_cache, config, events
from course_lib.lowering.indexing import power_of_two
from course_lib.lowering.ir import ExternKernel, LoopGraph

BUDGET = 0.2  # Seconds that may be spent on measuring one product
ROUNDS = 7  # Calls of each at most
MUST_GAIN = 1.1  # How many times faster than torch's own call oneDNN must be: less may be noise


def linear_operands(*operands: Any) -> tuple[Any, ...]:
    """(x, w) or (bias, x, w) as oneDNN's linear layer wants them: x, w transposed, bias; and no function behind it."""
    *bias, x, w = operands
    w = w.t() if isinstance(w, torch.Tensor) else replace(w, shape=w.shape[::-1], stride=w.stride[::-1])  # or a view in the graph
    return x, w, bias[0] if bias else None, "none", [], ""


def onednn() -> Any:
    """oneDNN's linear layer, if this build of torch has it."""
    linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None) if torch.backends.mkldnn.is_available() else None
    return linear and linear.default


def choose_products(graph: LoopGraph) -> LoopGraph:
    """Replace calls of `mm` and `addmm` where another library is faster."""
    if config.measure_products:
        best = lambda node: choose(node, graph.fixed) if isinstance(node, ExternKernel) and is_product(node) else node
        graph.nodes[:] = map(best, graph.nodes)
    return graph


def is_product(node: ExternKernel) -> bool:
    """A product of float32 matrices on the CPU, none of them empty or expanded, with a bias for each column if any."""
    if node.op not in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) or node.kwargs:
        return False
    fits = len(node.args) == 2 or node.args[0].shape == node.args[2].shape[1:]
    in_floats = all(view.dtype == torch.float32 and view.buffer.device.type == "cpu" for view in node.args)
    return fits and in_floats and not any(0 in (*view.shape, *view.stride) for view in node.args)


def choose(kernel: ExternKernel, fixed: Collection[int] | None = None) -> ExternKernel:
    """The kernel as it is, or as a call of oneDNN. Sizes that are not `fixed` are measured as the next power of two."""
    near = lambda sizes: tuple(n if fixed is None or n in fixed else power_of_two(n) for n in sizes)
    seconds = seconds_of(kernel.op, [(near(view.shape), near(view.stride)) for view in kernel.args])
    gain = seconds["torch"] / seconds.get("oneDNN", float("inf"))
    events.emit(events.Autotuned(kernel, "oneDNN" if gain > MUST_GAIN else "torch", seconds))
    if gain <= MUST_GAIN:
        return kernel
    why = f"oneDNN was {gain:.1f} times as fast as torch's own call for this size"
    return replace(kernel, op=onednn(), args=linear_operands(*kernel.args), out_variant=None, why=why)


def seconds_of(op: Any, layouts: list[Any]) -> dict[str, float]:
    """Seconds of torch's own call ("torch") and of oneDNN's, measured now or found on disk."""
    precision = torch.get_float32_matmul_precision()
    key = build_cache.key_of("product", torch.__version__, str(op), repr(layouts), str(torch.get_num_threads()), precision)
    return build_cache.remember(key, lambda: measure([operand(*x) for x in layouts]))


def operand(shape: Sequence[Any], stride: Sequence[Any], **kind: Any) -> torch.Tensor:
    """A tensor of this layout, full of numbers between 0 and 1. (Random ones would disturb the program's own.)"""
    return torch.empty_strided(shape, stride, **kind).copy_(torch.linspace(0, 1, shape[-1]) if shape else torch.tensor(0.5))


@torch.inference_mode()
def measure(tensors: list[torch.Tensor]) -> dict[str, float]:
    """The fastest of some calls of each, in turn; oneDNN is left out if its result is another."""
    calls: dict[str, Callable[[], Any]] = {"torch": functools.partial(torch.mm if len(tensors) == 2 else torch.addmm, *tensors)}
    if linear := onednn():
        theirs = functools.partial(linear, *linear_operands(*tensors))
        calls |= {"oneDNN": theirs} if torch.allclose(theirs(), calls["torch"](), rtol=1e-4, atol=1e-4) else {}
    best = dict.fromkeys(calls, float("inf"))
    until = time.perf_counter() + BUDGET
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], timeit.timeit(call, number=1))
        if time.perf_counter() > until:
            break
    return best
