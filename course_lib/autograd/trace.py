"""A captured graph, traced once more: into functional ATen operators, and through autograd if gradients are wanted.

In:  the FX graph of capture (`torch.nn.functional.layer_norm`, `operator.add`, `Tensor.add_`, ...).
Out: an FX graph of ATen operators without mutation (`aten.var_mean.correction`, `aten.add.Tensor`, ...), each node with its
     FakeTensor in `meta["val"]` and the captured node that it came from in `meta["origin"]`; and in the graph module's
     `meta["signature"]` a `Signature`: how the results of the captured graph are made of the traced one's.

Running the captured graph on fake tensors while recording what reaches torch's dispatcher does three things at once: composite
functions fall apart into ATen operators, decompositions split those further, and `FunctionalTensor` turns every in-place
operation into a new value. A joint graph goes on: it asks `torch.autograd.grad` for gradients, and records what that does.

    primals ─▶ forward ─▶ values        tangents (gradients of the values) ─▶ backward ─▶ gradients of the primals
In PyTorch: `torch/_functorch/_aot_autograd/graph_capture.py` (`aot_dispatch_autograd_graph`); it records by `make_fx`, too.
"""

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch._subclasses.functional_tensor import (
    FunctionalTensor,
    FunctionalTensorMode,
    disable_functional_mode,
)
from torch.fx._lazy_graph_module import _use_lazy_graph_module
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx, track_tensor_tree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib import sizes
from course_lib.autograd import effects
from course_lib.autograd.signature import (
    Result,
    Signature,
    has_gradient,
    is_strided,
    memory,
    overlaps_itself,
    restride,
    signature_of,
)
from course_lib.written import quiet, traceable

aten = torch.ops.aten
CHECKS = (aten._linalg_check_errors.default, aten._assert_async.default, aten._assert_async.msg)
"""Operators that give nothing: they raise, or they do not."""
for check in CHECKS:  # torch 2.11 would drop the first
    fx.node.has_side_effect(check)
Decompositions = Mapping[Any, Callable[..., Any]]


def joint(gm: fx.GraphModule, decompositions: Decompositions) -> fx.GraphModule:
    """Forward and backward in one graph: from inputs and tangents to values and gradients (`Signature.gradients`)."""
    return trace(gm, decompositions, gradients=True)


def mode_of(fakes: Sequence[Any]) -> FakeTensorMode:
    """The mode in which capture made these fake tensors; a new one if there is none among the inputs."""
    for fake in fakes:
        if hasattr(fake, "fake_mode"):
            mode: FakeTensorMode = fake.fake_mode
            return mode
    return FakeTensorMode()


def trace(
    gm: fx.GraphModule, decompositions: Decompositions, gradients: bool = False
) -> fx.GraphModule:
    """The forward graph in ATen operators, for the shapes in the placeholders' `meta["val"]`."""
    fakes = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
    mode = mode_of(fakes)
    refuse_what_runs_as_it_is(gm, gradients)

    tracing = Tracing(gm, decompositions, gradients)
    records = gradients and torch.is_grad_enabled()
    # An inference tensor is not decomposed.
    with mode, torch.inference_mode(False), torch.set_grad_enabled(records):
        try:
            inputs = [t.detach() if isinstance(t, torch.Tensor) else t for t in fakes]
            # The graph's Python is written when somebody calls it or looks at it.
            with _use_lazy_graph_module(True), quiet(), any_formula_of_sizes(), rules_for_sizes():
                traced = make_fx(tracing.run)(*inputs)
        except (RuntimeError, ValueError, ArithmeticError) as problem:
            # a backward that fails, or is of nothing; odd memory
            raise NotImplementedError(f"this graph cannot be traced: {problem}") from problem

    targets = {node.target for node in traced.graph.nodes}
    if gradients and aten.mkldnn_rnn_layer.default in targets:
        raise NotImplementedError(
            "oneDNN's recurrent layers keep what their backward needs only while autograd records them"
        )
    return tidy(traced, gm, tracing)


def refuse_what_runs_as_it_is(gm: fx.GraphModule, gradients: bool) -> None:
    """Raise NotImplementedError for what capture has marked: it has no functional form, or its backward does more than compute."""
    for node in gm.graph.nodes:
        if reason := node.meta.get("needs_eager"):
            raise NotImplementedError(reason)
        if gradients and (reason := node.meta.get("as_it_is")):
            raise NotImplementedError(reason)


