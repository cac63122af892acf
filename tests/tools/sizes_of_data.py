"""Programs whose sizes only the data says, beside torch.compile: how many graphs, how many compiles, and are the values eager's?

    python tests/tools/sizes_of_data.py             (a table, one line a program)
    python tests/tools/sizes_of_data.py mask_sum    (these alone, with the words of each error)

Each program runs with `fullgraph=True`, on the inputs of each of its calls in turn, once under torch.compile (its capture: the graph then
runs operation by operation) and once under `cl.compile`, all of it. A program trains if one of its inputs wants a gradient.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

import course_lib as cl

Inputs = Sequence[Any]
Program = Callable[..., Any]


@dataclass(frozen=True)
class Row:
    """A program, and the inputs of each of its calls."""

    program: Program
    calls: tuple[Inputs, ...]
    # Dimensions of the first call's inputs that are marked as unbacked: (input, dimension)
    unbacked: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        return self.program.__name__


@dataclass(frozen=True)
class Outcome:
    """What came of a program: the graphs after its last call, or why there is none."""

    graphs: int
    wrong: str = ""

    def __str__(self) -> str:
        return self.wrong or str(self.graphs)


ROWS: list[Row] = []


def on(*calls: Inputs, unbacked: tuple[tuple[int, int], ...] = ()) -> Callable[[Program], Program]:
    """Add the program to the table, with the inputs of its calls."""

    def add(program: Program) -> Program:
        ROWS.append(Row(program, calls, unbacked))
        return program

    return add


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def to_train(*shape: int, seed: int = 0) -> torch.Tensor:
    return floats(*shape, seed=seed).requires_grad_()


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


SIGNS = ((floats(20, seed=1),), (floats(20, seed=2),), (-torch.ones(20),), (torch.ones(20),))
"""Some numbers above 0; other ones; none; all."""
ROWS_OF_FOUR = ((floats(9, 4, seed=1),), (floats(9, 4, seed=2),), (-torch.ones(9, 4),))
TRAINED = (
    (to_train(9, 4, seed=1),),
    (to_train(9, 4, seed=2),),
    ((-torch.ones(9, 4)).requires_grad_(),),
)
COUNTS = ((ints(2, 0, 3),), (ints(1, 1, 1),), (ints(0, 0, 0),))
LENGTHS = ((ints(3),), (ints(7),), (ints(1),), (ints(0),))
LENGTHS_IN = tuple((floats(10), ints(n)) for n in (3, 7, 1, 0))


# ---- nonzero, and masks ---------------------------------------------------------------------------------------------


@on(*SIGNS)
def places(x):
    return (x > 0).nonzero()


@on(*SIGNS)
def places_plus(x):
    return (x > 0).nonzero() * 2 + 1


@on(*ROWS_OF_FOUR)
def places_as_tuple(x):
    rows, columns = (x > 0).nonzero(as_tuple=True)
    return rows * 4 + columns


@on(*ROWS_OF_FOUR)
def where_alone(x):
    rows, columns = torch.where(x > 0)
    return rows + columns


@on(*SIGNS)
def mask_sum(x):
    return x[x > 0].sum()


@on(*SIGNS)
def mask_and_function(x):
    y = x * 2
    return y[y > 1].sin() * 3


@on(*SIGNS)
def masked_select(x):
    return torch.masked_select(x, x > 0) + 1


@on(*ROWS_OF_FOUR)
def rows_of_mask(x):
    return x[x[:, 0] > 0].softmax(-1)


@on(*ROWS_OF_FOUR)
def rows_times_matrix(x):
    return x[x[:, 0] > 0] @ x.mT


@on(*TRAINED)
def mask_trained(x):
    return (x[x > 0] ** 2).sum() + x.sum()


@on(*TRAINED)
def rows_trained(x):
    return F.layer_norm(x[x[:, 0] > 0] * 2, (4,)).tanh() * 2


@on(*TRAINED)
def rows_put_back(x):
    rows = (x[:, 0] > 0).nonzero().squeeze(1)
    return torch.zeros_like(x).index_add(0, rows, x[rows].sin())


@on(*SIGNS)
def mask_then_mask(x):
    y = x[x > 0]
    return y[y < 1].cos()


@on(*SIGNS)
def two_masks_joined(x):
    return torch.cat([x[x > 0], x[x <= 0]]) * 2


@on(*SIGNS)
def count_of_mask(x):
    y = x[x > 0]
    return y * y.shape[0]


@on(*SIGNS)
def mask_gives_its_size(x):
    y = x[x > 0]
    return y + 1, y.shape[0]


@on(*SIGNS)
def mean_by_size(x):
    y = x[x > 0]
    return y.sum() / (y.size(0) + 1)


@on(*SIGNS)
def made_like_mask(x):
    y = x[x > 0]
    return torch.ones_like(y) + torch.arange(y.shape[0])


@on(*SIGNS)
def column_of_mask(x):
    return x[x > 0].unsqueeze(1).expand(-1, 3) * torch.arange(3)


@on(*SIGNS)
def view_of_mask(x):
    return x[x > 0].view(-1, 1).repeat(1, 2)


@on(*SIGNS)
def written_by_mask(x):
    y = x.clone()
    y[y > 0] = 0
    return y + 1


# ---- .item() as a number and as a size ------------------------------------------------------------------------------


@on(*LENGTHS)
def zeros_of_length(n):
    return torch.zeros(n.item()) + 1


@on(*LENGTHS)
def arange_of_length(n):
    return torch.arange(n.item()) * 2


@on(*LENGTHS)
def length_itself(n):
    return n.item() + 1


@on(*LENGTHS_IN)
def times_item(x, n):
    return x * n.item()


@on(*((floats(10), torch.tensor(value)) for value in (0.5, 2.0, 0.0)))
def times_float_item(x, scale):
    return (x * scale.item()).sin()


@on(*LENGTHS_IN)
def narrow_by_item(x, n):
    length = n.item()
    torch._check(length >= 0)
    torch._check(length <= x.shape[0])
    return x.narrow(0, 0, length) * 2


@on(*LENGTHS_IN)
def slice_by_item(x, n):
    return x[: n.item()] * 2


@on(*LENGTHS_IN)
def element_by_item(x, n):
    i = n.item()
    torch._check(i >= 0)
    torch._check(i < x.shape[0])
    return x[i] + 1


@on(*LENGTHS_IN)
def expanded_by_item(x, n):
    length = n.item()
    torch._check(length >= 0)
    return x.unsqueeze(0).expand(length, -1) + 1


@on(*LENGTHS_IN)
def branch_that_check_decides(x, n):
    length = n.item()
    torch._check(length < 100)
    return x + 1 if length < 200 else x - 1


@on(*LENGTHS_IN)
def branch_on_item(x, n):
    return x + 1 if n.item() > 2 else x - 1


@on(*((floats(6), ints(a, b)) for a, b in ((2, 4), (3, 3), (6, 0))))
def split_by_list(x, sizes):
    first, second = sizes.tolist()
    return torch.split(x, [first, second])[0].sin()


@on(*((floats(6, 2), ints(a, b)) for a, b in ((2, 4), (3, 3), (5, 1))))
def parts_summed(x, sizes):
    first, second = sizes.tolist()
    a, b = x.split([first, second])
    return a.sum(0) + b.sum(0)


@on(*LENGTHS_IN)
def check_that_fails(x, n):
    torch._check(n.item() < 5, lambda: "at most four")
    return x + 1


# ---- truths ---------------------------------------------------------------------------------------------------------

TRUTHS = tuple((floats(6), torch.tensor(truth)) for truth in (True, False))


@on(*TRUTHS)
def truth_as_factor(x, truth):
    return x * truth.item()


@on(*TRUTHS)
def truth_itself(x, truth):
    return x + 1, truth.item()


@on(*TRUTHS)
def truth_counted(x, truth):
    return x + (truth.item() + 1)


@on(*TRUTHS)
def truth_as_numbers(x, truth):
    return x * int(truth) + float(truth), int(truth.item())


@on(*TRUTHS)
def truth_in_a_tensor(x, truth):
    return torch.where(torch.tensor(truth.item()), x, -x)


@on(*TRUTHS)
def truth_that_check_states(x, truth):
    torch._check(truth.item())
    return x + 1


@on(*TRUTHS)
def branch_on_truth(x, truth):
    return x + 1 if truth.item() else x - 1


@on(*SIGNS)
def all_and_any(x):
    return (x > 0).all().item(), x * (x > 0).any().item()


@on(*((torch.tensor([a, b]),) for a, b in ((True, False), (False, True))))
def list_of_truths(x):
    first, second = x.tolist()
    return x.float() * first + second


# ---- numbers that are computed --------------------------------------------------------------------------------------

SCALES = tuple((floats(10), torch.tensor(value)) for value in (0.5, 2.25, -1.0))


@on(*LENGTHS_IN)
def largest_of_item(x, n):
    return x.new_zeros(max(n.item(), 2)) + min(n.item(), 2, 5)


@on(*LENGTHS_IN)
def square_of_item(x, n):
    return x * n.item() ** 2 + abs(n.item() - 4)


@on(*LENGTHS_IN)
def functions_of_item(x, n):
    return x * math.sin(n.item() + 1), math.sqrt(n.item()), n.item() / 3


@on(*SCALES)
def whole_part(x, scale):
    return x * int(scale.item()) + int(scale) + round(scale.item()) + math.floor(scale.item())


@on(*SCALES)
def powers_of_float(x, scale):
    return x * scale.item() ** 2 + 2.0 ** scale.item() + abs(scale.item())


@on(*SCALES)
def largest_of_floats(x, scale):
    return x * max(scale.item(), 1.0)


@on(*SCALES)
def largest_of_float_and_int(x, scale):
    return max(scale.item(), 1)


@on(*SCALES)
def size_of_whole_part(x, scale):
    return x.new_ones(int(abs(scale.item() * 4))).cumsum(0)


@on(*SCALES)
def checked_whole_part(x, scale):
    part = int(scale.item())
    torch._check(part < 2)
    return x + part


@on(*LENGTHS_IN)
def item_in_a_tensor(x, n):
    return x + torch.tensor(n.item()), torch.tensor([n.item(), 2]), torch.tensor([0.5, n.item()])


# ---- numbers as places ----------------------------------------------------------------------------------------------

COLUMNS = tuple((floats(4, 10, seed=2), ints(n)) for n in (3, 7, 0))


@on(*COLUMNS)
def column_at_item(x, n):
    return x[:, n.item()] * 2, x[..., n.item()], x[None, 1:, n.item()], x[2, n.item()]


@on(*COLUMNS)
def column_from_behind(x, n):
    return x[:, -n.item() - 1] * 2


@on(*((to_train(4, 10, seed=2), ints(n)) for n in (3, 7, 0)))
def column_trained(x, n):
    return (x[:, n.item()] ** 2).sum()


@on(*COLUMNS)
def column_written(x, n):
    y = x.clone()
    y[:, n.item()] = 0
    y[1, n.item()] += 2
    return y * 2


@on(*COLUMNS)
def element_of_two_items(x, n):
    return x[n.item() // 2, n.item()] + 1


@on(*COLUMNS)
def list_and_item(x, n):
    return x[[0, 1], n.item()]


@on(*SIGNS)
def length_of_mask(x):
    return x * len(x[x > 0]), len(x[x > 0])


@on((ints(1, 2, 3, 4).reshape(2, 2),), (ints(5, 0, 1, 2).reshape(2, 2),))
def list_of_lists(x):
    (a, b), (c, d) = x.tolist()
    return x * a + b - c * d


@on(*SIGNS)
def list_of_unknown_length(x):
    return x[x > 0].tolist()


# ---- repeat_interleave, unique, bincount ----------------------------------------------------------------------------


@on(*((floats(3, 2), counts) for (counts,) in COUNTS))
def repeated_rows(x, counts):
    return x.repeat_interleave(counts, dim=0) * 2


@on(*COUNTS)
def repeated_places(counts):
    return torch.repeat_interleave(counts) + 1


@on(*((to_train(3, 2), counts) for (counts,) in COUNTS))
def repeated_trained(x, counts):
    return (x.repeat_interleave(counts, dim=0) ** 2).sum() + x.sum()


@on((ints(3, 1, 3),), (ints(5, 5, 5),), (ints(1, 2, 3),))
def unique_values(x):
    return torch.unique(x) * 2


@on((ints(3, 1, 3),), (ints(5, 5, 5),), (ints(1, 2, 3),))
def unique_with_inverse(x):
    values, inverse = torch.unique(x, return_inverse=True)
    return values[inverse] + values.sum()


@on((ints(3, 1, 3),), (ints(5, 5, 5),), (ints(1, 2, 3),))
def counted(x):
    return torch.bincount(x) + 1


# ---- sizes of inputs that nobody may ask about ----------------------------------------------------------------------

SIZES = tuple((floats(n, 3),) for n in (5, 8, 1, 0))


@on(*SIZES, unbacked=((0, 0),))
def unbacked_plus(x):
    return x.sin() + 1


@on(*SIZES, unbacked=((0, 0),))
def unbacked_softmax(x):
    return x.softmax(-1) * x.shape[0]


@on(*((to_train(n, 3),) for n in (5, 8, 1)), unbacked=((0, 0),))
def unbacked_trained(x):
    return F.layer_norm(x, (3,)).relu().sum()


@on(*SIZES, unbacked=((0, 0),))
def unbacked_branch(x):
    return x + 1 if x.shape[0] > 3 else x - 1


@on(*SIZES, unbacked=((0, 0),))
def unbacked_checked(x):
    torch._check(x.shape[0] < 100)
    return x + 1 if x.shape[0] < 200 else x - 1


@on(*((floats(n, 3), floats(n, 3, seed=1)) for n in (5, 8, 1)), unbacked=((0, 0), (1, 0)))
def unbacked_pair(x, y):
    return x * y


# ---- what comes of a row --------------------------------------------------------------------------------------------


def outcome(row: Row, compile: Any, mark: Any) -> Outcome:
    """Graphs after the last call, or what went wrong first."""
    graphs = 0
    compiled = compile(row.program)
    for number, inputs in enumerate(row.calls):
        ours, theirs = copied(inputs), copied(inputs)
        for which, dim in row.unbacked if number == 0 else ():
            mark(ours[which], dim)
        want = result(row.program, theirs)
        got = result(compiled, ours)
        if isinstance(got, Exception) and not isinstance(want, Exception):
            first = (str(got).strip() or " ").splitlines()[0]
            return Outcome(0, f"call {number}: {type(got).__name__}: {first}")
        if isinstance(want, Exception) and not isinstance(got, Exception):
            return Outcome(0, f"call {number}: raises nothing")
        if not isinstance(want, Exception) and not alike(got, want):
            return Outcome(0, f"call {number}: WRONG: {got!r:.60} instead of {want!r:.60}")
        graphs = counted_graphs()
    return Outcome(graphs)


def result(program: Program, inputs: Inputs) -> Any:
    """What a program gives, and the gradients of its inputs; or its error."""
    try:
        got = program(*inputs)
        if any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
            got.sum().backward()
    except Exception as error:
        return error
    return got, [x.grad for x in inputs if isinstance(x, torch.Tensor) and x.requires_grad]


def alike(got: Any, want: Any) -> bool:
    try:
        torch.testing.assert_close(got, want, equal_nan=True)
    except AssertionError:
        return False
    return True


def copied(inputs: Inputs) -> list[Any]:
    """Leaves of their own."""
    return [
        x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
        for x in inputs
    ]


_graphs = 0


def counted_graphs() -> int:
    return _graphs


def by_torch(program: Program) -> Any:
    """Its capture, with a count of graphs."""

    def backend(gm: Any, inputs: Any) -> Any:
        global _graphs
        _graphs += 1
        return gm.forward

    return torch.compile(program, fullgraph=True, backend=backend)


def by_us(program: Program) -> Any:
    return cl.compile(program, fullgraph=True)


def of_torch(row: Row) -> Outcome:
    global _graphs
    _graphs = 0
    torch._dynamo.reset()
    return outcome(row, by_torch, torch._dynamo.decorators.mark_unbacked)


def of_ours(row: Row) -> Outcome:
    global _graphs
    _graphs = 0
    cl.reset()
    with cl.record() as trace:
        got = outcome(row, by_us, cl.mark_unbacked)
    return Outcome(len(trace.of(cl.events.GraphCaptured)), got.wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch._logging.set_logs(all=50)

    width = None if options.names else 60
    print("| program | torch.compile | course_lib |\n|---|---|---|")
    for row in ROWS:
        if not options.names or row.name in options.names:
            print(
                f"| {row.name} | {str(of_torch(row))[:width]} | {str(of_ours(row))[:width]} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
