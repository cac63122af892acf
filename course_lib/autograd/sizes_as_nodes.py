"""Symbolic sizes in a recorded graph.

In:  `s0 * 2 + 1` as an argument of an operation, while `make_fx` records.
Out: the size itself as an argument: it is known wherever it is needed, and no node computes it.
In PyTorch: nodes compute sizes (`aten.sym_size`, `operator.mul`); `torch/_inductor/graph.py` turns
them into symbols.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import fx
from torch.fx.experimental import proxy_tensor

from course_lib import sizes
from course_lib.written import quiet


@contextlib.contextmanager
def tracing_sizes() -> Iterator[None]:
    """What torch does otherwise than usual while a graph with symbolic sizes is traced."""
    with any_formula_of_sizes(), no_questions_for_a_description(), rules_for_sizes():
        yield


@contextlib.contextmanager
def any_formula_of_sizes() -> Iterator[None]:
    """Let torch record sizes that it has not seen computed.

    Without this, torch puts a size together from nodes of its parts, and fails for some formulas
    (`s0 ** 2`).
    """
    # None in a torch that has no such function
    before = getattr(proxy_tensor, "_build_proxy_for_sym_expr", None)
    if sizes.current() is None or before is None:
        yield
        return

    def note_formula(tracer: Any, expr: Any, out: Any = None) -> Any:
        # A node that only shows the formula: `write_sizes_out` puts the size itself in its place.
        proxy = tracer.create_proxy("call_function", sizes.text_of, (str(expr),), {})
        proxy.node.meta["val"] = out

        # torch asks for the proxy when an operation takes the size, so it is handed over as a
        # function.
        proxy_tensor.set_proxy_slot(out, tracer, proxy_tensor.thunkify(tracer, lambda: proxy))
        return out

    proxy_tensor._build_proxy_for_sym_expr = note_formula
    try:
        yield
    finally:
        proxy_tensor._build_proxy_for_sym_expr = before


@contextlib.contextmanager
def no_questions_for_a_description() -> Iterator[None]:
    """Let torch note no `tensor_meta` with each node. Nobody here reads it, and to write it torch
    asks how each tensor lies in memory: each answer would be a guard on sizes."""
    before = getattr(proxy_tensor, "_extract_tensor_metadata", None)
    if sizes.current() is None or before is None:
        yield
        return

    proxy_tensor._extract_tensor_metadata = lambda value: None
    try:
        yield
    finally:
        proxy_tensor._extract_tensor_metadata = before


def rules_for_sizes() -> contextlib.AbstractContextManager[Any]:
    """Let torch take its Python form of operators that it has twice: in C++ for plain numbers, in
    Python for all sizes (`pad`)."""
    if sizes.current() is None:
        return contextlib.nullcontext()
    rules: contextlib.AbstractContextManager[Any] = torch._C._EnablePythonDispatcher()
    return rules


def write_sizes_out(graph: fx.Graph) -> None:
    """Put symbolic sizes themselves in the place of the nodes that compute them."""
    # Users first: a node can be erased when nobody uses it any more
    for node in reversed(list(graph.nodes)):
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            with quiet():  # torch warns of symbolic sizes among arguments
                node.replace_all_uses_with(value)
            if node.op == "call_function":
                graph.erase_node(node)
        elif isinstance(value, torch.SymBool) and node.op == "call_function":
            raise sizes.NeedsNumbers(f"{node.target} computes a number of sizes")
