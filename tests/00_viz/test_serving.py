"""Queues and latencies of a server, as pictures."""

from __future__ import annotations

import random
import re

import pytest

from course_lib.viz.pictures.runtime.request_queue import Handled, latencies, percentile, queue


def widths(picture, opacity):
    return [
        float(w)
        for w in re.findall(
            rf'width="([\d.]+)" height="17"[^>]*fill-opacity="{opacity}"', picture.body
        )
    ]


def test_a_queue_draws_compiling_running_and_padding_to_scale():
    picture = queue([Handled(0, 3, 4, 0, 40, 4), Handled(6, 4, 4, 44, 0, 4)], until=100)
    compiling, running, padding = (
        widths(picture, strength) for strength in ("0.45", "0.4", "0.18")
    )
    assert compiling == [224.0]  # 40 of 100 ticks of 560 px
    assert running == pytest.approx([16.8, 22.4]) and padding == pytest.approx([5.6])
    assert "1 compile; the longest latency is 44" in picture.alt
    assert picture.text.splitlines()[2].split() == ["3", "tokens", "0", "0", "40", "4", "1", "44"]


def test_a_request_waits_from_its_arrival_to_the_end_of_its_run():
    one = Handled(arrived=6, length=3, size=4, began=44, compiling=40, running=4)
    assert (one.done, one.latency) == (88, 82)


@pytest.mark.parametrize("p", [1, 50, 95, 99, 100])
def test_a_percentile_is_the_smallest_sample_that_so_many_do_not_exceed(p):
    values = [random.Random(p).random() for _ in range(137)]
    wanted = next(v for v in sorted(values) if 100 * sum(w <= v for w in values) >= p * len(values))
    assert percentile(values, p) == wanted


def test_latencies_show_the_three_percentiles_of_each_lane():
    picture = latencies({"eager": [float(v) for v in range(1, 101)], "compiled": [5000.0] * 100})
    assert [line.split() for line in picture.text.splitlines()[2:]] == [
        ["eager", "100", "50", "95", "99"],
        ["compiled", "100", "5,000", "5,000", "5,000"],
    ]
    assert picture.body.count('stroke-opacity="0.35"') == 200


def test_what_cannot_be_drawn_is_told():
    for nothing in ({}, {"eager": []}):
        with pytest.raises(ValueError, match="at least one sample"):
            latencies(nothing)
    with pytest.raises(ValueError, match="must be positive"):
        latencies({"eager": [0.0, 1.0]})
    with pytest.raises(ValueError, match="at least one request"):
        queue([])
    with pytest.raises(ValueError, match="at least one sample"):
        percentile([], 50)
