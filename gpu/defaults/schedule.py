"""A sensible GpuSchedule for any graph, without a search.

Which kernels there are says `cuts.py`, what each axis of a kernel becomes `roles.py`, how many of
its points a program takes `tiles.py`, and the warps and stages `resources.py`. Recurrences whose
programs exchange a state go by `persistent.py`, transforms in three kernels by `stages.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dataflow.nodes import Graph, live
from gpu.defaults.cuts import made_before
from gpu.defaults.persistent import persistent
from gpu.defaults.resources import loaded, resources
from gpu.defaults.roles import (
    exchanged_axes,
    free_axes,
    hoists,
    long_sums,
    recurrent_axes,
    unrolled_axes,
)
from gpu.defaults.rows import walked_rows
from gpu.defaults.stacks import with_stacks
from gpu.defaults.stages import staged, stages_of
from gpu.defaults.tiles import broad, chunk_of, enough_programs, grid_tiles
from gpu.defaults.work import CARDS, Card, Work
from gpu.lowering.axes import power_of_two
from gpu.lowering.scopes import cone
from gpu.plan import ITEM_BYTES, MEMORY_TYPE
from gpu.schedule import GpuSchedule


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
    cuts = [*made_before(graph), *([list(parts.first), list(parts.middle)] if parts else [])]
    for makes in [*cuts, outputs]:
        kernel = _kernel(graph, makes, memory, made)
        kernels.append(staged(graph, parts, kernel, memory) if parts else kernel)
        memory.update(makes)
    schedule = GpuSchedule.model_validate({"precision": precision, "kernels": kernels})
    return with_stacks(graph, schedule) if made.copies else schedule


def _kernel(graph: Graph, makes: list[str], memory: set[str], card: Card) -> dict:
    work = _work(graph, makes, memory)
    recurrent = recurrent_axes(work)
    exchanged = exchanged_axes(work) if card.cooperative else {}
    unrolled = unrolled_axes(work)
    kept = {*recurrent, *exchanged, *unrolled}
    free = [axis for axis in free_axes(work) if axis not in kept]
    if exchanged:
        return {"makes": makes, **persistent(work, recurrent, exchanged, card)}
    tile = enough_programs(work, broad(work, grid_tiles(work, free, card), card), free, card)
    loop = dict.fromkeys(recurrent, 1)
    loop.update(long_sums(work, free, recurrent))
    hoisted = [axis for axis in free if hoists(work, axis)]
    grid = sorted(free, key=lambda axis: (tile.get(axis, 1) == 1, -graph.extent(axis)))
    plan = {
        "makes": makes,
        "tile": {a: t for a, t in {**tile, **loop}.items() if t > 1},
        "grid": grid,
        "loop": [*hoisted, *loop],
        "unroll": unrolled,
        "chunk": {axis: chunk_of(work, axis, tile, grid, card) for axis in hoisted},
    }
    return {**plan, **resources(work, tile, loop, card), **_walked(work, grid, tile, loop, card)}


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
    return walked_rows(extents, elements, len(loaded(work)), card.cores, card.shared_bytes)


def _work(graph: Graph, makes: list[str], memory: set[str]) -> Work:
    outputs = {output.name: output.node for output in graph.outputs}
    wanted = [outputs.get(name, name) for name in makes]
    nodes = tuple(node for node in cone(graph, wanted, memory) if node.name not in memory)
    return Work(graph, nodes, tuple(graph.node(name).axes for name in wanted))
