"""Fused cell: the gates of a recurrent cell formed unit by unit, in one loop over hidden units.

The plain form makes one tall product for all gates and cuts it up afterwards. Here each cut (a
read of a computed value, always inside it) moves to the inputs, by
    read(f(a, b)) = f(read a, read b)      for pointwise code and sums of products,
so that every gate has its own slice of the weights and all code of a unit lies on one axis.
Then what does not depend on the step before is added first: (c + h) + b = (c + b) + h where
only h is carried, which takes an addition out of the recurrence.
Source: Zhao et al., SpatialRNN, arXiv 1909.13654.
"""

from __future__ import annotations

import dataclasses

from dataflow.graph import Graph, Node, recurrences
from dataflow.index import affine
from dataflow.rewrites.draft import Digits, Draft, RewriteError, respell, span


def fused_cell(graph: Graph) -> Graph:
    """Return `graph` with cuts of computed gates moved to the inputs, sums ordered for the cell.

    Raises RewriteError where there is no recurrence, or no cut of a computed value that can move.
    """
    if not recurrences(graph):
        raise RewriteError(f"graph {graph.name}: a recurrence must be there, got none")
    faults: list[str] = []
    draft = Draft(graph)
    moved = 0
    for node in _cuts(graph):
        fault = _fault(graph, node)
        if fault:
            faults.append(fault)
            continue
        source = graph.node(node.args[0])
        forms = dict(zip(source.axes, node.index, strict=True))
        same = {axis for axis, form in forms.items() if form == affine(axis)}
        digits = Digits(
            {axis: form for axis, form in forms.items() if axis not in same},
            {axis: form.symbols() for axis, form in forms.items() if axis not in same},
            suffix=f".{node.name}",
        )
        try:
            new = respell(draft, source.name, digits, {})
        except RewriteError as error:
            faults += [f"node {node.name}: its source must be writable over its axes; {error}"]
            continue
        draft.redirect(node.name, new)
        moved += 1
    if not moved:
        nothing = f"graph {graph.name}: a cut of computed gates must be there, got none"
        raise RewriteError(faults or nothing)
    return _carried_last(draft.finish())


def _cuts(graph: Graph) -> list[Node]:
    """Return the reads of computed values that are more than a renaming of axes."""
    return [
        node
        for node in graph.nodes
        if node.op == "read"
        and graph.node(node.args[0]).op != "input"
        and not _renames(graph, node)
    ]


def _renames(graph: Graph, node: Node) -> bool:
    """Whether a read gives its source's axes other names and nothing else."""
    for axis, form in zip(graph.node(node.args[0]).axes, node.index, strict=True):
        symbols = form.symbols()
        if len(symbols) != 1 or form != affine(symbols[0]):
            return False
        if graph.extent(symbols[0]) != graph.extent(axis):
            return False
    return True


def _fault(graph: Graph, node: Node) -> str:
    source = graph.node(node.args[0])
    for axis, form in zip(source.axes, node.index, strict=True):
        low, high = span(form, graph.axes, {})
        if low < 0 or high >= graph.extent(axis):
            return (
                f"node {node.name}: index of {axis} must stay inside 0..{graph.extent(axis) - 1}, "
                f"got {form} from {low} to {high}"
            )
    symbols = [symbol for form in node.index for symbol in form.symbols()]
    if sorted(symbols) != sorted(node.axes):
        return f"node {node.name}: each of its axes must stand in one index form, got {node.index}"
    return ""


def _carried_last(graph: Graph) -> Graph:
    """Return `graph` with (c + h) + b as (c + b) + h where h alone is carried by a recurrence."""
    while True:
        found = _late_addend(graph)
        if found is None:
            return graph
        total, free, carried, late = found
        draft = Draft(graph)
        add = Node("", "map", total.axes, fn="add")
        first = draft.add(f"{total.name}.free", dataclasses.replace(add, args=(free, late)))
        whole = draft.add(total.name, dataclasses.replace(add, args=(first, carried)))
        draft.redirect(total.name, whole)
        graph = draft.finish()


def _late_addend(graph: Graph) -> tuple[Node, str, str, str] | None:
    """Return a sum (c + h) + b, and c, h and b."""
    carried = {node.name for group in recurrences(graph) for node in group}
    for total in graph.nodes:
        if (total.op, total.fn) != ("map", "add"):
            continue
        for inner, late in (total.args, total.args[::-1]):
            parts = graph.node(inner)
            if (parts.op, parts.fn) != ("map", "add") or len(graph.consumers(inner)) != 1:
                continue
            inside = [arg for arg in parts.args if arg in carried]
            free = [arg for arg in parts.args if arg not in carried]
            if late not in carried and len(inside) == len(free) == 1:
                return total, free[0], inside[0], late
    return None
