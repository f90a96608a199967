"""Counts what a mapping takes of a machine, and how long each of its parts is busy, before any
Program is built. `mapping/building/` uses the same plans, so that the counts agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dataflow.index import Affine, affine
from dataflow.streams import StreamGraph
from dataflow.streams.node import StreamNode, address_strides
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES
from mapping import systolic
from mapping.links import fifo_count, fifos
from mapping.pads import Pad, channel_elems, copies_of, deep_fifo_cells, plan_pads, state_elems
from mapping.partition import Group, group_map, ii_of


@dataclass(frozen=True)
class Needs:
    """Units taken, beside those there are."""

    compute: int
    memory: int
    generators: int
    arrays: int = 0

    def share_of(self, machine: Machine) -> float:
        """The larger of the shares of compute and of memory units taken."""
        grid = machine.grid
        return max(self.compute / grid.compute_units, self.memory / grid.memory_units)

    def over(self, machine: Machine, share: float = 1.0) -> list[tuple[str, int, int]]:
        """What is short: (resource, needed, there are)."""
        grid = machine.grid
        counts = (
            ("compute units", self.compute, int(share * grid.compute_units)),
            ("memory units", self.memory, int(share * grid.memory_units)),
            ("address generators", self.generators, machine.generators.count),
            ("systolic arrays", self.arrays, machine.arrays),
        )
        return [each for each in counts if each[1] > each[2]]

    def excess(self, machine: Machine) -> int:
        """How many units and generators too many."""
        return sum(needed - available for _, needed, available in self.over(machine))

    def fits(self, machine: Machine, share: float = 1.0) -> bool:
        """Whether `share` of the machine's units is that many of each."""
        grid = machine.grid
        return (
            self.compute <= share * grid.compute_units
            and self.memory <= share * grid.memory_units
            and self.generators <= machine.generators.count
            and self.arrays <= machine.arrays
        )


def needs(made: StreamGraph, groups: tuple[Group, ...], machine: Machine) -> Needs:
    """What the units, scratchpads, deep FIFOs, running states, loads and stores take."""
    owners = group_map(groups)
    compute = sum(g.cells * len(copies_of(made.by_name[g.name])) for g in groups)
    memory = sum(pad.cells for pad in pads_of(made, owners, machine))
    for edge in fifos(made, owners):
        if edge.depth > machine.compute.fifo_depth_beats:
            source, target = (_main(made, owners, n) for n in (edge.source, edge.target))
            count = fifo_count(edge, source, target)
            memory += count * deep_fifo_cells(channel_elems(made, edge), machine)
    for group in groups:
        for name in group.members:
            node = made.by_name[name]
            elems = state_elems(made, node, machine)
            if elems:
                memory += len(copies_of(node)) * deep_fifo_cells(elems, machine)
    generators = sum(len(copies_of(node)) for node in made.nodes if node.kind in ("load", "store"))
    arrays = sum(len(copies_of(node)) for node in made.nodes if node.array)
    return Needs(compute, memory, generators, arrays)


def pads_of(made: StreamGraph, owners: Mapping[str, Group], machine: Machine) -> list[Pad]:
    """All scratchpads."""
    return plan_pads(made, owners, machine)


def _main(made: StreamGraph, owners: Mapping[str, Group], name: str) -> StreamNode:
    """The node whose loops the unit of node `name` runs."""
    return made.by_name[owners[name].main if name in owners else name]


def firings(made: StreamGraph, node: StreamNode) -> int:
    """How often one copy of `node` fires."""
    return math.prod(made.trips(node, digit) for digit in node.loops)


def busy_cycles(made: StreamGraph, group: Group, machine: Machine) -> int:
    """Cycles for which one copy of a group is busy."""
    nodes = [made.by_name[name] for name in group.members]
    if nodes[0].array:
        return systolic.busy_cycles(made, nodes[0], machine)
    return max(firings(made, node) for node in nodes) * max(ii_of(n, machine) for n in nodes)


def off_chip_cycles(made: StreamGraph, node: StreamNode, machine: Machine) -> float:
    """Cycles of the whole memory that one tile of a load or store takes.

    Bursts that a run of neighbouring elements touches are moved whole, and memory channels that a
    window of outstanding requests does not touch stand idle: strides of a power of two can leave
    all but one idle.
    """
    if not node.walk:
        return 0.0
    tensor, index = tensor_of(made, node)
    strides = address_strides(made.graph, tensor, index, node.axes)
    size = DATA_BYTES[machine.data_type]
    steps = tuple(
        abs(strides[made.digits[d].axis]) * made.digits[d].stride * size for d in node.walk
    )
    extents = tuple(made.digits[d].extent for d in node.walk)
    off_chip = machine.off_chip
    window = machine.generators.in_flight(node.kind == "store")
    bursts, share = _bursts(
        steps,
        extents,
        size,
        off_chip.burst_bytes,
        off_chip.interleave_bytes,
        off_chip.channels,
        window,
    )
    rate = off_chip.read_bytes_per_s if node.kind == "load" else off_chip.write_bytes_per_s
    per_cycle = rate / machine.clock_hz * off_chip.channels * share
    return bursts * off_chip.burst_bytes / per_cycle


def tensor_of(made: StreamGraph, node: StreamNode) -> tuple[tuple[str, ...], tuple[Affine, ...]]:
    """Axes of the off-chip tensor behind a load or store, and its coordinates."""
    if node.output is not None:
        return node.output.axes, node.output.index
    base = node.argument
    assert base is not None
    index = node.node.index if node.node.op == "read" else tuple(affine(a) for a in base.axes)
    return base.axes, index


@lru_cache(maxsize=4096)
def _bursts(
    steps: tuple[int, ...],
    extents: tuple[int, ...],
    element: int,
    burst: int,
    interleave: int,
    channels: int,
    window: int,
) -> tuple[float, float]:
    """Bursts of a tile, and the share of the memory channels that work at a time."""
    # Innermost digits whose elements are neighbours make a run; the rest repeats it.
    run, place = element, len(steps)
    while place and steps[place - 1] == run:
        place -= 1
        run *= extents[place]
    runs = math.prod(extents[:place])
    bursts = runs * max(1.0, run / burst)
    addresses = np.zeros(1, dtype=np.int64)
    for step, extent in zip(reversed(steps[:place]), reversed(extents[:place]), strict=True):
        if len(addresses) >= window:
            break
        addresses = np.add.outer(np.arange(min(extent, window)) * step, addresses).ravel()
    within = np.arange(max(1, min(window, run // burst))) * burst
    touched = np.add.outer(addresses, within).ravel()[:window]
    counts = np.bincount(touched // interleave % channels, minlength=channels)
    share = len(touched) / (channels * counts.max())
    return bursts, max(share, 1 / channels)
