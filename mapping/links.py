"""Which copies of a writer and a reader share FIFOs, and whose turn it is.

The points of a digit that two nodes share are dealt out in turn to the copies of each, and within
a copy to the points packed in one firing: group i belongs to end `i mod (copies x pack)`. So an end
of the writer meets every end of the reader that can hold the same i; where it meets several it
takes them in turn.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dataflow.streams.edge import Edge, StreamGraph
from dataflow.streams.node import StreamNode
from mapping.pads import port_value
from mapping.partition import Group


@dataclass(frozen=True)
class End:
    """A copy of a node (`copy`) and, where it packs points, which of them (`slot`)."""

    copy: tuple[tuple[str, int], ...]
    slot: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, node: StreamNode, virtual: Mapping[str, int]) -> End:
        """The end that holds the given remainder of each digit."""
        copy, slot = [], []
        for digit in node.unroll:
            pack = node.pack.get(digit, 1)
            copy.append((digit, virtual.get(digit, 0) // pack))
        for digit, pack in node.pack.items():
            if digit in virtual:
                slot.append((digit, virtual[digit] % pack))
        return cls(tuple(copy), tuple(slot))

    @property
    def copy_map(self) -> dict[str, int]:
        """The copy, as an index for each unrolled digit."""
        return dict(self.copy)

    def __str__(self) -> str:
        text = "@" + ",".join(f"{d}{i}" for d, i in self.copy) if self.copy else ""
        return text + ("." + ",".join(f"{d}{i}" for d, i in self.slot) if self.slot else "")


@dataclass(frozen=True)
class Link:
    """FIFOs between ends, and for each digit how many the writer and the reader take in turn."""

    pairs: tuple[tuple[End, End], ...]
    source_select: Mapping[str, int]
    target_select: Mapping[str, int]

    def from_source(self) -> Iterable[tuple[End, tuple[End, ...]]]:
        """Each writer end with the reader ends that it serves, in turn."""
        return _grouped(self.pairs, 0)

    def from_target(self) -> Iterable[tuple[End, tuple[End, ...]]]:
        """Each reader end with the writer ends that it takes from, in turn."""
        return _grouped(self.pairs, 1)


def links(edge: Edge, source: StreamNode, target: StreamNode) -> list[Link]:
    """The FIFOs of a channel, one Link for each set of ends that deal beats out among themselves.

    Readers copied over a digit that the value lacks all get the same beats, each through a Link of
    its own, and each partial result that the reader adds up comes through one too.
    """
    touch = [d for d in edge.touch if d in source.loops and d not in target.merge]
    merged = [d for d in source.unroll if d not in touch]
    same = [d for d in target.unroll if d not in touch and d not in merged]
    result = []
    for part in _choices({d: source.copies(d) for d in merged}):
        for reader in _choices({d: target.copies(d) for d in same}):
            taker = {d: i % target.copies(d) for d, i in part.items() if d in target.unroll}
            result.append(_link(source, target, touch, part, {**reader, **taker}))
    return result


def fifo_count(edge: Edge, source: StreamNode, target: StreamNode) -> int:
    """How many FIFOs `links` makes for a channel."""
    return sum(len(link.pairs) for link in links(edge, source, target))


def fifos(made: StreamGraph, groups: Mapping[str, Group]) -> list[Edge]:
    """The channels between units that are FIFOs.

    Members of one unit that take the same value through the same port share one, the deepest.
    """
    found: dict[tuple, Edge] = {}
    for edge in made.edges:
        ends = [groups[n].name if n in groups else n for n in (edge.source, edge.target)]
        if edge.kind != "fifo" or ends[0] == ends[1]:
            continue
        key = (edge.source, ends[1], port_value(made, edge))
        first = found.setdefault(key, edge)
        if edge.depth > first.depth:
            found[key] = replace(first, depth=edge.depth, why=edge.why)
    return list(found.values())


def _choices(counts: Mapping[str, int]) -> list[dict[str, int]]:
    ranges = [[(digit, i) for i in range(count)] for digit, count in counts.items()]
    return [dict(choice) for choice in itertools.product(*ranges)]


def _link(
    source: StreamNode,
    target: StreamNode,
    touch: list[str],
    part: Mapping[str, int],
    reader: Mapping[str, int],
) -> Link:
    writers = {d: source.copies(d) * source.pack.get(d, 1) for d in touch}
    readers = {d: target.copies(d) * target.pack.get(d, 1) for d in touch}
    pairs = []
    # In order of i, so that both ends meet their partners in the order in which beats come.
    for i in _choices({d: max(writers[d], readers[d]) for d in touch}):
        a = {d: i[d] % writers[d] for d in touch} | _virtual(source, part)
        b = {d: i[d] % readers[d] for d in touch} | _virtual(target, reader)
        pairs.append((End.of(source, a), End.of(target, b)))
    more_readers = {d: readers[d] // writers[d] for d in touch if readers[d] > writers[d]}
    more_writers = {d: writers[d] // readers[d] for d in touch if writers[d] > readers[d]}
    return Link(tuple(pairs), more_readers, more_writers)


def _virtual(node: StreamNode, copy: Mapping[str, int]) -> dict[str, int]:
    """A copy as remainders: its first packed point."""
    return {d: i * node.pack.get(d, 1) for d, i in copy.items()}


def _grouped(
    pairs: tuple[tuple[End, End], ...], side: int
) -> Iterable[tuple[End, tuple[End, ...]]]:
    found: dict[End, list[End]] = {}
    for pair in pairs:
        found.setdefault(pair[side], []).append(pair[1 - side])
    return [(end, tuple(ends)) for end, ends in found.items()]
