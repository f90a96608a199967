"""Channels: where a value waits, how much of it, and how often it is read, by hand."""

import pytest

from dataflow import kernels
from dataflow.schedule import Schedule, ScheduleError
from dataflow.streams import stream
from tests.dataflow.streams.small import edge, gemm, running_sum, softmax, streams

TILED = "tile: {i: 4, j: 3, k: 5}, time: [i.o, j.o, k.o], walk: [i, j, k]"
"""Of 8 x 6 x 10 points: 2 x 2 x 2 tiles of 4 x 3 x 5."""


def test_channel_loads_a_tile_for_each_point_of_the_loops_down_to_its_own() -> None:
    made = streams(gemm(), f"{{{TILED}}}")
    a, b = edge(made, "load a -> c.part"), edge(made, "load b -> c.part")
    # a lacks j.o but k.o is inside it: a's 4 x 5 tile comes again for each j.o.
    assert (a.kind, a.common) == ("scratchpad", 3)
    assert made.by_name["load a"].domain == ("i.o", "j.o", "k.o")
    assert made.tile_elems(a) == 4 * 5
    assert made.reuse(a) == 3  # each element once for each j of the tile
    assert (made.tile_elems(b), made.reuse(b)) == (5 * 3, 4)


def test_channel_loads_at_an_outer_loop_what_it_is_told_to() -> None:
    made = streams(gemm(), f"{{{TILED}, channels: {{a -> c.part: {{at: i.o}}}}}}")
    a = edge(made, "load a -> c.part")
    assert made.by_name["load a"].domain == ("i.o",)
    assert made.tile_elems(a) == 4 * 10  # all k
    assert made.reuse(a) == 2 * 3  # j.o and j


def test_channel_loads_once_what_is_loaded_at_no_loop() -> None:
    made = streams(gemm(), f"{{{TILED}, channels: {{load b -> c.part: {{at: ''}}}}}}")
    b = edge(made, "load b -> c.part")
    assert (made.tile_elems(b), made.reuse(b), b.depth) == (10 * 6, 2 * 4, 1)


def test_channel_passes_beats_on_where_orders_agree() -> None:
    made = streams(gemm(), f"{{{TILED}}}")
    parts = edge(made, "c.part -> c")
    assert (parts.kind, parts.depth, made.reuse(parts)) == ("fifo", 0, 1)


def test_channel_packs_a_tile_where_lanes_differ() -> None:
    made = streams(gemm(), f"{{{TILED}}}")
    stored = edge(made, "c -> store c")
    # The store takes 3 elements of j a beat, c makes one: a tile of 4 x 3, two of them.
    assert made.by_name["store c"].lanes == 3
    assert (stored.kind, made.tile_elems(stored), stored.depth) == ("scratchpad", 12, 2)
    assert stored.common == 2


def test_channel_of_a_row_value_is_read_once_for_each_of_the_row() -> None:
    made = streams(softmax(rows=3, n=5))
    r = edge(made, "r -> x.shifted")
    assert (r.kind, made.reuse(r), r.touch) == ("fifo", 5, ("rows",))


def test_channel_is_a_scratchpad_where_reuse_is_outside() -> None:
    made = streams(softmax(), "{nodes: {x.shifted: {walk: [n, rows]}, r: {walk: [rows, n]}}}")
    # All 3 rows of r are read again for each n.
    r = edge(made, "r -> x.shifted")
    assert (r.kind, made.tile_elems(r), made.reuse(r)) == ("scratchpad", 3, 5)


def test_channel_collects_what_it_is_told_to() -> None:
    made = streams(softmax(), "{time: [rows], channels: {r -> x.shifted: {at: ''}}}")
    r = edge(made, "r -> x.shifted")
    assert (r.kind, r.common, made.tile_elems(r)) == ("scratchpad", 0, 3)


def test_channels_share_one_load_where_readers_are_alike() -> None:
    made = streams(softmax())
    assert {e.target for e in made.out_of("load x")} == {"r", "x.shifted"}
    assert [node.name for node in made.nodes if node.kind == "load"] == ["load x"]


def test_channels_load_apart_where_readers_differ() -> None:
    made = streams(softmax(), "{time: [rows], channels: {x -> r: {at: ''}}}")
    loads = {node.name: node.domain for node in made.nodes if node.kind == "load"}
    assert loads == {"load x": (), "load x -> x.shifted": ("rows",)}


def test_channel_shares_one_load_among_copies_that_do_not_follow_it() -> None:
    copied = ", ".join(f"{name}: {{unroll: {{j.o: 2}}}}" for name in ("c.part", "c", "store c"))
    made = streams(gemm(), f"{{{TILED}, nodes: {{{copied}}}}}")
    a = made.by_name["load a"]
    # a has no j: one load serves both copies, and turns j.o once for the two of them.
    assert dict(a.merge) == {"j.o": 2}
    assert made.trips(a, "j.o") == 1


def test_channel_feeds_a_recurrence_back() -> None:
    back = edge(streams(running_sum(), "{time: [t]}"), "y -> y")
    assert (back.earlier, back.kind, back.touch) == ("t", "fifo", ("t", "h"))


def test_channel_takes_only_the_last_point_where_that_is_asked() -> None:
    sizes, options = {"rows": 3, "n": 8}, {"block": 4}
    graph = kernels.build("softmax", sizes, options, rewrites=("online_softmax",))
    made = streams(graph, "{time: [n.b]}")
    assert edge(made, "l -> y").last == ("n.b",)
    assert "n.b" not in made.by_name["y"].domain


def test_channels_and_nodes_are_printed() -> None:
    text = str(streams(gemm(), f"{{{TILED}}}"))
    assert "c: for i.o=2 j.o=2 k.o=2; walk i=4 j=3; carries k.o" in text
    assert "load a -> c.part: a in a scratchpad of 2 x 20 elements, read 3x" in text


@pytest.mark.parametrize(
    ("channels", "fault"),
    [
        ("a -> c: {depth: 2}", "channels.a -> c must be a channel of the kernel"),
        ("a -> c.part: {at: i}", "channels.a -> c.part.at must be a domain loop of c.part"),
        ("c.part -> c: {at: k}", "channels.c.part -> c.at must be one of the loops"),
        ("c -> store c: {locality: fifo}", "locality must be scratchpad, got fifo"),
    ],
)
def test_channels_that_cannot_be_are_refused(channels, fault) -> None:
    with pytest.raises(ScheduleError) as caught:
        streams(gemm(), f"{{{TILED}, channels: {{{channels}}}}}")
    assert fault in str(caught.value)


def test_channel_faults_have_their_place_in_the_file(tmp_path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("time: [i]\nchannels:\n  c -> store c:\n    locality: fifo\n")
    with pytest.raises(ScheduleError) as caught:
        stream(gemm(), Schedule.from_yaml(path), 4)
    assert str(caught.value).startswith(f"{path}:4:15: channels.c -> store c.locality must")
