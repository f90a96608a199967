"""Banks, rows and refresh: cycles worked by hand, and the bandwidth that the timing allows.

One channel of DDR3-1600 at 1 GHz, so that a nanosecond is a cycle: burst 5, tRCD = tRP = CL 13.75,
tRAS 35, tRC 48.75, tRRD 6.25, tFAW 30, tRTP 7.5, tRFC 260, tREFI 7800; rows of 128 bursts, 8 banks.
Generators have latency 8 and the memory 1; a load adds 1 and its channel 3, and a run's length is
the last arrival + 1. So one burst alone reaches the channel at 8, its row opens at 8, it is read at
21.75, its data end at 40.5, are back at 42, and arrive at 46: 47 cycles.
"""

import math
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwspecs
from dataflow.index import affine
from dataflow.kernels import build
from dataflow.program import Access
from dataflow.sim.dram import DramChannel, Request, locate, timing
from hwspecs.dram import Dram, preset, presets
from hwspecs.machine import OffChip
from mapping import map_graph
from tests.dataflow.sim import test_fast_engine, test_memory_rules

ROW, ROUND = 8192, 8 * 8192
"""Bytes from one bank to the next, and from one row of a bank to the next."""


def machine_with(name="DDR3-1600", channels=1, latency_cycles=1, outstanding=64, **changes):
    """The 20 x 20 machine with another memory."""
    machine = hwspecs.load("tungsten_20x20")
    dram = Dram.model_validate({**preset(name), **changes})
    chip = OffChip(
        standard=name,
        channels=channels,
        dram=dram,
        latency_cycles=latency_cycles,
        interleave_bytes=dram.burst_bytes,
        capacity_bytes=1 << 50,
    )
    fields = {"outstanding_requests": outstanding, "outstanding_writes": None}
    generators = machine.generators.model_copy(update=fields)
    return machine.model_copy(update={"off_chip": chip, "generators": generators})


