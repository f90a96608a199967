"""What follows from a schedule: domains, tiles, reuse, buffers, padding."""

import pytest

from dataflow.graph import Builder
from dataflow.kernels import build
from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule, ScheduleError
from dataflow.streams import Edge, StreamGraph, stream


def _gemm(extent: int = 8) -> object:
    return build("gemm", {"i": extent, "j": extent, "k": extent})


def _edge(made: StreamGraph, name: str) -> Edge:
    return next(edge for edge in made.edges if edge.name == name)


def test_gemm_walks_its_tile_with_the_reduced_axis_innermost() -> None:
    made = stream(_gemm(), Schedule(tile={"i": 4}, time=("i.o",), walk=("k", "i", "j")))
    node = made.by_name["c"]
    assert (node.domain, node.walk, node.gone) == (("i.o",), ("i", "j", "k"), ("k",))
    assert [made.trips(node, digit) for digit in node.loops] == [2, 4, 8, 8]


def test_loads_follow_the_digits_of_their_tensor() -> None:
    made = stream(_gemm(), Schedule(tile={"i": 4, "j": 2}, time=("i.o", "j.o")))
    a, b = _edge(made, "load a -> c"), _edge(made, "load b -> c")
    # a stands still over j.o; b lacks i.o but is loaded again for each, lying inside.
    assert (a.common, made.tile_elems(a), made.reuse(a)) == (1, 4 * 8, 4 * 2)
    assert (b.common, made.tile_elems(b), made.reuse(b)) == (2, 8 * 2, 4)


def test_at_keeps_a_tensor_on_chip() -> None:
    schedule = Schedule(
        tile={"i": 4, "j": 2}, time=("i.o", "j.o"), channels={"b -> c": ChannelSchedule(at="")}
    )
    b = _edge(stream(_gemm(), schedule), "load b -> c")
    assert (b.common, b.depth, b.why) == (0, 1, "its tile never changes")


def test_sum_over_tiles_comes_in_parts_and_a_total() -> None:
    made = stream(_gemm(), Schedule(tile={"k": 4}, time=("k.o",)))
    part, total = made.by_name["c.part"], made.by_name["c"]
    assert (part.domain, part.gone, part.emits) == (("k.o",), ("k",), ("k.o",))
    assert (total.domain, total.carried, total.emits) == (("k.o",), ("k.o",), ())


@pytest.mark.parametrize("copies", [2, 4, 8])
def test_total_takes_one_partial_sum_of_every_copy_a_turn(copies: int) -> None:
    graph = build("sum_square", {"n": 64})
    nodes = {name: NodeSchedule(unroll={"n.o": copies}) for name in ("square", "total.part")}
    made = stream(graph, Schedule(tile={"n": 4}, time=("n.o",), nodes=nodes))
    # 16 tiles, each turn of the total taking one from every copy.
    assert made.trips(made.by_name["total"], "n.o") == 16 // copies


def test_lanes_along_another_axis_need_a_scratchpad() -> None:
    g = Builder("two", i=8, j=8)
    x = g.map("exp", g.input("x", "i j"), name="x1")
    g.output("y", g.map("exp", x, name="x2"))
    graph = g.build()
    along_j, along_i = NodeSchedule(vector={"j": 4}), NodeSchedule(vector={"i": 4})
    same = stream(graph, Schedule(nodes={"x1": along_j, "x2": along_j}))
    turned = stream(graph, Schedule(nodes={"x1": along_j, "x2": along_i}))
    assert _edge(same, "x1 -> x2").kind == "fifo"
    assert _edge(turned, "x1 -> x2").kind == "scratchpad"


def test_uneven_copies_pad_both_ends_alike() -> None:
    # 5 rows on 2 copies: 3 turns each, so a writer of single rows makes 6.
    g = Builder("two", i=5, j=4)
    x = g.map("exp", g.input("x", "i j"), name="x1")
    g.output("y", g.map("exp", x, name="x2"))
    made = stream(g.build(), Schedule(nodes={"x2": NodeSchedule(unroll={"i": 2})}))
    assert made.trips(made.by_name["x1"], "i") == 6
    assert made.trips(made.by_name["x2"], "i") == 3


def test_feedback_is_marked_with_its_axis() -> None:
    made = stream(build("lstm", {"h": 4, "t": 3}), Schedule(time=("batch", "t")))
    feedbacks = {edge.source for edge in made.edges if edge.earlier == "t"}
    assert feedbacks == {"y", "c"}


def test_faults_of_a_schedule_come_at_once() -> None:
    schedule = Schedule.from_yaml(
        "tile: {q: 4}\ntime: [i.o]\nnodes: {d: {}}\nchannels: {a -> d: {depth: 2}}\n"
    )
    with pytest.raises(ScheduleError) as caught:
        stream(_gemm(), schedule)
    text = str(caught.value)
    assert "<schedule text>:1:8" in text
    assert "<schedule text>:2:8" in text


def test_names_of_nodes_and_channels_are_checked() -> None:
    schedule = Schedule.from_yaml("nodes: {cc: {}}\n")
    with pytest.raises(ScheduleError, match=r"1:9: nodes.cc must be a node .*did you mean c\?"):
        stream(_gemm(), schedule)
    schedule = Schedule.from_yaml("channels: {a -> cc: {depth: 2}}\n")
    with pytest.raises(ScheduleError, match=r"must be a channel of the kernel"):
        stream(_gemm(), schedule)


def test_recurrent_axis_must_be_time() -> None:
    with pytest.raises(ScheduleError, match="must name t: it carries a recurrence"):
        stream(build("lstm", {"h": 4, "t": 3}), Schedule(time=("batch",)))


def test_stream_graph_prints_why_each_channel_is_as_deep_as_it_is() -> None:
    graph = build("attention", {"n": 8, "d": 4, "heads": 1}, rewrites=())
    text = str(stream(graph, Schedule(time=("batch", "heads", "n"))))
    assert "s.shifted waits for r over m: a whole pass, plus one FIFO" in text
