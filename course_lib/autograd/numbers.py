"""Numbers that change from call to call, as inputs of the kernels.

In:  a captured graph with numbers among its inputs (a step count, a learning rate), and what is
     computed of these.
Out: `Lifted`: the same graph, in which tensors without dimensions stand for such numbers, and a
     program that computes them.

A graph is built once for each set of sizes. If a number were a part of that set, each value would
cost a compile. So Python goes on to compute with numbers, in Python's order and with its digits
(`1 - 0.9 ** n`). Only the number that meets a tensor becomes an input. That is right for arithmetic
with floating-point tensors: a number and a float64 tensor without dimensions give the same result.
(With float16 and bfloat16 eager rounds in its own way, see `Lifting.combine`.)
In PyTorch: `wrap_symfloat` in `torch/_dynamo/variables/builder.py`,
`torch/fx/passes/_tensorify_python_scalars.py`.
"""

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx._lazy_graph_module import _LazyGraphModule

from course_lib.autograd.partition import part
from course_lib.written import forget, traceable

ARITHMETIC: set[Any] = {
    *(operator.mul, operator.add, operator.sub, operator.truediv),
    *(operator.imul, operator.iadd, operator.isub, operator.itruediv),
    *(torch.mul, torch.add, torch.sub, torch.div),
    *("mul", "add", "sub", "div", "mul_", "add_", "sub_", "div_"),
}
"""Operations for which a number and a float64 tensor without dimensions give the same."""
IN_PLACE = {
    operator.imul,
    operator.iadd,
    operator.isub,
    operator.itruediv,
    "mul_",
    "add_",
    "sub_",
    "div_",
}
"""The operations of `ARITHMETIC` that write to their tensor. It keeps its dtype, so their result
cannot be rounded afterwards."""
FACTORS = {operator.mul, operator.truediv, torch.mul, torch.div, "mul", "div"}
"""Operations that eager computes in float32 for float16 and bfloat16, if one operand is a
number."""
scalar_tensor: Any = torch.scalar_tensor
HALVES = (torch.float16, torch.bfloat16)
EXACT = 2**53
"""Up to here each integer has an exact float64."""


@dataclass
class Lifted:
    """A graph with tensors in the place of numbers."""

    # Takes the inputs, and behind them one tensor for each number
    graph: fx.GraphModule
    # Takes the inputs, and gives the numbers
    numbers: fx.GraphModule
    # For each input: does the graph depend on it? A number on which it does not may change without
    # a new graph
    depends_on: tuple[bool, ...]

    @property
    def depends_on_sizes(self) -> bool:
        """Does the graph depend on a size, a stride or a number that may be another one in the next
        call?"""
        inputs = self.graph.graph.find_nodes(op="placeholder")
        for node, depends in zip(inputs, self.depends_on, strict=False):
            value = node.meta["val"]
            if not isinstance(value, torch.Tensor):
                if depends:
                    return True
            elif any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride())):
                return True
        return False

    def values(self, inputs: Sequence[Any]) -> list[torch.Tensor] | None:
        """The numbers as tensors; None if one has no exact float64."""
        # `forward` at once, and no `torch.tensor`: this is a part of each call, and costs several
        # microseconds otherwise
        computed_numbers = self.numbers.forward(*inputs)
        for number in computed_numbers:
            if type(number) is int and abs(number) > EXACT:
                return None
        return [
            scalar_tensor(number, dtype=torch.float64, device="cpu") for number in computed_numbers
        ]


