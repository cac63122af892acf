"""Training without a matrix of scores: which products backward computes again, block by block,
instead of keeping what came of them.

In:  a joint graph, and the cut that was made of it (`autograd.partition`).
Out: another cut, if with it no matrix of scores is stored, in forward or in backward; else the
     same, with the reason.

The weights of attention are a large matrix that forward would keep for backward. Backward can
compute them again from q and k, if it knows of each row the maximum and the sum. The rule of the
cut is that a product is not computed again, for a call of the library would store its result. A
stream does not. So the cut is made once more with the rule lifted for those products whose result
is larger than what they multiply, and both halves are shown to `streams`. Only if all of these
products end up in streams does it count.
In PyTorch: `torch/_functorch/partitioners.py` never computes a product again; FlashAttention's
backward does, written by hand.
"""

from collections.abc import Callable, Collection, Sequence

import torch
from torch import fx

from course_lib import sizes
from course_lib.autograd.partition import Partition, node_bytes
from course_lib.autograd.signature import memory
from course_lib.lowering.ir import ExternKernel, LoopGraph, Node
from course_lib.scheduling import attempts, streams
from course_lib.scheduling.dependencies import record_all
from course_lib.scheduling.fusion import No, human_bytes
from course_lib.scheduling.products import PRODUCTS
from course_lib.scheduling.row_sums import OWN_COPY, exchange_sums, shown_memory
from course_lib.scheduling.schedule import live_nodes
from course_lib.scheduling.stream_nodes import Streamed
from course_lib.scheduling.streams import stream_products

MayRecompute = Callable[[fx.Node], bool]
Cut = Callable[[fx.GraphModule, MayRecompute], Partition]
"""Cuts a joint graph in two, given what may be computed again."""
Lower = Callable[[fx.GraphModule], LoopGraph]
WhyNot = Callable[[Streamed], str]
"""Why the printer has no form for a stream; empty if it has one."""
# So many cuts are tried. Each try leaves out the products that the one before could not make
# streams of
MOST_TRIES = 3
# So many streams may each compute a product: one for the gradients of queries, one for those of
# keys and values, and before them one for a sum along each row
MOST_TIMES = 3
MAY_BE_AGAIN = "streams that may each compute a product"
"""In the `meta` of a half that was chosen here: how many."""
# A product is worth computing again if its result is so many times as large as what it multiplies
LARGER = 2
# Operations behind a product that are looked at
NEAR = 32
# Is what `matmul` makes of a product that many matrices share. (To the cut it is as dear as the
# product.)
VIEWS = (torch.ops.aten._unsafe_view.default,)


def without_scores(
    joint: fx.GraphModule,
    parts: Partition,
    cut: Cut,
    may_recompute: MayRecompute,
    lower: Lower,
    why_not: WhyNot,
) -> Partition:
    """A cut with products computed again in streams where that can be, or `parts` as it is.

    Its `notes` say why."""
    asked = {node.name for node in kept_products(parts)}
    if not asked:
        return parts._replace(notes=())

    joint = exchange_sums(joint)
    notes: list[str] = []
    for _ in range(MOST_TRIES):
        trial = cut(joint, allowing(asked, may_recompute))
        again = asked & {node.name for node in trial.recomputed}
        if not again or kept_bytes(trial) >= kept_bytes(parts):
            break

        if kept := shown_and_kept(joint, parts, trial):
            notes.append(f"{kept} would be kept for backward, and the program may write to it")
            break

        calls = stay_calls(trial, lower, why_not)
        failed = again & calls.keys()
        if not failed:
            notes.append(what_is_saved(parts, trial, again))
            return chosen(trial, notes)

        # The others are asked for once more, without these
        for name, why in calls.items():
            if name in failed:
                notes.append(f"{name} is not computed again in backward: {why}")
        asked = again - failed
        if not asked:
            break
    return parts._replace(notes=tuple(notes))


def allowing(asked: Collection[str], may_recompute: MayRecompute) -> MayRecompute:
    """The rule `may_recompute` of the cut, lifted for the products that are asked for."""
    names = frozenset(asked)

    def may_be_in_both(node: fx.Node) -> bool:
        if node.meta.get(OWN_COPY):
            return False
        return node.name in names or node.target in VIEWS or may_recompute(node)

    return may_be_in_both


