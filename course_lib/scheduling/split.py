"""Reductions with too few rows for a GPU, in two steps.

In:  a `LoopGraph`, and for which buffers (`where`) it is worth it: those that a GPU computes.
Out: the same graph; a sum over millions for a few results is now many partial sums, then their sum.

A row of a reduction belongs to one program, and a GPU wants a thousand at once: columns are cut into chunks, each a row.
In PyTorch: `torch/_inductor/ir.py`, `Reduction.num_splits` and `create_multilayer`.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any

import sympy

from course_lib.lowering.indexing import Linear, contiguous
from course_lib.lowering.ir import Buffer, Inline, LoopGraph, Node, Pointwise, Reduction
from course_lib.scheduling.dependencies import record

# Rows that there should be: a row of 16k elements for each, where a hundred million become one
PROGRAMS = 8192
# Chunks of sums down the columns, each gathered by a program that walks along rows: one for each multiprocessor
WALKS = 128


def split_reductions(graph: LoopGraph, where: Callable[[Buffer], bool]) -> LoopGraph:
    """Split what is worth it. (argmax and argmin stay in one piece.)"""
    done: dict[str, Buffer] = {}
    graph.nodes[:] = [
        p
        for n in graph.nodes
        for p in (split(n, graph, done) if any(map(where, n.buffers)) else [n])
    ]
    return graph


def split(node: Node, graph: LoopGraph, done: dict[str, Buffer]) -> list[Node]:
    """The node, or two that do the same. `done`: the parts of those that were split before."""
    if not isinstance(node, Reduction) or node.kind.startswith("arg") or 0 in node.ranges:
        return [node]
    rows, columns = math.prod(node.ranges), math.prod(node.reduced)
    others = [n for n in graph.nodes if isinstance(n, Reduction)]
    crossed = any((math.prod(n.ranges), math.prod(n.reduced)) == (columns, rows) for n in others)
    wanted = min(PROGRAMS // rows, columns // 2048)
    if rows_are_neighbours(
        (access.index for access in record(node, graph.buffers).reads), *node.symbols
    ):
        # a tile has 64
        wanted = (
            min(WALKS, columns // 8) if crossed else min(64 * PROGRAMS // rows, columns // 32, 512)
        )
    chunks = []
    for size in node.reduced:
        chunks.append(next(n for n in range(max(1, min(wanted, size)), 0, -1) if size % n == 0))
        wanted //= chunks[-1]
    if math.prod(chunks) < 4:
        return [node]
    lengths = tuple(size // n for size, n in zip(node.reduced, chunks, strict=True))
    shape = (*chunks, *node.ranges)
    parts = Buffer(
        f"{node.buffer.name}_parts", node.accumulate, shape, contiguous(shape), node.buffer.device
    )
    done[node.buffer.name] = parts
    mean, total = node.around or (node.buffer, node.buffer)
    # of x: each chunk's squared distances are from its own mean (Chan et al., 1983)
    sums = done.get(total.name, parts)
    count = lambda ops: ops.constant(math.prod(lengths), node.accumulate)
    own_mean = lambda ops, at: ops.truediv(sums.view().load(ops, at), count(ops))

    def part(ops: Any, index: Any, rindex: Any) -> Any:
        if sums is not parts:
            ops = Inline(
                ops,
                {
                    mean.name: Pointwise(
                        buffer=mean, ranges=node.ranges, inner=lambda ops, _: own_mean(ops, index)
                    )
                },
            )
        places = zip(index, lengths, rindex, strict=False)
        return node.inner(
            ops, index[len(chunks) :], tuple(chunk * length + j for chunk, length, j in places)
        )

    def whole(ops: Any, index: Any, rindex: Any) -> Any:
        found = parts.view().load(ops, at := (*rindex, *index))
        if sums is parts:
            return found
        apart = ops.sub(own_mean(ops, at), ops.load(mean.name, node.place(index)))
        return ops.add(found, ops.mul(count(ops), ops.mul(apart, apart)))

    first = replace(
        node, buffer=parts, ranges=shape, inner=part, reduced=lengths, kept=None, partial=True
    )
    return [first, replace(node, inner=whole, reduced=tuple(chunks))]


def rows_are_neighbours(
    reads: Iterable[Linear], rows: Collection[sympy.Symbol], columns: Collection[sympy.Symbol]
) -> bool:
    """Does most of what is read lie row beside row in memory (a sum down the columns of a matrix), not along the row?"""
    moves = lambda index, symbols: any(index.moves_with(symbol) for symbol in symbols)
    steps = lambda index, symbols: any(index.coefficient(symbol) == 1 for symbol in symbols)
    both = [index for index in reads if moves(index, rows) and moves(index, columns)]
    return sum(steps(index, rows) for index in both) > sum(steps(index, columns) for index in both)
