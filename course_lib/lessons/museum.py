"""The bug museum: ten compilers, each wrong in one stage, each with the report of the user who noticed. (Lesson 12)

In:  the number of an exhibit: `EXHIBITS[3]`.
Out: an `Exhibit`: a program that eager runs right, and a `Pipeline` that compiles it wrong for some calls.

The bugs are those that compilers really have: a guard too few, a mask with the wrong value outside, an index that overflows.
*All* stages of an exhibit's pipeline are rewritten, and all but one honestly (`honest`): that a stage is exchanged tells nothing,
it takes a bisection. What needs a GPU is modelled: a CUDA graph by a program that is played on copies of its inputs, the
lanes of a tile by loops over a power of two, the end of an index's range by 16 bits.

The file stands in `lessons`, for its programs stand for a user's code: capture follows the code of this room.
In PyTorch: `torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY` and its kin, with which the minifier is tested.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from torch.utils._sympy.functions import Mod

from course_lib import autograd, capture, lowering, runtime, scheduling
from course_lib.capture.user import graph_break
from course_lib.compiler import compile
from course_lib.lowering import Pointwise, Reduction
from course_lib.pipeline import Pipeline

aten = torch.ops.aten


def stages_of(pipeline: Pipeline) -> Iterator[str]:
    """The names of its stages, in order. A field that is not set is none, and neither is a switch."""
    for name, stage in vars(pipeline).items():
        if stage is not None and not isinstance(stage, bool):
            yield name


STAGES = tuple(stages_of(Pipeline()))
"""The pipeline's stages by name, in order."""
Calls = list[tuple[Any, ...]]
"""The arguments of one call after the other. A tensor that stands in several is the same tensor in each."""


@dataclass(frozen=True)
class Exhibit:
    """A bug report. `passing()` are the calls of the reporter's own test, which finds nothing. With `trains`, gradients count."""

    number: int
    report: str
    program: Callable[..., torch.Tensor]
    passing: Callable[[], Calls]
    pipeline: Pipeline
    trains: bool = False

    def difference(self, calls: Calls, backend: str = "inductor", **stages: Any) -> str:
        """Where the compiled program leaves eager, in words ('call 2: the result'), or ''. `stages` are exchanged first; both get
        copies of the arguments, and the same random seed."""
        compiled = compile(self.program, backend=backend, pipeline=self.pipeline.replace(**stages))
        in_eager = list(self.run(self.program, calls))
        in_ours = list(self.run(compiled, calls))

        for number, (wanted, got) in enumerate(zip(in_eager, in_ours, strict=True), 1):
            for what in wanted:
                if not close(got[what], wanted[what]):
                    return f"call {number}: {what}"
        return ""

    def run(self, function: Callable[..., torch.Tensor], calls: Calls) -> Iterator[dict[str, Any]]:
        """For each call the result, what the arguments hold afterwards, and the gradients."""
        torch.manual_seed(0)
        for args in copy.deepcopy(calls):  # at once: a tensor that is passed twice stays one tensor
            result = function(*args)
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            leaves = [t for t in tensors if t.requires_grad]
            gradients = torch.autograd.grad(result.sum(), leaves) if self.trains and leaves else ()
            after = [t.detach().clone() for t in tensors]
            yield {
                "the result": result.detach().clone(),
                "an argument": after,
                "a gradient": list(gradients),
            }

    def __str__(self) -> str:
        return f"Exhibit {self.number}: {self.report}"


def close(got: Any, wanted: Any) -> bool:
    """Are these the same tensors, but for rounding?"""
    try:
        torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)
    except AssertionError:
        return False
    return True


def honest(stage: Callable[..., Any]) -> Callable[..., Any]:
    """A stage that does what the real one does."""

    def rewritten(*args: Any) -> Any:
        return stage(*args)

    return rewritten


class Interpreter(capture.Interpreter):
    """Nothing is changed here."""


def rewritten(**stages: Any) -> Pipeline:
    """A pipeline no stage of which is the library's own object."""
    real = Pipeline()
    mine: dict[str, Any] = {"interpreter": Interpreter, "decompositions": dict(real.decompositions)}
    mine |= {name: honest(getattr(real, name)) for name in STAGES if name not in mine}
    return real.replace(**{**mine, **stages})


class Wrapped:
    """A handler of virtual operations that hands everything on to another one."""

    def __init__(self, ops: Any) -> None:
        self.ops = ops

    def __getattr__(self, name: str) -> Any:
        return getattr(self.ops, name)


# ---- 1 ----------------------------------------------------------------------------------------------------------------


