"""What a loop reads and writes, and where.

In:  a loop node and symbols for its loops.
Out: a `Body`: every load and the store as `Access(buffer, index)`, and the indices that are used as values.

The body is run once under `expressions.Recorder`, a handler that computes nothing and only notes what is asked of it.
In PyTorch: `torch/_inductor/dependencies.py`, `RecordLoadStore` and `MemoryDep`.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from course_lib.lowering.indexing import Linear, contiguous
from course_lib.lowering.ir import Buffer, ExternKernel, LoopNode, Node, Reduction
from course_lib.lowering.ops import linear_index
from course_lib.scheduling.expressions import Recorder

# What is not counted among the operations of a body
FREE = frozenset("load constant to_dtype index_expr masked".split())


class Access(NamedTuple):
    """One element: which `buffer`, and the flat `index` into it as a formula over the loop symbols."""

    buffer: str
    index: Linear  # type: ignore[assignment]


class Body(NamedTuple):
    """What running a node's body once touches."""

    reads: tuple[Access, ...]
    write: Access
    # Indices used as values (`arange`, masks, the position that argmax returns)
    values: tuple[Linear, ...] = ()
    operations: tuple[str, ...] = ()


def record(node: LoopNode, buffers: Mapping[str, Buffer]) -> Body:
    """Run the body of `node` at symbolic indices: i0, i1, ... for what is kept, j0, j1, ... for what is reduced."""
    index, rindex = node.symbols
    linear = functools.partial(Linear.of, loops=frozenset((*index, *rindex)))
    recorder = Recorder(buffers)
    node.value(recorder, index, rindex)
    made = recorder.nodes.values()
    reads = dict.fromkeys(Access(e.detail[0], linear(e.detail[1])) for e in made if e.op == "load")
    values = [e.detail for e in made if e.op == "index_expr"]
    if isinstance(node, Reduction) and node.kind.startswith("arg"):
        values.append(linear_index(rindex, contiguous(node.reduced)))
    operations = tuple(e.op for e in made if e.op not in FREE)
    write = Access(node.buffer.name, linear(node.place(index)))
    return Body(tuple(reads), write, tuple(dict.fromkeys(map(linear, values))), operations)


def record_all(nodes: Iterable[Node], buffers: Mapping[str, Buffer]) -> dict[Node, Body]:
    """The body of every loop node."""
    return {node: record(node, buffers) for node in nodes if not isinstance(node, ExternKernel)}


def read_names(node: Node, bodies: Mapping[Node, Body]) -> set[str]:
    """The buffers that a node reads."""
    return (
        node.reads
        if isinstance(node, ExternKernel)
        else {access.buffer for access in bodies[node].reads}
    )
