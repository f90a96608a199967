"""Padding: both ends of a channel count the same beats."""

from tests.dataflow.streams.small import gemm, softmax, streams


def test_padding_rounds_up_to_the_copies_of_either_end() -> None:
    made = streams(gemm(j=5), "{time: [k], nodes: {c.part: {unroll: {j: 2}}}}")
    part, total = made.by_name["c.part"], made.by_name["c"]
    # 5 columns for 2 copies: 3 turns each, so that the total takes 6 beats.
    assert (made.trips(part, "j"), made.trips(total, "j")) == (3, 6)


def test_padding_takes_the_least_common_multiple() -> None:
    made = streams(softmax(rows=5), "{nodes: {r: {unroll: {rows: 2}}, e: {unroll: {rows: 4}}}}")
    # r, x.shifted and e are joined by FIFOs over rows: lcm(2, 4) = 4 divides 8, not 5.
    assert made.groups["r", "rows"] == 8
    assert made.trips(made.by_name["e"], "rows") == 2


def test_padding_counts_groups_of_lanes() -> None:
    text = "{nodes: {r: {vector: {rows: 2}}, x.shifted: {vector: {rows: 2}, unroll: {rows: 2}}}}"
    made = streams(softmax(rows=5), text)
    # 5 rows in lanes of 2 are 3 groups, for 2 copies 4.
    assert made.groups["r", "rows"] == 4


def test_padding_stops_at_scratchpads() -> None:
    made = streams(gemm(j=5), "{nodes: {c: {unroll: {j: 2}}}}")
    assert made.trips(made.by_name["c"], "j") == 3
    assert made.by_name["store c"].lanes == 4
    assert made.groups["store c", "j"] == 2  # ceil(5 / 4) beats, no more


def test_padding_of_a_dealing_writer_fills_every_copys_turn() -> None:
    made = streams(
        gemm(j=5), "{nodes: {load b: {vector: {j: 1}}, c: {vector: {j: 2}, unroll: {j: 2}}}}"
    )
    # The load deals blocks of 2 to 2 copies: 5 elements fill 8 places.
    assert made.groups["load b", "j"] == 8