def soften(logits, temperature):
    return torch.softmax(logits / temperature, -1)


def few_guards(frame, interpreter, history, fullgraph):
    result = capture.capture(frame, interpreter, history, fullgraph)
    worth_testing = [guard for guard in result.guards if guard.kind != "value"]
    return dataclasses.replace(result, guards=worth_testing)


# ---- 2 ----------------------------------------------------------------------------------------------------------------


def count_rows(x, total, keep):
    if keep:
        total.add_(x.sum(0))
    return x * 2


def tidy_capture(frame, interpreter, history, fullgraph):
    result = capture.capture(frame, interpreter, history, fullgraph)
    graph = result.graph.graph
    for node in reversed(list(graph.nodes)):
        if node.op.startswith("call") and not node.users:
            graph.erase_node(node)
    result.graph.recompile()
    return result


# ---- 3 ----------------------------------------------------------------------------------------------------------------


def double_row(table, n):
    row = table[n]
    graph_break()
    row.mul_(2)
    return table.sum(0)


class OwnMemory(autograd.Result):
    """A result that is put together after the graph has run."""

    def made_of(self, inputs, values):
        return super().made_of(inputs, values).clone()


def trace_results(gm, decompositions):
    traced = autograd.trace(gm, decompositions)
    signature = traced.meta["signature"]
    parts = [r if r.layout is None else OwnMemory(**vars(r)) for r in signature.results]
    signature.results = tuple(parts)
    return traced


# ---- 4 ----------------------------------------------------------------------------------------------------------------


def thin_out(x, probability):
    return F.dropout(x.sin(), probability)


DEAR = (aten.mm.default, aten.addmm.default, aten.bmm.default, aten.convolution.default)


def frugal_partition(joint, may_recompute):
    def cheap(node):
        return node.target not in DEAR

    return autograd.partition(joint, cheap)


# ---- 5 ----------------------------------------------------------------------------------------------------------------


def shake(x, times):
    for _ in range(times):
        x = x + torch.randn(x.shape)
    return x


def trace_once(gm, decompositions):
    traced = autograd.trace(gm, decompositions)
    seen: dict[Any, Any] = {}
    for node in traced.graph.nodes:
        if node.op == "call_function":
            same = seen.setdefault((node.target, str(node.args), str(node.kwargs)), node)
            if same is not node:
                node.replace_all_uses_with(same)
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced


# ---- 6 ----------------------------------------------------------------------------------------------------------------


def best(scores):
    return scores.amax(-1)


def lower_to_tiles(gm):
    loops = lowering.lower(gm)
    for n, node in enumerate(loops.nodes):
        if isinstance(node, Reduction) and len(node.reduced) == 1:
            loops.nodes[n] = as_tile(node, columns=node.reduced[0])
    return loops


def as_tile(node, columns):
    """The reduction over as many lanes as a tile has: a power of two."""

    def inner(ops, index, rindex):
        lane = ops.index_expr(rindex[0], torch.int64)
        inside = ops.lt(lane, ops.constant(columns, torch.int64))
        return ops.masked(inside, lambda: node.inner(ops, index, rindex), 0)

    return dataclasses.replace(node, inner=inner, reduced=(1 << (columns - 1).bit_length(),))


# ---- 7 ----------------------------------------------------------------------------------------------------------------


def gate(x, y):
    return torch.relu(x) * y


def lower_packed(gm):
    for node in gm.graph.find_nodes(op="placeholder"):
        if isinstance(fake := node.meta["val"], torch.Tensor):
            with fake.fake_mode:
                node.meta["val"] = torch.empty(fake.shape, dtype=fake.dtype)
    return lowering.lower(gm)


# ---- 8 ----------------------------------------------------------------------------------------------------------------


def both_ways(x):
    y = torch.tanh(x)
    return y + y.t()


class Registers(Wrapped):
    """Serves what a loop before has computed from its registers."""

    def __init__(self, ops, index, ranges, written):
        super().__init__(ops)
        self.index, self.ranges, self.written = index, ranges, written

    def load(self, buffer, place):
        producer = self.written.get(buffer)
        if producer is not None and producer.ranges == self.ranges:
            place = producer.place(self.index)
        return self.ops.load(buffer, place)


def schedule_registers(loops, fuse):
    written: dict[str, Any] = {}
    for node in loops.nodes:
        if isinstance(node, Pointwise):
            node.inner = from_registers(node.inner, node.ranges, dict(written))
            written[node.buffer.name] = node
    return scheduling.schedule(loops, fuse)