def strided(wire, machine, bursts, stride_bytes, kind="load"):
    """A load (or store) of one element every `stride_bytes`, a beat and a burst each."""
    index = (stride_bytes // 4 * affine("n"),)
    access = Access("x", "x", (wire.walk("n", bursts),), index, ("n",), 1)
    tensors = [wire.tensor("x", bursts * stride_bytes // 4)]
    port = wire.port("a", 1)
    if kind == "load":
        moving = wire.unit(
            "load", [bursts], [], [port], kind=kind, latency=1, points=0, work=access
        )
        units = [moving, wire.sink("sink", [bursts], port)]
    else:
        moving = wire.unit("store", [bursts], [port], [], kind=kind, points=0, work=access)
        units = [wire.unit("source", [bursts], [], [port], latency=1), moving]
    return wire.program(units, machine, tensors=tensors)


def cycles_of(end):
    """A run's length whose last data end at `end`."""
    return math.ceil(end) + 1 + 4 + 1


# Single accesses


def test_first_burst_waits_for_its_row_to_open(wire, simulate):
    result = simulate(strided(wire, machine_with(), 1, 64))
    assert result.cycles == cycles_of(8 + 13.75 + 13.75 + 5) == 47
    (counts,) = result.off_chip.channels
    assert (counts.row_hits, counts.row_misses, counts.row_conflicts) == (0, 1, 0)


def test_burst_of_an_open_row_follows_on_the_bus(wire, simulate):
    # read at 21.75 + 5; no row to open
    result = simulate(strided(wire, machine_with(), 2, 64))
    assert result.cycles == cycles_of(40.5 + 5)
    assert result.off_chip.channels[0].row_hits == 1


def test_another_row_of_the_bank_waits_for_a_row_cycle(wire, simulate):
    # the row opened at 8 closes at 8 + 35, the next opens at 43 + 13.75 = 8 + 48.75
    result = simulate(strided(wire, machine_with(), 2, ROUND))
    assert result.cycles == cycles_of(56.75 + 13.75 + 13.75 + 5)
    assert result.off_chip.channels[0].row_conflicts == 1


def test_row_closes_no_sooner_than_a_read_allows(wire, simulate):
    # with tRAS of 15 the row could close at 23; its read at 21.75 keeps it until 29.25, and then
    # tRP: 43, which is later than 8 + tRC = 8 + 28.75
    machine = machine_with(tras="15 ns", trc="28.75 ns")
    result = simulate(strided(wire, machine, 2, ROUND))
    assert result.cycles == cycles_of(29.25 + 13.75 + 13.75 + 13.75 + 5)


def test_rows_of_other_banks_open_side_by_side(wire, simulate):
    # openings at 8, 14.25, 20.5, 26.75 (tRRD), then 38 = 8 + tFAW, ...
    for count, opened in ((2, 14.25), (4, 26.75), (5, 38), (8, 38 + 18.75)):
        result = simulate(strided(wire, machine_with(), count, ROW))
        assert result.cycles == cycles_of(opened + 13.75 + 13.75 + 5)


def test_write_is_acknowledged_after_its_data(wire, simulate):
    # the beat arrives at the store at 4, reaches memory at 12; row, CWL 10, burst, acknowledgement
    result = simulate(strided(wire, machine_with(), 1, 64, kind="store"))
    assert result.cycles == math.ceil(12 + 13.75 + 10 + 5) + 1 + 1


def test_row_written_closes_after_the_write_is_recovered(wire, simulate):
    # data end at 12 + 13.75 + 10 + 5 = 40.75, tWR 15: closes at 55.75 and not 12 + 35
    result = simulate(strided(wire, machine_with(), 2, ROUND, kind="store"))
    assert result.cycles == math.ceil(55.75 + 13.75 + 13.75 + 10 + 5) + 1 + 1


# Streams


def test_stream_loses_only_refreshes(wire, simulate):
    # Every refresh costs 290: from the last read before it tRTP 7.5 + tRP 13.75 + tRFC 260 + tRCD
    # 13.75 instead of 5. Rows change without a loss, being opened ahead. Reads at 21.75 + 5 k +
    # 290 f: burst 16383 at 81936.75 + 290 x 10, after the refreshes at 7800, ..., 78000.
    bursts = 1 << 14
    result = simulate(strided(wire, machine_with(), bursts, 64))
    assert result.cycles == cycles_of(40.5 + 5 * (bursts - 1) + 290 * 10)
    (counts,) = result.off_chip.channels
    assert (counts.refreshes, counts.refresh_cycles) == (10, 2600)
    # 128 rows of 128 bursts; each refresh closes the row in use
    assert counts.row_hits == bursts - 128 - 10


def test_refresh_takes_its_share_of_time(wire, simulate):
    # twice the refreshes, twice the loss: at 3.9 us 290 of 3900 cycles
    machine = machine_with(trefi="3.9 us")
    result = simulate(strided(wire, machine, 1 << 14, 64))
    achieved = (1 << 14) * 64 / result.cycles
    assert achieved == pytest.approx(12.8 * (1 - 290 / 3900), rel=2e-3)


def test_stride_of_a_row_is_bound_by_four_openings_a_window(wire, simulate):
    # a new row for each burst, in the next bank: 4 bursts every 30 cycles, 8.53 of 12.8 B a cycle
    count = 1024
    result = simulate(strided(wire, machine_with(trefi="900 us"), count, ROW))
    assert result.cycles == cycles_of(8 + 30 * (count // 4 - 1) + 18.75 + 13.75 + 13.75 + 5)


def test_stride_of_all_banks_is_bound_by_the_row_cycle(wire, simulate):
    # a new row of the same bank each: one burst every 48.75 cycles, 1.31 of 12.8 B a cycle
    count = 160
    result = simulate(strided(wire, machine_with(trefi="900 us"), count, ROUND))
    assert result.cycles == cycles_of(8 + 48.75 * (count - 1) + 13.75 + 13.75 + 5)


@pytest.mark.parametrize("step", [3, 5 * 128 + 17, 1021, 8 * 128 * 3 + 128])
def test_scattered_access_is_bound_by_openings_and_row_cycles(wire, simulate, step):
    # burst k opens its row tRRD after the one before, tFAW after the fourth before and tRC after
    # the last one of its bank; where its row is open it follows on the bus.
    machine = machine_with(trefi="900 us")
    count, opened, bank_opened, row = 700, [], {}, {}
    read = -5.0
    for k in range(count):
        bank, here = k * step // 128 % 8, k * step // 1024
        if row.get(bank) != here:
            times = [8.0 + k, bank_opened.get(bank, -99) + 48.75]
            times += [opened[-1] + 6.25] if opened else []
            times += [opened[-4] + 30] if len(opened) >= 4 else []
            opened.append(max(times))
            bank_opened[bank], row[bank] = opened[-1], here
        read = max(read + 5, bank_opened[bank] + 13.75, 8.0 + k)
    result = simulate(strided(wire, machine, count, step * 64))
    # a row that could open before the turn reaches it opens a little later, never sooner
    least = cycles_of(read + 13.75 + 5)
    assert least <= result.cycles <= least * 1.02


@pytest.mark.parametrize("name", presets())
def test_stream_of_every_standard_reaches_its_peak_less_refresh(wire, simulate, name):
    machine = machine_with(name, outstanding=512)
    dram = machine.off_chip.dram
    result = simulate(strided(wire, machine, 1 << 15, dram.burst_bytes))
    share = (1 << 15) * dram.burst_bytes / result.cycles / (dram.peak_bytes_per_s / 1e9)
    closed = dram.trtp_ps + dram.trp_ps + dram.trfc_ps + dram.trcd_ps
    expected = 1 - closed / dram.trefi_ps
    # generators ask once a cycle, for which HBM at 1.25 ns a burst leaves little room; rows of
    # four groups change at once, up to tRRD_L apart
    assert expected - 0.02 <= share <= expected + 0.005


def test_bank_groups_in_turn_are_faster_than_one_group(wire, simulate):
    # DDR4: bursts of one group are tCCD_L = 5.25 apart, of different groups tCCD_S = 3
    cycles = []
    for order in (("group", "column", "bank"), ("column", "group", "bank")):
        machine = machine_with("DDR4-2666", trefi="900 us", map=order)
        cycles.append(simulate(strided(wire, machine, 4096, 64)).cycles)
    assert cycles[0] == pytest.approx(4096 * 3, rel=0.01)
    assert cycles[1] == pytest.approx(4096 * 5.25, rel=0.01)


def test_streams_in_banks_of_their_own_do_not_close_each_others_rows(wire, simulate):
    def run(apart):
        elems = 1 << 15
        units = [wire.load(f"l{n}", elems, f"x{n}", f"a{n}", tile=elems) for n in range(2)]
        units.append(wire.sink("sink", [elems // 16], wire.port("a0", 1), wire.port("a1", 1)))
        tensors = [wire.tensor(f"x{n}", elems, base=n * (4 * elems + apart)) for n in range(2)]
        return simulate(wire.program(units, machine_with(outstanding=8), tensors=tensors))

    same, apart = run(0), run(ROW)
    assert same.off_chip.channels[0].row_conflicts > 5 * apart.off_chip.channels[0].row_conflicts
    assert apart.cycles < 0.7 * same.cycles
    moved = 2 * (1 << 15) * 4
    assert moved / apart.cycles == pytest.approx(12.8 * (1 - 290 / 7800), rel=0.01)


# A channel alone


def channel_ends(requests, name="DDR4-2666", **changes):
    """When each burst ends in nanoseconds; requests are (reach, burst number, writes)."""
    machine = machine_with(name, trefi="900 us", **changes)
    times = timing(machine)
    channel = DramChannel(machine.off_chip.dram, times)
    for number, (reach, burst, writes) in enumerate(requests):
        channel.ask(0, Request(reach, number, locate(machine.off_chip.dram, burst), writes))
    ends = {number: end for _, number, end in channel.serve(1 << 60)}
    return [ends[number] / times.parts for number in range(len(requests))]


def test_read_after_write_waits_for_the_bus_to_turn():
    # DDR4: write at 14.25, its data until + 10.5 + 3 = 27.75; a read of its group tWTR_L 7.5 later
    # (burst 4: the next column), of another group tWTR_S 3 later, but its row opens at 3: 17.25
    assert channel_ends([(0, 0, True), (0, 4, False)]) == [27.75, 27.75 + 7.5 + 14.25 + 3]
    assert channel_ends([(0, 0, True), (0, 1, False)]) == [27.75, 27.75 + 3 + 14.25 + 3]


def test_write_after_read_waits_for_the_bus_to_turn():
    # read at 14.25; write CL + burst + 2 clocks - CWL = 14.25 + 3 + 1.5 - 10.5 = 8.25 later
    assert channel_ends([(0, 0, False), (0, 4, True)]) == [31.5, 14.25 + 8.25 + 10.5 + 3]


def test_bursts_of_one_group_are_further_apart():
    # tCCD_L 5.25 in one group; in another its own row opens tRRD_S 3 later, which is tCCD_S
    assert channel_ends([(0, 0, False), (0, 4, False)]) == [31.5, 31.5 + 5.25]
    assert channel_ends([(0, 0, False), (0, 1, False)]) == [31.5, 31.5 + 3]


def test_openings_in_one_group_are_further_apart():
    # burst 512: the next bank of the group (4 groups x 128 columns before it): tRRD_L 5.25
    assert channel_ends([(0, 0, False), (0, 512, False)]) == [31.5, 31.5 + 5.25]


def test_stream_with_its_row_open_goes_before_one_without():
    # Two generators with requests in one bank: once the first one's row is open its next request
    # goes first, though the other's is older.
    machine = machine_with(trefi="900 us")
    times, dram = timing(machine), machine.off_chip.dram
    channel = DramChannel(dram, times)
    channel.ask(0, Request(0, 0, locate(dram, 0), False))
    channel.ask(1, Request(1, 0, locate(dram, 1024), False))
    channel.ask(0, Request(2, 1, locate(dram, 1), False))
    assert [unit for unit, _, _ in channel.serve(1 << 60)] == [0, 1, 0]
    # the turn at 1 came before the request at 2; had all been there, the row would have been kept
    channel = DramChannel(dram, times)
    for unit, reach, number, burst in ((0, 0, 0, 0), (1, 0, 0, 1024), (0, 0, 1, 1)):
        channel.ask(unit, Request(reach, number, locate(dram, burst), False))
    assert [unit for unit, _, _ in channel.serve(1 << 60)] == [0, 0, 1]


class Watched(DramChannel):
    """A channel that notes its commands: (kind, time, group, bank)."""

    def __init__(self, dram, times):
        super().__init__(dram, times)
        self.log = []

    def _grant(self, at, column, request):
        group, number = request.place.group, request.place.bank
        bank = self.banks[number]
        if bank.row != request.place.row:
            opened = self._open(at, request)
            if bank.row >= 0:
                closed = max(at, bank.close_at)
                assert closed + self.times.rp <= opened
                self.log.append(("close", closed, group, number))
            self.log.append(("open", opened, group, number))
        self.log.append(("write" if request.writes else "read", column, group, number))
        return super()._grant(at, column, request)

    def _refresh(self):
        super()._refresh()
        self.log.append(("refresh", self.refreshed - self.times.rfc, -1, -1))


def spaced(times, least, apart=1):
    """Whether of sorted times each is at least `least` after the one `apart` before."""
    pairs = zip(times, times[apart:], strict=False)
    return all(later - sooner >= least for sooner, later in pairs)


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(presets())),
    seed=st.integers(0, 2**32 - 1),
    gap=st.sampled_from([0, 1, 30]),
    span=st.sampled_from([8, 2000, 1 << 20]),
)
def test_random_commands_keep_every_rule_of_the_standard(name, seed, gap, span):
    draw = random.Random(seed)
    machine = machine_with(name, trefi="1.8 us")
    t, dram = timing(machine), machine.off_chip.dram
    channel = Watched(dram, t)
    reach = 0
    for number in range(250):
        reach += draw.randint(0, gap)
        place = locate(dram, draw.randrange(span))
        channel.ask(draw.randrange(3), Request(reach, number, place, draw.random() < 0.3))
    assert len(channel.serve(1 << 60)) == 250
    log = channel.log
    opens = sorted(time for kind, time, _, _ in log if kind == "open")
    assert spaced(opens, t.rrd_s)
    assert spaced(opens, t.faw, 4)
    data = sorted(
        time + (t.cl if kind == "read" else t.cwl)
        for kind, time, _, _ in log
        if kind in ("read", "write")
    )
    assert spaced(data, t.burst)  # the bus carries one burst at a time
    for group in range(dram.bank_groups):
        mine = [(kind, time) for kind, time, at, _ in log if at == group]
        columns = sorted(time for kind, time in mine if kind in ("read", "write"))
        assert spaced(columns, t.ccd_l)
        assert spaced(sorted(time for kind, time in mine if kind == "open"), t.rrd_l)
    for bank in range(dram.bank_groups * dram.banks):
        opened, last = None, deque([-t.refi])
        for kind, time, _, at in log:
            if at == -1:
                assert opened is None or time >= opened + t.ras + t.rp
                opened, refreshed = None, time + t.rfc
                last.append(refreshed - t.rc)
            elif at != bank:
                continue
            elif kind == "close":
                assert opened is not None and time >= opened + t.ras
            elif kind == "open":
                assert time >= last[-1] + t.rc
                opened = time
                last.append(time)
            else:
                assert opened is not None and time >= opened + t.rcd
    for kind, time, _, _ in log:
        if kind == "refresh":
            inside = [x for what, x, _, _ in log if what != "refresh" and time < x < time + t.rfc]
            assert inside == []


# Both engines, and whole kernels


@st.composite
def memories(draw):
    """A machine with some DRAM, short refresh intervals included."""
    name = draw(st.sampled_from(sorted(presets())))
    changes = {
        "trefi": draw(st.sampled_from(["0.5 us", "1.3 us", "7.8 us"])),
        "row": draw(st.sampled_from(["128 B", "1 KiB"])),
        "map": draw(st.permutations(["group", "column", "bank"])),
        "banks": draw(st.sampled_from([1, 4])),
    }
    machine = machine_with(
        name,
        draw(st.sampled_from([1, 2, 4])),
        draw(st.integers(1, 12)),
        draw(st.integers(16, 40)),
        **changes,
    )
    return machine.model_copy(update={"clock_hz": draw(st.sampled_from([1e9, 1.3e9, 0.7e9]))})


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_random_traffic_is_the_same_in_both_engines(wire, data):
    machine = data.draw(memories())
    program = data.draw(
        st.one_of(test_memory_rules.programs(wire, machine), test_fast_engine.moving(wire))
    )
    chip, generators = machine.off_chip, program.machine.generators
    machine = program.machine.model_copy(update={"off_chip": chip, "generators": generators})
    test_fast_engine.assert_same(
        program.__class__(
            program.graph, machine, program.units, program.channels, (), program.tensors
        ),
        max_cycles=data.draw(test_fast_engine.ends),
    )


@pytest.mark.parametrize(
    ("kernel", "streams"), [("dot_product", 2), ("filter_sum", 4)], ids=["dot_product", "q6"]
)
def test_reduction_on_plasticine_is_off_chip_bound(kernel, streams, simulate):
    # 51.2 B a cycle; each refresh takes 260 cycles of tRFC and, with its rows closed before and
    # opened again, up to tRTP 7.5 + tRP 13.75 + 260 + tRCD 13.75 = 295. Rows of one bank meet for a
    # moment where a stream moves on: under 1 %. Start and end: under 120 cycles.
    n = 1 << 17
    result = simulate(map_graph(build(kernel, {"n": n}), hwspecs.load("plasticine")).program)
    moved = streams * n * 4
    refreshes = result.cycles // 7680
    counts = result.off_chip.channels
    assert {c.refreshes for c in counts} == {refreshes}
    assert moved / 51.2 + 260 * refreshes < result.cycles
    assert result.cycles < 1.01 * (moved / 51.2 + 295 * refreshes) + 120
    assert sum(c.row_hits for c in counts) > 0.98 * moved / 64
