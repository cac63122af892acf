"""Install the course's kernel for JupyterLab: `python course_lib/grading/kernelspec.py`
(`make setup` does it).

In:  the environment that this Python belongs to. Out: its kernel `course`, and the one setting of
     Lab that the lessons want.

It is ipykernel, but for one word. A kernel tells Lab its Python version, `3.11.7`, and Lab writes
that into each notebook that is opened. Then opening a lesson would change a file of the course on
every machine with another version. So this kernel says `3`, which the stored notebooks say, too
(`LANGUAGE_INFO` of `notebooks`).

The setting: long lines of code go on in the next line. Else Lab cuts them off in a window of 1280
pixels, in one cell of six.

This file imports nothing of the package, so that `make setup` need not load torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

NAME, SHOWN = "course", "Course (torch.compile)"
"""The kernel in a notebook's metadata, and as Lab shows it."""

# What `ipykernel_launcher` does, with the version changed first. Its first two lines are
# ipykernel's: no file of the working folder may stand in for a module while the kernel loads.
LAUNCH = """\
import sys
sys.path[:1] = [] if sys.path[:1] == [''] else sys.path[:1]
from ipykernel.ipkernel import IPythonKernel
IPythonKernel.language_info = {**IPythonKernel.language_info, 'version': '3'}
from ipykernel import kernelapp
kernelapp.launch_new_instance()
"""


def install(prefix: str = sys.prefix) -> Path:
    """Write the kernel's files below `prefix`; gives the path of `kernel.json`."""
    from ipykernel import kernelspec

    folder = kernelspec.install(prefix=prefix, kernel_name=NAME, display_name=SHOWN)
    path = Path(folder, "kernel.json")
    spec = json.loads(path.read_text(encoding="utf-8"))
    spec["argv"] = with_launch(spec["argv"])
    path.write_text(json.dumps(spec, indent=1) + "\n", encoding="utf-8")
    return path


def with_launch(argv: list[str]) -> list[str]:
    """The command that starts the kernel, with `LAUNCH` in the place of ipykernel's own module."""
    place = argv.index("-m")
    return [*argv[:place], "-c", LAUNCH, *argv[place + 2 :]]


# Lab's own settings for cells of code, with wrapping switched on (the whole entry replaces Lab's)
WRAPPED = {
    "@jupyterlab/notebook-extension:tracker": {
        "codeCellConfig": {"lineNumbers": False, "lineWrap": True}
    }
}


def wrap_long_lines(prefix: str = sys.prefix) -> Path:
    """Have Lab fold long lines of code, unless a setting of this environment says something else
    about them already."""
    path = Path(prefix, "share", "jupyter", "lab", "settings", "overrides.json")
    settings = {}
    if path.exists():
        try:
            settings = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return path  # somebody's file, which only they can mend

    if isinstance(settings, dict):
        path.parent.mkdir(parents=True, exist_ok=True)
        # (What is there already wins.)
        path.write_text(json.dumps(WRAPPED | settings, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    # Run as a file, the folder of this file stands first on the path, and `answers` or `checks`
    # could be found by mistake.
    sys.path[:1] = []
    print(install())
    print(wrap_long_lines())
