"""What a widget shows where there are none, and beneath it in a saved notebook."""

from __future__ import annotations

from typing import Any


class Live:
    """Base of what has two forms: `widget`, which needs a browser and anywidget, and `picture`, which needs nothing."""

    picture: Any
    widget: Any

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        """The widget where there are widgets; the picture in any case."""
        static = self.picture._repr_mimebundle_()
        try:
            live = self.widget._repr_mimebundle_(include=include, exclude=exclude)
        except ImportError:
            return static
        data, metadata = live if isinstance(live, tuple) else (live, {})
        return {**(data or {}), **static}, metadata or {}
