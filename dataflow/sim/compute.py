"""What compute units work out at a point: graph operations on tiles.

Each operation sees the values at its unit's own coordinates (`Compute.axes`), a `read` all
coordinates that its source's tiles cover. A value made elsewhere comes to an `earlier`, `last` or
`read` under that node's own name. An operation that accumulates keeps a state for each
setting of the loops inside its outermost carried loop; the state starts afresh where all carried
loops stand at 0, and what the operation gives is the state so far, a result only where all stand
at their last trip (the output port's `last` or level sees to that).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.graph import Graph, Node
from dataflow.ops import MAPS, reduce_row, row
from dataflow.program import Compute, Operation, Unit
from dataflow.sim.arithmetic import HELD, Arithmetic
from dataflow.sim.assemble import Part, joined, picked
from dataflow.sim.coordinates import Walker

Array = NDArray[Any]
Parts = Mapping[str, Sequence[Part]]
_CACHED_TILES = 1024


class ComputeValues:
    """The operations of one compute unit and the state that they keep from point to point."""

    def __init__(self, unit: Unit, graph: Graph, walker: Walker, arithmetic: Arithmetic):
        assert isinstance(unit.work, Compute)
        self.graph, self.walker, self.arithmetic = graph, walker, arithmetic
        self.work: Compute = unit.work
        self.trips = [loop.trips for loop in unit.loops[: unit.points]]
        self.made = {operation.node.name for operation in self.work.operations}
        self.inner = {
            operation.node.name: [
                loop
                for loop in range(min(operation.carried, default=0), unit.points)
                if loop not in operation.carried
            ]
            for operation in self.work.operations
        }
        self.state: dict[str, dict[tuple[int, ...], Array]] = {name: {} for name in self.made}
        self.aligned: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple] = {}
        self.reads: dict[Any, tuple] = {}
        self.consts: dict[Any, tuple] = {}

    def evaluate(
        self, counters: Sequence[int], given: Parts, wanted: Sequence[str] = ()
    ) -> dict[str, Array]:
        """Return the value of every operation at a point, over its node's axes.

        given: the tiles that came in, by the value's name. wanted: values that leave the unit;
        one that no operation makes is passed on from what came in. Values that cannot be had at
        this point, as a late input is not there yet, are left out.
        """
        point = _Point(self, counters, given)
        with np.errstate(all="ignore"):
            for operation in self.work.operations:
                value = point.operate(operation)
                if value is not None:
                    point.values[operation.node.name] = value
            point.keep()
        for name in wanted:
            value = point.value(name)
            if value is not None:
                point.values[name] = value
        return point.values


class _Point:
    """One evaluation: the values so far."""

    def __init__(self, unit: ComputeValues, counters: Sequence[int], given: Parts):
        self.unit, self.counters, self.given = unit, counters, given
        self.coords = {
            axis: unit.walker.axis(walk, counters) for axis, walk in unit.work.axes.items()
        }
        self.values: dict[str, Array] = {}

    def operate(self, operation: Operation) -> Array | None:
        node = operation.node
        if operation.terms:
            value = self._combine(node)
        elif node.op in _FREE:
            return _FREE[node.op](self, node)
        else:
            found = [self.value(name) for name in node.args]
            args = [arg for arg in found if arg is not None]
            if len(args) < len(found):
                return None
            value = _PLAIN[node.op](self, node, args)
        if value is None or node.op not in ("einsum", "reduce") or not operation.carried:
            return value
        return self._accumulate(operation, value)

    def value(self, name: str) -> Array | None:
        """Return a value at this unit's coordinates, made here or given."""
        if name in self.values:
            return self.values[name]
        parts = self.given.get(name)
        if parts is None or name in self.unit.made:
            return None
        axes = self.unit.graph.node(name).axes
        whole = parts[0].coords
        return picked(
            parts, [self.coords.get(axis, along) for axis, along in zip(axes, whole, strict=True)]
        )

    def own(self, node: Node) -> tuple[np.ndarray, ...]:
        """The coordinates of a node's value at this point."""
        return tuple([self.coords[axis] for axis in node.axes])

    def points(self, node: Node) -> dict[str, np.ndarray]:
        """Coordinates of the node's axes, each along its own dimension."""
        rank = len(node.axes)
        return {
            axis: self.coords[axis].reshape((1,) * at + (-1,) + (1,) * (rank - at - 1))
            for at, axis in enumerate(node.axes)
        }

    def align(self, value: Array, axes: tuple[str, ...], target: tuple[str, ...]) -> Array:
        """Return `value` over `axes` with dimensions in target's order, 1 where it has none."""
        if axes == target:
            return value
        plan = self.unit.aligned.get((axes, target))
        if plan is None:
            order = tuple(axes.index(axis) for axis in target if axis in axes)
            spread = tuple(slice(None) if axis in axes else None for axis in target)
            plan = self.unit.aligned[axes, target] = (order, spread)
        return value.transpose(plan[0])[plan[1]]

    def _combine(self, node: Node) -> Array | None:
        """Combine the partial results that the copies of a producer sent."""
        parts = self.given.get(node.name)
        if parts is None:
            return None
        combine = _combiner(node)
        own = self.own(node)
        value = picked(parts[:1], own)
        for part in parts[1:]:
            value = combine(value, picked([part], own))
        return self.unit.arithmetic.summed(value)

    def _accumulate(self, operation: Operation, value: Array) -> Array:
        name = operation.node.name
        key = tuple([self.counters[loop] for loop in self.unit.inner[name]])
        state = self.unit.state[name]
        if any(self.counters[loop] for loop in operation.carried):
            value = self.unit.arithmetic.summed(_combiner(operation.node)(state[key], value))
        if all(self.counters[loop] == self.unit.trips[loop] - 1 for loop in operation.carried):
            state.pop(key, None)
        else:
            state[key] = value
        return value

    def _earlier(self, node: Node) -> Array | None:
        (loop,) = next(o.carried for o in self.unit.work.operations if o.node is node)
        shape = [len(along) for along in self.own(node)]
        source = node.args[0]
        if self.counters[loop] == 0:
            if not isinstance(node.init, str):
                return np.full(shape, node.init, dtype=HELD)
            first = self.value(node.init)
            if first is None:
                return None
            axes = self.unit.graph.node(node.init).axes
            return np.broadcast_to(self.align(first, axes, node.axes), shape)
        if source in self.unit.made:
            key = tuple([self.counters[d] for d in self.unit.inner[node.name]])
            before = self.unit.state[node.name].get(key)
        else:
            before = self._sent(node)
        if before is None:
            return None
        axes = self.unit.graph.node(source).axes
        return np.broadcast_to(self.align(before, axes, node.axes), shape)

    def _sent(self, node: Node) -> Array | None:
        """What came in for an `earlier` or `last` node: its own coordinates but for its axis."""
        source = node.args[0]
        parts = self.given.get(node.name, self.given.get(source))
        if parts is None:
            return None
        whole = joined(parts)
        axes = self.unit.graph.node(source).axes
        wanted = [
            along if axis == node.axis else self.coords.get(axis, along)
            for axis, along in zip(axes, whole.coords, strict=True)
        ]
        return picked([whole], wanted)

    def _last(self, node: Node) -> Array | None:
        """The final point along the node's axis of what is there: made here or sent."""
        source = node.args[0]
        value = self.values[source] if source in self.values else self._sent(node)
        if value is None:
            return None
        axes = self.unit.graph.node(source).axes
        at = axes.index(node.axis)
        if not value.shape[at]:
            return np.full([len(along) for along in self.own(node)], np.nan, dtype=HELD)
        rest = tuple(axis for axis in axes if axis != node.axis)
        return self.align(np.take(value, -1, axis=at), rest, node.axes)

    def keep(self) -> None:
        """Keep what `earlier` of this unit's own values will give at the next point."""
        for operation in self.unit.work.operations:
            node = operation.node
            if node.op == "earlier" and node.args[0] in self.values:
                key = tuple([self.counters[d] for d in self.unit.inner[node.name]])
                self.unit.state[node.name][key] = self.values[node.args[0]]

    def _const(self, node: Node) -> Array:
        if node.fn == "number":
            return np.asarray(node.fill, dtype=HELD)
        own = self.own(node)
        key = (node.name, *map(id, own))
        cache = self.unit.consts
        if key not in cache:
            if len(cache) >= _CACHED_TILES:
                cache.clear()
            cache[key] = own, self.unit.arithmetic.summed(constant(node, self.points(node)))
        return np.broadcast_to(cache[key][1], [len(along) for along in own])

    def _read(self, node: Node) -> Array | None:
        """An affine index into all that the source's tiles cover; NaN where they lack a point."""
        name = node.args[0]
        source = self.unit.graph.node(name)
        if name in self.values:
            part = Part(self.values[name], self.own(source))
        elif node.name in self.given or name in self.given:
            part = joined(self.given.get(node.name, self.given.get(name, ())))
        else:
            return None
        own = self.own(node)
        key = (node.name, *map(id, own), *map(id, part.coords))
        cache = self.unit.reads
        if key not in cache:
            if len(cache) >= _CACHED_TILES:
                cache.clear()
            extents = self.unit.graph.shape(source.axes)
            plan = _read_plan(node, self.points(node), part.coords, extents)
            cache[key] = (own, part.coords, *plan)  # arrays are kept, so that their ids hold
        _, _, places, known, inside = cache[key]
        shape = [len(along) for along in own]
        if 0 in part.array.shape:
            value = np.full(shape, np.nan, dtype=HELD)
        else:
            value = np.broadcast_to(part.array[places], shape)
        if not np.all(known):
            value = np.where(known, value, HELD(np.nan))
        return value if np.all(inside) else np.where(inside, value, HELD(node.fill))


