"""Values without times: the units' points in some order that the channels allow.

Where every scratchpad is guarded, a run's values do not depend on its times: channels are queues
with one writer and one reader, and which tile a reader finds in a slot follows from counts alone.
Each unit then works out its points as soon as their tiles are there, point by point:

    begin(p)  once p - 1 has ended and, for a write unit's new tile, every reader gave a slot back
    end(p)    once each channel that p reads has brought its tile, tile tokens included

Workers, tiles and arithmetic are those of `values.py`, so the values equal the SimPy engine's to
the last bit. Left out: all times, and room in FIFOs (AHEAD keeps writers near their readers).
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping
from typing import Any

from dataflow.program import Access, Buffer, Channel, Port, Program, Scratchpad, Unit
from dataflow.sim.coordinates import Walker
from dataflow.sim.interrupt import Progress, stop_on_signal
from dataflow.sim.scratchpad import Slots
from dataflow.sim.tiles import Tile
from dataflow.sim.timing_graph import ProgramError
from dataflow.sim.values import Array, PortTiles, Values, Worker

AHEAD = 16
"""Tiles that may wait in a channel before its writer is held back, as long as others can go on."""


def why_timed(program: Program) -> str:
    """Why the values of `program` depend on its times, or "" where they do not.

    They do where a scratchpad's reader is not kept behind its writers by tile tokens, or a writer
    not behind the readers by credits, and where several stores add to one tensor.
    """
    units = {unit.name: unit for unit in program.units}
    channels = {(c.writer, c.reader, c.kind): c for c in program.channels if c.kind != "data"}
    for pad in program.scratchpads:
        for writer in pad.writers:
            for reader in pad.readers:
                tile = channels.get((writer, reader, "tile"))
                credit = channels.get((reader, writer, "credit"))
                if not _guarded(pad, units[writer], units[reader], tile, credit):
                    return f"scratchpad {pad.name}: nothing keeps {reader} and {writer} apart"
    merged = [
        unit.work.tensor
        for unit in program.units
        if unit.kind == "store" and isinstance(unit.work, Access) and unit.work.merge
    ]
    twice = [name for name in merged if merged.count(name) > 1]
    return f"tensor {twice[0]}: several stores add to it" if twice else ""


def _guarded(
    pad: Scratchpad, writer: Unit, reader: Unit, tile: Channel | None, credit: Channel | None
) -> bool:
    """Whether use c of the reader comes after tile c - initial and before the next in its slot."""
    if tile is None or credit is None or not isinstance(writer.work, Buffer):
        return False
    full, free = _port(writer.outputs, tile), _port(writer.inputs, credit)
    use, back = _port(reader.inputs, tile), _port(reader.outputs, credit)
    return (
        tile.initial == writer.work.initial
        and credit.initial <= pad.depth - writer.work.initial
        and all(not (port.select or port.late) for port in (full, free, use, back))
        and {(port.level, port.last) for port in (full, free)} == {(writer.work.level, ())}
        and (use.level, use.last) == (back.level, back.last)
        and full.level <= writer.points
        and use.level <= reader.points
    )


def _port(ports: tuple[Port, ...], channel: Channel) -> Port:
    return next(port for port in ports if channel.name in port.channels)


class LatestSlots(Slots):
    """A scratchpad's slots where a look comes after all that it can see."""

    def write(self, writer: int, tile: Tile, cycle: int) -> None:
        """Put the next part of `writer`, to come in `tile`, into its slot."""
        slot = self.written[writer] % self.depth
        self.history[writer][slot] = deque([(cycle, tile)])
        self.written[writer] += 1

    def sample(self, reader: int, count: int, cycle: int) -> Tile:
        """Return a promise of what lies in the slot of tile `count` now."""
        slot, seen = count % self.depth, Tile()
        self._show(seen, slot, [put[0][1] for slots in self.history if (put := slots[slot])])
        return seen


class _Runner:
    """Takes one worker from point to point."""

    def __init__(self, worker: Worker, values: Values, tokens: dict[str, int]):
        self.worker, self.queues, self.tokens = worker, values.queues, tokens
        unit = worker.unit
        self.points = itertools.product(*(range(trips) for trips in worker.trips))
        self.left = math.prod(worker.trips)
        self.counters: tuple[int, ...] | None = None
        self.takes = [PortTiles(unit, p) for p in unit.inputs if p.channels[0] in tokens]
        self.gives = [PortTiles(unit, p) for p in unit.outputs if p.channels[0] in tokens]
        self.written = [name for tiles in worker.outputs for name in tiles.port.channels]

    def advance(self, ahead: int) -> int:
        """Go on as far as tiles and tokens allow; how many points have ended."""
        before = self.left
        while self.left:
            if self.counters is None:
                if not self._free(ahead):
                    break
                self.counters = next(self.points)
                self.worker.begin(self.counters, 0)
            if not self._fed(self.counters):
                break
            self.worker.end(self.counters, 0)
            self._pass(self.counters)
            self.counters = None
            self.left -= 1
        return before - self.left

    def _free(self, ahead: int) -> bool:
        """Whether the next point may begin: its tokens are there and no reader is far behind."""
        return all(self.tokens[tiles.port.channels[0]] for tiles in self.takes) and all(
            len(self.queues[name]) < ahead for name in self.written
        )

    def _fed(self, counters: tuple[int, ...]) -> bool:
        """Whether every channel that this point reads has brought a tile."""
        for tiles in self.worker.inputs:
            if tiles.port.late and not tiles.ends(counters):
                continue
            for place in tiles.reachable(counters):
                if not self.queues[tiles.port.channels[place]]:
                    return False
        return True

    def _pass(self, counters: tuple[int, ...]) -> None:
        """Hand on the tokens whose use ends with this point."""
        for ports, step in ((self.takes, -1), (self.gives, 1)):
            for tiles in ports:
                if tiles.ends(counters):
                    self.tokens[tiles.port.channels[0]] += step


class Untimed:
    """One run of the values alone; `stop` ends it with a KeyboardInterrupt."""

    def __init__(self, program: Program, inputs: Mapping[str, Any]):
        """Take a program for which `why_timed` finds nothing; raises InputError as Values does."""
        self.values = Values(program, inputs, Walker(), LatestSlots)
        self.stop = False
        tokens = {c.name: c.initial for c in program.channels if c.kind != "data"}
        self.runners = [_Runner(each, self.values, tokens) for each in self.values.workers]
        self.total = sum(unit.firings for unit in program.units)

    def run(self, progress: Progress | None = None, cycles: int = 0) -> dict[str, Array]:
        """Return the outputs by name; `progress` is told firings done, and `cycles` throughout."""
        done, ahead = 0, AHEAD
        with stop_on_signal(self):
            while any(runner.left for runner in self.runners):
                before = done
                for runner in self.runners:
                    done += runner.advance(ahead) * runner.worker.point_firings
                    self.values.promises.drain()
                    if self.stop:
                        raise KeyboardInterrupt
                if progress is not None:
                    progress(done, self.total, cycles)
                if done == before:
                    ahead = self._further(ahead)
        return self.values.outputs()

    def _further(self, ahead: int) -> int:
        """Let writers go further ahead, where that can help."""
        if ahead > max(runner.worker.unit.firings for runner in self.runners):
            names = ", ".join(r.worker.unit.name for r in self.runners if r.left)
            raise ProgramError(f"units {names}: each must get the tiles it waits for, got none")
        return 2 * ahead
