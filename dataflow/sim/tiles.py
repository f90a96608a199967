"""Tiles as promises: a handle travels along channels before its array is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

Array = NDArray[Any]


class Tile:
    """A tile that will hold an array; `waiting` is called once it does."""

    __slots__ = ("array", "waiting")

    def __init__(self, array: Array | None = None):
        self.array = array
        self.waiting: list[Callable[[], None]] = []


class Promises:
    """Resolves tiles and runs what waited for them, one after the other, without recursion."""

    def __init__(self) -> None:
        self._ready: list[Callable[[], None]] = []

    def resolve(self, tile: Tile, array: Array) -> None:
        """Give `tile` its array; those who wait run at the next `drain`."""
        tile.array = array
        if tile.waiting:
            self._ready.extend(tile.waiting)
            tile.waiting = []

    def follow(self, tile: Tile, source: Tile) -> None:
        """Let `tile` become what `source` is or will be."""
        if source.array is not None:
            self.resolve(tile, source.array)
        else:
            source.waiting.append(lambda: self.follow(tile, source))

    def drain(self) -> None:
        """Run all that can run."""
        while self._ready:
            self._ready.pop()()
