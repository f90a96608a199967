"""What a graph means: plain dense NumPy, one node after the other.

Every node's value is a whole array over its axes. Nodes that depend on themselves through
`earlier` are run together, point by point along its axis; nothing else has an order of its own.
Arithmetic follows IEEE rules without warnings (exp(-inf) = 0, inf - inf = nan). An empty
reduction gives its identity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dataflow.errors import FaultsError, did_you_mean
from dataflow.index import Affine, affine
from dataflow.nodes import Graph, Node, Output, recurrences
from dataflow.ops import reduce_row, row

Array = NDArray[Any]


class InputError(FaultsError):
    """Input arrays that do not fit a graph."""


def evaluate(
    graph: Graph, inputs: Mapping[str, Any], dtype: DTypeLike = np.float64
) -> dict[str, Array]:
    """Return the graph's outputs by name, computed in `dtype`, shapes as their axes say.

    Raises InputError (all faults at once) where `inputs` do not fit.
    """
    check_inputs(graph, inputs)
    return stored(graph, node_values(graph, inputs, dtype))


def stored(graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs by name that the values of all nodes leave behind."""
    return {output.name: store(output, graph, values[output.node]) for output in graph.outputs}


def node_values(
    graph: Graph,
    inputs: Mapping[str, Any],
    dtype: DTypeLike = np.float64,
    known: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """Return the value of every node by name, in `dtype`, shaped by the node's axes.

    known: values of nodes that need not be worked out.
    """
    values: dict[str, Array] = {}
    known = known or {}
    groups = recurrences(graph)
    with np.errstate(all="ignore"):
        for part in _parts(graph, groups):
            if all(node.name in known for node in part):
                values.update((node.name, known[node.name]) for node in part)
            elif part[0].op == "input":
                values[part[0].name] = np.asarray(inputs[part[0].name]).astype(dtype)
            elif part in groups:
                _run_recurrence(part, graph, values, dtype)
            else:
                value = _value(part[0], graph, values, graph.axes, {})
                values[part[0].name] = value.astype(dtype)
    return {node.name: values[node.name] for node in graph.nodes}


def _parts(graph: Graph, groups: tuple[tuple[Node, ...], ...]) -> Iterator[tuple[Node, ...]]:
    """Yield single nodes and recurrences, each after all that it reads from outside itself."""
    grouped = {node.name for group in groups for node in group}
    waiting = [(node,) for node in graph.nodes if node.name not in grouped]
    waiting = [*waiting, *groups]
    done: set[str] = set()
    while waiting:
        rest = []
        for part in waiting:
            own = {node.name for node in part}
            if all(s in done or s in own for node in part for s in node.sources):
                yield part
                done |= own
            else:
                rest.append(part)
        waiting = rest


def _run_recurrence(
    group: tuple[Node, ...], graph: Graph, values: dict[str, Array], dtype: DTypeLike
) -> None:
    (axis,) = {node.axis for node in group if node.op == "earlier"}
    for node in group:
        values[node.name] = np.zeros(graph.shape(node.axes), dtype)
    extents = {**graph.axes, axis: 1}
    for step in range(graph.extent(axis)):
        for node in group:
            here = _slice_at(node, axis, step)
            values[node.name][here] = _value(node, graph, values, extents, {axis: step})


def _slice_at(node: Node, axis: str, step: int) -> tuple[slice, ...]:
    """Return the part of a node's value at one step; nodes without the axis keep all."""
    return tuple(slice(step, step + 1) if a == axis else slice(None) for a in node.axes)


def _value(
    node: Node,
    graph: Graph,
    values: Mapping[str, Array],
    extents: Mapping[str, int],
    step: Mapping[str, int],
) -> Array:
    """Return a node's value over `extents`; `step` gives the one axis that stands at a point."""
    shape = tuple(extents[axis] for axis in node.axes)
    points = {
        axis: (np.arange(extents[axis]) + step.get(axis, 0)).reshape(
            [-1 if a == axis else 1 for a in node.axes]
        )
        for axis in node.axes
    }
    sources = [graph.node(name) for name in node.args]
    if node.op == "const":
        return np.broadcast_to(constant(node, points), shape)
    if node.op == "read":
        return _read(values[sources[0].name], node.index, points, shape, node.fill)
    if node.op == "earlier":
        return _earlier(node, graph, values, shape, step)
    args = [values[s.name] for s in sources]
    for axis, at in step.items():
        args = [v[_slice_at(s, axis, at)] for s, v in zip(sources, args, strict=True)]
    if node.op == "einsum":
        return _einsum(node, sources, args)
    if node.op == "reduce":
        return _reduce(node, sources[0], args[0])
    if node.op == "last":
        at_last = np.take(args[0], -1, axis=sources[0].axes.index(node.axis))
        rest = [axis for axis in sources[0].axes if axis != node.axis]
        return _align(at_last, rest, node.axes)
    aligned = [_align(v, s.axes, node.axes) for s, v in zip(sources, args, strict=True)]
    if node.op == "mask":
        keep = np.asarray(node.index[0].evaluate(points)) >= 0
        return np.broadcast_to(np.where(keep, aligned[0], node.fill), shape)
    return np.broadcast_to(row(node.fn).numpy(*aligned), shape)


def _align(value: Array, axes: Any, target: tuple[str, ...]) -> Array:
    """Return `value` over `axes` with its axes in `target`'s order, extent 1 where it has none."""
    axes = tuple(axes)
    kept = [axis for axis in target if axis in axes]
    turned = np.transpose(value, [axes.index(axis) for axis in kept])
    return turned.reshape([value.shape[axes.index(a)] if a in axes else 1 for a in target])


def constant(node: Node, points: Mapping[str, Array]) -> Any:
    """Return the value of a const node at `points`, in float64."""
    if node.fn == "number":
        return np.asarray(node.fill)
    if node.fn == "affine":
        return np.asarray(node.index[0].evaluate(points), dtype=np.float64)
    turns: Any = 1
    for factor in node.index:  # whole turns drop out, so that the angle stays exact
        turns = turns * (factor.evaluate(points) % node.period) % node.period
    angle = 2 * np.pi * np.asarray(turns) / node.period
    cos = 0.0 if node.fn == "sin_turn" else np.cos(angle)
    sin = 0.0 if node.fn == "cos_turn" else np.sin(angle)
    return node.scale * (cos + sin)


def _read(
    source: Array,
    index: tuple[Affine, ...],
    points: Mapping[str, Array],
    shape: tuple[int, ...],
    fill: float,
) -> Array:
    if 0 in source.shape or 0 in shape:
        return np.full(shape, fill)
    inside: Any = True
    places = []
    for form, size in zip(index, source.shape, strict=True):
        place = np.asarray(form.evaluate(points))
        inside = inside & (place >= 0) & (place < size)
        places.append(np.clip(place, 0, size - 1))
    return np.broadcast_to(np.where(inside, source[tuple(places)], fill), shape)


def _earlier(
    node: Node,
    graph: Graph,
    values: Mapping[str, Array],
    shape: tuple[int, ...],
    step: Mapping[str, int],
) -> Array:
    """Return x one point back along the axis, whole or (within a recurrence) at one step."""
    source = graph.node(node.args[0])
    if isinstance(node.init, str):
        first = _align(values[node.init], graph.node(node.init).axes, node.axes)
    else:
        first = np.asarray(node.init)
    at = node.axes.index(node.axis)
    start_shape = (*shape[:at], min(1, shape[at]), *shape[at + 1 :])
    first = np.broadcast_to(first, start_shape)
    if not step:
        carried = _align(values[source.name], source.axes, node.axes)
        return np.concatenate([first, np.take(carried, range(shape[at] - 1), axis=at)], axis=at)
    if step[node.axis] == 0:
        return first
    before = values[source.name][_slice_at(source, node.axis, step[node.axis] - 1)]
    return _align(before, source.axes, node.axes)


def _einsum(node: Node, sources: list[Node], args: list[Array]) -> Array:
    label = {axis: i for i, axis in enumerate(dict.fromkeys(a for s in sources for a in s.axes))}
    operands: list[Any] = []
    for source, value in zip(sources, args, strict=True):
        operands += [value, [label[axis] for axis in source.axes]]
    return np.einsum(*operands, [label[axis] for axis in node.axes], optimize=True)


def _reduce(node: Node, source: Node, value: Array) -> Array:
    gone = tuple(i for i, axis in enumerate(source.axes) if axis not in node.axes)
    reduction = reduce_row(node.fn)
    reduced = reduction.numpy(value, axis=gone, initial=reduction.identity)
    return _align(reduced, [axis for axis in source.axes if axis in node.axes], node.axes)


def store(output: Output, graph: Graph, value: Array) -> Array:
    """Return the output tensor that `value`, its node's value, leaves behind."""
    node, shape = graph.node(output.node), graph.shape(output.axes)
    whole = tuple(affine(axis) for axis in node.axes)
    if not output.merge and output.index == whole and graph.shape(node.axes) == shape:
        return value
    result = np.full(shape, -np.inf if output.merge == "max" else 0.0, value.dtype)
    extents = graph.shape(node.axes)
    points = dict(zip(node.axes, np.indices(extents, sparse=True), strict=True))
    places = [np.broadcast_to(form.evaluate(points), extents) for form in output.index]
    inside = np.ones(extents, dtype=bool)
    for place, size in zip(places, shape, strict=True):
        inside &= (place >= 0) & (place < size)
    at = tuple(place[inside] for place in places)
    if output.merge == "add":
        np.add.at(result, at, value[inside])
    elif output.merge == "max":
        np.maximum.at(result, at, value[inside])
    elif at:
        result[at] = value[inside]
    else:
        result[...] = value
    return result


def draw_inputs(graph: Graph, seed: int = 0) -> dict[str, Array]:
    """Return a unit-normal float64 array for each input, fixed by the input's name and `seed`."""
    return {
        node.name: np.random.default_rng([seed, *node.name.encode()]).standard_normal(
            graph.shape(node.axes)
        )
        for node in graph.inputs
    }


def check_inputs(graph: Graph, arrays: Mapping[str, Any]) -> tuple[str, ...]:
    """Return remarks on `arrays` (values that are NaN or infinite are allowed, but said).

    Raises InputError that lists every missing or unknown name, wrong shape and type that is
    not a real number.
    """
    where = f"graph {graph.name}"
    names = [node.name for node in graph.inputs]
    faults = [
        f"{where}, input {name}: name must be an input, got {name!r}; {did_you_mean(name, names)}"
        for name in arrays
        if name not in names
    ]
    remarks: list[str] = []
    for node in graph.inputs:
        if node.name not in arrays:
            faults.append(f"{where}, input {node.name}: an array must be given, got none")
            continue
        array, place = np.asarray(arrays[node.name]), f"{where}, input {node.name}"
        shape = graph.shape(node.axes)
        if array.shape != shape:
            axes = " ".join(node.axes)
            faults.append(f"{place}: shape must be {shape} ({axes}), got {array.shape}")
        # the small floats of ml_dtypes are of kind V, but are numbers
        real = array.dtype.kind in "iuf" or "float" in array.dtype.name
        if not real:
            faults.append(f"{place}: type must be a real number, got {array.dtype}")
            continue
        unsound = array.size - np.count_nonzero(np.isfinite(array.astype(np.float64)))
        if unsound:
            remarks.append(f"{place}: {unsound} of {array.size} values are NaN or infinite")
    if faults:
        raise InputError(faults)
    return tuple(remarks)
