"""Pictures of lesson 16: the blocks of a mask, and a softmax that is summed block by block."""

from __future__ import annotations

import math

import pytest
import torch

from course_lib.viz.pictures.scheduling.mask_blocks import mask_blocks
from course_lib.viz.pictures.scheduling.running_softmax import running_softmax, steps_of


def test_each_block_of_a_causal_mask_is_hidden_cut_or_whole():
    picture = mask_blocks(torch.ones(6, 6).tril().bool(), 2, 2)
    assert picture.text.splitlines()[:3] == ["◪··", "■◪·", "■■◪"]
    assert "3 of 9 need not be computed" in picture.caption and "thick frame" not in picture.text


def test_the_last_blocks_may_be_shorter_and_the_frames_are_told():
    mask = [[True] * 5, [False] * 5, [False] * 4 + [True]]
    picture = mask_blocks(mask, 2, 3, [(0, 3), (3, 6)])
    assert picture.text.splitlines()[:2] == ["◪◪", "·◪"]
    assert "thick frame" in picture.text and "thick frame" in picture.alt


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (([1, 2], 1, 1), "mask is a matrix of truth values"),
        (([[True], [True, False]], 1, 1), "mask is a matrix of truth values"),
        ((torch.ones(50, 3), 1, 1), "50 × 3 blocks are too many to draw"),
        ((torch.ones(4, 4), 2, 2, [(0, 2)]), "walked has 1 pair, and there are 2 rows of blocks"),
    ],
)
def test_what_cannot_be_drawn_is_told(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        mask_blocks(*arguments)


def test_a_walk_is_made_of_pairs():
    with pytest.raises(TypeError, match="walked is a list of pairs"):
        mask_blocks(torch.ones(2, 2), 1, 1, [0, 2])


@pytest.mark.parametrize("size", [1, 2, 3, 8, 20])
def test_the_last_step_has_the_maximum_and_the_sum_of_the_row(size):
    row = [1.0, 3.0, 2.0, 5.0, 4.0, 0.0, 5.0, 2.0]
    last = steps_of(row, size)[-1]
    assert last.maximum == 5 and math.isclose(last.total, sum(math.exp(x - 5) for x in row))


def test_the_factor_stands_where_the_maximum_grows():
    picture = running_softmax([1, 3, 2, 5, 4, 0, 5, 2], 2)
    assert picture.text.splitlines()[3].split() == ["2", "5", "5", "×", "0.135", "1.203"]
    assert (
        picture.body.count(">× 0.135<") == 2
    )  # over the line that steps up, and in the row of factors


@pytest.mark.parametrize("numbers", [[], [math.inf, 1.0], [0.0] * 33])
def test_numbers_that_cannot_be_drawn_are_told(numbers):
    with pytest.raises(ValueError, match="1 to 32 finite numbers"):
        running_softmax(numbers, 2)


def test_both_pictures_follow_the_theme():
    for picture in (running_softmax([-1, 2], 1), mask_blocks([[True, False]], 1, 1)):
        assert picture.caption and picture.alt
        assert "#000" not in picture.body and "#fff" not in picture.body
        assert 'font-size="10' not in picture.body
