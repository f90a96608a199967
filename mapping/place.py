"""Placement: which cells of the grid each unit and scratchpad of a Program takes.

Modelled: compute units and scratchpads take cells of their kind, a chain of several in order; the
load and store units take address generators at the west and east edge; the host's registers sit at
the north-west corner and are free. Left out: ports of a cell, which partition has counted.

Minimised is `sum over channels of wires x Manhattan distance` (wire_length), with the wires inside
a chain pulled tighter. The start is greedy, each cell beside what it is wired to most; then seeded
swaps improve it by simulated annealing (Kirkpatrick, Gelatt, Vecchi 1983), as VPR places FPGAs
(Betz, Rose 1997). The number of swaps is bounded, so that 300 units take about a second.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dataflow.program import Compute, Program, Site
from hwspecs import Machine
from mapping.errors import refuse, shortage

HOST_SITE: Site = (0, -1)
CHAIN_PULL = 4.0  # how much tighter than a channel's the wires inside a chain are pulled
SWAPS_PER_CELL = 500
MOST_SWAPS = 300_000

_RESOURCES = {
    "compute": ("compute units", "lower the unrolling or use a machine with at least {} of them"),
    "array": ("systolic arrays", "lower the unrolling or use a machine with at least {} of them"),
    "memory": ("memory units", "use smaller or fewer buffers, or a machine with at least {}"),
    "edge": ("address generators", "lower the unrolling of what is loaded or stored to at most {}"),
}
_SITES = ("compute", "array", "memory")
_BLOCK_KINDS = {"compute": "compute", "load": "edge", "store": "edge", "host": "host"}

Wires = tuple[tuple[tuple[int, float], ...], ...]
"""For each cell, the cells it is wired to and how strongly."""
Pool = tuple[tuple[str, tuple[Site, ...]], ...]
"""The sites of each kind of block."""


@dataclass(frozen=True)
class Block:
    """What is placed as one: a unit, or a scratchpad with the units that write and read it."""

    name: str
    kind: str
    cells: int


@dataclass(frozen=True)
class End:
    """A unit's place in its block: channels come in at cell `enter` and go out at cell `leave`."""

    block: str
    enter: int
    leave: int


def blocks(program: Program) -> tuple[Block, ...]:
    """Return what must be placed, in the order of the units and then of the scratchpads.

    kind is "compute", "array" (a compute unit in systolic mode), "memory", "edge" or "host".
    """
    units = [
        Block(unit.name, "array" if unit.array else _BLOCK_KINDS[unit.kind], unit.cells)
        for unit in program.units
        if unit.kind in _BLOCK_KINDS and not unit.within
    ]
    return (*units, *(Block(pad.name, "memory", pad.cells) for pad in program.scratchpads))


def ends(program: Program) -> dict[str, End]:
    """Return where in its block each unit takes tokens in and gives them out.

    A chain of compute units is entered at its first cell and left at its last. Each writer of a
    scratchpad enters at a cell of its own, and each reader leaves from one, as far as they go.
    """
    found: dict[str, End] = {}
    for pad in program.scratchpads:
        for units in (pad.writers, pad.readers):
            for number, name in enumerate(units):
                cell = number % pad.cells
                found[name] = End(pad.name, cell, cell)
    for unit in program.units:
        if unit.within:
            found[unit.name] = End(unit.within, 0, 0)
        elif unit.kind in _BLOCK_KINDS:
            found[unit.name] = End(unit.name, 0, unit.cells - 1)
    return found


def edge_sites(machine: Machine) -> tuple[Site, ...]:
    """Return a site for each address generator, dealt over both edges from the middle row out."""
    rows, columns = machine.grid.rows, machine.grid.columns
    by_middle = sorted(range(rows), key=lambda row: (abs(2 * row + 1 - rows), row))
    ring = [(row, column) for row in by_middle for column in (-1, columns)]
    return tuple(ring[i % len(ring)] for i in range(machine.generators.count))


def wire_length(program: Program) -> int:
    """Return the sum over channels of wires x Manhattan distance between their placed ends."""
    place_of = ends(program)
    total = 0
    for channel in program.channels:
        source, sink = place_of[channel.writer], place_of[channel.reader]
        if not is_local(source, sink):
            here = program.sites[source.block][source.leave]
            there = program.sites[sink.block][sink.enter]
            total += channel.wires * distance(here, there)
    return total


def is_local(source: End, sink: End) -> bool:
    """Whether a channel stays inside its block: a tile's token or its return, a running result."""
    return source.block == sink.block


