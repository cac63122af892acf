"""A captured graph, traced once more: into functional ATen operators, and through autograd if
gradients are wanted.

In:  the FX graph of capture (`torch.nn.functional.layer_norm`, `operator.add`, `Tensor.add_`, ...).
Out: an FX graph of ATen operators without mutation (`aten.var_mean.correction`, `aten.add.Tensor`,
     ...), each node with its FakeTensor in `meta["val"]` and the captured node that it came from in
     `meta["origin"]`; and in the graph module's `meta["signature"]` a `Signature`: how the results
     of the captured graph are made of the traced one's.

The captured graph runs on fake tensors, and what reaches torch's dispatcher is recorded. That does
three things at once: composite functions fall apart into ATen operators, decompositions split those
further (`decomposing.py`), and `FunctionalTensor` turns every in-place operation into a new value.
A joint graph goes on: it asks `torch.autograd.grad` for gradients, and records what that does. At
last the graph is tidied (`tidying.py`).

    primals ─▶ forward ─▶ values
    tangents (gradients of the values) ─▶ backward ─▶ gradients of the primals

In PyTorch: `torch/_functorch/_aot_autograd/graph_capture.py` (`aot_dispatch_autograd_graph`); it
records by `make_fx`, too.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import (
    FunctionalTensor,
    FunctionalTensorMode,
    disable_functional_mode,
)
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx, track_tensor_tree

from course_lib.autograd.decomposing import Decomposing, Decompositions, leave
from course_lib.autograd.signature import Signature, has_gradient, restride, signature_of
from course_lib.autograd.sizes_as_nodes import tracing_sizes
from course_lib.autograd.tagging import Tagging
from course_lib.autograd.tidying import tidy
from course_lib.failing import is_torchs
from course_lib.written import quiet

aten = torch.ops.aten


def joint(gm: fx.GraphModule, decompositions: Decompositions) -> fx.GraphModule:
    """Forward and backward in one graph: from inputs and tangents to values and gradients
    (`Signature.gradients`)."""
    return trace(gm, decompositions, gradients=True)


def mode_of(fakes: Sequence[Any]) -> FakeTensorMode:
    """The mode in which capture made these fake tensors; a new one if there is none among the
    inputs."""
    for fake in fakes:
        if hasattr(fake, "fake_mode"):
            mode: FakeTensorMode = fake.fake_mode
            return mode
    return FakeTensorMode()


def trace(
    gm: fx.GraphModule, decompositions: Decompositions, gradients: bool = False
) -> fx.GraphModule:
    """The forward graph in ATen operators, for the shapes in the placeholders' `meta["val"]`.

    With `gradients`, the joint graph.

    Raises NotImplementedError for a program that no compiled graph can run as eager does.
    """
    fakes = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    refuse_what_runs_as_it_is(gm, gradients)
    mode = mode_of(fakes)

    tracing = Tracing(gm, decompositions, gradients)
    records = gradients and torch.is_grad_enabled()
    # In inference mode torch's dispatcher would not decompose composite operators.
    with mode, torch.inference_mode(False), torch.set_grad_enabled(records):
        try:
            inputs = [t.detach() if isinstance(t, torch.Tensor) else t for t in fakes]
            # The graph's Python is written when somebody calls it or looks at it.
            with _use_lazy_graph_module(True), quiet(), tracing_sizes():
                traced = make_fx(tracing.run)(*inputs)
        except failures(gm) as problem:
            # such as a backward that fails, or that nothing leads to
            raise NotImplementedError(f"this graph cannot be traced: {problem}") from problem

    targets = {node.target for node in traced.graph.nodes}
    if gradients and aten.mkldnn_rnn_layer.default in targets:
        raise NotImplementedError(
            "oneDNN's recurrent layers keep what their backward needs only while autograd records them"
        )
    return tidy(traced, gm, tracing)


def failures(gm: fx.GraphModule) -> tuple[type[Exception], ...]:
    """What may be raised while a graph is traced, and means that it cannot be.

    A function of the user's may raise anything."""
    calls_users_code = any(
        node.op == "call_function" and not is_torchs(node.target) for node in gm.graph.nodes
    )
    if calls_users_code:
        return (Exception,)
    return (RuntimeError, ValueError, ArithmeticError)


