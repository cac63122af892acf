"""The program around the kernels, as readable Python.

In:  the schedule (kernels in order), the memory plan, the loop graph (what comes in, what goes
     out).
Out: the source of a function `call(x, weight, ...)` that allocates, calls kernels and the library,
     and gives a tuple; and the names that this source needs.

    def call(x, weight, bias):
        buf0 = empty_strided((4096, 768), (768, 1), dtype=float32)
        layer_norm_0(x, weight, bias, buf0)  # layer_norm over [4096], columns [768]
        return (buf0,)
In PyTorch: `torch/_inductor/codegen/wrapper.py`, `PythonWrapperCodegen`.
"""

import math
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any, NamedTuple

import sympy
import torch
from torch.utils._pytree import tree_leaves

from course_lib.codegen.printer import KernelSource, describe, identifier
from course_lib.lowering.ir import Buffer, ExternKernel, LoopGraph, View
from course_lib.scheduling.kernel import FusedKernel, Kernel
from course_lib.scheduling.memory import MemoryPlan
from course_lib.scheduling.stream_nodes import Streamed
from course_lib.sizes import NeedsNumbers, Real, Size, name_of_size, same, text_of
from course_lib.written import as_tuple

# Where torch keeps quick ways to memory. (Its `as_strided` counts from where the tensor starts, not
# from where its storage does.)
guards = torch._C._dynamo.guards
# These operators have entries that take 3 µs less
QUICK = {f"aten::{name}.out": f"torch.{name}" for name in ("mm", "addmm", "bmm", "baddbmm")}
COMMENT_COLUMN = 76  # Where the comment behind a line begins


def dtypes_by_name() -> dict[torch.dtype, str]:
    """How each dtype is written: `float32`; but `torch.bool`, for `bool` is Python's own."""
    names: dict[torch.dtype, str] = {}
    for dtype in vars(torch).values():
        if isinstance(dtype, torch.dtype):
            names[dtype] = str(dtype).removeprefix("torch.")
    names[torch.bool] = "torch.bool"
    return names


DTYPES = dtypes_by_name()


class Program(NamedTuple):
    """What was printed: the source of `call`, and what must be in its namespace beside the
    kernels."""

    source: str
    names: dict[str, Any]


