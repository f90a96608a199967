"""Warps, and steps whose loads are under way at once."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dataflow.nodes import TURNS, Graph, Node
from gpu.defaults.roles import free_axes, hoists, recurrent_axes, unrolled_axes
from gpu.defaults.tiles import lanes_of
from gpu.defaults.work import PRODUCT_ROWS, Card, Work
from gpu.lowering.axes import power_of_two, product_sides

CHAIN_RESULT = 64 * 64
"""Largest result of a chain of products that one warp group holds beside tables and state."""


def resources(work: Work, tile: Mapping[str, int], loop: Mapping[str, int], card: Card) -> dict:
    """The warps and stages of a kernel, who moves its tiles, and the order of its programs."""
    if not work.products:
        graph = work.graph
        axes = {axis for node in work.nodes for axis in node.axes}
        lanes = math.prod(
            tile[a] if a in tile else min(loop.get(a, graph.extent(a)), graph.extent(a))
            for a in axes
            if a in tile
            or a in loop
            or not any(a in stored for stored in work.stored)
            or a not in free_axes(work)
        )
        warps = 4 if lanes <= 4096 else 8 if lanes <= 16384 else 16
        return {"warps": warps, "stages": 2}
    rows = max(tile.values(), default=1)
    plain = not unrolled_axes(work) and len(tile) == 2 and not set(loop) & set(recurrent_axes(work))
    if plain and min(tile.values()) >= PRODUCT_ROWS:  # one product: its rows share the L2 cache
        wide = max(tile, key=work.graph.extent)
        other = next(axis for axis in tile if axis != wide)
        stages = min(4 if card.copies else 3, _stages(work, tile, loop, card))
        return {"warps": 8, "stages": stages, "descriptors": card.copies, "group": {other: 8}}
    if any(hoists(work, axis) for axis in free_axes(work)):  # a chain of products, all of a size
        results = [
            math.prod(lanes_of(work, side, free_axes(work), tile) for side in found[1:3])
            for node in work.products
            if (found := product_sides(work.graph, node)) is not None
        ]
        return {"warps": 8 if max(results) > CHAIN_RESULT else 4, "stages": 1}
    # through the copy engine blocks of 64 rows came 6 % sooner on an H200, of 128 rows 12 % later
    moved = card.copies and rows <= PRODUCT_ROWS // 2 and bool(loop)
    stages = min(3 if card.copies else 2, _stages(work, tile, loop, card))
    return {"warps": 8 if rows >= PRODUCT_ROWS else 4, "stages": stages, "descriptors": moved}


def _stages(work: Work, tile: Mapping[str, int], loop: Mapping[str, int], card: Card) -> int:
    """Steps whose loads fit shared memory beside the tiles that stay, in 16-bit types."""
    graph, free = work.graph, free_axes(work)
    each = held = 0
    for axes in sorted({node.axes for node in loaded(work)}):
        lanes = math.prod(
            tile.get(axis, 1) if axis in free else _in_tile(graph, axis, loop) for axis in axes
        )
        tiles = len([node for node in loaded(work) if node.axes == axes])
        if set(axes) & set(loop):
            each += 2 * lanes * tiles
        else:
            held += 2 * lanes * tiles
    return max(1, (card.shared_bytes - held) // each) if each else 3


def loaded(work: Work) -> list[Node]:
    """Nodes whose tiles come from memory: inputs, reads of inputs, tables."""
    graph = work.graph
    inputs = {node.name for node in graph.inputs}
    direct = {n for node in work.nodes if node.op != "read" for n in node.args if n in inputs}
    made = [
        node
        for node in work.nodes
        if (node.op == "read" and node.args[0] in inputs)
        or (node.op == "const" and node.fn in TURNS)
    ]
    return [*(graph.node(name) for name in sorted(direct)), *made]


def _in_tile(graph: Graph, axis: str, loop: Mapping[str, int]) -> int:
    return loop.get(axis, power_of_two(graph.extent(axis)))
