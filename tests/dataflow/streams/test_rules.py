"""What loops, copies and channels must keep together: each breach is refused, and says where."""

import pytest

from dataflow import kernels
from dataflow.schedule import ScheduleError
from tests.dataflow.streams.small import gemm, running_sum, streams

LSTM = kernels.build("lstm", {"batch": 1, "t": 3, "h": 4, "e": 2}, {}, rewrites=())
ONLINE = kernels.build("softmax", {"rows": 3, "n": 6}, {"block": 2}, rewrites=("online_softmax",))


@pytest.mark.parametrize(
    ("graph", "text", "fault"),
    [
        (
            running_sum(),
            "{time: [t], nodes: {y: {unroll: {t: 2}}}}",
            "nodes.y.unroll.t must be 1, got 2; y of one point of it needs the point before",
        ),
        (
            running_sum(),
            "{tile: {t: 2}, time: [t.o, t], nodes: {y: {unroll: {t.o: 2}}}}",
            "nodes.y.unroll.t.o must be 1, got 2; y of one point of it needs the point before",
        ),
        (
            running_sum(),
            "{tile: {t: 2}, time: [t.o, h, t]}",
            "time must name h before t.o or after t; y of one point of t needs the point before",
        ),
        (LSTM, "{time: [k, t]}", "time must name t before k: at each t uy adds up over it"),
        (LSTM, "{time: [g, t]}", "must leave t outside the tiles of"),
        (
            ONLINE,
            "{time: [n.b], channels: {r -> r.drop: {at: ''}}}",
            "channels.r -> r.drop must leave n.b outside the tiles",
        ),
        (
            ONLINE,
            "{time: [n.b], nodes: {p: {unroll: {n.b: 2}}}}",
            "nodes.p.unroll.n.b must divide the 3 points of n.b, got them padded to 4",
        ),
        (
            gemm(),
            "{time: [i], nodes: {load a: {unroll: {i: 2}}}}",
            "nodes.load a.unroll.i must be 1, as c has 1 over i, got 2",
        ),
        (
            gemm(),
            "{time: [k], channels: {c.part -> c: {at: ''}}}",
            "channels.c.part -> c.at must be k or a loop inside it",
        ),
        (
            gemm(j=6),
            "{nodes: {c: {vector: {j: 4}, unroll: {j: 3}}}}",
            "nodes.c.unroll.j must be at most 2, the groups of 4 that j has, got 3",
        ),
        (
            gemm(),
            "{nodes: {store c: {vector: {i: 2}}}}",
            "nodes.store c.vector.i must be the innermost digit of its tile, j, got i",
        ),
        (
            gemm(),
            "{nodes: {load a: {vector: {i: 2}}}}",
            "nodes.load a.vector.i must be the innermost digit of its tile, k, got i",
        ),
        (
            gemm(),
            "{nodes: {store c: {pack: {i: 2}}}}",
            "nodes.store c.pack.i must be left out: off-chip beats are not packed",
        ),
    ],
)
def test_rules_refuse(graph, text, fault) -> None:
    with pytest.raises(ScheduleError) as caught:
        streams(graph, text)
    assert fault in str(caught.value)


def test_rules_let_copies_divide_the_axis_of_a_recurrence() -> None:
    made = streams(ONLINE, "{time: [n.b], nodes: {p: {unroll: {n.b: 3}}}}")
    assert made.trips(made.by_name["p"], "n.b") == 1


def test_rules_let_a_recurrence_run_past_its_last_point_where_no_one_wants_that() -> None:
    # LSTM: 3 points in blocks of 2; y and c start afresh at the first point
    made = streams(LSTM, "{tile: {t: 2}, time: [t.o, t]}")
    assert made.trips(made.by_name["y"], "t.o") * made.trips(made.by_name["y"], "t") == 4
    with pytest.raises(ScheduleError, match=r"tile.n.b must divide the 3 points of n.b"):
        streams(ONLINE, "{tile: {n.b: 2}, time: [n.b.o, n.b]}")


def test_rules_let_one_writer_deal_to_copies() -> None:
    copied = ", ".join(f"{name}: {{unroll: {{i: 2}}}}" for name in ("c", "store c"))
    made = streams(gemm(), f"{{time: [i], nodes: {{{copied}}}}}")
    assert made.trips(made.by_name["load a"], "i") == 8
