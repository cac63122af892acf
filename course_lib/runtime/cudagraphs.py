"""A program's kernels recorded once as a CUDA graph, then started all together.

In:  a compiled program whose tensors are all on one GPU.
Out: a program that does the same; a call costs one start instead of one for each kernel.

A recording reads and writes fixed addresses. Parameters stay where they are, and so do results of
other recordings. An input that was seen at two addresses is copied into memory of the recording.
Results lie in memory that nothing else gets. As long as somebody holds one, the recording is not
played again, and a second recording serves meanwhile (forward twice, then backward). Temporary
buffers lie in a pool that all recordings of a stream share, for they run one after the other.

Three things keep a result whole while the program holds it:

- Its memory is held by the recording, and by each tensor that was handed out. Nobody else is given
  it.
- `play` hands out new tensors on that memory. Each of them counts as one more user of the storage,
  and so does whatever the program makes of it. `Recording.hold` notes how many users there are
  right after recording, which are the recording's own. `is_free` compares: with more users than
  that, somebody holds a result, and the recording is not played.
- A recording that reads a result of another one does not copy it (`result_addresses` has its
  address). The program holds that result while it passes it on. So the other recording is not
  played before this one has been started, and both run on the same stream.

In PyTorch: `torch/_inductor/cudagraph_trees.py` (there results are in the shared pool too, along
the paths that a program takes).
"""

import functools
import itertools
import operator
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch

from course_lib import events
from course_lib.autograd import Program
from course_lib.codegen.wrapper import raise_problem
from course_lib.lowering.ir import LoopGraph

# So many recordings one program has at a time. A call that none of them can serve runs kernel by
# kernel. (Two serve forward twice, then backward.)
MOST = 4
# So many recordings are ever made of one program: where addresses change all the time, it is not
# worth it
MOST_EVER = 32
# For so many sets of sizes recordings of one program are made. (torch warns from 50 on, and goes on
# recording)
MOST_SETS_OF_SIZES = 50

# Where results of recordings lie. A result stays at its address as long as its recording is there,
# which holds that memory: nothing else can come to lie there.
result_addresses: set[int] = set()
# For each stream, the memory of its recordings
pools: dict[Any, Any] = {}


def with_cuda_graphs(program: Program, graph: LoopGraph) -> Program:
    """The program by recordings, or as it is where that cannot be."""
    # Sizes that are numbers among the inputs: each recording has fixed ones.
    tensors = list(graph.inputs)
    if graph.places:
        tensors = [buffer for n, buffer in enumerate(graph.inputs) if n not in graph.numbers]

    if reason := why_not(replace(graph, inputs=tensors)):
        tell_that_it_falls_back(reason)
        return program

    written_inputs = {tensors.index(buffer) for buffer in graph.updates.values()}
    if graph.places:
        return RecorderForSizes(program, graph, written_inputs)
    return Recorder(program, written_inputs)


def tell_that_it_falls_back(reason: str) -> None:
    """Say that a program runs without a CUDA graph."""
    what = "the program starts its kernels one by one, without a CUDA graph"
    events.emit(events.FellBack(what, reason))


def why_not(graph: LoopGraph) -> str | None:
    """What keeps this program from being recorded, or None."""
    devices = sorted({str(buffer.device) for buffer in graph.buffers.values()})
    on_one_gpu = len(devices) == 1 and devices[0].startswith("cuda")
    if not on_one_gpu:
        where = " and ".join(devices) or "no device"
        return f"its tensors are on {where}"
    if None in graph.inputs:
        return "one of its inputs is a number"
    if not graph.nodes:
        return "it has no kernel"
    # The first input says on which GPU, and so on which stream, a recording runs.
    if not graph.inputs:
        return "it has no input"
    return None


def stream_on(device: torch.device) -> tuple[int, int, int]:
    """Where work on this GPU is started now."""
    return torch._C._cuda_getCurrentStream(device.index)


def capture(program: Program, given: Sequence[Any]) -> tuple[Callable[[], None], tuple[Any, ...]]:
    """Record what the program starts: how to start it again, and the results that are then computed
    anew."""
    graph = torch.cuda.CUDAGraph()
    stream = stream_on(given[0].device)
    if stream not in pools:
        pools[stream] = torch.cuda.MemPool()

    with torch.cuda.graph(graph, pool=pools[stream].id, capture_error_mode="thread_local"):
        results = program(*given)
    return graph.replay, results


