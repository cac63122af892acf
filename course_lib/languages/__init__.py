"""The course in other languages: one folder of catalogs for each.

`languages/zh_Hans/notebooks/04_guards_and_recompiles.po` has the prose of lesson 04, cell by cell,
in English and in Chinese; `exercises/` has the exercises, `glossary.po` the terms, `labels.po` what
stands in pictures and questions, `checks.po` what checks and commands say.

    chosen()             which language this process speaks, if another one than English
    translate(text)      a label in that language; the text itself where the catalog has none
    translate_html(h)    the same for all labels in a piece of HTML or SVG
    translate_message(m) the same for a message of a check, which may hold values
    phrase(s, n=3)       a sentence of a command, with its values

`chosen.py`, `labels.py` and `messages.py` have these functions. `catalog.py` reads and writes `.po`
files (with Babel), and tells which translations are stale.

Code and outputs are shared: nothing here is asked when no language is chosen.
docs/design/languages.md says what is translated.
PyTorch has no counterpart.
"""

from course_lib.languages.chosen import chosen, folder_of, known, of_copy
from course_lib.languages.labels import translate, translate_html
from course_lib.languages.messages import phrase, translate_message

__all__ = [
    "chosen",
    "folder_of",
    "known",
    "of_copy",
    "phrase",
    "translate",
    "translate_html",
    "translate_message",
]
