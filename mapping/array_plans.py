"""Default plans for systolic arrays: which einsums of a tiling get one, and along which axes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dataflow.nodes import Graph, Node
from dataflow.schedule import NodeSchedule, Schedule
from hwspecs import Machine
from hwspecs.machine import Dataflow, Systolic
from mapping.axis_roles import iteration_axes

HOLDS: tuple[Dataflow, ...] = ("weight", "input", "output")


def on_arrays(
    graph: Graph, machine: Machine, schedule: Schedule, holds: Dataflow
) -> Schedule | None:
    """`schedule` with the einsums of most work on arrays, as many as there are.

    holds: what the arrays hold, one of HOLDS. None where no einsum of such tiles fits one.
    """
    systolic = machine.compute.systolic
    left, nodes = machine.arrays, dict(schedule.nodes)
    for node in _by_work(graph) if systolic else ():
        assert systolic is not None
        plans = _plans(graph, schedule, systolic, node, holds) if left else None
        if plans:
            nodes.update(plans)
            left -= 1
    return schedule.model_copy(update={"nodes": nodes}) if left < machine.arrays else None


def _by_work(graph: Graph) -> list[Node]:
    """Products of two arguments, those with the most multiplications first."""
    products = [node for node in graph.nodes if node.op == "einsum" and len(node.args) == 2]
    return sorted(products, key=lambda n: -math.prod(graph.shape(iteration_axes(graph, n))))


def _plans(
    graph: Graph, schedule: Schedule, systolic: Systolic, node: Node, holds: Dataflow
) -> dict[str, NodeSchedule] | None:
    """The node's plan, and that of its total where it comes in parts; None where it cannot be."""
    sizes = _sizes(graph, schedule, node)
    kept = [axis for axis in node.axes if axis in sizes]
    lost = [axis for axis in sizes if axis not in node.axes]
    operands = [set(graph.node(name).axes) for name in node.args]
    if holds == "output":
        rows = _widest(sizes, [a for a in kept if a not in operands[1]])
        columns = _widest(sizes, [a for a in kept if a not in operands[0]])
        order = kept
    else:
        held, other = reversed(operands) if holds == "weight" else operands
        summed = [axis for axis in lost if sizes[axis] > 1]
        if len(summed) > 1 or any(sizes[axis] > systolic.rows for axis in summed):
            return None
        rows = next(iter(summed), "")
        columns = _widest(sizes, [axis for axis in kept if axis not in other])
        # What stays turns outside of what streams past it.
        order = sorted(kept, key=lambda axis: (axis not in held, axis != columns))
    if not columns:
        return None
    vector = {columns: min(systolic.columns, sizes[columns])}
    pack = {rows: min(systolic.rows, sizes[rows])} if rows else {}
    walk = tuple(order)
    own = NodeSchedule(walk=(*walk, *lost), vector=vector, pack=pack, array=holds)
    part = f"{node.name}.part"
    if part not in schedule.nodes:
        return {node.name: own}
    return {part: own, node.name: NodeSchedule(walk=walk, vector=vector)}


def _sizes(graph: Graph, schedule: Schedule, node: Node) -> Mapping[str, int]:
    """Points of each of the node's axes in its tile; axes that are time as they stand left out."""
    return {
        axis: min(schedule.tile.get(axis, graph.extent(axis)), graph.extent(axis))
        for axis in iteration_axes(graph, node)
        if axis not in schedule.time
    }


def _widest(sizes: Mapping[str, int], axes: list[str]) -> str:
    """The longest of `axes`, the last of them in a tie; "" where there is none."""
    return max(reversed(axes), key=lambda axis: sizes[axis], default="")
