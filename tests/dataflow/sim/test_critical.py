"""The chain of causes behind the end of a run, worked by hand in the smallest cases.

Unless said otherwise units have latency 6, channels 3 cycles and credits 1. Memory is that of
`test_offchip.py` (the 20 x 20 machine at its rates) or of `test_dram.py` (one channel of
DDR3-1600 at 1 GHz).
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwspecs
from dataflow.sim import DeadlockError, EngineError, ProgramError, simulate
from tests.dataflow.sim import test_dram, test_fast_engine, test_memory_rules, test_rules


def chain_of(program, **options):
    chain = simulate(program, why=True, values=False, **options).chain
    assert chain is not None
    return chain


def links(program, **options):
    """The chain as (since, until, kind, resource); what every chain must be is checked."""
    chain = chain_of(program, **options)
    found = [(link.since, link.until, link.kind, link.resource) for link in chain]
    starts = [since for since, *_ in found]
    assert starts == [0, *(until for _, until, *_ in found[:-1])][: len(found)]
    assert all(since < until for since, until, *_ in found)
    assert (found[-1][1] if found else 0) == chain.cycles
    assert sum(part.cycles for part in chain.parts()) == chain.cycles
    return found


def pair(wire, firings, first=1, second=1, **channel):
    """Unit a feeds unit b over channel ab; `first` and `second` are their intervals."""
    port = wire.port("ab", 1)
    units = [
        wire.unit("a", [firings], [], [port], ii=first),
        wire.unit("b", [firings], [port], ii=second),
    ]
    return wire.program(units, ab=channel)


# Units and channels


def test_chain_stays_in_the_slow_unit_of_two(wire):
    # a fires at 0, its token arrives at 9; b fires at 9, 12, 15, 18 at its own interval
    assert links(pair(wire, 4, second=3)) == [
        (0, 6, "pipeline", "a"),
        (6, 9, "wires", "ab"),
        (9, 18, "interval", "b"),
        (18, 19, "end", "b"),
    ]


def test_chain_goes_back_to_a_slow_unit_before_a_quick_one(wire):
    # a fires at 0, 5, 10, 15; each token waits for nothing but a's interval
    assert links(pair(wire, 4, first=5)) == [
        (0, 15, "interval", "a"),
        (15, 21, "pipeline", "a"),
        (21, 24, "wires", "ab"),
        (24, 25, "end", "b"),
    ]


def test_chain_passes_through_a_full_channel_both_ways(wire):
    # room for one: a fires at 0, b at 9, the slot is back at 10, a fires, b at 19, a at 20, b at 29
    assert links(pair(wire, 3, capacity=1)) == [
        (0, 6, "pipeline", "a"),
        (6, 9, "wires", "ab"),
        (9, 10, "room", "ab"),
        (10, 16, "pipeline", "a"),
        (16, 19, "wires", "ab"),
        (19, 20, "room", "ab"),
        (20, 26, "pipeline", "a"),
        (26, 29, "wires", "ab"),
        (29, 30, "end", "b"),
    ]


def test_chain_of_a_carried_state_goes_round_its_loop(wire):
    # one initial token: a fires at 0, 9, 18, each at the arrival of what it sent before
    port = wire.port("aa", 1)
    program = wire.program([wire.unit("a", [3], [port], [port])], aa={"initial": 1})
    # the last token arrives at 27 and ends the run
    loop = [
        (at + since, at + until, kind, name)
        for at in (0, 9, 18)
        for since, until, kind, name in ((0, 6, "pipeline", "a"), (6, 9, "wires", "aa"))
    ]
    assert links(program) == [*loop, (27, 28, "end", "aa")]


def test_chain_goes_to_what_is_declared_first_in_a_tie(wire):
    # tokens of a and b arrive at 9 together
    ports = [wire.port("ac", 1), wire.port("bc", 1)]
    units = [wire.unit("a", [1], [], ports[:1]), wire.unit("b", [1], [], ports[1:])]
    found = links(wire.program([*units, wire.unit("c", [1], ports)]))
    assert [name for *_, name in found] == ["a", "ac", "c"]
    found = links(wire.program([*units, wire.unit("c", [1], ports[::-1])]))
    assert [name for *_, name in found] == ["b", "bc", "c"]


def test_chain_of_a_scratchpad_port_counts_the_turns_at_a_bank(wire):
    # three beats of which each takes 4 cycles at a bank: 1 is the beat's own
    port = wire.port("rs", 1)
    read = wire.unit("r", [3], [], [port], kind="read", latency=1, ii=4)
    found = links(wire.program([read, wire.sink("s", [3], port)]))
    assert found[:4] == [
        (0, 1, "interval", "r"),
        (1, 4, "bank", "r"),
        (4, 5, "interval", "r"),
        (5, 8, "bank", "r"),
    ]


def test_chain_of_no_firing_has_no_link(wire):
    chain = chain_of(wire.program([]))
    assert (list(chain), chain.critical()) == ([], ("", []))


# Off-chip memory at its rates: issue, 8 cycles to memory, 5 a burst, 31 back


@pytest.fixture(scope="module")
def machine():
    return hwspecs.load("tungsten_20x20")


def vector(wire, machine, elems, **options):
    """A load of a vector, 16 elements a beat, into a sink."""
    load = wire.load("load", elems, "x", "a", tile=elems, **options)
    sink = wire.sink("sink", [-(-elems // 16)], wire.port("a", 1))
    return wire.program([load, sink], machine, tensors=[wire.tensor("x", elems)])


def arrived(at):
    """The load's firing at `at`, its latency of 1, the channel's 3, and the last cycle."""
    return [
        (at, at + 1, "pipeline", "load"),
        (at + 1, at + 4, "wires", "a"),
        (at + 4, at + 5, "end", "sink"),
    ]


def test_chain_of_one_burst_has_every_latency_on_its_way(wire, machine):
    assert links(vector(wire, machine, 16)) == [
        (0, 8, "generator", "load"),
        (8, 13, "burst", "memory channel 0"),
        (13, 44, "access", "memory channel 0"),
        *arrived(44),
    ]


def test_chain_of_a_stream_is_the_bursts_of_one_channel(wire, machine):
    # 64 bursts over 4 channels: channel 0 is asked at 8 and moves 16 of 5 cycles; the sink takes
    # the last of its beats at 119 + 4, and those of the other channels a cycle apart
    assert links(vector(wire, machine, 64 * 16)) == [
        (0, 8, "generator", "load"),
        (8, 88, "burst", "memory channel 0"),
        (88, 119, "access", "memory channel 0"),
        *arrived(119)[:2],
        (123, 126, "interval", "sink"),
        (126, 127, "end", "sink"),
    ]


def test_chain_of_few_outstanding_requests_goes_back_to_the_beats_that_freed_them(wire, machine):
    fields = machine.generators.model_copy(update={"outstanding_requests": 1})
    machine = machine.model_copy(update={"generators": fields})
    # the second request goes a cycle after the first beat has fired, at 44
    assert links(vector(wire, machine, 32)) == [
        (0, 8, "generator", "load"),
        (8, 13, "burst", "memory channel 0"),
        (13, 44, "access", "memory channel 0"),
        (44, 53, "generator", "load"),
        (53, 58, "burst", "memory channel 1"),
        (58, 89, "access", "memory channel 1"),
        *arrived(89),
    ]


def test_chain_of_a_store_ends_with_its_acknowledgement(wire, machine):
    fields = machine.generators.model_copy(update={"outstanding_writes": 1})
    machine = machine.model_copy(update={"generators": fields})
    port = wire.port("a", 1)
    units = [
        wire.unit("make", [2], [], [port]),
        wire.load("store", 32, "y", "a", tile=32, kind="store"),
    ]
    program = wire.program(units, machine, tensors=[wire.tensor("y", 32, kind="output")])
    # a beat at 9, memory 17, written 21, acknowledged 52; only then the next, at 52
    assert links(program) == [
        (0, 6, "pipeline", "make"),
        (6, 9, "wires", "a"),
        (9, 17, "generator", "store"),
        (17, 21, "burst", "memory channel 0"),
        (21, 52, "access", "memory channel 0"),
        (52, 60, "generator", "store"),
        (60, 64, "burst", "memory channel 1"),
        (64, 95, "access", "memory channel 1"),
        (95, 96, "end", "store"),
    ]


# Banks and rows; a link starts at the whole cycle after


def test_chain_of_two_rows_of_a_bank_waits_for_the_row_cycle(wire):
    # bursts are read at 21.75 and 70.5; the second's row opened at 8 + tRC = 56.75; its data end at
    # 89.25 and are back at 91
    program = test_dram.strided(wire, test_dram.machine_with(), 2, test_dram.ROUND)
    assert links(program) == [
        (0, 8, "generator", "load"),
        (8, 22, "row", "memory channel 0"),
        (22, 27, "burst", "memory channel 0"),
        (27, 71, "row", "memory channel 0"),
        (71, 76, "burst", "memory channel 0"),
        (76, 91, "access", "memory channel 0"),
        *arrived(91),
    ]


def test_chain_of_a_stream_names_its_refreshes(wire):
    # as test_stream_loses_only_refreshes: each of ten refreshes costs 290 cycles beyond the 5 that
    # a burst moves; the first row opens before there is anything else to move
    program = test_dram.strided(wire, test_dram.machine_with(), 1 << 14, 64)
    chain = chain_of(program)
    spent = {(part.resource, part.kind): part.cycles for part in chain.parts()}
    assert abs(spent["off-chip memory", "burst"] - 5 * (1 << 14)) <= 10
    assert abs(spent["off-chip memory", "refresh"] - 10 * 290) <= 10
    assert spent["off-chip memory", "row"] == 14
    name, parts = chain.critical()
    assert name == "off-chip memory"
    assert sum(part.cycles for part in parts) > 0.999 * chain.cycles


def test_chain_names_the_turns_of_the_bus(wire):
    # a copy reads and writes in turns
    n = 1 << 12
    read = wire.load("load", n, "x", "a", tile=n)
    write = wire.load("store", n, "y", "a", tile=n, kind="store")
    tensors = [wire.tensor("x", n), wire.tensor("y", n, base=4 * n, kind="output")]
    program = wire.program([read, write], test_dram.machine_with(), tensors=tensors)
    kinds = {part.kind for part in chain_of(program).parts()}
    assert {"burst", "turn"} <= kinds


def test_chain_names_the_spacing_of_a_bank_group(wire):
    # all bursts of one group of DDR4: tCCD_L = 7 clocks of 0.75 ns instead of tCCD_S = 4
    machine = test_dram.machine_with("DDR4-2666", map=["column", "bank", "group"])
    spent = chain_of(test_dram.strided(wire, machine, 128, 64)).parts()
    cycles = {part.kind: part.cycles for part in spent}
    assert cycles["group"] == pytest.approx(127 * 3 * 0.75, abs=2)


# Properties


def literal_chain(program):
    """The chain of a program without loads and stores, from its rules read literally."""
    literal = test_rules.Literal(program)
    units = {unit.name: unit for unit in program.units}
    cycles = literal.cycles()
    found = []

    def add(since, until, kind, name):
        if since == until:
            return
        if found and found[-1][2:] == (kind, name):
            since, until = since, found.pop()[1]
        found.append((since, until, kind, name))

    def sent(channel, number):
        """Back over a channel to the firing that pushed token `number`."""
        if number < channel.initial:
            return None
        pushed = literal.pushes[channel.name][number - channel.initial]
        out = pushed + units[channel.writer].latency_cycles
        add(out, out + channel.latency_cycles, "wires", channel.name)
        add(pushed, out, "pipeline", channel.writer)
        return channel.writer, literal.times[channel.writer].index(pushed)

    last = cycles - 1
    fired = [unit.name for unit in program.units if literal.times[unit.name][-1] == last]
    if fired:
        add(last, cycles, "end", fired[0])
        at = fired[0], len(literal.times[fired[0]]) - 1
    else:
        ends = {c.name: literal.arrivals[c.name][-1:] for c in program.channels}
        channel = next(c for c in program.channels if c.kind != "credit" and ends[c.name] == [last])
        add(last, cycles, "end", channel.name)
        at = sent(channel, len(literal.arrivals[channel.name]) - 1)
    while at is not None:
        name, number = at
        time = literal.times[name][number]
        if number and time == literal.times[name][number - 1] + units[name].ii_cycles:
            add(literal.times[name][number - 1], time, "interval", name)
            at = name, number - 1
            continue
        cause = literal.causes[name][number]
        if cause is None:
            break
        channel, place, token = cause
        if token:
            at = sent(channel, place)
        else:
            popped = literal.pops[channel.name][place - channel.capacity + channel.initial]
            add(popped, time, "room", channel.name)
            at = channel.reader, literal.times[channel.reader].index(popped)
    return found[::-1]


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_chain_of_a_random_program_is_that_of_the_rules(wire, data):
    program = data.draw(test_rules.programs(wire))
    try:
        found = links(program)
    except DeadlockError:
        return
    assert found == literal_chain(program)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_links_of_random_traffic_sum_to_the_run(wire, data):
    machine = data.draw(st.just(hwspecs.load("tungsten_20x20")) | test_dram.memories())
    program = data.draw(
        st.one_of(test_memory_rules.programs(wire, machine), test_fast_engine.moving(wire))
    )
    try:
        links(program, max_cycles=data.draw(test_fast_engine.ends))  # none, if cut off at cycle 0
    except (DeadlockError, ProgramError):
        return


def test_chain_changes_nothing_of_the_result(wire, machine):
    program = vector(wire, machine, 64 * 16)
    with_chain, without = (simulate(program, why=why) for why in (True, False))
    assert with_chain.cycles == links(program)[-1][1]
    assert with_chain.accounts == without.accounts
    assert without.chain is None
    assert links(program) == links(program)


def test_chain_is_refused_to_the_fast_engine(wire):
    with pytest.raises(EngineError, match=r"engine must be simpy where the chain of causes"):
        simulate(pair(wire, 1), engine="fast", why=True)
    assert simulate(pair(wire, 1), engine="auto", why=True).engine == "simpy"
