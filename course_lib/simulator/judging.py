"""Would the compiler take this kernel? It is asked, for a GPU that need not be there.

In:  a kernel and the arguments of a launch.
Out: nothing, or the compiler's own error with its sentence and line.
In Triton: `triton/compiler/compiler.py`, `compile`; it is stopped before PTX, for `ptxas` need not
be there.

A verdict is kept in the cache folder: a kernel pays once for each combination of types and
constants.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import hashlib
import json
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from types import FunctionType
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import errors
from triton.compiler.compiler import ASTSource, make_backend
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, mangle_type

from course_lib import config

TARGET = GPUTarget("cuda", 90, 32)
"""An H100 or H200."""

PTX_VERSION = 86
"""The version of PTX that is written. If none is given, Triton runs `ptxas` to ask for it."""

FORM = 2
"""The version of the verdicts on disk. It is raised when the compiler is asked in another way: then
verdicts with a lower number do not count."""

LARGEST = 1 << 17
"""Elements of a block. LLVM's form has a line for each number that a thread holds: of a larger
block it takes minutes, and what the compiler refuses was refused before."""


@dataclass
class Question:
    """What a launch asks of the compiler: the type of each parameter, the value of each constant,
    the options."""

    signature: dict[str, Any]
    constants: dict[tuple[int, ...], Any]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """A text that differs for two questions that differ."""
        return repr((self.signature, self.constants, sorted(self.options.items())))


@dataclass
class Sentence:
    """One error of a chain: its class, its text, and that of the error behind it."""

    module: str
    name: str
    text: str
    cause: Sentence | None = None

    @classmethod
    def of(cls, error: BaseException) -> Sentence:
        cause = None if error.__cause__ is None else cls.of(error.__cause__)
        kind = type(error)
        return cls(kind.__module__, kind.__qualname__, str(error), cause)

    @classmethod
    def read(cls, record: dict[str, Any]) -> Sentence:
        cause = record["cause"] and cls.read(record["cause"])
        return cls(record["module"], record["name"], record["text"], cause)

    def error(self) -> Exception:
        """The error again. Its class is Triton's or Python's own; else it is a RuntimeError."""
        home = errors if self.module == errors.__name__ else builtins
        kind = getattr(home, self.name, RuntimeError)
        # The constructors of Triton's take the source and the place: the text has both already
        error = kind.__new__(kind)
        Exception.__init__(error, self.text)
        if hasattr(kind, "_format_message"):
            error.message = self.text
            error.error_message = self.text
        error.__cause__ = None if self.cause is None else self.cause.error()
        return error


verdicts: dict[Any, Sentence | None] = {}
"""Kernel and the key of the question → the compiler's error as a sentence, or None: it compiles."""


@functools.cache
def backend() -> Any:
    """Triton's compiler for `TARGET`."""
    return make_backend(TARGET)


def describe(
    parameter: str, argument: Any, place: tuple[int, ...], constants: dict[Any, Any]
) -> Any:
    """The type of an argument as the compiler writes it. 1 and None become constants, as in a
    launch on a GPU."""
    if isinstance(argument, tuple):
        parts = [describe(parameter, x, (*place, n), constants) for n, x in enumerate(argument)]
        if hasattr(argument, "_fields"):
            return type(argument)(*parts)
        return tuple(parts)
    if argument is None or (type(argument) is int and argument == 1):
        constants[place] = argument
        return "constexpr"
    return mangle_type(argument)


def ask(kernel: Any, question: Question) -> None:
    """Raise what the compiler would raise."""
    key = (kernel, question.key)
    if key not in verdicts:
        verdicts[key] = verdict(kernel, question)
    sentence = verdicts[key]
    if sentence is not None:
        raise sentence.error()


