"""Axis plans: which programs, loop steps and lanes run along each axis of a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set

from dataflow.errors import did_you_mean
from dataflow.nodes import Graph, Node
from dataflow.ops import contracted
from gpu.plan import AxisPlan
from gpu.schedule import GpuScheduleError, KernelSchedule

SMALLEST_PRODUCT_SIDE = 16
"""Least rows, columns and depth of a product on a tensor core tile (mma.sync m16n8k16)."""
SMALLEST_FP8_SIDE = 32
"""The same for 8-bit operands, whose tile is 32 deep (m16n8k32)."""


def plan_axes(
    graph: Graph, nodes: Iterable[Node], plan: KernelSchedule, where: str, precision: str = "bf16"
) -> dict[str, AxisPlan]:
    """Return the plan of every axis that `nodes` run over, at a schedule's precision.

    Raises GpuScheduleError with every axis that the schedule names wrongly, each at its place.
    """
    nodes = tuple(nodes)
    extents = {axis: graph.extent(axis) for axis in _axes_of(graph, nodes)}
    faults = _faults(graph, nodes, plan, where, extents)
    if faults:
        raise GpuScheduleError(faults)
    single = {axis for axis, e in extents.items() if _plan(axis, e, plan, 1).tile == 1}
    padded = {axis for axis, e in extents.items() if plan.tile.get(axis, 1) > e}
    wide = product_axes(graph, nodes, single, padded)
    side = SMALLEST_FP8_SIDE if precision == "fp8" else SMALLEST_PRODUCT_SIDE
    return {
        axis: _plan(axis, extent, plan, side if axis in wide else 1)
        for axis, extent in extents.items()
    }


def product_axes(
    graph: Graph,
    nodes: Iterable[Node],
    single: Set[str] = frozenset(),
    padded: Set[str] = frozenset(),
) -> set[str]:
    """Return the axes that are rows, columns or depth of some product of two matrices.

    single: axes of which a tile has one point; where a side has no others, the tiles' product is
    none of matrices. padded: see `product_sides`.
    """
    found: set[str] = set()
    for node in nodes:
        sides = product_sides(graph, node, padded)
        if sides is not None and all(set(side) - single for side in sides[1:]):
            found |= {axis for side in sides[1:] for axis in side}
    return found


def product_sides(
    graph: Graph, node: Node, padded: Set[str] = frozenset()
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[str, ...]] | None:
    """Return (batch, m, n, k) of an einsum that is a product of two matrices, None of any other.

    padded: axes that count as having more than one point, since tiles have more lanes.
    """
    if node.op != "einsum" or len(node.args) != 2:
        return None
    left, right = (graph.node(name).axes for name in node.args)
    k = tuple(axis for axis in contracted(node, graph) if axis in left and axis in right)
    batch = tuple(axis for axis in node.axes if axis in left and axis in right)
    m = tuple(axis for axis in node.axes if axis in left and axis not in right)
    n = tuple(axis for axis in node.axes if axis in right and axis not in left)
    wide = all(any(graph.extent(a) > 1 or a in padded for a in side) for side in (m, n, k))
    return (batch, m, n, k) if wide else None


THREE_GROUPS = 12
"""Warps of three warp groups (Gluon's text): each has a power of two of a tile's rows."""


def power_of_two(points: int) -> int:
    """Return the least power of two that is at least `points`.

    >>> [power_of_two(points) for points in (1, 2, 3, 65)]
    [1, 2, 4, 128]
    """
    return 1 << (points - 1).bit_length()


def _axes_of(graph: Graph, nodes: Iterable[Node]) -> tuple[str, ...]:
    used: set[str] = set()
    for node in nodes:
        used.update(node.axes)
        for name in node.args:
            used.update(graph.node(name).axes)
    return tuple(axis for axis in graph.axes if axis in used)


def _plan(axis: str, extent: int, plan: KernelSchedule, least: int) -> AxisPlan:
    if axis in plan.unroll:
        tile = plan.tile.get(axis, 1)
        tiles = -(-extent // tile)
        if axis not in plan.grid:
            return AxisPlan(axis, extent, tile, unroll=tiles)
        points = min(plan.chunk.get(axis, 1), tiles)
        return AxisPlan(axis, extent, tile, 1, -(-tiles // points), points)
    whole = power_of_two(extent)
    if axis not in plan.grid and axis not in plan.loop:
        return AxisPlan(axis, extent, max(whole, least if extent > 1 else 1))
    tile = plan.tile.get(axis, 1)
    tiles = -(-extent // tile)
    if axis not in plan.loop:
        return AxisPlan(axis, extent, tile, 1, tiles)
    if axis not in plan.grid:
        return AxisPlan(axis, extent, tile, tiles)
    chunk = min(plan.chunk.get(axis, 1), tiles)
    return AxisPlan(axis, extent, tile, chunk, -(-tiles // chunk))


def _faults(
    graph: Graph,
    nodes: tuple[Node, ...],
    plan: KernelSchedule,
    where: str,
    extents: Mapping[str, int],
) -> list[str]:
    faults = []
    for field in ("tile", "grid", "loop", "chunk", "group", "unroll"):
        named = list(getattr(plan, field))
        for axis in named:
            if axis not in graph.axes:
                hint = did_you_mean(axis, graph.axes)
                faults.append(
                    f"{where}.{field}: axis must be one of the graph, got {axis!r}; {hint}"
                )
        twice = sorted({axis for axis in named if named.count(axis) > 1})
        faults += [
            f"{where}.{field}: axis must be named once, got {axis!r} again" for axis in twice
        ]
    for axis, tile in plan.tile.items():
        shares = 3 if plan.warps == THREE_GROUPS and tile % 3 == 0 else 1
        if tile // shares != power_of_two(tile // shares):
            faults.append(
                f"{where}.tile.{axis}: tile must be a power of two"
                f"{', or three times one,' if plan.warps == THREE_GROUPS else ''} got {tile}"
            )
        if axis in extents and axis not in {*plan.grid, *plan.loop, *plan.unroll}:
            faults.append(
                f"{where}.tile.{axis}: a tiled axis must be in grid, loop or unroll, got none"
            )
    for axis in plan.chunk:
        if axis not in plan.grid or axis not in {*plan.loop, *plan.unroll}:
            faults.append(
                f"{where}.chunk.{axis}: axis must be in grid and in loop or unroll, got another"
            )
    for axis in plan.group:
        if axis not in plan.grid:
            faults.append(f"{where}.group.{axis}: axis must be in grid, got it elsewhere")
    for axis in sorted(set(plan.unroll) & set(plan.loop)):
        faults.append(f"{where}.unroll: axis must not be in loop too, got {axis!r}")
    recurrent = {node.axis for node in nodes if node.op == "earlier"}
    for axis in sorted(recurrent):
        if axis not in plan.loop or axis in plan.grid or plan.tile.get(axis, 1) != 1:
            faults.append(
                f"{where}.loop: {axis} must be walked point by point, since it carries a recurrence"
            )
    for node in nodes:
        for axis in contracted(node, graph):
            if axis in plan.grid:
                faults.append(
                    f"{where}.grid: {node.name} sums over {axis}, so that it must not be spread "
                    f"over programs"
                )
    return faults
