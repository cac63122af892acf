"""What all ordered lists of rules in this room share.

Each list is asked from its front. A rule answers, raises `Unsupported`, or gives GO_ON; then the
next one is asked. Special cases (`corners/`) put their rules into the lists; the files of the
ordinary path import none of them.
"""

from typing import Any


class GoOn:
    """The type of GO_ON."""

    def __repr__(self) -> str:
        return "GO_ON"


GO_ON: Any = GoOn()
"""What a rule gives where it has nothing to say."""
