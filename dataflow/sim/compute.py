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
from dataflow.reference import constant
from dataflow.sim.arithmetic import HELD, Arithmetic
from dataflow.sim.assemble import Part, joined, picked, turned
from dataflow.sim.coordinates import Walker

Array = NDArray[Any]

Given = Mapping[str, Sequence[Sequence[Part]]]
"""What came in at a point: for each value, for each port that carries it, the tiles."""

_CACHED_TILES = 1024


class ComputeValues:
    """The operations of one compute unit and the state that they keep from point to point."""

    def __init__(
        self,
        unit: Unit,
        graph: Graph,
        axes: Mapping[str, tuple[str, ...]],
        walker: Walker,
        arithmetic: Arithmetic,
    ):
        assert isinstance(unit.work, Compute)
        self.graph, self.axes, self.walker, self.arithmetic = graph, axes, walker, arithmetic
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
        self.state: dict[str, dict[tuple[int, ...], Any]] = {name: {} for name in self.made}
        self.aligned: dict[tuple[tuple[str, ...], tuple[str, ...]], tuple] = {}
        self.reads: dict[Any, tuple] = {}
        self.consts: dict[Any, tuple] = {}

    def evaluate(
        self, counters: Sequence[int], given: Given, wanted: Sequence[str] = ()
    ) -> dict[str, Array]:
        """Evaluate all operations at a point; return the `wanted` values, over their axes.

        A wanted value that no operation makes is passed on from what came in. One that cannot be
        had at this point, as a late input is not there yet, is left out.
        """
        point = _Point(self, counters, given)
        with np.errstate(all="ignore"):
            for operation in self.work.operations:
                part = point.operate(operation)
                if part is not None:
                    point.values[operation.node.name] = part
            point.keep()
        found = {name: point.value(name) for name in wanted}
        return {name: value for name, value in found.items() if value is not None}