class Wrapper:
    """The state of one printing: which Python name holds which buffer.

    Without a plan nothing is reused or freed."""

    def __init__(
        self,
        order: Sequence[Kernel],
        plan: MemoryPlan | None,
        graph: LoopGraph,
        kernels: Mapping[FusedKernel | Streamed, KernelSource],
    ) -> None:
        self.order, self.graph, self.kernels = order, graph, kernels
        self.plan = plan or MemoryPlan(free_after=[()] * len(order))
        self.buffers = graph.buffers
        self.lines: list[str] = []
        self.names = namespace()
        for source in kernels.values():
            # The program is given the kernels when they are built.
            self.names[source.name] = None

        # Buffer → the variable that holds it as a tensor of its own shape and strides
        self.variable: dict[str, str] = {}
        # Symbol of a size → its name; symbols that a kernel takes → the tensor that holds them
        self.symbols: dict[Any, sympy.Symbol] = {}
        self.tensors_of_sizes: dict[tuple[Any, ...], str] = {}
        # View of a part of a buffer, or in another order → its variable
        self.views: dict[View, str] = {}

        devices = {buffer.device for buffer in self.buffers.values()}
        self.has_one_device = len(devices) == 1

    def print(self) -> Program:
        """The whole program."""
        arguments = []
        for n, buffer in enumerate(self.graph.inputs):
            if buffer:
                argument = self.new(buffer.name)
            else:
                # A number, or an input that no kernel reads
                argument = self.unique(self.graph.numbers.get(n) or f"unused_{n}")
                self.names[argument] = None
            arguments.append(argument)
        self.name_arguments(arguments)

        constants: dict[str, Any] = {}
        for name, tensor in self.graph.constants.items():
            constants[self.new(name)] = tensor
        self.names |= constants

        self.arguments = arguments
        self.lines.append(f"def call({', '.join(arguments)}):")
        for kernel, dead in zip(self.order, self.plan.free_after, strict=True):
            if isinstance(kernel, Streamed):
                self.print_streamed(kernel)
            elif isinstance(kernel, ExternKernel):
                self.print_extern(kernel)
            else:
                self.print_fused(kernel)
            self.free(dead)

        results = [self.value(output) for output in self.graph.outputs]
        self.line(f"return {as_tuple(results)}")
        # Only now is it known which sizes are needed. They stand below `def`.
        self.lines[1:1] = self.lines_of_sizes()
        return Program("\n".join(self.lines) + "\n", self.names)

    # --- names and lines

    def unique(self, wanted: str) -> str:
        """A name like `wanted` that nothing else has here."""
        used_names = {*self.names, *self.variable.values(), *self.views.values()}
        return identifier(wanted, used_names)

    def new(self, buffer: str) -> str:
        """The variable of a buffer that has none yet."""
        self.variable[buffer] = self.unique(buffer)
        return self.variable[buffer]

    def line(self, code: str, comment: str = "") -> None:
        row = f"    {code}"
        if comment:
            row = f"{row:<{COMMENT_COLUMN}}  # {comment}"
        self.lines.append(row)

    # --- symbolic sizes

    def size(self, value: Any) -> str:
        """A size as source: a number, or a formula of names that are given once, at the top
        (`s0 = x.shape[0]`)."""
        if not isinstance(value, (Size, Real)):
            return str(value)
        return self.formula(value.expr)

    def formula(self, expr: sympy.Expr) -> str:
        """A formula of sizes as source."""
        names = {symbol: self.size_symbol(symbol) for symbol in expr.free_symbols}
        return text_of(expr, names)

    def sizes(self, values: Sequence[Any]) -> str:
        """A shape or strides."""
        return as_tuple(map(self.size, values))

    def name_arguments(self, arguments: Sequence[str]) -> None:
        """A size that is an argument itself has its name already."""
        for symbol, place in self.graph.places.items():
            if place.dim is None:
                name = arguments[place.input]
                self.symbols[symbol] = sympy.Symbol(name, integer=True, positive=True)

    def size_symbol(self, symbol: Any) -> sympy.Symbol:
        """The name that a symbol has here."""
        if symbol not in self.symbols:
            name = self.unique(symbol.name)
            self.names[name] = None  # taken: `unique` gives it to nobody else
            self.symbols[symbol] = sympy.Symbol(name, integer=True, positive=True)
        return self.symbols[symbol]

    def sizes_of_kernel(self, symbols: Sequence[Any]) -> str:
        """The tensor in which a kernel is given its sizes: one for all kernels that take the
        same."""
        key = tuple(symbols)
        if key not in self.tensors_of_sizes:
            name = self.unique("_".join(["sizes", *map(name_of_size, key)]))
            self.names[name] = None  # taken
            self.tensors_of_sizes[key] = name
        return self.tensors_of_sizes[key]

    def lines_of_sizes(self) -> list[str]:
        """What stands at the top: each symbol's value in this call, and the tensors in which
        kernels get them."""
        tensors = {}
        for key, name in self.tensors_of_sizes.items():
            tensors[name] = ", ".join(map(self.formula, key))

        places = self.graph.places
        lines = []
        for symbol, name in sorted(self.symbols.items(), key=lambda pair: pair[0].name):
            if symbol not in places:
                raise NeedsNumbers(f"the size {symbol} is no size of this graph's inputs")
            place = places[symbol]
            if place.dim is not None:
                lines.append(f"    {name} = {place.source(self.arguments[place.input])}")

        lines += [f"    {name} = tensor([{values}])" for name, values in tensors.items()]
        return lines

    # --- memory

    def allocate(self, name: str) -> str:
        """The variable of a buffer; if it has none yet, memory is allocated or reused."""
        if name in self.variable:
            return self.variable[name]

        # A storage is named after the first buffer in it.
        buffer, storage = self.buffers[name], self.plan.place.get(name, name)
        if storage in self.variable:
            self.reuse(self.buffers[storage], buffer, f"the memory of {storage}")
        else:
            memory = self.new_memory(buffer)
            self.line(f"{self.new(name)} = {memory}")
        return self.variable[name]

    def new_memory(self, buffer: Buffer) -> str:
        """The call that allocates a buffer."""
        dtype = DTYPES[buffer.dtype]
        layout = f"{self.sizes(buffer.shape)}, {self.sizes(buffer.stride)}"

        # The quick way allocates on the current GPU: `call` makes it that of the tensors if they
        # are all on one.
        if buffer.device.type == "cuda" and self.has_one_device:
            return f"empty_cuda({layout}, {dtype})"

        device = ""
        if buffer.device.type != "cpu":
            device = f", device={str(buffer.device)!r}"
        return f"empty_strided({layout}, dtype={dtype}{device})"

    def reuse(self, old: Buffer, new: Buffer, why: str) -> None:
        """`old`'s memory under a new name, as a tensor like `new`."""
        text = self.variable[old.name]
        if old.dtype != new.dtype:
            # `view(dtype)` wants dense memory, so the tensor is made flat first.
            flat = f"as_strided({text}, {self.sizes([old.extent])}, (1,))"
            text = f"{flat}.view({DTYPES[new.dtype]})"

        if not old.lies_like(new):
            shape, stride = self.sizes(new.shape), self.sizes(new.stride)
            text = f"as_strided({text}, {shape}, {stride})"
        self.line(f"{self.new(new.name)} = {text}", why)

    def free(self, storages: Sequence[str]) -> None:
        """Drop every variable whose memory is in one of these storages."""
        dead = [name for name in self.variable if self.plan.place.get(name, name) in storages]
        variables = [self.variable.pop(name) for name in dead]

        dead_views = [view for view in self.views if view.buffer.name in dead]
        variables += [self.views.pop(view) for view in dead_views]
        if variables:
            self.line(f"del {', '.join(dict.fromkeys(variables))}")

    def view(self, view: View) -> str:
        """A tensor for a view: the buffer itself if it is the whole of it, else made once and
        kept."""
        variable = self.allocate(view.buffer.name)
        if view.is_whole:
            return variable

        if view not in self.views:
            name = self.unique(f"{variable}_view")
            where = f"{self.sizes(view.shape)}, {self.sizes(view.stride)}"
            if not same(view.offset, 0):
                where += f", {self.size(view.offset)}"
            self.line(f"{name} = as_strided({variable}, {where})")
            self.views[view] = name
        return self.views[view]

    # --- our own kernels

    def print_fused(self, kernel: FusedKernel) -> None:
        """Memory for what the kernel stores, and its call.

        A kernel with nothing to do is not called."""
        source = self.kernels[kernel]
        # A buffer that is written in place is another name for its operand, so nothing is allocated
        # for it below.
        for name, old in kernel.in_place.items():
            self.reuse(self.buffers[old], self.buffers[name], "in place")

        passed = [self.allocate(name) for name in source.buffers]
        if any(same(loop.size, 0) for loop in kernel.rows):
            self.line("pass", f"{kernel}: no elements")
            return

        # Behind the buffers: a flag for indices out of range, and the sizes of this call
        problem = ""
        if source.checked:
            problem = self.problem(kernel)
        if problem:
            passed.append(problem)
        if source.language == "triton":
            passed += map(self.formula, source.symbols)
        elif source.symbols:
            passed.append(self.sizes_of_kernel(source.symbols))
        if source.sizes:
            sizes = torch.tensor(source.sizes, device=kernel.device)
            passed.append(self.value(sizes))

        self.line(f"{source.name}({', '.join(passed)})", str(kernel))
        if problem:
            self.line(f"check({problem}, {places(kernel)!r})")

    def print_streamed(self, kernel: Streamed) -> None:
        """Memory for the result, and the call."""
        source = self.kernels[kernel]
        passed = [self.allocate(name) for name in source.buffers]
        self.line(f"{source.name}({', '.join(passed)})", str(kernel))

    def problem(self, kernel: FusedKernel) -> str:
        """The name of the flag that the kernel sets when it finds an index out of range.

        On a CPU each call makes one. For a GPU one is made here, in host memory that the GPU can
        reach. Nobody waits for the GPU, so an error may be told by a later call."""
        name = self.unique("problem")
        if kernel.device.type == "cpu":
            self.line(f"{name} = zeros(1, dtype=int64)")
            return name

        pinned = torch.cuda.is_available()
        flag = torch.zeros(1, dtype=torch.int64, device="cpu", pin_memory=pinned)
        self.names[name] = flag
        self.names["problems"].append((flag, places(kernel)))
        return name

    # --- calls of the library

    def print_extern(self, kernel: ExternKernel) -> None:
        """A call of one of torch's own operators."""
        # The operator first: a name that it needs comes before those of its arguments.
        writes_into_ours = kernel.out_variant is not None
        op = kernel.out_variant if writes_into_ours else kernel.op
        callee = self.callee(op)
        arguments = [self.value(argument) for argument in kernel.args]
        for key, value in kernel.kwargs.items():
            arguments.append(f"{key}={self.value(value)}")

        if writes_into_ours:
            out = self.allocate(kernel.buffers[0].name)
            arguments.append(f"out={out}")
            self.line(f"{callee}({', '.join(arguments)})", kernel.why)
            return

        call = f"{callee}({', '.join(arguments)})"
        targets = [self.new(buffer.name) if buffer else "_" for buffer in kernel.outputs]
        if returns_lists(kernel.op):
            # Lists and tensors, one after the other
            self.line(f"{as_tuple(targets)} = tree_leaves({call})", kernel.why)
        elif targets:
            self.line(f"{', '.join(targets)} = {call}", kernel.why)
        else:
            self.line(call, kernel.why)

        for buffer, target in zip(kernel.outputs, targets, strict=True):
            if buffer:
                self.line(f"{target} = laid_out({target}, {self.sizes(buffer.stride)})")

    def callee(self, op: Any) -> str:
        """How an operator is called in the source.

        An object that has no path from `torch` goes into the namespace."""
        if not isinstance(op, torch._ops.OpOverload):
            name = self.unique(getattr(op, "__name__", "function"))
            self.names[name] = op
            return name

        if op.name() in QUICK:
            return QUICK[op.name()]

        namespace, _, _ = op.name().partition("::")
        packet = f"{namespace}.{op.overloadpacket.__name__}"
        if namespace != "aten":
            packet = f"torch.ops.{packet}"

        overload = op._overloadname
        if iskeyword(overload):
            # `aten.random.from` is no Python
            return f"getattr({packet}, {overload!r})"
        return f"{packet}.{overload}"

    def value(self, value: Any) -> str:
        """An argument or a result as source."""
        if isinstance(value, (Size, Real)):
            return self.size(value)
        if isinstance(value, View):
            return self.view(value)
        if isinstance(value, list):
            return f"[{', '.join(map(self.value, value))}]"
        if isinstance(value, tuple):
            return as_tuple([self.value(each) for each in value])
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"

        # Numbers, and what torch itself writes so: `torch.float32`, `torch.strided`
        is_plain = value is None or isinstance(value, (bool, int, float, str, complex))
        if is_plain or repr(value).startswith("torch."):
            return repr(value)

        name = self.unique(f"constant_{len(self.names)}")
        self.names[name] = value
        return name


