"""Recurrences whose every step reads all of the step before: one program a core, resident.

Each program has a share of the exchanged axis for all steps, and holds its weights as far as they
fit. One sequence multiplies rows by a vector: weights lie in registers, and are multiplied and
added up lane by lane. Several multiply matrices of 16 rows on tensor cores: weights lie in shared
memory as their operands, and each warp takes its own part of the long sum (`parts`), since the
result has no tile for more than two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dataflow.nodes import Graph
from gpu.defaults.work import Card, Work
from gpu.lowering.axes import power_of_two, product_sides
from gpu.lowering.parts import may_part

WARPS = 8
HELD_BYTES = 240 * 1024
"""Weights that a program's registers hold over a time loop, of the 256 KiB that a core has."""
FEWEST_ROWS = 16
"""Lanes of a product's left side (mma.sync m16n8k16): the sequences."""
FEWEST_COLUMNS = 8
"""Lanes of its right side: a program's share of the exchanged axis."""
PART_DEPTH = 64
"""Points of the summed axis that a warp takes at once, state passing through shared memory."""


def persistent(
    work: Work, recurrent: list[str], exchanged: Mapping[str, str], card: Card
) -> dict[str, Any]:
    """Grid, loop, tiles and what is read again, of one kernel of a schedule.

    recurrent: axes of its time loop. exchanged: the axis that each step hands to all programs, and
    the name under which they read it.
    """
    axis, renamed = next(iter(exchanged.items()))
    plan: dict[str, Any] = {"grid": [axis], "loop": recurrent, "warps": WARPS, "stages": 1}
    if _has_matrices(work, recurrent):
        return {**plan, **_matrices(work, recurrent, axis, renamed, card)}
    return {**plan, **_rows(work, recurrent, axis, renamed, card)}


def _rows(work: Work, recurrent: list[str], axis: str, renamed: str, card: Card) -> dict[str, Any]:
    """One sequence: weights in registers."""
    extent, long = work.graph.extent(axis), work.graph.extent(renamed)
    tile, points = _share(extent, card.cores)
    depth = _depth(long)
    unroll = [renamed] if depth < long else []
    tiles = {axis: tile, **({renamed: depth} if unroll else {})}
    unroll += [axis] if points > 1 else []
    weights = _weights(work, recurrent)
    held = HELD_BYTES // (2 * tile * points * long)
    return {
        "tile": tiles,
        "unroll": unroll,
        "chunk": {axis: points} if points > 1 else {},
        "reload": weights[held:],
    }


def _matrices(
    work: Work, recurrent: list[str], axis: str, renamed: str, card: Card
) -> dict[str, Any]:
    """Several sequences: weights in shared memory, beside what brings the state there."""
    graph = work.graph
    extent, long = graph.extent(axis), graph.extent(renamed)
    parts = _parts(graph, renamed)
    columns = FEWEST_COLUMNS * -(-extent // (card.cores * FEWEST_COLUMNS))
    tile = columns & -columns
    points = columns // tile
    depth = min(PART_DEPTH, _depth(long // parts))
    lanes = _sequences(work, {*recurrent, axis, renamed})
    state = 2 * lanes * parts * depth
    sums = 4 * lanes * parts * tile
    weights = _weights(work, recurrent)
    held = max(0, card.shared_bytes - state - sums) // (2 * columns * long)
    unroll = [renamed] if depth < long // parts else []
    tiles = {axis: tile, **({renamed: depth} if unroll else {})}
    unroll += [axis] if points > 1 else []
    return {
        "tile": tiles,
        "unroll": unroll,
        "chunk": {axis: points} if points > 1 else {},
        "parts": {renamed: parts} if parts > 1 else {},
        "reload": weights[held:],
    }


def _parts(graph: Graph, axis: str) -> int:
    """Parts of a long sum, at most one a warp, each as deep as a product on tensor cores at least.

    A power of two that divides the axis.
    """
    extent = graph.extent(axis)
    parts = math.gcd(WARPS, extent) if may_part(graph, axis) else 1
    while parts > 1 and extent // parts < FEWEST_ROWS:
        parts //= 2
    return parts


def _sequences(work: Work, others: set[str]) -> int:
    """Lanes of the side of products that the exchanged axis is not on."""
    axes = {a for node in work.products for a in node.axes if a not in others}
    lanes = math.prod(power_of_two(work.graph.extent(axis)) for axis in axes)
    return max(FEWEST_ROWS, lanes)


def _weights(work: Work, recurrent: list[str]) -> list[str]:
    """What products take that stands still over all steps, in order of use."""
    graph = work.graph
    return [
        name
        for node in work.nodes
        if node.op == "einsum"
        for name in node.args
        if not set(recurrent) & set(graph.node(name).axes)
    ]


def _has_matrices(work: Work, recurrent: list[str]) -> bool:
    """Whether some product is one of matrices at a single step of the recurrence."""
    sides = [product_sides(work.graph, node) for node in work.products]
    return any(
        all(any(work.graph.extent(a) > 1 for a in side if a not in recurrent) for side in found[1:])
        for found in sides
        if found is not None
    )


def _share(extent: int, cores: int) -> tuple[int, int]:
    """Tile and tiles of a program's share of an axis, so that programs are at most `cores`.

    >>> [_share(extent, 132) for extent in (1024, 1536, 2560, 2816)]
    [(8, 1), (4, 3), (4, 5), (8, 3)]
    """
    least = -(-extent // cores)
    shares = range(least, max(least, least * 9 // 8) + 1)
    tile = max(share & -share for share in shares)
    return tile, next(share // tile for share in shares if share & -share == tile)


def _depth(extent: int) -> int:
    """Lanes of a tile of a long row: a power of two that pads it by less than a sixteenth.

    >>> [_depth(extent) for extent in (1024, 1536, 2816, 2050)]
    [1024, 512, 256, 128]
    """
    tile = power_of_two(extent)
    while tile > 16 and -(-extent // tile) * tile * 16 > extent * 17:
        tile //= 2
    return tile
