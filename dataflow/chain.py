"""The chain of causes behind the end of a run: why its last event came no sooner.

A chain is a row of links that covers the run without a gap or an overlap, from cycle 0 to its
end. A link says what the cycles from `since` to `until` were spent on, and by which resource:

| kind | resource | cycles |
| --- | --- | --- |
| interval | a unit | between its firings, nothing else being late |
| bank | a scratchpad port | the rest of its interval: lanes that take turns at a bank |
| pipeline | a unit | from a firing to its result |
| wires | a channel | on its way, hop by hop |
| network | a channel | waiting for shared links |
| room | a channel | from a pop to the writer that waited for the free slot |
| generator | a load or store | requests, one a cycle, and their way to memory |
| burst | a memory channel | data on its pins |
| row, refresh | a memory channel | rows being closed and opened; refreshed, and opened again |
| group, turn | a memory channel | the spacing of a bank group; the bus changing direction |
| access | a memory channel | from a burst's turn to its data or acknowledgement |
| end | any | the cycle of the last event itself |
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MEMORY = "off-chip memory"
MEMORY_CHANNEL = "memory channel"
ON_CHANNELS = ("wires", "network", "room")


@dataclass(frozen=True)
class Link:
    """What the cycles from `since` up to `until` were spent on."""

    since: int
    until: int
    kind: str
    resource: str

    @property
    def cycles(self) -> int:
        """Its length."""
        return self.until - self.since


@dataclass(frozen=True)
class Part:
    """Cycles of a chain spent in one way by one resource, its copies taken together."""

    resource: str
    kind: str
    cycles: int
    links: int


@dataclass(frozen=True, eq=False)
class Chain:
    """Links in order of time, kept as arrays: a run of a million firings may have as many.

    since: the first cycle of each link; places: what each was spent on, an index of `names`, which
    holds (kind, resource). The last link ends at `cycles`, the run's length.
    """

    names: tuple[tuple[str, str], ...]
    since: NDArray[np.int64]
    places: NDArray[np.int32]
    cycles: int

    def __len__(self) -> int:
        return len(self.since)

    def __iter__(self) -> Iterator[Link]:
        return iter(self.last(len(self)))

    def last(self, count: int) -> list[Link]:
        """Return the last `count` links, in order of time."""
        first = max(0, len(self) - count)
        starts = [*self.since[first:].tolist(), self.cycles]
        places = self.places[first:].tolist()
        return [
            Link(starts[at], starts[at + 1], *self.names[place]) for at, place in enumerate(places)
        ]

    def parts(self) -> list[Part]:
        """Return the cycles by group of resources and kind, the most first; they sum to the run."""
        spent = np.diff(np.append(self.since, self.cycles))
        by_name = np.bincount(self.places, weights=spent, minlength=len(self.names))
        links = np.bincount(self.places, minlength=len(self.names))
        sums: dict[tuple[str, str], list[int]] = {}
        for place, (kind, resource) in enumerate(self.names):
            part = sums.setdefault((group(kind, resource), kind), [0, 0])
            part[0] += int(by_name[place])
            part[1] += int(links[place])
        found = [Part(*key, *counts) for key, counts in sums.items()]
        return sorted(found, key=lambda part: (-part.cycles, part.resource, part.kind))

    def critical(self) -> tuple[str, list[Part]]:
        """Return the group of resources with the most cycles, and its parts; "" of an empty run."""
        groups: dict[str, list[Part]] = {}
        for part in self.parts():
            groups.setdefault(part.resource, []).append(part)
        if not groups:
            return "", []
        name = min(groups, key=lambda name: (-sum(p.cycles for p in groups[name]), name))
        return name, groups[name]


def group(kind: str, resource: str) -> str:
    """Return what a resource is summed under: copies of one unit, all channels of memory.

    >>> group("interval", "c.part@i0,k1"), group("wires", "c.part@i0 -> c@j1: s")
    ('c.part', 'c.part -> c')
    >>> group("burst", "memory channel 3")
    'off-chip memory'
    """
    if resource.startswith(MEMORY_CHANNEL):
        return MEMORY
    name = resource.partition(": ")[0] if kind in ON_CHANNELS else resource
    return re.sub(r"@[^ ]*", "", name)
