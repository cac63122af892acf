"""What the small programs are written with: engines, a backend that counts graphs, and short texts for values.

A program is a function of one *engine* (`Eager`, `Torch` or `Course`). It compiles something with `engine.watch` or
`engine.compile`, calls it, and returns what is worth knowing. `answer_of` makes an `Answer` of that: the graphs that were
compiled after each call, and what each call gave, as text. Eager plays the same program with a `compile` that does nothing.
So its values are the right ones, and it has no graphs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

LESSONS = ("00", "01", "02", "03", "04", "05", "06", "07", "08", "10", "11", "12", "13", "14")
MAX_ITEMS = 6
"""A tensor with more numbers than this is told by its shape and its sum."""
NOTHING = "nothing to compare"
"""What a program gives in eager where it asks the compiler alone: for its modes, or for an error of its own."""


# ---- programs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """One program: the lesson that it belongs to, what it does in words, and the file of torch that decides the answer."""

    name: str
    lesson: str
    says: str
    where: str
    play: Callable[[Engine], Any]
    torch_only: bool


PROGRAMS: dict[str, Program] = {}


def program(
    lesson: str, says: str, where: str = "", torch_only: bool = False
) -> Callable[..., Any]:
    """Register a program of a lesson. `says`: what it does. `where`: a file below `torch/` that decides the answer.

    `torch_only`: it asks for something that `course_lib` has not, such as a stance.
    """

    def register(play: Callable[[Engine], Any]) -> Callable[[Engine], Any]:
        name = play.__name__
        assert name not in PROGRAMS, f"two programs are called {name}"
        assert lesson in LESSONS, f"{name}: no lesson {lesson}"
        PROGRAMS[name] = Program(name, lesson, says, where, play, torch_only)
        return play

    return register


# ---- engines --------------------------------------------------------------------------------------------------------


class Counter:
    """A backend that counts the graphs that it is given, and runs each as it is."""

    def __init__(self) -> None:
        self.graphs = 0
        self.operations: list[int] = []

    def __call__(self, graph: Any, example_inputs: Any) -> Any:
        self.graphs += 1
        self.operations.append(sum(node.op.startswith("call") for node in graph.graph.nodes))
        return graph.forward


class Watch:
    """A compiled function that notes, for each call, the graphs compiled so far and what the call gave."""

    def __init__(self, compiled: Any, counter: Counter | None, f: Any) -> None:
        self.compiled, self.counter, self.original = compiled, counter, f
        self.graphs: list[int] = []
        self.values: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it. An error is noted by its type, and the call gives None."""
        try:
            result = self.compiled(*args, **kwargs)
        except Exception as error:
            result = None
            self.note(told(error))
        else:
            self.note(text(result))
        return result

    def note(self, value: str) -> None:
        self.graphs.append(self.counter.graphs if self.counter else 0)
        self.values.append(value)

    @property
    def operations(self) -> list[int]:
        """How many operations each graph has, in the order of compiling."""
        return self.counter.operations if self.counter else []


class Engine:
    """How a program compiles. `name` is `eager`, `torch` or `course`."""

    name = ""

    def compile(self, f: Any, **options: Any) -> Any:
        raise NotImplementedError

    def watch(self, f: Any, **options: Any) -> Watch:
        """Compile `f` with a backend that counts, and note each call."""
        counter = Counter()
        return Watch(self.compile(f, backend=counter, **options), counter, f)

    def built(self, f: Any, **options: Any) -> Watch:
        """Compile `f` with the default backend, which makes machine code. No graphs are counted."""
        return Watch(self.compile(f, **options), None, f)

    @contextlib.contextmanager
    def limit(self, entries: int) -> Iterator[None]:
        """Another recompile limit, for a block."""
        yield

    def graph_break(self) -> None: ...

    def mark_dynamic(self, tensor: torch.Tensor, dim: int) -> None: ...

    def maybe_mark_dynamic(self, tensor: torch.Tensor, dim: int) -> None: ...

    def disable(self, f: Any, **options: Any) -> Any:
        return f

    def allow_in_graph(self, f: Any) -> Any:
        return f

    def reset(self) -> None: ...


class Eager(Engine):
    """No compiler: what is right."""

    name = "eager"

    def compile(self, f: Any, **options: Any) -> Any:
        return f

    def watch(self, f: Any, **options: Any) -> Watch:
        return Watch(f, None, f)


