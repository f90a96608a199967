"""Cycles of loads and stores, worked by hand.

The 20 x 20 machine: generator 8, off-chip latency 31, 4 channels of 12.8 B a cycle for reads and
16 for writes, bursts and interleave of 64 B, 64 reads outstanding. One burst is one beat of 16
lanes and takes 5 cycles of a channel to read, 4 to write. Loads have latency 1, channels 3.
"""

import numpy as np
import pytest

import hwspecs
from dataflow.index import affine
from dataflow.kernels import build
from dataflow.program import Access
from dataflow.schedule import Schedule
from dataflow.sim import ProgramError
from dataflow.sim import simulate as run
from dataflow.sim.coordinates import coordinates
from dataflow.sim.offchip import requests
from mapping import map_graph


@pytest.fixture(scope="module")
def machine():
    machine = hwspecs.load("tungsten_20x20")
    chip = machine.off_chip
    assert (machine.generators.latency_cycles, chip.latency_cycles, chip.channels) == (8, 31, 4)
    assert (chip.read_bytes_per_s, chip.write_bytes_per_s) == (12.8e9, 16e9)
    return machine


def loads(wire, machine, elems, count=1, **options):
    """`count` loads of vectors into one sink; beats of 16 elements."""
    units = [
        wire.load(f"load{n}", elems, f"x{n}", f"a{n}", tile=elems, **options) for n in range(count)
    ]
    beats = -(-elems // units[0].work.lanes)
    sink = wire.sink("sink", [beats], *(wire.port(f"a{n}", 1) for n in range(count)))
    tensors = [wire.tensor(f"x{n}", elems, base=4 * elems * n) for n in range(count)]
    return wire.program([*units, sink], machine, tensors=tensors)


def test_first_burst_arrives_after_every_latency_on_its_way(wire, machine, simulate):
    result = simulate(loads(wire, machine, 16))
    # issue 0, memory 8, moved 13, back 44; beat fires at 44, arrives at 44 + 1 + 3
    assert result.cycles == 44 + 4 + 1
    assert result.accounts["load0"].off_chip == 44
    assert result.accounts["sink"].off_chip == 48


def test_second_burst_of_one_channel_waits_for_the_first(wire, machine, simulate):
    # bursts 0 and 4 meet in channel 0: 0 moves in 8..13, 4 reaches memory at 12, moves in 13..18
    assert simulate(loads(wire, machine, 80)).cycles == 18 + 31 + 4 + 1


def test_streaming_load_reaches_the_rate_of_all_channels(wire, machine, simulate):
    result = simulate(loads(wire, machine, 64 * 1024))
    # 4096 bursts over 4 channels, 5 cycles each, after 8 + 3 (the last channel's first request
    # reaches memory at 11)
    assert result.cycles == 11 + 1024 * 5 + 31 + 4 + 1
    assert result.off_chip.read_bytes == 64 * 1024 * 4
    assert result.off_chip.read_bytes / result.cycles < 4 * 12.8


def test_two_loads_share_the_channels(wire, machine, simulate):
    result = simulate(loads(wire, machine, 64 * 256, count=2))
    # 2 x 1024 bursts; channel 3 sees the last first: both generators' burst 3 at cycle 11
    assert result.cycles == 11 + 512 * 5 + 31 + 4 + 1


def test_few_outstanding_requests_bound_the_rate(wire, machine, simulate):
    fields = machine.generators.model_copy(update={"outstanding_requests": 2})
    machine = machine.model_copy(update={"generators": fields})
    # request k + 2 goes a cycle after beat k fired: two bursts each 44 + 1 cycles, 8 bursts;
    # bursts 6 and 7 go at 3 * 45 and a cycle later
    assert simulate(loads(wire, machine, 128)).cycles == 3 * 45 + 1 + 44 + 4 + 1


def test_narrow_beats_share_the_request_of_their_burst(wire, machine, simulate):
    result = simulate(loads(wire, machine, 32, lanes=4))
    # 8 beats, 2 bursts: back at 44 and 45; beats fire at 44..51
    assert result.off_chip.requests == 2
    assert result.cycles == 51 + 4 + 1


def test_store_ends_with_its_last_acknowledgement(wire, machine, simulate):
    def program(beats):
        return wire.program(
            [
                wire.unit("make", [beats], [], [wire.port("a", 1)]),
                wire.load("store", 16 * beats, "y", "a", tile=16 * beats, kind="store"),
            ],
            machine,
            tensors=[wire.tensor("y", 16 * beats, kind="output")],
        )

    # beat fires at 9, memory 17, written 21, acknowledged 52
    assert simulate(program(1)).cycles == 9 + 8 + 4 + 31 + 1
    # a beat a cycle, 64 B a cycle: the memory keeps up
    result = simulate(program(1000))
    assert result.cycles == 999 + 52 + 1
    assert result.off_chip.write_bytes == 64_000


def test_store_is_held_by_its_unacknowledged_bursts(wire, machine, simulate):
    result = simulate(three_beats_stored(wire, machine, outstanding_writes=1))
    # each beat waits 43 cycles for the acknowledgement of the one before
    assert result.cycles == 9 + 3 * 43 + 1
    assert result.accounts["store"].off_chip == 2 * 42


def three_beats_stored(wire, machine, **fields):
    generators = machine.generators.model_copy(update=fields)
    machine = machine.model_copy(update={"generators": generators})
    units = [
        wire.unit("make", [3], [], [wire.port("a", 1)]),
        wire.load("store", 48, "y", "a", tile=48, kind="store"),
    ]
    return wire.program(units, machine, tensors=[wire.tensor("y", 48, kind="output")])


def test_store_without_a_number_of_its_own_has_that_of_requests(wire, machine, simulate):
    fields = {"outstanding_requests": 2, "outstanding_writes": None}
    # beats fire at 9 and 10; the third at 52, with the first one's acknowledgement, is itself
    # acknowledged 43 later
    assert simulate(three_beats_stored(wire, machine, **fields)).cycles == 52 + 43 + 1


def test_store_is_not_held_by_the_number_of_requests_where_writes_have_their_own(
    wire, machine, simulate
):
    fields = {"outstanding_requests": 1, "outstanding_writes": 3}
    # beats fire at 9, 10 and 11, to three memory channels
    assert simulate(three_beats_stored(wire, machine, **fields)).cycles == 11 + 43 + 1


def test_writes_to_two_of_four_channels_wait_for_these_alone(wire, machine, simulate):
    """Tiles whose rows lie on channels 0 and 1, then 2 and 3: the second starts meanwhile."""
    axes = (wire.walk("t", 2), wire.walk("i", 100), wire.walk("j", 32))
    index = (64 * affine("i") + 32 * affine("t") + affine("j"),)
    access = Access("y", "y", axes, index, ("t", "i", "j"), 16)
    units = [
        wire.unit("make", [400], [], [wire.port("a", 1)]),
        wire.unit("store", [400], [wire.port("a", 1)], [], kind="store", points=0, work=access),
    ]
    program = wire.program(units, machine, tensors=[wire.tensor("y", 6400, kind="output")])
    # burst 201 of 400, channel 3's first, leaves at 9 + 201, is at memory at 218 and moved by 222;
    # the 99 more of its channel follow by 4 cycles each
    assert simulate(program).cycles == 222 + 99 * 4 + 31 + 1


def test_beats_past_a_tile_s_end_spend_their_cycle_and_move_nothing(wire, machine, simulate):
    # 3 tiles of 64 cover 144 elements: 4 + 4 + 1 beats with data, 12 firings
    program = wire.program(
        [
            wire.load("load", 144, "x", "a", tile=64),
            wire.sink("sink", [12], wire.port("a", 1)),
        ],
        machine,
        tensors=[wire.tensor("x", 144)],
    )
    result = simulate(program)
    assert result.off_chip.requests == 9
    assert result.off_chip.useful_bytes == 144 * 4
    # burst 8 is channel 0's third: moved at 8 + 15, back at 54; then three empty firings
    assert result.cycles == 54 + 3 + 4 + 1


def access_of(wire, rows, cols, order, lanes, shape):
    box = (wire.walk("i", rows), wire.walk("j", cols))
    access = Access("x", "x", box, (affine("i"), affine("j")), order, lanes)
    coords = {walk.axis: coordinates(walk, ()) for walk in box}
    return access, wire.tensor("x", *shape), coords


def test_requests_of_rows_are_the_bursts_of_each_row(wire):
    access, tensor, coords = access_of(wire, 2, 16, ("i", "j"), 8, (4, 64))
    found = requests(access, tensor, coords, 32, 4, "load")
    # rows of 64 B at 0 and 256: two bursts of 32 B each, a beat a burst
    assert found.addresses == [0, 32, 256, 288]
    assert found.needs == [1, 2, 3, 4]
    assert found.ends == [1, 2, 3, 4]


def test_requests_down_a_column_are_a_burst_each(wire):
    access, tensor, coords = access_of(wire, 4, 1, ("j", "i"), 2, (4, 64))
    found = requests(access, tensor, coords, 32, 2, "load")
    assert found.addresses == [0, 256, 512, 768]
    assert found.needs == [2, 4]


def test_beats_in_one_burst_need_it_until_the_last(wire):
    access, tensor, coords = access_of(wire, 1, 16, ("i", "j"), 4, (1, 16))
    found = requests(access, tensor, coords, 64, 6, "load")
    assert (found.addresses, found.needs) == ([0], [1] * 6)
    assert found.ends == [0, 0, 0, 1, 1, 1]


def test_elements_outside_the_tensor_move_nothing(wire):
    box = (wire.walk("j", 16),)
    access = Access("x", "x", box, (affine("j") - 8,), ("j",), 4)
    coords = {"j": np.arange(16)}
    found = requests(access, wire.tensor("x", 100), coords, 16, 4, "load")
    assert (found.addresses, found.needs, found.useful_elems) == ([0, 16], [0, 0, 1, 2], 8)


def test_tile_of_more_beats_than_firings_is_refused(wire):
    access, tensor, coords = access_of(wire, 2, 16, ("i", "j"), 8, (4, 64))
    with pytest.raises(ProgramError, match="must hold the 4 beats of its tile, got 3"):
        requests(access, tensor, coords, 32, 3, "load")


def test_beat_of_more_bursts_than_may_be_in_flight_is_refused(wire, machine, simulate):
    fields = machine.generators.model_copy(update={"outstanding_requests": 4})
    machine = machine.model_copy(update={"generators": fields})
    with pytest.raises(ProgramError, match="must be at most the 4 requests in flight, got 8"):
        simulate(loads(wire, machine, 256, lanes=128))


def test_store_of_more_bursts_a_beat_than_writes_in_flight_names_the_machine_s_number() -> None:
    # rows of 24 words on bursts of 16: the first 16 of row 1 are in two of them
    machine = hwspecs.load("tungsten_20x20")
    fields = machine.generators.model_copy(update={"outstanding_writes": 1})
    machine = machine.model_copy(update={"generators": fields})
    schedule = Schedule.from_yaml("{nodes: {c: {vector: {j: 16}}, store c: {vector: {j: 16}}}}")
    program = map_graph(build("outer_product", {"i": 3, "j": 24}), machine, schedule).program
    for engine in ("simpy", "fast"):
        with pytest.raises(ProgramError, match=r"the 1 writes in .*generators.outstanding_writes"):
            run(program, None, values=False, engine=engine)
