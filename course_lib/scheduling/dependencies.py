"""What a loop reads and writes, and where.

In:  a loop node and symbols for its loops.
Out: a `Body`: every load and the store as `Access(buffer, index)`, and the indices that are used as
     values.

The body is run once under `expressions.TreeBuilder`, a handler that computes nothing and only notes
what is asked of it.
In PyTorch: `torch/_inductor/dependencies.py`, `RecordLoadStore` and `MemoryDep`.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import sympy

from course_lib.lowering.indexing import Linear, contiguous
from course_lib.lowering.ir import Buffer, ExternKernel, LoopNode, Node, Reduction
from course_lib.lowering.ops import linear_index
from course_lib.scheduling.expressions import TreeBuilder

# What is not counted among the operations of a body: it costs next to nothing, or is counted as a
# read
FREE = frozenset("load constant to_dtype index_expr masked".split())


class Access(NamedTuple):
    """One element: which `buffer`, and the flat `index` into it as a formula over the loop
    symbols."""

    buffer: str
    index: Linear  # type: ignore[assignment]


class Body(NamedTuple):
    """What running a node's body once touches."""

    reads: tuple[Access, ...]
    write: Access
    # Indices used as values (`arange`, masks, the position that argmax returns)
    values: tuple[Linear, ...] = ()
    operations: tuple[str, ...] = ()

    @property
    def formulas(self) -> list[Linear]:
        """Every formula of loop symbols in it."""
        return [self.write.index, *(access.index for access in self.reads), *self.values]

    def in_other_loops(self, formulas: Mapping[Linear, Linear]) -> "Body":
        """This body in terms of other loop symbols.

        `formulas`: each formula of it → the same in those symbols."""
        reads = tuple([Access(buffer, formulas[index]) for buffer, index in self.reads])
        write = Access(self.write.buffer, formulas[self.write.index])
        values = tuple([formulas[value] for value in self.values])
        return Body(reads, write, values, self.operations)


class InOtherLoops(dict[Linear, Linear]):
    """Formula → the same after each loop symbol has become another formula (`become`). Each is
    computed when it is first asked for, and then kept."""

    def __init__(self, become: Mapping[sympy.Symbol, Linear]) -> None:
        self.become = become

    def __missing__(self, formula: Linear) -> Linear:
        found = self[formula] = formula.substitute(self.become)
        return found


def record(node: LoopNode, buffers: Mapping[str, Buffer]) -> Body:
    """What the body of `node` touches: it is run at symbolic indices, i0, i1, ... for what is kept
    and j0, j1, ... for what is reduced."""
    index, rindex = node.symbols
    linear = functools.partial(Linear.of, loops=frozenset((*index, *rindex)))

    builder = TreeBuilder(buffers)
    node.value(builder, index, rindex)

    # What the body asked for, each once and in order
    reads: dict[Access, None] = {}
    values = []
    operations = []
    for node_of_body in builder.nodes.values():
        if node_of_body.op == "load":
            buffer, place = node_of_body.detail
            reads[Access(buffer, linear(place))] = None
        if node_of_body.op == "index_expr":
            values.append(node_of_body.detail)
        if node_of_body.op not in FREE:
            operations.append(node_of_body.op)

    # The position that argmax returns is an index, too.
    if isinstance(node, Reduction) and node.combines.gives_place:
        values.append(linear_index(rindex, contiguous(node.reduced)))

    write = Access(node.buffer.name, linear(node.place(index)))
    index_formulas = dict.fromkeys(linear(value) for value in values)
    return Body(tuple(reads), write, tuple(index_formulas), tuple(operations))


def record_all(
    nodes: Iterable[Node], buffers: Mapping[str, Buffer], known: Mapping[Node, Body]
) -> dict[Node, Body]:
    """The body of every loop node. `known`: bodies that were recorded before, and need not be
    again."""
    bodies: dict[Node, Body] = {}
    for node in nodes:
        if not isinstance(node, ExternKernel):
            bodies[node] = known.get(node) or record(node, buffers)
    return bodies


def read_names(node: Node, bodies: Mapping[Node, Body]) -> set[str]:
    """The buffers that a node reads."""
    if isinstance(node, ExternKernel):
        return node.reads
    return {access.buffer for access in bodies[node].reads}
