"""Estimates of cycles before anything is built: transfers, the busiest part, and first tiles."""

from __future__ import annotations

import math

from dataflow.streams import StreamGraph, StreamNode
from hwspecs import Machine
from mapping.pads import emission_of
from mapping.partition import Group
from mapping.resources import busy_cycles, firings, off_chip_cycles


def floor_cycles(
    made: StreamGraph, groups: tuple[Group, ...], machine: Machine, pipelines: list[str]
) -> float:
    """Fill, plus the busiest part, plus drain, in cycles: what no number of copies beats."""
    fill, traffic, drain = transfers(made, machine)
    work = sum(
        busy_cycles(made, group, machine) * copies(made, group) / packable(made, group, machine)
        for group in groups
    )
    units = machine.grid.compute_units
    fixed = [
        busy_cycles(made, group, machine) for group in groups if _fixed(made, group, pipelines)
    ]
    loads = [firings(made, n) for n in made.nodes if n.kind in ("load", "store")]
    steady = max([traffic - fill - drain, work / units, *fixed, *loads])
    return fill + steady + drain


def transfers(made: StreamGraph, machine: Machine) -> tuple[float, float, float]:
    """Cycles of the off-chip memory: for first tiles, for everything, for last tiles."""
    fill = traffic = drain = 0.0
    for node in made.nodes:
        if node.kind not in ("load", "store"):
            continue
        cycles = off_chip_cycles(made, node, machine)
        traffic += cycles * math.prod(
            -(-made.digits[d].extent // node.merge.get(d, 1)) for d in node.domain
        )
        if node.kind == "load":
            fill += cycles
        else:
            drain += cycles
    return fill, traffic, drain


def first_tile_cycles(made: StreamGraph) -> int:
    """Firings that a first tile waits for on the longest way through the scratchpads of `made`.

    Each scratchpad passes a tile on when the slowest of the nodes that stream into it has fired for
    all of it.
    """
    delay = {node.name: 0 for node in made.nodes}
    span = {
        node.name: math.prod(made.trips(node, d) for d in node.walk)
        for node in made.nodes
        if node.kind == "compute"
    }
    forward = [e for e in made.edges if not e.earlier and e.source in span]
    for _ in made.nodes:
        changed = False
        for edge in forward:
            source, target = made.by_name[edge.source], made.by_name[edge.target]
            through = delay[edge.source]
            if edge.kind == "scratchpad":
                outside = target.domain[: edge.common]
                packed = [d for d in emission_of(made, edge) if d in source.emits]
                tiles = math.prod(made.trips(source, d) for d in packed if d not in outside)
                through += span[edge.source] * tiles
            elif source.domain == target.domain and span[edge.source] > span.get(
                edge.target, math.inf
            ):
                span[edge.target] = span[edge.source]
                changed = True
            if through > delay[edge.target]:
                delay[edge.target] = through
                changed = True
        if not changed:
            break
    return max(delay.values(), default=0)


def packable(made: StreamGraph, group: Group, machine: Machine) -> int:
    """How many points of a narrow digit one unit could work on at a time."""
    node = made.by_name[group.name]
    heavy = any(made.by_name[name].node.op == "einsum" for name in group.members)
    narrow = [d for d in spreadable(made, group) if d != node.vector]
    if not heavy or not narrow or node.pack:
        return 1
    return max(1, machine.compute.stages // group.stages)


def copies(made: StreamGraph, group: Group) -> int:
    """Units of a group, chains counted once."""
    node = made.by_name[group.name]
    return math.prod(node.unroll.values())


def _fixed(made: StreamGraph, group: Group, pipelines: list[str]) -> bool:
    """Whether no digit is left over which the group could get more copies."""
    if made.by_name[group.name].array:
        return not any(d in made.by_name[group.name].domain for d in pipelines)
    return not spreadable(made, group) and not any(
        d in made.by_name[group.name].domain for d in pipelines
    )


def spreadable(made: StreamGraph, group: Group) -> list[str]:
    """Tile digits that all members keep, so that copies need nothing from one another."""
    nodes = [made.by_name[name] for name in group.members]
    digits = [
        d for d in nodes[0].walk if all(d in node.walk and d not in node.gone for node in nodes)
    ]
    return [d for d in digits if groups_of(made, nodes[0], d) > 1]


def groups_of(made: StreamGraph, node: StreamNode, digit: str) -> int:
    """Groups of `digit` that one copy would count, a beat or more each."""
    return -(-made.digits[digit].extent // node.grain(digit))


def points_of(made: StreamGraph, node: StreamNode) -> int:
    """Points of the domain of one copy."""
    return math.prod(made.trips(node, digit) for digit in node.domain)