class Tracing:
    """What `make_fx` runs and records."""

    def __init__(self, gm: fx.GraphModule, decompositions: Decompositions, gradients: bool) -> None:
        self.gm, self.decompositions, self.gradients = gm, decompositions, gradients
        self.signature: Signature  # once it has run
        self.in_backward: set[fx.Node] = set()

    def run(self, *fakes: Any) -> list[Any]:
        """Run the program, then autograd; `make_fx` records both. Gives the program's values, then the gradients."""
        with FunctionalTensorMode(), Decomposing(self.decompositions) as decomposing:
            primals = self.enter_all(fakes)
            inputs = self.copies_of_written(primals, fakes)
            before = [x.grad_fn if isinstance(x, torch.Tensor) else None for x in inputs]

            # Forward: what the program computes
            program = Tagging(self.gm, self.decompositions)
            results = program.run(*inputs)
            with torch.set_grad_enabled(self.gradients):
                self.signature, values = signature_of(
                    inputs, before, results, fakes, self.results_as_captured()
                )

            # Backward: autograd runs, and its operators are recorded behind those of forward.
            if self.gradients:
                forward = recorded_nodes()
                decomposing.begin_backward()
                values += self.differentiate(primals, values)
                self.in_backward = recorded_nodes() - forward
                # The last operators of backward get the line of the program that they belong to.
                program.mark()

            return [leave(value) for value in values]

    def enter_all(self, fakes: Sequence[Any]) -> list[Any]:
        """The inputs as the program meets them."""
        return list(map(self.enter, fakes, self.gm.graph.find_nodes(op="placeholder")))

    def copies_of_written(self, primals: list[Any], fakes: Sequence[Any]) -> list[Any]:
        """The inputs, with copies of those that the program writes to and that may need a gradient."""
        if not self.gradients:
            return primals
        with torch.enable_grad():
            return list(map(own_copy, primals, fakes))

    def results_as_captured(self) -> list[Any]:
        """What capture saw as the program's results, on fakes; None for those that are no tensors."""
        results = self.gm.graph.output_node().args[0]
        return [node.meta.get("val") if isinstance(node, fx.Node) else None for node in results]

    def enter(self, fake: Any, node: fx.Node) -> Any:
        """An input as the program meets it. (Where the program writes to it, its fake has the new value afterwards.)"""
        if not isinstance(fake, torch.Tensor):
            return fake

        # As the input came in: a write of the program may have changed its fake's.
        requires_grad = node.meta.get("requires_grad", node.meta["val"].requires_grad)
        wanted = self.gradients and requires_grad
        return FunctionalTensor.to_functional(fake).requires_grad_(wanted)

    def differentiate(self, primals: list[Any], values: list[Any]) -> list[Any]:
        """The gradients of the inputs that have one. What autograd gets to on its way is noted in the signature."""
        signature = self.signature
        wanted = [n for n, primal in enumerate(primals) if has_gradient(primal)]
        numbers = [n for n, yes in enumerate(signature.differentiable) if yes]
        if not numbers:
            signature.unconnected = tuple(wanted)
            return []

        # `tangents`: the gradients that come in from outside, one for each differentiable output.
        outputs = [values[n] for n in numbers]
        tangents = [tangent(n, value) for n, value in enumerate(outputs)]
        with torch._C._DisableAutocast():
            gradients = torch.autograd.grad(
                outputs, [primals[n] for n in wanted], tangents, allow_unused=True
            )
        found = {n: g for n, g in zip(wanted, gradients, strict=True) if g is not None}
        signature.gradients = tuple(found)
        signature.unconnected = tuple(n for n in wanted if n not in found)

        # Which outputs lead to which inputs: where gradients come in for some outputs only, the other inputs get none.
        self.note_ways(numbers, outputs, {id(primals[n]): n for n in found})

        # A gradient lies in memory like its input, as in eager.
        return [restride(g, dense(primals[n])) for n, g in found.items()]

    def note_ways(
        self, numbers: list[int], outputs: list[torch.Tensor], leaves: Mapping[int, int]
    ) -> None:
        """Note in the signature where autograd gets to from each of the `outputs` (the values `numbers`): inputs, other values."""
        ways = [functions_before(output) for output in outputs]
        self.signature.reached = tuple(
            leaves_among(output, way, leaves) for output, way in zip(outputs, ways, strict=True)
        )

        inner = set()
        for number, output in zip(numbers, outputs, strict=True):
            for other, way in zip(outputs, ways, strict=True):
                if other.grad_fn is not output.grad_fn and output.grad_fn in way:
                    inner.add(number)
        self.signature.inner = tuple(sorted(inner))


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The form of a tensor's gradient: of an input with gaps between its elements it has none."""
    return tensor if tensor.is_contiguous() else torch.empty_like(tensor)


