"""Banks, rows and refresh: when each burst of one memory channel moves.

Modelled: the commands of JESD79 and JESD235 that bound bandwidth, one channel with one rank. Rows
stay open until another of their bank is wanted or a refresh closes all. Left out: the command bus
and the edges of the memory's clock (a command may come up to one clock early), power-down, refresh
of single banks.

A channel takes turns. At turn T it looks at the oldest request of each generator that has reached
it, and grants the one that could read or write first (tie: the oldest, then the first declared);
so a stream keeps its row while it has requests there, and nothing waits for ever, as rows end. For
a request of bank b in bank group g, with c the time of its read or write:

    close = max(T, opened b + tRAS, read b + tRTP, data written to b + tWR)
    open  = max(T, close + tRP, opened b + tRC, opened g + tRRD_L, opened + tRRD_S,
                fourth opening before + tFAW)                  (a closed bank has closed long ago)
    c     = max(T, open + tRCD, c of g + tCCD_L, c before + tCCD_S)
            and of a read  max(data written to g + tWTR_L, data written + tWTR_S)
            and of a write read + CL + burst + 2 tCK - CWL
    end   = c + CL (or CWL) + burst
    next turn = max(T, c + tCCD_S - tRC)

A request whose row is open has c without close and open. The turn runs tRC ahead of the bus, so
that rows open while others move. A refresh is due every tREFI: the first c at or after it waits
until all banks are closed (their close + tRP) and tRFC has passed; then no row is open.

Source: timing diagrams of JESD79-3F and JESD235, as in the public simulators DRAMsim3 and
Ramulator, which take single commands in turn where this takes whole requests.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

from dataflow.sim.result import DramCounts
from hwspecs import Machine
from hwspecs.dram import Dram

FOUR = 4
"""Openings that a window of tFAW holds."""
WAITS = ("", "row", "refresh", "group", "turn")
"""What may hold a burst back beyond its reach and the burst before it: nothing; its row, which
others of its bank or the limits of opening keep shut; a refresh; the spacing of bursts in its bank
group; the bus, which changes direction."""

Watch = Callable[[int, int, tuple[int, int, int], str], None]
"""Told of each burst granted: unit, number, (column, column + tCCD_S, end), and its wait."""


@dataclass(frozen=True)
class Timing:
    """A channel's times in whole numbers of 1 / parts cycles of the machine."""

    parts: int
    cl: int
    cwl: int
    burst: int
    rcd: int
    rp: int
    ras: int
    rc: int
    ccd_s: int
    ccd_l: int
    rrd_s: int
    rrd_l: int
    faw: int
    rtp: int
    wr: int
    wtr_s: int
    wtr_l: int
    rtw: int
    rfc: int
    refi: int

    @property
    def lead_cycles(self) -> int:
        """Whole cycles that pass at least between a turn and the end of the burst granted."""
        return (min(self.cl, self.cwl) + self.burst) // self.parts


def timing(machine: Machine) -> Timing:
    """Return the times of the machine's DRAM, exactly."""
    dram = machine.off_chip.dram
    assert dram is not None
    # from a read to a write: its data, and two clocks for the bus to turn round (JESD79-3F, 4.13)
    turn = dram.cl_ps + 2 * dram.tck_ps - dram.cwl_ps
    cycle = Fraction(machine.clock_hz) / 10**12
    burst = dram.burst_ps * cycle
    names = "cl cwl trcd trp tras trc tccd_s tccd_l trrd_s trrd_l tfaw trtp twr twtr_s twtr_l"
    times = {
        name.removeprefix("t"): getattr(dram, f"{name}_ps") * cycle
        for name in (*names.split(), "trfc", "trefi")
    }
    times |= {"burst": burst, "rtw": max(Fraction(0), turn * cycle + burst)}
    parts = math.lcm(*(time.denominator for time in times.values()))
    return Timing(parts, **{name: int(time * parts) for name, time in times.items()})


@dataclass(frozen=True)
class Place:
    """Where a burst lies in its channel: the group, the bank counted over all groups, the row."""

    group: int
    bank: int
    row: int


def strides(dram: Dram) -> tuple[int, int, int]:
    """How far apart bursts of a channel are whose group, bank, or row is the next."""
    sizes = {"group": dram.bank_groups, "column": dram.columns, "bank": dram.banks}
    found, step = {}, 1
    for part in dram.map:
        found[part] = step
        step *= sizes[part]
    return found["group"], found["bank"], step


