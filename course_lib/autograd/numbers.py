"""Numbers that change from call to call, as inputs of the kernels.

In:  a captured graph with numbers among its inputs (a step count, a learning rate), and what is computed of these.
Out: `Lifted`: the same graph, in which tensors without dimensions stand for such numbers, and a program that computes them.

A graph is built once for each set of sizes. Were a number a part of that set, each value would cost a compile. Python computes
with it as before, in Python's order and with its digits (`1 - 0.9 ** n`); only what meets a tensor in the end becomes an input.
That is for arithmetic with floating-point tensors, where a number and a float64 tensor without dimensions give the same
(with float16 and bfloat16: if it is rounded as eager rounds, see `Lifting.combine`).
In PyTorch: `wrap_symfloat` in `torch/_dynamo/variables/builder.py`, `torch/fx/passes/_tensorify_python_scalars.py`.
"""

import copy
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from course_lib.autograd.partition import part
from course_lib.written import forget, traceable

ARITHMETIC: set[Any] = {
    *(operator.mul, operator.add, operator.sub, operator.truediv),
    *(operator.imul, operator.iadd, operator.isub, operator.itruediv),
    *(torch.mul, torch.add, torch.sub, torch.div),
    *("mul", "add", "sub", "div", "mul_", "add_", "sub_", "div_"),
}
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
FACTORS = {operator.mul, operator.truediv, torch.mul, torch.div, "mul", "div"}
HALVES = (torch.float16, torch.bfloat16)
EXACT = 2**53  # Up to here float64 has every integer


@dataclass
class Lifted:
    """`graph` takes the inputs and then a tensor for each number that `numbers` gives for the inputs."""

    graph: fx.GraphModule
    numbers: fx.GraphModule
    asked: tuple[bool, ...]  # For each input: does the graph depend on it, if it is a number?

    def values(self, inputs: Sequence[Any]) -> list[torch.Tensor] | None:
        """The numbers as tensors; None if one has no exact float64."""
        found = self.numbers(*inputs)
        if any(type(number) is int and abs(number) > EXACT for number in found):
            return None
        return [torch.tensor(number, dtype=torch.float64) for number in found]


def lift_numbers(gm: fx.GraphModule, of_sizes: bool = False) -> Lifted | None:
    """Make inputs of numbers that meet tensors; `of_sizes`: also of floats that are computed of sizes (`n ** 0.5`).
    None if there are no such numbers, or a tensor is not on the CPU."""
    placeholders = gm.graph.find_nodes(op="placeholder")
    tensors = [n.meta["val"] for n in placeholders if isinstance(n.meta["val"], torch.Tensor)]
    if not tensors or any(tensor.device.type != "cpu" for tensor in tensors):
        return None
    if not numbers_from_outside(gm.graph, of_sizes):
        return None

    lifted = Lifting(copy.deepcopy(gm), tensors[0], of_sizes)
    for node in list(lifted.graph.nodes):
        lifted.visit(node)
    if not lifted.inputs:
        forget(type(lifted.gm))
        return None
    lifted.drop_unused_numbers()

    # the copy's first `forward` goes; it gets another
    forget(type(lifted.gm))
    lifted.gm.recompile()
    by_name = {node.name: node for node in gm.graph.nodes}
    wanted = [by_name[name] for name in lifted.inputs]
    asked = [
        isinstance(node.meta["val"], torch.Tensor) or bool(node.users)
        for node in lifted.graph.find_nodes(op="placeholder")
    ]
    return Lifted(
        traceable(lifted.gm), part(gm, placeholders, wanted), tuple(asked[: len(placeholders)])
    )


