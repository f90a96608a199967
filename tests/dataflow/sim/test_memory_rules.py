"""Off-chip memory against its rules stepped cycle by cycle, on random loads and stores."""

import math
from collections import deque
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

import hwspecs
from dataflow.sim.coordinates import coordinates
from dataflow.sim.offchip import requests


def beats_of(program, unit):
    """(addresses, needs, ends) over all points of a load or store."""
    tensor = next(t for t in program.tensors if t.name == unit.work.tensor)
    addresses, needs, ends = [], [], []
    burst = program.machine.off_chip.burst_bytes
    for point in range(unit.loops[0].trips):
        coords = {walk.axis: coordinates(walk, (point,)) for walk in unit.work.box}
        tile = requests(unit.work, tensor, coords, burst, unit.loops[1].trips, unit.name)
        needs += [len(addresses) + need for need in tile.needs]
        ends += [len(addresses) + end for end in tile.ends]
        addresses += tile.addresses
    return addresses, needs, ends


class Stepped:
    """Loads feed one compute unit, which feeds a store; every cycle in turn."""

    def __init__(self, program):
        self.machine = machine = program.machine
        self.chip, self.generators = machine.off_chip, machine.generators
        self.channels = {channel.name: channel for channel in program.channels}
        self.arrivals = {name: [] for name in self.channels}
        self.credits = {name: [0] * c.capacity for name, c in self.channels.items()}
        self.popped = dict.fromkeys(self.channels, 0)
        self.pushed = dict.fromkeys(self.channels, 0)
        self.units = program.units
        self.fired = {unit.name: 0 for unit in self.units}
        self.free = {unit.name: 0 for unit in self.units}
        moving = [unit for unit in self.units if unit.kind in ("load", "store")]
        self.beats = {unit.name: beats_of(program, unit) for unit in moving}
        self.issued = {unit.name: 0 for unit in moving}
        self.back = {unit.name: [] for unit in moving}
        self.used_at = {unit.name: [] for unit in moving}  # per request: its last beat's firing
        self.on_way = deque()
        self.channel_free = [Fraction(0)] * self.chip.channels
        self.end = 0
        self.cycle = 0
        while any(self.fired[unit.name] < unit.firings for unit in self.units) or any(
            len(self.back[name]) < len(self.beats[name][0]) for name in self.beats
        ):
            self.step()
            assert self.cycle < 100_000
        self.end = max([self.end, *(max(times) for times in self.back.values() if times)])

    def step(self):
        for unit in self.units:
            self.fire(unit)
        for unit in self.units:
            if unit.name in self.beats:
                self.issue(unit)
        while self.on_way and self.on_way[0][0] == self.cycle:
            self.serve(*self.on_way.popleft()[1:])
        self.cycle += 1

    def fire(self, unit):
        t, n = self.cycle, self.fired[unit.name]
        if n == unit.firings or self.free[unit.name] > t:
            return
        inputs = [name for port in unit.inputs for name in port.channels]
        outputs = [name for port in unit.outputs for name in port.channels]
        for name in inputs:
            arrivals = self.arrivals[name]
            if len(arrivals) <= self.popped[name] or arrivals[self.popped[name]] > t:
                return
        for name in outputs:
            credits = self.credits[name]
            if len(credits) <= self.pushed[name] or credits[self.pushed[name]] > t:
                return
        if unit.name in self.beats and not self.memory_lets(unit, n):
            return
        self.fired[unit.name] += 1
        self.free[unit.name] = t + unit.ii_cycles
        self.end = max(self.end, t)
        for name in inputs:
            self.popped[name] += 1
            self.credits[name].append(t + self.channels[name].credit_cycles)
        for name in outputs:
            self.pushed[name] += 1
            at = t + unit.latency_cycles + self.channels[name].latency_cycles
            self.arrivals[name].append(at)
            self.end = max(self.end, at)
        if unit.name in self.beats:
            used = self.used_at[unit.name]
            used += [t] * (self.beats[unit.name][2][n] - len(used))

    def memory_lets(self, unit, n):
        _, needs, ends = self.beats[unit.name]
        back = self.back[unit.name]
        known = needs[n] if unit.kind == "load" else ends[n] - self.generators.outstanding_writes
        return known <= 0 or (len(back) >= known and max(back[:known]) <= self.cycle)

    def issue(self, unit):
        name, k = unit.name, self.issued[unit.name]
        used, limit = self.used_at[name], self.generators.outstanding_requests
        if k == len(self.beats[name][0]):
            return
        if unit.kind == "load":
            ready = k < limit or (len(used) > k - limit and used[k - limit] + 1 <= self.cycle)
        else:
            ready = len(used) > k
        if ready:
            self.issued[name] += 1
            self.on_way.append((self.cycle + self.generators.latency_cycles, unit, k))

    def serve(self, unit, k):
        chip = self.chip
        rate = chip.read_bytes_per_s if unit.kind == "load" else chip.write_bytes_per_s
        place = self.beats[unit.name][0][k] // chip.interleave_bytes % chip.channels
        start = max(self.channel_free[place], Fraction(self.cycle))
        end = start + Fraction(chip.burst_bytes) * Fraction(self.machine.clock_hz) / Fraction(rate)
        self.channel_free[place] = end
        self.back[unit.name].append(math.ceil(end) + chip.latency_cycles)


