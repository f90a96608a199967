"""The firing rule: how a unit's next firings follow from the times in its channels.

    firing(n) = max(firing(n-1) + ii_cycles, arrival of every front token needed,
                    credit of every channel pushed)

Firings with one and the same action are worked out together, as many as have every time known.
The gap before a firing is charged to what arrived last; in a tie to what is declared first.
"""

from __future__ import annotations

from operator import gt
from typing import Any

from simpy import Environment, Event

from dataflow.sim import account
from dataflow.sim.channel import Channel, Times
from dataflow.sim.offchip import AddressGenerator
from dataflow.sim.timing_graph import Action, UnitPlan


class Gate:
    """An action bound to a run's channels: those popped, only looked at, and pushed."""

    __slots__ = ("charges", "holds", "needs", "pops", "pushes")

    def __init__(self, action: Action, channels: list[Channel], memory: AddressGenerator | None):
        self.needs = tuple((channels[place], popped) for place, popped in action.needs)
        self.pops = tuple(channel for channel, popped in self.needs if popped)
        self.holds = tuple(channel for channel, popped in self.needs if not popped)
        self.pushes = tuple(channels[place] for place in action.pushes)
        if memory is not None and memory.writes:
            self.pushes += (memory.queue,)
        elif memory is not None:
            self.needs += ((memory.queue, True),)
            self.pops += (memory.queue,)
        self.charges = [c.token_charge for c in self.pops] + [c.room_charge for c in self.pushes]


class Running:
    """A unit in a run: the cycle it is free from, its firings, its gaps by cause."""

    __slots__ = ("fired", "free_at", "gaps", "lacks", "last_fired", "plan", "waits_token")

    def __init__(self, plan: UnitPlan):
        self.plan = plan
        self.free_at = 0
        self.fired = 0
        self.last_fired = -1
        self.gaps = [0] * len(account.CAUSES)
        self.lacks: Channel | None = None
        self.waits_token = False

    @property
    def finished(self) -> bool:
        """Whether it has fired all it will."""
        return self.fired == self.plan.firings


def ready(gate: Gate, count: int, unit: Running) -> int:
    """How many of `count` firings have every time they need known; notes what one lacks."""
    for channel in gate.pops:
        known = len(channel.arrivals) - channel.read
        if known < count:
            count = known
            if not known:
                unit.lacks, unit.waits_token = channel, True
                return 0
    for channel in gate.holds:
        if len(channel.arrivals) == channel.read:
            unit.lacks, unit.waits_token = channel, True
            return 0
    for channel in gate.pushes:
        known = len(channel.credits) - channel.written
        if known < count:
            count = known
            if not known:
                unit.lacks, unit.waits_token = channel, False
                return 0
    return count


def wait(unit: Running, env: Environment) -> Event:
    channel: Any = unit.lacks
    return channel.wait_token(env) if unit.waits_token else channel.wait_room(env)


def fire_once(gate: Gate, unit: Running) -> int:
    """Return the time of one firing; the first of a run, where held tokens may be late."""
    at = free_at = unit.free_at
    charge, late = 0, 0
    for channel, _ in gate.needs:
        arrival = channel.arrivals[channel.read]
        if arrival > at:
            at, charge = arrival, channel.token_charge
            late = channel.late_by[channel.read] if channel.late_by else 0
    for channel in gate.pushes:
        credit = channel.credits[channel.written]
        if credit > at:
            at, charge, late = credit, channel.room_charge, 0
    if at > free_at:
        _charge(unit.gaps, at - free_at, charge, late)
    unit.free_at = at + unit.plan.ii_cycles
    return at


def fire_many(gate: Gate, unit: Running, count: int, ii_cycles: int) -> Times:
    """Return the times of `count` >= 2 firings whose tokens and credits are all known."""
    columns = [c.arrivals[c.read + 1 : c.read + count] for c in gate.pops]
    columns += [c.credits[c.written + 1 : c.written + count] for c in gate.pushes]
    first = fire_once(gate, unit)
    free_at = unit.free_at
    even = range(free_at, free_at + (count - 1) * ii_cycles, ii_cycles)
    for column in columns:
        if any(map(gt, column, even)):
            break
    else:  # nothing comes later than the unit is free: no gaps
        unit.free_at = even.stop
        return range(first, even.stop, ii_cycles)
    times = [first]
    gaps, charges = unit.gaps, gate.charges
    latest = columns[0] if len(columns) == 1 else map(max, *columns)
    for place, at in enumerate(latest):
        if at > free_at:
            for number, column in enumerate(columns):
                if column[place] == at:
                    late = _late_by(gate, number, place + 1)
                    _charge(gaps, at - free_at, charges[number], late)
                    break
            free_at = at
        times.append(free_at)
        free_at += ii_cycles
    unit.free_at = free_at
    return times


def _charge(gaps: list[int], gap: int, charge: int, late: int) -> None:
    """Charge a gap; of a token's wait, the `late` cycles that others of its links made it late go
    to the network."""
    late = min(gap, late)
    gaps[account.NETWORK] += late
    gaps[charge] += gap - late


def _late_by(gate: Gate, number: int, place: int) -> int:
    """How late others made the token that a pop takes `place` tokens on; `number` counts pops and
    then pushes, for which it is 0."""
    if number >= len(gate.pops):
        return 0
    channel = gate.pops[number]
    return channel.late_by[channel.read + place] if channel.late_by else 0


def move(gate: Gate, times: Times) -> None:
    """Pop and push at `times`, and wake who waited for it."""
    for channel in gate.pops:
        channel.pop(times)
    for channel in gate.pushes:
        channel.push(times)
    for channel in gate.pops:
        channel.popped()
    for channel in gate.pushes:
        channel.pushed()
