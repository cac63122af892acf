"""A backward pass by eager's own rules, for what a compiled backward graph cannot give.

In:  the captured graph, what its inputs were in the forward call, and the gradients of its results.
Out: the gradients of its inputs. Or eager's error, if a value that eager's backward needs was
     written to.

A compiled backward graph stands below autograd: nobody recorded how to differentiate it once more.
So for `create_graph=True` the captured graph runs again, operation by operation, and autograd
records it as in eager. The same is done for a backward pass under autocast whose forward pass was
not: autocast casts what eager's operations compute, and our kernels are others.

Eager refuses a backward pass if a tensor that it saved was written to. We save other tensors, or
compute them again. So the version numbers of inputs and results are noted in forward. Only if one
has changed, the graph is rehearsed on fake tensors with the same changes. Then autograd itself says
whether eager would refuse, and in which words.
In PyTorch: `torch/csrc/autograd/saved_variable.cpp` (`SavedVariable::unpack`). `aot_autograd`
refuses to differentiate twice.
"""

import contextlib
import weakref
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from course_lib import capture
from course_lib.autograd.effects import draws
from course_lib.autograd.forms import Forms
from course_lib.autograd.partition import Partition, upstream
from course_lib.autograd.result_hooks import Watched
from course_lib.autograd.signature import Signature
from course_lib.capture import global_state
from course_lib.written import quiet

QUESTIONS = 64
"""Answers of rehearsals that a graph keeps, at most: if there are more, all are forgotten."""


class Note(NamedTuple):
    """A tensor of the forward call, which is not kept alive, and the version that it had."""

    place: int  # Of the input, or of the value
    tensor: Any  # A weak reference
    version: int

    def writes(self) -> int:
        """How often it was written to since then."""
        tensor = alive(self.tensor)
        if tensor is None:
            return 0
        return tensor._version - self.version


class Noted(NamedTuple):
    """What is noted of a forward call, beside the tensors that autograd saves."""

    inputs: list[Note]
    values: list[Note]
    held: dict[int, Any]  # Inputs that are numbers, or whose tensor is known to nobody else
    random: Any  # `Again.random` of this call
    sizes: Sequence[int] = ()  # The values of symbolic sizes

    def changed(self) -> bool:
        """Was one of the tensors written to since the forward call?"""
        return any(note.writes() for note in (*self.inputs, *self.values))

    def alive_values(self) -> Iterator[tuple[int, torch.Tensor]]:
        """(its number among the values, the tensor) for each value that the program still has."""
        for note in self.values:
            tensor = alive(note.tensor)
            if tensor is not None:
                yield note.place, tensor


