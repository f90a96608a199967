"""The engine against the rules of a Program read literally, one firing at a time."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.sim import DeadlockError


def settings_of(unit):
    return itertools.product(*(range(loop.trips) for loop in unit.loops))


def used(unit, port, counters):
    at_last = [c == loop.trips - 1 for c, loop in zip(counters, unit.loops, strict=True)]
    return all(at_last[port.level :]) and all(at_last[loop] for loop in port.last)


def chosen(port, counters):
    place = 0
    for loop, divisor, modulus in port.select:
        place = place * modulus + counters[loop] // divisor % modulus
    return port.channels[place]


class Literal:
    """One firing at a time; a firing happens when every time that it needs is known."""

    def __init__(self, program):
        self.program = program
        self.arrivals = {c.name: [0] * c.initial for c in program.channels}
        self.credits = {c.name: [0] * (c.capacity - c.initial) for c in program.channels}
        self.pushes = {c.name: [] for c in program.channels}
        self.pops = {c.name: [] for c in program.channels}
        self.channels = {c.name: c for c in program.channels}
        self.times = {u.name: [] for u in program.units}
        self.gaps = {u.name: {"waiting": 0, "blocked": 0} for u in program.units}
        self.causes = {u.name: [] for u in program.units}
        left = {u.name: list(settings_of(u)) for u in program.units}
        moved = True
        while moved:
            moved = False
            for unit in program.units:
                while left[unit.name] and self.fire(unit, left[unit.name][0]):
                    left[unit.name].pop(0)
                    moved = True
        self.stuck = any(left.values())

    def fire(self, unit, counters):
        needs, pops, pushes = [], [], []
        for port in unit.inputs:
            uses = used(unit, port, counters)
            name = chosen(port, counters)
            if not uses and port.late:
                continue
            place = len(self.pops[name])
            if place >= len(self.arrivals[name]):
                return False
            kind = "blocked" if self.channels[name].kind == "credit" else "waiting"
            needs.append((self.arrivals[name][place], kind, (self.channels[name], place, True)))
            if uses:
                pops.append(name)
        for port in unit.outputs:
            if used(unit, port, counters):
                name = chosen(port, counters)
                place = len(self.pushes[name])
                if place >= len(self.credits[name]):
                    return False
                cause = self.channels[name], place, False
                needs.append((self.credits[name][place], "blocked", cause))
                pushes.append(name)
        times = self.times[unit.name]
        free = times[-1] + unit.ii_cycles if times else 0
        at = max([free, *(time for time, *_ in needs)])
        charge, cause = next(
            (each[1:] for each in needs if each[0] == at > free), ("waiting", None)
        )
        self.gaps[unit.name][charge] += at - free
        self.causes[unit.name].append(cause)
        times.append(at)
        for name in pops:
            self.pops[name].append(at)
            self.credits[name].append(at + self.channels[name].credit_cycles)
        for name in pushes:
            self.pushes[name].append(at)
            delay = unit.latency_cycles + self.channels[name].latency_cycles
            self.arrivals[name].append(at + delay)
        return True

    def cycles(self):
        ends = [times[-1] for times in self.times.values()]
        ends += [
            self.arrivals[n][-1]
            for n in self.pushes
            if self.pushes[n] and self.channels[n].kind != "credit"
        ]
        return max(ends) + 1

    def peak(self, name):
        """Slots taken at each push: pushes so far less credits back by then."""
        channel = self.channels[name]
        back = self.credits[name][channel.capacity - channel.initial :]
        peak = channel.initial
        for count, at in enumerate(self.pushes[name], start=1):
            peak = max(peak, channel.initial + count - sum(time <= at for time in back))
        return peak


@st.composite
def programs(draw, wire):
    """Units over shared loops, each with an inner loop of its own, in a chain with side links."""
    trips = [draw(st.integers(1, 4)) for _ in range(3)]
    count = draw(st.integers(2, 4))
    inner = [draw(st.integers(1, 3)) for _ in range(count)]
    inputs, outputs = [[] for _ in range(count)], [[] for _ in range(count)]
    fields = {}

    def link(name, writer, reader, initial=0):
        level = draw(st.integers(0, 3))
        last = tuple(loop for loop in range(level) if draw(st.integers(0, 5)) == 0)
        late = draw(st.booleans())
        groups = [
            (loop, divisor, modulus)
            for loop in range(level)
            for divisor, modulus in [draw(st.sampled_from([(1, 2), (2, 2), (1, 3)]))]
            if not initial and draw(st.integers(0, 3)) == 0 and loop not in last
        ][:2]
        ways = 1
        for _, _, modulus in groups:
            ways *= modulus
        names = " ".join(f"{name}_{way}" for way in range(ways))
        options = {"last": last, "select": tuple(groups)}
        outputs[writer].append(wire.port(names, level, **options))
        inputs[reader].append(wire.port(names, level, late=late, **options))
        for each in names.split():
            fields[each] = {
                "capacity": initial + draw(st.integers(1, 6)),
                "latency_cycles": draw(st.integers(1, 4)),
                "credit_cycles": draw(st.integers(1, 3)),
                "initial": initial,
                "kind": draw(st.sampled_from(["data", "tile", "credit"])),
            }

    for writer in range(count - 1):
        link(f"next{writer}", writer, writer + 1)
    if draw(st.booleans()):
        link("side", 0, count - 1)
    if draw(st.booleans()):
        link("back", count - 1, draw(st.integers(0, count - 1)), initial=draw(st.integers(1, 4)))
    units = [
        wire.unit(
            f"u{place}",
            [*trips, inner[place]],
            inputs[place],
            outputs[place],
            latency=draw(st.integers(0, 3)),
            ii=draw(st.integers(1, 3)),
        )
        for place in range(count)
    ]
    names = {name for unit in units for port in unit.outputs for name in port.channels}
    return wire.program(units, **{name: fields[name] for name in fields if name in names})


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_random_program_runs_as_its_rules_say(wire, data, simulate):
    program = data.draw(programs(wire))
    literal = Literal(program)
    try:
        result = simulate(program)
    except DeadlockError:
        assert literal.stuck
        return
    assert not literal.stuck
    assert result.cycles == literal.cycles()
    for unit in program.units:
        account = result.accounts[unit.name]
        assert account.firings == unit.firings
        gaps = literal.gaps[unit.name]
        assert (account.waiting, account.blocked) == (gaps["waiting"], gaps["blocked"])
        assert account.total == result.cycles
    peaks = {name: literal.peak(name) for name in result.channel_peaks}
    assert result.channel_peaks == peaks