class Recording:
    """One CUDA graph, and the memory that it reads and writes."""

    def __init__(self, program: Program, inputs: Sequence[torch.Tensor], moving: set[int]) -> None:
        self.program = program
        self.device = inputs[0].device
        self.stream = stream_on(self.device)

        # Which inputs are copied in each call, and where the others must be
        self.moving = sorted(moving)
        self.staying = [n not in moving for n in range(len(inputs))]
        self.addresses = [x.data_ptr() for x in self.those_that_stay(inputs)]

        # The recording reads a copy of what moves.
        given = list(inputs)
        with torch.inference_mode(False), torch.no_grad():
            self.copies = [memory_like(inputs[n]) for n in self.moving]
            for n, copy in zip(self.moving, self.copies, strict=True):
                given[n] = copy
            self.replay, results = capture(program, given)

        self.sort_results(given, results)
        tensors = [each for each in results if isinstance(each, torch.Tensor)]
        self.hold(inputs, tensors)

    def those_that_stay(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The inputs that the recording reads where they are."""
        return list(itertools.compress(inputs, self.staying))

    def sort_results(self, given: list[torch.Tensor], results: tuple[Any, ...]) -> None:
        """Note where each result comes from: it is an input, computed anew, or a number."""
        given_ids = {id(x) for x in given}
        # Tensors that are computed anew, and what is no tensor
        self.fresh: list[torch.Tensor] = []
        self.rest: list[Any] = []
        for each in results:
            if not isinstance(each, torch.Tensor):
                self.rest.append(each)
            elif id(each) not in given_ids:
                self.fresh.append(each)

        # Result → its place among these. `play` makes a list in the same order, with the caller's
        # inputs in the place of `given`. So a result that is an input is the caller's tensor, also
        # where the recording read a copy of it.
        sources = (*given, *self.fresh, *self.rest)
        place = {id(each): n for n, each in enumerate(sources)}
        self.places = [place[id(each)] for each in results]

    def hold(self, inputs: Sequence[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Note whose memory the results are in: a recording is free to play when nobody else holds
        that."""
        of_inputs = storages_of(self.those_that_stay(inputs))
        of_results = storages_of(results) - of_inputs
        # Counted now, while nobody but the recording has the results. If the program still held one
        # here and dropped it later, the count would be too high: then a result that somebody holds
        # could be written over.
        self.held = {storage: torch._C._storage_Use_Count(storage) for storage in of_results}

        # Another recording finds the results at these addresses. (Not what is an input that is
        # handed through: its memory is not ours.)
        own_results = [x for x in results if x.untyped_storage()._cdata in of_results]
        addresses = {x.data_ptr() for x in own_results} - result_addresses
        result_addresses.update(addresses)
        weakref.finalize(self, result_addresses.difference_update, addresses)

    def is_at(self, addresses: Sequence[int]) -> bool:
        """True if the inputs are where they were."""
        return [*itertools.compress(addresses, self.staying)] == self.addresses

    def is_free(self) -> bool:
        """True if nobody holds the results of the last time any more, and this is its stream."""
        now = map(torch._C._storage_Use_Count, self.held)
        nobody_holds_them = all(map(operator.le, now, self.held.values()))
        return nobody_holds_them and stream_on(self.device) == self.stream

    def play(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """Copy what moves, start the graph, and hand its results out as new tensors on the same
        memory."""
        if self.copies:
            torch._foreach_copy_(self.copies, [inputs[n] for n in self.moving])
        self.replay()

        fresh = map(torch.Tensor.detach, self.fresh)
        found = [*inputs, *fresh, *self.rest]
        return tuple(map(found.__getitem__, self.places))


def storages_of(tensors: Sequence[torch.Tensor]) -> set[int]:
    """The memory that these tensors lie in, as torch's C functions name it."""
    return {x.untyped_storage()._cdata for x in tensors}


def memory_like(x: torch.Tensor) -> torch.Tensor:
    """Memory for a copy of `x`. Raises `RuntimeError` where elements of `x` share memory."""
    if torch._debug_has_internal_overlap(x) == 1:
        raise RuntimeError("an input that must be copied has elements that share memory (`expand`)")
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)


class Recorder:
    """Runs a program: the first time as it is, then by a recording that fits."""

    def __init__(self, program: Program, written: Collection[int] = ()) -> None:
        self.program = program
        # Inputs that kernels write to: a copy would not do
        self.written = written
        # What its kernels find wrong with data, noted on the GPU (`CompiledGraph.problems`)
        self.problems = getattr(program, "problems", [])

        # Where the inputs were in the first call, and which have been elsewhere since
        self.first: list[int] | None = None
        self.moving: set[int] = set()

        self.recordings: list[Recording] = []
        # How many recordings have been made, those included that are gone
        self.made = 0
        # Why the program cannot be recorded; empty as long as it can
        self.problem = ""

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        if self.problem or torch.cuda.is_current_stream_capturing():
            return self.program(*inputs)

        # What a call before this one found wrong
        for problem in self.problems:
            raise_problem(*problem)

        addresses = [*map(torch.Tensor.data_ptr, inputs)]
        if self.first is None:
            # The first call builds what is built on first use, outside of any recording.
            self.first = addresses
            return self.program(*inputs)

        for recording in self.recordings:
            if recording.is_at(addresses) and recording.is_free():
                return recording.play(inputs)
        return self.record(inputs, addresses)

    def record(self, inputs: Sequence[torch.Tensor], addresses: list[int]) -> tuple[Any, ...]:
        """Make a recording for these addresses and play it; without room for one, run the program
        as it is."""
        moved_inputs = {n for n in range(len(inputs)) if self.has_moved(n, addresses[n])}
        if moved_inputs:
            self.moving |= moved_inputs
            self.recordings.clear()

        # Where there is no room, recordings for other addresses go. Those for these addresses stay:
        # somebody holds their results.
        if len(self.recordings) == MOST:
            self.recordings = [each for each in self.recordings if each.is_at(addresses)]
        if len(self.recordings) == MOST or self.made == MOST_EVER:
            return self.program(*inputs)

        # What cannot be recorded (a call that waits for the GPU, memory that is short) is a
        # RuntimeError of torch's. It would be one at every call, so nothing more is tried.
        self.made += 1
        try:
            recording = Recording(self.program, inputs, self.moving)
        except RuntimeError as error:
            self.problem = str(error).splitlines()[0]
            tell_that_it_falls_back(self.problem)
            return self.program(*inputs)

        self.recordings.append(recording)
        count, copied = len(self.recordings), len(self.moving)
        events.emit(events.CudaGraphRecorded(self.program, count, copied))
        return recording.play(inputs)

    def has_moved(self, n: int, address: int) -> bool:
        """True if an input is seen at a second address for the first time.

        What recordings have computed stays where it is."""
        assert self.first is not None
        if n in self.moving or n in self.written:
            return False
        return address != self.first[n] and address not in result_addresses


class RecorderForSizes:
    """Runs a program for all sizes: each set of sizes has recordings of its own, for a recording
    has fixed sizes."""

    def __init__(self, program: Program, graph: LoopGraph, written: Collection[int]) -> None:
        self.program, self.written = program, written
        self.places = list(graph.places.values())
        # A recording has no inputs that are numbers: for one set of sizes they are constants.
        self.is_tensor = [n not in graph.numbers for n in range(len(graph.inputs))]
        self.recorders: dict[tuple[int, ...], Recorder] = {}
        self.told = False

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        sizes = tuple(place.of(inputs) for place in self.places)
        recorder = self.recorders.get(sizes)
        if recorder is None:
            if len(self.recorders) == MOST_SETS_OF_SIZES:
                self.tell_once()
                return self.program(*inputs)
            recorder = self.recorders[sizes] = self.recorder_for(inputs)
        return recorder(*itertools.compress(inputs, self.is_tensor))

    def recorder_for(self, inputs: Sequence[Any]) -> Recorder:
        """A recorder for calls with these sizes."""
        is_number = map(operator.not_, self.is_tensor)
        numbers = list(itertools.compress(inputs, is_number))
        program = with_numbers(self.program, self.is_tensor, numbers)
        return Recorder(program, self.written)

    def tell_once(self) -> None:
        """Say at the first call without a recording that there are none for more sizes."""
        if not self.told:
            tell_that_it_falls_back(
                f"it has recordings for {MOST_SETS_OF_SIZES} other sets of sizes"
            )
        self.told = True


def with_numbers(program: Program, is_tensor: list[bool], numbers: list[Any]) -> Program:
    """The program as a function of its tensors alone."""

    @functools.wraps(program, updated=())
    def run(*tensors: torch.Tensor) -> tuple[Any, ...]:
        given_tensors, given_numbers = iter(tensors), iter(numbers)
        given = [next(given_tensors if each else given_numbers) for each in is_tensor]
        return program(*given)

    run.problems = getattr(program, "problems", [])  # type: ignore[attr-defined]
    return run
