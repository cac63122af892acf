"""Which languages there are, and which one this process speaks.

In:  the variable COURSE_LANGUAGE, or the folder that a notebook lies in, or the notebook itself: a
     learner's copy says in which language it was made. Out: the name of a folder beside this file,
     or None.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path

CATALOGS = Path(__file__).parent
ENGLISH = "en"


class UnknownLanguage(ValueError):
    """COURSE_LANGUAGE names a language without catalogs; the text says which there are."""


@functools.cache
def known() -> tuple[str, ...]:
    """The languages that have a folder of catalogs: ('de', 'zh_Hans')."""
    return tuple(
        sorted(folder.name for folder in CATALOGS.iterdir() if (folder / "labels.po").is_file())
    )


def folder_of(language: str) -> str:
    """The folder in `notebooks/` for a language: 'zh' for zh_Hans."""
    return language.split("_")[0]


def chosen() -> str | None:
    """The language that COURSE_LANGUAGE names (`zh_Hans`, or `zh` for short); else that of the
    folder `notebooks/zh` in which a notebook runs; else that of the learner's copy which runs;
    None for English.

    Raises UnknownLanguage for one without catalogs."""
    wanted = os.environ.get("COURSE_LANGUAGE", "")
    if wanted:
        return named(wanted)
    # Jupyter tells a kernel which notebook it was started for.
    return _of_folder(_working_folder()) or of_copy(os.environ.get("JPY_SESSION_NAME", ""))


@functools.lru_cache(maxsize=32)
def of_copy(path: str) -> str | None:
    """The language in which a learner's copy was made; None for English, and for any other file."""
    try:
        course = json.loads(Path(path).read_text(encoding="utf-8"))["metadata"]["course"]
        language = course["language"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if language in known():
        return language
    return None


def named(wanted: str) -> str | None:
    """The language called `wanted`; None for English.

    Raises UnknownLanguage for one without catalogs."""
    if wanted == ENGLISH:
        return None
    for language in known():
        if wanted in (language, folder_of(language)):
            return language
    raise UnknownLanguage(
        f"COURSE_LANGUAGE is {wanted!r}, and the course has no such language. "
        f"Choose one of: {', '.join((ENGLISH, *known()))}."
    )


def _working_folder() -> str:
    """Where this process runs; '' where that folder was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


@functools.lru_cache(maxsize=8)
def _of_folder(folder: str) -> str | None:
    """The language of `notebooks/zh`; None for any other folder."""
    path = Path(folder)
    if path.parent.name != "notebooks":
        return None
    return next((language for language in known() if folder_of(language) == path.name), None)
