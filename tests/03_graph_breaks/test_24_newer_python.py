"""Syntax that only newer versions of CPython have, compared with eager. Each program is a text, compiled where it can be.

A program defines `f(x)`. It is called three times; `NOTES` collects what else it does.
"""

import sys
import textwrap
import types

import pytest
import torch

import course_lib as cl

PROGRAMS = {}


def since(*version):
    """Register programs: texts that this version of Python understands."""

    def register(**programs):
        for name, text in programs.items():
            PROGRAMS[name] = version, textwrap.dedent(text)

    return register


BREAK = "cl.graph_break()"

since(3, 11)(
    an_exception_group_is_split="""
        def f(x):
            caught = []
            try:
                raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
            except* ValueError as group:
                caught.append(str(group.exceptions))
            except* KeyError as group:
                caught.append(str(group.exceptions))
            return x + len(caught), caught
    """,
    a_part_of_an_exception_group_goes_on="""
        def f(x):
            try:
                try:
                    raise ExceptionGroup("two", [ValueError("a"), KeyError("b")])
                except* ValueError:
                    x = x * 2
            except ExceptionGroup as rest:
                return x, str(rest), str(rest.exceptions)
    """,
    annotations_of_an_inner_function_are_read="""
        def f(x):
            def g(a: int, b: "torch.Tensor" = None) -> float:
                return a * x
            return g(2), sorted(g.__annotations__), g.__annotations__["a"] is int
    """,
    a_function_with_annotations_is_returned="""
        def f(x):
            scale = int
            def g(a: scale) -> float:
                return a * x
            return g(2), g
    """,
    a_class_with_annotations_is_made="""
        def f(x):
            class Pair:
                a: int = 3
                b: float = 4.0
                if x.ndim:
                    c: str
            return x * Pair.a + Pair.b, sorted(Pair.__annotations__)
    """,
    a_signature_is_read="""
        import inspect
        def g(a: int, b: float = 2.0) -> int: ...
        def f(x):
            return x + len(inspect.signature(g).parameters)
    """,
    a_dataclass_is_made="""
        import dataclasses
        @dataclasses.dataclass
        class Pair:
            a: int
            b: torch.Tensor
        def f(x):
            pair = Pair(2, x)
            return pair.b * pair.a, [field.name for field in dataclasses.fields(pair)]
    """,
)

since(3, 12)(
    a_generic_function_is_made="""
        def f(x):
            def g[T: int](a: T) -> T:
                return a
            return g(x) + 1
    """,
    a_generic_class_is_used="""
        class Box[T]:
            def __init__(self, item: T):
                self.item = item
        def f(x):
            return Box(x).item * 2
    """,
    a_type_alias_is_used="""
        type Number = int | float
        def f(x):
            return x + (1 if Number.__name__ == "Number" else 2)
    """,
    quotes_nest_in_an_f_string="""
        def f(x):
            return f"{', '.join(f"{n!r:>{4}}" for n in x.shape)}", x + 1
    """,
)

since(3, 14)(
    a_template_is_read="""
        def f(x):
            n = x.shape[0]
            t = t"a{n}b{n!r:>5}c"
            texts = [part if isinstance(part, str) else part.expression for part in t]
            return x * t.interpolations[1].value, t.strings, texts, t.interpolations[1].conversion
    """,
    a_template_holds_a_tensor="""
        def f(x):
            y = x * 2
            t = t"{y}{x + 1:.2f}"
            first, second = t.values
            return first + second, t.interpolations[1].format_spec
    """,
    a_template_is_returned="""
        def f(x):
            name, width = "n", 4
            return x + 1, t"<{name!s:>{width}}>"
    """,
    templates_are_joined="""
        def f(x):
            t = t"{x.ndim}" + t" of {x.ndim + 1}"
            return x + len(t.interpolations), t.strings
    """,
    a_template_is_alive_at_a_break="""
        def f(x):
            t = t"{x.ndim} {x * 2}"
            cl.graph_break()
            return t.values[1] + 1, t.strings
    """,
    a_template_is_made_of_what_breaks="""
        def f(x):
            return t"{NOTES.append(x.sum().item())}".strings, x + 1
    """,
    a_template_is_matched="""
        from string.templatelib import Interpolation, Template
        def f(x):
            out = []
            for part in t"a{x.ndim}":
                match part:
                    case Interpolation(value, text):
                        out.append((value, text))
                    case str():
                        out.append(part)
            return x + 1, out
    """,
    several_exceptions_need_no_parentheses="""
        def f(x):
            try:
                raise KeyError("a")
            except ValueError, KeyError:
                return x + 1
    """,
    annotations_name_what_comes_later="""
        def f(x):
            def g(a: Later) -> Later: ...
            return x + len(g.__code__.co_varnames), g.__annotations__["a"] is Later
        class Later: ...
    """,
    annotations_that_nobody_asks_for_are_not_evaluated="""
        def f(x):
            def g(a: missing_name) -> NOTES.append(1): ...
            return x + 1, g(2)
    """,
)

