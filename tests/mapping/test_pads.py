"""Scratchpads: who shares one, what it holds, how many memory units it takes, by hand."""

import pytest

from dataflow.schedule import Schedule
from dataflow.streams import stream
from mapping.pads import choices, copy_name, plan_pads, state_elems, touch_distance
from mapping.partition import group_map, partition
from tests.cross.random_schedules import roomy
from tests.dataflow.streams.small import gemm, running_sum, softmax


def planned(graph, text="{}", machine=None):
    machine = machine or roomy()
    made = stream(graph, Schedule.from_yaml(text), 4)
    pads = plan_pads(made, group_map(partition(made, machine)), machine)
    return {pad.name: pad for pad in pads}


def test_choices_list_the_last_key_fastest() -> None:
    assert choices({"i": 2, "j": 2}) == [
        {"i": 0, "j": 0},
        {"i": 0, "j": 1},
        {"i": 1, "j": 0},
        {"i": 1, "j": 1},
    ]
    assert choices({}) == [{}]
    assert copy_name("c", {"i": 1, "j.o": 0}) == "c@i1,j.o0"


def test_pad_holds_its_tile_as_often_as_it_has_buffers() -> None:
    pad = planned(gemm(), "{time: [i]}")["load a -> c"]
    # A row of 10 elements of 4 B, two of them.
    assert (pad.tile_elems, pad.depth, pad.bytes, pad.cells) == (10, 2, 80, 1)


def test_pad_takes_as_many_units_as_its_bytes_fill() -> None:
    machine = roomy()
    memory = machine.memory.model_copy(update={"capacity_bytes": 64})
    pad = planned(gemm(), "{time: [i]}", machine.model_copy(update={"memory": memory}))
    assert pad["load a -> c"].cells == 2  # 80 B in units of 64 B
    assert pad["load b -> c"].cells == -(-10 * 6 * 4 // 64)


def test_pads_are_dealt_out_to_copies_that_each_want_a_part() -> None:
    pads = planned(gemm(), "{nodes: {load b: {vector: {j: 1}}, c: {unroll: {j: 2}}}}")
    dealt = [pad for name, pad in pads.items() if name.startswith("load b")]
    assert [dict(pad.copy) for pad in dealt] == [{"j": 0}, {"j": 1}]
    assert {pad.modes["j"] for pad in dealt} == {"deal"}
    assert [pad.tile_elems for pad in dealt] == [10 * 3, 10 * 3]


def test_pad_keeps_a_value_whole_for_copies_that_all_want_it() -> None:
    pads = planned(gemm(), "{nodes: {c: {unroll: {j: 2}}}}")
    (whole,) = [pad for name, pad in pads.items() if name.startswith("load a")]
    assert (dict(whole.copy), whole.tile_elems) == ({}, 80)


def test_pad_of_writers_in_step_with_readers_is_one_a_pair() -> None:
    text = "{walk: [j, i], nodes: {c: {unroll: {i: 2}}, store c: {unroll: {i: 2}}}}"
    pads = planned(gemm(), text)
    stored = [pad for name, pad in pads.items() if name.startswith("c ->")]
    assert [pad.modes for pad in stored] == [{"i": "pair"}, {"i": "pair"}]
    assert [pad.writers for pad in stored] == [({"i": 0},), ({"i": 1},)]


def test_pad_has_a_port_for_every_writer() -> None:
    # Four copies of c fill one tile of the store, two beats a cycle a unit.
    pads = planned(gemm(i=8), "{nodes: {c: {unroll: {i: 4}}}}")
    assert (len(pads["c -> store c"].writers), pads["c -> store c"].cells) == (4, 2)


def test_pad_is_shared_by_readers_of_the_same_tiles() -> None:
    pads = planned(softmax(), "{time: [rows]}")
    (shared,) = [pad for name, pad in pads.items() if name.startswith("load x")]
    assert {edge.target for stream in shared.streams for edge in stream} == {"r", "x.shifted"}


def test_pad_of_partial_results_is_one_a_part() -> None:
    text = "{time: [k], nodes: {c.part: {unroll: {k: 2}}}, channels: {c.part -> c: {at: k}}}"
    pads = planned(gemm(), text)
    assert [dict(pad.part) for name, pad in pads.items() if name.startswith("c.part")] == [
        {"k": 0},
        {"k": 1},
    ]


@pytest.mark.parametrize(
    ("text", "distance"),
    [
        ("{}", 1),  # k innermost: the accumulator is touched every firing
        ("{nodes: {c: {walk: [i, k, j]}}}", 6),
        ("{nodes: {c: {walk: [k, i, j]}}}", 48),
        ("{nodes: {c: {walk: [k, i, j], vector: {j: 2}}}}", 24),
    ],
)
def test_touch_distance_counts_beats_between_touches(text, distance) -> None:
    made = stream(gemm(), Schedule.from_yaml(text), 4)
    assert touch_distance(made, made.by_name["c"]) == distance


def test_state_goes_to_memory_where_registers_do_not_hold_it() -> None:
    machine = roomy()  # 4 stages of 4 registers: 16 beats
    held = stream(gemm(), Schedule.from_yaml("{nodes: {c: {walk: [i, k, j]}}}"), 4)
    large = stream(gemm(), Schedule.from_yaml("{nodes: {c: {walk: [k, i, j]}}}"), 4)
    assert state_elems(held, held.by_name["c"], machine) == 0
    assert state_elems(large, large.by_name["c"], machine) == 48


def test_state_of_a_recurrence_is_what_a_point_emits() -> None:
    made = stream(running_sum(h=20), Schedule.from_yaml("{time: [t]}"), 4)
    assert state_elems(made, made.by_name["y"], roomy()) == 20
