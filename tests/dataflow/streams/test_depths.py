"""How much a channel holds, by hand."""

import pytest

from dataflow import kernels
from dataflow.schedule import ScheduleError
from tests.dataflow.streams.small import edge, softmax, streams

FIFO = 16  # beats of an ordinary FIFO


def online(rows=3, n=8, block=4):
    sizes, options = {"rows": rows, "n": n}, {"block": block}
    return kernels.build("softmax", sizes, options, rewrites=("online_softmax",))


def test_depth_of_a_row_that_waits_for_its_sum_is_the_whole_row() -> None:
    made = streams(softmax(rows=3, n=50))
    # y needs e again once l has summed the 50 of a row; other channels need no more than a FIFO.
    waiting = edge(made, "e -> y")
    assert waiting.depth == 50 + FIFO
    assert "y waits for l over n" in waiting.why
    assert edge(made, "e -> l").depth == 0
    assert edge(made, "r -> x.shifted").depth == 0


def test_depth_of_a_row_counts_beats_not_elements() -> None:
    lanes = ", ".join(f"{name}: {{vector: {{n: 4}}}}" for name in ("x.shifted", "e", "l", "y"))
    made = streams(softmax(rows=3, n=50), f"{{nodes: {{{lanes}}}}}")
    assert edge(made, "e -> y").depth == 13 + FIFO  # ceil(50 / 4)


def test_depth_of_the_online_form_is_that_of_a_fifo() -> None:
    made = streams(online(), "{time: [n.b]}")
    block = edge(made, "p -> bl")
    assert (block.kind, block.depth) == ("fifo", 0)


def test_depth_of_a_tile_that_never_changes_is_one() -> None:
    made = streams(softmax())
    assert edge(made, "load x -> r").depth == 1
    assert edge(streams(softmax(), "{time: [rows]}"), "load x -> r").depth == 2


def test_depth_of_tiles_that_wait_for_a_pass_is_all_of_them() -> None:
    # Over tiles of n, the maximum of all 3 tiles comes before the first is read again.
    made = streams(softmax(n=6), "{tile: {n: 2}, time: [n.o]}")
    again = edge(made, "load x -> x.shifted")
    assert (again.kind, again.depth) == ("scratchpad", 3 + 1)


def test_depth_of_a_feedback_in_tiles_holds_one_point_of_its_axis() -> None:
    text = "{tile: {rows: 1}, time: [n.b, rows.o], channels: {l -> l.kept: {locality: scratchpad}}}"
    back = edge(streams(online(), text), "l -> l.kept")
    # A tile for each of the 3 rows, of the block before, and one that fills.
    assert back.depth == 3 + 1


def test_depth_of_a_turn_is_held_where_copies_take_turns() -> None:
    # heads outermost in the walk: copy 0 takes 20 beats, then copy 1 does.
    made = streams(softmax(rows=2, n=20), "{nodes: {e: {unroll: {rows: 2}}}}")
    assert edge(made, "x.shifted -> e").depth == 20 + FIFO


def test_depth_is_the_users_where_given() -> None:
    made = streams(softmax(), "{channels: {e -> y: {depth: 7}}}")
    assert (edge(made, "e -> y").depth, edge(made, "e -> y").why) == (7, "by the schedule")


def test_depth_below_what_a_feedback_starts_with_is_refused() -> None:
    text = (
        "{tile: {rows: 1}, time: [n.b, rows.o],"
        " channels: {l -> l.kept: {locality: scratchpad, depth: 2}}}"
    )
    with pytest.raises(ScheduleError, match="depth must be at least 3, the tiles it starts with"):
        streams(online(), text)
