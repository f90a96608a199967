"""Values, tile by tile as a run goes: the units compute what they are told when they fire.

At the first firing of an emission (the first point of the period over its carried loops) a unit
makes a promise, a Tile, for each output port and puts it into the side queue of every channel
that the port can reach at this point. At the last firing of a point it collects the promises of
its inputs, one from each channel reachable there: popped where the port's level wraps, else only
looked at. A point is worked out, in order, as soon as all that it collected is known.

Entries of a port's `select` on domain loops say which channel; those on walk loops reach all of
theirs, each of which then carries the handle of the same tile.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.program import Access, Box, Buffer, Channel, Compute, Fetch, Host, Port, Program, Unit
from dataflow.sim.arithmetic import HELD, Arithmetic
from dataflow.sim.assemble import Part, fitted, picked, turned
from dataflow.sim.compute import ComputeValues
from dataflow.sim.coordinates import Walker
from dataflow.sim.scratchpad import Filled, Slots
from dataflow.sim.tensors import Tensors
from dataflow.sim.tiles import Promises, Tile
from dataflow.sim.timing_graph import ProgramError

Array = NDArray[Any]
Counters = Sequence[int]


class PortTiles:
    """Which channels a port can reach at a point, and at which points it begins and ends a use."""

    def __init__(self, unit: Unit, port: Port):
        self.port = port
        self.trips = [loop.trips for loop in unit.loops]
        inside = range(port.level, unit.points)
        self.carried = tuple({*inside, *(loop for loop in port.last if loop < unit.points)})
        self.kept = tuple(loop for loop in range(unit.points) if loop not in self.carried)
        self.points = unit.points
        self._reach: dict[tuple[int, ...], tuple[int, ...]] = {}

    def begins(self, counters: Counters) -> bool:
        """Whether every carried loop stands at its first trip."""
        return not any(counters[loop] for loop in self.carried)

    def ends(self, counters: Counters) -> bool:
        """Whether every carried loop stands at its last trip."""
        return all(counters[loop] == self.trips[loop] - 1 for loop in self.carried)

    def key(self, counters: Counters) -> tuple[int, ...]:
        """What tells apart the emissions under way."""
        return tuple([counters[loop] for loop in self.kept])

    def reachable(self, counters: Counters) -> tuple[int, ...]:
        """The places of the channels that the port can use at this point."""
        select = self.port.select
        if not select:
            return (0,)
        key = tuple([counters[e[0]] // e[1] % e[2] if e[0] < self.points else -1 for e in select])
        found = self._reach.get(key)
        if found is None:
            found = (0,)
            for (loop, divisor, modulus), digit in zip(select, key, strict=True):
                digits = {digit}
                if digit < 0:
                    digits = {n // divisor % modulus for n in range(self.trips[loop])}
                found = tuple(place * modulus + d for place in found for d in sorted(digits))
            self._reach[key] = found
        return found


class Worker:
    """One unit's side of the values: its emissions under way and its points not worked out yet."""

    def __init__(self, unit: Unit, values: Values):
        self.unit, self.values = unit, values
        self.trips = [loop.trips for loop in unit.loops[: unit.points]]
        self.point_firings = math.prod(loop.trips for loop in unit.loops[unit.points :])
        carries = values.carries
        self.inputs = [PortTiles(unit, port) for port in unit.inputs if carries(port)]
        self.outputs = [PortTiles(unit, port) for port in unit.outputs if carries(port)]
        self.partial = [values.partial(tiles.port) for tiles in self.outputs]
        self.open: list[dict[tuple[int, ...], Tile]] = [{} for _ in self.outputs]
        self.pending: deque[tuple[Counters, list, list, Any]] = deque()

    def counters(self, point: int) -> tuple[int, ...]:
        """The domain loops' counters at a point."""
        result = []
        for trips in reversed(self.trips):
            point, count = divmod(point, trips)
            result.append(count)
        return tuple(reversed(result))

    def fired(self, first: int, times: Sequence[int]) -> None:
        """Note firings `first`, `first + 1`, ... at `times`."""
        count = self.point_firings
        for point in range(first // count, (first + len(times) - 1) // count + 1):
            start = point * count - first
            counters = self.counters(point)
            if start >= 0:
                self.begin(counters, times[start])
            if start + count <= len(times):
                self.end(counters, times[start + count - 1])

    def begin(self, counters: Counters, cycle: int) -> None:
        """Promise the tiles whose emission begins at this point."""
        for place, tiles in enumerate(self.outputs):
            if tiles.begins(counters):
                tile = self.open[place][tiles.key(counters)] = Tile()
                for reached in tiles.reachable(counters):
                    self.values.queues[tiles.port.channels[reached]].append(tile)

    def end(self, counters: Counters, cycle: int) -> None:
        """Collect the promises that came in, and work out what can be."""
        collected = []
        for tiles in self.inputs:
            used = tiles.ends(counters)
            if tiles.port.late and not used:
                continue
            for place in tiles.reachable(counters):
                name = tiles.port.channels[place]
                queue = self.values.queues[name]
                if not queue:
                    raise ProgramError(
                        f"{self.unit.name} at cycle {cycle}: channel {name} must bring a tile for"
                        f" point {counters}, got none; the levels of its ends do not agree"
                    )
                collected.append((tiles.port, place, queue.popleft() if used else queue[0]))
        finished = []
        for place, tiles in enumerate(self.outputs):
            if tiles.ends(counters):
                finished.append((place, self.open[place].pop(tiles.key(counters))))
        self.pending.append((counters, collected, finished, self.extra(counters, cycle)))
        self.advance()

    def extra(self, counters: Counters, cycle: int) -> Any:
        """What a kind of unit notes of a point beside its handles."""
        return None

    def advance(self) -> None:
        """Work out points in order up to the first that waits for a tile."""
        while self.pending:
            counters, collected, finished, extra = self.pending[0]
            for entry in collected:
                if entry[2].array is None:
                    entry[2].waiting.append(self.advance)
                    return
            self.pending.popleft()
            made = self.evaluate(counters, collected, extra)
            for place, tile in finished:
                self._resolve(place, tile, made)

    def _resolve(self, place: int, tile: Tile, made: Mapping[str, Array]) -> None:
        array = made.get(self.outputs[place].port.value)
        if array is None:
            array = np.full((), np.nan, dtype=HELD)
        arithmetic = self.values.arithmetic
        rounded = arithmetic.summed(array) if self.partial[place] else arithmetic.stored(array)
        self.values.promises.resolve(tile, rounded)

    def parts(self, counters: Counters, collected: Sequence) -> list[tuple[Port, list[Part]]]:
        """The tiles collected, by port, each taken to cover what the port's box says."""
        result: list[tuple[Port, list[Part]]] = []
        for port, place, tile in collected:
            coords = self.values.coords(port.boxes[place] if port.boxes else (), counters)
            if not result or result[-1][0] is not port:
                result.append((port, []))
            result[-1][1].append(fitted(tile.array, coords))
        return result

    def evaluate(self, counters: Counters, collected: Sequence, extra: Any) -> dict[str, Array]:
        """Return what leaves at a point, by value."""
        raise NotImplementedError


class ComputeWorker(Worker):
    """Runs a compute unit's operations."""

    def __init__(self, unit: Unit, values: Values):
        super().__init__(unit, values)
        graph = values.program.graph
        self.compute = ComputeValues(unit, graph, values.axes, values.walker, values.arithmetic)
        self.wanted = tuple(tiles.port.value for tiles in self.outputs)

    def evaluate(self, counters: Counters, collected: Sequence, extra: Any) -> dict[str, Array]:
        """Operations give their values; an output that none makes is passed on from an input."""
        given: dict[str, list[list[Part]]] = {}
        for port, parts in self.parts(counters, collected):
            given.setdefault(port.value, []).append(parts)
        return self.compute.evaluate(counters, given, self.wanted)


class WriteWorker(Worker):
    """Packs what comes in into its part of a scratchpad's tiles."""

    def __init__(self, unit: Unit, values: Values):
        super().__init__(unit, values)
        assert isinstance(unit.work, Buffer)
        self.work: Buffer = unit.work
        self.slots = values.slots[self.work.scratchpad]
        self.writer = values.pads[self.work.scratchpad].writers.index(unit.name)
        self.inside = range(self.work.level, unit.points)
        self.tile = Tile()
        self.box: tuple[np.ndarray, ...] = ()
        self.filled: list[Part] = []

    def begin(self, counters: Counters, cycle: int) -> None:
        """The tile takes its slot at its first beat, whatever the slot holds."""
        super().begin(counters, cycle)
        if not any(counters[loop] for loop in self.inside):
            self.tile = Tile()
            self.slots.write(self.writer, self.tile, cycle)

    def extra(self, counters: Counters, cycle: int) -> Any:
        """The tile that this point's parts belong to."""
        return self.tile

    def fired(self, first: int, times: Sequence[int]) -> None:
        """Beside the points: let readers know how far the writer has come."""
        super().fired(first, times)
        done = first + len(times) == self.unit.firings
        self.slots.reach(self.writer, None if done else times[-1] + 1)

    def evaluate(self, counters: Counters, collected: Sequence, extra: Any) -> dict[str, Array]:
        """Gather parts; the last point of a tile resolves it."""
        if not any(counters[loop] for loop in self.inside):
            self.box = self.values.coords(self.work.box, counters)
            self.filled = []
        for _, parts in self.parts(counters, collected):
            self.filled.extend(parts)
        if all(counters[loop] == self.trips[loop] - 1 for loop in self.inside):
            self.values.promises.resolve(extra, Filled(tuple(self.filled), self.box))
        return {}


class ReadWorker(Worker):
    """Passes on what lies in the slot of its current tile."""

    def __init__(self, unit: Unit, values: Values):
        super().__init__(unit, values)
        assert isinstance(unit.work, Fetch)
        self.name = unit.work.scratchpad
        self.slots = values.slots[self.name]
        self.reader = values.pads[self.name].readers.index(unit.name)
        tokens = [port for port in unit.inputs if values.kind(port) == "tile"]
        self.uses = [PortTiles(unit, port) for port in tokens]
        self.count = 0

    def extra(self, counters: Counters, cycle: int) -> Any:
        """Look at the slot at the last beat of the point."""
        seen = self.slots.sample(self.reader, self.count, cycle)
        if all(tiles.ends(counters) for tiles in self.uses):
            self.count += 1
        return seen

    def fired(self, first: int, times: Sequence[int]) -> None:
        """Beside the points: let the scratchpad forget when no look can come any more."""
        super().fired(first, times)
        if first + len(times) == self.unit.firings:
            self.slots.finish(self.reader)

    def advance(self) -> None:
        """A read waits for what it saw; the promise stands in for a collected tile."""
        while self.pending:
            _, _, finished, seen = self.pending[0]
            if seen.array is None:
                seen.waiting.append(self.advance)
                return
            self.pending.popleft()
            for place, tile in finished:
                self._resolve(place, tile, {self.outputs[place].port.value: seen.array})


class LoadWorker(Worker):
    """Takes tiles out of a tensor."""

    def evaluate(self, counters: Counters, collected: Sequence, extra: Any) -> dict[str, Array]:
        """The tile of this point."""
        access = self.unit.work
        assert isinstance(access, Access)
        array = self.values.tensors.load(access, self.values.walker.box(access.box, counters))
        return {tiles.port.value: array for tiles in self.outputs}


class StoreWorker(Worker):
    """Puts tiles into an output tensor, host units into a register."""

    def evaluate(self, counters: Counters, collected: Sequence, extra: Any) -> dict[str, Array]:
        """Store what came, each axis by its name; of an axis that is not stored, the last point."""
        work = self.unit.work
        for port, parts in self.parts(counters, collected):
            box = work.box if isinstance(work, Access) else ()
            axes = [walk.axis for walk in port.boxes[0]] if port.boxes else []
            target = [walk.axis for walk in box]
            parts = [turned(part, axes, target) for part in parts]
            coords = self.values.walker.box(box, counters)
            array = picked(parts, tuple(coords.values()))
            if isinstance(work, Host):
                self.values.tensors.keep(work.output, array)
            elif isinstance(work, Access):
                self.values.tensors.store(work, coords, array)
        return {}


_WORKERS: dict[str, Callable[..., Worker]] = {
    "compute": ComputeWorker,
    "write": WriteWorker,
    "read": ReadWorker,
    "load": LoadWorker,
    "store": StoreWorker,
    "host": StoreWorker,
}


class Values:
    """All values of a run."""

    def __init__(
        self,
        program: Program,
        inputs: Mapping[str, Any],
        walker: Walker,
        slots: type[Slots] = Slots,
    ):
        self.program, self.walker = program, walker
        self.arithmetic = Arithmetic(program.machine)
        self.promises = Promises()
        self.channels: dict[str, Channel] = {channel.name: channel for channel in program.channels}
        self.units = {unit.name: unit for unit in program.units}
        self.axes = {node.name: node.axes for node in program.graph.nodes}
        for unit in program.units:
            if isinstance(unit.work, Compute):
                made = [operation.node for operation in unit.work.operations]
                self.axes.update((node.name, node.axes) for node in made)
        self.pads = {pad.name: pad for pad in program.scratchpads}
        initial = {
            unit.work.scratchpad: unit.work.initial
            for unit in program.units
            if isinstance(unit.work, Buffer)
        }
        self.slots = {
            pad.name: slots(
                pad.depth,
                initial.get(pad.name, 0),
                len(pad.writers),
                len(pad.readers),
                self.promises,
            )
            for pad in program.scratchpads
        }
        self.tensors = Tensors(program, inputs, self.arithmetic)
        self.queues: dict[str, deque[Tile]] = {
            name: deque(Tile(np.full((), np.nan, dtype=HELD)) for _ in range(self._initial(name)))
            for name in self.channels
        }
        self.workers = [_WORKERS[unit.kind](unit, self) for unit in program.units]

    def fired(self, place: int, first: int, times: Sequence[int]) -> None:
        """Note firings of unit number `place`: number `first` on, at `times`."""
        self.workers[place].fired(first, times)
        self.promises.drain()

    def outputs(self) -> dict[str, Array]:
        """The outputs by name, as float64."""
        return self.tensors.outputs()

    def coords(self, box: Box, counters: Counters) -> tuple[np.ndarray, ...]:
        """The coordinates of a box's axes at a point, in order."""
        return tuple([self.walker.axis(walk, counters) for walk in box])

    def kind(self, port: Port) -> str:
        """What kind of tokens a port's channels carry."""
        return self.channels[port.channels[0]].kind

    def carries(self, port: Port) -> bool:
        """Whether tiles of a value pass a port."""
        return bool(port.value) and self.kind(port) == "data"

    def partial(self, port: Port) -> bool:
        """Whether what leaves through a port are partial results that an operation goes on with.

        Parts of a sum that no node of the graph stands for are, whoever takes them.
        """
        if port.value not in self.program.graph.by_name:
            return True
        return any(self._reaches_state(self.channels[name]) for name in port.channels)

    def _reaches_state(self, channel: Channel) -> bool:
        reader = self.units[channel.reader]
        if isinstance(reader.work, Compute):
            (value,) = {port.value for port in reader.inputs if channel.name in port.channels}
            return any(
                (operation.terms > 0 and value in (operation.node.name, *operation.node.args))
                or (
                    operation.node.op == "earlier"
                    and value in (operation.node.name, operation.node.args[0])
                )
                for operation in reader.work.operations
            )
        if isinstance(reader.work, Buffer):
            pad = self.pads[reader.work.scratchpad]
            onward = [self.units[name] for name in pad.readers]
            return any(
                self._reaches_state(self.channels[name])
                for unit in onward
                for port in unit.outputs
                if self.kind(port) == "data"
                for name in port.channels
            )
        return False

    def _initial(self, name: str) -> int:
        """How many whole tiles a channel's initial tokens stand for."""
        channel = self.channels[name]
        if not channel.initial:
            return 0
        unit = self.units[channel.writer]
        port = next(port for port in unit.outputs if name in port.channels)
        walk = [loop for loop in range(unit.points, port.level) if loop not in port.last]
        beats = math.prod(unit.loops[loop].trips for loop in walk)
        spread = math.prod(m for loop, _, m in port.select if loop >= unit.points)
        return -(-channel.initial * spread // beats)
