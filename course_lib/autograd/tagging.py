"""Which captured operation each recorded operator came from.

In:  a captured graph, which runs while `make_fx` records; later autograd's functions, which run
     while it records.
Out: `meta["origin"]` of each recorded node: the captured node. So a kernel can name the user's
line.
In PyTorch: `torch/fx/traceback.py` (`preserve_node_meta`),
`torch/_functorch/_aot_autograd/logging_utils.py` (`setup_stacktrace_preservation_hooks`).
"""

import weakref
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._pytree import tree_leaves

from course_lib.autograd.decomposing import Decompositions


class Tagging(fx.Interpreter):
    """Runs a captured graph.

    A node that is recorded meanwhile belongs to the captured node that runs.

    A node that is recorded in backward belongs to the captured node whose `grad_fn` runs.
    """

    def __init__(self, gm: fx.GraphModule, table: Decompositions) -> None:
        super().__init__(gm)
        self.table = table
        self.current: fx.Node | None = None
        self.mark()  # what was recorded before belongs to no node

        # By `id`: the functions of autograd that tell when they run. Held, so that no other one
        # gets the same `id`.
        self.watched: dict[int, Any] = {}

    def mark(self, next_node: fx.Node | None = None) -> None:
        """What has been recorded since the last mark came from the current node; from now on it
        comes from `next_node`."""
        if mode := get_proxy_mode():
            # From the last node back to the first that is marked already
            for new in reversed(mode.tracer.graph.nodes):
                if new.op == "placeholder" or "origin" in new.meta:
                    break
                new.meta["origin"] = self.current
        self.current = next_node

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Run a function, or what the table has for it: `one_hot` falls apart before any operator
        is called."""
        # Python's functions are not asked: some cannot be looked up in a table.
        if isinstance(target, BuiltinFunctionType):
            target = self.table.get(target) or target
        return super().call_function(target, args, kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        """Run a method of a tensor, or what the table has for it."""
        own_function = self.table.get(getattr(torch.Tensor, target, None))
        if own_function:
            return own_function(*args, **kwargs)
        return super().call_method(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        self.mark(n.meta.get("origin", n))
        result = super().run_node(n)

        # autograd's functions behind this result, up to those that an earlier node made
        functions = [t.grad_fn for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        while functions:
            function = functions.pop()
            if function is not None and id(function) not in self.watched:
                self.watch(function)
                functions += [before for before, _ in function.next_functions]
        return result

    def watch(self, function: Any) -> None:
        """From here on the current node is marked when `function` runs in backward."""
        self.watched[id(function)] = function

        # The hook must not hold this object, which holds the function: neither would ever be freed.
        tagging = weakref.proxy(self)
        node = self.current

        def mark_node(gradients: Any) -> None:
            tagging.mark(node)

        function.register_prehook(mark_node)
