"""The rules of a graph: `verify` collects every fault and raises them at once.

Message form: `graph G, node N: <what> must be <rule>, got <value>; <hint>`.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from dataflow.errors import did_you_mean
from dataflow.index import NAME, Affine
from dataflow.nodes import CONSTS, MERGES, OPS, Graph, GraphError, Node, Output, recurrences
from dataflow.ops import MAPS, REDUCES

_NAME = re.compile(NAME)
_ENUMERATED_POINTS = 1 << 16


def verify(graph: Graph) -> Graph:
    """Return `graph` unchanged; raise GraphError with all faults where it breaks a rule."""
    faults = [f"graph {graph.name}, {fault}" for fault in _name_faults(graph)]
    for node in graph.nodes:
        faults += [f"graph {graph.name}, node {node.name}: {f}" for f in _node_faults(node, graph)]
    for output in graph.outputs:
        where = f"graph {graph.name}, output {output.name}"
        faults += [f"{where}: {fault}" for fault in _output_faults(output, graph)]
    if not faults:  # the rest needs sound names
        faults = [f"graph {graph.name}, {fault}" for fault in _recurrence_faults(graph)]
    if faults:
        raise GraphError(faults)
    return graph


def _name_faults(graph: Graph) -> Iterator[str]:
    for axis, extent in graph.axes.items():
        if not _NAME.fullmatch(axis):
            yield f"axis {axis!r}: name must be letters, digits, _ and inner dots, got {axis!r}"
        if isinstance(extent, bool) or not isinstance(extent, int) or extent < 0:
            yield f"axis {axis}: extent must be a whole number >= 0, got {extent!r}"
    names = [node.name for node in graph.nodes]
    for name in dict.fromkeys(names):
        if not _NAME.fullmatch(name):
            yield f"node {name!r}: name must be letters, digits, _ and inner dots, got {name!r}"
        if names.count(name) > 1:
            yield f"node {name}: name must be unique, got {names.count(name)} nodes of it"
    outputs = [output.name for output in graph.outputs]
    for name in dict.fromkeys(outputs):
        if not _NAME.fullmatch(name):
            yield f"output {name!r}: name must be letters, digits, _ and inner dots, got {name!r}"
        if outputs.count(name) > 1:
            yield f"output {name}: name must be unique, got {outputs.count(name)} outputs of it"
    if not graph.outputs:
        yield "outputs: there must be at least one, got none"


def _node_faults(node: Node, graph: Graph) -> list[str]:
    if node.op not in OPS:
        return [f"op must be one of the operations, got {node.op!r}; {did_you_mean(node.op, OPS)}"]
    faults = list(_axis_faults("axes", node.axes, graph))
    order = {n.name: i for i, n in reversed(list(enumerate(graph.nodes)))}
    here = order[node.name]
    for source in node.sources:
        if source not in order:
            hint = did_you_mean(source, order)
            faults.append(f"argument must be a node of the graph, got {source!r}; {hint}")
    for source in node.sources_now:
        if order.get(source, -1) >= here:
            faults.append(f"argument must stand before it, got {source!r}; a cycle needs earlier")
    if faults:
        return faults
    args = [graph.node(arg) for arg in node.args]
    return [*_unused_field_faults(node), *_RULES[node.op](node, args, graph)]


def _axis_faults(what: str, axes: Iterable[str], graph: Graph) -> Iterator[str]:
    seen: set[str] = set()
    for axis in axes:
        if axis not in graph.axes:
            hint = did_you_mean(axis, graph.axes)
            yield f"{what} must be axes of the graph, got {axis!r}; {hint}"
        if axis in seen:
            yield f"{what} must be distinct, got {axis!r} twice"
        seen.add(axis)


_FIELDS: dict[str, tuple[str, ...]] = {
    "input": (),
    "const": ("fn", "index", "fill", "period", "scale"),
    "const number": ("fn", "fill"),
    "const affine": ("fn", "index"),
    "const cos_turn": ("fn", "index", "period", "scale"),
    "const sin_turn": ("fn", "index", "period", "scale"),
    "const cas_turn": ("fn", "index", "period", "scale"),
    "map": ("args", "fn"),
    "einsum": ("args",),
    "reduce": ("args", "fn"),
    "mask": ("args", "index", "fill"),
    "read": ("args", "index", "fill"),
    "earlier": ("args", "axis", "init"),
    "last": ("args", "axis"),
}
_UNSET = Node("", "", ())


def _unused_field_faults(node: Node) -> Iterator[str]:
    kind = f"{node.op} {node.fn}" if f"{node.op} {node.fn}" in _FIELDS else node.op
    for field in ("args", "fn", "index", "fill", "axis", "init", "period", "scale"):
        value = getattr(node, field)
        if field not in _FIELDS[kind] and value != getattr(_UNSET, field):
            yield f"{field} must be left out of {kind}, got {value!r}"


def _count_fault(args: list[Node], *counts: int) -> Iterator[str]:
    if len(args) not in counts:
        rule = " or ".join(str(c) for c in counts)
        yield f"number of arguments must be {rule}, got {len(args)}"


def _form_faults(node: Node, count: int | None) -> Iterator[str]:
    if count is not None and len(node.index) != count:
        yield f"index must have {count} forms, got {len(node.index)}"
    for form in node.index:
        for symbol in form.symbols():
            if symbol not in node.axes:
                hint = did_you_mean(symbol, node.axes)
                yield f"index must be over the node's axes, got {symbol!r} in {form}; {hint}"


def _covers_faults(node: Node, args: list[Node]) -> Iterator[str]:
    for arg in args:
        missing = [axis for axis in arg.axes if axis not in node.axes]
        if missing:
            yield f"axes must hold those of {arg.name}, got none of {', '.join(missing)}"


def _const_faults(node: Node, args: list[Node], graph: Graph) -> Iterator[str]:
    if node.fn not in CONSTS:
        yield f"fn must be a kind of const, got {node.fn!r}; {did_you_mean(node.fn, CONSTS)}"
    turn = node.fn.endswith("_turn")
    yield from _form_faults(node, 1 if node.fn == "affine" else None)
    if turn and not node.index:
        yield "index must have at least one factor, got none"
    if node.period < 1:
        yield f"period must be >= 1, got {node.period}"


def _map_faults(node: Node, args: list[Node], graph: Graph) -> Iterator[str]:
    if node.fn not in MAPS:
        yield f"fn must be a row of the table, got {node.fn!r}; {did_you_mean(node.fn, MAPS)}"
    else:
        yield from _count_fault(args, MAPS[node.fn].arity)
    yield from _covers_faults(node, args)


def _einsum_faults(node: Node, args: list[Node], graph: Graph) -> Iterator[str]:
    yield from _count_fault(args, 1, 2, 3)
    known = {axis for arg in args for axis in arg.axes}
    for axis in node.axes:
        if axis not in known:
            yield f"axes must be axes of its arguments, got {axis!r}; {did_you_mean(axis, known)}"


def _reduce_faults(node: Node, args: list[Node], graph: Graph) -> Iterator[str]:
    yield from _count_fault(args, 1)
    if node.fn not in REDUCES:
        hint = did_you_mean(node.fn, REDUCES)
        yield f"fn must be a row of the table, got {node.fn!r}; {hint}"
    for arg in args:
        extra = [axis for axis in node.axes if axis not in arg.axes]
        if extra:
            yield f"axes must be axes of {arg.name}, got {', '.join(extra)}"
        if not extra and len(node.axes) == len(arg.axes):
            yield f"axes must lack one of {arg.name}, got all of them"


def _mask_faults(node: Node, args: list[Node], graph: Graph) -> Iterator[str]:
    yield from _count_fault(args, 1)
    yield from _form_faults(node, 1)
    yield from _covers_faults(node, args)


def _read_faults(node: Node, args: list[Node], graph: Graph) -> Iterator[str]:
    yield from _count_fault(args, 1)
    for arg in args:
        yield from _form_faults(node, len(arg.axes))


def _earlier_faults(node: Node, args: list[Node], graph: Graph) -> Iterator[str]:
    yield from _count_fault(args, 1)
    if node.axis not in node.axes:
        hint = did_you_mean(node.axis, node.axes)
        yield f"axis must be one of the node's axes, got {node.axis!r}; {hint}"
    for arg in args:
        if set(arg.axes) != set(node.axes):
            yield f"axes must be those of {arg.name} ({' '.join(arg.axes)}), got {node.axes}"
    if isinstance(node.init, str):
        allowed = [axis for axis in node.axes if axis != node.axis]
        extra = [axis for axis in graph.node(node.init).axes if axis not in allowed]
        if extra:
            yield f"init must have axes among {allowed}, got {', '.join(extra)} in {node.init}"


def _last_faults(node: Node, args: list[Node], graph: Graph) -> Iterator[str]:
    yield from _count_fault(args, 1)
    for arg in args:
        if node.axis not in arg.axes:
            hint = did_you_mean(node.axis, arg.axes)
            yield f"axis must be one of {arg.name}'s axes, got {node.axis!r}; {hint}"
        elif graph.axes.get(node.axis) == 0:
            yield f"axis must have a last point, got extent 0 for {node.axis}"
        if set(node.axes) != set(arg.axes) - {node.axis}:
            yield f"axes must be those of {arg.name} without {node.axis}, got {node.axes}"


_RULES: Mapping[str, Callable[[Node, list[Node], Graph], Iterator[str]]] = {
    "input": lambda node, args, graph: iter(()),
    "const": _const_faults,
    "map": _map_faults,
    "einsum": _einsum_faults,
    "reduce": _reduce_faults,
    "mask": _mask_faults,
    "read": _read_faults,
    "earlier": _earlier_faults,
    "last": _last_faults,
}


def _output_faults(output: Output, graph: Graph) -> Iterator[str]:
    yield from _axis_faults("axes", output.axes, graph)
    if output.merge not in MERGES:
        hint = did_you_mean(output.merge, MERGES[1:])
        yield f"merge must be empty, add or max, got {output.merge!r}; {hint}"
    if output.node not in graph.by_name:
        hint = did_you_mean(output.node, graph.by_name)
        yield f"node must be a node of the graph, got {output.node!r}; {hint}"
        return
    node = graph.node(output.node)
    if len(output.index) != len(output.axes):
        yield f"index must have {len(output.axes)} forms, got {len(output.index)}"
        return
    sound = True
    for form in output.index:
        for symbol in form.symbols():
            if symbol not in node.axes:
                sound = False
                hint = did_you_mean(symbol, node.axes)
                yield f"index must be over the axes of {node.name}, got {symbol!r}; {hint}"
    known = all(axis in graph.axes for axis in (*output.axes, *node.axes))
    if sound and known and not output.merge and not _injective(output, node, graph):
        forms = ", ".join(str(form) for form in output.index)
        yield f"merge must be add or max where points of {node.name} meet, got none for [{forms}]"


def _injective(output: Output, node: Node, graph: Graph) -> bool:
    """Whether no two points of the node's axes fall on one point of the output.

    Digits whose coefficients outgrow all smaller digits together are told apart; a form that
    tells all of its digits apart fixes them, and fixed digits drop out of the other forms.
    What this leaves open is enumerated where it is small, and counts as not injective elsewhere.
    """
    extents = {axis: graph.axes[axis] for axis in node.axes}
    open_axes = {axis for axis, extent in extents.items() if extent > 1}
    for _ in output.index:
        for form in output.index:
            mine = [(n, c) for n, c in form.terms if n in open_axes]
            if _digits_apart(mine, extents):
                open_axes -= {n for n, _ in mine}
    if not open_axes:
        return True
    if math.prod(extents.values()) > _ENUMERATED_POINTS:
        return False
    return not _points_meet(output.index, graph.shape(output.axes), extents)


def _digits_apart(terms: list[tuple[str, int]], extents: Mapping[str, int]) -> bool:
    reach = 0
    for name, coefficient in sorted(terms, key=lambda term: abs(term[1])):
        if abs(coefficient) <= reach:
            return False
        reach += abs(coefficient) * (extents[name] - 1)
    return True


def _points_meet(
    forms: tuple[Affine, ...], shape: tuple[int, ...], extents: Mapping[str, int]
) -> bool:
    seen: set[tuple[int, ...]] = set()
    for point in itertools.product(*(range(extent) for extent in extents.values())):
        values = dict(zip(extents, point, strict=True))
        place = tuple(form.evaluate(values) for form in forms)
        if any(not 0 <= p < size for p, size in zip(place, shape, strict=True)):
            continue
        if place in seen:
            return True
        seen.add(place)
    return False


def _recurrence_faults(graph: Graph) -> Iterator[str]:
    for group in recurrences(graph):
        axes = dict.fromkeys(node.axis for node in group if node.op == "earlier")
        if len(axes) != 1:
            names = ", ".join(node.name for node in group)
            yield f"nodes {names}: a cycle must run along one axis, got {', '.join(axes)}"
            continue
        (axis,) = axes
        members = {node.name for node in group}
        for node in group:
            yield from _step_faults(node, axis, members, graph)


def _step_faults(node: Node, axis: str, members: set[str], graph: Graph) -> Iterator[str]:
    """Within a cycle along `axis`, every node reads the cycle's nodes at its own point."""
    if axis not in node.axes:
        yield f"node {node.name}: axes must hold {axis}, along which its cycle runs, got none"
    if node.op != "read" or node.args[0] not in members:
        return
    source = graph.node(node.args[0])
    for name, form in zip(source.axes, node.index, strict=True):
        moved = form != Affine(((axis, 1),)) if name == axis else axis in form.symbols()
        if moved:
            yield f"node {node.name}: index of {name} must keep the cycle's {axis}, got {form}"
