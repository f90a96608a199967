"""Counts before building, by hand, and that they are those of what is built."""

import pytest

from dataflow.schedule import Schedule
from dataflow.streams import stream
from mapping.building.program import build
from mapping.partition import partition
from mapping.resources import Needs, busy_cycles, firings, needs, off_chip_cycles
from tests.cross.random_schedules import roomy
from tests.dataflow.streams.small import chain, gemm, softmax


def planned(graph, text="{}", machine=None):
    machine = machine or roomy()
    made = stream(graph, Schedule.from_yaml(text), machine.compute.lanes)
    return made, partition(made, machine), machine


def test_needs_of_a_product_are_its_unit_its_pads_and_its_transfers() -> None:
    # One unit; pads for a, b and c; two loads and a store.
    assert needs(*planned(gemm())) == Needs(compute=1, memory=3, generators=3)


def test_needs_count_copies() -> None:
    copied = ", ".join(f"{name}: {{unroll: {{i: 2}}}}" for name in ("c", "load a", "store c"))
    text = f"{{time: [i], nodes: {{{copied}}}}}"
    # Two units; b is loaded again for each i but once for both copies, from one pad.
    taken = needs(*planned(gemm(), text))
    assert (taken.compute, taken.generators) == (2, 2 + 1 + 2)


def test_needs_count_chains() -> None:
    assert needs(*planned(chain(6), machine=roomy(4))).compute == 2
    assert needs(*planned(gemm(), "{nodes: {c: {pack: {i: 4}}}}", roomy(4))).compute == 2


def test_needs_count_the_buffer_of_a_row() -> None:
    short, long = (needs(*planned(softmax(n=n))) for n in (5, 50))
    # At 5 the row fits nowhere shorter either: it is held besides a FIFO's 16.
    assert short.memory == long.memory
    memory = roomy().memory.model_copy(update={"capacity_bytes": 128})
    small = roomy().model_copy(update={"memory": memory})
    # 50 + 16 beats of 4 B in units of 128 B: 3; x and y, 150 elements, 5 each.
    assert needs(*planned(softmax(n=50), machine=small)).memory == 3 + 5 + 5


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "{nodes: {c: {unroll: {i: 2, j: 3}}}}",
        "{nodes: {c: {unroll: {k: 8}}}}",
        "{time: [k], nodes: {c.part: {unroll: {k: 5}}}}",
        "{nodes: {c: {pack: {i: 3}, vector: {j: 4}}}}",
        "{nodes: {c: {walk: [k, i, j]}}}",
    ],
)
def test_needs_are_those_of_the_program(text) -> None:
    made, groups, machine = planned(gemm(), text)
    program = build(made, groups, machine)
    taken = needs(made, groups, machine)
    assert taken.compute == sum(u.cells for u in program.units if u.kind == "compute")
    assert taken.memory == sum(pad.cells for pad in program.scratchpads)
    assert taken.generators == sum(u.kind in ("load", "store") for u in program.units)


def test_needs_fit_a_share_of_the_machine() -> None:
    machine = roomy()  # 2048 compute and memory units, 1024 generators
    assert Needs(2048, 2048, 1024).fits(machine)
    assert not Needs(2049, 1, 1).fits(machine)
    assert not Needs(1, 2049, 1).fits(machine)
    assert not Needs(1, 1, 1025).fits(machine)
    assert Needs(1024, 1, 1).fits(machine, 0.5)
    assert not Needs(1025, 1, 1).fits(machine, 0.5)


def test_firings_are_the_trips_of_one_copy() -> None:
    made, groups, machine = planned(gemm(), "{nodes: {c: {unroll: {j: 2}, vector: {k: 4}}}}")
    c = made.by_name["c"]
    assert firings(made, c) == 8 * 3 * 3  # 6 columns on 2 copies, 10 in lanes of 4
    assert busy_cycles(made, groups[0], machine) == 72


def test_off_chip_cycles_of_a_tile_move_whole_bursts() -> None:
    made, _, machine = planned(gemm(i=8, k=16), "{time: [i]}")
    # A row of 16 x 4 B is four bursts of 16 B at 16 B a cycle.
    assert off_chip_cycles(made, made.by_name["load a"], machine) == 4
