"""Builds a Program from a StreamGraph and its groups: units with loops, channels with capacities.

Every copy of a group becomes a compute unit; every channel a FIFO or a scratchpad with its write
and read units; every load and store an address generator. `mapping/links.py` says which copies talk
to which, `mapping/boxes.py` what their tiles cover. Nothing is decided here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dataflow.edges import Edge, StreamGraph, scatter
from dataflow.index import affine
from dataflow.nodes import Node
from dataflow.program import (
    Access,
    AxisWalk,
    Box,
    Buffer,
    Channel,
    Compute,
    Fetch,
    Host,
    Loop,
    Operation,
    Port,
    Program,
    Scratchpad,
    Tensor,
    Unit,
)
from dataflow.stream import StreamNode
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES
from mapping.boxes import Copy, axis_walk, blocks, box_of, counted, node_axis, share, single
from mapping.links import links
from mapping.partition import Group, group_map, ii_of, operand_wires


@dataclass
class _Draft:
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
        )


def build(made: StreamGraph, groups: tuple[Group, ...], machine: Machine) -> Program:
    """Return the Program of `made`, not yet placed or routed."""
    return _Build(made, groups, machine).run()


def copies_of(node: StreamNode) -> list[dict[str, int]]:
    """All copies of a node, as an index for each unrolled digit."""
    ranges = [[(digit, i) for i in range(count)] for digit, count in node.unroll.items()]
    return [dict(choice) for choice in itertools.product(*ranges)]


def copy_name(base: str, copy: Copy) -> str:
    """The name of a copy: `c@i.o0,j2`."""
    return base + ("@" + ",".join(f"{d}{i}" for d, i in copy.items()) if copy else "")


class _Build:
    def __init__(self, made: StreamGraph, groups: tuple[Group, ...], machine: Machine) -> None:
        self.made, self.machine, self.digits = made, machine, made.digits
        self.group_of = group_map(groups)
        self.groups = groups
        self.main: dict[str, StreamNode] = {}
        self.drafts: dict[str, _Draft] = {}
        self.channels: list[Channel] = []
        self.scratchpads: list[Scratchpad] = []
        self.tensors: dict[str, Tensor] = {}
        self.next_base = 0

    def run(self) -> Program:
        for group in self.groups:
            self._compute(group)
        for node in self.made.nodes:
            if node.kind in ("load", "store", "host"):
                self._off_chip(node)
        seen: set[tuple] = set()
        for edge in self.made.edges:
            self._edge(edge, seen)
        for group in self.groups:
            self._states(group)
        units = tuple(draft.unit() for draft in self.drafts.values())
        return Program(
            self.made.graph,
            self.machine,
            units,
            tuple(self.channels),
            tuple(self.scratchpads),
            tuple(self.tensors.values()),
        )

    # Units

    def _loops(self, node: StreamNode) -> tuple[Loop, ...]:
        return tuple(Loop(digit, self.made.trips(node, digit)) for digit in node.loops)

    def _owner(self, name: str) -> tuple[str, StreamNode]:
        """The unit name and the node that gives the unit of stream node `name` its loops."""
        if name in self.group_of:
            group = self.group_of[name].name
            return group, self.main[group]
        return name, self.made.by_name[name]

    def _compute(self, group: Group) -> None:
        nodes = [self.made.by_name[name] for name in group.members]
        main = max(nodes, key=lambda node: len(self._moving(node)))
        self.main[group.name] = main
        compute, network = self.machine.compute, self.machine.network
        latency = group.cells * compute.latency_cycles + (group.cells - 1) * network.channel_cycles
        ii = max([ii_of(node, self.machine) for node in nodes])
        if any(self._held_in_register(node) for node in nodes):
            ii = max(ii, compute.accumulate_latency_cycles)
        for copy in copies_of(main):
            axes: dict[str, AxisWalk] = {}
            for node in nodes:
                for axis in self._axes_of(node):
                    axes.setdefault(axis, node_axis(self.digits, node, axis, copy))
            work = Compute(tuple(self._operations(nodes, main)), axes)
            name = copy_name(group.name, copy)
            self.drafts[name] = _Draft(
                name,
                "compute",
                self._loops(main),
                len(main.domain),
                latency,
                work,
                ii,
                group.cells,
                group.stages,
            )

    def _axes_of(self, node: StreamNode) -> list[str]:
        axes = [*node.axes, *node.node.axes]
        for free in node.free:
            axes += [axis for axis in free.axes if self._counts(node, axis)]
        carried = [self.digits[digit].axis for digit in node.carried]
        return list(dict.fromkeys([*axes, *carried]))

    def _counts(self, node: StreamNode, axis: str) -> bool:
        return all(digit in node.loops for digit in self.digits.of_axis[axis])

    def _operations(self, nodes: list[StreamNode], main: StreamNode) -> Iterable[Operation]:
        seen: set[str] = set()
        for node in nodes:
            for free in node.free:
                if free.name not in seen:
                    seen.add(free.name)
                    loops = [d for d in main.domain if self.digits[d].axis == free.axis]
                    carried = tuple(main.domain.index(d) for d in loops)
                    yield Operation(free, carried if free.op == "earlier" else ())
            carried = tuple(main.domain.index(digit) for digit in node.carried)
            yield Operation(node.node, carried, self._terms(node) if node.merge else 0)

    def _terms(self, node: StreamNode) -> int:
        terms = 1
        for edge in self.made.into(node.name):
            source = self.made.by_name[edge.source]
            for digit in node.merge:
                terms *= max(1, source.copies(digit) // node.copies(digit))
        return terms

    def _moving(self, node: StreamNode) -> list[str]:
        return [digit for digit in node.loops if self.made.trips(node, digit) > 1]

    def _held_in_register(self, node: StreamNode) -> bool:
        return bool(self._reduced(node)) and self._distance(node, node) == 1

    def _reduced(self, node: StreamNode) -> list[str]:
        return [d for d in self._moving(node) if d in node.gone or d in node.carried]

    def _distance(self, node: StreamNode, main: StreamNode) -> int:
        """Beats of `node` between two touches of one of its accumulators."""
        reduced = self._reduced(node)
        if not reduced:
            return 0
        loops = list(node.loops)
        inside = loops[loops.index(reduced[0]) :]
        return math.prod(self.made.trips(node, d) for d in inside if d not in reduced)

    def _states(self, group: Group) -> None:
        """Accumulators and values carried to the next point, where their latency can show."""
        main = self.main[group.name]
        for name in group.members:
            node = self.made.by_name[name]
            outer = self._state_loop(node)
            if not outer:
                continue
            inside = main.loops[main.loops.index(outer) + 1 :]
            firings = math.prod(self.made.trips(main, d) for d in inside)
            tokens = math.prod(
                self.made.trips(node, d)
                for d in node.loops[node.loops.index(outer) + 1 :]
                if d not in node.gone and d not in node.carried
            )
            packed = math.prod(n for d, n in node.pack.items() if d not in node.gone)
            elems = tokens * node.lanes * packed
            if tokens * packed > self.machine.compute.registers * self.machine.compute.stages:
                for copy in copies_of(main):
                    self._reserve(f"{copy_name(name, copy)} state", name, elems)
            for copy in copies_of(main):
                draft = self.drafts[copy_name(group.name, copy)]
                if firings * draft.ii_cycles < draft.latency_cycles:
                    self._feed_back(draft, node, main, tokens)

    def _state_loop(self, node: StreamNode) -> str:
        """The outermost loop over which `node` keeps a state that its next beats need."""
        if node.name != node.node.name and node.node.op != "reduce":
            reduced = self._reduced(node)
            return reduced[0] if reduced and self._distance(node, node) > 1 else ""
        for edge in self.made.into(node.name):
            if edge.earlier and self._owner(edge.source)[0] == self._owner(node.name)[0]:
                return self.digits.of_axis[edge.earlier][0]
        reduced = self._reduced(node)
        return reduced[0] if reduced and self._distance(node, node) > 1 else ""

    def _feed_back(self, draft: _Draft, node: StreamNode, main: StreamNode, tokens: int) -> None:
        """A channel from a unit to itself with one token a running result (rule 7)."""
        name = f"{draft.name} -> {draft.name}: {node.name}"
        moving = [d for d in node.emission if self.made.trips(node, d) > 1]
        kept = [d for d in node.loops if d in moving or d in node.carried]
        level = max((main.loops.index(d) + 1 for d in kept), default=0)
        self.channels.append(
            Channel(name, draft.name, draft.name, tokens + 1, 0, 1, tokens, "data")
        )
        draft.inputs.append(Port((name,), level))
        draft.outputs.append(Port((name,), level))

    def _reserve(self, name: str, value: str, elems: int) -> None:
        size = elems * DATA_BYTES[self.machine.accumulate_type]
        cells = -(-size // self.machine.memory.capacity_bytes)
        self.scratchpads.append(Scratchpad(name, value, "", (), elems, 1, size, cells))

    def _off_chip(self, node: StreamNode) -> None:
        loops = self._loops(node)
        for copy in copies_of(node):
            name = copy_name(node.name, copy)
            axes = node.node.axes if node.kind != "load" else node.axes
            box = box_of(self.digits, axes, node, copy)
            if node.kind == "host":
                assert node.output is not None
                work: Access | Host = Host(node.output.name, node.node.name)
                self.drafts[name] = _Draft(name, "host", loops, len(node.domain), 1, work)
                continue
            work = self._access(node, box)
            self.drafts[name] = _Draft(name, node.kind, loops, len(node.domain), 1, work)

    def _access(self, node: StreamNode, box: Box) -> Access:
        order = tuple(dict.fromkeys(self.digits[d].axis for d in node.walk))
        order = (*(a for a in node.node.axes if a not in order), *order)
        if node.kind == "load":
            base = node.argument
            assert base is not None
            index = node.node.index if node.node.op == "read" else tuple(map(affine, base.axes))
            kind = "const" if base.op == "const" else "input"
            tensor = self._tensor(base.name, kind, base.axes)
            fill = node.node.fill if node.node.op == "read" else 0.0
            return Access(tensor, node.node.name, box, index, order, node.lanes, fill)
        output = node.output
        assert output is not None
        tensor = self._tensor(output.name, "output", output.axes)
        return Access(
            tensor, node.node.name, box, output.index, order, node.lanes, 0.0, output.merge
        )

    def _tensor(self, source: str, kind: str, axes: tuple[str, ...]) -> str:
        name = f"{kind} {source}"
        if name not in self.tensors:
            shape = tuple(self.made.graph.extent(axis) for axis in axes)
            size = DATA_BYTES[self.machine.data_type]
            self.tensors[name] = Tensor(name, kind, source, shape, self.next_base, size)
            # Tensors start on a row of bursts over all channels, so that none shares a burst.
            row = self.machine.off_chip.interleave_bytes * self.machine.off_chip.channels
            self.next_base += -(-math.prod(shape) * size // row) * row
        return name

    # Channels

    def _edge(self, edge: Edge, seen: set[tuple]) -> None:
        source, _ = self._owner(edge.source)
        target, _ = self._owner(edge.target)
        if source == target and edge.kind == "fifo":
            return
        key = (edge.source, target, self._port_value(edge), edge.kind)
        if key in seen:
            return
        seen.add(key)
        if edge.kind == "fifo":
            self._fifo(edge)
        else:
            self._scratchpad(edge)

    def _port_value(self, edge: Edge) -> str:
        """The name under which the reader knows the value: that of the first free node, if any."""
        target = self.made.by_name[edge.target]
        for free in target.free:
            if free.args and free.args[0] == edge.value and self._leads(edge, free):
                return free.name
        return edge.value

    def _leads(self, edge: Edge, free: Node) -> bool:
        if free.op == "earlier":
            return free.axis == edge.earlier
        if free.op == "last":
            return free.axis in edge.last
        return edge.mapped and not edge.earlier and not edge.last

    def _level(self, main: StreamNode, digits: Iterable[str]) -> int:
        """The loop level just inside the last of `digits` that turns."""
        wanted = set(digits)
        places = [
            i + 1 for i, d in enumerate(main.loops) if d in wanted and self.made.trips(main, d) > 1
        ]
        return max(places, default=0)

    def _emission(self, edge: Edge) -> list[str]:
        node = self.made.by_name[edge.source]
        return [d for d in node.emission if self.digits[d].axis not in edge.last]

    def _outer_reduced(self, main: StreamNode, node: StreamNode, edge: Edge, level: int) -> tuple:
        """Loops outside `level` that must stand at their last trip for a result to leave."""
        lost = {*node.gone, *node.carried}
        lost |= {d for axis in edge.last for d in self.digits.of_axis[axis]}
        return tuple(i for i, d in enumerate(main.loops[:level]) if d in lost)

    def _out_port(
        self, edge: Edge, channels: tuple[str, ...], select: tuple[tuple[int, int, int], ...]
    ) -> Port:
        node = self.made.by_name[edge.source]
        _, main = self._owner(edge.source)
        level = self._level(main, self._emission(edge))
        last = self._outer_reduced(main, node, edge, level)
        return Port(channels, level, edge.value, select, last)

    def _late(self, edge: Edge, level: int) -> bool:
        """Whether the operand is needed only once a reduction inside `level` is done."""
        _, main = self._owner(edge.target)
        node = self.made.by_name[edge.target]
        own = self._level(main, self._moving(node))
        deeper = self._level(main, self._moving(main))
        return level == own < deeper

    def _fifo(self, edge: Edge) -> None:
        _, writer = self._owner(edge.source)
        _, reader = self._owner(edge.target)
        network, compute = self.machine.network, self.machine.compute
        depth = edge.depth or compute.fifo_depth_beats
        latency = network.channel_cycles
        deep = depth > compute.fifo_depth_beats
        node = self.made.by_name[edge.source]
        lanes = node.lanes if node.vector in node.emission else 1
        if deep:
            memory = self.machine.memory
            latency += network.channel_cycles + memory.write_to_token_cycles + memory.read_cycles
        value = self._port_value(edge)
        level = self._level(reader, edge.touch)
        for link in links(edge, writer, reader):
            names = {}
            for pair in link.pairs:
                names[pair] = (
                    f"{self._end(edge.source, pair[0])} -> {self._end(edge.target, pair[1])}"
                )
                names[pair] += f": {value}"
            for source_end, ends in link.from_source():
                channels = tuple(names[source_end, end] for end in ends)
                select = self._select(writer, link.source_select)
                unit = copy_name(self._owner(edge.source)[0], source_end.copy_map)
                self.drafts[unit].outputs.append(self._out_port(edge, channels, select))
            for target_end, ends in link.from_target():
                channels = tuple(names[end, target_end] for end in ends)
                select = self._select(reader, link.target_select)
                boxes = tuple(
                    self._part_box(edge, end.copy_map, target_end.copy_map) for end in ends
                )
                unit = copy_name(self._owner(edge.target)[0], target_end.copy_map)
                late = self._late(edge, level)
                self.drafts[unit].inputs.append(
                    Port(channels, level, value, select, (), late, boxes)
                )
            for (source_end, target_end), name in names.items():
                self.channels.append(
                    Channel(
                        name,
                        copy_name(self._owner(edge.source)[0], source_end.copy_map),
                        copy_name(self._owner(edge.target)[0], target_end.copy_map),
                        depth + self._initial(edge, writer),
                        latency,
                        network.credit_cycles,
                        self._initial(edge, writer),
                        "data",
                        value,
                        lanes,
                    )
                )
                if deep:
                    self._reserve(name, edge.value, depth * lanes)

    def _initial(self, edge: Edge, writer: StreamNode) -> int:
        """Tokens that a feedback starts with: what one point of its axis emits on one channel."""
        if not edge.earlier:
            return 0
        node = self.made.by_name[edge.source]
        loops = list(node.emission)
        axis = self.digits.of_axis[edge.earlier][-1]
        inside = loops[loops.index(axis) + 1 :] if axis in loops else loops
        return math.prod(self.made.trips(node, d) for d in inside)

    def _end(self, name: str, end: object) -> str:
        return self._owner(name)[0] + str(end)

    def _select(
        self, main: StreamNode, chosen: Mapping[str, int]
    ) -> tuple[tuple[int, int, int], ...]:
        return tuple((main.loops.index(d), 1, count) for d, count in chosen.items())

    def _part_box(self, edge: Edge, source: Copy, target: Copy) -> Box:
        """What a tile from copy `source` covers, with the loops of the reader's copy `target`."""
        node = self.made.by_name[edge.source]
        _, reader = self._owner(edge.target)
        walks = []
        for axis in self._value_axes(edge):
            parts = []
            for name in self.digits.of_axis[axis]:
                digit = self.digits[name]
                if axis in edge.last:
                    parts.append(single(digit))
                elif name in reader.domain:
                    copies = reader.copies(name) * reader.merge.get(name, 1)
                    loop = reader.domain.index(name)
                    parts.append(counted(digit, loop, copies, target.get(name, 0)))
                elif name in node.domain:
                    parts.append(single(digit))
                else:
                    parts.append(share(node, digit, source))
            walks.append(axis_walk(self.digits, axis, parts))
        return tuple(walks)

    def _value_axes(self, edge: Edge) -> tuple[str, ...]:
        return self.made.by_name[edge.source].node.axes

    # Scratchpads

    def _scratchpad(self, edge: Edge) -> None:
        source = self.made.by_name[edge.source]
        target = self.made.by_name[edge.target]
        _, reader = self._owner(edge.target)
        modes = {
            d: scatter(source, target, d)
            for d in self._emission(edge)
            if d in edge.touch and reader.copies(d) > 1
        }
        shared = [d for d in reader.unroll if d in edge.touch]
        merged = [d for d in target.merge if source.copies(d) > target.copies(d)]
        combos = itertools.product(*[range(reader.copies(d)) for d in shared])
        for combo in combos:
            copy = dict(zip(shared, combo, strict=True))
            for part in self._merge_parts(source, target, merged):
                self._one_scratchpad(edge, copy, part, modes)

    def _merge_parts(
        self, source: StreamNode, target: StreamNode, merged: list[str]
    ) -> list[dict[str, int]]:
        ranges = [[(d, i) for i in range(source.copies(d))] for d in merged]
        return [dict(choice) for choice in itertools.product(*ranges)]

    def _one_scratchpad(
        self, edge: Edge, copy: dict[str, int], part: dict[str, int], modes: Mapping[str, str]
    ) -> None:
        """The memory for the reader copies that agree in `copy`, fed by writer copies in `part`."""
        source, target = self.made.by_name[edge.source], self.made.by_name[edge.target]
        source_name, writer = self._owner(edge.source)
        target_name, reader = self._owner(edge.target)
        value = self._port_value(edge)
        base = f"{edge.source} -> {edge.target}: {value}" if value != edge.source else edge.name
        name = copy_name(base, {**copy, **part})
        merged = list(part)
        emission = self._emission(edge)
        domain = [d for d in emission if d in source.emits]
        outside = reader.domain[: edge.common]
        memory, network = self.machine.memory, self.machine.network

        def virtual(digit: str) -> int:
            if digit in merged:
                return 1
            return writer.copies(digit) * source.pack.get(digit, 1)

        def kept(digit: str) -> int:
            return reader.copies(digit) if modes.get(digit, "whole") != "whole" else 1

        loops = tuple(Loop(d, self.made.trips(source, d) * virtual(d) // kept(d)) for d in emission)
        parts_box, select = [], []
        feeding = self._feeding(edge, copy, part, modes)
        for i, digit in enumerate(emission):
            count = len(feeding.per_digit.get(digit, [0]))
            if count > 1:
                select.append((i, 1, count))
        box = self._stored_box(edge, copy, modes, {d: i for i, d in enumerate(domain)}, outside)
        tiles = edge.depth
        initial = 1 if edge.earlier else 0
        buffer = Buffer(name, edge.value, box, len(outside), tiles)
        write = _Draft(
            f"{name} write", "write", loops, len(domain), memory.write_to_token_cycles, buffer
        )
        self.drafts[write.name] = write
        channels = []
        lanes = source.lanes if source.vector in source.emission else 1
        for end in feeding.ends:
            channel = f"{source_name}{end} -> {write.name}"
            unit = copy_name(source_name, end.copy_map)
            port_select = self._deal_select(edge, modes)
            # A writer that deals its beats out has one port whose channels the copies share.
            self._add_output(edge, unit, channel, port_select, copy, modes)
            channels.append(channel)
            parts_box.append(self._fed_box(edge, end.copy_map, copy, modes, domain))
            self.channels.append(
                Channel(
                    channel,
                    unit,
                    write.name,
                    memory.fifo_depth_beats,
                    network.channel_cycles,
                    network.credit_cycles,
                    0,
                    "data",
                    edge.value,
                    lanes,
                )
            )
        write.inputs.append(
            Port(
                tuple(channels), len(loops), edge.value, tuple(select), (), False, tuple(parts_box)
            )
        )
        read = self._read_unit(edge, name, copy, len(outside))
        token, credit = f"{name} tile", f"{name} free"
        self.channels.append(
            Channel(
                token, write.name, read.name, tiles + initial, 0, 1, initial, "tile", edge.value
            )
        )
        self.channels.append(
            Channel(
                credit,
                read.name,
                write.name,
                tiles + 1,
                network.credit_cycles - 1,
                1,
                tiles - initial,
                "credit",
            )
        )
        write.inputs.append(Port((credit,), len(outside)))
        write.outputs.append(Port((token,), len(outside), edge.value))
        read.inputs.append(
            Port(
                (token,),
                len(outside),
                edge.value,
                boxes=(
                    self._stored_box(
                        edge, copy, modes, {d: i for i, d in enumerate(outside)}, outside, copy
                    ),
                ),
            )
        )
        read.outputs.append(Port((credit,), len(outside)))
        wires, vector = operand_wires(target, edge)
        level = len(read.loops)
        read_lanes = target.lanes if vector and target.vector in edge.touch else 1
        for reader_copy in copies_of(reader):
            if any(reader_copy.get(d, 0) != i for d, i in copy.items()):
                continue
            if not self._takes_part(edge, reader_copy, part):
                continue
            unit = copy_name(target_name, reader_copy)
            channel = f"{read.name} -> {unit}"
            read.outputs.append(Port((channel,), level, edge.value))
            stored = self._stored_box(
                edge, copy, modes, {d: i for i, d in enumerate(reader.domain)}, outside, reader_copy
            )
            self.drafts[unit].inputs.append(
                Port((channel,), level, value, (), (), self._late(edge, level), (stored,))
            )
            self.channels.append(
                Channel(
                    channel,
                    read.name,
                    unit,
                    self._fifo_depth(unit),
                    network.channel_cycles,
                    network.credit_cycles,
                    0,
                    "data",
                    edge.value,
                    read_lanes,
                    wires,
                )
            )
        elems = self._stored_elems(box)
        size = elems * DATA_BYTES[self.machine.data_type] * tiles
        cells = max(-(-size // memory.capacity_bytes), -(-wires // memory.vector_out), 1)
        self.scratchpads.append(
            Scratchpad(name, edge.value, write.name, (read.name,), elems, tiles, size, cells, wires)
        )

    def _takes_part(self, edge: Edge, reader_copy: Copy, part: Copy) -> bool:
        target = self.made.by_name[edge.target]
        return all(i % target.copies(d) == reader_copy.get(d, 0) for d, i in part.items())

    def _fifo_depth(self, unit: str) -> int:
        kind = self.drafts[unit].kind
        memory = kind in ("write", "read")
        return (self.machine.memory if memory else self.machine.compute).fifo_depth_beats

    def _stored_elems(self, box: Box) -> int:
        """Elements of a full tile."""
        elems = 1
        for walk in box:
            points = 1
            for digit in walk.digits:
                inner = math.prod(
                    -(-max(0, p.count - p.copy) // p.copies) for p in digit.pieces if p.loop is None
                )
                points *= min(inner, digit.extent)
            elems *= points
        return elems

    def _read_unit(self, edge: Edge, name: str, copy: dict[str, int], common: int) -> _Draft:
        _, reader = self._owner(edge.target)
        level = max(self._level(reader, edge.touch), common)
        loops = self._loops(reader)[:level]
        points = min(len(reader.domain), level)
        read = _Draft(
            f"{name} read", "read", loops, points, self.machine.memory.read_cycles, Fetch(name)
        )
        self.drafts[read.name] = read
        return read

    def _stored_box(
        self,
        edge: Edge,
        copy: Copy,
        modes: Mapping[str, str],
        loops: Mapping[str, int],
        outside: tuple[str, ...],
        reader_copy: Copy | None = None,
    ) -> Box:
        """What a stored tile covers, its outer digits counted by `loops` of the unit that asks."""
        target = self.made.by_name[edge.target]
        _, reader = self._owner(edge.target)
        walks = []
        for axis in self._value_axes(edge):
            parts = []
            for name in self.digits.of_axis[axis]:
                digit = self.digits[name]
                dealt = modes.get(name, "whole") != "whole"
                copies = reader.copies(name) if dealt else 1
                index = copy.get(name, 0) if dealt else 0
                if axis in edge.last:
                    parts.append(single(digit))
                elif name in outside:
                    if reader_copy is not None:
                        copies = reader.copies(name) * reader.merge.get(name, 1)
                        index = reader_copy.get(name, 0)
                    parts.append(counted(digit, loops[name], copies, index))
                else:
                    block = target.grain(name) * target.pack.get(name, 1)
                    parts.append(blocks(digit, block, copies, index))
            walks.append(axis_walk(self.digits, axis, parts))
        return tuple(walks)

    def _fed_box(
        self,
        edge: Edge,
        source: Copy,
        copy: Copy,
        modes: Mapping[str, str],
        domain: list[str],
    ) -> Box:
        """What a tile from writer copy `source` covers, with the loops of the write unit."""
        node = self.made.by_name[edge.source]
        _, reader = self._owner(edge.target)
        walks = []
        for axis in self._value_axes(edge):
            parts = []
            for name in self.digits.of_axis[axis]:
                digit = self.digits[name]
                if axis in edge.last:
                    parts.append(single(digit))
                elif name in domain:
                    dealt = modes.get(name, "whole") != "whole"
                    copies = reader.copies(name) if dealt else 1
                    index = copy.get(name, 0) if dealt else 0
                    parts.append(counted(digit, domain.index(name), copies, index))
                else:
                    parts.append(share(node, digit, source))
            walks.append(axis_walk(self.digits, axis, parts))
        return tuple(walks)

    def _feeding(self, edge: Edge, copy: Copy, part: Copy, modes: Mapping[str, str]) -> Feeding:
        """The writer ends that fill the scratchpad of reader copies `copy`, in order of arrival."""
        source, target = self.made.by_name[edge.source], self.made.by_name[edge.target]
        per_digit: dict[str, list[int]] = {}
        for digit in self._emission(edge):
            count = source.copies(digit) * source.pack.get(digit, 1)
            if modes.get(digit) == "pair":
                block = target.pack.get(digit, 1)
                copies = target.copies(digit)
                chosen = [i for i in range(count) if i // block % copies == copy[digit]]
            elif digit in part:
                chosen = [part[digit]]
            else:
                chosen = list(range(count))
            per_digit[digit] = chosen
        from mapping.links import End

        ends = []
        digits = list(per_digit)
        for combo in itertools.product(*per_digit.values()):
            virtual = dict(zip(digits, combo, strict=True))
            for digit, index in part.items():
                virtual.setdefault(digit, index)
            ends.append(End.of(source, virtual))
        return Feeding(per_digit, tuple(ends))

    def _deal_select(
        self, edge: Edge, modes: Mapping[str, str]
    ) -> tuple[tuple[int, int, int], ...]:
        source, target = self.made.by_name[edge.source], self.made.by_name[edge.target]
        _, writer = self._owner(edge.source)
        _, reader = self._owner(edge.target)
        select = []
        for digit, mode in modes.items():
            if mode == "deal":
                block = target.grain(digit) * target.pack.get(digit, 1) // source.grain(digit)
                select.append((writer.loops.index(digit), block, reader.copies(digit)))
        return tuple(select)

    def _add_output(
        self,
        edge: Edge,
        unit: str,
        channel: str,
        select: tuple[tuple[int, int, int], ...],
        copy: Copy,
        modes: Mapping[str, str],
    ) -> None:
        """Add `channel` to the writer: to the port that deals to its siblings, or as its own."""
        if not select:
            self.drafts[unit].outputs.append(self._out_port(edge, (channel,), ()))
            return
        dealt = [d for d, mode in modes.items() if mode == "deal"]
        others = tuple((d, i) for d, i in copy.items() if d not in dealt)
        key = (edge.name, self._port_value(edge), unit, others, channel.split(" -> ")[0])
        self._dealers = getattr(self, "_dealers", {})
        outputs = self.drafts[unit].outputs
        if key not in self._dealers:
            self._dealers[key] = len(outputs)
            outputs.append(self._out_port(edge, (channel,), select))
            return
        place = self._dealers[key]
        old = outputs[place]
        outputs[place] = self._out_port(edge, (*old.channels, channel), select)


@dataclass(frozen=True)
class Feeding:
    """Writer ends of a scratchpad, and for each digit which of them take turns."""

    per_digit: Mapping[str, list[int]]
    ends: tuple
