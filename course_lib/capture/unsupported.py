"""`Unsupported`: why capture stopped, told so that a user can act on it.
In PyTorch: `torch/_dynamo/exc.py`, `Unsupported`, and `torch/_dynamo/graph_break_registry.json`.
"""

from dataclasses import dataclass, field

from course_lib.capture.sources import Location


@dataclass(eq=False)
class Unsupported(Exception):
    """Capture met something that has no form in a graph.

    reason: one sentence; hint: what the user can do; location: the line and columns;
    instruction: the bytecode instruction; stack: the calls that led there, outermost first."""

    reason: str
    hint: str = ""
    location: Location | None = None
    instruction: str = ""
    offset: int = -1
    stack: tuple[Location, ...] = field(default=())

    def __str__(self) -> str:
        lines = [self.reason]
        if self.location:
            lines.append(f"  at {self.location} in {self.location.function}")
            lines += ["    " + row for row in self.location.caret.splitlines()]
        if len(self.stack) > 1:
            lines.append("  reached through " + " → ".join(f"{call.function} ({call})" for call in self.stack))
        if self.hint:
            lines.append(f"  what to do: {self.hint}")
        return "\n".join(lines)
