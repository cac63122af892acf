"""A kernel's text, so changed that Python's words mean what they mean in a compiled kernel.

In:  a function that `@triton.jit` got.
Out: a function with the same names and lines, in which `range`, `and`, `not`, `max`, `assert` and
     assignments call `simulator.language`.
In Triton: the interpreter's `FunctionRewriter`, which changes assignments only.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from types import FunctionType
from typing import Any

from course_lib.simulator import language
from course_lib.syntax import parse

GPU = "__gpu__"
"""The name under which a rewritten kernel sees `simulator.language`."""


def call(name: str, *arguments: ast.expr) -> ast.Call:
    """`__gpu__.name(arguments)`."""
    function = ast.Attribute(ast.Name(GPU, ast.Load()), name, ast.Load())
    return ast.Call(function, list(arguments), [])


def later(expression: ast.expr) -> ast.Lambda:
    """`lambda: expression`: computed only when it is wanted."""
    nothing = ast.arguments([], [], None, [], [], None, [])
    return ast.Lambda(nothing, expression)


class KernelRewriter(ast.NodeTransformer):
    """One method for each word."""

    def __init__(self) -> None:
        # How many loops have got a name so far: `__loop1`, ...
        self.loops = 0

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """What gets a name is a value of the kernel."""
        self.generic_visit(node)
        node.value = call("value", node.value)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """`N: tl.constexpr = 3` stays a Python number."""
        self.generic_visit(node)
        if node.value is None:
            return node
        stays = ast.unparse(node.annotation).endswith("constexpr")
        assignment = ast.Assign([node.target], node.value if stays else call("value", node.value))
        return ast.copy_location(assignment, node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """`x += 1` is `x = x + 1`: no block is changed in place."""
        # The target once more, as something that is read
        target = parse(ast.unparse(node.target), mode="eval").body
        whole = ast.BinOp(target, node.op, node.value)
        assignment = ast.Assign([node.target], ast.copy_location(whole, node.value))
        return self.visit(ast.copy_location(assignment, node))

    def visit_For(self, node: ast.For) -> ast.AST | list[ast.AST]:
        """The variable is an int32, and poison behind the loop."""
        line = node.lineno
        self.generic_visit(node)
        if not isinstance(node.iter, ast.Call) or not isinstance(node.target, ast.Name):
            return node

        self.loops += 1
        name = f"__loop{self.loops}"
        loop_call = call("loop", node.iter.func, *node.iter.args)
        loop_call.keywords = node.iter.keywords
        node.iter = ast.Name(name, ast.Load())

        behind = parse(
            f"if {name}.compiled:\n"
            f"    {node.target.id} = {name}.behind({node.target.id!r}, 'line {line}')"
        ).body[0]
        statements: list[ast.AST] = [
            ast.Assign([ast.Name(name, ast.Store())], loop_call),
            node,
            behind,
        ]
        for statement in (statements[0], behind):
            for part in ast.walk(statement):
                ast.copy_location(part, node)
        return statements

    def visit_If(self, node: Any) -> ast.AST:
        """`if`, `while` and `a if c else b` look at a scalar."""
        self.generic_visit(node)
        node.test = ast.copy_location(call("condition", node.test), node.test)
        return node

    visit_While = visit_IfExp = visit_If

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        """`a and b`, `a or b`: operands are computed when they are wanted, as in Python."""
        self.generic_visit(node)
        word = "both" if isinstance(node.op, ast.And) else "either"
        return ast.copy_location(call(word, *map(later, node.values)), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        """`not a`; other signs are methods of tensors anyhow."""
        self.generic_visit(node)
        if isinstance(node.op, ast.Not):
            return ast.copy_location(call("negated", node.operand), node)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """`a < b < c` is `a < b and b < c`."""
        if len(node.ops) == 1:
            return self.generic_visit(node)
        operands = [node.left, *node.comparators]
        pairs = zip(operands, node.ops, operands[1:], strict=False)
        parts = [ast.copy_location(ast.Compare(a, [op], [b]), node) for a, op, b in pairs]
        return self.visit(ast.copy_location(ast.BoolOp(ast.And(), list(parts)), node))

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Builtins that mean something else in a kernel. A variable may have such a name, so
        `language.meant` looks at the function itself."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("max", "min", "print"):
            node.func = call("meant", node.func)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Condition and message are computed only in debug mode."""
        self.generic_visit(node)
        message = node.msg or ast.Constant("")
        assert_call = call("asserted", later(node.test), later(message))
        return ast.copy_location(ast.Expr(assert_call), node)


def rewritten(function: FunctionType) -> FunctionType:
    """The function as the simulator runs it.

    Raises `ValueError` where there is no source, as the compiler does."""
    try:
        lines, first_line = inspect.getsourcelines(function)
    except OSError as error:
        raise ValueError("@jit functions should be defined in a Python file") from error

    filename = function.__code__.co_filename
    tree = parse(textwrap.dedent("".join(lines)), filename)
    # Lines as in the file, for errors and faults (a whole file's first line is 0 or 1)
    ast.increment_lineno(tree, max(first_line, 1) - 1)
    definition: Any = tree.body[0]
    strip(definition)
    definition = KernelRewriter().visit(definition)

    # def around(__gpu__, names...): def kernel(...): ...; return kernel
    # (A constexpr around the kernel is its number inside.)
    closed_over = {
        name: getattr(cell.cell_contents, "value", cell.cell_contents)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        )
    }
    names_around = {GPU: language, **closed_over}
    around: Any = parse(f"def around({', '.join(names_around)}):\n    return {definition.name}")
    around.body[0].body.insert(0, definition)
    ast.fix_missing_locations(around)

    namespace: dict[str, Any] = {}
    exec(compile(around, filename, "exec"), namespace)
    inner = namespace["around"](**names_around)
    result = FunctionType(
        inner.__code__, function.__globals__, inner.__name__, None, inner.__closure__
    )
    result.__defaults__, result.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    result.__annotations__ = function.__annotations__
    return result


def strip(definition: Any) -> None:
    """Without decorators, annotations and defaults: those of the old function are taken over."""
    definition.decorator_list = []
    definition.returns = None
    arguments = definition.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        argument.annotation = None
    arguments.defaults = []
    arguments.kw_defaults = [None] * len(arguments.kwonlyargs)
