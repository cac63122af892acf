"""The head: what runs in place of a captured frame, as ordinary Python source.

    def head(__func, self, x):
        out = __graph(x, self._modules['ln']._parameters['weight'], ...)
        return out[0]

It takes the frame's function object and its arguments, fetches the graph's inputs through their sources, and rebuilds
what the frame returns. It is compiled with `compile()` and registered with `linecache`, so that tracebacks and
notebooks show it.
In PyTorch the same is written as bytecode: `torch/_dynamo/codegen.py` (`PyCodegen`) and `bytecode_transformation.py`.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from course_lib.capture import attributes
from course_lib.capture.graph import GraphBuilder, name_of
from course_lib.capture.sources import FUNCTION, has_literal
from course_lib.capture.unsupported import Unsupported
from course_lib.capture.values import Constant, Dict, Module, Object, Sequence, Tensor, Value

GRAPH = "__graph"
_serial = itertools.count(1)
HELPERS = {"base_class": attributes.base_class}
"""Functions that source expressions may call."""


@dataclass
class Head:
    """The source and the names it uses. `function(graph)` makes the callable."""

    name: str
    parameters: tuple[str, ...]
    body: list[str]
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return "\n".join(
            [f"def head({', '.join((FUNCTION, *self.parameters))}):", *("    " + line for line in self.body), ""]
        )

    def function(self, graph: Callable[..., Any]) -> Callable[..., Any]:
        """The head as a function that calls `graph` on the graph's inputs."""
        filename = f"<course_lib head of {self.name} #{next(_serial)}>"
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(keepends=True), filename)
        namespace = {**HELPERS, **self.names, GRAPH: graph}
        exec(compile(self.source, filename, "exec"), namespace)
        return namespace["head"]


class HeadBuilder:
    """Writes the head for a frame that returns `result`."""

    def __init__(self, name: str, parameters: tuple[str, ...]) -> None:
        self.head = Head(name, parameters, [])
        self.outputs: list[Tensor] = []
        self._expr: dict[Value, str] = {}

    def build(self, result: Value, builder: GraphBuilder) -> Head:
        answer = self.rebuild(result)
        if builder.operations:
            args = [tensor.source.expr for tensor in builder.inputs if tensor.source]
            long = len(", ".join(args)) > 80
            listed = "".join(f"\n        {arg}," for arg in args) + "\n    " if long else ", ".join(args)
            self.head.body.insert(0, f"__out = {GRAPH}({listed})")
        self.head.body.append(f"return {answer}")
        return self.head

    def rebuild(self, value: Value) -> str:
        """The expression that gives `value` again. A value asked for twice is one object both times."""
        if value not in self._expr:
            self._expr[value] = self.write(value)
        return self._expr[value]

    def write(self, value: Value) -> str:
        if value.source is not None:
            return value.source.expr
        match value:
            case Tensor():
                self.outputs.append(value)
                return f"__out[{len(self.outputs) - 1}]"
            case Constant():
                return repr(value.value) if has_literal(value.value) else self.name_for(value.value)
            case Sequence():
                items = [self.rebuild(item) for item in value.items]
                if value.cls is tuple:
                    text = f"({', '.join(items)}{',' if len(items) == 1 else ''})"
                elif value.cls is list:
                    text = f"[{', '.join(items)}]"
                else:
                    text = f"{self.name_for(value.cls)}(({', '.join(items)},))"
                return self.assign(text)
            case Dict():
                pairs = [f"{self.rebuild(Constant(key))}: {self.rebuild(item)}" for key, item in value.items.items()]
                return self.assign("{" + ", ".join(pairs) + "}")
            case Object(value=obj) if not isinstance(value, Module):
                return self.name_for(obj)
        raise Unsupported(f"the function returns {value}, which cannot be built again outside the graph")

    def assign(self, text: str) -> str:
        """Give an object a variable, so that it is made once."""
        name = f"__v{len(self.head.body)}"
        self.head.body.append(f"{name} = {text}")
        return name

    def name_for(self, obj: Any) -> str:
        """A name bound to an object that has no literal form."""
        name = "__" + "".join(c if c.isalnum() else "_" for c in name_of(obj)) + f"_{len(self.head.names)}"
        self.head.names[name] = obj
        return name
