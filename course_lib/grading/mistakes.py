"""What a command says of input that it cannot use: one sentence, never a traceback.

In:  the text of an option, or an error that ended a command.
Out: the option's value, or the sentence; nothing for an error that is the course's own mistake.
PyTorch has no counterpart.
"""

from __future__ import annotations

import argparse
import os


def above_zero(text: str) -> float:
    """A limit or an amount. For argparse, which says the sentence with the option's name."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number above 0")
    return value


def above_zero_whole(text: str) -> int:
    """A count."""
    if not text.strip().isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above 0")
    return int(text)


def sentence(error: Exception) -> str:
    """What is wrong with the input, if it is the input; else nothing."""
    if any(kind.__name__ in ("CourseError", "UnknownLanguage") for kind in type(error).__mro__):
        return str(error)
    if isinstance(error, OSError) and error.filename is not None:
        reason = (error.strerror or type(error).__name__).lower()
        return f"{os.fsdecode(error.filename)} cannot be used: {reason}. Name another place."

    missing = (getattr(error, "name", None) or "").split(".")[0]
    if isinstance(error, ImportError) and missing not in ("", "course_lib"):
        return (
            f"this needs the package {missing}, which is not installed: `make setup`, "
            "or pip install -e '.[course]' in the course's folder."
        )

    return ""
