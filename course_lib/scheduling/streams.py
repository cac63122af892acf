"""Products, and what lies between them, as one kernel that walks along a row in blocks: attention
from plain code.

In:  a `LoopGraph` in which `softmax(q @ k.mT * scale + mask) @ v` is a call of the library, loops,
     and another call.
Out: the same graph with a `Streamed` node in the place of the last call; the others die, if nobody
     else needs them.

The last product sums over the columns of a matrix that loops computed (the scores, after a
softmax). If these loops, the reductions in them too, can be kept while the columns come block by
block (`rescaling`), then the matrix never has to be there: a block of it lives in the caches.
Nothing here knows of attention: a mask, a bias, a cap are pointwise operations, inlined.

In a backward several products need one matrix. Each becomes a stream, and computes the matrix
again; those that walk along the same rows are one kernel. If one of them cannot be a stream, the
matrix must be stored, and then none is.
In PyTorch: nothing in Inductor; `torch/_inductor/fx_passes/fuse_attention.py` knows two dozen
patterns.
"""

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, Node, Pointwise, Reduction
from course_lib.scheduling.attempts import Attempt, Ending, MustWait, NotAStream
from course_lib.scheduling.dependencies import read_names, record_all
from course_lib.scheduling.fusion import Fuse, No
from course_lib.scheduling.products import PRODUCTS
from course_lib.scheduling.schedule import Decision, live_nodes
from course_lib.scheduling.stream_nodes import FLOATS, Factor, Scores, Stream, Streamed, label_of
from course_lib.scheduling.stream_trees import Refused
from course_lib.sizes import is_symbolic

__all__ = ["FLOATS", "Factor", "Scores", "Stream", "Streamed", "stream_products"]

# Operations that may lie before a product and be written out as one tree. A loop over time has
# thousands before its last product
MOST_BEFORE = 64
# Streams that each compute the same product, where nobody has looked at what they save together
# (`training` does)
MOST_TIMES = 1


def can_be_printed(stream: Streamed) -> str:
    """Never a reason why not: the C++ printer has a form for each stream."""
    return ""


def stream_products(
    graph: LoopGraph,
    why_not: Callable[[Streamed], str] = can_be_printed,
    most_times: int = MOST_TIMES,
) -> LoopGraph:
    """Put `Streamed` nodes in the place of products for which that can be.

    `graph.streams` tells of each.

    `why_not` says why the printer cannot print one, or nothing if it can. A product that more than
    `most_times` streams need is computed once, and stored."""
    candidates = [node for node in graph.nodes if isinstance(node, ExternKernel)]
    candidates = list(filter(could_end_a_stream, candidates))
    if not candidates:
        return graph

    choice = Choice(Finder(graph), why_not, most_times)
    for node in candidates:
        choice.consider(node)
    if most_times > 1:
        choice.add_reductions()
    choice.merge()
    choice.drop_what_is_computed_often()
    choice.drop_what_must_be_stored()
    return choice.graph()


def could_end_a_stream(node: ExternKernel) -> bool:
    """A product of two matrices, or of many."""
    if node.op not in PRODUCTS or len(node.args) != 2 or node.kwargs:
        return False
    return all(view.dtype in FLOATS for view in node.args)