def locate(dram: Dram, number: int) -> Place:
    """Return where burst `number` of a channel lies.

    >>> from hwspecs.dram import Dram, preset
    >>> locate(Dram.model_validate(preset("DDR4-2666")), 4 * 128 * 4 + 5)  # one row's bursts later
    Place(group=1, bank=4, row=1)
    """
    group_step, bank_step, row_step = strides(dram)
    group = number // group_step % dram.bank_groups
    bank = number // bank_step % dram.banks
    return Place(group, group * dram.banks + bank, number // row_step)


@dataclass(slots=True)
class Bank:
    """A bank: its open row (-1: none), from when its columns, its closing, its opening may come."""

    row: int = -1
    column_at: int = 0
    close_at: int = 0
    open_at: int = 0


@dataclass(slots=True)
class Request:
    """A burst asked for: when it reaches the channel, where it lies, what is written."""

    reach: int
    number: int
    place: Place
    writes: bool


class DramChannel:
    """One channel: requests in, the ends of their bursts out."""

    def __init__(self, dram: Dram, times: Timing):
        self.times = times
        self.queues: dict[int, deque[Request]] = {}
        never = -max(times.refi, times.rc)
        self.banks = [Bank() for _ in range(dram.bank_groups * dram.banks)]
        self.turn = 0
        self.column = self.read = self.written = self.opened = never
        self.last_four = deque([never] * FOUR)
        self.group_column = [never] * dram.bank_groups
        self.group_written = [never] * dram.bank_groups
        self.group_opened = [never] * dram.bank_groups
        self.refresh_at = times.refi
        self.refreshed = 0
        self.hits = self.misses = self.conflicts = self.refreshes = 0
        self.watch: Watch | None = None

    def ask(self, unit: int, request: Request) -> None:
        """Take a request of the generator of declaration `unit`."""
        self.queues.setdefault(unit, deque()).append(request)

    def next_turn(self) -> int | None:
        """The time of the next turn; None where nothing is asked for."""
        heads = [queue[0].reach for queue in self.queues.values() if queue]
        return max(self.turn, min(heads) * self.times.parts) if heads else None

    def serve(self, before: int) -> list[tuple[int, int, int]]:
        """Take all turns before the time `before`; return (unit, request number, end) of each."""
        granted = []
        while True:
            at = self.next_turn()
            if at is None or at >= before:
                return granted
            self._refresh_until(at)
            column, unit, request = self._first(at)
            if column >= self.refresh_at:
                self._refresh()
                continue  # what comes first may be another
            self.queues[unit].popleft()
            wait = self._wait(at, column, request) if self.watch else ""
            end = self._grant(at, column, request)
            if self.watch:
                free = min(end, column + self.times.ccd_s)
                self.watch(unit, request.number, (column, free, end), wait)
            self.turn = max(at, column + self.times.ccd_s - self.times.rc)
            granted.append((unit, request.number, end))

    def _first(self, at: int) -> tuple[int, int, Request]:
        """The column time, generator and request that a turn grants."""
        here = [
            (self._column(at, queue[0]), queue[0].reach, unit, queue[0])
            for unit, queue in self.queues.items()
            if queue and queue[0].reach * self.times.parts <= at
        ]
        column, _, unit, request = min(here, key=lambda found: found[:3])
        return column, unit, request

    def _open(self, at: int, request: Request) -> int:
        """When the row of a request opens, where it is not open yet."""
        times, group, bank = self.times, request.place.group, self.banks[request.place.bank]
        closed = at if bank.row < 0 else max(at, bank.close_at) + times.rp
        return max(
            closed,
            bank.open_at,
            self.group_opened[group] + times.rrd_l,
            self.opened + times.rrd_s,
            self.last_four[0] + times.faw,
        )

    def _column(self, at: int, request: Request) -> int:
        """When a request could read or write."""
        times, group, bank = self.times, request.place.group, self.banks[request.place.bank]
        is_open = bank.row == request.place.row
        ready = bank.column_at if is_open else self._open(at, request) + times.rcd
        bus = max(self.group_column[group] + times.ccd_l, self.column + times.ccd_s)
        if request.writes:
            other = self.read + times.rtw
        else:
            other = max(self.group_written[group] + times.wtr_l, self.written + times.wtr_s)
        return max(at, ready, bus, other)

    def _wait(self, at: int, column: int, request: Request) -> str:
        """Which of WAITS kept a request from its column; in a tie the first that the rule names."""
        times, group, bank = self.times, request.place.group, self.banks[request.place.bank]
        if column <= max(request.reach * times.parts, self.column + times.ccd_s):
            return ""
        if bank.row != request.place.row:
            opened = self._open(at, request)
            if opened + times.rcd == column:
                # a refresh leaves no row open, and says itself when the bank may open one
                refreshed = bank.row < 0 and bank.open_at == opened == self.refreshed
                return "refresh" if refreshed else "row"
        if self.group_column[group] + times.ccd_l == column:
            return "group"
        return "turn"

    def _grant(self, at: int, column: int, request: Request) -> int:
        """Open the row where it is not, read or write at `column`; return when the burst ends."""
        times, group, bank = self.times, request.place.group, self.banks[request.place.bank]
        if bank.row == request.place.row:
            self.hits += 1
        else:
            self.conflicts += bank.row >= 0
            self.misses += bank.row < 0
            opened = self._open(at, request)
            self.opened = self.group_opened[group] = opened
            self.last_four.popleft()
            self.last_four.append(opened)
            bank.row = request.place.row
            bank.column_at = opened + times.rcd
            bank.close_at = opened + times.ras
            bank.open_at = opened + times.rc
        self.column = self.group_column[group] = column
        if request.writes:
            end = column + times.cwl + times.burst
            self.written = self.group_written[group] = end
            bank.close_at = max(bank.close_at, end + times.wr)
        else:
            end = column + times.cl + times.burst
            self.read = column
            bank.close_at = max(bank.close_at, column + times.rtp)
        return end

    def _refresh_until(self, at: int) -> None:
        """Make the refreshes that are due by `at`, those of a long idle time at once."""
        while self.refresh_at <= at:
            self._refresh()
            missed = (at - self.refresh_at) // self.times.refi
            if missed > 0:
                self.refresh_at += missed * self.times.refi
                self.refreshes += missed

    def _refresh(self) -> None:
        """Close every row, refresh, and say when rows may open again."""
        times = self.times
        start = max(self.refresh_at, self.refreshed)
        closes = [bank.close_at for bank in self.banks if bank.row >= 0]
        if closes:
            start = max(start, *closes) + times.rp
        self.refreshed = start + times.rfc
        for bank in self.banks:
            bank.row = -1
            bank.open_at = max(bank.open_at, self.refreshed)
        self.refresh_at += times.refi
        self.refreshes += 1

    def counts(self) -> DramCounts:
        """What the banks have done so far."""
        cycles = self.refreshes * self.times.rfc // self.times.parts
        return DramCounts(self.hits, self.misses, self.conflicts, self.refreshes, cycles)
