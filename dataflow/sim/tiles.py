"""Tiles as promises: a handle travels along channels before its array is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Tile:
    """A tile that will hold an array (or a scratchpad's Filled); `waiting` is called then."""

    __slots__ = ("array", "waiting")

    def __init__(self, array: Any = None):
        self.array = array
        self.waiting: list[Callable[[], None]] = []


class Promises:
    """Resolves tiles and runs what waited for them, one after the other, without recursion."""

    def __init__(self) -> None:
        self._ready: list[Callable[[], None]] = []

    def resolve(self, tile: Tile, array: Any) -> None:
        """Give `tile` its array; those who wait run at the next `drain`."""
        tile.array = array
        if tile.waiting:
            self._ready.extend(tile.waiting)
            tile.waiting = []

    def drain(self) -> None:
        """Run all that can run."""
        while self._ready:
            self._ready.pop()()
