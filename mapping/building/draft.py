"""A Program under construction: units, channels and scratchpads, and what all builders ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from dataflow.program import (
    Access,
    Box,
    Buffer,
    Channel,
    Compute,
    DigitWalk,
    Fetch,
    Host,
    Loop,
    Port,
    Program,
    Scratchpad,
    Tensor,
    Unit,
)
from dataflow.streams.digits import Digit
from dataflow.streams.edge import Edge, StreamGraph
from dataflow.streams.node import StreamNode
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES
from mapping import systolic
from mapping.boxes import axis_walk, single
from mapping.pads import deep_fifo_cells, emission_of, port_value
from mapping.partition import Group, group_map


@dataclass
class Draft:
    """A unit under construction."""

    name: str
    kind: str
    loops: tuple[Loop, ...]
    points: int
    latency_cycles: int
    work: Compute | Buffer | Fetch | Access | Host
    ii_cycles: int = 1
    cells: int = 1
    stages: int = 0
    array: str = ""
    inputs: list[Port] = field(default_factory=list)
    outputs: list[Port] = field(default_factory=list)

    def unit(self) -> Unit:
        return Unit(
            self.name,
            self.kind,
            self.loops,
            self.points,
            tuple(self.inputs),
            tuple(self.outputs),
            self.latency_cycles,
            self.work,
            self.ii_cycles,
            self.cells,
            self.stages,
            self.array,
        )


class Building:
    """A Program under construction, of `made` as the groups share its units."""

    def __init__(self, made: StreamGraph, groups: tuple[Group, ...], machine: Machine) -> None:
        self.made, self.machine, self.digits = made, machine, made.digits
        self.group_of = group_map(groups)
        self.groups = groups
        self.main: dict[str, StreamNode] = {}
        self.drafts: dict[str, Draft] = {}
        self.preloads: list[Unit] = []
        self.channels: list[Channel] = []
        self.scratchpads: list[Scratchpad] = []
        self.tensors: dict[str, Tensor] = {}
        self.end_bytes = 0
        # Where the port of a writer that deals its beats out stands among its outputs.
        self.dealers: dict[tuple, int] = {}

    def program(self) -> Program:
        """The Program of all that has been added, not yet placed or routed."""
        units = (*(draft.unit() for draft in self.drafts.values()), *self.preloads)
        return Program(
            self.made.graph,
            self.machine,
            units,
            tuple(self.channels),
            tuple(self.scratchpads),
            tuple(self.tensors.values()),
        )

    def loops(self, node: StreamNode) -> tuple[Loop, ...]:
        return tuple(Loop(digit, self.made.trips(node, digit)) for digit in node.loops)

    def owner(self, name: str) -> tuple[str, StreamNode]:
        """The unit name and the node that gives the unit of stream node `name` its loops."""
        if name in self.group_of:
            group = self.group_of[name].name
            return group, self.main[group]
        return name, self.made.by_name[name]

    def level(self, main: StreamNode, digits: Iterable[str]) -> int:
        """The loop level just inside the last of `digits` that turns."""
        wanted = set(digits)
        places = [
            i + 1 for i, d in enumerate(main.loops) if d in wanted and self.made.trips(main, d) > 1
        ]
        return max(places, default=0)

    def moving(self, node: StreamNode) -> list[str]:
        """The loops of a node that turn more than once."""
        return [digit for digit in node.loops if self.made.trips(node, digit) > 1]

    def out_port(
        self, edge: Edge, channels: tuple[str, ...], select: tuple[tuple[int, int, int], ...]
    ) -> Port:
        _, main = self.owner(edge.source)
        emission = emission_of(self.made, edge)
        level = self.level(main, emission)
        # A result leaves once all is done that is reduced on the way to it, in this node or before.
        last = tuple(i for i, d in enumerate(main.loops[:level]) if d not in emission)
        return Port(channels, level, edge.value, select, last)

    def in_port(
        self,
        edge: Edge,
        channels: tuple[str, ...],
        level: int,
        select: tuple[tuple[int, int, int], ...],
        boxes: tuple[Box, ...],
    ) -> Port:
        """An operand's port, late where it is needed only once a member before has reduced."""
        node = self.made.by_name[edge.target]
        _, main = self.owner(edge.target)
        own = self.level(main, self.moving(node))
        deeper = self.level(main, self.moving(main))
        last = tuple(i for i, d in enumerate(main.loops[:level]) if d not in node.loops)
        late = bool(last) or level == own < deeper
        return Port(channels, level, port_value(self.made, edge), select, last, late, boxes)

    def beyond_one_unit(self, edge: Edge) -> tuple[int, int]:
        """What a channel out of an array, or a chain with a FIFO a unit, takes and holds more."""
        source, group = self.made.by_name[edge.source], self.group_of.get(edge.source)
        if not source.array:
            return 0, (group.levels - 1 if group else 0) * self.machine.compute.fifo_depth_beats
        more = systolic.results_in_flight(self.made, source, edge, self.machine)
        return systolic.through_cycles(self.machine), more

    def reserve(self, name: str, value: str, elems: int) -> None:
        """Take memory units for what a unit or a deep FIFO holds, without ports of their own."""
        size = elems * DATA_BYTES[self.machine.accumulate_type]
        cells = deep_fifo_cells(elems, self.machine)
        self.scratchpads.append(Scratchpad(name, value, (), (), elems, 1, size, cells))

    def box(self, edge: Edge, walk_of: Callable[[Digit], DigitWalk]) -> Box:
        """The box of the edge's value, each digit as `walk_of` says; of `last` axes one index."""
        axes = self.made.by_name[edge.source].node.axes
        return tuple(
            axis_walk(
                self.digits,
                axis,
                [
                    single(digit) if axis in edge.last else walk_of(digit)
                    for digit in map(self.digits.__getitem__, self.digits.of_axis[axis])
                ],
            )
            for axis in axes
        )
