"""Keep what a save in JupyterLab writes over: a second window loses nothing of the first one's.

In:  the saves of the server that serves the course. Out: the file before each save, in the history
     of its lesson (`history`).

Two windows of one notebook write over each other: Lab asks, and who chooses *Overwrite* loses what
the other window saved. No command of the course runs then, so the server keeps the file. Only a
learner's copy is kept, and only where the text of its cells changes. The request tells whether
another window saved last: each window of Lab has a workspace, each browser a token.

`python course_lib/grading/lab_saves.py` tells the server of this environment to load this
(`make setup` and `make lab` do it). The PyTorch counterpart: none. Jupyter's:
`ContentsManager.register_pre_save_hook`, and `Checkpoints`, which keep one version.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

MODULE = "course_lib.grading.lab_saves"
PATIENCE = 1.0  # seconds that a save waits for a command: the server does nothing else meanwhile
LARGEST = 50 * 2**20
"""Bytes of a file that is compared with what replaces it. A larger one is kept, the same or not."""

# `/lab/workspaces/auto-k/tree/work/01.ipynb`: what Lab calls this window
_WORKSPACE = re.compile(r"/lab/workspaces/([^/?#]+)")


# ---- the server's side ---------------------------------------------------------------------------


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    """Jupyter's server asks a module for this when it loads it as an extension."""
    return [{"module": MODULE}]


def _load_jupyter_server_extension(server: Any) -> None:
    """Called by the server once, when it starts."""
    server.contents_manager.register_pre_save_hook(Saves(server.log).before)


class Saves:
    """Who saved which copy last, since the server started."""

    def __init__(self, log: Any) -> None:
        self.log = log
        # File → the window that saved it last
        self.last: dict[Path, str] = {}

    def before(self, model: Any, path: str, contents_manager: Any, **more: Any) -> None:
        """Keep the file that this save replaces. Whatever goes wrong here, the save goes on."""
        # The server's hooks get the path below the folder that it serves.
        file = Path(contents_manager.root_dir, path.strip("/")).resolve()
        try:
            self.keep(file, model.get("content"))
        except Exception as problem:
            self.log.warning("The version of %s before this save is not kept: %s", path, problem)

    def keep(self, file: Path, content: Any) -> None:
        """Keep the copy as it is on disk, if this save changes its text."""
        from .history import keep
        from .writing import Seen, alone

        lesson = lesson_of(file)
        if lesson is None:
            return
        window = name_of_window()
        window_before = self.last.get(file, window)
        self.last[file] = window

        file_before = Seen.of(lesson.copy)
        if not changes_text(file_before.data, content):
            return

        # Another window had saved it last: this save may write over work that the window has never
        # seen.
        why = "save" if window == window_before else "window"
        with alone(lesson.work, PATIENCE):
            keep(lesson, file_before, why)


def lesson_of(file: Path) -> Any:
    """The lesson whose copy this file is, or None."""
    from .errors import CourseError
    from .notebooks import find_root, lessons

    if file.suffix != ".ipynb":
        return None
    try:
        root = find_root(file.parent)
    except CourseError:
        return None
    return next((each for each in lessons(root) if each.copy.resolve() == file), None)


def name_of_window() -> str:
    """A name of the window and browser that sent the request of this moment; "" outside of a
    request."""
    from jupyter_server.base.call_context import CallContext

    handler = CallContext.get(CallContext.JUPYTER_HANDLER)
    if handler is None:
        return ""
    workspace = _WORKSPACE.search(handler.request.headers.get("Referer", ""))
    token = handler.get_cookie("_xsrf", "")
    return f"{workspace[1] if workspace else 'default'} {token}"


def changes_text(data: bytes | None, content: Any) -> bool:
    """Whether what is about to be written has other cells than the file.

    Outputs do not count. A file that is unreadable has."""
    if data is None:
        return False
    if len(data) > LARGEST:
        return True
    try:
        return texts(json.loads(data)) != texts(content)
    except (ValueError, TypeError, AttributeError, KeyError):
        return True


def texts(notebook: Any) -> list[tuple[str, str]]:
    """Kind and text of each cell; a file has the text as a list of lines."""
    cells = notebook["cells"]
    return [(cell["cell_type"], "".join(cell["source"])) for cell in cells]


# ---- where the server is told --------------------------------------------------------------------


def install(prefix: str = sys.prefix) -> Path:
    """Name this module to the server of the environment below `prefix`; gives the file that says
    so."""
    path = Path(prefix, "etc", "jupyter", "jupyter_server_config.d", "course_lib.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    config = {"ServerApp": {"jpserver_extensions": {MODULE: True}}}
    path.write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    return path


if __name__ == "__main__":
    # Run as a file, the folder of this file stands first on the path, and `answers` or `checks`
    # could be found by mistake.
    sys.path[:1] = []
    print(install())
