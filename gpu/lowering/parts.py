"""Long sums of products as partial sums side by side, one for every warp.

A product of few rows and few columns has no tile for more than one or two warps; all others would
hold its operands again and multiply the same. With the summed axis cut into as many parts as there
are warps, each warp multiplies its own part, and one sum over the parts ends it. The rewrite is one
of the graph, so that all that follows knows nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dataflow.index import affine
from dataflow.nodes import Graph, Node
from dataflow.ops import contracted


def part_of(axis: str) -> str:
    """The axis whose points are the parts of `axis`."""
    return f"{axis}.part"


def parted(graph: Graph, parts: Mapping[str, int]) -> Graph:
    """Return `graph` with each axis of `parts` cut into so many parts of equal extent.

    The axis keeps its name for the points inside a part; tensors that have it are as they were.
    Only for axes that `may_part` allows.
    """
    for axis, count in parts.items():
        graph = _cut(graph, axis, count)
    return graph


def may_part(graph: Graph, axis: str) -> bool:
    """Whether parts of `axis` can be summed apart: reads make it, only products over it take it."""
    having = [node for node in graph.nodes if axis in node.axes and node.op != "input"]
    summing = [node for node in graph.nodes if _sums(graph, node, axis)]
    return (
        bool(summing)
        and all(node.op == "read" for node in having)
        and not any(axis in graph.node(output.node).axes for output in graph.outputs)
        and all(
            node in summing or node.op == "read"
            for source in graph.nodes
            if axis in source.axes
            for node in graph.consumers(source.name)
        )
    )


def _sums(graph: Graph, node: Node, axis: str) -> bool:
    return node.op == "einsum" and axis in contracted(node, graph)


def _cut(graph: Graph, axis: str, count: int) -> Graph:
    extent = graph.extent(axis)
    part, whole = part_of(axis), f"{axis}.whole"
    axes = {
        name: points
        for one, size in graph.axes.items()
        for name, points in (
            [(whole, extent), (part, count), (axis, extent // count)]
            if one == axis
            else [(one, size)]
        )
    }
    point = affine(axis) + (extent // count) * affine(part)
    nodes: list[Node] = []
    tiles: dict[str, str] = {}
    for node in graph.nodes:
        if axis in node.axes and node.op == "input":
            named = tuple(whole if a == axis else a for a in node.axes)
            nodes.append(replace(node, axes=named))
        elif axis in node.axes:
            index = tuple(form.substitute({axis: point}) for form in node.index)
            nodes.append(replace(node, axes=_both(node, axis), index=index))
        elif _sums(graph, node, axis):
            for name in node.args:
                source = graph.node(name)
                if source.op == "input" and axis in source.axes and name not in tiles:
                    tiles[name] = f"{name}.parts"
                    index = tuple(point if a == axis else affine(a) for a in source.axes)
                    read = Node(tiles[name], "read", _both(source, axis), (name,), index=index)
                    nodes.append(read)
            args = tuple(tiles.get(name, name) for name in node.args)
            name = f"{node.name}.parts"
            nodes.append(replace(node, name=name, axes=(part, *node.axes), args=args))
            nodes.append(Node(node.name, "reduce", node.axes, (name,), "sum"))
        else:
            nodes.append(node)
    return Graph(graph.name, axes, tuple(nodes), graph.outputs)


def _both(node: Node, axis: str) -> tuple[str, ...]:
    part = part_of(axis)
    return tuple(one for a in node.axes for one in ((part, axis) if a == axis else (a,)))
