"""Cheap loops are computed again inside the loops that read them, where both cannot be one kernel.

In:  a `Fusion` whose groups are not fused yet.
Out: an `Inlining` for each pair of a loop and a reader of it (`next_inlinings`). If there is none,
     all groups are fused. `with_inlined` gives the nodes with these loops in their bodies.

Inductor asks the other way round: it inlines while it lowers, and stores what is read too often.
In PyTorch: `torch/_inductor/ir.py`, `StorageBox.mark_reuse`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from course_lib.lowering.ir import ExternKernel, Index, Inline, Node
from course_lib.lowering.ops import Handler, Value
from course_lib.scheduling.dependencies import Access
from course_lib.scheduling.fusion import LEGAL, No, can_fuse
from course_lib.scheduling.groups import Group, Member
from course_lib.scheduling.merging import Fusion

# A loop that reads less than one in so many elements of another's result had better compute them
# itself
FEW = 8
# A buffer is small beside another that is at least so many times as large
MUCH_LARGER = 8
# Operations of the program that a loop may have in it for being computed again elsewhere
LONGEST = 32


class Inlining(NamedTuple):
    """`producer` is to be computed again inside `reader`."""

    producer: Node
    reader: Node
    why: str

    def __str__(self) -> str:
        return f"{self.producer}: {self.why}"


def next_inlinings(fusion: Fusion) -> list[Inlining]:
    """What is to be inlined before all starts once more. If nothing is, the groups are fused.

    What is hardly read is asked first: fused with its reader it would be computed as a whole."""
    pairs = short_enough(fusion.nodes, hardly_read(fusion))
    if pairs:
        return pairs

    fusion.run()
    return short_enough(fusion.nodes, cheap_and_apart(fusion))


# --- which loops


def hardly_read(fusion: Fusion) -> list[Inlining]:
    """Cheap loops of which another reads few elements (a gather after log_softmax), each with that
    other."""
    members = [member for group in fusion.alone for member in group.members]
    cheap = {member.node.buffer: member.node for member in members if member.is_cheap}

    inlinings = []
    for group in fusion.alone:
        for buffer in sorted(group.reads & cheap.keys(), key=lambda buffer: buffer.name):
            reads_few = group.touched(buffer) * FEW < buffer.nbytes
            if reads_few and buffer.name not in fusion.usage.outputs:
                why = "only a few of its elements are read"
                inlinings.append(Inlining(cheap[buffer], group.nodes[0], why))
    return inlinings


def cheap_and_apart(fusion: Fusion) -> list[Inlining]:
    """Cheap loops that only loops read, none of which they could be fused with, each with those
    that read it. If there are none: what can be made again of another buffer
    (`readers_that_remake`)."""
    home = {node: group for group in fusion.groups for node in group.nodes}
    why = "cheap to compute again where it is read"

    inlinings: list[Inlining] = []
    for group in fusion.groups:
        if not is_cheap_and_apart(group, home, fusion):
            continue
        for node in group.nodes:
            inlinings += [Inlining(node, reader, why) for reader in readers_of(node, fusion)]

    # What a learner's own rules store is left as it is.
    if inlinings or not fusion.decides_by_our_rules:
        return inlinings

    for group in fusion.groups:
        for member in group.members:
            readers = readers_that_remake(group, member, fusion)
            inlinings += [Inlining(member.node, reader, why) for reader in readers]
    return inlinings


def is_cheap_and_apart(group: Group, home: Mapping[Node, Group], fusion: Fusion) -> bool:
    """True if all of a group is cheap, and only loops read it that cannot be fused with it."""
    if group.is_extern or fusion.is_returned(group):
        return False
    if not all(member.is_cheap for member in group.members):
        return False

    readers = set()
    for buffer in group.stores:
        readers |= {home[node] for node in fusion.usage.readers[buffer.name]}
    readers.discard(group)
    return bool(readers) and all(cannot_be_fused(group, reader) for reader in readers)


def cannot_be_fused(group: Group, reader: Group) -> bool:
    """True if the reader is a loop that may not run together with the group."""
    return not reader.is_extern and isinstance(can_fuse(group, reader, LEGAL), No)


def readers_of(node: Node, fusion: Fusion) -> list[Node]:
    """The nodes that read what this one writes."""
    readers: list[Node] = []
    for buffer in node.buffers:
        readers += fusion.usage.readers[buffer.name]
    return readers


def readers_that_remake(group: Group, member: Member, fusion: Fusion) -> list[Node]:
    """The loops elsewhere that had better make a stored value again.

    It is hardly more than the same element of another buffer, so they read that one instead."""
    if not can_be_remade(group, member, fusion):
        return []

    readers = fusion.usage.readers[member.node.buffer.name].difference(group.nodes)
    if any(isinstance(reader, ExternKernel) for reader in readers):
        return []
    return list(readers)


def can_be_remade(group: Group, member: Member, fusion: Fusion) -> bool:
    """True for a cheap value that is stored, and made of one large buffer (the same element of it)
    and of small ones."""
    buffer = member.node.buffer
    is_stored = member.is_cheap and buffer in group.stores
    if len(group.nodes) == 1 or not is_stored or buffer.name in fusion.usage.outputs:
        return False

    def is_large(access: Access) -> bool:
        return bool(MUCH_LARGER * fusion.usage.buffers[access.buffer].nbytes > buffer.nbytes)

    large = [access for access in member.body.reads if is_large(access)]
    if len(large) != 1 or large[0].index != member.body.write.index:
        return False

    source = fusion.usage.buffers[large[0].buffer]
    return source not in group.writes and source.nbytes <= buffer.nbytes


def short_enough(nodes: Sequence[Node], pairs: Sequence[Inlining]) -> list[Inlining]:
    """The pairs whose producer is not long by then: a loop in a loop in a loop is computed again in
    each."""
    producers_of = by_reader(pairs)
    length: dict[Node, int] = {}
    for node in nodes:
        lengths_inside = [length[producer] for producer in producers_of.get(node, ())]
        # What is too long itself is not inlined, and so adds nothing.
        length[node] = len(node.origins) + sum(n for n in lengths_inside if n <= LONGEST)

    return [pair for pair in pairs if length[pair.producer] <= LONGEST]


# --- the nodes afterwards


def with_inlined(nodes: Sequence[Node], pairs: Sequence[Inlining]) -> list[Node]:
    """The nodes, each with those producers in its body that `pairs` names for it."""
    producers_of = by_reader(pairs)
    become: dict[Node, Node] = {}
    for node in nodes:
        producers = [become[producer] for producer in producers_of.get(node, ())]
        become[node] = inlined_into(node, producers)
    return list(become.values())


def by_reader(pairs: Sequence[Inlining]) -> dict[Node, list[Node]]:
    """For each reader its producers."""
    producers: dict[Node, list[Node]] = {}
    for pair in pairs:
        producers.setdefault(pair.reader, []).append(pair.producer)
    return producers


def inlined_into(node: Node, producers: Sequence[Any]) -> Node:
    """`node` with the bodies of `producers` in place of loads from them."""
    if isinstance(node, ExternKernel) or not producers:
        return node

    by_name = {producer.buffer.name: producer for producer in producers}

    def inner(ops: Handler, *indices: Index) -> Value:
        return node.inner(Inline(ops, by_name), *indices)

    # A dictionary for its order: the operations of the producers come first.
    origins: dict[Any, None] = {}
    for part in (*producers, node):
        origins.update(dict.fromkeys(part.origins))
    return replace(node, inner=inner, origins=tuple(origins))