class Lifting:
    """The state of one `lift_numbers`."""

    def __init__(self, gm: fx.GraphModule, like: torch.Tensor, of_sizes: bool) -> None:
        self.gm, self.graph, self.like = gm, gm.graph, like
        self.changing = numbers_from_outside(self.graph, of_sizes)
        self.inputs: dict[str, fx.Node] = {}  # Name of a number's node → its placeholder

    def visit(self, node: fx.Node) -> None:
        """Let tensors stand for the numbers in one operation, if it is arithmetic."""
        if node.target not in ARITHMETIC or len(node.args) != 2 or not is_real(node):
            return
        a, b = node.args
        factor = node.kwargs.get("alpha")

        if factor in self.changing and list(node.kwargs) == ["alpha"]:
            if self.agree(node, a) and self.agree(node, b):
                self.add_multiple(node, a, b, factor)
        elif node.kwargs:
            return
        elif b in self.changing and self.agree(node, a):
            self.combine(node, a, b, tensor_first=True)
        elif a in self.changing and self.agree(node, b):
            if node.target is operator.truediv:
                # Python asks the tensor, whose answer is `tensor.reciprocal() * number`: rounded twice
                b = self.reciprocal(node, b)
                node.target = operator.mul
            self.combine(node, b, a, tensor_first=False)

    def combine(self, node: fx.Node, tensor: fx.Node, number: fx.Node, tensor_first: bool) -> None:
        """Give the operation a tensor in the place of the number, so that all is rounded as in eager on a CPU."""
        value = node.meta["val"]
        is_half = value.dtype in HALVES
        # Of halves eager multiplies in float32 and rounds at the end. What it adds becomes a half first.
        in_float32 = is_half and node.target in FACTORS
        with self.graph.inserting_before(node):
            stands_for = self.input_for(number)
            if in_float32:
                tensor = self.converted(tensor, torch.float32)
            elif is_half:
                stands_for = self.converted(stands_for, value.dtype)
        node.args = (tensor, stands_for) if tensor_first else (stands_for, tensor)
        if in_float32:
            self.round_result(node, value)

    def round_result(self, node: fx.Node, value: torch.Tensor) -> None:
        """The operation computes in float32 now: whoever uses it gets the dtype of `value`."""
        with self.graph.inserting_after(node):
            rounded = self.converted(node, value.dtype)
        # All users get the rounded one, but for the conversion itself.
        node.replace_all_uses_with(rounded, delete_user_cb=lambda user: user is not rounded)
        node.meta["val"], rounded.meta["val"] = value.float(), value

    def converted(self, tensor: fx.Node, dtype: torch.dtype) -> fx.Node:
        made = self.graph.call_method("to", (tensor, dtype))
        made.meta = {**tensor.meta, "val": tensor.meta["val"].to(dtype)}
        return made

    def reciprocal(self, node: fx.Node, tensor: fx.Node) -> fx.Node:
        with self.graph.inserting_before(node):
            made = self.graph.call_method("reciprocal", (tensor,))
        made.meta = {**node.meta, "val": tensor.meta["val"].reciprocal()}
        return made

    def add_multiple(self, node: fx.Node, a: fx.Node, b: fx.Node, factor: fx.Node) -> None:
        """`a + factor * b`, or `a - factor * b`. Of halves eager rounds the factor and the sum, and not the product."""
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

    def agree(self, node: fx.Node, operand: Any) -> bool:
        """Has the operand the result's dtype, also beside a float64 tensor without dimensions?"""
        if not isinstance(operand, fx.Node) or not is_real(operand):
            return False
        value, result = operand.meta["val"], node.meta["val"]
        if result.dtype in HALVES and node.target in IN_PLACE:
            return False
        return value.dtype == result.dtype and (value.ndim > 0 or value.dtype == torch.float64)

    def input_for(self, number: fx.Node) -> fx.Node:
        """The tensor that stands for a number: one more input, behind all others."""
        if number.name not in self.inputs:
            last = self.graph.find_nodes(op="placeholder")[-1]
            with self.graph.inserting_after(last):
                made = self.graph.placeholder(f"{number.name}_as_tensor")
            made.target = made.name
            fake = self.like.new_empty((), dtype=torch.float64)
            made.meta = {**number.meta, "val": fake, "requires_grad": False}
            self.inputs[number.name] = made
        return self.inputs[number.name]

    def drop_unused_numbers(self) -> None:
        for node in reversed(list(self.graph.nodes)):
            if node in self.changing and node.op == "call_function" and not node.users:
                self.graph.erase_node(node)


def numbers_from_outside(graph: fx.Graph, of_sizes: bool) -> set[fx.Node]:
    """Inputs that are numbers, and numbers that are computed of them; `of_sizes`: floats that are computed of sizes, too. (Where a
    graph is compiled for each set of sizes, these are constants.)"""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        value = node.meta.get("val")
        if node.op == "output" or not isinstance(value, (torch.SymInt, torch.SymFloat)):
            continue
        is_of_sizes = of_sizes and isinstance(value, torch.SymFloat)
        is_computed = is_of_sizes or not found.isdisjoint(node.all_input_nodes)
        if node.op == "placeholder" or is_computed:
            found.add(node)
    return found


def is_real(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dtype in (
        torch.float32,
        torch.float64,
        *HALVES,
    )