class Finder:
    """Knows who writes and who reads each buffer of a program."""

    def __init__(self, graph: LoopGraph) -> None:
        self.graph = graph
        self.buffers = graph.buffers
        self.writer: dict[str, Node] = {}
        self.readers: dict[str, list[Node]] = {}
        self.reads: dict[Node, set[str]] = {}

        bodies = record_all(graph.nodes, self.buffers, {})
        live, _ = live_nodes(graph.nodes, bodies, graph.returned)
        self.position = {node: n for n, node in enumerate(live)}
        for node in live:
            for buffer in node.buffers:
                self.writer[buffer.name] = node
            self.reads[node] = read_names(node, bodies)
            for name in self.reads[node]:
                self.readers.setdefault(name, []).append(node)

    def look_before(self, matrix: Buffer) -> None:
        """Is it worth the work to write `matrix` out as a tree?

        Each product asks, so this looks at a few nodes only.

        Raises `NotAStream` where no product and no reduction is near, and `Refused` where they are
        too far away.
        """
        found = False
        seen = {matrix.name}
        # The nearest first
        waiting = deque([matrix.name])
        loops = 0
        while waiting and loops <= MOST_BEFORE:
            node = self.writer.get(waiting.popleft())
            if isinstance(node, ExternKernel):
                found = found or makes_scores(node, matrix)
                continue
            if not isinstance(node, (Pointwise, Reduction)):
                continue

            loops += 1
            found = found or isinstance(node, Reduction)
            waiting.extend(sorted(self.reads[node] - seen))
            seen |= self.reads[node]

        if not found:
            raise NotAStream
        if loops > MOST_BEFORE:
            raise Refused(f"more than {MOST_BEFORE} operations lie before this product")

    def needs_elsewhere(self, node: Node, inside: Collection[Node]) -> tuple[bool, list[Node]]:
        """Is the result of `node` returned? And the nodes that read it and do not lie inside."""
        is_returned, readers = False, []
        for buffer in node.buffers:
            is_returned = is_returned or buffer.name in self.graph.returned
            for reader in self.readers.get(buffer.name, ()):
                if reader not in inside:
                    readers.append(reader)
        return is_returned, readers

    def reaches(self, first: Iterable[Node], last: Iterable[Node]) -> bool:
        """Does one of `last` need, directly or not, the result of one of `first`?"""
        wanted = set(last)
        end = max(self.position[node] for node in wanted)
        seen = set(first)
        waiting = list(seen)
        while waiting:
            for buffer in waiting.pop().buffers:
                for reader in self.readers.get(buffer.name, ()):
                    if reader in wanted:
                        return True
                    if reader not in seen and self.position[reader] < end:
                        seen.add(reader)
                        waiting.append(reader)
        return False

    def in_program_order(self, nodes: Iterable[Node]) -> list[Node]:
        return sorted(nodes, key=self.position.__getitem__)

    def in_order(self, nodes: Sequence[Node]) -> list[Node]:
        """Each node behind those that it needs, and else as they were.

        (Only streams stand elsewhere than what they replace.)"""
        writer = {buffer.name: node for node in nodes for buffer in node.buffers}
        ordered: dict[Node, None] = {}

        def put(node: Node) -> None:
            if node in ordered:
                return
            if isinstance(node, Streamed):
                reads = node.reads
            else:
                reads = self.reads.get(node, set())
            for name in sorted(reads):
                if name in writer:
                    put(writer[name])
            ordered[node] = None

        for node in nodes:
            put(node)
        return list(ordered)


