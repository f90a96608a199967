"""Plans the scratchpads of a mapping: which copies share one, what it holds, how many units it is.

A scratchpad belongs to the reader copies that need the same part of a value, and holds it once for
all readers that take the same part. Memory units are added until its bytes fit, until every copy
that writes has a port, and until all beats read in a cycle have one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dataflow.nodes import Node
from dataflow.streams.arrays import is_held
from dataflow.streams.edge import Edge, StreamGraph, scatter
from dataflow.streams.node import StreamNode
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES, Banking
from mapping.banks import banking_of, tile_copies
from mapping.partition import Group, operand_wires

Copy = Mapping[str, int]
"""Which copy of a node: for each unrolled digit, its index."""


@dataclass(frozen=True)
class Pad:
    """One scratchpad: the channels it serves (all of one value), for reader copies `copy`.

    streams: the channels, those together that one read unit serves: their readers take the same
    beats in the same order and neither waits for the other. part: which of several partial results
    it holds. modes: how each digit that readers are copied over reaches it (see
    `dataflow.streams.edge.scatter`). writers: the writer copies that fill it.
    """

    name: str
    streams: tuple[tuple[Edge, ...], ...]
    copy: Copy
    part: Copy
    modes: Mapping[str, str]
    writers: tuple[Copy, ...]
    depth: int
    tile_elems: int
    bytes: int
    cells: int
    ports: int
    banking: Banking = "padded"

    @property
    def edge(self) -> Edge:
        """One of its channels: what is written is the same for all."""
        return self.streams[0][0]


def copies_of(node: StreamNode) -> list[dict[str, int]]:
    """All copies of a node, as an index for each unrolled digit."""
    return choices(node.unroll)


def choices(counts: Mapping[str, int]) -> list[dict[str, int]]:
    """All ways to choose an index for each key."""
    ranges = [[(key, i) for i in range(count)] for key, count in counts.items()]
    return [dict(choice) for choice in itertools.product(*ranges)]


def copy_name(base: str, copy: Copy) -> str:
    """The name of a copy: `c@i.o0,j2`."""
    return base + ("@" + ",".join(f"{d}{i}" for d, i in copy.items()) if copy else "")


def emission_of(made: StreamGraph, edge: Edge) -> list[str]:
    """Loops in the order of the beats that pass, those left out of which only the last passes."""
    node = made.by_name[edge.source]
    return [d for d in node.emission if made.digits[d].axis not in edge.last]


def port_value(made: StreamGraph, edge: Edge) -> str:
    """The name under which the reader knows the value: that of the first free node, if any."""
    for free in made.by_name[edge.target].free:
        if free.args and free.args[0] == edge.value and _leads(edge, free):
            return free.name
    return edge.value


def _leads(edge: Edge, free: Node) -> bool:
    if free.op == "earlier":
        return free.axis == edge.earlier
    if free.op == "last":
        return free.axis in edge.last
    return edge.mapped and not edge.earlier and not edge.last


def plan_pads(made: StreamGraph, groups: Mapping[str, Group], machine: Machine) -> list[Pad]:
    """Plan all scratchpads of `made`."""
    shared: dict[tuple, list[Edge]] = {}
    seen: dict[tuple, Edge] = {}
    for edge in made.edges:
        if edge.kind != "scratchpad":
            continue
        owner = groups[edge.target].name if edge.target in groups else edge.target
        # Two members of one unit that read the same value through the same port read it once.
        once = (edge.source, owner, port_value(made, edge), edge.touch, edge.common)
        if once in seen:
            first = seen[once]
            if edge.depth > first.depth:
                edges = shared[_key(made, first, once)]
                edges[edges.index(first)] = seen[once] = replace(first, depth=edge.depth)
            continue
        seen[once] = edge
        shared.setdefault(_key(made, edge, once), []).append(edge)
    reach = _Reach(made, groups)
    return [pad for edges in shared.values() for pad in _pads(made, machine, edges, groups, reach)]


class _Reach:
    """Which units wait for which, feedbacks aside."""

    def __init__(self, made: StreamGraph, groups: Mapping[str, Group]) -> None:
        self.owner = {
            n.name: groups[n.name].name if n.name in groups else n.name for n in made.nodes
        }
        self.after: dict[str, set[str]] = {name: set() for name in self.owner.values()}
        for edge in made.edges:
            if not edge.earlier:
                self.after[self.owner[edge.source]].add(self.owner[edge.target])
        self._found: dict[str, set[str]] = {}

    def waits(self, name: str, other: str) -> bool:
        """Whether either of two nodes' units gets anything, by any way, from the other's."""
        a, b = self.owner[name], self.owner[other]
        return a == b or b in self._from(a) or a in self._from(b)

    def _from(self, name: str) -> set[str]:
        if name not in self._found:
            found: set[str] = set()
            waiting = [name]
            while waiting:
                for after in self.after[waiting.pop()]:
                    if after not in found:
                        found.add(after)
                        waiting.append(after)
            self._found[name] = found
        return self._found[name]


def read_loops(
    made: StreamGraph, groups: Mapping[str, Group], edge: Edge
) -> tuple[tuple[str, int], ...]:
    """Loops of the read unit that feeds `edge`: the reader's, to the last that the value has."""
    name = groups[edge.target].main if edge.target in groups else edge.target
    reader = made.by_name[name]
    own = made.by_name[edge.target].loops
    loops = [(digit, made.trips(reader, digit)) for digit in reader.loops if digit in own]
    turning = [i + 1 for i, (d, trips) in enumerate(loops) if d in edge.touch and trips > 1]
    return tuple(loops[: max([edge.common, *turning])])