class Again:
    """The captured graph, ready to run once more when backward needs it."""

    def __init__(self, captured: fx.GraphModule, signature: Signature, parts: Partition) -> None:
        self.captured, self.signature, self.parts = captured, signature, parts
        self.placeholders = captured.graph.find_nodes(op="placeholder")
        self.autocast = autocast_now()
        # The shapes and strides of the inputs: with symbolic sizes they differ from call to call.
        self.forms = Forms([node.meta["val"] for node in self.placeholders], parts.sizes)

        # Inputs that the compiled forward saves for its backward: the input's number → its place
        # among the saved tensors. (`parts.places` counts results of forward behind the inputs.)
        self.saved: dict[int, int] = {}
        for place_among_saved, number in enumerate(parts.places):
            if number < len(self.placeholders):
                self.saved[number] = place_among_saved

        # Inputs on which gradients depend
        self.needed = needed_inputs(parts, self.placeholders)
        # Inputs that the graph writes to: the input's number → that of the value that it holds
        # afterwards
        self.updated = {update.input: update.index for update in signature.updates}
        # The number of a value → the output of the captured graph that is it, or a view of it
        self.outputs = self.places_of_values()
        self.draws = any(draws(node.target) for node in parts.forward.graph.nodes)
        self.why_not = self.reason()

        # Inputs that are kept alive between forward and backward, and those of which only a weak
        # reference is noted
        self.held = [n for n in range(len(self.placeholders)) if self.is_held(n)]
        kept_inputs = {*self.saved, *self.updated, *self.held}
        self.noted = sorted(self.needed - kept_inputs)
        # Questions to `refuse_as_eager` whose answer was "no error in eager". They are kept because
        # a rehearsal takes milliseconds.
        self.not_refused: set[Hashable] = set()

    def places_of_values(self) -> dict[int, int]:
        """By the number of a value: the output of the captured graph that is this value, else one
        that is a view of it."""
        whole: dict[int, int] = {}
        views: dict[int, int] = {}
        for place, result in enumerate(self.signature.results):
            if result.of_input:
                continue
            if result.layout is None:
                whole.setdefault(result.index, place)
            else:
                views[result.index] = place
        return views | whole

    def reason(self) -> str:
        """Why the graph cannot run again; empty if it can."""
        if self.needed & self.updated.keys():
            return "it writes to an input whose old value its gradients depend on"

        nodes = [*self.parts.forward.graph.nodes, *self.parts.backward.graph.nodes]
        if any(map(by_formula, nodes)):
            return "it draws its random numbers by a formula, for `fallback_random=False`"

        if not self.shows_all_values():
            # Its gradient is for the whole, which nobody outside can reach.
            return "a result of it is a part of a hidden tensor"
        return ""

    def shows_all_values(self) -> bool:
        """Is each value that has a gradient whole among the results of the captured graph, or in an
        input?"""
        forward_results = self.parts.forward.graph.output_node().args[0]
        results = self.captured.graph.output_node().args[0]
        outputs = [node and node.meta["val"] for node in results]
        values = {n: self.value_of(n, outputs) for n in self.outputs}

        in_inputs = self.updated.values()
        for n, has_gradient in enumerate(self.signature.differentiable):
            if not has_gradient or n in in_inputs:
                continue
            if n not in values or values[n].shape != forward_results[n].meta["val"].shape:
                return False
        return True

    def value_of(self, n: int, results: Sequence[Any]) -> Any:
        """The value `n`: a result of the captured graph, or what that is a view of."""
        place = self.outputs[n]
        result = results[place]
        is_part = self.signature.results[place].layout is not None
        if is_part and result._base is not None:
            return result._base
        return result

    def values_of(self, results: Sequence[Any], inputs: Sequence[Any]) -> dict[int, Any]:
        """The values that the captured graph has computed; some are in inputs now."""
        values_in_inputs = {value: inputs[n] for n, value in self.updated.items()}
        return {n: self.value_of(n, results) for n in self.outputs} | values_in_inputs

    def is_held(self, n: int) -> bool:
        """Must this input be kept alive until backward?

        Yes for a number. Yes, too, for a tensor that gradients depend on and that nobody else may
        hold: it has one element, or was made for this call alone (`without_history`)."""
        value = self.placeholders[n].meta["val"]
        if not isinstance(value, torch.Tensor):
            return True
        alone = n in self.signature.unconnected or (
            value.numel() == 1 and n not in self.signature.gradients
        )
        return n in self.needed and n not in self.saved and alone

    def random(self) -> Any:
        """Before a forward call: what sets the generators as they stand now.

        None if the graph draws nothing."""
        if not self.draws or self.why_not:
            return None
        return global_state.random()

    def note(
        self, inputs: Sequence[Any], values: dict[int, Any], numbers: Any, sizes: Sequence[int] = ()
    ) -> Noted:
        """What backward needs to know about a forward call. numbers: what `random` gave before it;
        sizes: the values of symbols."""
        return Noted(
            inputs=notes_of({n: inputs[n] for n in self.noted}),
            values=notes_of(values),
            held={n: inputs[n] for n in self.held},
            random=numbers,
            sizes=sizes,
        )

    def is_wanted(self) -> bool:
        """Must the captured graph run again? Yes if backward will be differentiated itself, or runs
        under another autocast than forward did."""
        if torch.is_grad_enabled():
            return True
        return torch._C._is_any_autocast_enabled() and autocast_now() != self.autocast

    def inputs_of(self, noted: Noted, saved: Sequence[Any]) -> tuple[list[Any], str]:
        """The inputs of the forward call, and why the graph cannot run again with them ("": it
        can).

        An input on which no gradient depends is replaced by a stand-in: it need not be kept.
        """
        if self.why_not:
            return [], self.why_not
        notes = {note.place: note for note in noted.inputs}
        inputs: list[Any] = []

        for n, placeholder in enumerate(self.placeholders):
            if n in noted.held:
                inputs.append(noted.held[n])
            elif n in self.saved:
                # Autograd gives none of the saved tensors if one was written to (`GraphNode.saved`)
                if not saved:
                    beside = "was kept beside a tensor that was written to"
                    return [], f"its input {placeholder.name} {beside}"
                inputs.append(saved[self.saved[n]])
            elif n not in self.needed:
                inputs.append(self.stand_in(n, noted))
            elif n not in notes or (x := alive(notes[n].tensor)) is None:
                return [], f"its input {placeholder.name} is gone: keep a reference to it"
            elif notes[n].writes():
                return [], f"its input {placeholder.name} was written to"
            else:
                inputs.append(x)
        return inputs, ""

    def stand_in(self, n: int, noted: Noted) -> Any:
        """What takes the place of input `n`: a tensor with the shape and strides that the input had
        in the forward call, or the number itself if the input is a number."""
        like = self.placeholders[n].meta["val"]
        if not isinstance(like, torch.Tensor):
            return noted.held.get(n, like)
        return stand_in(self.placeholders[n], self.forms.of(noted.sizes)[n])

    def entered(self, inputs: Sequence[Any]) -> list[Any]:
        """The inputs, with copies of those that the graph writes to: autograd refuses a write to a
        leaf that requires a gradient."""
        return [x.clone() if n in self.updated else x for n, x in enumerate(inputs)]

    def gradients(
        self,
        noted: Noted,
        inputs: Sequence[Any],
        gradient_of_value: dict[int, Any],
        wanted: Sequence[int],
        watched: Sequence[Watched] = (),
    ) -> dict[int, Any]:
        """The gradients of the inputs `wanted`, as eager computes them under the modes that are on.

        gradient_of_value: the gradients that came in, by the value's number. watched: values whose
        hooks are called meanwhile.
        """
        with torch.enable_grad(), numbers_of(noted), under(self.autocast):
            # One tensor may be two inputs. A view for each tells their gradients apart.
            views = [x.view_as(x) if requires_grad(x) else x for x in inputs]
            entered = self.entered(views)
            values = self.values_of(self.captured(*entered), entered)

        # The program's hooks go on the values that have just been computed: `autograd.grad` calls
        # them below. A value that keeps its gradient (`retain_grad`) already has the part from
        # outside, so it is told which part that is.
        for watched_result in watched:
            if requires_grad(values.get(watched_result.value)):
                watched_result.watch(
                    values[watched_result.value], gradient_of_value.get(watched_result.value)
                )

        values = {n: values[n] for n in gradient_of_value if requires_grad(values.get(n))}
        wanted = [n for n in wanted if requires_grad(views[n])]
        if not values or not wanted:
            return {}

        gradients = torch.autograd.grad(
            list(values.values()),
            [views[n] for n in wanted],
            [gradient_of_value[n] for n in values],
            create_graph=torch.is_grad_enabled(),
            allow_unused=True,
        )
        return {n: g for n, g in zip(wanted, gradients, strict=True) if g is not None}

    def refuse_as_eager(
        self,
        noted: Noted,
        used_values: Collection[int],
        wanted: Collection[int],
        written: Collection[int] = (),
    ) -> None:
        """Raise eager's RuntimeError if the gradients of the inputs `wanted` need a tensor that was
        written to since forward.

        used_values: the values whose gradients come in. written: inputs that were written to,
        beside those that are noted.
        """
        question = self.question(noted, used_values, wanted, written)
        if question in self.not_refused:
            return
        self.rehearse(noted, used_values, wanted, written)

        # A program that writes into a tensor step by step asks the same in every step.
        if len(self.not_refused) >= QUESTIONS:
            self.not_refused.clear()
        self.not_refused.add(question)

    def question(
        self,
        noted: Noted,
        used_values: Collection[int],
        wanted: Collection[int],
        written: Collection[int],
    ) -> Hashable:
        """All that a rehearsal's answer depends on: which tensors were written to (how often
        decides only the words of the error), which gradients come in and are wanted, and the
        numbers among the inputs."""
        changed_inputs = tuple(note.place for note in noted.inputs if note.writes() > 0)
        changed_values = tuple(note.place for note in noted.values if note.writes() > 0)
        numbers = [n for n in noted.held.values() if not isinstance(n, torch.Tensor)]
        # by their text: 1, 1.0 and True are one key of a set, and nan is not its own
        return (
            changed_inputs,
            changed_values,
            tuple(written),
            frozenset(used_values),
            tuple(wanted),
            tuple(noted.sizes),
            repr(numbers),
        )

    def rehearse(
        self,
        noted: Noted,
        used_values: Collection[int],
        wanted: Collection[int],
        written: Collection[int],
    ) -> None:
        """Run the graph on fake tensors, write to them as the program has written, and go back.
        Arguments and errors as for `refuse_as_eager`."""
        with FakeTensorMode(), torch.enable_grad(), under(self.autocast), quiet():
            leaves = [self.stand_in(n, noted) for n in range(len(self.placeholders))]
            inputs = self.entered(leaves)
            set_versions(inputs, noted)
            try:
                with capture.recording_mode():
                    results = self.captured(*inputs)
            except Exception:
                return  # this graph needs data to run
            values_by_number = self.values_of(results, inputs)

            # Write to the stand-ins as often as the program wrote to the tensors.
            write_as_noted(inputs, values_by_number, noted)
            for n in written:
                write_often(inputs[n], 1)

            # Then autograd itself says whether what it saved was written to.
            values = [
                values_by_number[n] for n in used_values if requires_grad(values_by_number.get(n))
            ]
            inputs_with_gradient = [leaves[n] for n in wanted if requires_grad(leaves[n])]
            if values and inputs_with_gradient:
                with torch._C._DisableAutocast():
                    tangents = [torch.ones_like(value) for value in values]
                    torch.autograd.grad(values, inputs_with_gradient, tangents, allow_unused=True)


