"""The compiled backward graphs of one captured graph, and which of them serves.

In:  what forward saved, and the gradients of its results (None for a result that was not used).
Out: the gradients of the inputs, by the number of the input.
In PyTorch: the compiled backward in `torch/_functorch/_aot_autograd/runtime_wrappers.py`. It knows
one graph, and fills up zeros.
"""

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from course_lib.autograd.absent import absent, without
from course_lib.autograd.forms import Forms
from course_lib.autograd.partition import Partition
from course_lib.autograd.signature import Signature, restride

# The error of a gradient that is differentiated itself; {}: why the graph cannot run again
TWICE = "this compiled graph cannot be differentiated twice ({}): compute this gradient in eager, or leave its part out (cl.disable)"
Program = Callable[..., tuple[Any, ...]]


class Gradients:
    """The gradients of inputs, by one of several backward graphs: which depends on what results
    were used."""

    def __init__(
        self,
        backward: Program,
        parts: Partition,
        signature: Signature,
        compile_graph: Callable[[fx.GraphModule], Program] | None,
    ) -> None:
        self.backward, self.parts, self.signature = backward, parts, signature
        self.compile_graph = compile_graph

        # The inputs of backward: what was saved, the tangents, and symbolic sizes
        placeholders = parts.backward.graph.find_nodes(op="placeholder")
        first = len(parts.saved)
        self.tangents = placeholders[first : first + sum(signature.differentiable)]
        results = parts.backward.graph.output_node().args[0]
        # Shapes, strides and dtypes of the tangents that backward was built for, and of the
        # gradients that it gives
        self.forms_of_tangents = Forms([node.meta["val"] for node in self.tangents], parts.sizes)
        self.forms = Forms([node and node.meta["val"] for node in results], parts.sizes)
        # Input → the tangent that is its gradient as it is (`x + 1`). Eager hands on that very
        # tensor, which may be an expanded one: whoever writes to it gets an error.
        self.tangent_as_gradient: dict[int, int] = {}
        for n, node in zip(signature.gradients, results, strict=True):
            if node in self.tangents:
                self.tangent_as_gradient[n] = self.tangents.index(node)

        # Which tangents there are → the program for these, and the inputs of whose gradients it
        # gives
        self.programs: dict[tuple[bool, ...], tuple[Program, list[int]]] = {}

    def __call__(
        self, saved: Sequence[torch.Tensor], tangents: Sequence[Any], numbers: Sequence[int] = ()
    ) -> dict[int, Any]:
        """The gradients by the number of the input.

        tangents: the gradients of the results, None for a result that was not used. numbers: the
        values of symbolic sizes.
        """
        # A graph takes all tangents, with the strides that it was built for
        filled = []
        for gradient, form in zip(tangents, self.forms_of_tangents.of(numbers), strict=True):
            if gradient is None:
                filled.append(zeros(form))
            else:
                filled.append(restride(gradient, form))

        present = tuple(gradient is not None for gradient in tangents)
        if all(present) or not self.signature.reached:
            gradients = self.backward(*saved, *filled, *numbers)
            gradients_by_input = dict(zip(self.signature.gradients, gradients, strict=True))
            return self.with_tangents(gradients_by_input, tangents)

        if present not in self.programs:
            self.programs[present] = self.program_for(present)
        program, inputs = self.programs[present]
        gradients = program(*saved, *filled, *numbers)
        gradients_by_input = dict(zip(inputs, gradients, strict=True))
        gradients_by_input = self.with_tangents(gradients_by_input, tangents)

        # The inputs to which eager's autograd gets from the results that were used. Each has a
        # gradient, if only one of zeros.
        reached = set().union(*itertools.compress(self.signature.reached, present))
        forms = dict(zip(self.signature.gradients, self.forms.of(numbers), strict=True))
        for n in reached - gradients_by_input.keys():
            gradients_by_input[n] = zeros(forms[n])
        return {n: gradients_by_input[n] for n in reached}

    def with_tangents(self, gradients: dict[int, Any], tangents: Sequence[Any]) -> dict[int, Any]:
        """With the tangents themselves where these are the gradients."""
        for n, tangent in self.tangent_as_gradient.items():
            if n in gradients and tangents[tangent] is not None:
                gradients[n] = tangents[tangent]
        return gradients

    def program_for(self, present: tuple[bool, ...]) -> tuple[Program, list[int]]:
        """What computes the gradients if only these tangents are there."""
        graph, inputs = self.parts.backward, list(self.signature.gradients)
        missing = list(itertools.compress(self.tangents, map(operator.not_, present)))
        lost = absent(graph.graph, self.tangents, missing)
        if lost.zeros_do or self.compile_graph is None:
            return self.backward, inputs

        results = graph.graph.output_node().args[0]
        left = [n for n, node in zip(inputs, results, strict=True) if node not in lost.nodes]
        # A graph of its own for the tangents that are there, and the inputs whose gradients it
        # gives
        return self.compile_graph(without(graph, lost.nodes)), left


def once_only(gradients: dict[int, Any], known: Sequence[Any], why_not: str) -> dict[int, Any]:
    """The `gradients`, which were computed from `known`.

    To differentiate them raises an error.

    `why_not`: why the captured graph cannot run again (`again.py`), for the error's text.
    """
    tied = [t for t in known if t is not None and t.requires_grad]
    if not tied:
        # A stand-in requires a gradient, so that the error is on the way of `backward()`.
        first = next(iter(gradients.values()))
        tied = [first.detach().requires_grad_()]

    message = TWICE.format(why_not).encode()
    refuse = torch._C._functions.DelayedError(message, len(gradients) + len(tied))
    return dict(zip(gradients, refuse(*gradients.values(), *tied), strict=False))


def zeros(like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(like.shape, dtype=like.dtype, device=like.device)
