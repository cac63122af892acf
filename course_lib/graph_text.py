"""Make torch.fx print a graph correctly: it prints a graph as Python, and that text is what runs.

In:  an `fx.Graph`, or an operation that is about to become a node of one.
Out: the same graph or operation, with other targets and constants where torch.fx would print them
     wrongly.

torch.fx prints operators without parentheses, and constants by their `repr`. For some that is
wrong. `-1 ** n` means -(1 ** n). `(1-0j)` has lost the sign of its zero. `infj` is no name. The
`repr` of a function is no Python at all.
In PyTorch: `torch/fx/graph.py` (`CodeGen._gen_python_code`, `magic_methods`, `inplace_methods`).
"""

import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

OUT_OF_PLACE = {
    getattr(operator, f"i{name.strip('_')}"): getattr(operator, name)
    for name in "add and_ floordiv lshift mod mul matmul or_ pow rshift sub truediv xor".split()
}
"""For an operation in place that makes a new tensor all the same. Printed as `x @= w`, it would
rebind the graph's variable x."""
HAVE_TEXT = (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
"""Functions that torch.fx can print as an argument."""


class Complex(complex):
    """A complex number whose text gives it back."""

    def __repr__(self) -> str:
        return f"complex({self.real!r}, {self.imag!r})"

    __str__ = __repr__


class Bound:
    """A function with some of its arguments filled in: those that are functions or classes, which
    torch.fx cannot print."""

    def __init__(self, function: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self.function = function
        self.leaves, self.shape = tree_flatten((list(args), dict(kwargs)))
        self.__name__ = getattr(function, "__name__", "function")
        self.__qualname__ = self.__name__
        module = getattr(function, "__module__", None) or "own"
        # by a name in torch, a graph's text would find torch's function, with nothing filled in
        self.__module__ = "own" if module.startswith("torch") else module

    def __call__(self, *others: Any) -> Any:
        """`others`: the arguments that are no functions, in order."""
        rest = iter(others)
        leaves = [leaf if has_no_text(leaf) else next(rest) for leaf in self.leaves]
        args, kwargs = tree_unflatten(leaves, self.shape)
        return self.function(*args, **kwargs)


def has_no_text(value: Any) -> bool:
    """True for a function or a class, which torch.fx cannot print where it is an argument."""
    functions = (type, types.FunctionType, types.BuiltinFunctionType)
    return isinstance(value, functions) and not isinstance(value, HAVE_TEXT)


def with_functions_bound(
    target: Callable[..., Any], args: Any, kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], Any, dict[str, Any]]:
    """The operation and its arguments; functions among these go into the operation."""
    leaves = tree_leaves((list(args), kwargs))
    if not any(map(has_no_text, leaves)):
        return target, args, kwargs

    others = [leaf for leaf in leaves if not has_no_text(leaf)]
    return Bound(target, args, kwargs), others, {}


def make_readable(graph: fx.Graph) -> bool:
    """Exchange what torch.fx would print wrongly. True if there was any such thing."""
    changed = False
    for node in graph.nodes:
        if node.target is operator.pow and has_a_sign(node.args[0]):
            node.target = pow  # printed as a call, `pow(-1, n)`
            changed = True
        if has_complex(node.args) or has_complex(node.kwargs):
            node.args = fx.node.map_aggregate(node.args, exact)
            node.kwargs = fx.node.map_aggregate(node.kwargs, exact)
            changed = True
    return changed


def has_a_sign(value: Any) -> bool:
    """True if the text of a number begins with a minus. (That of -0.0 does.)"""
    return isinstance(value, (int, float)) and repr(value).startswith("-")


def has_complex(value: Any) -> bool:
    """True if there is a complex number in this nest."""
    if isinstance(value, (tuple, list)):
        return any(map(has_complex, value))
    if isinstance(value, dict):
        return any(map(has_complex, value.values()))
    return type(value) is complex


def exact(value: Any) -> Any:
    """A complex number with a `repr` that gives it back; anything else itself."""
    if type(value) is complex:
        return Complex(value)
    return value
