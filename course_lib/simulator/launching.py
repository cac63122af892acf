"""The spine: what happens when a kernel is started on a machine without a GPU.

In:  a kernel, its grid, its arguments.
Out: the tensors as a GPU would leave them; or the compiler's refusal; or a `GPUFault`.
In Triton: `InterpretedFunction.run` and `GridExecutor`; for a GPU `JITFunction.run`.

    bind the arguments
    → ask the compiler (refusals)
    → run the programs (values)
    → look at what they did (faults)
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import inspect
import operator
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from types import FunctionType
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.tools.tensor_descriptor import TensorDescriptor

from course_lib.simulator import judging, language, races, watching
from course_lib.simulator.refused import GPUFault
from course_lib.simulator.rewriting import rewritten
from course_lib.simulator.settings import put, settings, using

Handle = interpreter.TensorHandle


@dataclass
class Call:
    """A launch: each parameter's argument as Python has it, which of them are constants, and the
    options."""

    arguments: dict[str, Any]
    constants: set[str]
    options: dict[str, Any]
    regions: list[watching.Region] = field(default_factory=list)


sentences_of_last_launch: list[str] = []
"""What was found while `collect` is set."""


def launch(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run a kernel as a GPU would."""
    call = bind(kernel, args, kwargs)
    # Functions that a user has registered with Triton, to be called before each launch
    for hook in kernel.pre_run_hooks:
        hook(*args, **{k: v for k, v in kwargs.items() if k in call.arguments})

    if settings.refusals:
        judging.ask(kernel, question_of(call))

    sizes = grid_sizes(grid, call.arguments)
    function = kernel.rewrite()
    with options_in_force(call.options), language_of_the_simulator():
        watch = start_watch(call, sizes)
        try:
            run_programs(function, in_kernel_types(kernel, call), sizes, watch)
            finish(watch)
        finally:
            watching.current = None