since(3, 15)(
    lists_are_unpacked_in_a_comprehension="""
        def f(x):
            rows = [[x, x + 1], [x * 2]]
            return torch.stack([*row for row in rows]), {*row for row in [[1, 2], [2]]}
    """,
    dictionaries_are_unpacked_in_a_comprehension="""
        def f(x):
            tables = [{"a": x}, {"b": x + 1}]
            return {**table for table in tables}
    """,
    an_unpacking_comprehension_breaks="""
        def f(x):
            def row(n):
                cl.graph_break()
                return [x * n, x + n]
            return [*row(n) for n in (1, 2)]
    """,
)


def make(name, text):
    """The module that the program is; `NOTES` is in it."""
    module = types.ModuleType(f"newer_python_{name}")
    module.__dict__.update(torch=torch, cl=cl, NOTES=[])
    sys.modules[module.__name__] = module
    exec(compile(text, f"<{name}>", "exec"), module.__dict__)
    return module


def told(value):
    """A result as something to compare."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [type(value), *map(told, value)]
    if isinstance(value, dict):
        return {key: told(item) for key, item in value.items()}
    if isinstance(value, types.FunctionType):
        names = {name: str(found) for name, found in value.__annotations__.items()}
        return value.__qualname__, names, told(value(3))
    return repr(value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_eager(name):
    version, text = PROGRAMS[name]
    if sys.version_info < version:
        pytest.skip(f"syntax of Python {version[0]}.{version[1]}")
    eager, ours = make(name, text), make(name, text)
    compiled = cl.compile(ours.f, backend="eager")
    for turn in range(3):
        x = torch.arange(1.0, 4.0 + turn)
        assert told(compiled(x.clone())) == told(eager.f(x.clone())), f"call {turn}"
        assert ours.NOTES == eager.NOTES


@pytest.mark.skipif(sys.version_info < (3, 14), reason="t-strings came with Python 3.14")
@pytest.mark.parametrize(
    "name", [name for name in PROGRAMS if "template" in name and "break" not in name]
)
def test_a_template_is_no_reason_for_a_break(name):
    compiled = cl.compile(make(name, PROGRAMS[name][1]).f, backend="eager")
    with cl.record() as trace:
        compiled(torch.ones(3))
    assert not trace.graph_breaks


# ---- lazy imports ----------------------------------------------------------------------------------------------------

LAZY = {
    "a module": ("lazy import {module}", "{module}.scale(x)"),
    "a module by another name": ("lazy import {module} as other", "other.scale(x)"),
    "a function": ("lazy from {module} import scale", "scale(x)"),
    "a module, behind a break": (
        "lazy import {module}",
        "[cl.graph_break(), {module}.scale(x)][1]",
    ),
}


def lazy_program(tmp_path, monkeypatch, kind, number):
    """A module that imports another one lazily; that one draws numbers and makes a tensor when it is imported."""
    module = f"imported_lazily_{number}"
    source = """
        import torch
        FACTOR = torch.full((), 3.0)
        DONE = torch.is_grad_enabled()
        def scale(x):
            return x * FACTOR
    """
    tmp_path.joinpath(f"{module}.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    statement, use = (text.format(module=module) for text in LAZY[kind])
    text = f"{statement}\ndef f(x, used):\n    return {use} if used else x + 1\n"
    return make(f"lazy_{number}", text), module


@pytest.mark.skipif(sys.version_info < (3, 15), reason="lazy imports came with Python 3.15")
@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("kind", LAZY)
def test_a_lazy_import_is_done_when_the_program_uses_it(tmp_path, monkeypatch, kind, loaded):
    number = f"{list(LAZY).index(kind)}_{loaded}"
    program, module = lazy_program(tmp_path, monkeypatch, kind, number)
    if loaded:
        __import__(module)
    compiled = cl.compile(program.f, backend="eager")
    x = torch.ones(2)
    assert compiled(x, False).tolist() == [2.0, 2.0]
    assert (module in sys.modules) == loaded, "nobody has used it yet"
    assert compiled(x, True).tolist() == [3.0, 3.0]
    imported = sys.modules[module]
    assert type(imported.FACTOR) is torch.Tensor and imported.FACTOR.item() == 3.0
    imported.FACTOR = torch.full((), 5.0)
    assert compiled(x, True).tolist() == [5.0, 5.0]


@pytest.mark.skipif(sys.version_info < (3, 15), reason="lazy imports came with Python 3.15")
def test_a_lazy_import_of_what_is_not_there_raises_what_eager_raises():
    program = make(
        "lazy_missing",
        "lazy import no_such_module_here\ndef f(x):\n    return no_such_module_here.g(x)\n",
    )
    with pytest.raises(ImportError) as eager:
        program.f(torch.ones(2))
    with pytest.raises(ImportError) as ours:
        cl.compile(program.f, backend="eager")(torch.ones(2))
    assert str(ours.value) == str(eager.value)
