"""Who computes a matrix product: measured once on this machine, then remembered.

In:  a `LoopGraph`, whose matrix products are calls of ATen operators.
Out: the same graph; on a CPU some are now calls of oneDNN's linear layer.

A rule would be wrong somewhere. torch's products of float32 go to MKL; on AMD's processors oneDNN
can be twice as fast (Zen 5: 310-430 GFLOP/s against 170-200), on others it is slower (Zen 3: 69
against 83). `config.measure_products = False` leaves a CPU's as they are. Loops with `tl.dot`
instead of a call: `runtime.templates`.
In PyTorch: `torch/_inductor/select_algorithm.py`, `AlgorithmSelectorCache` (there only with
mode="max-autotune").
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
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, Node, View
from course_lib.runtime.autotune import example
from course_lib.sizes import hint, is_symbolic, same

# Seconds after which no more calls of a product are measured
BUDGET = 0.2
# So many calls of each are measured at most, and one at least
ROUNDS = 7
# How many times faster than torch's own call oneDNN must be: less may be noise
MUST_GAIN = 1.1


def choose_products(graph: LoopGraph) -> LoopGraph:
    """Replace calls of `mm` and `addmm` where another library is faster."""
    if not config.measure_products:
        return graph

    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, ExternKernel) and is_for_onednn(node):
            node = choose(node, graph.fixed)
        nodes.append(node)
    graph.nodes[:] = nodes
    return graph


def is_for_onednn(node: ExternKernel) -> bool:
    """A product of float32 matrices on the CPU, none of them empty or expanded, with a bias for
    each column if any."""
    # `addmm(bias, x, w)` with other factors than 1 has them among its keywords.
    is_product = node.op is torch.ops.aten.mm.default
    is_product_and_bias = node.op is torch.ops.aten.addmm.default
    if not (is_product or is_product_and_bias) or node.kwargs:
        return False

    if is_product_and_bias:
        bias, _, w = node.args
        if not same(bias.shape, w.shape[1:]):
            return False
    return all(is_full_matrix_of_floats(view) for view in node.args)


def is_full_matrix_of_floats(view: View) -> bool:
    """True for a float32 matrix in a CPU's memory that has elements, each in a place of its own."""
    if view.buffer.device.type != "cpu" or view.dtype != torch.float32:
        return False
    return 0 not in view.shape and elements_lie_apart(hint(view.shape), hint(view.stride))


def elements_lie_apart(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """False if two elements may lie at one place, as in `x.unfold(0, 4, 1)`: oneDNN refuses that.

    The same question about symbols, where the answer becomes a guard: `capture/strides.py`."""
    span = 1
    for step, size in sorted(zip(stride, shape, strict=True)):
        if size == 1:
            continue
        if step < span:
            return False
        span += (size - 1) * step
    return True


def choose(kernel: ExternKernel, fixed: Collection[int] | None = None) -> ExternKernel:
    """The kernel as it is, or as a call of oneDNN.

    Sizes that are not `fixed` are measured as the next power of two."""

    def near(sizes: Sequence[Any]) -> tuple[int, ...]:
        return tuple(map(near_size, sizes))

    # So a few measurements serve all sizes of a program that is compiled again for many.
    def near_size(n: Any) -> int:
        if is_symbolic(n):
            return power_of_two(hint(n))
        if fixed is None or n in fixed:
            return int(n)
        return power_of_two(n)

    operands = []
    for view in kernel.args:
        shape, stride = near(view.shape), near(view.stride)
        if not elements_lie_apart(shape, stride):
            # A size has grown to the next power of two, and the stride across it has not.
            return kernel
        operands.append(Buffer("", view.dtype, shape, stride))

    seconds = seconds_of(kernel.op, operands)
    # Without oneDNN nothing is gained: 0
    gain = seconds["torch"] / seconds.get("oneDNN", float("inf"))
    is_faster = gain > MUST_GAIN
    chosen = "oneDNN" if is_faster else "torch"
    events.emit(events.Autotuned(kernel, chosen, seconds))
    if not is_faster:
        return kernel

    why = f"oneDNN was {gain:.1f} times as fast as torch's own call for this size"
    args = linear_operands(*kernel.args)
    return replace(kernel, op=onednn(), args=args, out_variant=None, why=why)


def onednn() -> Any:
    """oneDNN's linear layer, or None if this build of torch has none."""
    if not torch.backends.mkldnn.is_available():
        return None
    linear = getattr(torch.ops.mkldnn, "_linear_pointwise", None)
    if linear is None:
        return None
    return linear.default


def linear_operands(*operands: Any) -> tuple[Any, ...]:
    """(x, w) or (bias, x, w) as oneDNN's linear layer wants them: x, w transposed, bias; and no
    function behind it."""
    *biases, x, w = operands
    bias = biases[0] if biases else None

    if isinstance(w, torch.Tensor):
        transposed = w.t()
    else:
        # A view in the graph
        shape, stride = w.shape[::-1], w.stride[::-1]
        transposed = replace(w, shape=shape, stride=stride)
    return x, transposed, bias, "none", [], ""


def seconds_of(op: Any, operands: list[Buffer]) -> dict[str, float]:
    """Seconds of torch's own call ("torch") and of oneDNN's, measured now or found on disk."""
    precision = torch.get_float32_matmul_precision()
    threads = str(torch.get_num_threads())
    key = build_cache.key_of(
        "product", torch.__version__, str(op), repr(operands), threads, precision
    )

    def measure_now() -> dict[str, float]:
        tensors = [example(operand) for operand in operands]
        return measure(tensors)

    return build_cache.remember(key, measure_now)


@torch.inference_mode()
def measure(tensors: list[torch.Tensor]) -> dict[str, float]:
    """The fastest of some calls of each, in turn; oneDNN is left out if its result is another."""
    until = time.perf_counter() + BUDGET
    product: Callable[..., torch.Tensor] = torch.mm
    if len(tensors) == 3:
        product = torch.addmm
    ours = functools.partial(product, *tensors)
    calls: dict[str, Callable[[], Any]] = {"torch": ours}

    if linear := onednn():
        theirs = functools.partial(linear, *linear_operands(*tensors))
        if torch.allclose(theirs(), ours(), rtol=1e-4, atol=1e-4):
            calls["oneDNN"] = theirs

    best = dict.fromkeys(calls, float("inf"))
    for _ in range(ROUNDS):
        for name, call in calls.items():
            seconds = timeit.timeit(call, number=1)
            best[name] = min(best[name], seconds)
        if time.perf_counter() > until:
            break
    return best