def refuse_what_runs_as_it_is(gm: fx.GraphModule, gradients: bool) -> None:
    """Raise NotImplementedError for what capture has marked: it has no functional form, or its
    backward does more than compute."""
    for node in gm.graph.nodes:
        if reason := node.meta.get("needs_eager"):
            raise NotImplementedError(reason)
        if gradients and (reason := node.meta.get("as_it_is")):
            raise NotImplementedError(reason)


class Tracing:
    """What `make_fx` runs and records."""

    def __init__(self, gm: fx.GraphModule, decompositions: Decompositions, gradients: bool) -> None:
        self.gm, self.decompositions, self.gradients = gm, decompositions, gradients
        self.signature: Signature  # once it has run
        self.in_backward: set[fx.Node] = set()

    def run(self, *fakes: Any) -> list[Any]:
        """Run the program, then autograd; `make_fx` records both.

        Gives the program's values, then the gradients."""
        with FunctionalTensorMode(), Decomposing(self.decompositions) as decomposing:
            primals = self.enter_all(fakes)
            inputs = self.copies_of_written(primals, fakes)
            before = [x.grad_fn if isinstance(x, torch.Tensor) else None for x in inputs]

            # Forward: what the program computes
            program = Tagging(self.gm, self.decompositions)
            results = program.run(*inputs)
            with torch.set_grad_enabled(self.gradients):
                self.signature, values = signature_of(
                    inputs, before, results, fakes, self.results_as_captured()
                )

            # Backward: autograd runs, and its operators are recorded behind those of forward.
            if self.gradients:
                forward = recorded_nodes()
                decomposing.begin_backward()
                values += self.differentiate(primals, values)
                self.in_backward = recorded_nodes() - forward
                # The last operators of backward get the line of the program that they belong to.
                program.mark()

            return [leave(value) for value in values]

    def enter_all(self, fakes: Sequence[Any]) -> list[Any]:
        """The inputs as the program meets them."""
        return list(map(self.enter, fakes, self.gm.graph.find_nodes(op="placeholder")))

    def copies_of_written(self, primals: list[Any], fakes: Sequence[Any]) -> list[Any]:
        """The inputs, with copies of those that the program writes to and that may need a
        gradient."""
        if not self.gradients:
            return primals
        with torch.enable_grad():
            return list(map(own_copy, primals, fakes))

    def results_as_captured(self) -> list[Any]:
        """What capture saw as the program's results, on fakes; None for those that are no
        tensors."""
        results = self.gm.graph.output_node().args[0]
        return [node.meta.get("val") if isinstance(node, fx.Node) else None for node in results]

    def enter(self, fake: Any, node: fx.Node) -> Any:
        """An input as the program meets it.

        (Where the program writes to it, its fake has the new value afterwards.)"""
        if not isinstance(fake, torch.Tensor):
            return fake

        # As the input came in: a write of the program may have changed its fake's.
        requires_grad = node.meta.get("requires_grad", node.meta["val"].requires_grad)
        wanted = self.gradients and requires_grad
        return FunctionalTensor.to_functional(fake).requires_grad_(wanted)

    def differentiate(self, primals: list[Any], values: list[Any]) -> list[Any]:
        """The gradients of the inputs that have one.

        What autograd gets to on its way is noted in the signature."""
        signature = self.signature
        wanted = [n for n, primal in enumerate(primals) if has_gradient(primal)]
        numbers = [n for n, yes in enumerate(signature.differentiable) if yes]
        if not numbers:
            signature.unconnected = tuple(wanted)
            return []

        # `tangents`: the gradients that come in from outside, one for each differentiable output.
        outputs = [values[n] for n in numbers]
        tangents = [tangent(n, value) for n, value in enumerate(outputs)]
        with torch._C._DisableAutocast():
            gradients = torch.autograd.grad(
                outputs, [primals[n] for n in wanted], tangents, allow_unused=True
            )
        gradient_of_input = {n: g for n, g in zip(wanted, gradients, strict=True) if g is not None}
        signature.gradients = tuple(gradient_of_input)
        signature.unconnected = tuple(n for n in wanted if n not in gradient_of_input)

        # Which outputs lead to which inputs: where gradients come in for some outputs only, the
        # other inputs get none.
        self.note_ways(numbers, outputs, {id(primals[n]): n for n in gradient_of_input})

        # A gradient lies in memory like its input, as in eager.
        return [restride(g, dense(primals[n])) for n, g in gradient_of_input.items()]

    def note_ways(
        self, numbers: list[int], outputs: list[torch.Tensor], leaves: Mapping[int, int]
    ) -> None:
        """Note in the signature where autograd gets to from each of the `outputs` (the values
        `numbers`): inputs, other values."""
        ways = [functions_before(output) for output in outputs]
        self.signature.reached = tuple(
            leaves_among(output, way, leaves) for output, way in zip(outputs, ways, strict=True)
        )

        # An output is inner if another one is computed from it: its node lies on the other's way.
        inner = set()
        for number, output in zip(numbers, outputs, strict=True):
            for other, way in zip(outputs, ways, strict=True):
                if other.grad_fn is not output.grad_fn and output.grad_fn in way:
                    inner.add(number)
        self.signature.inner = tuple(sorted(inner))


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that lies in memory as the gradient of `tensor` does: in the same order of
    dimensions, but without gaps between its elements."""
    if tensor.is_contiguous():
        return tensor
    return torch.empty_like(tensor)  # it keeps the order, and leaves no gaps


def functions_before(output: torch.Tensor) -> set[Any]:
    """The nodes of autograd from which `output` comes."""
    functions: set[Any] = set()
    todo = []
    if output.grad_fn is not None:
        todo.append(output.grad_fn)
    while todo:
        function = todo.pop()
        if function not in functions:
            functions.add(function)
            todo += [before for before, _ in function.next_functions if before is not None]
    return functions


def leaves_among(
    output: torch.Tensor, functions: set[Any], leaves: Mapping[int, int]
) -> frozenset[int]:
    """The inputs to which autograd gets from `output`, by these functions.

    `leaves`: the `id` of an input's tensor → its number."""
    if output.grad_fn is None:
        ends = [output]
    else:
        # a leaf's own node, `AccumulateGrad`, knows its tensor
        ends = [getattr(function, "variable", None) for function in functions]
    return frozenset(leaves[id(end)] for end in ends if id(end) in leaves)