@st.composite
def programs(draw, wire, machine):
    chip = machine.off_chip.model_copy(
        update={
            "channels": draw(st.sampled_from([1, 2, 4])),
            "read_bytes_per_s": draw(st.sampled_from([12.8e9, 16e9, 5e9])),
            "write_bytes_per_s": draw(st.sampled_from([12.8e9, 7e9])),
            "latency_cycles": draw(st.integers(1, 40)),
        }
    )
    generators = machine.generators.model_copy(
        update={
            "latency_cycles": draw(st.integers(1, 10)),
            "outstanding_requests": draw(st.integers(4, 20)),
            "outstanding_writes": draw(st.integers(4, 20)),
        }
    )
    machine = machine.model_copy(update={"off_chip": chip, "generators": generators})
    lanes = draw(st.sampled_from([4, 8, 16, 32]))
    tile = lanes * draw(st.integers(1, 4))
    elems = tile * draw(st.integers(0, 3)) + draw(st.integers(1, tile))
    count = draw(st.integers(1, 3))
    units = [
        wire.load(f"load{n}", elems, f"x{n}", f"a{n}", tile=tile, lanes=lanes) for n in range(count)
    ]
    beats = units[0].firings
    inputs = [wire.port(f"a{n}", 1) for n in range(count)]
    ii = draw(st.integers(1, 3))
    units += [
        wire.unit("work", [beats], inputs, [wire.port("b", 1)], ii=ii),
        wire.load("store", elems, "y", "b", tile=tile, lanes=lanes, kind="store"),
    ]
    if draw(st.booleans()):
        units.insert(0, units.pop())
    bases = [draw(st.integers(0, 3)) * 64 + 4096 * n for n in range(count + 1)]
    tensors = [wire.tensor(f"x{n}", elems, base=bases[n]) for n in range(count)]
    tensors.append(wire.tensor("y", elems, base=bases[-1], kind="output"))
    capacity = draw(st.integers(1, 8))
    return wire.program(units, machine, tensors=tensors, capacity=capacity)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_random_traffic_runs_as_the_rules_say(wire, data, simulate):
    program = data.draw(programs(wire, hwspecs.load("tungsten_20x20")))
    stepped = Stepped(program)
    result = simulate(program)
    assert result.cycles == stepped.end + 1
    for unit in program.units:
        assert result.accounts[unit.name].total == result.cycles
    chip = program.machine.off_chip
    seconds = result.cycles / program.machine.clock_hz
    moved = result.off_chip.read_bytes + result.off_chip.write_bytes
    assert moved <= chip.peak_bytes_per_s * chip.channels * seconds
