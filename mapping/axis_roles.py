"""What each axis of a graph is for on a machine: lanes, loops over tiles, or inside a tile."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from dataflow.nodes import Graph, Node
from dataflow.streams.node import source_of
from dataflow.streams.split import COMPUTED
from hwspecs import Machine


@dataclass
class Roles:
    """outer: axes that no node reduces and most have, those that more nodes have first. recurrent:
    axes that values are carried along. inner: the rest. lane: the axis in most nodes' lanes;
    vectors: for each node, the axis in its lanes and how many of them.
    """

    outer: list[str]
    recurrent: list[str]
    inner: list[str]
    lane: str
    vectors: dict[str, tuple[str, int]] = field(default_factory=dict)


def axis_roles(graph: Graph, machine: Machine) -> list[Roles]:
    """Sort the axes of `graph`; choose the lanes of each node that take the fewest stages.

    The first is the best. The others put another axis into the lanes wherever it is there, which
    costs more stages and may save scratchpads.
    """
    finder = _Finder(graph, machine)
    best = finder.roles()
    others = [axis for axis in finder.movable() if axis != best.lane]
    return [best, *(finder.roles(axis) for axis in others)]


def iteration_axes(graph: Graph, node: Node) -> list[str]:
    """All axes a node runs over: its own, then those that it reduces."""
    inner = [axis for arg in node.args for axis in graph.node(arg).axes]
    return list(dict.fromkeys([*node.axes, *inner]))


class _Finder:
    def __init__(self, graph: Graph, machine: Machine) -> None:
        self.graph, self.machine = graph, machine
        self.lanes = machine.compute.lanes
        self.computed = [node for node in graph.nodes if node.op in COMPUTED]
        self.recurrent = list(dict.fromkeys(n.axis for n in graph.nodes if n.op == "earlier"))

    def movable(self) -> list[str]:
        """Axes that lanes may run along, those that take the fewest stages first."""
        used = self._used()
        axes = [axis for axis in used if axis not in self.recurrent and self.graph.extent(axis) > 1]
        return sorted(axes, key=lambda axis: (self._lane_cost(axis), -used.index(axis)))

    def _used(self) -> list[str]:
        return [
            axis
            for axis in self.graph.axes
            if any(axis in iteration_axes(self.graph, n) for n in self.computed)
        ]

    def roles(self, forced: str = "") -> Roles:
        """Sort axes by who has them, then choose lanes: the cheapest, or `forced` where it is."""
        graph = self.graph
        recurrent = self.recurrent
        reduced = {
            a for n in self.computed for a in iteration_axes(self.graph, n) if a not in n.axes
        }
        mapped = set()
        for node in self.computed:
            for arg in node.args:
                source = source_of(graph, arg)
                if not source.off_chip and any(free.op == "read" for free in source.via):
                    mapped |= set(source.base.axes)
        used = self._used()
        outer = [
            axis
            for axis in used
            if axis not in recurrent
            and axis not in reduced
            and axis not in mapped - set(recurrent)
            and 2 * sum(axis in iteration_axes(self.graph, n) for n in self.computed)
            >= len(self.computed)
        ]
        outer = [a for a in outer if a not in mapped or self._everywhere(a)]
        # Axes that fewer nodes have go inside, so that what lacks them is made once and kept.
        outer.sort(
            key=lambda axis: -sum(axis in iteration_axes(self.graph, n) for n in self.computed)
        )
        inner = [axis for axis in used if axis not in outer and axis not in recurrent]
        roles = Roles(outer, recurrent, inner, "")
        roles.lane = forced or next(iter(self.movable()), "")
        for node in self.computed:
            roles.vectors[node.name] = self._vector(node, roles, forced)
        return roles

    def _everywhere(self, axis: str) -> bool:
        return all(axis in iteration_axes(self.graph, node) for node in self.computed)

    def _width(self, node: Node, axis: str) -> int:
        """Lanes that may run along `axis`: packed multiplies only where their sum stays inside."""
        packing = self.machine.compute.packing if node.op == "einsum" else 1
        lanes = self.lanes * (packing if axis not in node.axes else 1)
        return min(lanes, self.graph.extent(axis))

    def _cost(self, node: Node, axis: str) -> int:
        """Stages taken by a node over its whole space with lanes along `axis`."""
        compute = self.machine.compute
        lost = [a for a in iteration_axes(self.graph, node) if a not in node.axes]
        stages = compute.operation(node.fn).stages if node.op == "map" else 1
        if node.op == "einsum":
            stages = max(1, len(node.args) - 1) + bool(lost)
        if axis in lost:
            stages += compute.reduction_stages
        beats = math.prod(
            -(-self.graph.extent(a) // (self._width(node, a) if a == axis else 1))
            for a in iteration_axes(self.graph, node)
        )
        return stages * beats

    def _lane_cost(self, axis: str) -> int:
        total = 0
        for node in self.computed:
            axes = [a for a in iteration_axes(self.graph, node) if a not in self.recurrent]
            if axis in axes:
                total += self._cost(node, axis)
            elif axes:
                total += min(self._cost(node, a) for a in axes)
        return total

    def _vector(self, node: Node, roles: Roles, forced: str) -> tuple[str, int]:
        axes = [a for a in iteration_axes(self.graph, node) if a not in roles.recurrent]
        axes = [a for a in axes if self.graph.extent(a) > 1]
        if not axes:
            return "", 1
        producers = [
            roles.vectors.get(source_of(self.graph, arg).base.name, ("", 1))[0] for arg in node.args
        ]

        if forced in axes:
            return forced, self._width(node, forced)

        def rank(axis: str) -> tuple:
            reduced = axis not in node.axes
            place = -list(node.axes).index(axis) if not reduced else 1
            return self._cost(node, axis), axis != roles.lane, axis not in producers, place

        best = min(axes, key=rank)
        return best, self._width(node, best)
