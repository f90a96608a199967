"""A Program reduced to what takes time: units, channels and firing plans as plain numbers.

Both engines read this form. What it leaves out: values, addresses, names of loops.

A unit's nest is first made short: loops of one trip go, and neighbours merge where no port tells
them apart. Then firings come as runs, `(count, action)`: an action says which channels must hold
a token, which are popped and which pushed, and holds for all firings of the run. All firings of
the innermost loop but the last share one action; runs of inner loops are written out once as a
pattern and repeated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from dataflow.errors import FaultsError, did_you_mean
from dataflow.program import Channel, Port, Program, Unit
from dataflow.sim.account import BLOCKED, OFF_CHIP, WAITING

_PATTERN_RUNS = 1024


class ProgramError(FaultsError):
    """A Program whose units and channels do not fit together."""


@dataclass(frozen=True)
class Action:
    """What one firing does: `needs` are (channel, popped) in declaration order, then pushes."""

    needs: tuple[tuple[int, bool], ...]
    pushes: tuple[int, ...]


class PortPlan(NamedTuple):
    """A port over the short nest: used where the loops from `level` on and those in `last` wrap.

    select: (loop, divisor, modulus, weight) entries: the channel's place is the sum of
    weight * (counter // divisor % modulus).
    """

    channels: tuple[int, ...]
    level: int
    last: tuple[int, ...]
    select: tuple[tuple[int, int, int, int], ...]
    late: bool


class UnitPlan(NamedTuple):
    """A unit's short nest; `point_firings` firings make one point of its domain."""

    name: str
    kind: str
    trips: tuple[int, ...]
    inputs: tuple[PortPlan, ...]
    outputs: tuple[PortPlan, ...]
    ii_cycles: int
    firings: int
    point_firings: int


class ChannelPlan(NamedTuple):
    """A channel; latency_cycles is from the push's firing to the arrival.

    token_charge: what a reader's wait for a token is charged to. carries: whether its arrivals
    count as the run's end (a returned credit does not).
    """

    name: str
    writer: int
    reader: int
    capacity: int
    latency_cycles: int
    credit_cycles: int
    initial: int
    token_charge: int
    carries: bool


class Nest(NamedTuple):
    """A nest made short: the trips left; of each loop before its place (-1: it has one trip), of
    each boundary between loops before the one now."""

    trips: tuple[int, ...]
    place: tuple[int, ...]
    level: tuple[int, ...]


@dataclass(frozen=True)
class TimingGraph:
    """Units and channels, both in declaration order, by place."""

    units: tuple[UnitPlan, ...]
    channels: tuple[ChannelPlan, ...]

    @property
    def firings(self) -> int:
        """Firings of all units in a whole run."""
        return sum(unit.firings for unit in self.units)


def build(program: Program, keep_points: bool = False) -> TimingGraph:
    """Return the timing graph of `program`.

    keep_points: never merge a domain loop with a walk loop, so that no run of firings that
    differ in kind spans a point's end.
    Raises ProgramError with every fault found.
    """
    faults = _faults(program)
    if faults:
        raise ProgramError(faults)
    index = {channel.name: place for place, channel in enumerate(program.channels)}
    nests: dict[tuple[tuple[int, ...], frozenset[int]], Nest] = {}
    units = tuple([_unit_plan(unit, index, keep_points, nests) for unit in program.units])
    places = {unit.name: place for place, unit in enumerate(program.units)}
    charges = _token_charges(program)
    channels = []
    for channel, charge in zip(program.channels, charges, strict=True):
        writer = places[channel.writer]
        plan = ChannelPlan(  # by position, as this is done for thousands
            channel.name,
            writer,
            places[channel.reader],
            channel.capacity,
            program.units[writer].latency_cycles + channel.latency_cycles,
            channel.credit_cycles,
            channel.initial,
            charge,
            channel.kind != "credit",
        )
        channels.append(plan)
    return TimingGraph(units, tuple(channels))


def _faults(program: Program) -> list[str]:
    """Every fault of the wiring, a line each."""
    faults: list[str] = []
    units = {unit.name: unit for unit in program.units}
    if len(units) != len(program.units):
        names = [unit.name for unit in program.units]
        twice = sorted({name for name in names if names.count(name) > 1})
        faults.append(f"program: unit names must be unique, got {', '.join(twice)} twice")
    readers = {channel.name: channel.reader for channel in program.channels}
    writers = {channel.name: channel.writer for channel in program.channels}
    if len(readers) != len(program.channels):
        faults.append("program: channel names must be unique, got one twice")
    read: set[str] = set()
    written: set[str] = set()
    for unit in program.units:
        faults += _unit_faults(unit)
        for role, ports, ends, seen in (
            ("reader", unit.inputs, readers, read),
            ("writer", unit.outputs, writers, written),
        ):
            where = unit.name
            for name in [name for port in ports for name in port.channels]:
                if ends.get(name) != where:
                    faults.append(_end_fault(where, role, name, ends))
                if name in seen:
                    faults.append(f"{where}: channel {name} must have one {role} port, got two")
                seen.add(name)
    for channel in program.channels:
        faults += _channel_faults(channel, units, read, written)
    return faults


def _unit_faults(unit: Unit) -> list[str]:
    where, depth, faults = unit.name, len(unit.loops), []
    short = [loop.digit for loop in unit.loops if loop.trips < 1]
    if short:
        faults.append(f"{where}: trips must be at least 1, got less for loop {', '.join(short)}")
    if not 0 <= unit.points <= depth:
        faults.append(f"{where}: points must be 0 to {depth}, got {unit.points}")
    if unit.ii_cycles < 1:
        faults.append(f"{where}: ii_cycles must be at least 1, got {unit.ii_cycles}")
    for port in (*unit.inputs, *unit.outputs):
        named, ways = [*port.last], 1
        for loop, _, modulus in port.select:
            named.append(loop)
            ways *= modulus
        if not 0 <= port.level <= depth or (named and not 0 <= min(named) <= max(named) < depth):
            faults.append(
                f"{where}: port {port.channels} must name loops of its unit, got one outside"
            )
        if ways != len(port.channels):
            faults.append(
                f"{where}: port {port.channels} must have as many channels as its select counts,"
                f" got {len(port.channels)}"
            )
    return faults


def _end_fault(unit: str, role: str, name: str, ends: dict[str, str]) -> str:
    if name not in ends:
        hint = did_you_mean(name, ends)
        return f"{unit}: channel must be one of the program, got {name!r}; {hint}"
    return f"{unit}: channel {name} must have it as {role}, got {ends[name]!r}"


def _channel_faults(
    channel: Channel, units: dict[str, Unit], read: set[str], written: set[str]
) -> list[str]:
    where, faults = channel.name, []
    for role, end, ends in (
        ("writer", channel.writer, written),
        ("reader", channel.reader, read),
    ):
        if end not in units:
            hint = did_you_mean(end, units)
            faults.append(f"{where}: {role} must be a unit, got {end!r}; {hint}")
        elif where not in ends:
            faults.append(f"{where}: {role} {end} must have a port on it, got none")
    if not 0 <= channel.initial <= channel.capacity or channel.capacity < 1:
        faults.append(
            f"{where}: capacity must be at least 1 and hold the initial tokens,"
            f" got capacity {channel.capacity}, initial {channel.initial}"
        )
    if channel.credit_cycles < 1:
        faults.append(f"{where}: credit_cycles must be at least 1, got {channel.credit_cycles}")
    writer = units.get(channel.writer)
    if writer is not None and writer.latency_cycles + channel.latency_cycles < 1:
        faults.append(f"{where}: latency with its writer's must be at least 1 cycle, got 0")
    return faults


def _token_charges(program: Program) -> list[int]:
    """What waiting for a token of each channel is charged to, in the channels' order."""
    units = {unit.name: unit for unit in program.units}
    channels = {channel.name: channel for channel in program.channels}

    def from_memory(channel: Channel, seen: frozenset[str] = frozenset()) -> bool:
        """Whether its tokens come from a load, directly or through a scratchpad."""
        unit = units[channel.writer]
        if unit.kind not in ("write", "read"):
            return unit.kind == "load"
        for port in unit.inputs:
            for name in port.channels:
                feed = channels[name]
                if feed.kind == "credit" or name in seen:
                    continue
                if from_memory(feed, seen | {channel.name}):
                    return True
        return False

    return [
        BLOCKED if channel.kind == "credit" else OFF_CHIP if from_memory(channel) else WAITING
        for channel in program.channels
    ]


def _unit_plan(
    unit: Unit,
    index: dict[str, int],
    keep_points: bool,
    nests: dict[tuple[tuple[int, ...], frozenset[int]], Nest],
) -> UnitPlan:
    """Return `unit` with its nest made as short as its ports allow; copies share it by `nests`."""
    ports = (*unit.inputs, *unit.outputs)
    apart = {port.level for port in ports}
    for port in ports:
        if port.last or port.select:
            for loop in (*port.last, *[entry[0] for entry in port.select]):
                apart |= {loop, loop + 1}
    if keep_points:
        apart.add(unit.points)
    key = (tuple([loop.trips for loop in unit.loops]), frozenset(apart))
    nest = nests.get(key)
    if nest is None:
        nest = nests[key] = _short_nest(*key)
    plans = tuple([_port_plan(port, nest, index) for port in ports])
    count = len(unit.inputs)
    return UnitPlan(
        unit.name,
        unit.kind,
        nest.trips,
        plans[:count],
        plans[count:],
        unit.ii_cycles,
        math.prod(key[0]),
        math.prod(key[0][unit.points :]),
    )


def _short_nest(all_trips: tuple[int, ...], apart: frozenset[int]) -> Nest:
    """Return a nest without loops of one trip, neighbours merged but at the boundaries `apart`."""
    trips: list[int] = []
    place: list[int] = []
    level = [0]
    split = True
    for number, turns in enumerate(all_trips):
        split = split or number in apart
        if turns > 1 and (split or not trips):
            trips.append(turns)
            split = False
        elif turns > 1:
            trips[-1] *= turns
        place.append(len(trips) - 1 if turns > 1 else -1)
        level.append(len(trips))
    return Nest(tuple(trips), tuple(place), tuple(level))


def _port_plan(port: Port, nest: Nest, index: dict[str, int]) -> PortPlan:
    channels = tuple([index[name] for name in port.channels])
    if not port.select and not port.last:
        return PortPlan(channels, nest.level[port.level], (), (), port.late)
    place, select, weight = nest.place, [], 1
    for loop, divisor, modulus in reversed(port.select):
        if modulus > 1 and place[loop] >= 0:
            select.append((place[loop], divisor, modulus, weight))
        weight *= modulus
    last = tuple([place[loop] for loop in port.last if place[loop] >= 0])
    return PortPlan(channels, nest.level[port.level], last, tuple(select), port.late)


def runs(unit: UnitPlan) -> Iterator[list[tuple[int, Action]]]:
    """Yield all firings of `unit` in order, as lists of (count, action)."""
    trips = unit.trips
    depth = len(trips)
    ports = (*unit.inputs, *unit.outputs)
    digits = sorted({entry[:3] for port in ports for entry in port.select})
    lasts = sorted({loop for port in ports for loop in port.last})
    special = (*(loop for loop, _, _ in digits), *lasts)
    outer = _pattern_start(trips, max(special, default=-1) + 1)
    actions: dict[Action, Action] = {}
    patterns: dict[tuple[int, ...], tuple[list[tuple[int, Action]], list[Action]]] = {}
    counter = [0] * outer

    def prepared() -> tuple[list[tuple[int, Action]], list[Action]]:
        """The inner loops' runs but for their final firing, and that firing by wrap level."""
        full = (*counter, *([0] * (depth - outer)))
        ends = [_action(unit, full, wrap) for wrap in range(depth + 1)]
        ends = [actions.setdefault(action, action) for action in ends]
        return _pattern(trips, outer, ends), ends

    while True:
        key = (
            *(counter[loop] // divisor % modulus for loop, divisor, modulus in digits),
            *(counter[loop] == trips[loop] - 1 for loop in lasts),
        )
        if key not in patterns:
            patterns[key] = prepared()
        pattern, ends = patterns[key]
        wrap = outer
        while wrap and counter[wrap - 1] == trips[wrap - 1] - 1:
            wrap -= 1
        yield _joined(pattern, (1, ends[wrap]))
        if wrap == 0:
            return
        counter[wrap - 1] += 1
        counter[wrap:] = [0] * (outer - wrap)


def _pattern_start(trips: tuple[int, ...], least: int) -> int:
    """The first loop of the pattern: as far out as `least` and a bound on its length allow."""
    start, length = len(trips), 1
    while start > least:
        # the innermost loop gives two runs, whatever its trips
        length = length * trips[start - 1] if start < len(trips) else 2
        if length > _PATTERN_RUNS:
            break
        start -= 1
    return start


def _pattern(trips: tuple[int, ...], start: int, ends: list[Action]) -> list[tuple[int, Action]]:
    """The runs of the loops from `start` on, without their final firing.

    ends[w] is the action of a firing at which the loops from w on stand at their last trip.
    """
    if start == len(trips):
        return []
    result = [(trips[-1] - 1, ends[-1])]
    for loop in range(len(trips) - 2, start - 1, -1):
        body, result = result, []
        for _ in range(trips[loop] - 1):
            for run in (*body, (1, ends[loop + 1])):
                _append(result, run)
        for run in body:
            _append(result, run)
    return result


def _append(result: list[tuple[int, Action]], run: tuple[int, Action]) -> None:
    if result and result[-1][1] is run[1]:
        result[-1] = (result[-1][0] + run[0], run[1])
    else:
        result.append(run)


def _joined(pattern: list[tuple[int, Action]], end: tuple[int, Action]) -> list:
    if pattern and pattern[-1][1] is end[1]:
        return [*pattern[:-1], (pattern[-1][0] + 1, end[1])]
    return [*pattern, end]


def _action(unit: UnitPlan, counter: tuple[int, ...], wrap: int) -> Action:
    """The action of a firing: the loops from `wrap` on stand at their last trip.

    Loops that ports name in `last` or `select` lie outside the pattern, so `counter` holds them.
    """

    def used(port: PortPlan) -> bool:
        return port.level >= wrap and all(counter[d] == unit.trips[d] - 1 for d in port.last)

    def chosen(port: PortPlan) -> int:
        return port.channels[sum(counter[d] // by % m * weight for d, by, m, weight in port.select)]

    needs = tuple((chosen(p), used(p)) for p in unit.inputs if used(p) or not p.late)
    return Action(needs, tuple(chosen(p) for p in unit.outputs if used(p)))
