"""Pictures of lesson 08: who waits for whom, and what becomes of it when two kernels are one."""

from __future__ import annotations

import pytest

from course_lib.viz.pictures.scheduling.order import circles, merged, order

THROUGH_A_PRODUCT = {"relu": [], "matmul (library)": ["relu"], "add": ["relu", "matmul (library)"]}
FORK = {"exp": [], "sin": ["exp"], "cos": ["exp"], "add": ["sin", "cos"]}


def test_two_kernels_with_a_third_between_them_make_a_circle():
    picture = order(THROUGH_A_PRODUCT, ("relu", "add"))
    assert picture.text.splitlines() == [
        "One by one: matmul (library) after relu; add after relu and matmul (library)",
        "As one: relu · add after matmul (library); matmul (library) after relu · add",
        "A circle: matmul (library) → relu · add → …",
    ]
    assert "#D55E00" in picture.body and "both before and after" in picture.caption


def test_two_kernels_that_may_be_one_make_none():
    for pair in (("sin", "cos"), ("exp", "sin"), ("sin", "add")):
        picture = order(FORK, pair)
        assert "circle" not in picture.text and "#D55E00" not in picture.body
    assert merged({n: tuple(b) for n, b in FORK.items()}, ("sin", "cos"))["add"] == ("sin · cos",)


def test_only_the_arrows_of_the_circle_are_in_the_colour_of_errors():
    graph = merged({n: tuple(b) for n, b in (FORK | {"end": ["add"]}).items()}, ("exp", "add"))
    assert circles(graph) == {(a, b) for a in ("sin", "cos") for b in ("exp · add",)} | {
        ("exp · add", "sin"),
        ("exp · add", "cos"),
    }


def test_a_kernel_that_is_not_there_is_told_by_its_name():
    with pytest.raises(
        LookupError, match="order knows no kernel 'tan'; there are exp, sin, cos, add"
    ):
        order(FORK, ("exp", "tan"))
    with pytest.raises(LookupError, match="no kernel 'tan'"):
        order({"exp": ["tan"]})


def test_the_picture_follows_the_theme():
    picture = order(FORK)
    assert picture.caption and picture.alt
    assert (
        "#000" not in picture.body
        and "#fff" not in picture.body
        and 'font-size="10' not in picture.body
    )