def set_versions(inputs: Sequence[Any], noted: Noted) -> None:
    """Give the stand-ins of inputs the versions that the inputs had in forward."""
    for note in noted.inputs:
        tensors, versions = (inputs[note.place],), (note.version,)
        torch._C._autograd._unsafe_set_version_counter(tensors, versions)


def write_as_noted(inputs: Sequence[Any], values: Mapping[int, Any], noted: Noted) -> None:
    """Write to stand-ins of inputs and values as often as the program has written to those since
    forward."""
    for note in noted.inputs:
        write_often(inputs[note.place], note.writes())
    for note in noted.values:
        if note.place in values:
            write_often(values[note.place], note.writes())


def needed_inputs(parts: Partition, placeholders: Sequence[fx.Node]) -> set[int]:
    """The inputs on which gradients depend: what is saved is computed from them."""
    if not parts.saved:
        return set()
    joint = parts.saved[0].graph
    above = upstream(joint, list(parts.saved))
    inputs = joint.find_nodes(op="placeholder")[: len(placeholders)]
    return {n for n, node in enumerate(inputs) if node in above}


def by_formula(node: fx.Node) -> bool:
    """Is it a random number that no generator of torch's draws? (`lowering/philox.py`)"""
    return str(node.target).startswith("course_lib.random")


