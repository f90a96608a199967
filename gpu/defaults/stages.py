"""Chains of products by tables that are too large for one program, in three kernels.

A transform of 32 K points does not fit the registers of a core. But its first digit's products, and
its last ones back, are over few points each, and all between them are one shorter transform for
each frequency k1 of that digit:

    first digit (n1 -> k1), twiddle  |  the other digits there and back, for every k1  |  k1 -> m1

The first and the last kernel read and write memory at its speed; where their digit is shorter than
a tensor core's side they multiply point by point. The middle one is a chain that fits a program.
What lies between them is twice the signal, written and read once each way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from dataflow.nodes import Graph, Node
from dataflow.ops import contracted
from gpu.lowering.axes import SMALLEST_PRODUCT_SIDE, power_of_two, product_sides
from gpu.lowering.scopes import cone

LARGEST_CHAIN = 8192
"""Points of a product's result that a program of 8 warps holds beside tables and state, where each
of its two digits is a side of the tile."""
CHAIN_RESULT = 4096
"""Points of a result that one warp group holds so; of three digits, two of them on one side."""
POINTS = 512
"""Points that a program without tensor cores works on at once, of each sum that it writes out."""


@dataclass(frozen=True)
class Stages:
    """What the first and the middle kernel of a chain make, and the axis that parts them."""

    axis: str
    first: tuple[str, ...]
    middle: tuple[str, ...]


@dataclass(frozen=True)
class _Link:
    """A product of a value by a table: axes that it sums over, those that the table brings in."""

    node: Node
    value: Node
    lost: frozenset[str]
    gained: frozenset[str]

    @property
    def axes(self) -> set[str]:
        return {*self.node.axes, *self.value.axes}


def stages_of(graph: Graph) -> Stages | None:
    """Return where a chain that is too large for one program is cut, None where there is none."""
    links = list(_links(graph))
    digits = {axis for link in links for axis in (*link.lost, *link.gained)}
    used = {axis for link in links for axis in link.axes} - digits
    outer = {axis for o in graph.outputs for axis in graph.node(o.node).axes} & used
    links = [link for link in links if outer <= link.axes]  # not those that are done once a filter
    size = max((_size(graph, link, digits) for link in links), default=0)
    inner = {a for link in links for a in link.gained} & {a for link in links for a in link.lost}
    found: list[tuple[int, str]] = []
    for axis in (axis for axis in graph.axes if axis in inner):
        between = [link for link in links if axis in link.node.axes and axis in link.value.axes]
        others = {each for link in between for each in link.gained}
        limit = LARGEST_CHAIN if len(others) <= 2 else CHAIN_RESULT  # a digit there and back
        if between and size > limit:
            found.append((len(between), axis))
    if not found:
        return None
    axis = max(found, key=lambda each: each[0])[1]
    gaining = {link.node.name for link in links if axis in link.gained}
    between = [link for link in links if axis in link.node.axes and axis in link.value.axes]
    sources = {k.value.name: _made_by(graph, k.value) for k in between}
    first = tuple(name for name, made in sources.items() if made and made <= gaining)
    middle = [name for k in links if axis in k.lost for name in _sums_behind(graph, k.value)]
    return Stages(axis, first, tuple(dict.fromkeys(middle))) if first and middle else None


def _links(graph: Graph) -> Iterator[_Link]:
    for node in graph.nodes:
        if product_sides(graph, node) is None:
            continue
        args = [graph.node(name) for name in node.args]
        tables = [arg for arg in args if arg.op == "const"]
        values = [arg for arg in args if arg.op != "const"]
        if len(tables) == 1 and len(values) == 1:
            gained = frozenset(tables[0].axes) - frozenset(values[0].axes)
            yield _Link(node, values[0], frozenset(contracted(node, graph)), gained)


def _size(graph: Graph, link: _Link, digits: set[str]) -> int:
    """Points along digits of the larger of a product's value and result."""
    return max(
        math.prod(power_of_two(graph.extent(axis)) for axis in node.axes if axis in digits)
        for node in (link.node, link.value)
    )


def _made_by(graph: Graph, node: Node) -> set[str]:
    """The sums that a value comes from through pointwise code alone."""
    if node.op != "map":
        return {node.name} if node.op == "einsum" else set()
    return {name for arg in node.args for name in _made_by(graph, graph.node(arg))}


def _sums_behind(graph: Graph, node: Node) -> list[str]:
    """The values of sums alone that a value comes from through pointwise code."""
    args = [graph.node(name) for name in node.args]
    if node.op == "einsum" or (node.op == "map" and all(arg.op == "einsum" for arg in args)):
        return [node.name]
    return [n for arg in args for n in _sums_behind(graph, arg)] if node.op == "map" else []


def staged(graph: Graph, stages: Stages, kernel: dict, memory: set[str]) -> dict:
    """Return the default `kernel` of a chain in stages, its short sums written out."""
    outputs = {output.name: output.node for output in graph.outputs}
    makes: list[str] = kernel["makes"]
    stored = [outputs.get(name, name) for name in makes]
    made = {node.name for node in cone(graph, stored, memory)} - memory
    links = [link for link in _links(graph) if link.node.name in made]
    lost = {axis for link in links for axis in link.lost}
    short = {a for a in graph.axes if graph.extent(a) < SMALLEST_PRODUCT_SIDE}
    if tuple(makes) == stages.middle:
        return _middle(graph, stages.axis, kernel, links)
    sides = lost | {axis for link in links for axis in link.gained}
    return _end(graph, graph.node(stored[0]), kernel, sides, sides <= short)


def _middle(graph: Graph, axis: str, kernel: dict, links: list[_Link]) -> dict:
    """A chain for each of some points of `axis`: as many as one warp group's tile has room for.

    Of a single point the filter's first digit is a sum of terms.
    """
    digits = {a for link in links for a in (*link.lost, *link.gained)} - {axis}
    rest = max(_size(graph, link, digits) for link in links if axis not in link.gained)
    tile = min(kernel["tile"].get(axis, 1), max(1, CHAIN_RESULT // rest))
    terms = {a for link in links if axis in link.gained and tile == 1 for a in link.lost}
    tiles = {**kernel["tile"], axis: tile, **dict.fromkeys(sorted(terms), 1)}
    unroll = [*kernel["unroll"], *(a for a in graph.axes if a in terms)]
    warps = 4 if tile * rest <= CHAIN_RESULT else 8
    return {**kernel, "tile": tiles, "unroll": unroll, "warps": warps}


def _end(graph: Graph, stored: Node, kernel: dict, sides: set[str], short: bool) -> dict:
    """One digit's sums over rows of points: term by term where all are short, else products."""
    whole = [axis for axis in graph.axes if axis in sides]
    unroll = [*kernel["unroll"], *(whole if short else [])]
    width = 1 if short else max(power_of_two(graph.extent(axis)) for axis in whole)
    points = POINTS if short else max(SMALLEST_PRODUCT_SIDE, CHAIN_RESULT // width)
    *others, row = [axis for axis in stored.axes if axis not in {*unroll, *sides}]
    lanes = min(points, power_of_two(graph.extent(row)))
    tile = dict.fromkeys(whole if short else [], 1)
    grid = list(reversed(others))
    if lanes < graph.extent(row):
        tile[row], grid = lanes, [row, *grid]
    elif others:
        tile[others[-1]] = min(points // lanes, power_of_two(graph.extent(others[-1])))
    plan = {"makes": kernel["makes"], "tile": tile, "grid": grid, "loop": [], "unroll": unroll}
    return {**plan, "warps": 4, "stages": 1}