class Choice:
    """The streams of a program, while they are chosen."""

    def __init__(self, finder: Finder, why_not: Callable[[Streamed], str], most_times: int) -> None:
        self.finder, self.why_not, self.most_times = finder, why_not, most_times
        self.found: list[Attempt] = []
        # Of each product that stays a call: the reason
        self.refused: dict[Node, Decision] = {}
        self.all_reductions = {node for node in finder.position if isinstance(node, Reduction)}

    def consider(self, node: ExternKernel) -> None:
        """Can an operand of this product come block by block?"""
        for side in (0, 1):
            ending = Ending(node, side)
            try:
                self.found.append(self.attempt(ending))
                return
            except NotAStream:
                continue
            except Refused as reason:
                self.refuse(ending, str(reason))

    def attempt(self, ending: Ending) -> Attempt:
        """Raises `Refused` or `NotAStream`."""
        buffer = ending.matrix.buffer
        if not isinstance(self.finder.writer.get(buffer.name), (Pointwise, Reduction)):
            raise NotAStream
        if any(map(is_symbolic, (*ending.matrix.shape, *ending.values.shape))):
            raise Refused("sizes are symbols, and tiles have a fixed size")
        self.finder.look_before(buffer)
        try:
            return Attempt(self.finder, [ending])
        except MustWait as reason:
            if self.most_times < 2:
                raise
            # What no law can rescale may be known beforehand: then the columns are walked more than
            # once.
            with contextlib.suppress(NotAStream, Refused):
                return Attempt(self.finder, [ending], self.all_reductions)
            raise reason

    def refuse(self, ending: Ending, reason: str) -> None:
        """Note why a product stays a call of the library. The first reason counts."""
        matrix = ending.matrix.buffer
        answer = No(reason, 2 * matrix.nbytes)
        self.refused.setdefault(ending.node, Decision(str(matrix), str(ending.node), answer))

    # --- several streams that need one matrix

    def add_reductions(self) -> None:
        """A number of each row that streams read from memory, and that is made of scores, is stored
        by a stream of its own."""
        stored: dict[Node, Attempt] = {}
        refused: set[Node] = set()
        while waiting := self.reductions_read([*self.found, *stored.values()]) - {
            *stored,
            *refused,
        }:
            # The last one first: what it needs of the same row may run in it, and is stored with
            # it.
            node = max(waiting, key=self.finder.position.__getitem__)
            attempt = self.storing(node, list(stored.values()))
            if attempt is None:
                refused.add(node)
            else:
                stored[node] = attempt

        self.found = [self.reading(attempt, stored) for attempt in self.found]
        self.found = [*dict.fromkeys(stored.values()), *self.found]

    def reductions_read(self, attempts: Iterable[Attempt]) -> set[Node]:
        """The reductions along a row whose results streams read from memory, or what loops have
        made of these."""
        names = [name for attempt in attempts for name in attempt.node().stream.reads]
        # A loop over fewer elements than the scores computes numbers of a row, so its own reads
        # count
        largest = max((attempt.numel for attempt in attempts), default=0)
        found: set[Node] = set()
        seen = set(names)
        while names:
            node = self.finder.writer.get(names.pop())
            if isinstance(node, Reduction):
                found.add(node)
            elif isinstance(node, Pointwise) and node.buffer.numel < largest:
                names += self.finder.reads[node] - seen
                seen |= self.finder.reads[node]
        return set(filter(is_along_a_row, found))

    def storing(self, node: Node, attempts: Sequence[Attempt]) -> Attempt | None:
        """A stream that stores this reduction, if there can be one: one of `attempts`, or a new
        one."""
        for attempt in attempts:
            if node in attempt.inside:
                with contextlib.suppress(Refused):
                    attempt.keep(node, "")
                    return attempt

        # First with the reductions that it needs on the way; then with these read from memory,
        # where other streams store them.
        for stored in ((), self.all_reductions - {node}):
            with contextlib.suppress(NotAStream, Refused):
                self.finder.look_before(*node.buffers)
                return Attempt(self.finder, [Ending(node)], stored)
        return None

    def reading(self, attempt: Attempt, stored: Collection[Node]) -> Attempt:
        """The same stream; what is stored it reads from memory."""
        if not any(node in stored for node in attempt.inside):
            return attempt
        with contextlib.suppress(NotAStream, Refused):
            return Attempt(self.finder, attempt.endings, {*stored, *attempt.trees.stored})
        return attempt

    def merge(self) -> None:
        """Streams that walk along the same rows, and compute the same products on the way, become
        one."""
        merged: list[Attempt] = []
        for attempt in self.found:
            for n, other in enumerate(merged):
                both = self.both(other, attempt)
                if both is not None:
                    merged[n] = both
                    break
            else:
                merged.append(attempt)
        self.found = merged

    def both(self, a: Attempt, b: Attempt) -> Attempt | None:
        """One stream in the place of two, if that can be."""
        products = {node for node in a.inside if isinstance(node, ExternKernel)}
        if a.space != b.space or products.isdisjoint(b.inside):
            return None
        first, second = {*a.lasts, *a.kept}, {*b.lasts, *b.kept}
        if self.finder.reaches(first, second) or self.finder.reaches(second, first):
            return None

        stored = {*a.trees.stored, *b.trees.stored}
        kept = [node for node in (*a.kept, *b.kept) if node not in (*a.lasts, *b.lasts)]
        try:
            made = Attempt(self.finder, [*a.endings, *b.endings], stored)
            for node in kept:
                made.keep(node, "")
        except (NotAStream, Refused):
            return None
        apart = len(a.stream.scores) + len(b.stream.scores)
        if len(made.stream.scores) >= apart or self.why_not(made.node()):
            return None
        return made

    def drop_what_is_computed_often(self) -> None:
        """A product that many streams would compute is computed once, and stored."""
        times: Counter[Node] = Counter()
        for attempt in self.found:
            times.update({node for node in attempt.inside if isinstance(node, ExternKernel)})
        often = {node for node, count in times.items() if count > self.most_times}

        for attempt in list(self.found):
            mine = self.finder.in_program_order(often.intersection(attempt.inside))
            if mine:
                count = times[mine[0]]
                reason = f"{count} streams would each compute {label_of(mine[0])}, which takes longer than to store it"
                self.drop(attempt, reason)

    def drop(self, attempt: Attempt, reason: str) -> None:
        """It is no stream."""
        self.found.remove(attempt)
        for ending in attempt.endings:
            if ending.is_product:
                self.refuse(ending, reason)

    def drop_what_must_be_stored(self) -> None:
        """A matrix that somebody else needs has to be stored: its streams are none.

        Again, for then others may need one."""
        changed = True
        while changed:
            changed = False
            inside = {node for attempt in self.found for node in (*attempt.inside, *attempt.lasts)}
            for attempt in list(self.found):
                reason = self.must_be_stored(attempt, inside)
                if not reason:
                    continue
                changed = True
                wider = self.with_its_readers(attempt, inside)
                if wider is None:
                    self.drop(attempt, reason)
                else:
                    self.found[self.found.index(attempt)] = wider
                    break  # `inside` is another now: no second stream may take the same sum in

    def with_its_readers(self, attempt: Attempt, inside: Collection[Node]) -> Attempt | None:
        """The stream with the sums and maxima of rows that others make of its matrix, if that is
        why the matrix would be stored: `(e @ v) / e.sum(-1)`."""
        readers: dict[Node, None] = {}
        for node in self.finder.in_program_order(attempt.inside):
            _, outside = self.finder.needs_elsewhere(node, inside)
            readers |= dict.fromkeys(filter(is_along_a_row, outside))
        ends = [Ending(reader) for reader in readers]
        if not ends or any(end.space != attempt.space for end in ends):
            return None

        try:
            made = Attempt(self.finder, [*attempt.endings, *ends], attempt.trees.stored)
            for node in attempt.kept:
                if node not in readers:
                    made.keep(node, "")
        except (NotAStream, Refused):
            return None
        if self.needs_itself(made):
            return None
        return made

    def needs_itself(self, attempt: Attempt) -> bool:
        """Would it read what is made of its own results?"""
        writer = self.finder.writer
        read = [writer[name] for name in attempt.node().stream.reads if name in writer]
        given = [*attempt.lasts, *attempt.kept]
        return bool(read) and (not set(read).isdisjoint(given) or self.finder.reaches(given, read))

    def must_be_stored(self, attempt: Attempt, inside: Collection[Node]) -> str:
        """Why something inside must be stored; empty if streams only need it, or it is a number of
        each row."""
        try:
            for node in self.finder.in_program_order(attempt.inside):
                if node not in attempt.lasts:
                    self.see_to(attempt, node, inside)
        except Refused as reason:
            return str(reason)
        return self.why_not(attempt.node())

    def see_to(self, attempt: Attempt, node: Node, inside: Collection[Node]) -> None:
        """Store the result of `node` if somebody else needs it.

        Raises `Refused` if that is a matrix."""
        if any(node in other.kept for other in self.found):
            return
        is_returned, readers = self.finder.needs_elsewhere(node, inside)
        name = label_of(node)
        if is_returned:
            why = f"{name} is also returned (or kept for backward), so it must be stored"
            attempt.keep(node, why)
        elif readers:
            attempt.keep(node, f"{label_of(readers[0])}, which is elsewhere, also needs {name}")

    # --- what comes of it

    def graph(self) -> LoopGraph:
        """The program with streams in the place of what they end with."""
        graph = self.finder.graph
        done = {ending.node for attempt in self.found for ending in attempt.endings}
        decisions = [decision for node, decision in self.refused.items() if node not in done]

        gone: set[Node] = set()
        streams: dict[Node, Streamed] = {}
        for attempt in self.found:
            gone |= {*attempt.lasts, *attempt.kept}
            made = attempt.node()
            *_, last = self.finder.in_program_order([*attempt.lasts, *attempt.kept])
            streams[last] = made
            names = " and ".join(map(str, attempt.lasts))
            decisions.append(Decision(made.label, names, Fuse(made.bytes_saved)))

        nodes = [streams.get(node, node) for node in graph.nodes]
        nodes = [node for node in nodes if node not in gone]
        return replace(graph, nodes=self.finder.in_order(nodes), streams=decisions)


def is_along_a_row(node: Node) -> bool:
    """Is this a reduction of one dimension, with a result for each row?"""
    if not isinstance(node, Reduction) or len(node.reduced) != 1 or not node.ranges:
        return False
    return not any(map(is_symbolic, (*node.ranges, *node.reduced)))


def makes_scores(node: ExternKernel, matrix: Buffer) -> bool:
    """Is this a product whose rows and columns are those of `matrix`, or its columns and rows?"""
    if node.op not in PRODUCTS:
        return False
    (out,) = node.buffers
    return set(out.shape[-2:]) == set(matrix.shape[-2:])
