"""The order in which workers take modules: none is left with minutes of work when the other is done."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace


def item(nodeid: str, slow: bool = False) -> SimpleNamespace:
    return SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: slow and name == "slow")


def test_modules_with_slow_tests_come_first_then_large_ones_and_no_module_is_torn():
    spec = importlib.util.spec_from_file_location(
        "tests_conftest", Path(__file__).parents[1] / "conftest.py"
    )
    conftest = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(conftest)
    items = [
        item("few::a"),
        item("many::a"),
        item("late::a"),
        item("many::b"),
        item("late::b", slow=True),
        item("few::b"),
        item("many::c"),
    ]
    ordered = [each.nodeid for each in conftest.long_modules_first(items)]
    assert ordered == ["late::a", "late::b", "many::a", "many::b", "many::c", "few::a", "few::b"]
