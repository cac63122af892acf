"""What a notebook gives to its cells besides Python, for cells that run without IPython.

In:  the names in which cells run. Out: names to add: `get_ipython`, `display`, `exit`, `quit`,
     `input`.

`names.as_python` translates magics as IPython does (`%time f()` →
`get_ipython().run_line_magic("time", "f()")`). Here stands who is called then. A magic that runs
code of the notebook runs it; others (`!ls`, `%matplotlib inline`, `%%bash`) do nothing, for they
belong to the learner's screen or machine, not to the answer.
PyTorch has no counterpart. IPython's own shell would take this process's display and history.
"""

from __future__ import annotations

from typing import Any, NoReturn

from .names import RUN_BODY, as_python

# Line magics whose rest is a statement to run. (`timeit` would run it a thousand times.)
_RUN_REST = frozenset({"time", "prun"})


class Shell:
    """Stands in for IPython's shell: the methods that translated magics call."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.user_ns = names

    def run_cell_magic(self, name: str, line: str, cell: str) -> None:
        """`%%time` and the like run the cell; what a line says behind the name is an option."""
        if name in RUN_BODY:
            exec(compile(as_python(cell), f"<%%{name}>", "exec"), self.user_ns)

    def run_line_magic(self, name: str, line: str, _stack_depth: int = 1) -> None:
        """`%time f()` runs `f()`."""
        if name in _RUN_REST:
            exec(compile(as_python(line), f"<%{name}>", "exec"), self.user_ns)

    def system(self, command: str) -> None:
        """`!ls` changes nothing of an answer."""

    def getoutput(self, command: str, split: bool = True) -> list[str]:
        """`files = !ls`: nothing was listed."""
        return []


def around(names: dict[str, Any]) -> dict[str, Any]:
    """What IPython has among a notebook's names."""
    shell = Shell(names)

    def get_ipython() -> Shell:
        return shell

    def display(*objects: Any, **options: Any) -> None:
        """Nobody looks."""

    def leave(*arguments: Any, **options: Any) -> NoReturn:
        raise SystemExit("exit() ends this cell only")

    def ask(prompt: str = "") -> NoReturn:
        raise EOFError("input() has nobody to ask here")

    return {
        "get_ipython": get_ipython,
        "display": display,
        "exit": leave,
        "quit": leave,
        "input": ask,
    }