def _streams(
    made: StreamGraph, groups: Mapping[str, Group], reach: _Reach, edges: list[Edge]
) -> tuple[tuple[Edge, ...], ...]:
    """Put together the channels that one read unit can serve."""
    streams: list[list[Edge]] = []
    for edge in edges:
        node = made.by_name[edge.target]
        asked = (read_loops(made, groups, edge), operand_wires(node, edge), dict(node.unroll))
        if is_held(node, edge):  # read row by row, at the pace of its array
            streams.append([edge])
            continue
        for stream in streams:
            other = made.by_name[stream[0].target]
            same = (
                read_loops(made, groups, stream[0]),
                operand_wires(other, stream[0]),
                dict(other.unroll),
            )
            if is_held(other, stream[0]):
                continue
            if asked == same and not any(reach.waits(edge.target, e.target) for e in stream):
                stream.append(edge)
                break
        else:
            streams.append([edge])
    return tuple(tuple(stream) for stream in streams)


def _key(made: StreamGraph, edge: Edge, once: tuple) -> tuple:
    """Channels with equal keys keep the same tiles: they can share the memory."""
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    if edge.earlier or target.merge:
        return once
    split = tuple(
        (
            d,
            target.copies(d),
            target.grain(d) * target.pack.get(d, 1),
            scatter(source, target, edge, d),
        )
        for d in edge.touch
        if target.copies(d) > 1
    )
    return edge.source, edge.value, target.domain[: edge.common], edge.last, split, edge.banking


