"""The program around the kernels, as readable Python.

In:  the schedule (kernels in order), the memory plan, the loop graph (what comes in, what goes out).
Out: the source of a function `call(x, weight, ...)` that allocates, calls kernels and the library, gives a tuple; names it needs.

    def call(x, weight, bias):
        buf0 = empty_strided((4096, 768), (768, 1), dtype=float32)
        layer_norm_0(x, weight, bias, buf0)                       # layer_norm over [4096], columns [768]
        return (buf0,)
In PyTorch: `torch/_inductor/codegen/wrapper.py`, `PythonWrapperCodegen`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from course_lib.codegen.printer import KernelSource, describe, identifier
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, View
from course_lib.scheduling.kernel import FusedKernel, Kernel
from course_lib.scheduling.memory import MemoryPlan, extent
from course_lib.written import as_tuple

# Where torch keeps quick ways to memory: `as_strided` counts from where its tensor starts
guards = torch._C._dynamo.guards
# Entries that take 3 µs less
QUICK = {f"aten::{name}.out": f"torch.{name}" for name in ("mm", "addmm", "bmm", "baddbmm")}
COMMENT_COLUMN = 76
DTYPES = {
    dtype: str(dtype).removeprefix("torch.")
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
}
DTYPES[torch.bool] = "torch.bool"


class Wrapper:
    """The state of one printing: which Python name holds which buffer. Without a plan nothing is reused or freed."""

    def __init__(
        self,
        order: Sequence[Kernel],
        plan: MemoryPlan | None,
        graph: LoopGraph,
        kernels: Mapping[FusedKernel, KernelSource],
    ) -> None:
        self.order, self.graph, self.kernels = order, graph, kernels
        self.plan = plan or MemoryPlan(free_after=[()] * len(order))
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "torch": torch, "aten": torch.ops.aten, "empty_strided": torch.empty_strided,
            "check": raise_problem, "laid_out": laid_out, "zeros": torch.zeros, "inf": math.inf, "nan": math.nan,
            "tree_leaves": tree_leaves, "as_strided": guards._reinterpret_tensor,
            **{text: dtype for dtype, text in DTYPES.items() if "." not in text},
            # on the current GPU; 1 µs instead of 4
            "problems": [], "empty_cuda": guards._empty_strided_cuda,
            **{source.name: None for source in kernels.values()},
        }  # fmt: skip
        self.buffers = graph.buffers
        # Buffer → the variable that holds it as a tensor of its own shape and strides
        self.variable: dict[str, str] = {}
        # View of a part of a buffer, or in another order → its variable
        self.views: dict[View, str] = {}

    def print(self) -> tuple[str, dict[str, Any]]:
        """The source of `call`, and what must be in its namespace beside the kernels."""
        arguments = [
            self.new(one.name) if one else self.unique(f"unused_{n}")
            for n, one in enumerate(self.graph.inputs)
        ]
        self.names |= {self.new(name): tensor for name, tensor in self.graph.constants.items()}
        self.lines.append(f"def call({', '.join(arguments)}):")
        for kernel, dead in zip(self.order, self.plan.free_after, strict=True):
            if isinstance(kernel, ExternKernel):
                self.print_extern(kernel)
            else:
                self.print_fused(kernel)
            self.free(dead)
        self.line(f"return {as_tuple([self.value(output) for output in self.graph.outputs])}")
        return "\n".join(self.lines) + "\n", self.names

    def unique(self, wanted: str) -> str:
        return identifier(wanted, {*self.names, *self.variable.values(), *self.views.values()})

    def new(self, buffer: str) -> str:
        """The variable of a buffer that has none yet."""
        self.variable[buffer] = self.unique(buffer)
        return self.variable[buffer]

    def line(self, code: str, comment: str = "") -> None:
        row = f"    {code}"
        self.lines.append(f"{row:<{COMMENT_COLUMN}}  # {comment}" if comment else row)

    def allocate(self, name: str) -> str:
        """The variable of a buffer, allocating or reusing memory if it has none yet."""
        if name in self.variable:
            return self.variable[name]
        buffer, storage = self.buffers[name], self.plan.place.get(name, name)
        if storage in self.variable:  # a storage is named after the first buffer in it
            self.reuse(self.buffers[storage], buffer, f"the memory of {storage}")
        else:
            layout, dtype = (
                f"{as_tuple(buffer.shape)}, {as_tuple(buffer.stride)}",
                DTYPES[buffer.dtype],
            )
            device = "" if buffer.device.type == "cpu" else f", device={str(buffer.device)!r}"
            quick = (
                buffer.device.type == "cuda" and len({b.device for b in self.buffers.values()}) == 1
            )
            call = (
                f"empty_cuda({layout}, {dtype})"
                if quick
                else f"empty_strided({layout}, dtype={dtype}{device})"
            )
            self.line(f"{self.new(name)} = {call}")
        return self.variable[name]

    def reuse(self, old: Buffer, new: Buffer, why: str) -> None:
        """`old`'s memory under a new name, as a tensor like `new`."""
        text = self.variable[old.name]
        if old.dtype != new.dtype:
            text = f"as_strided({text}, ({extent(old)},), (1,)).view({DTYPES[new.dtype]})"
        if (old.dtype, old.shape, old.stride) != (new.dtype, new.shape, new.stride):
            text = f"as_strided({text}, {as_tuple(new.shape)}, {as_tuple(new.stride)})"
        self.line(f"{self.new(new.name)} = {text}", why)

    def free(self, storages: Sequence[str]) -> None:
        """Drop every variable whose memory is in one of these storages."""
        dead = [name for name in self.variable if self.plan.place.get(name, name) in storages]
        variables = [self.variable.pop(name) for name in dead]
        variables += [self.views.pop(view) for view in list(self.views) if view.buffer.name in dead]
        if variables:
            self.line(f"del {', '.join(dict.fromkeys(variables))}")

    def view(self, view: View) -> str:
        """A tensor for a view: the buffer itself if it is the whole of it, else made once and kept."""
        variable = self.allocate(view.buffer.name)
        if view.is_whole:
            return variable
        if view not in self.views:
            name = self.unique(f"{variable}_view")
            where = f"{as_tuple(view.shape)}, {as_tuple(view.stride)}{f', {view.offset}' if view.offset else ''}"
            self.line(f"{name} = as_strided({variable}, {where})")
            self.views[view] = name
        return self.views[view]

    def print_fused(self, kernel: FusedKernel) -> None:
        """Memory for what the kernel stores, and its call. A kernel with nothing to do is not called."""
        source = self.kernels[kernel]
        for name, old in kernel.in_place.items():
            self.reuse(self.buffers[old], self.buffers[name], "in place")
        passed = [self.allocate(name) for name in source.buffers]
        if any(loop.size == 0 for loop in kernel.rows):
            self.line("pass", f"{kernel}: no elements")
            return
        if source.checked:
            passed.append(self.problem(kernel))
        sizes = (
            [self.value(torch.tensor(source.sizes, device=kernel.steps[0].buffer.device))]
            if source.sizes
            else []
        )
        self.line(f"{source.name}({', '.join(passed + sizes)})", str(kernel))
        if source.checked:
            self.line(f"check({passed[-1]}, {places(kernel)!r})")

    def problem(self, kernel: FusedKernel) -> str:
        """A flag that the kernel sets. One that a GPU sets is there for good, where both reach it: a later call tells."""
        name = self.unique("problem")
        if kernel.steps[0].buffer.device.type == "cpu":
            self.line(f"{name} = zeros(1, dtype=int64)")
        else:
            flag = torch.zeros(
                1, dtype=torch.int64, device="cpu", pin_memory=torch.cuda.is_available()
            )
            self.names[name] = flag
            self.names["problems"].append((flag, places(kernel)))
        return name

    def print_extern(self, kernel: ExternKernel) -> None:
        """A call of one of torch's own operators."""
        call = self.callee(kernel.op if kernel.out_variant is None else kernel.out_variant)
        arguments = [
            *map(self.value, kernel.args),
            *(f"{key}={self.value(value)}" for key, value in kernel.kwargs.items()),
        ]
        if kernel.out_variant is not None:
            self.line(
                f"{call}({', '.join([*arguments, f'out={self.allocate(kernel.buffers[0].name)}'])})",
                kernel.why,
            )
            return
        call = f"{call}({', '.join(arguments)})"
        targets = [self.new(buffer.name) if buffer else "_" for buffer in kernel.outputs]
        left = f"{', '.join(targets)} = " if targets else ""
        if any(
            "List" in str(r.type)
            for r in getattr(getattr(kernel.op, "_schema", None), "returns", ())
        ):
            left, call = f"{as_tuple(targets)} = ", f"tree_leaves({call})"
        self.line(left + call, kernel.why)
        for buffer, target in zip(kernel.outputs, targets, strict=True):
            if buffer:
                self.line(f"{target} = laid_out({target}, {as_tuple(buffer.stride)})")

    def callee(self, op: Any) -> str:
        """How an operator is called in the source; its object goes into the namespace if it has no path from `torch`."""
        if isinstance(op, torch._ops.OpOverload):
            if op.name() in QUICK:
                return QUICK[op.name()]
            namespace, name = op.name().split("::")[0], op.overloadpacket.__name__
            path = f"{namespace}.{name}.{op._overloadname}"
            return path if namespace == "aten" else f"torch.ops.{path}"
        name = self.unique(getattr(op, "__name__", "function"))
        self.names[name] = op
        return name

    def value(self, value: Any) -> str:
        """An argument or a result as source."""
        if isinstance(value, View):
            return self.view(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, tuple):
            return as_tuple([*map(self.value, value)])
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if (
            value is None
            or isinstance(value, (bool, int, float, str, complex))
            or repr(value).startswith("torch.")
        ):
            return repr(value)
        name = self.unique(f"constant_{len(self.names)}")
        self.names[name] = value
        return name


def places(kernel: FusedKernel) -> str:
    """What a kernel computes, and where in the user's code."""
    return "; ".join(dict.fromkeys(describe(step) for step in kernel.steps))


def laid_out(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """`tensor` with the strides that it was compiled for: of fake tensors an operator may say otherwise."""
    # where fake tensors had one, oneDNN's LSTM has none
    if tensor is None or tensor.stride() == stride:
        return tensor
    return torch.empty_strided(
        tensor.shape, stride, dtype=tensor.dtype, device=tensor.device
    ).copy_(tensor)


def raise_problem(problem: torch.Tensor, where: str) -> None:
    """What eager would have raised, if a kernel said so."""
    if problem.item():
        problem.zero_()
        raise IndexError(f"index out of range in {where}")
