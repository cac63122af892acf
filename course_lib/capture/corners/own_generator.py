"""A `torch.Generator` that the program itself makes: nodes of the graph make it, seed it, and draw from it.

In:  `torch.Generator().manual_seed(3)`, `torch.randn(3, generator=g)`.
Out: nodes in the order of the program. Such a graph runs operation by operation, for a kernel draws from torch's own generator.
In PyTorch there is no counterpart: TorchDynamo ends the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.rebuild import BY_TYPE, Rebuilder
from course_lib.capture.sources import Unsupported

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine

WHY = "it draws random numbers from a generator that it makes"


def make_generator(it: Machine, device: Any = "cpu") -> torch.Generator:
    """`torch.Generator()`, of the CPU."""
    builder = it.world.builder
    if builder.region or builder.inference or torch.device(device).type != "cpu":
        raise Unsupported("makes a Generator of another device, or in inference mode")
    made = torch.Generator()
    node = builder.graph.call_function(torch.Generator, ())
    node.meta.update(location=builder.location, module=builder.module, needs_eager=WHY)
    builder.renew(made, node)
    return made


def is_method_of_own(it: Machine, function: Any) -> bool:
    """A method of a generator that the program made?"""
    owner = getattr(function, "__self__", None)
    return type(owner) is torch.Generator and it.world.builder.has_node(owner)


def seed(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`generator.manual_seed(n)`, which gives the generator."""
    owner = function.__self__
    if function.__name__ != "manual_seed" or len(args) != 1 or kwargs or args[0] != int(args[0]):
        raise Unsupported(f"calls {function.__name__} of a Generator that it has made")
    builder = it.world.builder
    node = builder.graph.call_method("manual_seed", builder.argument((owner, int(args[0]))))
    node.meta.update(location=builder.location, module=builder.module, needs_eager=WHY)
    builder.renew(owner, node)
    return owner


def write_generator(head: Rebuilder, generator: torch.Generator) -> str:
    """One that outlives the graph is one more result of it."""
    if not head.world.builder.has_node(generator):
        raise Unsupported("a Generator from outside is alive here")
    head.outputs.append(generator)
    return f"__out[{len(head.outputs) - 1}]"


FUNCTIONS[torch.Generator] = make_generator
BY_TYPE[torch.Generator] = write_generator
register(
    CallRule("method of a generator that the program made", is_method_of_own, seed),
    before="builtin",
)