def bind(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    """Arguments by name.

    What is no parameter is an option of the compiler; one that it does not know is an error."""
    parameters = set(kernel.arg_names)
    keyword_arguments = {name: value for name, value in kwargs.items() if name in parameters}
    options = {name: value for name, value in kwargs.items() if name not in parameters}

    # The errors are those of a launch on a GPU, word for word.
    for name in options:
        if name not in known_options():
            raise KeyError(f"Keyword argument {name} was specified but unrecognised")
    if "num_warps" in options:
        warps = options["num_warps"]
        assert warps > 0 and warps & (warps - 1) == 0, "num_warps must be a power of 2"

    arguments = dynamic_function(kernel)(*args, **keyword_arguments)
    constants = {name for name, note in kernel.fn.__annotations__.items() if is_constexpr(note)}
    return Call(arguments, constants & parameters, options)


@functools.cache
def dynamic_function(kernel: Any) -> Any:
    """The kernel's parameters as a function that gives its arguments by name: its errors read as
    those of a launch on a GPU."""
    defaults: dict[str, Any] = {}
    shown = []
    for parameter in inspect.signature(kernel.fn).parameters.values():
        name = parameter.name
        if parameter.default is parameter.empty:
            shown.append(name)
        else:
            # A default may have no literal form, so it is fetched by name.
            defaults[name] = parameter.default
            shown.append(f"{name}=__defaults__['{name}']")

    namespace: dict[str, Any] = {"__defaults__": defaults}
    exec(f"def dynamic_func({', '.join(shown)}): return dict(locals())", namespace)
    return namespace["dynamic_func"]


def is_constexpr(note: Any) -> bool:
    """Does this annotation say that the parameter is a constant? It may be a text."""
    return note is tl.constexpr or (isinstance(note, str) and note.endswith("constexpr"))


def known_options() -> set[str]:
    """The compiler's options, and those of a launch."""
    options = type(judging.backend().parse_options({}))
    return {field.name for field in dataclasses.fields(options)} | {"stream", "device_type"}


def question_of(call: Call) -> judging.Question:
    """The same launch as the compiler sees it."""
    signature: dict[str, Any] = {}
    constants: dict[tuple[int, ...], Any] = {}
    for place, (name, argument) in enumerate(call.arguments.items()):
        if name in call.constants:
            signature[name] = "constexpr"
            constants[(place,)] = getattr(argument, "value", argument)
        else:
            signature[name] = judging.describe(name, argument, (place,), constants)
    return judging.Question(signature, constants, call.options)


def grid_sizes(grid: Any, arguments: dict[str, Any]) -> tuple[int, int, int]:
    """Three numbers; a fourth is not looked at, as on a GPU."""
    if callable(grid):
        grid = grid(arguments)
    sizes = [operator.index(grid[n]) for n in range(min(len(grid), 3))]
    return (*sizes, *(1,) * (3 - len(sizes)))  # type: ignore[return-value]


def in_kernel_types(kernel: Any, call: Call) -> dict[str, Any]:
    """The arguments as values of the kernel: a float is a float32, 1 is a constant."""
    values = {}
    for name, argument in call.arguments.items():
        if name in call.constants:
            values[name] = getattr(argument, "value", argument)
        else:
            values[name] = in_kernel_type(name, argument, kernel, call)
    return values


def in_kernel_type(name: str, argument: Any, kernel: Any, call: Call) -> Any:
    """An argument as the interpreter wants it. Of a tensor `call` also notes where it lies."""
    if isinstance(argument, tuple):
        parts = [in_kernel_type(f"{name}[{n}]", x, kernel, call) for n, x in enumerate(argument)]
        if hasattr(argument, "_fields"):
            return type(argument)(*parts)
        return tuple(parts)
    if isinstance(argument, bool):
        return scalar(argument, tl.int1)
    if isinstance(argument, float):
        return scalar(argument, tl.float32)
    if isinstance(argument, int):
        return in_integer_type(name, argument, kernel)

    # `watching` reports what is read or written outside of these regions.
    value = interpreter._implicit_cvt(argument)
    if hasattr(argument, "data_ptr"):
        region = watching.Region(name, interpreter._unwrap_tensor(argument))
        call.regions.append(region)
        value.handle.attr = {"region": region}
    elif isinstance(argument, TensorDescriptor):
        region = watching.Region(name, interpreter._unwrap_tensor(argument.base))
        call.regions.append(region)
    return value


def in_integer_type(name: str, number: int, kernel: Any) -> Any:
    """int32 where it fits, int64 or uint64 else; an annotation decides before that. 1 stays a
    Python number: the compiler takes it for a constant, unless `do_not_specialize` names the
    parameter (or has its place)."""
    note = kernel.fn.__annotations__.get(name)
    if isinstance(note, tl.dtype):
        return scalar(number, note)
    unspecialized = kernel.kwargs.get("do_not_specialize") or ()
    if (
        number == 1
        and name not in unspecialized
        and kernel.arg_names.index(name) not in unspecialized
    ):
        return 1
    if -(2**31) <= number < 2**31:
        return scalar(number, tl.int32)
    return scalar(number, tl.int64 if number < 2**63 else tl.uint64)


def scalar(number: Any, dtype: Any) -> Any:
    """A number as a value of the kernel; what does not fit into the dtype wraps."""
    with np.errstate(over="ignore"):
        data = np.array([number], np.float64 if isinstance(number, float) else None)
        return tl.tensor(Handle(data.astype(interpreter._get_np_dtype(dtype)), dtype), dtype)


def start_watch(call: Call, sizes: tuple[int, int, int]) -> watching.Watch | None:
    """The watch of this launch; None where nothing is checked."""
    if not settings.checks:
        return None
    return watching.Watch(call.regions, sizes)


def run_programs(
    function: Any, values: dict[str, Any], sizes: tuple[int, int, int], watch: Any
) -> None:
    """One program after the other, in the order that was asked for."""
    if watch is not None:
        for region in watch.regions:
            reference, unwritten = watching.unwritten_tensors.get(region.base, (None, None))
            # The tensor that was marked must still be there: another one may have got its memory.
            if reference is not None and reference() is not None:
                watch.never_written[region] = unwritten

    builder = interpreter.interpreter_builder
    builder.set_grid_dim(*sizes)
    watching.current = watch
    with np.errstate(all="ignore"):
        for program in order(sizes):
            builder.set_grid_idx(*program)
            if watch is not None:
                watch.program = program
            run_one(function, values)


def run_one(function: Any, values: dict[str, Any]) -> None:
    """One program. An error of its Python is an `InterpreterError`, as in Triton's interpreter."""
    try:
        function(**values)
    except (GPUFault, NotImplementedError, InterpreterError):
        raise
    except Exception as error:
        raise InterpreterError(repr(error)) from error


def order(sizes: tuple[int, int, int]) -> Any:
    """The programs' numbers, shuffled if there is a seed."""
    programs = product(*(range(size) for size in sizes))
    if settings.seed is None:
        return programs
    shuffled = list(programs)
    random.Random(settings.seed).shuffle(shuffled)
    return shuffled


def finish(watch: watching.Watch | None) -> None:
    """Look for races, and raise or keep what was found."""
    global sentences_of_last_launch
    if watch is None:
        sentences_of_last_launch = []
        return
    faults = [*watch.sentences, *races.find(watch)]
    sentences_of_last_launch = faults
    if faults and not settings.collect:
        raise GPUFault(faults)


@contextlib.contextmanager
def options_in_force(options: dict[str, Any]) -> Iterator[None]:
    """`enable_fp_fusion=False` and its like, for one launch."""
    changes = {}
    if "enable_fp_fusion" in options:
        changes["fusion"] = settings.fusion and bool(options["enable_fp_fusion"])
    if "enable_reflect_ftz" in options:
        changes["flush"] = settings.flush and bool(options["enable_reflect_ftz"])
    if options.get("debug"):
        changes["debug"] = True
    if not changes:
        yield
        return
    with using(**changes):
        yield


# The language in place
# ------------------------------------------------------------------------------------------------


@dataclass
class Patch:
    """One attribute of Triton's language: its value for the compiler, and its value for the
    simulator."""

    owner: Any
    name: str
    compiled: Any
    simulated: Any


MISSING = object()
"""The value of an attribute that is not there."""
patches: list[Patch] = []
"""All that differs between the language of the compiler and that of the simulator; `find_patches`
fills it once."""
depth = 0
"""How many launches are running, one inside the other (a hook may start a kernel)."""


def find_patches() -> None:
    """Fill `patches`: what Triton's interpreter changes in its language for each launch, and what
    the simulator changes besides. The language itself is left as the compiler takes it."""
    # The compiler keeps some functions of the language in a table of its own. It must see them as
    # they are without patches.
    importlib.import_module("triton.compiler.code_generator")

    owners = [tl, tl.core, tl.tensor, tl.math, tl.dtype, tl.core.tensor_descriptor_base]
    attributes_before = {id(owner): dict(vars(owner)) for owner in owners}

    # Triton puts its interpreter's language into the modules that a function has among its globals.
    # `scope` can undo that; older versions give None.
    names = {"tl": tl, "core": tl.core}
    scope = interpreter._patch_lang(FunctionType((lambda: None).__code__, names))
    for owner in (tl, tl.core):
        owner.range, owner.static_range = language.Loop, language.StaticLoop
        owner.static_assert, owner.static_print = language.static_assert, language.static_print
    # Triton's own code asks `if other`: is there one? A kernel's `if` is `language.condition`
    tl.dot_scaled = tl.core.dot_scaled = language.with_named_formats(tl.dot_scaled)
    tl.tensor.__bool__ = lambda self: True
    tl.tensor.__index__ = lambda self: int(np.ravel(self.handle.data)[0])

    for owner in owners:
        old = attributes_before[id(owner)]
        for name, value in list(vars(owner).items()):
            if value is not old.get(name, MISSING):
                patches.append(Patch(owner, name, old.get(name, MISSING), value))
    if scope is not None:
        scope.restore()
    put_language(simulated=False)


def put_language(simulated: bool) -> None:
    """Put into `triton.language` what the simulator runs, or what the compiler takes."""
    for patch in patches:
        value = patch.simulated if simulated else patch.compiled
        if value is not MISSING:
            setattr(patch.owner, patch.name, value)
        elif patch.name in vars(patch.owner):
            delattr(patch.owner, patch.name)


@contextlib.contextmanager
def language_of_the_simulator() -> Iterator[None]:
    """Inside, `tl.load` and its like run at once. Outside they are the compiler's, which other code
    may ask for."""
    global depth
    depth += 1
    if depth == 1:
        put_language(simulated=True)
    try:
        yield
    finally:
        depth -= 1
        if depth == 0:
            put_language(simulated=False)


def put_in_place() -> None:
    """Kernels of Triton's interpreter start here from now on."""

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        if not warmup:
            launch(self, grid, args, kwargs)

    def rewrite(self: Any) -> Any:
        if self.fn not in self.rewritten_fn:
            self.rewritten_fn[self.fn] = rewritten(self.fn)
        return self.rewritten_fn[self.fn]

    def call_from_a_kernel(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self.rewrite()(*args, **kwargs)

    # Fill `patches`, which each launch puts into `triton.language` and takes out again
    find_patches()
    kernel = interpreter.InterpretedFunction
    kernel.run, kernel.rewrite, kernel.__call__ = run, rewrite, call_from_a_kernel
    # What Triton itself has rewritten so far is not ours.
    kernel.rewritten_fn.clear()


__all__ = ["launch", "put", "put_in_place"]