def held_by(program: Program) -> dict[str, tuple[str, ...]]:
    """Return the compute units or ends that each scratchpad without writers serves, by its name.

    Such a scratchpad holds a deep FIFO, and is called as its channel, or the running state of a
    node in a unit, `<node>@<copy> state`. One that is called otherwise serves nobody known.
    """
    bare = {pad.name: () for pad in program.scratchpads if not pad.writers}
    found: dict[str, tuple[str, ...]] = dict(bare)
    for channel in program.channels:
        if channel.name in bare:
            found[channel.name] = (channel.writer, channel.reader)
    for unit in program.units:
        if isinstance(unit.work, Compute):
            _, at, copy = unit.name.partition("@")
            for operation in unit.work.operations:
                state = f"{operation.node.name}{at}{copy} state"
                if state in bare:
                    found[state] = (unit.name,)
    return found


def distance(a: Site, b: Site) -> int:
    """Return the Manhattan distance of two sites.

    >>> distance((0, -1), (2, 3))
    6
    """
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def place(program: Program, seed: int = 0) -> Program:
    """Return `program` with `sites` for every compute, load, store and host unit and scratchpad.

    The same program and seed give the same sites. Every site is used once; several generators
    may share an edge site, and together they are at most the machine's. Raises MappingError where
    the machine has too few compute units, memory units or address generators, all in one.
    """
    machine = program.machine
    arrays = sum(block.kind == "array" for block in blocks(program))
    sites = machine.grid.sites("compute")
    pool = {
        # The first compute units have the systolic mode; those not in it are ordinary ones.
        "array": sites[: min(arrays, machine.arrays)],
        "compute": sites[min(arrays, machine.arrays) :],
        "memory": machine.grid.sites("memory"),
        "edge": edge_sites(machine),
    }
    _check_room(program, {kind: len(sites) for kind, sites in pool.items()})
    span = max(machine.grid.rows, machine.grid.columns)
    found = _sites(blocks(program), _wires(program), tuple(pool.items()), span, seed)
    return dataclasses.replace(program, sites=dict(found))


@lru_cache(maxsize=32)
def _sites(
    placed: tuple[Block, ...], near: Wires, pool: Pool, span: int, seed: int
) -> tuple[tuple[str, tuple[Site, ...]], ...]:
    """The sites of each block. Programs that differ in what no placement sees share them, as those
    for machines that differ in a latency."""
    layout = _Layout(placed, near, pool, span)
    layout.start()
    layout.improve(random.Random(seed))
    return tuple(layout.sites().items())


def _check_room(program: Program, available: dict[str, int]) -> None:
    where = f"{program.graph.name} on {program.machine.name}"
    faults = []
    for kind, (resource, hint) in _RESOURCES.items():
        needed = sum(block.cells for block in blocks(program) if block.kind == kind)
        if needed > available[kind]:
            fit = available[kind] if kind == "edge" else needed
            line = shortage(where, resource, needed, available[kind], hint.format(fit))
            faults.append((line, resource, needed, available[kind]))
    refuse(faults)


def _wires(program: Program) -> Wires:
    """For each cell, the cells it is wired to and how strongly."""
    placed = blocks(program)
    first = _first_cells(placed)
    pull: list[dict[int, float]] = [{} for block in placed for _ in range(block.cells)]

    def join(a: int, b: int, strength: float) -> None:
        if a != b:
            pull[a][b] = pull[a].get(b, 0.0) + strength
            pull[b][a] = pull[b].get(a, 0.0) + strength

    for block in placed:
        start = first[block.name]
        for cell in range(start, start + block.cells - 1):
            join(cell, cell + 1, CHAIN_PULL)
    place_of = ends(program)
    for channel in program.channels:
        source, sink = place_of[channel.writer], place_of[channel.reader]
        if not is_local(source, sink):
            leave = first[source.block] + source.leave
            join(leave, first[sink.block] + sink.enter, channel.wires)
    for pad, served in held_by(program).items():
        for name in served:
            join(first[pad], first[place_of[name].block] + place_of[name].leave, 1.0)
    return tuple(tuple(others.items()) for others in pull)


def _first_cells(placed: tuple[Block, ...]) -> dict[str, int]:
    """The number of each block's first cell."""
    ends_at = itertools.accumulate((block.cells for block in placed), initial=0)
    return {block.name: cell for block, cell in zip(placed, ends_at, strict=False)}


