"""A timing graph, with its Program's loads and stores, written as the fast engine's one array.

`fast_kernel.py` and `fast_memory.py` say what the words and the fields of each row mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dataflow import network_plan
from dataflow.program import Access, Program, Tensor, Unit
from dataflow.sim import fast_dram as dram
from dataflow.sim import fast_kernel as kernel
from dataflow.sim import fast_network as network
from dataflow.sim import fast_tiles as tiles
from dataflow.sim.account import BLOCKED, OFF_CHIP
from dataflow.sim.fast_levels import add_levels
from dataflow.sim.fast_memory import AHEAD_BEATS
from dataflow.sim.fast_network_arrays import Words, add_network
from dataflow.sim.fast_rows import add_rows, dram_words
from dataflow.sim.offchip import tensor_of
from dataflow.sim.result import EngineError
from dataflow.sim.timing_graph import PortPlan, TimingGraph, UnitPlan

_MOST_PARTS = 1 << 62


class Layout(Words):
    """Where things lie, and the array before cycle 0.

    units, channels: places of rows, in the graph's order. generated: for each load and store its
    place among the units, the unit and its tensor; generators: the places of their rows.
    Raises ProgramError where a tensor is unknown.
    """

    def __init__(self, program: Program, graph: TimingGraph):
        self.graph = graph
        self.generated: list[tuple[int, Unit, Tensor]] = [
            (place, unit, tensor_of(program, unit))
            for place, unit in enumerate(program.units)
            if isinstance(unit.work, Access)
        ]
        super().__init__(tiles.ALL_WORDS)
        count = len(self.generated)
        first_unit = len(self.words)
        self.units = self.rows(len(graph.units), kernel.UNIT_FIELDS)
        first_generator = len(self.words)
        self.generators = self.rows(count, tiles.GENERATOR_FIELDS)
        first_channel = len(self.words)
        self.channels = self.rows(len(graph.channels) + count, kernel.CHANNEL_FIELDS)
        queues = self.channels[len(graph.channels) :]
        self.queues = {
            place: queue for (place, _, _), queue in zip(self.generated, queues, strict=True)
        }
        self.set(
            0,
            {
                kernel.UNITS: first_unit,
                kernel.UNITS_END: first_generator,
                kernel.CHANNELS_AT: first_channel,
                kernel.CHANNELS_END: len(self.words),
            },
        )
        self.add_channels()
        self.add_units()
        self.set(0, {tiles.HEADS: self.add([kernel.NEVER] * count)})
        if count:
            self.set(0, chip_words(program))
            if program.machine.off_chip.dram:
                add_rows(self, program.machine, count)
            else:
                self.set(0, {tiles.FREE_AT: self.add([0] * (2 * self.words[tiles.CHANNELS]))})
        for number, (place, unit, tensor) in enumerate(self.generated):
            in_flight = program.machine.generators.in_flight(unit.kind == "store")
            self.set(self.generators[number], {tiles.IN_FLIGHT: in_flight})
            self.add_generator(number, place, unit, tensor)
        self.set(0, {kernel.ASK_LIMIT: kernel.NEVER})
        shared = network_plan.plan(program)
        if shared is not None:
            self.add_shared(shared)
        self.add_worklist()
        if shared is None:
            add_levels(self, program)

    def array(self) -> np.ndarray:
        """Return the array, which knows where its rings begin."""
        self.set(0, {kernel.ROOM: len(self.words)})
        return super().array()

    def add_shared(self, plan: network_plan.NetworkPlan) -> None:
        """Add the network that channels share, and what these know of it."""
        rows_of = {place: self.channels[place] for place in plan.first_sinks}
        leg_sizes, sink_sizes = [1] * len(plan.legs), [1] * len(plan.sinks)
        crossed: list[tuple[int, int]] = []  # a sink and its channel's row
        for place, first in plan.first_sinks.items():
            sink = first
            while sink >= 0:
                size = self.words[rows_of[place] + kernel.CAPACITY]
                crossed.append((sink, rows_of[place]))
                sink_sizes[sink] = leg_sizes[plan.sinks[sink].leg] = size
                sink = plan.sinks[sink].following
        for leg, place in plan.leaders().items():
            leg_sizes[leg] = self.words[rows_of[place] + kernel.CAPACITY]
        rows = add_network(self, plan, leg_sizes, sink_sizes)
        for sink, c in crossed:
            row, initial = rows.sinks[sink], self.words[c + kernel.INITIAL]
            self.set(row, {network.DELIVERED: initial})
            counts = (network.SENT_COUNT, network.ENTERED)
            self.set(rows.legs[plan.sinks[sink].leg], dict.fromkeys(counts, initial))
            if plan.sinks[sink].following < 0:
                self.words[row + network.CHANNEL_ROW] = c
                self.share(row + network.OUT, c + kernel.ARRIVALS)
        for place, sink in plan.first_sinks.items():
            c, leg = rows_of[place], rows.legs[plan.sinks[sink].leg]
            self.set(c, {kernel.LEG: leg, kernel.FLIGHT: plan.flight_cycles(sink)})
            self.reserve(c + kernel.SENT, self.words[c + kernel.CAPACITY])
        for leg, place in plan.leaders().items():
            self.words[rows.legs[leg] + network.KNOWN_AT] = rows_of[place] + kernel.WRITTEN
            self.share(rows.legs[leg] + network.SET_OUT, rows_of[place] + kernel.SENT)
        least = min(self.words[c + kernel.LATENCY] for c in rows_of.values())
        self.words[rows.network + network.LEAST_CYCLES] = least
        self.words[kernel.SHARED] = rows.network

    def add_channels(self) -> None:
        """Fill the rows of channels, the queues to generators last."""
        units, plans = self.graph.units, self.graph.channels
        rows, places = self.channels[: len(plans)], self.units
        initial = [plan.initial for plan in plans]
        # room beyond all that can be pushed is never used
        capacities = [
            min(plan.capacity, plan.initial + units[plan.writer].firings) for plan in plans
        ]
        columns = {
            kernel.WRITTEN: initial,
            kernel.INITIAL: initial,
            kernel.WRITE_AT: [
                tokens % capacity for tokens, capacity in zip(initial, capacities, strict=True)
            ],
            kernel.LATENCY: [plan.latency_cycles for plan in plans],
            kernel.CREDIT: [plan.credit_cycles for plan in plans],
            kernel.TOKEN_CHARGE: [plan.token_charge for plan in plans],
            kernel.ROOM_CHARGE: [BLOCKED] * len(plans),
            kernel.READER: [places[plan.reader] for plan in plans],
            kernel.WRITER: [places[plan.writer] for plan in plans],
            kernel.PEAK: [max(1, tokens) for tokens in initial],
            kernel.LAST_ARRIVAL: [0 if tokens else -1 for tokens in initial],
        }
        self.fill(rows, columns)
        self.add_rings(rows, capacities)
        self.add_rings(self.channels[len(plans) :], [held_beats(u) for _, u, _ in self.generated])
        for g, (place, unit, _) in zip(self.generators, self.generated, strict=True):
            ends = [g, self.units[place]]
            writer, reader = reversed(ends) if unit.kind == "store" else ends
            fields = {
                # no beat of a store is allowed yet
                kernel.READ: -held_beats(unit) if unit.kind == "store" else 0,
                kernel.CREDIT: 1,
                kernel.TOKEN_CHARGE: OFF_CHIP,
                kernel.ROOM_CHARGE: OFF_CHIP,
                kernel.READER: reader,
                kernel.WRITER: writer,
                kernel.IS_QUEUE: 1,
            }
            self.set(self.queues[place], fields)

    def add_rings(self, rows: range, capacities: list[int]) -> None:
        """Give channels their room."""
        self.fill(rows, {kernel.CAPACITY: capacities})
        self.reserve_each(rows, kernel.ARRIVALS, capacities)
        for c in rows:
            self.share(c + kernel.SENT, c + kernel.ARRIVALS)
        self.reserve_each(rows, kernel.CREDITS, capacities)

    def add_units(self) -> None:
        """Fill the rows of units; add their loops and ports, one of a load or store to the queue
        of its generator."""
        plans = self.graph.units
        rows = [self.unit(plan, self.queues.get(place)) for place, plan in enumerate(plans)]
        fields = (
            kernel.INNER,
            kernel.OUTER,
            kernel.DEPTH,
            kernel.LOOPS,
            kernel.IS_PLAIN,
            kernel.AROUND,
            kernel.PORTS,
            kernel.OUTPUTS,
            kernel.PORTS_END,
        )
        self.fill(self.units, dict(zip(fields, zip(*rows, strict=True), strict=bool(rows))))
        columns = {
            kernel.IS_UNIT: [1] * len(plans),
            kernel.LAST_FIRED: [-1] * len(plans),
            kernel.II: [plan.ii_cycles for plan in plans],
            kernel.WRAP: [-1] * len(plans),
        }
        self.fill(self.units, columns)

    def unit(self, plan: UnitPlan, queue: int | None) -> tuple[int, ...]:
        """Add a unit's loops and ports; return the fields of its row that say how it turns."""
        depth, named = len(plan.trips), set()
        for port in (*plan.inputs, *plan.outputs):
            if port.last or port.select:
                named.update(port.last, [entry[0] for entry in port.select])
        # where ports tell the innermost loop's firings apart, each is a run of its own
        outer = depth if depth == 0 or depth - 1 in named else depth - 1
        even = 0 < outer < depth and outer - 1 not in named
        loops = self.add([word for trips in plan.trips for word in (trips, 0)])
        inputs = [word for port in plan.inputs for word in self.port(port, loops)]
        outputs = [word for port in plan.outputs for word in self.port(port, loops)]
        if queue is not None:
            ports = outputs if plan.kind == "store" else inputs
            ports += self.port(PortPlan((), depth, (), (), False), loops, [queue])
        first = self.add(inputs)
        middle = self.add(outputs)
        return (
            plan.trips[-1] if outer < depth else 1,
            outer,
            depth,
            loops,
            int(not named),
            loops + 2 * (outer - 1) if even else 0,
            first,
            middle,
            len(self.words),
        )

    def port(self, port: PortPlan, loops: int, links: list[int] | None = None) -> list[int]:
        """Return a port's row, after adding what it points to."""
        link = self.add(links or [self.channels[channel] for channel in port.channels])
        lasts = selects = end = len(self.words)
        if port.last or port.select:
            selects += len(port.last)
            self.add([loops + 2 * loop for loop in port.last])
            self.add([w for at, *rest in port.select for w in (loops + 2 * at, *rest)])
            end = len(self.words)
        return [port.level, int(port.late), link, lasts, selects, end, 0, 0]

    def add_worklist(self) -> None:
        """All units and generators are on it, in order; one place stays free."""
        members = [*self.units, *self.generators]
        first = self.add([*members, 0])
        self.set(
            0,
            {
                kernel.WORKLIST: first,
                kernel.HEAD: first,
                kernel.TAIL: first + len(members),
                kernel.WORKLIST_END: first + len(members) + 1,
            },
        )
        self.reserve(kernel.TIMES, kernel.CHUNK)

    def add_generator(self, number: int, place: int, unit: Unit, tensor: Tensor) -> None:
        """Fill a generator's row; add its loops, axes, forms and rings."""
        access = unit.work
        assert isinstance(access, Access)
        g, words = self.generators[number], self.words
        firings = point_firings(unit)
        trips = [loop.trips for loop in unit.loops[: unit.points]]
        loops = self.add([word for trip in trips for word in (trip, 0)])
        beats, flight = held_beats(unit), words[g + tiles.IN_FLIGHT] + 1
        bursts = (beats if unit.kind == "store" else firings) * access.lanes + flight
        forms, factors, constant = self.add_forms(access, tensor)
        axes = self.add_axes(access, factors, loops)
        fields = {
            tiles.UNIT: self.units[place],
            tiles.QUEUE: self.queues[place],
            tiles.STORES: int(unit.kind == "store"),
            tiles.LOOPS: loops,
            tiles.POINTS: unit.points,
            tiles.FIRINGS: firings,
            tiles.AXES: axes,
            tiles.AXES_END: axes + max(1, len(access.order)) * tiles.AXIS_FIELDS,
            tiles.FORMS: forms,
            tiles.FORMS_END: forms + len(access.index) * tiles.FORM_FIELDS,
            tiles.CONSTANT: constant,
            tiles.BASE: tensor.base_bytes,
            tiles.ELEMENT: tensor.element_bytes,
            tiles.LANES: access.lanes,
            tiles.BEATS: beats,
            tiles.BURSTS: bursts,
            tiles.OLDEST: words[tiles.HEADS] + number,
            tiles.LAST_BACK: -1,
        }
        self.set(g, fields)
        for ring, size in ((tiles.NEEDS, beats), (tiles.ENDS, beats), (tiles.PLACES, bursts)):
            self.reserve(g + ring, size)
        rings = [tiles.FREED, tiles.REACH, tiles.BACK]
        if words[dram.DRAM]:
            rings += [tiles.BANK_OF, tiles.ROW_OF, tiles.NEXT]
        for ring in rings:
            self.reserve(g + ring, flight)
        self.set(0, {tiles.GENERATORS: self.generators[0], tiles.GENERATORS_END: self.channels[0]})

    def add_forms(self, access: Access, tensor: Tensor) -> tuple[int, dict[str, int], int]:
        """Add the forms of an index; return their place, and an element's offset: the factor of
        each axis and the constant."""
        factors = dict.fromkeys(access.order, 0)
        constant, stride, rows = 0, 1, []
        for form, extent in zip(reversed(access.index), reversed(tensor.shape), strict=True):
            terms = dict(form.terms)
            at = self.add([terms.get(axis, 0) for axis in access.order] or [0])
            rows += [form.constant, extent, at, 0, 0]
            for axis, factor in form.terms:
                factors[axis] += stride * factor
            constant += stride * form.constant
            stride *= extent
        return self.add(rows), factors, constant

    def add_axes(self, access: Access, factors: dict[str, int], loops: int) -> int:
        """Add the axes of an access from slow to fast (one of one element where there is none)."""
        walks = {walk.axis: walk for walk in access.box}
        rows = [
            self.add_axis(walks[axis].extent, walks[axis].digits, loops) for axis in access.order
        ]
        for row, axis in zip(rows, access.order, strict=True):
            row[0][tiles.FACTOR] = factors[axis]
        rows = rows or [self.add_axis(1, (), loops)]
        places = self.rows(len(rows), tiles.AXIS_FIELDS)
        for a, (row, coords, scratch) in zip(places, rows, strict=True):
            self.set(a, row)
            self.reserve(a + tiles.COORDS, coords)
            self.reserve(a + tiles.SCRATCH, scratch)
        return places[0]

    def add_axis(
        self, extent: int, digits: Sequence, loops: int
    ) -> tuple[dict[int, int], int, int]:
        """Add an axis's digits and pieces; return its fields, the most coordinates that it and one
        of its digits have."""
        most, widest, moved_by, rows = 1, 1, -1, []
        for digit in digits:
            ways, pieces = 1, []
            for piece in digit.pieces:
                counter = 0
                if piece.loop is None:
                    ways *= len(range(piece.copy, piece.count, piece.copies))
                else:
                    counter, moved_by = loops + 2 * piece.loop + 1, max(moved_by, piece.loop)
                pieces += [piece.step, piece.count, counter, piece.copies, piece.copy]
            first = self.add(pieces)
            rows += [digit.stride, digit.extent, first, len(self.words)]
            most, widest = most * max(1, ways), max(widest, ways)
        first = self.add(rows)
        fields = {
            tiles.EXTENT: extent,
            tiles.DIGITS: first,
            tiles.DIGITS_END: len(self.words),
            tiles.FACTOR: 0,
            tiles.MOVED_BY: moved_by,
        }
        return fields, most, widest


