"""What checks and commands say to the learner, read from the code.

In:  the notebook of a solution, as JSON: it has the hidden checks, too; or a file of the library.
     Out: the English sentences, with `{A}`, `{lesson}` where a value stands.

    check_equal(got, 3, f"the graphs of {name}", "one for each branch")
        → "the graphs of {A}", "one for each branch"

`course translate` puts them into the catalogs. No cell is run. A check may take its words from a
name, a table or a loop over a list of cases; a cell may have helpers that hand words on to a check
(`def right(x, what)`). Both are followed. A text that is put together in another way is not found
and stays English.
PyTorch has no counterpart. GNU `xgettext` collects the arguments of `gettext(...)` in this way.
"""

from __future__ import annotations

import ast
import json
import re
import string
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from course_lib.languages.messages import has_words
from course_lib.syntax import parse

_TWO_WORDS = re.compile(r"[A-Za-z]{2} [A-Za-z]{2}")
"""Two words side by side are a sentence, no code. Code that has them, too (`for x in y`), goes into
the catalog, where its translation is the code itself."""


@dataclass(frozen=True)
class Speaker:
    """A function that says some of its arguments to the learner: their places and their names."""

    places: tuple[int, ...]
    names: tuple[str, ...] = ("what", "why")


# `check` says its values, too, where they are words: "two or more".
LIBRARY = {
    "check": Speaker((1, 2, 3, 4), ("what", "why", "expected", "got")),
    "check_equal": Speaker((2, 3)),
    "check_close": Speaker((2, 3)),
    "check_runs": Speaker((1, 2), ("what", "why", "hints")),
    "check_keeps": Speaker((), ("why",)),
    "check_graphs": Speaker((2, 3)),
    "CheckFailed": Speaker((0, 1)),
}


def words_of_checks(notebook: str) -> list[str]:
    """The sentences that the checks of a notebook say, in the order of its cells."""
    trees = [
        tree
        for cell in json.loads(notebook)["cells"]
        if cell["cell_type"] == "code"
        if (tree := tree_of("".join(cell["source"]))) is not None
    ]
    return list(dict.fromkeys(Words(trees).all()))


def tree_of(code: str) -> ast.Module | None:
    """The tree of a cell; a line for IPython alone (`!course check 1`) counts as `pass`."""
    lines = ["pass" if line.startswith(("!", "%")) else line for line in code.split("\n")]
    try:
        return parse("\n".join(lines))
    except SyntaxError:
        return None


# What `languages.phrase` gets is said by a command; a finding and a tier by `course doctor`.
COMMANDS = {
    "phrase": Speaker((0,), ()),
    "Finding": Speaker((0, 1, 2, 3), ("item", "found", "status", "advice")),
    "Tier": Speaker((0, 1), ("name", "meaning")),
}


def words_of_module(source: str) -> list[str]:
    """The sentences that a file of the library says by checks, or by `phrase`."""
    words = Words([ast.parse(source)], {**LIBRARY, **COMMANDS})
    return list(dict.fromkeys(words.all()))


