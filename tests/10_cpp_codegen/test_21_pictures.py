"""The picture of lesson 10: a loop cut for threads and lanes."""

from __future__ import annotations

import pytest

from course_lib.viz.pictures.codegen.lanes import lanes


def test_every_iteration_is_in_one_frame_and_what_is_left_over_is_the_tail():
    picture = lanes(11, 4)
    assert picture.text == "one thread: [0 1 2 3] [4 5 6 7] [8 9 10] tail"
    assert picture.body.count("stroke-dasharray") == 1
    assert all(f">{i}</text>" in picture.body for i in range(11))


def test_a_loop_that_comes_out_even_has_no_tail():
    picture = lanes(8, 4)
    assert "tail" not in picture.text and "stroke-dasharray" not in picture.body


def test_threads_get_neighbours_and_the_first_ones_more():
    assert lanes(18, 4, threads=2).text.splitlines() == [
        "thread 0: [0 1 2 3] [4 5 6 7] [8 9 10 11]",
        "thread 1: [12 13 14 15] [16 17] tail",
    ]
    assert lanes(4, 4, threads=2).text.splitlines()[1] == "thread 1: nothing"


def test_what_cannot_be_drawn_is_told():
    told = {
        (1000, 4): "draws 1 to 64 vectors",
        (0, 4): ": iterations is a whole number, 1 or more",
        (5, 0): ": width is a whole",
    }
    for numbers, what in told.items():
        with pytest.raises(ValueError, match=f"lanes{' ' * (what[0] != ':')}{what}"):
            lanes(*numbers)
