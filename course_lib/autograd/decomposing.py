"""Operators fall apart while a graph is recorded: each runs its decomposition in its place.

In:  a call of an ATen operator that reaches torch's dispatcher, and a table of decompositions
     (`lowering/decompositions.py`).
Out: what the decomposition gives. `make_fx` records the operators that it calls.
     NotImplementedError for a write whose result would differ from eager's.
In PyTorch: `torch/fx/experimental/proxy_tensor.py` (`decompose`, `maybe_handle_decomp`).
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx
from torch._subclasses.functional_tensor import FunctionalTensor, disable_functional_mode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from course_lib.autograd.signature import is_strided, memory, overlaps_itself, restride, shows_twice

aten = torch.ops.aten
RAISING = (aten._linalg_check_errors.default, aten._assert_async.default, aten._assert_async.msg)
"""Operators that give nothing: they look at data and may raise."""
for check in RAISING:
    fx.node.has_side_effect(check)  # torch 2.11 would drop the first as dead code

Decompositions = Mapping[Any, Callable[..., Any]]
"""Operator → the function that computes the same by other operators."""


class Decomposing(TorchDispatchMode):
    """Runs an operator's decomposition in its place.

    Operators reach this mode before they reach `FunctionalTensor`. So a decomposition may write in
    place, too.
    """

    def __init__(self, table: Decompositions) -> None:
        super().__init__()
        self.table = table
        # Memory in which a view has several elements at one place, or leaves gaps (`expand`,
        # `unfold`)
        self.shown: set[int] = set()
        # Memory → sizes and strides of the tensors that lie in it, of which that was not asked yet
        # (not the tensors: torch detaches a new one that somebody holds)
        self.layouts: dict[int, list[tuple[Any, Any]]] = {}
        # Memory that was made in backward; None before backward begins
        self.born: set[int] | None = None

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        written_tensors = written_by(op, args)
        self.refuse_writes(written_tensors)
        if op in RAISING:
            # Functionalization would chain it to others by a token.
            with disable_functional_mode():
                return op(*map(leave, args), **kwargs)
        if is_loop_over_list(op):
            # The mode is off in here; the operators that the loop calls shall reach it again.
            with self:
                return op._op_dk(torch._C.DispatchKey.CompositeExplicitAutograd, *args, **kwargs)

        in_place = bool(written_tensors) and written_tensors[0] is args[0]
        result = self.decomposed(op, args, kwargs, in_place)
        if result is not NotImplemented:
            return result

        result = op(*args, **kwargs)
        self.note(op, result)
        return result

    def refuse_writes(self, written: list[torch.Tensor]) -> None:
        """Raise NotImplementedError for writes whose result would differ from eager's."""
        for x in written:
            if overlaps_itself(x) or (x._is_view() and self.is_shown_twice(memory(x))):
                raise NotImplementedError(
                    "an element is written to that a view shows twice: functionalization adds the two up"
                )
        if self.born is not None and not {memory(x) for x in written} <= self.born:
            raise NotImplementedError(
                "a backward writes to a tensor that it did not make: eager does so at each call"
            )

    def is_shown_twice(self, written: int) -> bool:
        """Does some view show an element of this memory twice?

        Asked when it is written to: of symbolic sizes the answer may be a guard."""
        layouts = self.layouts.pop(written, ())
        if any(shows_twice(shape, strides) for shape, strides in layouts):
            self.shown.add(written)
        return written in self.shown

    def begin_backward(self) -> None:
        """From here on only what backward itself has made may be written to."""
        self.born = set()

    def decomposed(self, op: Any, args: Any, kwargs: Any, in_place: bool) -> Any:
        """What the table computes for an operator; `NotImplemented` where it has nothing to say."""
        # `lerp_` is computed as `lerp`, and the result copied into the tensor.
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
        """Remember the memory of a result, if it was made in backward (`born`), and how the result
        lies in it (`layouts`, `shown`)."""
        if self.born is not None:
            self.born |= {memory(x) for x in tree_leaves(result) if is_strided(x)}
        if not is_strided(result):
            return
        if op is aten.unfold.default:
            self.shown.add(memory(result))
        else:
            layout = (result.shape, result.stride())
            self.layouts.setdefault(memory(result), []).append(layout)


def written_by(op: Any, args: Any) -> list[torch.Tensor]:
    """The tensors that an operator writes to: its first argument, which may be a list."""
    if not op._schema.is_mutable:
        return []
    return [x for x in tree_leaves(args[:1]) if isinstance(x, torch.Tensor)]


def is_loop_over_list(op: Any) -> bool:
    """True for an operator over lists of tensors (`_foreach_add`): torch has a loop that calls the
    ordinary operator for each tensor, and that loop can be recorded.

    Not for `_foreach_addcmul.Tensor` and `_foreach_addcdiv.Tensor`. They take their factors as one
    tensor, and torch's loop would read numbers out of it, which a recorded tensor does not have."""
    name = op.name()
    takes_factors_as_tensor = "_foreach_addc" in name and op._overloadname == "Tensor"
    return name.startswith("aten::_foreach_") and not takes_factors_as_tensor


def without_underscore(op: Any) -> Any:
    """The operator that computes what `op` writes in place (`lerp` for `lerp_`); `op` itself if
    there is none."""
    packet = getattr(aten, op.overloadpacket.__name__.rstrip("_"), None)
    return getattr(packet, op._overloadname, op)


def leave(value: Any) -> Any:
    """A value of the functional world as the graph returns it: in the strides that the program saw,
    and with nothing still to be conjugated or negated that it did not see so."""
    if not isinstance(value, FunctionalTensor):
        return value
    plain = restride(value, value, lies=value.from_functional()).from_functional()
    if plain.is_conj() and not value.is_conj():
        plain = plain.resolve_conj()
    if plain.is_neg() and not value.is_neg():
        plain = plain.resolve_neg()
    return plain