class Torch(Engine):
    """`torch.compile` of the installed torch."""

    name = "torch"

    def __init__(self) -> None:
        import torch._dynamo
        import torch._inductor.config

        torch._inductor.config.compile_threads = 1
        self.graph_break = torch._dynamo.graph_break
        self.mark_dynamic = torch._dynamo.mark_dynamic
        self.maybe_mark_dynamic = torch._dynamo.maybe_mark_dynamic
        self.disable = torch.compiler.disable
        self.allow_in_graph = torch.compiler.allow_in_graph
        self.reset = torch._dynamo.reset

    def compile(self, f: Any, **options: Any) -> Any:
        return torch.compile(f, **options)

    def limit(self, entries: int) -> Any:
        return torch._dynamo.config.patch(recompile_limit=entries)


class Course(Engine):
    """`cl.compile`."""

    name = "course"

    def __init__(self) -> None:
        import course_lib as cl

        self.config = cl.config
        self.graph_break = cl.graph_break
        self.mark_dynamic = cl.mark_dynamic
        self.maybe_mark_dynamic = cl.maybe_mark_dynamic
        self.disable = cl.disable
        self.allow_in_graph = cl.allow_in_graph
        self.reset = cl.reset
        self.compiler = cl.compile

    def compile(self, f: Any, **options: Any) -> Any:
        return self.compiler(f, **options)

    @contextlib.contextmanager
    def limit(self, entries: int) -> Iterator[None]:
        before, self.config.recompile_limit = self.config.recompile_limit, entries
        try:
            yield
        finally:
            self.config.recompile_limit = before


ENGINES: dict[str, Callable[[], Engine]] = {"eager": Eager, "torch": Torch, "course": Course}


# ---- answers --------------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    """What a program gave: graphs in all after each call (None: nothing is counted), and each call's value as text."""

    graphs: list[int] | None
    values: list[str]


def answer_of(program: Program, engine: Engine) -> Answer:
    """Play a program. What it returns is a `Watch`, a value, or a tuple of them."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    try:
        result = program.play(engine)
    except Exception as error:
        return Answer(None, [f"the program {told(error)}"])

    graphs: list[int] | None = None
    values: list[str] = []
    for part in result if isinstance(result, tuple) else (result,):
        if isinstance(part, Watch):
            values += part.values
            if part.counter is not None:
                graphs = (graphs or []) + part.graphs
        else:
            values.append(text(part))
    return Answer(graphs, values)


def told(error: BaseException) -> str:
    """An error by its type. The words differ between versions."""
    return f"raises {type(error).__name__}"


def attempt(f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `f` gives, or its error's type in words."""
    try:
        return f(*args, **kwargs)
    except Exception as error:
        return told(error)


def text(value: Any) -> str:
    """A short text of a value. Numbers of floating point have five digits, so that rounding does not count."""
    if isinstance(value, str):
        return value
    if isinstance(value, torch.Tensor):
        return tensor_text(value)
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, torch.nn.Module):
        return f"a module {type(value).__name__}"
    if isinstance(value, dict):
        inside = ", ".join(f"{text(k)}: {text(v)}" for k, v in value.items())
        return prefix(value, dict) + "{" + inside + "}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(text, value))
        brackets = "[]" if isinstance(value, list) else "()"
        return prefix(value, list, tuple) + brackets[0] + inside + brackets[1]
    return str(value)


def prefix(value: Any, *plain: type) -> str:
    """The class of a container that is not a plain one."""
    return "" if type(value) in plain else type(value).__name__


def tensor_text(tensor: torch.Tensor) -> str:
    kind = "" if tensor.dtype is torch.float32 else str(tensor.dtype).removeprefix("torch.") + " "
    if tensor.is_meta or torch._is_functional_tensor(tensor):
        return f"{kind}{list(tensor.shape)} without numbers"
    tensor = tensor.detach()
    if tensor.is_floating_point():
        tensor = tensor.float() if tensor.dtype.itemsize < 4 else tensor
    if tensor.numel() > MAX_ITEMS:
        return f"{kind}{list(tensor.shape)} sum {text(tensor.sum().item())}"
    return kind + text(tensor.tolist())


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes: 0.0 is not -0.0, and all NaN are one."""
    plain = tensor.detach().contiguous().reshape(-1)
    if plain.is_floating_point():
        plain = torch.where(plain.isnan(), torch.full_like(plain, float("nan")), plain)
    return plain.view(torch.uint8)


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    alike = a.dtype is b.dtype and a.shape == b.shape
    return alike and torch.equal(bits(a), bits(b))


def beside_eager(engine: Engine, f: Callable[..., Any], *args: Any) -> str:
    """Is the compiled result (default backend) eager's, bit for bit? Else the two, or the error."""
    want = attempt(f, *args)
    engine.reset()
    got = attempt(engine.compile(f), *args)
    if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
        return text(got)
    if same_bits(want, got):
        return "eager's bits"
    return "other bits" if text(want) == text(got) else f"{text(got)} in place of {text(want)}"