def lift_numbers(gm: fx.GraphModule, of_sizes: bool = False) -> Lifted | None:
    """Make inputs of the numbers that meet tensors.

    of_sizes: also of the floats that are computed of sizes (`n ** 0.5`).
    None if there are no such numbers, or a tensor is not on the CPU.
    """
    placeholders = gm.graph.find_nodes(op="placeholder")
    tensors = [n.meta["val"] for n in placeholders if isinstance(n.meta["val"], torch.Tensor)]
    if not tensors or any(tensor.device.type != "cpu" for tensor in tensors):
        return None
    if not numbers_from_outside(gm.graph, of_sizes):
        return None

    lifting = Lifting(copy.deepcopy(gm), like=tensors[0], of_sizes=of_sizes)
    for node in list(lifting.graph.nodes):
        lifting.visit(node)

    # the copy's first `forward`, which linecache holds, is not needed any more
    forget(type(lifting.gm))
    if not lifting.inputs:
        return None
    lifting.drop_unused_numbers()
    lifting.gm.recompile()

    # The new inputs stand behind these.
    old_inputs = lifting.graph.find_nodes(op="placeholder")[: len(placeholders)]
    return Lifted(
        graph=traceable(lifting.gm),
        numbers=program_for_numbers(gm, list(lifting.inputs)),
        depends_on=tuple(map(is_depended_on, old_inputs)),
    )


def program_for_numbers(gm: fx.GraphModule, names: list[str]) -> fx.GraphModule:
    """The part of a graph that computes the nodes with these names from the graph's inputs."""
    by_name = {node.name: node for node in gm.graph.nodes}
    inputs = gm.graph.find_nodes(op="placeholder")
    program = part(gm, inputs, [by_name[name] for name in names])
    _LazyGraphModule.force_recompile(program)
    return program


def is_depended_on(node: fx.Node) -> bool:
    """Does a graph depend on this input? (On a tensor always: on its shape, at least.)"""
    return isinstance(node.meta["val"], torch.Tensor) or bool(node.users)


