"""How many points of the axes of the grid one program works on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from gpu.defaults.work import PRODUCT_ROWS, ROW_ELEMENTS, WHOLE_ROW, Card, Work
from gpu.lowering.axes import power_of_two, product_sides


def grid_tiles(work: Work, free: list[str], card: Card) -> dict[str, int]:
    """Tiles of grid axes: rows and columns of products, or elements of rows."""
    if not work.products:
        return _row_tiles(work, free)
    tile: dict[str, int] = {}
    for node in work.products:
        sides = product_sides(work.graph, node)
        assert sides is not None
        for side, other in (sides[1:3], sides[2:0:-1]):
            spare = [axis for axis in side if axis in free]
            lanes, beside = (lanes_of(work, part, free, tile) for part in (side, other))
            enough = lanes >= PRODUCT_ROWS // 2 or (lanes >= 16 and beside >= PRODUCT_ROWS // 2)
            if enough or not spare:
                continue
            axis = max(spare, key=work.graph.extent)
            wanted = _wanted(work, axis, free, card) if lanes == 1 else PRODUCT_ROWS // 2 // lanes
            tile[axis] = min(wanted, power_of_two(work.graph.extent(axis)))
    return _wide_enough(work, tile)


def broad(work: Work, tile: dict[str, int], card: Card) -> dict[str, int]:
    """256 columns for a single large product: half as many bytes of its rows are read again."""
    graph = work.graph
    if (
        not card.copies
        or len(work.products) != 1
        or sorted(tile.values()) != [PRODUCT_ROWS, PRODUCT_ROWS]
    ):
        return tile
    (_, columns) = tile
    tiles = math.prod(-(-graph.extent(axis) // size) for axis, size in tile.items())
    return {**tile, columns: 2 * PRODUCT_ROWS} if tiles >= 4 * card.cores else tile


def _wanted(work: Work, axis: str, free: list[str], card: Card) -> int:
    """Rows of a tile: 64 where they meet at most 64 columns that lie whole in it, else 128.

    With few columns, state and result of 64 rows leave a core room for more programs. Cards whose
    products take both operands from registers have room for 64 rows of them.
    """
    columns = []
    for node in work.products:
        sides = product_sides(work.graph, node) or ((),) * 4
        for side, other in (sides[1:3], sides[2:0:-1]):
            if axis in side:
                columns.append(lanes_of(work, other, free, {}))
    whole = [count for count in columns if count > 1]
    few = bool(whole) and (min(whole) <= PRODUCT_ROWS // 2 or not card.copies)
    return PRODUCT_ROWS // 2 if few else PRODUCT_ROWS


def lanes_of(work: Work, side: Iterable[str], free: Iterable[str], tile: Mapping[str, int]) -> int:
    """Rows or columns that one side of a product has in a tile."""
    return math.prod(
        tile.get(axis, 1) if axis in free else power_of_two(work.graph.extent(axis))
        for axis in side
    )


def enough_programs(
    work: Work, tile: dict[str, int], free: Iterable[str], card: Card
) -> dict[str, int]:
    """Halve the tiles of a product until every core has a program, down to 32 rows and columns."""
    tile = dict(tile)
    if not work.products:
        return tile
    while True:
        programs = math.prod(-(-work.graph.extent(a) // tile.get(a, 1)) for a in free)
        large = [axis for axis in tile if tile[axis] > 32]
        if programs >= card.cores or not large or card.name == "interpreter":
            return tile
        axis = max(large, key=lambda a: (-(-work.graph.extent(a) // tile[a]), tile[a]))
        tile[axis] //= 2


def _wide_enough(work: Work, tile: dict[str, int]) -> dict[str, int]:
    """Sides of a product have at least 16 lanes."""
    for node in work.products:
        for side in (product_sides(work.graph, node) or ())[1:3]:
            tiled = [axis for axis in side if axis in tile]
            if tiled and math.prod(tile[axis] for axis in tiled) < 16:
                tile[tiled[0]] = 16
    return tile


def _row_tiles(work: Work, free: list[str]) -> dict[str, int]:
    graph = work.graph
    inside = {axis for node in work.nodes for axis in node.axes} - set(free)
    lanes = math.prod(min(power_of_two(graph.extent(axis)), WHOLE_ROW) for axis in inside)
    tile: dict[str, int] = {}
    for axis in reversed(free):
        spare = ROW_ELEMENTS // 4 // max(1, lanes)
        if spare < 2:
            break
        tile[axis] = min(spare, power_of_two(graph.extent(axis)))
        lanes *= tile[axis]
    return tile


def chunk_of(
    work: Work, axis: str, tile: Mapping[str, int], grid: Iterable[str], card: Card
) -> int:
    """Tiles of `axis` that one program walks, so that some two programs a core are left."""
    tiles = -(-work.graph.extent(axis) // tile.get(axis, 1))
    others = math.prod(-(-work.graph.extent(a) // tile.get(a, 1)) for a in grid if a != axis)
    wanted = max(1, -(-2 * card.cores // others))
    return max(1, tiles // wanted)
