"""Which values of a graph get a kernel of their own, before the one that makes its outputs.

A value that is read by anything but name (shifted, strided) is made by an earlier kernel; so is
what a recurrence reads and does not carry, where it holds a product (an LSTM's projection of its
inputs leaves the time loop); so is a product whose result is summed up again over an axis too long
for a tile.
"""

from __future__ import annotations

from dataflow.index import affine
from dataflow.nodes import Graph, Node, recurrences
from dataflow.ops import contracted

LONGEST_BETWEEN = 1024
"""Longest axis over which one product of a kernel feeds the next."""


def made_before(graph: Graph) -> list[list[str]]:
    """Groups of nodes that kernels before the last one make, in order."""
    cut = {name for node in graph.nodes for name in _must_be_made(graph, node)}
    groups: list[list[str]] = []
    level: dict[str, int] = {}
    for node in graph.nodes:
        below = max((level.get(name, 0) for name in node.sources), default=0)
        level[node.name] = below + (1 if node.name in cut else 0)
        if node.name in cut:
            while len(groups) < level[node.name]:
                groups.append([])
            groups[level[node.name] - 1].append(node.name)
    return [group for same in groups for group in _alike(graph, same)]


def _alike(graph: Graph, names: list[str]) -> list[list[str]]:
    """Values over the same axes are siblings and share a kernel."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        found.setdefault(graph.node(name).axes, []).append(name)
    return list(found.values())


def _must_be_made(graph: Graph, node: Node) -> list[str]:
    made = []
    if node.op == "read" and not _by_name(graph, node):
        source = graph.node(node.args[0])
        while source.op in ("read", "earlier"):
            source = graph.node(source.args[0])
        if source.op not in ("input", "const"):
            made.append(source.name)
    carried = {member.name for group in recurrences(graph) for member in group}
    if node.name in _cells(graph):
        made += [
            name
            for name in node.sources
            if name not in carried and _holds_product(graph, name) and _loops(graph, node, name)
        ]
    if node.op == "einsum":
        made += [
            name
            for name in node.args
            if _holds_product(graph, name)
            and any(graph.extent(axis) > LONGEST_BETWEEN for axis in _between(graph, node, name))
        ]
    return made


def _cells(graph: Graph) -> set[str]:
    """Nodes of recurrences that take a product at every step, as recurrent cells do."""
    cells = [g for g in recurrences(graph) if any(product_or_row(graph, node) for node in g)]
    return {member.name for group in cells for member in group}


def product_or_row(graph: Graph, node: Node) -> bool:
    """Whether `node` sums products over some axis."""
    return node.op == "einsum" and bool(contracted(node, graph))


def _by_name(graph: Graph, node: Node) -> bool:
    source = graph.node(node.args[0])
    ends = zip(source.axes, node.index, strict=True)
    return all(
        len(form.symbols()) == 1
        and form == affine(form.symbols()[0])
        and graph.extent(form.symbols()[0]) == graph.extent(axis)
        for axis, form in ends
    )


def _between(graph: Graph, node: Node, name: str) -> list[str]:
    axes = graph.node(name).axes
    return [axis for axis in contracted(node, graph) if axis in axes]


def _loops(graph: Graph, node: Node, name: str) -> bool:
    """Whether the value changes along the axis of the recurrence."""
    axes = {member.axis for group in recurrences(graph) if node in group for member in group}
    return bool(axes & set(graph.node(name).axes))


def _holds_product(graph: Graph, name: str) -> bool:
    """Whether working the value out takes a product of matrices, up to the next recurrence."""
    carried = {member.name for group in recurrences(graph) for member in group}
    waiting, seen = [name], set()
    while waiting:
        node = graph.node(waiting.pop())
        if node.name in seen or node.name in carried:
            continue
        seen.add(node.name)
        if product_or_row(graph, node):
            return True
        waiting.extend(node.sources)
    return False
