"""Tilings to try: schedules that say which digits are time, how large tiles are, and the lanes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping

from dataflow.graph import recurrences
from dataflow.nodes import Graph, Node
from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule
from dataflow.streams import StreamGraph
from dataflow.streams.split import COMPUTED
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES
from mapping.axis_roles import Roles, iteration_axes

TILES = (16, 32, 48, 64, 96, 128, 256)
"""Extents of tiles that are tried, beside one group of lanes and the whole axis."""
LONG = 512
"""An axis longer than this is never one tile where it can be tiled."""
BLOCKS = (32, 64, 96, 128)
"""Most points of a recurrence's axis whose free products are formed ahead, in one block."""
AHEAD = 256
"""Tile of the axis that such a product sums over."""


def tilings(graph: Graph, machine: Machine, roles: Roles) -> Iterator[Schedule]:
    """Schedules without copies, one for each choice of tile extents."""
    return _Tilings(graph, machine, roles).all()


class _Tilings:
    def __init__(self, graph: Graph, machine: Machine, roles: Roles) -> None:
        self.graph, self.machine, self.roles = graph, machine, roles
        self.lanes = machine.compute.lanes
        systolic = machine.compute.systolic
        self.sides = {systolic.rows, systolic.columns} if systolic else set()
        self.computed = [node for node in graph.nodes if node.op in COMPUTED]

    def all(self) -> Iterator[Schedule]:
        """Every choice."""
        options = [self._tile_options(axis) for axis in self.roles.outer]
        inner = self._inner_options()
        for choice in itertools.product(*options, *inner.values()):
            outer = dict(zip(self.roles.outer, choice[: len(options)], strict=True))
            tiled = dict(zip(inner, choice[len(options) :], strict=True))
            yield self._base(outer, {a: t for a, t in tiled.items() if t})
        ahead = self._ahead()
        blocks = self._blocks() if ahead else []
        for choice in itertools.product(blocks, *options):
            yield self._hoisted(
                choice[0], dict(zip(self.roles.outer, choice[1:], strict=True)), ahead
            )

    def _tile_options(self, axis: str) -> list[int]:
        """Tile extents to try; 1 makes the axis a time digit of its own."""
        extent = self.graph.extent(axis)
        if extent == 1:
            return [1]
        if self.sides:  # folds are of an array's size, and the longer they stream the better
            return sorted({min(side, extent) for side in self.sides} | {min(LONG, extent), extent})
        wide = any(vector == axis for vector, _ in self.roles.vectors.values())
        least = min(self.lanes, extent) if wide else 1
        sizes = {least, extent}
        sizes |= {n for n in TILES if least < n < extent}
        if extent > LONG:
            sizes.discard(extent)
            sizes |= {LONG}
        return sorted(sizes)

    def _inner_options(self) -> dict[str, list[int]]:
        """Whole where it may fit (0), smaller tiles of long axes that are reduced."""
        options = {}
        for axis in self.roles.inner:
            extent = self.graph.extent(axis)
            reduced_only = self._can_tile(axis)
            if reduced_only and any(extent > side for side in self.sides):
                options[axis] = [0, *sorted(self.sides)]
            elif reduced_only and extent > 1024:
                options[axis] = [512] if extent > 16384 else [0, 512]
        return options

    def _can_tile(self, axis: str) -> bool:
        """Whether parts over tiles of the axis can be added up: a sum that no other node needs."""
        for node in self.computed:
            if axis not in iteration_axes(self.graph, node):
                continue
            if axis in node.axes and not self._only_summed(node, axis):
                return False
        return True

    def _only_summed(self, node: Node, axis: str) -> bool:
        readers = self.graph.consumers(node.name)
        outputs = any(output.node == node.name for output in self.graph.outputs)
        return not outputs and all(
            axis in iteration_axes(self.graph, r) for r in readers if r.op in COMPUTED
        )

    def _base(self, outer: Mapping[str, int], tiled: Mapping[str, int]) -> Schedule:
        time: list[str] = []
        tile: dict[str, int] = {}
        for axis, size in outer.items():
            if size == 1:
                time.append(axis)
            elif size < self.graph.extent(axis):
                tile[axis] = size
                time.append(f"{axis}.o")
        time += self.roles.recurrent
        for axis, size in tiled.items():
            tile[axis] = size
            time.append(f"{axis}.o")
        nodes = {}
        for node in self.computed:
            vector, width = self.roles.vectors[node.name]
            if not vector or vector in time:
                continue
            width = min(width, tile.get(vector, width))
            # Beats of lanes turn outermost, so that packed points are neighbours in time.
            used = [a for a in iteration_axes(self.graph, node) if a in node.axes and a not in time]
            lost = [
                a for a in iteration_axes(self.graph, node) if a not in node.axes and a not in time
            ]
            order = sorted(used, key=lambda axis: (axis != vector, self._place(axis)))
            order += sorted(lost, key=self._place)
            plan = NodeSchedule(walk=tuple(order), vector={vector: width})
            lost = [a for a in iteration_axes(self.graph, node) if a not in node.axes]
            parted = any(a in time or a in tiled for a in lost)
            if parted and (node.op == "einsum" or any(a not in time for a in lost)):
                nodes[f"{node.name}.part"] = plan
                kept = [a for a in node.axes if a not in time and self.graph.extent(a) > 1]
                own = vector if vector in kept else (kept[-1] if kept else "")
                if own:
                    size = tile.get(own, self.graph.extent(own))
                    width = min(self.lanes, size)
                    order = sorted(used, key=lambda axis: (axis != own, self._place(axis)))
                    nodes[node.name] = NodeSchedule(walk=tuple(order), vector={own: width})
            else:
                nodes[node.name] = plan
        used = [a for a in self.graph.axes if a in (*outer, *self.roles.inner) and a not in time]
        return Schedule(tile=tile, time=tuple(time), walk=tuple(used), nodes=nodes)

    def _ahead(self) -> list[Node]:
        """Products along a recurrence's axis that nothing carried enters, where it pays to form
        them ahead: the inputs that all its points share do not fit on chip, those that the loops
        outside go along counted at one of their points."""
        if len(self.roles.recurrent) != 1 or self.sides:
            return []
        (axis,) = self.roles.recurrent
        held = sum(
            math.prod(self.graph.extent(a) for a in node.axes if a not in self.roles.outer)
            for node in self.graph.nodes
            if node.op == "input" and self._is_shared(node, axis)
        )
        machine = self.machine
        room = machine.grid.memory_units * machine.memory.capacity_bytes
        if held * DATA_BYTES[machine.data_type] <= room:
            return []
        carried = {node.name for group in recurrences(self.graph) for node in group}
        return [
            node
            for node in self.computed
            if node.op == "einsum"
            and axis in node.axes
            and node.name not in carried
            and all(free.op == "read" for _, via in self._readers(node) for free in via)
        ]

    def _readers(self, node: Node, via: tuple[Node, ...] = ()) -> Iterator[tuple[Node, list[Node]]]:
        """Nodes that compute with a value, each with what only views it on the way there."""
        for reader in self.graph.consumers((via[-1] if via else node).name):
            if reader.op in COMPUTED:
                yield reader, list(via)
            else:
                yield from self._readers(node, (*via, reader))

    def _is_shared(self, node: Node, axis: str) -> bool:
        """Whether a reader takes the same of a value at every point of the axis, views included:
        keys in blocks have a name for all of their axis, and are another block at each point."""
        return any(axis not in (via[-1] if via else node).axes for _, via in self._readers(node))

    def _blocks(self) -> list[int]:
        """Points of a block: the most that divide the axis, where these are few about the same in
        each block. They must divide it where its last point is wanted, which none may follow."""
        (axis,) = self.roles.recurrent
        extent = self.graph.extent(axis)
        exact = any(node.op == "last" and node.axis == axis for node in self.graph.nodes)
        found = []
        for most in BLOCKS:
            block = max(n for n in range(1, most + 1) if extent % n == 0)
            if 2 * block <= most and not exact:
                block = -(-extent // -(-extent // most))
            found.append(block)
        return [n for n in dict.fromkeys(found) if n > 1]

    def _hoisted(self, block: int, outer: Mapping[str, int], ahead: list[Node]) -> Schedule:
        """Free products formed a block of points ahead, so that their weights come once a block;
        two blocks of results wait on chip, one of them being read."""
        (axis,) = self.roles.recurrent
        summed = {
            a
            for node in ahead
            for a in iteration_axes(self.graph, node)
            if a not in node.axes and self._can_tile(a) and self.graph.extent(a) > AHEAD
        }
        made = self._base(outer, dict.fromkeys(sorted(summed, key=self._place), AHEAD))
        place = made.time.index(axis)
        sums = [f"{a}.o" for a in made.tile if a in summed]
        rest = [d for d in made.time if d not in (axis, *sums)]
        time = (*rest[:place], f"{axis}.o", *sums, axis, *rest[place:])
        channels = {
            f"{node.name} -> {reader.name}": ChannelSchedule(locality="scratchpad", depth=2 * block)
            for node in ahead
            for reader, _ in self._readers(node)
        }
        tile = {**made.tile, axis: block}
        return made.model_copy(update={"time": time, "tile": tile, "channels": channels})

    def _place(self, axis: str) -> int:
        return list(self.graph.axes).index(axis)


def reloaded(made: StreamGraph, machine: Machine) -> list[tuple[str, str, int]]:
    """Loads with a loop outside their tile that they do not follow: channel, place outside of
    all such loops, bytes of the tile there; most often loaded first."""
    found = []
    for edge in made.edges:
        load, target = made.by_name[edge.source], made.by_name[edge.target]
        if load.kind != "load":
            continue
        outside = target.domain[: edge.common]
        own = {d for axis in load.axes for d in made.digits.of_axis[axis]}
        idle = [d for d in outside if d not in own and made.trips(target, d) > 1]
        if not idle or load.argument is None:
            continue
        place = outside.index(idle[0])
        inside = [d for d in outside[place:] if d in own]
        elems = made.tile_elems(edge) * math.prod(made.trips(target, d) for d in inside)
        buffers = 1 if math.prod(made.trips(target, d) for d in outside[:place]) == 1 else 2
        size = elems * buffers * DATA_BYTES[machine.data_type]
        times = math.prod(made.trips(target, d) for d in idle)
        at = outside[place - 1] if place else ""
        found.append((-times, f"{load.argument.name} -> {target.name}", at, size))
    return [(name, at, size) for _, name, at, size in sorted(found)]
