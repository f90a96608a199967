"""Off-chip memory: when its channels serve the requests that reach them.

Modelled: channels interleaved by address, and a fixed latency. Without a description of its DRAM
each moves one burst at a time at its effective rate, first come first served in order of (cycle,
declaration of the unit):

    start = max(reach, channel free),  end = start + burst / rate

With one, banks, rows, turn-rounds and refresh decide when a burst ends (`dram.py`). In both:

    back  = ceil(end) + off-chip latency

The memory decides late: it serves a request only when no earlier one can still come. With every
process waiting and t the first request not served, nothing is back before t + 1 + latency, so
all requests that reach memory up to t + latency + generator latency are known; these are served
together. Where units share a network as well (`stepwise`), whose next delivery may come in any
cycle, it serves cycle by cycle what has reached it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Generator
from fractions import Fraction
from functools import partial
from operator import itemgetter
from typing import Protocol

from simpy import Environment, Event
from simpy.events import EventPriority

from dataflow.sim.bursts import BurstLog
from dataflow.sim.dram import DramChannel, Request, locate, timing
from dataflow.sim.result import DramCounts
from hwspecs import Machine

_LATE = EventPriority(2)
"""SimPy priority after every other event of a cycle."""


class Asker(Protocol):
    """What the memory needs of an address generator; `known_back` counts what came back."""

    writes: bool
    known_back: int

    def back(self, cycle: int) -> None: ...

    def wake(self) -> None: ...


class Late(Event):
    """An event after all others of its cycle."""

    def __init__(self, env: Environment, delay: int = 0):
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority=_LATE, delay=delay)


class Memory:
    """Off-chip channels of a fixed rate, and the counts of what they moved."""

    def __init__(self, env: Environment, machine: Machine):
        chip = machine.off_chip
        self.env = env
        self.channels = chip.channels
        self.burst_bytes = chip.burst_bytes
        self.interleave_bytes = chip.interleave_bytes
        self.latency_cycles = chip.latency_cycles
        self.window_cycles = chip.latency_cycles + machine.generators.latency_cycles
        self.stepwise = False  # other units may ask, by way of a shared network, in any cycle
        self.idle: Event | None = None
        self.reads = self.writes = 0
        self.log: BurstLog | None = None
        self.set_up(machine)

    def set_up(self, machine: Machine) -> None:
        """Make the channels."""
        clock = Fraction(machine.clock_hz)
        read = self.burst_bytes * clock / Fraction(machine.off_chip.read_bytes_per_s)
        write = self.burst_bytes * clock / Fraction(machine.off_chip.write_bytes_per_s)
        # times inside a channel are whole numbers of 1 / parts cycles: no rounding drifts
        self.parts = math.lcm(read.denominator, write.denominator)
        self.read_parts = int(read * self.parts)
        self.write_parts = int(write * self.parts)
        self.free = [0] * self.channels
        self.pending: list[tuple[int, int, int, Asker]] = []

    def record(self, log: BurstLog) -> None:
        """Note every burst of the run in `log`."""
        self.log = log
        log.parts = self.parts

    def submit(self, cycle: int, place: int, address: int, generator: Asker) -> None:
        """Take a request that reaches memory at `cycle`; `place` orders those of one cycle."""
        if self.log is not None:
            self.log.asked(place, cycle)
        self.take(cycle, place, address, generator)
        if self.idle is not None:
            idle, self.idle = self.idle, None
            idle.succeed()

    def run(self) -> Generator[Event, None, None]:
        """The process: wait until all that can be known is, then serve up to the horizon."""
        while True:
            if self.first_cycle() is None:
                self.idle = self.env.event()
                yield self.idle
            yield Late(self.env)
            first = self.first_cycle()
            assert first is not None
            now = int(self.env.now)
            if not self.stepwise:
                if first > now:
                    yield Late(self.env, first - now)
                self.serve(first + self.window_cycles)
            elif first > now:
                yield Late(self.env, 1)
            else:
                self.serve(now)

    def take(self, cycle: int, place: int, address: int, generator: Asker) -> None:
        """Keep a request until it is served."""
        self.pending.append((cycle, place, address, generator))

    def first_cycle(self) -> int | None:
        """The first cycle in which there is something to decide; None where there is nothing."""
        return min(self.pending, key=itemgetter(0))[0] if self.pending else None

    def serve(self, horizon: int) -> None:
        """Decide what the cycles up to `horizon` bring, and tell the generators."""
        self.pending.sort(key=itemgetter(0, 1))
        count = bisect_right(self.pending, horizon, key=itemgetter(0))
        batch, self.pending = self.pending[:count], self.pending[count:]
        parts, free = self.parts, self.free
        for cycle, unit, address, generator in batch:
            place = address // self.interleave_bytes % self.channels
            start = max(free[place], cycle * parts)
            free[place] = end = start + (self.write_parts if generator.writes else self.read_parts)
            if self.log is not None:
                self.log.moved(place, unit, generator.known_back, (start, end, end))
            self.count(generator)
            generator.back(-(-end // parts) + self.latency_cycles)
        for generator in dict.fromkeys(request[3] for request in batch):
            generator.wake()

    def count(self, generator: Asker) -> None:
        """Count a burst moved."""
        self.writes += generator.writes
        self.reads += not generator.writes

    def counts(self) -> tuple[DramCounts, ...]:
        """What each channel's banks have done, where they are described."""
        return ()


class DramMemory(Memory):
    """Off-chip channels of banks and rows."""

    def set_up(self, machine: Machine) -> None:
        """Make the channels."""
        dram = machine.off_chip.dram
        assert dram is not None
        self.dram = dram
        self.times = timing(machine)
        self.window_cycles += self.times.lead_cycles - 1
        self.rows = [DramChannel(dram, self.times) for _ in range(self.channels)]
        self.generators: dict[int, Asker] = {}
        self.asked: dict[int, int] = {}
        self.early: dict[int, dict[int, int]] = {}

    def record(self, log: BurstLog) -> None:
        """Note every burst of the run in `log`."""
        log.parts = self.times.parts
        self.log = log
        for channel, row in enumerate(self.rows):
            row.watch = partial(log.moved, channel)

    def take(self, cycle: int, place: int, address: int, generator: Asker) -> None:
        """Let the channel of the burst have the request."""
        self.generators[place] = generator
        number = self.asked.get(place, 0)
        self.asked[place] = number + 1
        block, inside = divmod(address, self.interleave_bytes)
        blocks, channel = divmod(block, self.channels)
        burst = (blocks * self.interleave_bytes + inside) // self.burst_bytes
        where = locate(self.dram, burst)
        self.rows[channel].ask(place, Request(cycle, number, where, generator.writes))

    def first_cycle(self) -> int | None:
        """The cycle of the first turn."""
        turns = [turn for row in self.rows if (turn := row.next_turn()) is not None]
        return min(turns) // self.times.parts if turns else None

    def serve(self, horizon: int) -> None:
        """Take the turns up to the end of cycle `horizon`; bursts are handed over in order."""
        served: dict[int, None] = {}
        for row in self.rows:
            for place, number, end in row.serve((horizon + 1) * self.times.parts):
                back = -(-end // self.times.parts) + self.latency_cycles
                self.early.setdefault(place, {})[number] = back
                served[place] = None
                self.count(self.generators[place])
        for place in served:
            generator, early = self.generators[place], self.early[place]
            while generator.known_back in early:
                generator.back(early.pop(generator.known_back))
            generator.wake()

    def counts(self) -> tuple[DramCounts, ...]:
        """What each channel's banks have done."""
        return tuple(row.counts() for row in self.rows)