def _pads(
    made: StreamGraph,
    machine: Machine,
    edges: list[Edge],
    groups: Mapping[str, Group],
    reach: _Reach,
) -> Iterable[Pad]:
    edge = edges[0]
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    modes = {
        d: scatter(source, target, edge, d)
        for d in emission_of(made, edge)
        if d in edge.touch and target.copies(d) > 1
    }
    shared = {d: n for d, n in target.unroll.items() if d in edge.touch}
    merged = {d: source.copies(d) for d in target.merge if source.copies(d) > target.copies(d)}
    readers = ", ".join(e.target for e in edges)
    base = f"{edge.source} -> {readers}"
    if edge.earlier or edge.last or edge.mapped:
        base += f": {(edge.earlier and 'earlier ') or ''}{edge.value}"
    depth = max(e.depth for e in edges)
    streams = _streams(made, groups, reach, edges)
    ports = sum(operand_wires(made.by_name[s[0].target], s[0])[0] for s in streams)
    memory, banking = machine.memory, banking_of(edge, machine)
    held = depth * tile_copies(banking, machine)
    paired = [d for d, mode in modes.items() if mode == "pair"]
    elems = _tile_elems(made, edge, modes)
    for copy in choices(shared):
        for part in choices(merged):
            writers = tuple(
                c
                for c in copies_of(source)
                if all(c.get(d, 0) == i for d, i in part.items())
                and all(slots(made, edge, c, copy, modes, d) for d in paired)
            )
            size = elems * DATA_BYTES[machine.data_type] * held
            cells = max(
                1,
                -(-size // memory.capacity_bytes),
                -(-ports // memory.vector_out),
                -(-len(writers) // memory.vector_in),
            )
            name = copy_name(base, {**copy, **part})
            yield Pad(
                name, streams, copy, part, modes, writers, depth, elems, size, cells, ports, banking
            )


def slots(
    made: StreamGraph,
    edge: Edge,
    writer_copy: Copy,
    copy: Copy,
    modes: Mapping[str, str],
    digit: str,
) -> list[int]:
    """Which of the points of `digit` that a writer copy packs go to reader copies `copy`."""
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    pack = source.pack.get(digit, 1)
    if modes.get(digit) != "pair":
        return list(range(pack))
    first = writer_copy.get(digit, 0) * pack
    block, copies = target.pack.get(digit, 1), target.copies(digit)
    return [i for i in range(pack) if (first + i) // block % copies == copy[digit]]


def _tile_elems(made: StreamGraph, edge: Edge, modes: Mapping[str, str]) -> int:
    """Elements of one tile in one scratchpad."""
    target = made.by_name[edge.target]
    outside = set(target.domain[: edge.common])
    elems = 1
    for digit in emission_of(made, edge):
        if digit in outside:
            continue
        extent = made.digits[digit].extent
        if modes.get(digit, "whole") != "whole":
            block = target.grain(digit) * target.pack.get(digit, 1)
            groups = -(-extent // block)
            extent = min(extent, -(-groups // target.copies(digit)) * block)
        elems *= extent
    return elems


def deep_fifo_cells(elems: int, machine: Machine) -> int:
    """Memory units that a deep FIFO or a running state of `elems` elements takes."""
    size = elems * DATA_BYTES[machine.accumulate_type]
    return -(-size // machine.memory.capacity_bytes)


def channel_elems(made: StreamGraph, edge: Edge) -> int:
    """Elements of a FIFO that holds `edge.depth` beats."""
    node = made.by_name[edge.source]
    return edge.depth * (node.lanes if node.vector in node.emission else 1)


def state_elems(made: StreamGraph, node: StreamNode, machine: Machine) -> int:
    """Elements of a running result that is too large for the unit's registers, else 0."""
    outer = state_loop(made, node)
    if not outer:
        return 0
    inside = node.loops[node.loops.index(outer) + 1 :]
    kept = [d for d in inside if d not in node.gone and d not in node.carried]
    packed = math.prod(n for d, n in node.pack.items() if d not in node.gone)
    beats = math.prod(made.trips(node, d) for d in kept) * packed
    room = machine.compute.registers * machine.compute.stages
    return beats * node.lanes if beats > room else 0


def reduced_loops(made: StreamGraph, node: StreamNode) -> list[str]:
    """Loops of `node` that turn and that it reduces or accumulates over."""
    return [
        d for d in node.loops if made.trips(node, d) > 1 and (d in node.gone or d in node.carried)
    ]


def touch_distance(made: StreamGraph, node: StreamNode) -> int:
    """Beats of `node` between two touches of one of its accumulators; 0 where it has none."""
    reduced = reduced_loops(made, node)
    if not reduced:
        return 0
    loops = list(node.loops)
    inside = loops[loops.index(reduced[0]) :]
    return math.prod(made.trips(node, d) for d in inside if d not in reduced)


def state_loop(made: StreamGraph, node: StreamNode) -> str:
    """The outermost loop over which `node` keeps a state that later beats need, or ""."""
    for edge in made.into(node.name):
        if edge.earlier and edge.source == node.name:
            return made.digits.of_axis[edge.earlier][-1]
    reduced = reduced_loops(made, node)
    return reduced[0] if reduced and touch_distance(made, node) > 1 else ""
