"""Who computes a matrix product: measured once on this machine, then remembered.

In:  a `LoopGraph`, whose matrix products are calls of ATen operators.
Out: the same graph. On a CPU some are now calls of oneDNN's linear layer; on a GPU some are loops (`Product`) to be fused.

A rule would be wrong somewhere. torch's products of float32 go to MKL; on AMD's processors oneDNN can be twice as fast (Zen 5:
310-430 GFLOP/s against 170-200), on others it is slower (Zen 3: 69 against 83). A kernel of ours may be slower than the
library's and still win, with what it does to operands and result. `config.measure_products = False` leaves a CPU's as they are.
In PyTorch: `torch/_inductor/select_algorithm.py`, `AlgorithmSelectorCache` (there only with mode="max-autotune").
"""

import functools
import time
import timeit
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch

from course_lib import build_cache, config, events
from course_lib.codegen.triton import triton_source
from course_lib.lowering.indexing import power_of_two
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph
from course_lib.runtime.autotune import example, fastest
from course_lib.runtime.compiled import build
from course_lib.scheduling.dependencies import record_all
from course_lib.scheduling.kernel import FusedKernel
from course_lib.scheduling.products import as_loops, is_product
from course_lib.scheduling.schedule import Schedule, live_nodes

BUDGET = 0.2  # Seconds after which no more calls of a product are measured
ROUNDS = 7  # Calls of each at most, and one at least
MUST_GAIN = 1.1  # How many times faster than torch's own call oneDNN must be: less may be noise


def linear_operands(*operands: Any) -> tuple[Any, ...]:
    """(x, w) or (bias, x, w) as oneDNN's linear layer wants them: x, w transposed, bias; and no function behind it."""
    *bias, x, w = operands
    # or a view in the graph
    w = (
        w.t()
        if isinstance(w, torch.Tensor)
        else replace(w, shape=w.shape[::-1], stride=w.stride[::-1])
    )
    return x, w, bias[0] if bias else None, "none", [], ""


def onednn() -> Any:
    """oneDNN's linear layer, if this build of torch has it."""
    linear = (
        getattr(torch.ops.mkldnn, "_linear_pointwise", None)
        if torch.backends.mkldnn.is_available()
        else None
    )
    return linear and linear.default


def choose_products(graph: LoopGraph) -> LoopGraph:
    """Replace calls of `mm` and `addmm` where another library is faster."""
    if config.measure_products:
        best = lambda node: (
            choose(node, graph.fixed)
            if isinstance(node, ExternKernel) and is_for_onednn(node)
            else node
        )
        graph.nodes[:] = map(best, graph.nodes)
    return graph


def is_for_onednn(node: ExternKernel) -> bool:
    """A product of float32 matrices on the CPU, none of them empty or expanded, with a bias for each column if any."""
    if node.op not in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default) or node.kwargs:
        return False
    fits = len(node.args) == 2 or node.args[0].shape == node.args[2].shape[1:]
    in_floats = all(
        view.dtype == torch.float32 and view.buffer.device.type == "cpu" for view in node.args
    )
    return fits and in_floats and not any(0 in (*view.shape, *view.stride) for view in node.args)


def choose(kernel: ExternKernel, fixed: Collection[int] | None = None) -> ExternKernel:
    """The kernel as it is, or as a call of oneDNN. Sizes that are not `fixed` are measured as the next power of two."""
    near = lambda sizes: tuple(n if fixed is None or n in fixed else power_of_two(n) for n in sizes)
    seconds = seconds_of(
        kernel.op,
        [Buffer("", view.dtype, near(view.shape), near(view.stride)) for view in kernel.args],
    )
    gain = seconds["torch"] / seconds.get("oneDNN", float("inf"))
    events.emit(events.Autotuned(kernel, "oneDNN" if gain > MUST_GAIN else "torch", seconds))
    if gain <= MUST_GAIN:
        return kernel
    why = f"oneDNN was {gain:.1f} times as fast as torch's own call for this size"
    return replace(
        kernel, op=onednn(), args=linear_operands(*kernel.args), out_variant=None, why=why
    )


def seconds_of(op: Any, operands: list[Buffer]) -> dict[str, float]:
    """Seconds of torch's own call ("torch") and of oneDNN's, measured now or found on disk."""
    precision = torch.get_float32_matmul_precision()
    key = build_cache.key_of(
        "product",
        torch.__version__,
        str(op),
        repr(operands),
        str(torch.get_num_threads()),
        precision,
    )
    return build_cache.remember(key, lambda: measure([*map(example, operands)]))


@torch.inference_mode()
def measure(tensors: list[torch.Tensor]) -> dict[str, float]:
    """The fastest of some calls of each, in turn; oneDNN is left out if its result is another."""
    until = time.perf_counter() + BUDGET
    calls: dict[str, Callable[[], Any]] = {
        "torch": functools.partial(torch.mm if len(tensors) == 2 else torch.addmm, *tensors)
    }
    if linear := onednn():
        theirs = functools.partial(linear, *linear_operands(*tensors))
        calls |= (
            {"oneDNN": theirs}
            if torch.allclose(theirs(), calls["torch"](), rtol=1e-4, atol=1e-4)
            else {}
        )
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            best[name] = min(best[name], timeit.timeit(call, number=1))
        if time.perf_counter() > until:
            break
    return best


def choose_templates(
    graph: LoopGraph, codegen: str, schedule: Callable[[LoopGraph], Schedule]
) -> LoopGraph:
    """Products as loops where that is faster: scheduled so, each kernel with one is measured against the library's call there."""
    loops = {node: as_loops(node) for node in graph.nodes if is_product(node, codegen)}  # type: ignore[arg-type]
    with_loops = lambda calls: replace(
        graph, nodes=[part for n in graph.nodes for part in (loops[n] if n in calls else [n])]
    )
    program = lambda part: build(part, schedule(part), None, codegen, autotune=True)
    ours, chosen = with_loops(loops), []
    for kernel in schedule(ours).fused if loops else ():
        written = {node.buffer.name for node in kernel.nodes}
        for call in [
            call
            for call, parts in loops.items()
            if written.issuperset(p.buffers[0].name for p in parts)
        ]:
            tried = {
                name: functools.partial(program, piece(g, kernel))
                for name, g in (("library", graph), ("template", ours))
            }
            inputs = [ours.buffers[name] for name in sorted(kernel.reads)]
            if (
                fastest(call, triton_source(kernel, ours.buffers).source, inputs, tried)
                == "template"
            ):
                chosen.append(call)
    return with_loops(chosen)


def piece(graph: LoopGraph, kernel: FusedKernel) -> LoopGraph:
    """The part of a program that computes what a kernel stores from what it reads."""
    inputs, outputs = (
        [graph.buffers[name] for name in sorted(names)] for names in (kernel.reads, kernel.stores)
    )
    inside = [
        n
        for n in graph.nodes
        if n.buffers and kernel.reads.isdisjoint(buffer.name for buffer in n.buffers)
    ]
    live, _ = live_nodes(inside, record_all(inside, graph.buffers), {*kernel.stores})
    return LoopGraph([*inputs], live, [buffer.view() for buffer in outputs])