def own_copy(primal: Any, fake: Any) -> Any:
    """A copy of an input that was written to when the program was captured; the input itself if it
    was not, or if a copy would have other strides.

    Why a copy: autograd refuses a write to a leaf that needs a gradient, and backward may need what
    the input held before. If the copy is not needed after all, `tidy` takes it away."""
    if not isinstance(primal, torch.Tensor) or not (fake.is_inference() or fake._version):
        return primal

    copy = primal.clone()
    if copy.stride() != primal.stride():
        return primal
    return copy


def tangent(n: int, like: torch.Tensor) -> torch.Tensor:
    """The gradient of value `n`: an input of the graph that is being recorded."""
    with disable_functional_mode():
        laid_out = torch.empty_strided(
            like.shape, like.stride(), dtype=like.dtype, device=like.device
        )
        fake = torch.empty_like(laid_out)  # without gaps, each element in its own place
        tracer = get_proxy_mode().tracer
        track_tensor_tree(
            fake,
            tracer.create_proxy("placeholder", f"tangent_{n}", (), {}),
            constant=None,
            tracer=tracer,
        )
    return FunctionalTensor.to_functional(fake)


def recorded_nodes() -> set[fx.Node]:
    """What `make_fx` has recorded so far."""
    return {*get_proxy_mode().tracer.graph.nodes}
