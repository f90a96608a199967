"""A sensible GpuSchedule for any graph, without a search.

Kernels: a value that is read by anything but name (shifted, strided) is made by an earlier kernel;
so is what a recurrence reads and does not carry, where it holds a product (an LSTM's projection of
its inputs leaves the time loop); so is a product whose result is summed up again over an axis too
long for a tile. Axes: what every output has and nothing sums over becomes the grid; recurrences
and long sums become loops; the rest lies in the tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dataflow.index import affine
from dataflow.nodes import TURNS, Graph, Node, live, recurrences
from dataflow.ops import contracted
from gpu.defaults.persistent import persistent
from gpu.defaults.rows import walked_rows
from gpu.defaults.stacks import with_stacks
from gpu.defaults.stages import staged, stages_of
from gpu.defaults.work import CARDS, Card, Work
from gpu.lowering.axes import power_of_two, product_sides
from gpu.lowering.scopes import cone
from gpu.plan import ITEM_BYTES, MEMORY_TYPE
from gpu.schedule import GpuSchedule

PRODUCT_ROWS = 128
"""Rows and columns of a product's tile: two warp groups of 64 rows fill a Hopper tensor core."""
PRODUCT_DEPTH = 64
"""Depth of a step of a long product: 128 bytes a row in 16-bit types, one swizzle atom."""
CHAIN_RESULT = 64 * 64
"""Largest result of a chain of products that one warp group holds beside tables and state."""
WHOLE_SUM = 256
"""Longest summed axis of a product that lies whole in the tile."""
WHOLE_ROW = 32768
"""Longest row of a kernel without products that lies whole in the tile."""
ROW_ELEMENTS = 4096
"""Elements that a program of a kernel without products works on at once."""
LONGEST_BETWEEN = 1024
"""Longest axis over which one product of a kernel feeds the next."""