def chosen(trial: Partition, notes: Sequence[str]) -> Partition:
    """The cut that is taken. Its halves say that more than one stream may compute a product
    (`streamed_loops`)."""
    for half in (trial.forward, trial.backward):
        half.meta[MAY_BE_AGAIN] = MOST_TIMES
    return trial._replace(notes=tuple(notes))


def shown_and_kept(joint: fx.GraphModule, before: Partition, after: Partition) -> str:
    """The name of something that the program can see and that was not kept before.

    (Eager would not notice a write to it.)"""
    shown = shown_memory(joint)
    known = {node.name for node in before.saved}
    for node in after.saved:
        is_new = node.name not in known and node.op == "call_function"
        if is_new and memory(node.meta["val"]) in shown:
            return node.name
    return ""


def kept_products(parts: Partition) -> list[fx.Node]:
    """The products of forward whose result is larger than what they multiply, if something as large
    is kept for backward."""
    if sizes.current() is not None or not parts.saved:
        return []
    largest = max(map(numel_of, parts.saved))
    found = []
    for node in parts.forward.graph.nodes:
        if node.target in PRODUCTS and is_matrix_of_scores(node) and numel_of(node) <= largest:
            found.append(node)
    return found


def streamed_loops(loops: LoopGraph, aten: fx.GraphModule, why_not: WhyNot) -> LoopGraph:
    """The loops of `aten` with streams: as it was decided when a joint graph was cut, if this is a
    half of one."""
    return stream_products(loops, why_not, aten.meta.get(MAY_BE_AGAIN, streams.MOST_TIMES))


def is_matrix_of_scores(node: fx.Node) -> bool:
    """Is there much to save for little more work?

    (A layer of a perceptron has results as large as what it multiplies.)"""
    value = node.meta["val"]
    operands = sum(numel_of(each) for each in node.all_input_nodes)
    rows, columns = value.shape[-2:]
    is_large = rows * columns > attempts.MOST_IN_CACHES and value.numel() >= attempts.FEWEST_IN_ALL
    if not is_large or value.numel() < LARGER * operands:
        return False
    return value.ndim > 2 or is_reduced(node)


def is_reduced(product: fx.Node) -> bool:
    """Is a row of this product combined to a number, not far behind it?"""
    # The product, and what is computed of its elements one by one. The list grows while it is read.
    numel = numel_of(product)
    elementwise = [product]
    for node in elementwise:
        for user in node.users:
            if user.target in (torch.ops.aten.amax.default, torch.ops.aten.sum.dim_IntList):
                return True
            has_room = len(elementwise) < NEAR
            if numel_of(user) == numel and user not in elementwise and has_room:
                elementwise.append(user)
    return False


def numel_of(node: fx.Node) -> int:
    """How many elements a node gives: 0 if it gives no tensor."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return value.numel()
    return 0


def kept_bytes(parts: Partition) -> float:
    return sum(map(node_bytes, parts.saved))


def stay_calls(parts: Partition, lower: Lower, why_not: WhyNot) -> dict[str, str]:
    """The products that would be calls of the library in one of the halves, each with the
    reason."""
    found: dict[str, str] = {}
    for half in (parts.forward, parts.backward):
        streamed = stream_products(lower(half), why_not, MOST_TIMES)
        reasons = [d.answer.reason for d in streamed.streams if isinstance(d.answer, No)]
        why = reasons[0] if reasons else "no stream takes it in"
        for node in live(streamed):
            if isinstance(node, ExternKernel) and node.is_library and node.op in PRODUCTS:
                found.update({origin.name: why for origin in node.origins})
    return found


def live(graph: LoopGraph) -> list[Node]:
    """The nodes that somebody needs."""
    return live_nodes(graph.nodes, record_all(graph.nodes, graph.buffers, {}), graph.returned)[0]


def what_is_saved(before: Partition, after: Partition, again: set[str]) -> str:
    """The decision in words."""
    less = human_bytes(int(kept_bytes(before) - kept_bytes(after)))
    kept_before = {node.name for node in before.saved}
    kept = [node.name for node in after.saved if node.name not in kept_before]
    names = " and ".join(sorted(again))
    helped = "from what was kept anyway"
    if kept:
        helped = f"with the help of {', '.join(kept)}"
    return f"{names}: computed again in backward, block by block, {helped}; {less} less is kept"