def namespace() -> dict[str, Any]:
    """The names that every program may use."""
    names: dict[str, Any] = {
        "torch": torch,
        "aten": torch.ops.aten,
        "math": math,
        "inf": math.inf,
        "nan": math.nan,
        "zeros": torch.zeros,
        "tensor": torch.tensor,
        "tree_leaves": tree_leaves,
        # Memory, and tensors that look at it in another way. On the current GPU: 1 µs instead of 4
        "empty_strided": torch.empty_strided,
        "empty_cuda": guards._empty_strided_cuda,
        "as_strided": guards._reinterpret_tensor,
        "laid_out": laid_out,
        # Errors that depend on data: what raises them, and the flags that a GPU sets
        "check": raise_problem,
        "problems": [],
    }
    for dtype, text in DTYPES.items():
        if "." not in text:
            names[text] = dtype
    return names


def returns_lists(op: Any) -> bool:
    """True if an operator's schema says that one of its results is a list of tensors."""
    schema = getattr(op, "_schema", None)
    if schema is None:
        return False
    return any("List" in str(result.type) for result in schema.returns)


def places(kernel: FusedKernel) -> str:
    """What a kernel computes, and where in the user's code."""
    return "; ".join(dict.fromkeys(describe(step) for step in kernel.steps))


def laid_out(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """`tensor` with the strides that it was compiled for: a fake tensor's may differ from the
    operator's real result."""
    # oneDNN's LSTM gives no tensor where the fake one gave one.
    if tensor is None or tensor.stride() == stride:
        return tensor

    copy = torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


def raise_problem(problem: torch.Tensor, where: str) -> None:
    """What eager would have raised, if a kernel said so. Raises `IndexError`."""
    if problem.item():
        problem.zero_()
        raise IndexError(f"index out of range in {where}")