class _Point:
    """One evaluation: the values so far, with the coordinates that they cover."""

    def __init__(self, unit: ComputeValues, counters: Sequence[int], given: Given):
        self.unit, self.counters, self.given = unit, counters, given
        self.coords = {
            axis: unit.walker.axis(walk, counters) for axis, walk in unit.work.axes.items()
        }
        self.values: dict[str, Part] = {}

    def operate(self, operation: Operation) -> Part | None:
        """Return the value of an operation, None where it cannot be had."""
        node = operation.node
        if node.op in _FREE and not operation.terms:
            return _FREE[node.op](self, node)
        if operation.terms:
            value = self._combine(node, operation.terms)
        else:
            found = [self.value(name) for name in node.args]
            args = [arg for arg in found if arg is not None]
            if len(args) < len(found):
                return None
            value = _PLAIN[node.op](self, node, args)
        if value is None:
            return None
        if operation.carried:
            value = self._accumulate(operation, value)
        return Part(value, self.own(node))

    def value(self, name: str, coords: Mapping[str, np.ndarray] | None = None) -> Array | None:
        """Return a value, made here or given, at this unit's coordinates or at others.

        Of an axis that `coords` lacks, it keeps all that is there.
        """
        if name in self.values:
            parts: Sequence[Part] = (self.values[name],)
        elif name in self.given and name not in self.unit.made:
            parts = [part for port in self.given[name] for part in port]
        else:
            return None
        at = self.coords if coords is None else coords
        axes = zip(self.unit.axes[name], parts[0].coords, strict=True)
        return picked(parts, [at.get(axis, along) for axis, along in axes])

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

    def _combine(self, node: Node, terms: int) -> Array | None:
        """Combine the partial results that the copies of a producer sent.

        Each came through a port of its own, or through as many as points are packed.
        """
        ports = self.given.get(node.name) or self.given.get(node.args[0])
        if not ports:  # a single part, made in this very unit
            return self.value(node.args[0])
        combine = _combiner(node)
        packed = max(1, len(ports) // terms)
        copies = [ports[first : first + packed] for first in range(0, len(ports), packed)]
        value = self._part(node, [part for port in copies[0] for part in port])
        for copy in copies[1:]:
            value = combine(value, self._part(node, [part for port in copy for part in port]))
        return self.unit.arithmetic.summed(value)

    def _part(self, node: Node, parts: Sequence[Part]) -> Array:
        """What one copy of a producer sent, reduced over the points of other axes that it has."""
        own = self.own(node)
        if len(parts[0].coords) == len(own):
            return picked(parts, own)
        axes = self.unit.axes[node.args[0]]
        along = dict(zip(node.axes, own, strict=True))
        coords = zip(axes, joined(parts).coords, strict=True)
        return _reduce(self, node, [picked(parts, [along.get(a, its) for a, its in coords])])

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

    def _earlier(self, node: Node) -> Part | None:
        """The value one point back, or its initial value; all that is there, for a later `read`."""
        carried = next(o.carried for o in self.unit.work.operations if o.node is node)
        source = node.args[0]
        key = tuple([self.counters[loop] for loop in self.unit.inner[node.name]])
        first = not any(self.counters[loop] for loop in carried)
        if source not in self.unit.made:
            before = self._sent(node)
        else:
            before = None if first else self.unit.state[node.name].get(key)
        axes = self.unit.axes[source]
        coords = {} if before is None else dict(zip(axes, before.coords, strict=True))
        # the point is this one's, whichever the tile came from
        coords = {**self.coords, **coords, node.axis: self.coords[node.axis]}
        if not first:
            value = None if before is None else self.align(before.array, axes, node.axes)
        elif isinstance(node.init, str):
            value = self.value(node.init, coords)
            if value is not None:
                value = self.align(value, self.unit.axes[node.init], node.axes)
        else:
            value = np.asarray(node.init, dtype=HELD)
        if value is None:
            return None
        covered = tuple(coords[axis] for axis in node.axes)
        return Part(np.broadcast_to(value, [len(along) for along in covered]), covered)

    def _sent(self, node: Node) -> Part | None:
        """What came in for an `earlier` or `last` node, or was made here."""
        source = node.args[0]
        if source in self.values:
            return self.values[source]
        ports = self.given.get(node.name) or self.given.get(source)
        return joined([part for port in ports for part in port]) if ports else None

    def _last(self, node: Node) -> Part | None:
        """The final point along the node's axis of what is there: made here or sent."""
        part = self._sent(node)
        if part is None:
            return None
        axes = self.unit.axes[node.args[0]]
        if not len(part.coords[axes.index(node.axis)]):
            return None
        return turned(part, axes, node.axes)

    def keep(self) -> None:
        """Keep what `earlier` of this unit's own values will give at the next point."""
        for operation in self.unit.work.operations:
            node = operation.node
            if node.op == "earlier" and node.args[0] in self.values:
                key = tuple([self.counters[loop] for loop in self.unit.inner[node.name]])
                self.unit.state[node.name][key] = self.values[node.args[0]]

    def _const(self, node: Node) -> Part:
        own = self.own(node)
        key = (node.name, *map(id, own))
        cache = self.unit.consts
        if key not in cache:
            if len(cache) >= _CACHED_TILES:
                cache.clear()
            value = self.unit.arithmetic.summed(constant(node, self.points(node)))
            cache[key] = own, Part(np.broadcast_to(value, [len(along) for along in own]), own)
        return cache[key][1]

    def _read(self, node: Node) -> Part | None:
        """An affine index into all that the source's tiles cover; NaN where they lack a point."""
        name = node.args[0]
        ports = self.given.get(node.name) or self.given.get(name)
        if name in self.values:
            part = self.values[name]
        elif ports:
            part = joined([part for port in ports for part in port])
        else:
            return None
        own = self.own(node)
        key = (node.name, *map(id, own), *map(id, part.coords))
        cache = self.unit.reads
        if key not in cache:
            if len(cache) >= _CACHED_TILES:
                cache.clear()
            extents = self.unit.graph.shape(self.unit.axes[name])
            plan = _read_plan(node, self.points(node), part.coords, extents)
            cache[key] = (own, part.coords, *plan)  # arrays are kept, so that their ids hold
        _, _, places, known, inside = cache[key]
        shape = [len(along) for along in own]
        if 0 in part.array.shape:
            value = np.full(shape, np.nan, dtype=HELD)
        else:
            value = np.broadcast_to(part.array[places], shape)
        if not np.all(known | ~inside):
            value = np.where(known, value, HELD(np.nan))
        if not np.all(inside):
            value = np.where(inside, value, HELD(node.fill))
        return Part(value, own)


def _read_plan(
    node: Node,
    points: Mapping[str, np.ndarray],
    coords: Sequence[np.ndarray],
    extents: Sequence[int],
) -> tuple[tuple, Any, Any]:
    """Places in the source's tile, whether it has them, and whether they lie in the source."""
    places: list[Array] = []
    known = inside = np.ones((), dtype=bool)
    for form, along, extent in zip(node.index, coords, extents, strict=True):
        at = np.asarray(form.evaluate(points))
        inside = inside & (at >= 0) & (at < extent)
        place = np.minimum(np.searchsorted(along, at), max(0, len(along) - 1))
        known = known & ((along[place] == at) if len(along) else np.zeros(at.shape, dtype=bool))
        places.append(place)
    return tuple(places), known, inside


def _combiner(node: Node) -> Callable[..., Any]:
    """How partial results of a node join."""
    return MAPS[reduce_row(node.fn).combine].numpy if node.op == "reduce" else np.add


def _map(point: _Point, node: Node, args: list[Array]) -> Array:
    axes = [point.unit.axes[name] for name in node.args]
    placed = [point.align(arg, its, node.axes) for arg, its in zip(args, axes, strict=True)]
    value = row(node.fn).numpy(*placed)
    value = np.broadcast_to(value, [len(along) for along in point.own(node)])
    return point.unit.arithmetic.summed(value)


def _mask(point: _Point, node: Node, args: list[Array]) -> Array:
    keep = np.asarray(node.index[0].evaluate(point.points(node))) >= 0
    value = point.align(args[0], point.unit.axes[node.args[0]], node.axes)
    return np.where(keep, value, HELD(node.fill))


def _reduce(point: _Point, node: Node, args: list[Array]) -> Array:
    axes = point.unit.axes[node.args[0]]
    gone = tuple(at for at, axis in enumerate(axes) if axis not in node.axes)
    reduction = reduce_row(node.fn)
    value = reduction.numpy(args[0], axis=gone, initial=reduction.identity)
    kept = tuple(axis for axis in axes if axis in node.axes)
    return point.unit.arithmetic.summed(point.align(np.asarray(value), kept, node.axes))


def _einsum(point: _Point, node: Node, args: list[Array]) -> Array:
    axes = [point.unit.axes[name] for name in node.args]
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
_FREE: dict[str, Callable[[_Point, Node], Part | None]] = {
    "const": _Point._const,
    "earlier": _Point._earlier,
    "last": _Point._last,
    "read": _Point._read,
}
