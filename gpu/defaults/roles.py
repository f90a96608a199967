"""What each axis of a kernel becomes: grid, loop, written out, or part of the tile.

What every stored value has and nothing sums over is spread over programs; recurrences and long
sums become loops; an axis whose point chooses between two values is written out; the rest lies in
the tile.
"""

from __future__ import annotations

from dataflow.index import affine
from dataflow.nodes import Node
from dataflow.ops import contracted
from gpu.defaults.work import ROW_ELEMENTS, WHOLE_ROW, Work
from gpu.lowering.axes import power_of_two, product_sides

PRODUCT_DEPTH = 64
"""Depth of a step of a long product: 128 bytes a row in 16-bit types, one swizzle atom."""
WHOLE_SUM = 256
"""Longest summed axis of a product that lies whole in the tile."""


def recurrent_axes(work: Work) -> list[str]:
    """Axes along which a value of the kernel depends on its earlier points."""
    found = {node.axis for node in work.nodes if node.op == "earlier"}
    return [axis for axis in work.graph.axes if axis in found]


def unrolled_axes(work: Work) -> list[str]:
    """Axes whose point chooses between two values, such as the side of a pair."""
    graph = work.graph
    chosen = {node.args[0] for node in work.nodes if node.op == "map" and node.fn == "where"}
    sides = [graph.node(name) for name in chosen]
    found = {n.axes[0] for n in sides if (n.op, n.fn) == ("const", "affine") and len(n.axes) == 1}
    return [axis for axis in graph.axes if axis in found and graph.extent(axis) <= 4]


def free_axes(work: Work) -> list[str]:
    """Axes that every stored value has and that nothing sums over or renames."""
    lost = {axis for node in work.nodes for axis in contracted(node, work.graph)}
    lost |= {node.axis for node in work.nodes if node.op in ("earlier", "last")}
    made = {node.name for node in work.nodes}
    for node in work.nodes:
        if node.op == "read" and node.args[0] in made:
            source = work.graph.node(node.args[0])
            for axis, form in zip(source.axes, node.index, strict=True):
                if form != affine(axis):
                    lost |= {axis, *form.symbols()}
    shared = set.intersection(*(set(axes) for axes in work.stored))
    free = [axis for axis in work.graph.axes if axis in shared and axis not in lost]
    return [axis for axis in free if _mostly_has(work, axis)]


def _mostly_has(work: Work, axis: str) -> bool:
    """Whether at most half of the products would be worked out again by every program."""
    having = [node for node in work.products if _reaches(work, node, axis)]
    return 2 * len(having) >= len(work.products)


def _reaches(work: Work, node: Node, axis: str) -> bool:
    return any(axis in work.graph.node(name).axes for name in (node.name, *node.args))


def exchanged_axes(work: Work) -> dict[str, str]:
    """Axes that a recurrence reads under another name: what each step must hand to all."""
    found: dict[str, str] = {}
    for node in work.nodes:
        if node.op != "read":
            continue
        source = work.graph.node(node.args[0])
        if source.op != "earlier":
            continue
        for axis, form in zip(source.axes, node.index, strict=True):
            if form != affine(axis) and len(form.symbols()) == 1:
                found[axis] = form.symbols()[0]
    return found


def long_sums(work: Work, free: list[str], recurrent: list[str]) -> dict[str, int]:
    """Axes that are summed over step by step, and the points of a step."""
    graph = work.graph
    deep = {axis for node in work.products for axis in (product_sides(graph, node) or ((),) * 4)[3]}
    loop: dict[str, int] = {}
    for axis in graph.axes:
        used = any(axis in node.axes for node in work.nodes)
        summed = any(axis in contracted(node, graph) for node in work.nodes)
        if axis in free or axis in recurrent or axis in unrolled_axes(work) or not (used or summed):
            continue
        extent = graph.extent(axis)
        if axis in deep and extent > WHOLE_SUM and not _fed_by_product(work, axis):
            loop[axis] = PRODUCT_DEPTH
        elif axis not in deep and extent > (WHOLE_SUM if work.products else WHOLE_ROW):
            loop[axis] = min(ROW_ELEMENTS, power_of_two(extent))
    return loop


def _fed_by_product(work: Work, axis: str) -> bool:
    products = {node.name for node in work.products}
    return any(node.name in products and axis in node.axes for node in work.nodes)


def hoists(work: Work, axis: str) -> bool:
    """Whether some product of computed values does not change along `axis`."""
    moving = [node for node in work.products if axis in node.axes]
    return bool(moving) and any(axis not in node.axes for node in work.products)
