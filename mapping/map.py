"""Maps a graph onto a machine: schedule, streams, units, placement and routes, with their bound."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dataflow.nodes import Graph
from dataflow.program import Program
from dataflow.schedule import Schedule
from dataflow.streams import StreamGraph, stream
from hwspecs import Machine
from mapping.bounds import Bound, bound
from mapping.build import build
from mapping.default_schedule import candidates
from mapping.errors import MappingError
from mapping.partition import partition
from mapping.place import place
from mapping.route import route

TRIES = 8
"""Default schedules that are laid out before giving up; each takes fewer units than the last."""


@dataclass(frozen=True)
class Mapping:
    """A kernel on a machine: how it is scheduled, what that makes of it, and the proven bound."""

    schedule: Schedule
    stream: StreamGraph
    program: Program
    bound: Bound


def map_graph(graph: Graph, machine: Machine, schedule: Schedule | None = None) -> Mapping:
    """Map `graph` onto `machine`, by `schedule` or by the default one.

    Raises ScheduleError where the schedule does not fit the graph, MappingError where the machine
    runs out of something: what, by how much, and what would fit.
    """
    if schedule is not None:
        return _laid_out(graph, machine, schedule)
    refused: MappingError | None = None
    for chosen in _schedules(graph, machine):
        try:
            return _laid_out(graph, machine, chosen)
        except MappingError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _schedules(graph: Graph, machine: Machine) -> Iterable[Schedule]:
    """Default schedules, best first; the later ones ask less of the network."""
    return [candidate.schedule for candidate in candidates(graph, machine)[:TRIES]]


def _laid_out(graph: Graph, machine: Machine, schedule: Schedule) -> Mapping:
    made = stream(graph, schedule, machine.compute.lanes, machine.compute.fifo_depth_beats)
    program = build(made, partition(made, machine), machine)
    return Mapping(schedule, made, route(place(program)), bound(graph, machine))