def notes_of(tensors: Mapping[int, Any]) -> list[Note]:
    """A note for each tensor whose writes are counted."""
    notes = []
    for place, tensor in tensors.items():
        if can_change(tensor):
            notes.append(Note(place, weakref.ref(tensor), tensor._version))
    return notes


def can_change(value: Any) -> bool:
    """Is this a tensor whose writes are counted? (Tensors of inference mode count none.)"""
    return isinstance(value, torch.Tensor) and not value.is_inference()


def requires_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def alive(reference: Any) -> torch.Tensor | None:
    """The tensor of a weak reference, if it is still there."""
    tensor = reference()
    if tensor is not None:
        # The Python object may have been freed while C++ kept the tensor: it gets one that lasts
        # again.
        tensor._fix_weakref()
    return tensor


def write_often(tensor: Any, times: int) -> None:
    """Count `times` writes to a stand-in, as autograd counts them. Its data stay."""
    for _ in range(times):
        torch.autograd.graph.increment_version(tensor)


def stand_in(placeholder: fx.Node, like: Any) -> Any:
    """A tensor that looks like the input `like` and holds ones. If the numbers are not real
    floating-point numbers, it holds zeros: integers may be indices."""
    tensor = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    tensor.fill_(1 if like.dtype.is_floating_point else 0)
    wanted = placeholder.meta.get("requires_grad", placeholder.meta["val"].requires_grad)
    return tensor.requires_grad_(wanted)


def autocast_now() -> dict[str, torch.dtype]:
    """Device → dtype, where autocast is on."""
    return {
        device: torch.get_autocast_dtype(device)
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    }


@contextlib.contextmanager
def under(autocast: dict[str, torch.dtype]) -> Iterator[None]:
    """Inside, autocast is on for these devices and dtypes, and for no other."""
    with torch._C._DisableAutocast(), contextlib.ExitStack() as stack:
        for device, dtype in autocast.items():
            stack.enter_context(torch.autocast(device, dtype))
        yield


@contextlib.contextmanager
def numbers_of(noted: Noted) -> Iterator[None]:
    """Inside, the random generators draw the numbers of the forward call once more."""
    if noted.random is None:  # forward draws none
        yield
        return
    # Each is a function that puts a state back: that of now, and that before forward
    restore = global_state.random()
    noted.random()
    try:
        yield
    finally:
        restore()
