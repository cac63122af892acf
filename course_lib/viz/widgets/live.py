"""A picture in place of a widget: where no widget can live, and in a saved notebook.

In:  a `picture` (a figure that needs nothing) and a `widget` (its live form, which needs a browser
     and anywidget).
Out: what a notebook's cell shows. JupyterLab prefers a widget to a picture. Once the kernel is gone
it finds no widget, and shows an error in place of the picture. So the cell's output there is the
picture alone, with a name in it. As long as there is a kernel that has the widget, live.js finds
that name in the page and puts the live form in its place.
In PyTorch there is no such thing.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Any

from course_lib.viz.kit.style import sheet

SCRIPT = Path(__file__).with_name("live.js")
ENDING = "export default { render };"
"""The last line of each widget's own script."""


class Live:
    """Base of what has two forms: `widget`, which needs a browser and anywidget, and `picture`,
    which needs nothing."""

    picture: Any
    widget: Any

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """The picture in any case, and the widget where there are widgets."""
        static = self.picture._repr_mimebundle_()
        try:
            widget = self.widget
        except ImportError:
            return static

        # live.js finds the picture by this name.
        if page_finds_its_widgets():
            name = f'<figure id="cl-live-{widget.place}" '
            return {**static, "text/html": static["text/html"].replace("<figure ", name, 1)}

        # (anywidget gives data alone, or with metadata, or None, as Jupyter lets it.)
        live = widget._repr_mimebundle_(include=include, exclude=exclude)
        data, metadata = live if isinstance(live, tuple) else (live, {})
        return {**(data or {}), **static}, metadata or {}


def page_finds_its_widgets() -> bool:
    """Whether the page is JupyterLab's or Notebook's, which knows of every widget as soon as the
    kernel makes it.

    VS Code and Colab load what draws widgets only where an output says that it is one."""
    # Jupyter's server sets this variable. VS Code does too, to a name with "-jvsc-" in it.
    session = os.environ.get("JPY_SESSION_NAME", "")
    return bool(session) and "-jvsc-" not in session and "google.colab" not in sys.modules


def widget_class(script: Path, *sheets: str) -> Any:
    """The base of a widget that is drawn by `script`. Raises ImportError without `anywidget`."""
    import anywidget
    import traitlets

    own = script.read_text(encoding="utf-8")
    shared = SCRIPT.read_text(encoding="utf-8")

    class CourseWidget(anywidget.AnyWidget):
        """Everything happens in the browser. `place` is the name of its place in the page."""

        # One module: live.js has an export of its own, which calls `render` of the script.
        _esm = own.replace(ENDING, "") + shared
        _css = sheet(*sheets)
        place = traitlets.Unicode().tag(sync=True)

        @traitlets.default("place")
        def _new_place(self) -> str:
            return secrets.token_hex(8)

    return CourseWidget