class Decomposing(TorchDispatchMode):
    """Runs an operator's decomposition in its place. A decomposition may write in place: this stands above `FunctionalTensor`."""

    def __init__(self, table: Decompositions) -> None:
        super().__init__()
        self.table = table
        # Memory of which a view shows elements twice, or not at all (`expand`, `unfold`)
        self.shown: set[int] = set()
        # In backward: the memory that was made there. None: it has not begun
        self.born: set[int] | None = None

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written = written_by(op, args)
        self.refuse_writes(written)
        if op in CHECKS:
            # Functionalization would chain it to others by a token.
            with disable_functional_mode():
                return op(*map(leave, args), **kwargs)
        if is_loop_over_list(op):
            with self:
                return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)

        in_place = bool(written) and written[0] is args[0]
        result = self.decomposed(op, args, kwargs, in_place)
        if result is not NotImplemented:
            return result

        result = op(*args, **kwargs)
        self.note(op, result)
        return result

    def refuse_writes(self, written: list[torch.Tensor]) -> None:
        """Raise NotImplementedError for writes that would come out otherwise than in eager."""
        for x in written:
            if overlaps_itself(x) or (x._is_view() and memory(x) in self.shown):
                raise NotImplementedError(
                    "an element is written to that a view shows twice: functionalization adds the two up"
                )
        if self.born is not None and not {memory(x) for x in written} <= self.born:
            raise NotImplementedError(
                "a backward writes to a tensor that it did not make: eager does so at each call"
            )

    def begin_backward(self) -> None:
        """From here on only what backward itself has made may be written to."""
        self.born = set()

    def decomposed(self, op: Any, args: Any, kwargs: Any, in_place: bool) -> Any:
        """What the table computes for an operator; `NotImplemented` where it has nothing to say."""
        plain = op
        if op not in self.table and in_place and op.namespace == "aten":
            plain = without_underscore(op)
        if plain not in self.table:
            return NotImplemented

        with self:
            result = self.table[plain](*args, **kwargs)
            if result is NotImplemented or plain is op:
                return result
            return args[0].copy_(result)

    def note(self, op: Any, result: Any) -> None:
        """Remember two kinds of memory: what was made in backward (`born`), and what a view shows some elements of more than
        once (`shown`)."""
        if self.born is not None:
            self.born |= {memory(x) for x in tree_leaves(result) if is_strided(x)}
        if is_strided(result) and (op is aten.unfold.default or overlaps_itself(result)):
            self.shown.add(memory(result))


def written_by(op: Any, args: Any) -> list[torch.Tensor]:
    """The tensors that an operator writes to: its first argument, which may be a list."""
    if not op._schema.is_mutable:
        return []
    return [x for x in tree_leaves(args[:1]) if isinstance(x, torch.Tensor)]


def is_loop_over_list(op: Any) -> bool:
    """True for an operator over lists of tensors that torch's own loop serves; not where its numbers are in a tensor."""
    has_tensor_of_numbers = "addc" in op.name() and op._overloadname == "Tensor"
    return op.name().startswith("aten::_foreach_") and not has_tensor_of_numbers


def without_underscore(op: Any) -> Any:
    """The operator that computes what `op` writes in place (`lerp` for `lerp_`); `op` itself if there is none."""
    packet = getattr(aten, op.overloadpacket.__name__.rstrip("_"), None)
    return getattr(packet, op._overloadname, op)


