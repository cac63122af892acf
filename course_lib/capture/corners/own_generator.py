"""A `torch.Generator`: the program makes it, or it comes from outside and is an input of the graph.

In:  `torch.Generator().manual_seed(3)`, `torch.randn(3, generator=g)`, `g.initial_seed()`.
Out: nodes that make it, seed it, and draw from it, in the order of the program. Such a graph runs
     operation by operation, for a kernel draws from torch's own generator. Where eager has to run
     the frame again, one from outside is put back first.
In PyTorch there is no counterpart: TorchDynamo ends the graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from course_lib.capture.attributes.lookup import OPAQUE_ATTRIBUTES
from course_lib.capture.calls.dispatch import CallRule, register
from course_lib.capture.calls.tables import FUNCTIONS
from course_lib.capture.graph import GraphBuilder
from course_lib.capture.guard_tests import Test
from course_lib.capture.known import Known
from course_lib.capture.operations import INSTEAD, Operation
from course_lib.capture.rebuild import Rebuilder
from course_lib.capture.rebuild_kinds import BY_TYPE
from course_lib.capture.rules import GO_ON
from course_lib.capture.sources import Source, Unsupported
from course_lib.capture.stand_ins.make import OF_TYPE
from course_lib.capture.values import owner_of

if TYPE_CHECKING:
    from course_lib.capture.machine import Machine
    from course_lib.capture.world import World

WHY = "it draws random numbers from a generator of its own"
"""Why such a graph runs operation by operation: stands in the `meta` of the generator's node."""


def make_generator(it: Machine, device: Any = "cpu") -> torch.Generator:
    """`torch.Generator()`, of the CPU."""
    builder = it.world.builder
    if builder.region or builder.inference or torch.device(device).type != "cpu":
        raise Unsupported("makes a Generator of another device, or in inference mode")
    generator = torch.Generator()
    node = builder.graph.call_function(torch.Generator, ())
    node.meta.update(location=builder.location, module=builder.module, needs_eager=WHY)
    builder.renew(generator, node)
    return generator


# ---- from outside --------------------------------------------------------------------------------


@dataclass
class Drawn:
    """An effect: a generator from outside goes on while the graph runs."""

    known: Known

    def state(self) -> int:
        """0: where capture asks what has changed, the generator is as it was."""
        return 0

    def write(self, head: Rebuilder) -> None:
        """Nothing: the graph draws from the generator itself."""

    def undo(self, head: Rebuilder) -> tuple[str, str]:
        """The line that notes the state of the generator before the graph runs, and the statement
        that puts it back where the graph has run in vain."""
        if not head.world.builder.has_node(self.known.stand_in):
            return "", ""
        place = self.known.source.expr
        state = f"__before{head.world.others.index(self)}"
        return f"{state} = {place}.get_state()", f"{place}.set_state({state}); "


def generator_from_outside(world: World, generator: torch.Generator, source: Source) -> Any:
    """The stand-in of a generator: a copy. While the program is interpreted, nothing is drawn from
    the generator itself."""
    if generator.device.type != "cpu" or world.builder.inference:
        return world.opaque(generator, source)
    world.assume_type(generator, source)
    world.assume(source, "generator", Test("{}.device.type", "==", "cpu"))
    known = world.know(generator.clone_state(), generator, source, opaque=True)
    world.others.append(Drawn(known))
    return world.builder.add_input(known)


def becomes_a_node(builder: GraphBuilder, operation: Operation) -> Any:
    """Mark the graph of an operation that draws from a generator from outside: it runs operation by
    operation."""
    for value in (*operation.args, *operation.kwargs.values()):
        if type(value) is torch.Generator and not builder.has_node(value):
            builder.node_of(value).meta["needs_eager"] = WHY
    return GO_ON


def attribute_of_generator(it: Machine, known: Known, name: str) -> Any:
    """`generator.device`, or a method."""
    if name == "device":
        return known.real.device
    return getattr(known.stand_in, name)


# ---- its methods ---------------------------------------------------------------------------------


def is_method_of_generator(it: Machine, function: Any) -> bool:
    """A method of a generator that the program made, or of one from outside?"""
    owner = owner_of(function)
    if type(owner) is not torch.Generator:
        return False
    return it.world.builder.has_node(owner) or it.world.of(owner) is not None


def call_method(it: Machine, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """`generator.manual_seed(n)`, which gives the generator; and `generator.initial_seed()`."""
    owner, name = function.__self__, function.__name__
    builder, known = it.world.builder, it.world.of(owner)
    if name == "initial_seed" and not args:
        # The program has seeded it in the graph: what it had outside does not matter
        is_seeded = builder.has_node(owner) and builder.node_of(owner).op != "placeholder"
        if known is not None and not is_seeded:
            test = Test("{}.initial_seed()", "==", known.real.initial_seed())
            it.world.assume(known.source, "generator", test)
        return owner.initial_seed()

    if name != "manual_seed" or len(args) != 1 or kwargs or args[0] != int(args[0]):
        raise Unsupported(f"calls {name} of a Generator")
    becomes_a_node(builder, Operation(name, [owner], {}))
    # The stand-in is seeded, too, for `initial_seed`.
    owner.manual_seed(int(args[0]))
    node = builder.graph.call_method("manual_seed", builder.argument((owner, int(args[0]))))
    node.meta.update(location=builder.location, module=builder.module, needs_eager=WHY)
    builder.renew(owner, node)
    return owner


def write_generator(head: Rebuilder, generator: torch.Generator) -> str:
    """A generator that the program still has when the graph has run is one more result of the
    graph."""
    if not head.world.builder.has_node(generator):
        raise Unsupported("a Generator from outside is alive here")
    head.outputs.append(generator)
    return f"__out[{len(head.outputs) - 1}]"


FUNCTIONS[torch.Generator] = make_generator
BY_TYPE[torch.Generator] = write_generator
OF_TYPE[torch.Generator] = generator_from_outside
OPAQUE_ATTRIBUTES[torch.Generator] = attribute_of_generator
INSTEAD.append(becomes_a_node)
register(
    CallRule("method of a generator", is_method_of_generator, call_method),
    before="object of which nothing is known",
)
