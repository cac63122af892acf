"""The errors of the simulator. Each is one sentence.

In PyTorch: Triton's own are `triton/compiler/errors.py` and `triton/runtime/errors.py`.
"""


def shown(filename: str) -> str:
    """A file as a sentence names it. The file of a notebook's cell has a number for a name."""
    is_cell = "ipykernel_" in filename or filename.startswith("<ipython-input")
    return "this notebook" if is_cell else filename


class NotSimulated(NotImplementedError):
    """A GPU could do it; the simulator cannot."""


class GPUFault(RuntimeError):
    """What a GPU would do without a word, or only sometimes: a race, an access outside every
    tensor, ...

    `sentences`: all that was found in this launch, the first one first."""

    def __init__(self, sentences: list[str]) -> None:
        self.sentences = sentences
        more = ""
        if len(sentences) > 1:
            more = f"\n(and {len(sentences) - 1} more)"
        super().__init__(sentences[0] + more)
