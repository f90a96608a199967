"""Find long convolutions in a graph: y[n] = sum_m x[m] z[n - m + c], summed over offsets c.

What is found is the algebra, not names: a sum over one axis m of a node x that has m and of
reads of one source z at `n - m + c`, 0 outside z. Offset 0 is the causal convolution; offsets
0 and N together are the circular one of length N.
"""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.graph import Graph, Node
from dataflow.index import affine


@dataclass(frozen=True)
class Factor:
    """One of the two convolved values: a node, its convolved axis, and its axes' names in y."""

    node: str
    axis: str
    names: tuple[tuple[str, str], ...]  # (axis of the node, axis of y), without the convolved one


@dataclass(frozen=True)
class Convolution:
    """y[n] = sum over offsets c of the full linear convolution of signal and filter at n + c.

    The filter is the factor with fewer axes: what is prepared once a filter is then cheapest.
    """

    y: str
    axis: str
    signal: Factor
    filter: Factor
    offsets: tuple[int, ...]


def find_convolution(graph: Graph) -> Convolution | None:
    """Return the first convolution of `graph` in node order, None where there is none."""
    for node in graph.nodes:
        if node.op == "einsum" and len(node.args) == 2:
            for direct, shifted in (node.args, node.args[::-1]):
                found = _match(graph, node, graph.node(direct), graph.node(shifted))
                if found is not None:
                    return found
    return None


def _match(graph: Graph, y: Node, direct: Node, shifted: Node) -> Convolution | None:
    summed = {axis for arg in y.args for axis in graph.node(arg).axes} - set(y.axes)
    reads = _reads(graph, shifted)
    if len(summed) != 1 or not summed <= set(direct.axes) or not reads:
        return None
    (m,) = summed
    places = [_place(graph, read, m) for read in reads]
    if any(place is None for place in places):
        return None
    sources = {place[0] for place in places if place}
    n_axes = {place[1] for place in places if place}
    if len(sources) != 1 or len(n_axes) != 1:
        return None
    (other,), (n,) = sources, n_axes
    offsets = tuple(sorted(place[2] for place in places if place))
    if n in direct.axes or len(set(offsets)) != len(offsets):
        return None
    names = tuple((axis, axis) for axis in direct.axes if axis != m)
    one = Factor(direct.name, m, names)
    fewer = len(other.names) < len(one.names)
    signal, filter_ = (one, other) if fewer else (other, one)
    return Convolution(y.name, n, signal, filter_, offsets)


def _reads(graph: Graph, node: Node) -> list[Node]:
    """Return the reads that `node` is the sum of; none where it is anything else."""
    if node.op == "read":
        return [node]
    if (node.op, node.fn) != ("map", "add"):
        return []
    parts = [_reads(graph, graph.node(arg)) for arg in node.args]
    return [read for part in parts for read in part] if all(parts) else []


def _place(graph: Graph, read: Node, m: str) -> tuple[Factor, str, int] | None:
    """Return what a read of z at `n - m + c` reads, along which n, and c."""
    source = graph.node(read.args[0])
    convolved: list[tuple[str, str, int]] = []
    names: list[tuple[str, str]] = []
    for axis, form in zip(source.axes, read.index, strict=True):
        if m not in form.symbols():
            symbols = form.symbols()
            if len(symbols) != 1 or form != affine(symbols[0]):
                return None
            names.append((axis, symbols[0]))
            continue
        rest = form + affine(m) - form.constant
        if len(rest.terms) != 1 or rest.terms[0][1] != 1 or rest.terms[0][0] == m:
            return None
        convolved.append((axis, rest.terms[0][0], form.constant))
    if len(convolved) != 1 or read.fill != 0.0:
        return None
    ((axis, n, offset),) = convolved
    used = [name for _, name in names]
    if n in used or len(set(used)) != len(used):
        return None
    return Factor(source.name, axis, tuple(names)), n, offset
