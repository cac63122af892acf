"""Which operations may raise an error because of the data in their tensors.

In:  a function, method or ATen operator, as a graph's node calls it.
Out: `may_fail`: true if its kernel looks at the data and may refuse it (an index out of range, a
     matrix that has no inverse).

A graph with such an operation is run with care. It may raise before it has done all that eager does
before the error, so the head lets eager run the frame then (`capture/head.py`), and no kernel
writes to an input before the last check (`scheduling/overwriting.py`). In PyTorch there is no
counterpart: `torch.compile` raises what the kernel raises.
"""

from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

CHECKED = set(
    """index gather scatter embedding take put nll entropy hot margin ctc multinomial bernoulli binomial poisson normal
    gamma dirichlet linalg cholesky inverse pinverse solve svd qr lu lstsq lobpcg orgqr ormqr geqrf rank power
    householder unpool1d unpool2d unpool3d quantile nanquantile histc histogram histogramdd bincount interleave unique
    segment istft searchsorted quantize sparse coalesce nested padded packed item nonzero assert check errors autograd""".split()
)
"""Words in the names of operators whose kernels look at the data."""
CHECKED_NAMES = {"masked_select", "masked_scatter", "masked_scatter_"}
"""Whole names of such operators, where a word of the name would fit others, too."""
DIVISIONS = set("div divide remainder fmod floordiv ifloordiv mod imod".split())
"""Words in the names of operators that refuse a divisor of 0, if it is an integer."""
POWERS = {"pow", "ipow", "rpow"}
"""Words in the names of operators that refuse a negative exponent, if all is an integer."""
EXTREMES = set("max min amax amin aminmax argmax argmin median nanmedian mode".split())
"""Words in the names of operators that refuse a tensor without elements."""
RANDOM = set(
    "rand randn randint randperm random bernoulli normal uniform multinomial dropout poisson".split()
)
RANDOM |= set(
    "exponential geometric cauchy binomial gamma dirichlet rrelu attention fractional".split()
)
"""Words in the names of operators that draw random numbers, or may (attention has dropout)."""
WHILE_COMPILING = "_course_while_compiling"  # An attribute of errors that compiling itself raised
BY_INDEX = ("getitem", "setitem")
"""Operators that refuse an index out of range. Only an index that is data may be so."""


def may_fail(node: fx.Node) -> bool:
    """May the operation of this node raise because of data?"""
    function = node.target
    if node.op not in ("call_function", "call_method"):
        return False
    if not is_torchs(function):
        return True
    name = name_of(function)
    if name.strip("_") in BY_INDEX:
        by_tensor = any(isinstance(arg, fx.Node) for arg in leaves(node.args[1:2]))
        return by_tensor or has_list(node)
    # `index_add_` has the words index and add
    words = set(name.split("_"))
    if words & CHECKED or name in CHECKED_NAMES:
        return True
    if words & EXTREMES and any(map(is_empty, node.all_input_nodes)):
        return True
    # Floats give inf or nan there.
    return bool(words & (DIVISIONS | POWERS)) and not is_floating(node.meta.get("val"))


def is_empty(node: fx.Node) -> bool:
    """Is the result of this node a tensor without elements?"""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and 0 in value.shape


def has_list(node: fx.Node) -> bool:
    """Is it `x[[0, 5]]`? Nobody looks at these numbers before the kernel does."""
    if len(node.args) < 2:
        return False
    index: Any = node.args[1]
    if not isinstance(index, tuple):
        index = (index,)
    return any(isinstance(part, list) for part in index)


def leaves(index: Any) -> list[Any]:
    """The parts of an index, of slices too."""
    parts: list[Any] = []
    fx.node.map_aggregate(index, parts.append)
    return parts


def is_torchs(function: Any) -> bool:
    """Is this an operation of torch's own? What others have written may raise anything."""
    if isinstance(function, torch._ops.OpOverload):
        return function.namespace in ("aten", "prims", "mkldnn")
    if isinstance(function, torch._ops.OpOverloadPacket):
        return function._qualified_op_name.split("::")[0] in ("aten", "prims")
    # Methods of tensors have no module.
    module = getattr(function, "__module__", None) or "torch"
    return isinstance(function, str) or module.split(".")[0] in ("torch", "_operator", "builtins")


def name_of(function: Any) -> str:
    """The operator's name, without that of its overload."""
    if isinstance(function, str):
        return function
    packet = getattr(function, "overloadpacket", function)
    return str(getattr(packet, "__name__", function))


def is_floating(value: Any) -> bool:
    """Are all tensors in a result of a floating (or complex) dtype?"""
    tensors = [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    return all(t.dtype.is_floating_point or t.dtype.is_complex for t in tensors)


def draws_numbers(node: fx.Node) -> bool:
    """May the operation of this node draw random numbers?"""
    if node.op not in ("call_function", "call_method"):
        return False
    if not is_torchs(node.target):
        return True
    words = set(name_of(node.target).split("_"))
    return bool(words & RANDOM)
