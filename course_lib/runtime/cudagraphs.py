"""A program's kernels recorded once as a CUDA graph, then started all together.

In:  a compiled program whose tensors are all on one GPU.
Out: a program that does the same; a call costs one start instead of one for each kernel.

A recording reads and writes fixed addresses. Parameters, and what another recording has computed, stay where they are; an input
that was seen at two addresses is copied into memory of the recording. What a recording has computed lies in memory that nothing
else gets: as long as somebody holds a result it is not played again, and a second recording serves meanwhile (forward twice, then
backward). What is temporary lies in a pool that all recordings of a stream share, for they run one after the other.
In PyTorch: `torch/_inductor/cudagraph_trees.py` (there results are in the shared pool too, along the paths that a program takes).
"""

import itertools
import operator
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from course_lib import events
from course_lib.autograd import Program
from course_lib.codegen.wrapper import raise_problem
from course_lib.lowering.ir import LoopGraph

MOST = 4  # Recordings of one program; a call that none of them can serve runs kernel by kernel
# Recordings of one program that are ever made: addresses that always change are not worth it
MANY = 32

fixed: set[int] = set()  # Addresses of what recordings have computed, as long as they are there
pools: dict[Any, Any] = {}  # For each stream, the memory of its recordings


def with_cuda_graphs(program: Program, graph: LoopGraph) -> Program:
    """The program by recordings, or as it is where that cannot be."""
    if reason := why_not(graph):
        events.emit(
            events.FellBack(
                "the program starts its kernels one by one, without a CUDA graph", reason
            )
        )
        return program
    return Recorder(program, {graph.inputs.index(buffer) for buffer in graph.updates.values()})


def why_not(graph: LoopGraph) -> str | None:
    """What keeps this program from being recorded, or None."""
    devices = sorted({str(buffer.device) for buffer in graph.buffers.values()})
    if len(devices) != 1 or not devices[0].startswith("cuda"):
        return f"its tensors are on {' and '.join(devices) or 'no device'}"
    if None in graph.inputs:
        return "one of its inputs is a number"
    return None if graph.nodes else "it has no kernel"


def stream_on(device: torch.device) -> tuple[int, int, int]:
    """Where work on this GPU is started now."""
    return torch._C._cuda_getCurrentStream(device.index)


def capture(program: Program, given: Sequence[Any]) -> tuple[Callable[[], None], tuple[Any, ...]]:
    """Record what the program starts: how to start it again, and the results that are then computed anew."""
    graph, stream = torch.cuda.CUDAGraph(), stream_on(given[0].device)
    if stream not in pools:
        pools[stream] = torch.cuda.MemPool()
    with torch.cuda.graph(graph, pool=pools[stream].id, capture_error_mode="thread_local"):
        results = program(*given)
    return graph.replay, results


class Recording:
    """One CUDA graph, and the memory that it reads and writes."""

    def __init__(self, program: Program, inputs: Sequence[torch.Tensor], moving: set[int]) -> None:
        self.moving, self.staying = sorted(moving), [n not in moving for n in range(len(inputs))]
        self.addresses = [x.data_ptr() for x in itertools.compress(inputs, self.staying)]
        self.device = inputs[0].device
        self.stream = stream_on(self.device)
        self.program, given, moved = program, list(inputs), [inputs[n] for n in self.moving]
        if any(torch._debug_has_internal_overlap(x) == 1 for x in moved):
            raise RuntimeError(
                "an input that must be copied has elements that share memory (`expand`)"
            )
        with torch.inference_mode(False), torch.no_grad():
            self.copies = [
                torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device)
                for x in moved
            ]
            for n, copy in zip(self.moving, self.copies, strict=True):
                given[n] = copy
            self.replay, results = capture(program, given)
        self.fresh = [
            r for r in results if isinstance(r, torch.Tensor) and not any(r is x for x in given)
        ]
        self.rest = [r for r in results if not isinstance(r, torch.Tensor)]
        place = {id(each): n for n, each in enumerate((*given, *self.fresh, *self.rest))}
        self.places = [place[id(r)] for r in results]
        others = {x.untyped_storage()._cdata for n, x in enumerate(inputs) if n not in moving}
        storages = {
            r.untyped_storage()._cdata for r in results if isinstance(r, torch.Tensor)
        } - others
        self.held = {storage: torch._C._storage_Use_Count(storage) for storage in storages}
        addresses = {r.data_ptr() for r in results if isinstance(r, torch.Tensor)} - fixed
        fixed.update(addresses)
        weakref.finalize(self, fixed.difference_update, addresses)

    def is_at(self, addresses: Sequence[int]) -> bool:
        """Are the inputs where they were?"""
        return [*itertools.compress(addresses, self.staying)] == self.addresses

    def is_free(self) -> bool:
        """Does nobody hold the results of the last time any more, and is this its stream?"""
        free = all(
            map(operator.le, map(torch._C._storage_Use_Count, self.held), self.held.values())
        )
        return free and stream_on(self.device) == self.stream

    def play(self, inputs: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        if self.copies:
            torch._foreach_copy_(self.copies, [inputs[n] for n in self.moving])
        self.replay()
        return tuple(
            map(
                [*inputs, *map(torch.Tensor.detach, self.fresh), *self.rest].__getitem__,
                self.places,
            )
        )


class Recorder:
    """Runs a program: the first time as it is, then by a recording that fits."""

    def __init__(self, program: Program, written: Collection[int] = ()) -> None:
        self.program = program
        self.written = written  # Inputs that kernels write to: a copy would not do
        self.problems = getattr(program, "problems", [])
        self.first: list[int] | None = None  # Where the inputs were in the first call
        self.moving: set[int] = set()
        self.recordings: list[Recording] = []
        self.problem = ""
        self.made = 0

    def __call__(self, *inputs: torch.Tensor) -> tuple[Any, ...]:
        if self.problem or torch.cuda.is_current_stream_capturing():
            return self.program(*inputs)
        for problem in self.problems:
            raise_problem(*problem)
        addresses = [*map(torch.Tensor.data_ptr, inputs)]
        if self.first is None:  # builds what is built on first use, outside of any recording
            self.first = addresses
            return self.program(*inputs)
        for recording in self.recordings:
            if recording.is_at(addresses) and recording.is_free():
                return recording.play(inputs)
        return self.record(inputs, addresses)

    def record(self, inputs: Sequence[torch.Tensor], addresses: list[int]) -> tuple[Any, ...]:
        assert self.first is not None
        known = lambda n: n in self.moving or n in self.written
        stays = lambda n: known(n) or addresses[n] == self.first[n] or addresses[n] in fixed
        if moved := {n for n in range(len(inputs)) if not stays(n)}:
            self.moving |= moved
            self.recordings.clear()
        if len(self.recordings) == MOST:  # those for addresses of before have had their time
            self.recordings = [
                recording for recording in self.recordings if recording.is_at(addresses)
            ]
        if len(self.recordings) == MOST or self.made == MANY:
            return self.program(*inputs)
        self.made += 1
        try:
            self.recordings.append(Recording(self.program, inputs, self.moving))
        except RuntimeError as error:
            self.problem = str(error).splitlines()[0]
            events.emit(
                events.FellBack(
                    "the program starts its kernels one by one, without a CUDA graph", self.problem
                )
            )
            return self.program(*inputs)
        events.emit(events.CudaGraphRecorded(self.program, len(self.recordings), len(self.moving)))
        return self.recordings[-1].play(inputs)
