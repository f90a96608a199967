"""Channels of a StreamGraph, and the StreamGraph itself, with the text it prints as."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from dataflow.nodes import Graph
from dataflow.schedule import Schedule
from dataflow.streams.digits import Digits
from dataflow.streams.node import StreamNode
from hwspecs.machine import Banking


@dataclass(frozen=True)
class Edge:
    """A channel between stream nodes.

    value: the graph node whose tiles pass. earlier, last: axes along which the value comes from
    the previous or the last point. touch: loops of the target that choose among its elements.
    mapped: whether a read does; moved: the source's digits of which it takes other points.
    common: how many leading domain loops of the target stand still while a tile is used. depth:
    beats held (FIFO, 0 for an ordinary one) or tiles (scratchpad); why: where that comes from.
    banking: how tiles lie in the banks of the scratchpad, where the schedule says.
    """

    source: str
    target: str
    value: str
    kind: str
    common: int
    touch: tuple[str, ...]
    earlier: str = ""
    last: tuple[str, ...] = ()
    mapped: bool = False
    moved: tuple[str, ...] = ()
    depth: int = 0
    why: str = ""
    banking: Banking | None = None

    @property
    def name(self) -> str:
        """The name schedules know it by."""
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True)
class StreamGraph:
    """Nodes, channels, and how many groups of each digit each node counts.

    groups[node, digit] is padded so that all nodes joined by a channel agree; a node's loop over
    the digit turns groups / spread times.
    """

    graph: Graph
    schedule: Schedule
    digits: Digits
    nodes: tuple[StreamNode, ...]
    edges: tuple[Edge, ...]
    groups: Mapping[tuple[str, str], int]
    by_name: Mapping[str, StreamNode] = field(default_factory=dict)

    def trips(self, node: StreamNode, digit: str) -> int:
        """How often one copy of `node` turns its loop over `digit`."""
        return self.groups[node.name, digit] // node.spread(digit)

    def into(self, name: str) -> tuple[Edge, ...]:
        """The channels that `name` reads."""
        return self._ends[0].get(name, ())

    def out_of(self, name: str) -> tuple[Edge, ...]:
        """The channels that `name` writes."""
        return self._ends[1].get(name, ())

    @cached_property
    def _ends(self) -> tuple[dict[str, tuple[Edge, ...]], dict[str, tuple[Edge, ...]]]:
        """Channels by reader, and by writer, in order of declaration."""
        into: dict[str, tuple[Edge, ...]] = {}
        out_of: dict[str, tuple[Edge, ...]] = {}
        for edge in self.edges:
            into[edge.target] = (*into.get(edge.target, ()), edge)
            out_of[edge.source] = (*out_of.get(edge.source, ()), edge)
        return into, out_of

    def reuse(self, edge: Edge) -> int:
        """How often the target reads each element of a tile."""
        target = self.by_name[edge.target]
        inside = (*target.domain[edge.common :], *target.walk)
        return math.prod(self.trips(target, digit) for digit in inside if digit not in edge.touch)

    def initial_tiles(self, edge: Edge) -> int:
        """Tiles that a feedback by scratchpad starts with: those of one point of its axis."""
        outside = self.by_name[edge.target].domain[: edge.common]
        places = [i for i, d in enumerate(outside) if self.digits[d].axis == edge.earlier]
        if not places:
            return 0
        target = self.by_name[edge.target]
        return math.prod(self.trips(target, d) for d in outside[places[-1] + 1 :])

    def tile_elems(self, edge: Edge) -> int:
        """Elements of one tile of a scratchpad channel, all copies together."""
        source, target = self.by_name[edge.source], self.by_name[edge.target]
        outside = set(target.domain[: edge.common])
        return math.prod(
            self.digits[d].extent
            for d in source.emission
            if d not in outside and self.digits[d].axis not in edge.last
        )

    def __str__(self) -> str:
        lines = [f"streams of {self.graph.name}"]
        for node in self.nodes:
            lines.append(f"  {node.name}: {_node_text(self, node)}")
        for edge in self.edges:
            lines.append(f"  {edge.name}: {_edge_text(self, edge)}")
        return "\n".join(lines)


def scatter(source: StreamNode, target: StreamNode, edge: Edge, digit: str) -> str:
    """How tiles of `source` reach scratchpads of the copies of `target` over `digit`.

    "whole": one copy, or every copy gets everything, as where it reads points of others; "deal":
    the writer deals its beats out in turn; "pair": each writer copy belongs to one reader copy.
    """
    copies = target.copies(digit)
    if copies == 1 or digit in edge.moved:
        return "whole"
    block = target.grain(digit) * target.pack.get(digit, 1)
    writers = ends(source, digit)
    if writers == 1 and block % source.grain(digit) == 0:
        return "deal"
    if (
        source.grain(digit) == target.grain(digit)
        and writers % (copies * block // target.grain(digit)) == 0
    ):
        return "pair"
    return "whole"


def ends(node: StreamNode, digit: str) -> int:
    return node.copies(digit) * node.pack.get(digit, 1)


def _node_text(made: StreamGraph, node: StreamNode) -> str:
    parts = []
    for title, names in (("for", node.domain), ("walk", node.walk)):
        loops = " ".join(f"{d}={made.trips(node, d)}" for d in names)
        if loops:
            parts.append(f"{title} {loops}")
    if node.carried:
        parts.append(f"carries {' '.join(node.carried)}")
    if node.gone:
        parts.append(f"reduces {' '.join(node.gone)}")
    if node.vector:
        parts.append(f"lanes {node.vector} x {node.lanes}")
    if node.array:
        parts.append(f"on an array that holds its {node.array}")
    for title in ("pack", "unroll", "merge"):
        counts = getattr(node, title)
        if counts:
            parts.append(f"{title} " + " ".join(f"{d}={n}" for d, n in counts.items()))
    return "; ".join(parts) or "once"


def _edge_text(made: StreamGraph, edge: Edge) -> str:
    place = edge.kind
    if edge.kind == "scratchpad":
        place += f" of {edge.depth} x {made.tile_elems(edge)} elements"
        place += f", {edge.banking}" if edge.banking else ""
    elif edge.depth:
        place += f" of {edge.depth} beats"
    text = f"{edge.value} in a {place}, read {made.reuse(edge)}x"
    if edge.earlier:
        text += f", from the point of {edge.earlier} before"
    if edge.last:
        text += f", last of {' '.join(edge.last)}"
    return text + (f" ({edge.why})" if edge.why else "")
