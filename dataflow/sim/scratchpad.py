"""Scratchpads: a few slots that hold the tiles of one value.

Modelled: which tile lies in which slot at which cycle. The writer puts tile n into slot
n mod depth at its first beat; a reader takes what lies in the slot of its own tile count at the
last beat of its use. What keeps a reader behind its writer and a writer behind its readers are
only the tile tokens and credits of the Program; where one is missing, the reader sees another
tile. Left out: single beats of a tile, and banks (a conflict is its unit's `ii_cycles`).

    seen at t = the last tile put into the slot before t

Units work ahead of each other, so a sample waits until the writer is known to have reached t.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from dataflow.sim.arithmetic import HELD
from dataflow.sim.tiles import Promises, Tile


class Slots:
    """The slots of one scratchpad over time, for one writer and `readers`."""

    def __init__(self, depth: int, readers: int, promises: Promises):
        self.history: list[deque[tuple[int, Tile]]] = [deque() for _ in range(depth)]
        self.promises = promises
        self.written = 0
        self.known_before = 0
        self.samples: list[tuple[int, int, Tile]] = []
        self.read_at = [0] * readers

    def write(self, tile: Tile, cycle: int) -> None:
        """Put `tile` into the next slot at `cycle`."""
        self.history[self.written % len(self.history)].append((cycle, tile))
        self.written += 1

    def sample(self, reader: int, count: int, cycle: int) -> Tile:
        """Return a promise of what `reader` sees at `cycle` in the slot of its tile `count`."""
        seen = Tile()
        self.read_at[reader] = cycle
        self.samples.append((cycle, count % len(self.history), seen))
        self._decide()
        return seen

    def reach(self, cycle: float) -> None:
        """Note that all writes before `cycle` are made; decide the samples up to it."""
        self.known_before = max(self.known_before, cycle)
        if self.samples:
            self._decide()

    def finish(self, reader: int) -> None:
        """Note that `reader` will look no more."""
        self.read_at[reader] = 1 << 62

    def _decide(self) -> None:
        undecided = []
        for cycle, slot, seen in self.samples:
            if cycle > self.known_before:
                undecided.append((cycle, slot, seen))
                continue
            tiles = [tile for put, tile in self.history[slot] if put < cycle]
            if tiles:
                self.promises.follow(seen, tiles[-1])
            else:
                self.promises.resolve(seen, np.full((), np.nan, dtype=HELD))
        self.samples = undecided
        # what every reader is past, and a later tile covers, cannot be seen again
        past = min([min(self.read_at), *(cycle for cycle, _, _ in undecided)])
        for slot in self.history:
            while len(slot) > 1 and slot[1][0] < past:
                slot.popleft()