def default_schedule(graph: Graph, precision: str = "bf16", card: str = "h200") -> GpuSchedule:
    """Return a schedule for `graph` on `card` (a key of CARDS), with tensors of `precision`."""
    graph = live(graph)
    made = CARDS[card]
    # shared memory is counted in 16-bit numbers below
    made = replace(made, shared_bytes=made.shared_bytes * 2 // ITEM_BYTES[MEMORY_TYPE[precision]])
    outputs = [output.name for output in graph.outputs]
    kernels = []
    memory = {node.name for node in graph.inputs}
    parts = stages_of(graph)
    cuts = [*_cuts(graph), *([list(parts.first), list(parts.middle)] if parts else [])]
    for makes in [*cuts, outputs]:
        kernel = _kernel(graph, makes, memory, made)
        kernels.append(staged(graph, parts, kernel, memory) if parts else kernel)
        memory.update(makes)
    schedule = GpuSchedule.model_validate({"precision": precision, "kernels": kernels})
    return with_stacks(graph, schedule) if made.copies else schedule


# --- where to cut ------------------------------------------------------------------------------


def _cuts(graph: Graph) -> list[list[str]]:
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


# --- one kernel --------------------------------------------------------------------------------


def _kernel(graph: Graph, makes: list[str], memory: set[str], card: Card) -> dict:
    work = _work(graph, makes, memory)
    recurrent = _recurrent(work)
    exchanged = _exchanged(work) if card.cooperative else {}
    unrolled = _unrolled(work)
    kept = {*recurrent, *exchanged, *unrolled}
    free = [axis for axis in _free_axes(work) if axis not in kept]
    if exchanged:
        return {"makes": makes, **persistent(work, recurrent, exchanged, card)}
    tile = _enough_programs(work, _broad(work, _tiles(work, free, card), card), free, card)
    loop = dict.fromkeys(recurrent, 1)
    loop.update(_long_sums(work, free, recurrent))
    hoisted = [axis for axis in free if _hoists(work, axis)]
    grid = sorted(free, key=lambda axis: (tile.get(axis, 1) == 1, -graph.extent(axis)))
    plan = {
        "makes": makes,
        "tile": {a: t for a, t in {**tile, **loop}.items() if t > 1},
        "grid": grid,
        "loop": [*hoisted, *loop],
        "unroll": unrolled,
        "chunk": {axis: _chunk(work, axis, tile, grid, card) for axis in hoisted},
    }
    return {**plan, **_resources(work, tile, loop, card), **_walked(work, grid, tile, loop, card)}


def _walked(
    work: Work, grid: list[str], tile: Mapping[str, int], loop: Mapping[str, int], card: Card
) -> dict:
    """One program a core over rows that are too long for several (`gpu.defaults.rows`)."""
    graph = work.graph
    if work.products or loop or any(tile.get(axis, 1) > 1 for axis in grid):
        return {}
    inside = {axis for node in work.nodes for axis in node.axes} - set(grid)
    elements = math.prod(power_of_two(graph.extent(axis)) for axis in inside)
    extents = [(axis, graph.extent(axis)) for axis in grid]
    return walked_rows(extents, elements, len(_loaded(work)), card.cores, card.shared_bytes)


def _work(graph: Graph, makes: list[str], memory: set[str]) -> Work:
    outputs = {output.name: output.node for output in graph.outputs}
    wanted = [outputs.get(name, name) for name in makes]
    nodes = tuple(node for node in cone(graph, wanted, memory) if node.name not in memory)
    return Work(graph, nodes, tuple(graph.node(name).axes for name in wanted))


def _recurrent(work: Work) -> list[str]:
    found = {node.axis for node in work.nodes if node.op == "earlier"}
    return [axis for axis in work.graph.axes if axis in found]


def _unrolled(work: Work) -> list[str]:
    """Axes whose point chooses between two values, such as the side of a pair."""
    graph = work.graph
    chosen = {node.args[0] for node in work.nodes if node.op == "map" and node.fn == "where"}
    sides = [graph.node(name) for name in chosen]
    found = {n.axes[0] for n in sides if (n.op, n.fn) == ("const", "affine") and len(n.axes) == 1}
    return [axis for axis in graph.axes if axis in found and graph.extent(axis) <= 4]


def _free_axes(work: Work) -> list[str]:
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


def _exchanged(work: Work) -> dict[str, str]:
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


def _tiles(work: Work, free: list[str], card: Card) -> dict[str, int]:
    """Tiles of grid axes: rows and columns of products, or elements of rows."""
    if not work.products:
        return _row_tiles(work, free)
    tile: dict[str, int] = {}
    for node in work.products:
        sides = product_sides(work.graph, node)
        assert sides is not None
        for side, other in (sides[1:3], sides[2:0:-1]):
            spare = [axis for axis in side if axis in free]
            lanes, beside = (_lanes(work, part, free, tile) for part in (side, other))
            enough = lanes >= PRODUCT_ROWS // 2 or (lanes >= 16 and beside >= PRODUCT_ROWS // 2)
            if enough or not spare:
                continue
            axis = max(spare, key=work.graph.extent)
            wanted = _wanted(work, axis, free, card) if lanes == 1 else PRODUCT_ROWS // 2 // lanes
            tile[axis] = min(wanted, power_of_two(work.graph.extent(axis)))
    return _wide_enough(work, tile)


def _broad(work: Work, tile: dict[str, int], card: Card) -> dict[str, int]:
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
                columns.append(_lanes(work, other, free, {}))
    whole = [count for count in columns if count > 1]
    few = bool(whole) and (min(whole) <= PRODUCT_ROWS // 2 or not card.copies)
    return PRODUCT_ROWS // 2 if few else PRODUCT_ROWS


def _lanes(work: Work, side: Iterable[str], free: Iterable[str], tile: Mapping[str, int]) -> int:
    """Rows or columns that one side of a product has in a tile."""
    return math.prod(
        tile.get(axis, 1) if axis in free else power_of_two(work.graph.extent(axis))
        for axis in side
    )


def _enough_programs(
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


def _long_sums(work: Work, free: list[str], recurrent: list[str]) -> dict[str, int]:
    """Axes that are summed over step by step, and the points of a step."""
    graph = work.graph
    deep = {axis for node in work.products for axis in (product_sides(graph, node) or ((),) * 4)[3]}
    loop: dict[str, int] = {}
    for axis in graph.axes:
        used = any(axis in node.axes for node in work.nodes)
        summed = any(axis in contracted(node, graph) for node in work.nodes)
        if axis in free or axis in recurrent or axis in _unrolled(work) or not (used or summed):
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


def _hoists(work: Work, axis: str) -> bool:
    """Whether some product of computed values does not change along `axis`."""
    moving = [node for node in work.products if axis in node.axes]
    return bool(moving) and any(axis not in node.axes for node in work.products)


def _chunk(work: Work, axis: str, tile: Mapping[str, int], grid: Iterable[str], card: Card) -> int:
    """Tiles of `axis` that one program walks, so that some two programs a core are left."""
    tiles = -(-work.graph.extent(axis) // tile.get(axis, 1))
    others = math.prod(-(-work.graph.extent(a) // tile.get(a, 1)) for a in grid if a != axis)
    wanted = max(1, -(-2 * card.cores // others))
    return max(1, tiles // wanted)


def _stages(work: Work, tile: Mapping[str, int], loop: Mapping[str, int], card: Card) -> int:
    """Steps whose loads fit shared memory beside the tiles that stay, in 16-bit types."""
    graph, free = work.graph, _free_axes(work)
    each = held = 0
    for axes in sorted({node.axes for node in _loaded(work)}):
        lanes = math.prod(
            tile.get(axis, 1) if axis in free else _in_tile(graph, axis, loop) for axis in axes
        )
        tiles = len([node for node in _loaded(work) if node.axes == axes])
        if set(axes) & set(loop):
            each += 2 * lanes * tiles
        else:
            held += 2 * lanes * tiles
    return max(1, (card.shared_bytes - held) // each) if each else 3


def _loaded(work: Work) -> list[Node]:
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


def _resources(work: Work, tile: Mapping[str, int], loop: Mapping[str, int], card: Card) -> dict:
    if not work.products:
        graph = work.graph
        axes = {axis for node in work.nodes for axis in node.axes}
        lanes = math.prod(
            tile[a] if a in tile else min(loop.get(a, graph.extent(a)), graph.extent(a))
            for a in axes
            if a in tile
            or a in loop
            or not any(a in stored for stored in work.stored)
            or a not in _free_axes(work)
        )
        warps = 4 if lanes <= 4096 else 8 if lanes <= 16384 else 16
        return {"warps": warps, "stages": 2}
    rows = max(tile.values(), default=1)
    plain = not _unrolled(work) and len(tile) == 2 and not set(loop) & set(_recurrent(work))
    if plain and min(tile.values()) >= PRODUCT_ROWS:  # one product: its rows share the L2 cache
        wide = max(tile, key=work.graph.extent)
        other = next(axis for axis in tile if axis != wide)
        stages = min(4 if card.copies else 3, _stages(work, tile, loop, card))
        return {"warps": 8, "stages": stages, "descriptors": card.copies, "group": {other: 8}}
    if any(_hoists(work, axis) for axis in _free_axes(work)):  # a chain of products, all of a size
        results = [
            math.prod(_lanes(work, side, _free_axes(work), tile) for side in found[1:3])
            for node in work.products
            if (found := product_sides(work.graph, node)) is not None
        ]
        return {"warps": 8 if max(results) > CHAIN_RESULT else 4, "stages": 1}
    # through the copy engine blocks of 64 rows came 6 % sooner on an H200, of 128 rows 12 % later
    moved = card.copies and rows <= PRODUCT_ROWS // 2 and bool(loop)
    stages = min(3 if card.copies else 2, _stages(work, tile, loop, card))
    return {"warps": 8 if rows >= PRODUCT_ROWS else 4, "stages": stages, "descriptors": moved}