def _read_plan(
    node: Node,
    points: Mapping[str, np.ndarray],
    coords: Sequence[np.ndarray],
    extents: Sequence[int],
) -> tuple[tuple, Any, Any]:
    """Places in the source's tile, whether it has them, and whether they lie in the source."""
    places, known, inside = [], True, True
    for form, along, extent in zip(node.index, coords, extents, strict=True):
        at = np.asarray(form.evaluate(points))
        inside = inside & (at >= 0) & (at < extent)
        place = np.minimum(np.searchsorted(along, at), max(0, len(along) - 1))
        known = known & ((along[place] == at) if len(along) else np.zeros(at.shape, dtype=bool))
        places.append(place)
    return tuple(places), known, inside


def constant(node: Node, points: Mapping[str, np.ndarray]) -> Array:
    """Return the value of a const node at `points`, in float64."""
    if node.fn == "number":
        return np.asarray(node.fill)
    if node.fn == "affine":
        return np.asarray(node.index[0].evaluate(points), dtype=np.float64)
    turns: Any = 1
    for factor in node.index:  # whole turns drop out, so that the angle stays exact
        turns = turns * (factor.evaluate(points) % node.period) % node.period
    angle = 2 * np.pi * np.asarray(turns) / node.period
    return node.scale * (np.cos(angle) if node.fn == "cos_turn" else np.sin(angle))


