"""Maps a graph onto a machine: schedule, streams, units, placement and routes, with their bound."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dataflow.nodes import Graph
from dataflow.program import Program
from dataflow.schedule import Schedule, ScheduleError
from dataflow.streams import StreamGraph, stream
from dataflow.streams.node import StreamNode
from hwspecs import Machine
from mapping.bounds import Bound, bound
from mapping.building.program import build
from mapping.default_schedule import candidates
from mapping.errors import MappingError, refuse, shortage
from mapping.partition import Group, partition
from mapping.place import place
from mapping.resources import needs
from mapping.route import route
from mapping.systolic import size_faults

LAYOUTS = 6
"""Default schedules that are laid out before giving up."""
LESS = 0.65
"""Share of the units of a schedule whose routes did not fit that the next one may take."""


@dataclass(frozen=True)
class Mapping:
    """A kernel on a machine: how it is scheduled, what that makes of it, and the proven bound."""

    schedule: Schedule
    stream: StreamGraph
    program: Program
    bound: Bound


def map_graph(
    graph: Graph,
    machine: Machine,
    schedule: Schedule | None = None,
    known: Mapping | None = None,
) -> Mapping:
    """Map `graph` onto `machine`, by `schedule` or by the default one.

    known: a mapping of `graph` onto `machine`, returned where the default schedule is its own.

    Raises ScheduleError where the schedule does not fit the graph, MappingError where the machine
    runs out of something: what, by how much, and what would fit; or where an axis has no points.
    """
    if empty := [axis for axis, extent in graph.axes.items() if extent < 1]:
        rule = "extent must be at least 1 to run on a machine, got 0"
        raise MappingError("\n".join(f"graph {graph.name}, axis {axis}: {rule}" for axis in empty))
    if schedule is not None:
        return _laid_out(graph, machine, schedule)
    chosen = candidates(graph, machine)[0]
    refused: MappingError | None = None
    for _ in range(LAYOUTS):
        if known and known.schedule == chosen.schedule:
            return known
        try:
            return _laid_out(graph, machine, chosen.schedule)
        except MappingError as error:
            refused = refused or error
            if " links" not in error.resource:
                break
        share = LESS * needs(chosen.made, chosen.groups, machine).share_of(machine)
        try:
            chosen = candidates(graph, machine, share)[0]
        except MappingError:
            break
    assert refused is not None
    raise refused


def _laid_out(graph: Graph, machine: Machine, schedule: Schedule) -> Mapping:
    made = stream(graph, schedule, machine.compute.lanes, machine.compute.fifo_depth_beats)
    _check_lanes(made, machine)
    groups = partition(made, machine)
    _check_copies(made, groups, machine)
    program = build(made, groups, machine)
    _check_capacity(program)
    return Mapping(schedule, made, route(place(program)), bound(graph, machine))


def _check_lanes(made: StreamGraph, machine: Machine) -> None:
    """Refuse beats that are wider than the machine's lanes."""
    compute, faults = machine.compute, size_faults(made, machine)
    for node in made.nodes:
        if node.array:
            continue
        # Packed multiplies are summed inside their lane.
        packed = node.node.op == "einsum" and node.vector in node.gone
        most = compute.lanes * (compute.packing if packed else 1)
        if node.lanes > most:
            path = ("nodes", node.name, "vector", node.vector)
            rule = f"must be at most {most}, the lanes of {machine.name}, got {node.lanes}"
            faults.append(made.schedule.fault(path, rule))
    if faults:
        raise ScheduleError(faults)


def _check_capacity(program: Program) -> None:
    """Refuse tensors that the off-chip memory cannot hold."""
    needed = max((t.base_bytes + t.bytes for t in program.tensors), default=0)
    available = program.machine.off_chip.capacity_bytes
    if needed > available:
        where = f"{program.graph.name} on {program.machine.name}"
        hint = "choose smaller sizes or a machine with more memory"
        resource = "bytes of off-chip memory"
        refuse([(shortage(where, resource, needed, available, hint), resource, needed, available)])


def _check_copies(made: StreamGraph, groups: Iterable[Group], machine: Machine) -> None:
    """Refuse more copies than the machine has units, before any of them is built one by one."""
    where = f"{made.graph.name} on {machine.name}"
    needed = {
        "compute units": sum(g.cells * _copies(made.by_name[g.name]) for g in groups),
        "address generators": sum(_copies(n) for n in made.nodes if n.kind in ("load", "store")),
        "systolic arrays": sum(_copies(n) for n in made.nodes if n.array),
    }
    available = {
        "compute units": machine.grid.compute_units,
        "address generators": machine.generators.count,
        "systolic arrays": machine.arrays,
    }
    faults = []
    for resource, count in needed.items():
        if count > available[resource]:
            line = shortage(where, resource, count, available[resource], "lower the unrolling")
            faults.append((line, resource, count, available[resource]))
    refuse(faults)


def _copies(node: StreamNode) -> int:
    return math.prod(node.unroll.values())