class _Layout:
    """The cells of all blocks on the sites of their kind, while a placement is worked out.

    Cells and slots are numbered: `at[cell]` is the slot a cell sits in, `held[slot]` the cell in a
    slot or -1. Each slot belongs to one kind; slots of the edge may share a site.
    """

    def __init__(self, placed: tuple[Block, ...], near: Wires, pool: Pool, span: int) -> None:
        self.blocks, self.near, self.span = placed, near, span
        self.first = _first_cells(placed)
        self.kind = [block.kind for block in placed for _ in range(block.cells)]
        self.pool = {**dict(pool), "host": (HOST_SITE,) * self.kind.count("host")}
        self.slot_range: dict[str, range] = {}
        self.row: list[int] = []
        self.column: list[int] = []
        for kind, sites in self.pool.items():
            self.slot_range[kind] = range(len(self.row), len(self.row) + len(sites))
            self.row += [site[0] for site in sites]
            self.column += [site[1] for site in sites]
        self.slot_at = {
            (kind, self.row[slot], self.column[slot]): slot
            for kind in _SITES
            for slot in self.slot_range[kind]
        }
        self.at = [-1] * len(self.kind)
        self.held = [-1] * len(self.row)

    def start(self) -> None:
        """Put each cell, the one wired most to those placed first, at the cheapest free slot."""
        slots = {
            kind: (np.array(self.row[r.start : r.stop]), np.array(self.column[r.start : r.stop]))
            for kind, r in self.slot_range.items()
        }
        free = {kind: np.ones(len(r), bool) for kind, r in self.slot_range.items()}
        drawn = [0.0] * len(self.kind)
        waiting = [(0.0, self.kind[cell] != "edge", cell) for cell in range(len(self.kind))]
        heapq.heapify(waiting)
        while waiting:
            strength, _, cell = heapq.heappop(waiting)
            if self.at[cell] >= 0 or -strength != drawn[cell]:
                continue
            kind = self.kind[cell]
            rows, columns = slots[kind]
            cost = np.zeros(len(rows))
            placed = [(self.at[o], pull) for o, pull in self.near[cell] if self.at[o] >= 0]
            for slot, pull in placed:
                cost += pull * (abs(rows - self.row[slot]) + abs(columns - self.column[slot]))
            cost[~free[kind]] = np.inf
            best = int(np.argmin(cost))
            free[kind][best] = False
            self._put(cell, self.slot_range[kind].start + best)
            for other, pull in self.near[cell]:
                if self.at[other] < 0:
                    drawn[other] += pull
                    heapq.heappush(waiting, (-drawn[other], self.kind[other] != "edge", other))

    def _put(self, cell: int, slot: int) -> None:
        self.at[cell] = slot
        self.held[slot] = cell

    def cost(self) -> float:
        """The wire length as improve() weighs it, each wire counted from both ends."""
        return sum(self._pull_at(cell, self.at[cell], -1) for cell in range(len(self.kind)))

    def _pull_at(self, cell: int, slot: int, partner: int) -> float:
        """The length of a cell's wires were it at `slot`; those to `partner` left out."""
        row, column, at = self.row, self.column, self.at
        r, c = row[slot], column[slot]
        total = 0.0
        for other, pull in self.near[cell]:
            if other != partner:
                there = at[other]
                total += pull * (abs(row[there] - r) + abs(column[there] - c))
        return total

    def improve(self, rng: random.Random) -> None:
        """Swap cells, or move them to free slots, where that shortens the wires.

        A longer wire is taken with probability exp(-lengthening / heat); heat and reach shrink.
        What the swaps end in is kept only where it beats the start.
        """
        movable = [cell for cell, kind in enumerate(self.kind) if kind != "host"]
        movable = [cell for cell in movable if self.near[cell]]
        if not movable:
            return
        before, cost = (list(self.at), list(self.held)), self.cost()
        swaps = min(SWAPS_PER_CELL * len(movable), MOST_SWAPS)
        for step in range(swaps):
            done = step / swaps
            reach = max(2, round(self.span / 2 * (1 - done) ** 2))
            heat = 2.0 * (1 - done) ** 3 + 1e-3
            cell = movable[int(rng.random() * len(movable))]
            slot = self._aim(cell, reach, rng.random)
            if slot >= 0:
                self._try_swap(cell, slot, heat, rng)
        if self.cost() > cost:
            self.at, self.held = before

    def _aim(self, cell: int, reach: int, draw: Callable[[], float]) -> int:
        """A slot of the cell's kind at most `reach` from a cell it is wired to; -1 for none."""
        kind = self.kind[cell]
        if kind == "edge":
            slots = self.slot_range[kind]
            return slots.start + int(draw() * len(slots))
        near = self.near[cell]
        other = self.at[near[int(draw() * len(near))][0]]
        width = 2 * reach + 1
        row = self.row[other] - reach + int(draw() * width)
        column = self.column[other] - reach + int(draw() * width)
        return self.slot_at.get((kind, row, column), -1)

    def _try_swap(self, cell: int, slot: int, heat: float, rng: random.Random) -> None:
        here, partner = self.at[cell], self.held[slot]
        if here == slot:
            return
        longer = self._pull_at(cell, slot, partner) - self._pull_at(cell, here, partner)
        if partner >= 0:
            longer += self._pull_at(partner, here, cell) - self._pull_at(partner, slot, cell)
        if longer > 0 and rng.random() >= math.exp(-longer / heat):
            return
        self.held[here] = partner
        if partner >= 0:
            self.at[partner] = here
        self._put(cell, slot)

    def sites(self) -> dict[str, tuple[Site, ...]]:
        """The sites of each block's cells, in order."""
        return {
            block.name: tuple(
                (self.row[self.at[cell]], self.column[self.at[cell]])
                for cell in range(self.first[block.name], self.first[block.name] + block.cells)
            )
            for block in self.blocks
        }