@dataclass
class Words:
    """The cells of one notebook, and what a name in them may stand for."""

    trees: list[ast.Module]
    # Function → which of its arguments are said; helpers of the cells are added
    speakers: dict[str, Speaker] = field(default_factory=lambda: dict(LIBRARY))
    # Name → each expression that it is given anywhere
    values: dict[str, list[ast.expr]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for node in self.nodes():
            self.note_values(node)
        # A helper may hand its words on to another helper: until none is new.
        while self.note_helpers():
            pass

    def nodes(self) -> Iterator[ast.AST]:
        for tree in self.trees:
            yield from ast.walk(tree)

    def all(self) -> Iterator[str]:
        """Each sentence that the cells say, in their order; one may come several times."""
        for node in self.nodes():
            for argument in self.said_by(node):
                for text in self.texts(argument):
                    if has_words(text) and not is_code(text):
                        yield text

    # ---- what a name stands for

    def note_values(self, node: ast.AST) -> None:
        """`why = "..."`, and `for name, why in [("mean", "...")]`."""
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.values[name].append(value)
            case ast.For(target=target, iter=rows) | ast.comprehension(target=target, iter=rows):
                self.note_rows(target, rows)

    def note_rows(self, target: ast.expr, rows: ast.expr) -> None:
        """Each name of a loop stands for what its place holds in each row."""
        if isinstance(rows, ast.Call) and isinstance(rows.func, ast.Attribute):
            rows = rows.func.value  # `table.items()`
        # a table by its name: what was last written to it above
        if isinstance(rows, ast.Name) and self.values[rows.id]:
            rows = self.values[rows.id][-1]

        if isinstance(rows, ast.Dict):
            pairs = zip(rows.keys, rows.values, strict=True)
            items = [ast.Tuple([key, value]) for key, value in pairs if key is not None]
            self.note_items(target, items)
        elif isinstance(rows, ast.List | ast.Tuple):
            self.note_items(target, rows.elts)

    def note_items(self, target: ast.expr, items: list[ast.Tuple] | list[ast.expr]) -> None:
        """`target` is each of these items in turn: a name, or names in brackets for its parts."""
        if isinstance(target, ast.Starred):
            target = target.value
        for item in items:
            if isinstance(target, ast.Name):
                self.values[target.id].append(item)
            elif isinstance(target, ast.Tuple) and isinstance(item, ast.Tuple):
                self.note_row(target.elts, item.elts)

    def note_row(self, targets: list[ast.expr], items: list[ast.expr]) -> None:
        """Each target has the item of its place; one with a star has all that are left."""
        for place, target in enumerate(targets):
            if isinstance(target, ast.Starred):
                self.note_items(target, items[place:])
                return
            self.note_items(target, items[place : place + 1])

    # ---- who says what

    def note_helpers(self) -> int:
        """How many functions were found that say some of their parameters."""
        return sum(self.note_helper(node) for node in self.nodes())

    def note_helper(self, node: ast.AST) -> bool:
        """A function of a cell that says some of its parameters: whether it was not known yet."""
        if not isinstance(node, ast.FunctionDef) or node.name in self.speakers:
            return False
        said = {
            name.id
            for inner in ast.walk(node)
            for argument in self.said_by(inner)
            for name in ast.walk(argument)
            if isinstance(name, ast.Name)
        }
        parameters = [arg.arg for arg in [*node.args.posonlyargs, *node.args.args]]
        places = tuple(place for place, name in enumerate(parameters) if name in said)
        names = [name for name in parameters if name in said]
        names += [arg.arg for arg in node.args.kwonlyargs if arg.arg in said]
        if not names:
            return False

        self.speakers[node.name] = Speaker(places, tuple(names))
        # What a parameter is when nobody gives it. Defaults belong to the last parameters, so both
        # are paired from the end.
        defaults = zip(parameters[::-1], node.args.defaults[::-1], strict=False)
        for name, value in defaults:
            self.values[name].append(value)
        return True

    def said_by(self, node: ast.AST) -> list[ast.expr]:
        """The arguments of a call that the learner reads."""
        if not isinstance(node, ast.Call):
            return []
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        speaker = self.speakers.get(name)
        if speaker is None:
            return []
        said = [node.args[place] for place in speaker.places if place < len(node.args)]
        said += [keyword.value for keyword in node.keywords if keyword.arg in speaker.names]
        return said

    # ---- what an expression may say

    def texts(self, node: ast.expr, followed: frozenset[str] = frozenset()) -> Iterator[str]:
        """Each text that this expression may be, as far as the source tells.

        `followed`: names that led here, so that `why = why or "..."` has an end."""
        match node:
            case ast.Constant(value=str() as text):
                yield text
            case ast.JoinedStr() | ast.BinOp(op=ast.Add()):
                yield template(node)
                yield from self.phrases_in(node, followed)
            case ast.IfExp(body=one, orelse=other):
                yield from self.texts(one, followed)
                yield from self.texts(other, followed)
            case ast.BoolOp(values=parts) | ast.Dict(values=parts) | ast.List(elts=parts):
                for part in parts:
                    yield from self.texts(part, followed)
            case ast.Subscript(value=table) | ast.Starred(value=table):
                yield from self.texts(table, followed)
            case ast.Call(func=ast.Attribute(value=table, attr="get"), args=arguments):
                # `table.get(key, otherwise)`: the key is not said
                for part in [table, *arguments[1:]]:
                    yield from self.texts(part, followed)
            case ast.Name(id=name) if name not in followed:
                for value in self.values.get(name, ()):
                    yield from self.texts(value, followed | {name})

    def phrases_in(self, node: ast.expr, followed: frozenset[str]) -> Iterator[str]:
        """The values of a text that are words themselves: of `f"{case}: the result"` the cases."""
        for name in ast.walk(node):
            if isinstance(name, ast.Name):
                # A single word is a name in the program, more often than not.
                yield from (text for text in self.texts(name, followed) if " " in text)


def is_code(text: str) -> bool:
    """Whether a text is Python, such as `x.exp() + 1`: it is the same in every language.

    A single word counts as code where no English word looks so: `softmax_backward`, `float16`."""
    if _TWO_WORDS.search(text):
        return False
    try:
        statements = parse(text.strip()).body
    except SyntaxError:
        return False
    match statements:
        case [ast.Expr(value=ast.Name(id=word))]:
            return not word.isalpha()
        case [ast.AnnAssign(value=None)]:  # `written: {file}`
            return False
    return True


def template(node: ast.expr) -> str:
    """`f"{rounds} fresh samples"` → "{A} fresh samples"; the same value has the same letter."""
    letters: dict[str, str] = {}

    def text_of(part: ast.expr) -> str:
        match part:
            case ast.Constant(value=str() as text):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(text_of(each) for each in parts)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return text_of(left) + text_of(right)
        letter = letters.setdefault(ast.unparse(part), string.ascii_uppercase[len(letters)])
        return "{" + letter + "}"

    return text_of(node)