def verdict(kernel: Any, question: Question) -> Sentence | None:
    """From the cache folder, or from the compiler."""
    with compiled_language():
        function = jit_function(kernel, {})
        try:
            source = ASTSource(function, question.signature, question.constants)
            versions = f"{FORM} {triton.__version__} {TARGET} {PTX_VERSION}"
            text = f"{versions} {source.hash()} {question.key}"
        except Exception as error:
            return Sentence.of(error)

        file = config.cache_dir() / "verdicts" / f"{hashlib.sha256(text.encode()).hexdigest()}.json"
        with contextlib.suppress(OSError, ValueError):
            record = json.loads(file.read_text())
            return record and Sentence.read(record)

        sentence = compile_for_target(source, question.options)
        with contextlib.suppress(OSError):
            file.parent.mkdir(exist_ok=True)
            file.write_text(json.dumps(sentence and asdict(sentence)))
        return sentence


def compile_for_target(source: Any, options: dict[str, Any]) -> Sentence | None:
    """Through TTIR and TTGIR to LLVM IR; the error on the way, if there is one."""
    from triton._C.libtriton import ir

    context = ir.context()
    ir.load_dialects(context)
    backend().load_dialects(context)
    stages: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    try:
        parsed = backend().parse_options({"ptx_version": PTX_VERSION, **options})
        functions = backend().get_codegen_implementation(parsed)
        module = source.make_ir(TARGET, parsed, functions, backend().get_module_map(), context)
        backend().add_stages(stages, parsed, source.language)
        for stage in ("ttir", "ttgir", "llir"):
            # (`LARGEST` says why)
            if stage == "llir" and largest_block(str(module)) > LARGEST:
                break
            module = stages[stage](module, metadata)
    except Exception as error:
        # A tool that is not installed says nothing about the kernel
        if "Cannot find ptxas" in str(error):
            return None
        return Sentence.of(error)
    return None


def largest_block(text: str) -> int:
    """Elements of the largest block in a module: of `tensor<1024x64xf32, #blocked>` 65,536."""
    shapes = set(re.findall(r"tensor<((?:\d+x)+)", text))
    return max((math.prod(map(int, shape[:-1].split("x"))) for shape in shapes), default=0)


@contextlib.contextmanager
def compiled_language() -> Iterator[None]:
    """Inside, `tl.sum` and its like are what the compiler takes.

    In the interpreter they are functions of it."""
    for module, name, _, compiled in functions_of_the_language():
        setattr(module, name, compiled)
    try:
        yield
    finally:
        for module, name, interpreted, _ in functions_of_the_language():
            setattr(module, name, interpreted)


@functools.cache
def functions_of_the_language() -> list[tuple[Any, str, Any, Any]]:
    """(module, name, for the interpreter, for the compiler)."""
    functions = []
    compiled_functions: dict[Any, Any] = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.startswith("triton.language"):
            for name, value in list(vars(module).items()):
                if isinstance(value, InterpretedFunction):
                    compiled_functions.setdefault(value, JITFunction(value.fn))
                    functions.append((module, name, value, compiled_functions[value]))
    return functions


def jit_function(kernel: Any, compiled_functions: dict[Any, Any]) -> Any:
    """A kernel of the interpreter as one for the compiler, with all kernels that it calls."""
    if kernel in compiled_functions:
        return compiled_functions[kernel]
    of_language = {old: new for _, _, old, new in functions_of_the_language()}
    if kernel in of_language:
        return of_language[kernel]

    function = kernel.fn
    names: dict[str, Any] = {}
    copy = FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    for attribute in ("__annotations__", "__module__", "__qualname__", "__kwdefaults__", "__doc__"):
        setattr(copy, attribute, getattr(function, attribute))
    options = {key: value for key, value in kernel.kwargs.items() if value is not None}
    compiled_functions[kernel] = JITFunction(copy, **options)

    # Its globals come last, when it is in the table: kernels may call each other.
    for name, value in function.__globals__.items():
        if isinstance(value, InterpretedFunction):
            value = jit_function(value, compiled_functions)
        names[name] = value
    return compiled_functions[kernel]