def from_registers(inner, ranges, written):
    return lambda ops, index: inner(Registers(ops, index, ranges, written), index)


# ---- 9 ----------------------------------------------------------------------------------------------------------------


def train_step(weight, x):
    loss = (x * weight - 1).square().sum(-1)
    graph_break()
    weight.sub_(x * 0.01)
    return loss


class Recording:
    """A program as a CUDA graph would play it: always on the same memory."""

    def __init__(self, program, inputs):
        self.program = program
        self.copies = [x.clone() for x in inputs]
        self.filled_from = [x.data_ptr() for x in inputs]

    def play(self, *inputs):
        for n, x in enumerate(inputs):
            if x.data_ptr() != self.filled_from[n]:
                self.copies[n].copy_(x)
                self.filled_from[n] = x.data_ptr()
        return self.program(*self.copies)


def build_recorded(loops, schedule, plan, codegen):
    program = runtime.build(loops, schedule, plan, codegen)
    recordings: list[Recording] = []

    def run(*inputs):
        if not recordings:
            recordings.append(Recording(program.run, inputs))
        return tuple(result.clone() for result in recordings[0].play(*inputs))

    return dataclasses.replace(program, run=run)


# ---- 10 ---------------------------------------------------------------------------------------------------------------


def brighten(image):
    return torch.relu(image * 2 + 1)


class ShortIndex(Wrapped):
    """Index arithmetic in small integers: a GPU computes it faster than in large ones."""

    def load(self, buffer, place):
        return self.ops.load(buffer, Mod(place, 2**16))


def build_small(loops, schedule, plan, codegen):
    for node in loops.nodes:
        if isinstance(node, Pointwise):
            node.inner = with_short_index(node.inner)
    return runtime.build(loops, schedule, plan, codegen)


def with_short_index(inner):
    return lambda ops, index: inner(ShortIndex(ops), index)


# ---- the catalogue ----------------------------------------------------------------------------------------------------


def ramp(*shape: int) -> torch.Tensor:
    """0, 1, 2, ... in this shape."""
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


CATALOGUE = (
    Exhibit(
        1,
        "I lower the temperature from epoch to epoch, and the distribution stays as flat as it was.",
        soften,
        lambda: [(ramp(2, 3), 2.0), (ramp(2, 3) + 1, 2.0)],
        rewritten(capture=few_guards),
    ),
    Exhibit(
        2,
        "The column totals that I keep for the report are all zero at the end.",
        count_rows,
        lambda: [(ramp(2, 3), torch.zeros(3), False)],
        rewritten(capture=tidy_capture),
    ),
    Exhibit(
        3,
        "I double a row of the table, but the sum of the table does not change.",
        double_row,
        lambda: [(torch.zeros(2, 3), 1)],
        rewritten(trace=trace_results),
    ),
    Exhibit(
        4,
        "The forward pass agrees with eager to the last digit, but with dropout the model does not learn.",
        thin_out,
        lambda: [(ramp(2, 3).requires_grad_(), 0.0)],
        rewritten(partition=frugal_partition),
        trains=True,
    ),
    Exhibit(
        5,
        "With more samples the variance of my estimate grows as n², not as n.",
        shake,
        lambda: [(ramp(2, 3), 1)],
        rewritten(trace=trace_once),
    ),
    Exhibit(
        6,
        "Scores should be log-probabilities. Sometimes the best of a row is 0: an impossible one.",
        best,
        lambda: [(ramp(2, 3),), (-ramp(2, 4) - 1,)],
        rewritten(lower=lower_to_tiles),
    ),
    Exhibit(
        7,
        "Wrong numbers, but only when my data loader hands over channels-last batches.",
        gate,
        lambda: [(ramp(2, 3), ramp(2, 3))],
        rewritten(lower=lower_packed),
    ),
    Exhibit(
        8,
        "The distance matrix came out unsymmetric; my test matrix is fine.",
        both_ways,
        lambda: [(torch.eye(3),), (torch.ones(3, 3),)],
        rewritten(schedule=schedule_registers),
    ),
    Exhibit(
        9,
        "Every step changes the weights (I printed them), and yet the loss is the same in every step.",
        train_step,
        lambda: [(torch.zeros(3), ramp(3)), (torch.ones(3), ramp(3) + 5)],
        rewritten(build=build_recorded),
    ),
    Exhibit(
        10,
        "Small images are right. In large ones the lower part shows the upper part again.",
        brighten,
        lambda: [(ramp(100, 100),)],
        rewritten(build=build_small),
    ),
)
EXHIBITS = {exhibit.number: exhibit for exhibit in CATALOGUE}
"""By number."""