class Tagging(fx.Interpreter):
    """Runs a graph and marks every node that is recorded meanwhile with the node being run; in backward, whose `grad_fn` runs."""

    def __init__(self, gm: fx.GraphModule, table: Decompositions) -> None:
        super().__init__(gm)
        self.table = table
        self.current: fx.Node | None = None
        self.mark()  # what was recorded before belongs to no node
        self.known: dict[int, Any] = {}

    def mark(self, next_node: fx.Node | None = None) -> None:
        """What has been recorded since the last mark came from the current node; from now on it comes from `next_node`."""
        mode = get_proxy_mode()
        for new in reversed(mode.tracer.graph.nodes) if mode else ():
            if new.op == "placeholder" or "origin" in new.meta:
                break
            new.meta["origin"] = self.current
        self.current = next_node

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        """A function of torch's that falls apart before an operator is called (`one_hot`) may be in the table, too."""
        own = self.table.get(target) if isinstance(target, BuiltinFunctionType) else None
        return super().call_function(own or target, args, kwargs)

    def call_method(self, target: str, args: Any, kwargs: Any) -> Any:
        own = self.table.get(getattr(torch.Tensor, target, None))
        return own(*args, **kwargs) if own else super().call_method(target, args, kwargs)

    def run_node(self, n: fx.Node) -> Any:
        self.mark(n.meta.get("origin", n))
        result = super().run_node(n)
        functions = [t.grad_fn for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        # autograd's graph would keep us, and `known` keeps it: neither would ever go
        tagging = weakref.proxy(self)
        while functions:
            if (function := functions.pop()) is not None and id(function) not in self.known:
                self.known[id(function)] = function
                function.register_prehook(lambda _, n=self.current: tagging.mark(n))
                functions += [before for before, _ in function.next_functions]
        return result


def functions_before(output: torch.Tensor) -> set[Any]:
    """The nodes of autograd from which `output` comes."""
    found: set[Any] = set()
    todo = [output.grad_fn] if output.grad_fn is not None else []
    while todo:
        function = todo.pop()
        if function not in found:
            found.add(function)
            todo += [before for before, _ in function.next_functions if before is not None]
    return found


def leaves_among(
    output: torch.Tensor, functions: set[Any], leaves: Mapping[int, int]
) -> frozenset[int]:
    """The inputs to which autograd gets from `output`, by these functions. `leaves`: the `id` of an input's tensor → its number."""
    if output.grad_fn is None:
        ends = [output]
    else:
        # a leaf's own node, `AccumulateGrad`, knows its tensor
        ends = [getattr(function, "variable", None) for function in functions]
    return frozenset(leaves[id(end)] for end in ends if id(end) in leaves)


def own_copy(primal: Any, fake: Any) -> Any:
    """An input that was written to when the program was captured: a leaf that needs a gradient may not be, and what it held must
    still be there for backward. The copy has the same strides: if it is not needed after all, `tidy` takes it away."""
    if not isinstance(primal, torch.Tensor) or not (fake.is_inference() or fake._version):
        return primal
    copy = primal.clone()
    return copy if copy.stride() == primal.stride() else primal


def tangent(n: int, like: torch.Tensor) -> torch.Tensor:
    """The gradient of value `n`: an input of the graph that is being recorded."""
    with disable_functional_mode():
        laid_out = torch.empty_strided(
            like.shape, like.stride(), dtype=like.dtype, device=like.device
        )
        fake = torch.empty_like(laid_out)  # without gaps, each element in its own place
        tracer = get_proxy_mode().tracer
        track_tensor_tree(
            fake,
            tracer.create_proxy("placeholder", f"tangent_{n}", (), {}),
            constant=None,
            tracer=tracer,
        )
    return FunctionalTensor.to_functional(fake)


def recorded_nodes() -> set[fx.Node]:
    """What `make_fx` has recorded so far."""
    return {*get_proxy_mode().tracer.graph.nodes}


def leave(value: Any) -> Any:
    """A value of the functional world as the graph returns it, in the strides that the program saw."""
    if not isinstance(value, FunctionalTensor):
        return value
    return restride(value, value, lies=value.from_functional()).from_functional()


def is_kept_value(node: fx.Node) -> bool:
    """What autograd keeps for backward, as torch 2.14 and newer record it. (What the program returns is no such thing.)"""
    returned = any(user.op == "output" for user in node.users)
    return node.target is aten.alias.default and not returned


def tidy(traced: fx.GraphModule, gm: fx.GraphModule, tracing: Tracing) -> fx.GraphModule:
    """Inputs first, under their own names, without what only autograd needed: `detach`, copies of inputs never written to.
    What has an effect and no user becomes a value of the graph: the last ones, which no result is made of."""
    signature, graph = tracing.signature, traced.graph
    if sizes.current():
        write_sizes_out(graph)
        signature.results = tuple(map(Result.in_sizes, signature.results))
        if tracing.gradients and any(
            isinstance(n, (torch.SymInt, torch.SymFloat)) for n in graph.output_node().args[0]
        ):
            raise sizes.NeedsNumbers("the graph returns a size, and has gradients")
    placeholders = graph.find_nodes(op="placeholder")
    for new, old in zip(placeholders, gm.graph.find_nodes(op="placeholder"), strict=False):
        # `self_ln_weight` reads better in a kernel than `arg1_1`.
        new._rename(old.name)
        new.target, new.meta["origin"] = new.name, old

    written = {update.input for update in signature.updates}
    unwritten = [node for n, node in enumerate(placeholders) if n not in written]
    for node in list(graph.nodes):
        if node.op == "placeholder" and node.prev.op not in ("root", "placeholder"):
            next(n for n in graph.nodes if n.op != "placeholder").prepend(node)
        elif node.target is aten.detach.default or is_kept_value(node):
            node.replace_all_uses_with(node.args[0])
        elif node.op == "get_attr" and any(map(torch._is_functional_tensor, traced.buffers())):
            raise NotImplementedError(
                "a sparse tensor is made dense here, which torch 2.11 does not record"
            )
        elif node.meta.get("origin", node) is None:
            tidy_copy(node, unwritten)

    if any(effects.draws(node.target) for node in tracing.in_backward):
        raise NotImplementedError("a backward draws random numbers: eager draws them at each call")

    return_effects(graph, signature)
    traced.recompile()
    traced.meta["signature"] = signature
    return traceable(traced)


@contextlib.contextmanager
def any_formula_of_sizes() -> Iterator[None]:
    """Let torch record sizes that it has not seen computed. (It would look for their parts, and knows no squares.)"""
    before = getattr(proxy_tensor, "_build_proxy_for_sym_expr", None)
    if sizes.current() is None or before is None:
        yield
        return

    def note_formula(tracer: Any, expr: Any, out: Any = None) -> Any:
        # A node that only shows the formula: `write_sizes_out` puts the size itself in its place.
        proxy = tracer.create_proxy("call_function", sizes.text_of, (str(expr),), {})
        proxy.node.meta["val"] = out

        # torch asks for the proxy when an operation takes the size, so it is handed over as a function.
        proxy_tensor.set_proxy_slot(out, tracer, proxy_tensor.thunkify(tracer, lambda: proxy))
        return out

    proxy_tensor._build_proxy_for_sym_expr = note_formula
    try:
        yield
    finally:
        proxy_tensor._build_proxy_for_sym_expr = before


def rules_for_sizes() -> contextlib.AbstractContextManager[Any]:
    """Operators that torch writes in C++ for plain numbers, and again in Python for all sizes (`pad`, `interpolate`): take these."""
    if sizes.current() is None:
        return contextlib.nullcontext()
    rules: contextlib.AbstractContextManager[Any] = torch._C._EnablePythonDispatcher()
    return rules


def write_sizes_out(graph: fx.Graph) -> None:
    """Put symbolic sizes themselves in the place of the nodes that compute them: they are known wherever they are needed."""
    for node in reversed(list(graph.nodes)):
        value = node.meta.get("val")
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            with quiet():  # torch warns of symbolic sizes among arguments
                node.replace_all_uses_with(value)
            if node.op == "call_function":
                graph.erase_node(node)
        elif isinstance(value, torch.SymBool) and node.op == "call_function":
            raise sizes.NeedsNumbers(f"{node.target} computes a number of sizes")


def tidy_copy(node: fx.Node, unwritten: list[fx.Node]) -> None:
    """A copy of an input that `Tracing.run` made belongs to the input's node; if that is never written to, it is not needed."""
    original = node.args[0]
    node.meta["origin"] = original.meta.get("origin")
    if node.users and original in unwritten:
        # The copy begins where its memory does: views count from there.
        original.meta["val"] = node.meta["val"]
        node.replace_all_uses_with(original)


def return_effects(graph: fx.Graph, signature: Signature) -> None:
    """What has an effect and no user becomes a value, behind those that results are made of and before the gradients."""
    unused = effects.drop_unused(graph)
    if not unused:
        return

    output = graph.output_node()
    values = list(output.args[0])
    end = len(signature.differentiable)
    values[end:end] = unused
    output.args = (values,)
    signature.differentiable += (False,) * len(unused)