def point_firings(unit: Unit) -> int:
    """Firings of a unit at one point."""
    return math.prod(loop.trips for loop in unit.loops[unit.points :])


def held_beats(unit: Unit) -> int:
    """Beats that a generator may hold at once, and one."""
    return min(unit.firings, AHEAD_BEATS + point_firings(unit)) + 1


def chip_words(program: Program) -> dict[int, int]:
    """The machine's numbers; times inside a channel are whole numbers of 1 / parts cycles."""
    machine = program.machine
    chip, generators = machine.off_chip, machine.generators
    words = {
        tiles.GENERATOR_LATENCY: generators.latency_cycles,
        tiles.LATENCY: chip.latency_cycles,
        tiles.BURST: chip.burst_bytes,
        tiles.INTERLEAVE: chip.interleave_bytes,
        tiles.CHANNELS: chip.channels,
        tiles.WINDOW: chip.latency_cycles + generators.latency_cycles,
    }
    if chip.dram:
        return words | dram_words(machine, words[tiles.WINDOW])
    moved = chip.burst_bytes * Fraction(machine.clock_hz)
    read, write = moved / Fraction(chip.read_bytes_per_s), moved / Fraction(chip.write_bytes_per_s)
    parts = math.lcm(read.denominator, write.denominator)
    if parts > _MOST_PARTS:
        raise EngineError(
            f"{machine.name}: off_chip rates must make a burst's cycles fractions with a"
            f" common denominator of at most {_MOST_PARTS}, got {parts}; round them or pass"
            " engine='simpy'"
        )
    read_cycles, read_parts = divmod(int(read * parts), parts)
    write_cycles, write_parts = divmod(int(write * parts), parts)
    return words | {
        tiles.PARTS: parts,
        tiles.READ_CYCLES: read_cycles,
        tiles.READ_PARTS: read_parts,
        tiles.WRITE_CYCLES: write_cycles,
        tiles.WRITE_PARTS: write_parts,
    }