def _combiner(node: Node) -> Callable[..., Any]:
    """How partial results of a node join."""
    return MAPS[reduce_row(node.fn).combine].numpy if node.op == "reduce" else np.add


def _map(point: _Point, node: Node, args: list[Array]) -> Array:
    axes = [point.unit.graph.node(name).axes for name in node.args]
    placed = [point.align(arg, its, node.axes) for arg, its in zip(args, axes, strict=True)]
    value = row(node.fn).numpy(*placed)
    value = np.broadcast_to(value, [len(along) for along in point.own(node)])
    return point.unit.arithmetic.summed(value)


def _mask(point: _Point, node: Node, args: list[Array]) -> Array:
    keep = np.asarray(node.index[0].evaluate(point.points(node))) >= 0
    value = point.align(args[0], point.unit.graph.node(node.args[0]).axes, node.axes)
    return np.where(keep, value, HELD(node.fill))


def _reduce(point: _Point, node: Node, args: list[Array]) -> Array:
    axes = point.unit.graph.node(node.args[0]).axes
    gone = tuple(at for at, axis in enumerate(axes) if axis not in node.axes)
    reduction = reduce_row(node.fn)
    value = reduction.numpy(args[0], axis=gone, initial=reduction.identity)
    kept = tuple(axis for axis in axes if axis in node.axes)
    return point.unit.arithmetic.summed(point.align(np.asarray(value), kept, node.axes))


def _einsum(point: _Point, node: Node, args: list[Array]) -> Array:
    axes = [point.unit.graph.node(name).axes for name in node.args]
    value = _product(args, axes, node.axes) if len(args) == 2 else _general(args, axes, node.axes)
    return point.unit.arithmetic.summed(value)


def _general(args: list[Array], axes: list[tuple[str, ...]], target: tuple[str, ...]) -> Array:
    label = {axis: at for at, axis in enumerate(dict.fromkeys(a for its in axes for a in its))}
    operands: list[Any] = []
    for arg, its in zip(args, axes, strict=True):
        operands += [arg, [label[axis] for axis in its]]
    return np.einsum(*operands, [label[axis] for axis in target])


def _product(args: list[Array], axes: list[tuple[str, ...]], target: tuple[str, ...]) -> Array:
    """A contraction of two arrays as one batched matrix product."""
    (left, right), (left_axes, right_axes) = args, axes
    if any(a not in target and a not in right_axes for a in left_axes) or any(
        a not in target and a not in left_axes for a in right_axes
    ):
        return _general(args, axes, target)
    batch = [a for a in left_axes if a in right_axes and a in target]
    summed = [a for a in left_axes if a in right_axes and a not in target]
    rows = [a for a in left_axes if a not in right_axes]
    columns = [a for a in right_axes if a not in left_axes]
    size = dict(zip(left_axes, left.shape, strict=True))
    size.update(zip(right_axes, right.shape, strict=True))

    def shaped(array: Array, its: tuple[str, ...], *groups: list[str]) -> Array:
        order = [its.index(axis) for group in groups for axis in group]
        counts = [int(np.prod([size[axis] for axis in group], dtype=int)) for group in groups]
        return array.transpose(order).reshape(counts)

    product = shaped(left, left_axes, batch, rows, summed) @ shaped(
        right, right_axes, batch, summed, columns
    )
    found = [*batch, *rows, *columns]
    product = product.reshape([size[axis] for axis in found])
    return product.transpose([found.index(axis) for axis in target])


_PLAIN: dict[str, Callable[[_Point, Node, list[Array]], Array]] = {
    "map": _map,
    "einsum": _einsum,
    "reduce": _reduce,
    "mask": _mask,
}
_FREE: dict[str, Callable[[_Point, Node], Array | None]] = {
    "const": _Point._const,
    "earlier": _Point._earlier,
    "last": _Point._last,
    "read": _Point._read,
}
