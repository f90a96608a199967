"""Digits: how axes split, and the faults of orders."""

import pytest

from dataflow.schedule import Schedule, ScheduleError
from dataflow.streams.digits import digits_of
from tests.dataflow.streams.small import gemm, running_sum


def digits(graph, text):
    return digits_of(graph, Schedule.from_yaml(text))


def test_digits_of_a_tiled_axis_count_tiles_and_points() -> None:
    made = digits(gemm(i=10), "{tile: {i: 4}, time: [i.o]}")
    # 10 points in tiles of 4: 3 tiles, the last with 2 points.
    outer, inner = made["i.o"], made["i"]
    assert (outer.stride, outer.extent, outer.time) == (4, 3, True)
    assert (inner.stride, inner.extent, inner.time) == (1, 4, False)
    assert made.of_axis["i"] == ("i.o", "i")


def test_digits_of_a_tile_wider_than_its_axis_are_one_tile() -> None:
    made = digits(gemm(i=3), "{tile: {i: 64}, time: [i.o]}")
    assert (made["i.o"].extent, made["i"].extent) == (1, 3)


def test_digits_of_a_whole_axis_may_be_time() -> None:
    made = digits(gemm(), "{time: [k, i]}")
    assert made.time == ("k", "i")
    assert made.walk == ("j",)


def test_digits_not_named_in_walk_follow_it() -> None:
    assert digits(gemm(), "{walk: [k]}").walk == ("k", "i", "j")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{tile: {q: 4}}", "tile.q must be an axis of the kernel"),
        ("{tile: {i: 4}}", "must name i.o: it counts tiles"),
        ("{tile: {i: 4}, time: [i.o, i.o]}", "must name each digit once, got i.o again"),
        ("{time: [i], walk: [i]}", "got i again (first under time)"),
        ("{time: [i.o]}", "must be a digit of the kernel, got 'i.o'"),
    ],
)
def test_digits_that_do_not_fit_are_refused_by_name(text, fault) -> None:
    with pytest.raises(ScheduleError, match="must") as caught:
        digits(gemm(), text)
    assert fault in str(caught.value)


def test_digits_of_a_recurrence_are_time_in_the_order_of_its_points() -> None:
    with pytest.raises(ScheduleError, match="must name t: it carries a recurrence"):
        digits(running_sum(), "{}")
    with pytest.raises(ScheduleError, match=r"must name t\.o before t: t carries a recurrence"):
        digits(running_sum(), "{tile: {t: 2}, time: [t, t.o]}")
    assert digits(running_sum(), "{tile: {t: 2}, time: [t.o, t]}").of_axis["t"] == ("t.o", "t")


def test_digits_report_every_fault_at_once() -> None:
    with pytest.raises(ScheduleError) as caught:
        digits(gemm(), "{tile: {i: 4, q: 2}, time: [z]}")
    assert len(str(caught.value).splitlines()) == 3
