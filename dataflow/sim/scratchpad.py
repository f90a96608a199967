"""Scratchpads: a few slots that hold the tiles of one value.

Modelled: which tile lies in which slot at which cycle. A writer puts its part of tile n into slot
(initial + n) mod depth at its first beat; a reader takes what lies in the slot of its own tile
count at the last beat of its use. What keeps a reader behind the writers and a writer behind the
readers are only the tile tokens and credits of the Program; where one is missing, the reader sees
another tile. Left out: single beats of a tile, and banks (a conflict is its unit's `ii_cycles`).

    seen at t = of each writer, the last part put into the slot before t

Units work ahead of each other, so a look at a slot waits until the writers are known to have
reached its cycle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataflow.sim.arithmetic import HELD
from dataflow.sim.assemble import Part, picked
from dataflow.sim.tiles import Promises, Tile

_NEVER = 1 << 62


@dataclass(frozen=True)
class Filled:
    """What one writer put into a slot: parts of a tile that covers `box` as a whole."""

    parts: tuple[Part, ...]
    box: tuple[np.ndarray, ...]


class Slots:
    """The slots of one scratchpad over time; the tiles written resolve to Filled."""

    def __init__(self, depth: int, initial: int, writers: int, readers: int, promises: Promises):
        self.depth = depth
        self.promises = promises
        self.history = [[deque[tuple[int, Tile]]() for _ in range(depth)] for _ in range(writers)]
        self.written = [initial] * writers
        self.known_before = [0] * writers
        self.samples: list[tuple[int, int, Tile]] = []
        self.read_at = [0] * readers
        self.whole: list[tuple[list[Tile], NDArray] | None] = [None] * depth

    def write(self, writer: int, tile: Tile, cycle: int) -> None:
        """Put the next part of `writer`, to come in `tile`, into its slot at `cycle`."""
        self.history[writer][self.written[writer] % self.depth].append((cycle, tile))
        self.written[writer] += 1

    def sample(self, reader: int, count: int, cycle: int) -> Tile:
        """Return a promise of what `reader` sees at `cycle` in the slot of its tile `count`."""
        seen = Tile()
        self.read_at[reader] = cycle
        self.samples.append((cycle, count % self.depth, seen))
        self._decide()
        return seen

    def reach(self, writer: int, cycle: int | None) -> None:
        """Note that all of a writer's parts before `cycle` (None: all) are put in."""
        self.known_before[writer] = _NEVER if cycle is None else cycle
        if self.samples:
            self._decide()

    def finish(self, reader: int) -> None:
        """Note that `reader` will look no more."""
        self.read_at[reader] = _NEVER

    def _decide(self) -> None:
        """Decide the samples whose cycle every writer has reached; forget what none can see."""
        known = min(self.known_before)
        undecided = []
        for cycle, slot, seen in self.samples:
            if cycle > known:
                undecided.append((cycle, slot, seen))
                continue
            last = []
            for slots in self.history:
                last += [tile for put, tile in slots[slot] if put < cycle][-1:]
            self._show(seen, slot, last)
        self.samples = undecided
        past = min([*self.read_at, *(cycle for cycle, _, _ in undecided)])
        for slots in self.history:
            for puts in slots:
                while len(puts) > 1 and puts[1][0] < past:
                    puts.popleft()

    def _show(self, seen: Tile, slot: int, tiles: Sequence[Tile]) -> None:
        """Resolve `seen` once all of `tiles`, one a writer, are there."""
        late = next((tile for tile in tiles if tile.array is None), None)
        if late is not None:
            late.waiting.append(lambda: self._show(seen, slot, tiles))
        elif not tiles:
            self.promises.resolve(seen, np.full((), np.nan, dtype=HELD))
        else:
            whole = self.whole[slot]
            if whole is None or whole[0] != tiles:
                filled: list[Filled] = [tile.array for tile in tiles]  # type: ignore[misc]
                parts = [part for entry in filled for part in entry.parts]
                whole = self.whole[slot] = (list(tiles), picked(parts, filled[0].box))
            self.promises.resolve(seen, whole[1])