class Lifting:
    """Changes a graph, which must be a copy.

    `like` is a fake tensor: the new inputs are made in its fake mode."""

    def __init__(self, gm: fx.GraphModule, like: torch.Tensor, of_sizes: bool) -> None:
        self.gm, self.graph, self.like = gm, gm.graph, like
        # The nodes whose number may be another one in the next call
        self.changing = numbers_from_outside(self.graph, of_sizes)
        # Name of a number's node → the placeholder that stands for it
        self.inputs: dict[str, fx.Node] = {}

    def visit(self, node: fx.Node) -> None:
        """Let tensors stand for the numbers in one operation, if it is arithmetic."""
        if node.target not in ARITHMETIC or len(node.args) != 2 or not is_real(node):
            return
        a, b = node.args
        if node.kwargs:
            # `torch.add(a, b, alpha=factor)`: the factor may be such a number.
            self.visit_multiple(node, a, b)
        elif b in self.changing and self.keeps_dtype_of(node, a):
            self.combine(node, a, b, tensor_first=True)
        elif a in self.changing and self.keeps_dtype_of(node, b):
            if node.target is operator.truediv:
                # Eager computes `number / tensor` as `tensor.reciprocal() * number`, which rounds
                # twice.
                b = self.reciprocal(node, b)
                node.target = operator.mul
            self.combine(node, b, a, tensor_first=False)

    def visit_multiple(self, node: fx.Node, a: Any, b: Any) -> None:
        """Let a tensor stand for the factor in `torch.add(a, b, alpha=factor)`."""
        factor = node.kwargs.get("alpha")
        if factor not in self.changing or list(node.kwargs) != ["alpha"]:
            return
        if self.keeps_dtype_of(node, a) and self.keeps_dtype_of(node, b):
            self.add_multiple(node, a, b, factor)

    def combine(self, node: fx.Node, tensor: fx.Node, number: fx.Node, tensor_first: bool) -> None:
        """Give the operation a tensor in the place of the number.

        Each step rounds as eager does on a CPU."""
        value = node.meta["val"]
        is_half = value.dtype in HALVES

        # Eager multiplies a half by a number in float32, and rounds the product. It rounds a number
        # to a half before it adds it.
        in_float32 = is_half and node.target in FACTORS
        with self.graph.inserting_before(node):
            stands_for = self.input_for(number)
            if in_float32:
                tensor = self.converted(tensor, torch.float32)
            elif is_half:
                stands_for = self.converted(stands_for, value.dtype)

        if tensor_first:
            node.args = (tensor, stands_for)
        else:
            node.args = (stands_for, tensor)
        if in_float32:
            self.round_result(node, value)

    def round_result(self, node: fx.Node, value: torch.Tensor) -> None:
        """Convert the result of the operation, which computes in float32 now, to the dtype of
        `value`."""
        with self.graph.inserting_after(node):
            rounded = self.converted(node, value.dtype)

        # All users get the rounded result, but for the conversion itself.
        node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)
        node.meta["val"], rounded.meta["val"] = value.float(), value

    def converted(self, tensor: fx.Node, dtype: torch.dtype) -> fx.Node:
        new_node = self.graph.call_method("to", (tensor, dtype))
        new_node.meta = {**tensor.meta, "val": tensor.meta["val"].to(dtype)}
        return new_node

    def reciprocal(self, node: fx.Node, tensor: fx.Node) -> fx.Node:
        with self.graph.inserting_before(node):
            new_node = self.graph.call_method("reciprocal", (tensor,))
        new_node.meta = {**node.meta, "val": tensor.meta["val"].reciprocal()}
        return new_node

    def add_multiple(self, node: fx.Node, a: fx.Node, b: fx.Node, factor: fx.Node) -> None:
        """Write `a + factor * b`, or `a - factor * b`.

        With halves eager rounds the factor and the sum, but not the product."""
        value = node.meta["val"]
        is_half = value.dtype in HALVES
        with self.graph.inserting_before(node):
            number = self.input_for(factor)
            if is_half:
                number = self.converted(self.converted(number, value.dtype), torch.float32)
                a, b = self.converted(a, torch.float32), self.converted(b, torch.float32)
            product = self.graph.call_function(operator.mul, (b, number))
        product.meta = {**node.meta, "val": b.meta["val"]}

        node.args, node.kwargs = (a, product), {}
        if is_half:
            self.round_result(node, value)

    def keeps_dtype_of(self, node: fx.Node, operand: Any) -> bool:
        """Has the result the operand's dtype, also when a float64 tensor without dimensions stands
        for the number?

        Else the tensor cannot stand for it: `ints * 2.0` would be computed in another dtype."""
        if not isinstance(operand, fx.Node) or not is_real(operand):
            return False
        value, result = operand.meta["val"], node.meta["val"]
        # It would have to be rounded by an operation behind it (`IN_PLACE`).
        if result.dtype in HALVES and node.target in IN_PLACE:
            return False
        # Of two tensors without dimensions the wider dtype wins: float64.
        return value.dtype == result.dtype and (value.ndim > 0 or value.dtype == torch.float64)

    def input_for(self, number: fx.Node) -> fx.Node:
        """The tensor that stands for a number: one more input, behind all others."""
        if number.name not in self.inputs:
            last = self.graph.find_nodes(op="placeholder")[-1]
            with self.graph.inserting_after(last):
                new_input = self.graph.placeholder(f"{number.name}_as_tensor")
            new_input.target = new_input.name
            fake = self.like.new_empty((), dtype=torch.float64)
            new_input.meta = {**number.meta, "val": fake, "requires_grad": False}
            self.inputs[number.name] = new_input
        return self.inputs[number.name]

    def drop_unused_numbers(self) -> None:
        """Take away the arithmetic on numbers that no operation uses any more: Python does it."""
        for node in reversed(list(self.graph.nodes)):
            if node in self.changing and node.op == "call_function" and not node.users:
                self.graph.erase_node(node)


def numbers_from_outside(graph: fx.Graph, of_sizes: bool) -> set[fx.Node]:
    """Inputs that are numbers, and numbers that are computed of them; `of_sizes`: floats that are
    computed of sizes, too.

    Where a graph is compiled for each set of sizes, what is computed of sizes is a constant."""
    nodes_of_numbers: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "output" or not isinstance(value, (torch.SymInt, torch.SymFloat)):
            continue
        is_of_sizes = of_sizes and isinstance(value, torch.SymFloat)
        is_computed = is_of_sizes or not nodes_of_numbers.isdisjoint(node.all_input_nodes)
        if node.op == "placeholder" or is_computed:
            nodes_of_numbers.add(node)
    return nodes_of_numbers


def is_real(node: fx.Node) -> bool:
    """Is this a tensor of a floating-point dtype for which numbers can be lifted?"""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (
        torch.float32,
        torch.float64,
        *HALVES,
    )
