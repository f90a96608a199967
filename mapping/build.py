"""Builds a Program from a StreamGraph and its groups: units with loops, channels with capacities.

Every copy of a group becomes a compute unit; every channel a FIFO or a scratchpad with its write
and read units; every load and store an address generator. `mapping/links.py` says which copies talk
to which, `mapping/boxes.py` what their tiles cover. Nothing is decided here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dataflow.index import affine
from dataflow.program import (
    Access,
    AxisWalk,
    Box,
    Buffer,
    Channel,
    Compute,
    DigitWalk,
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
from dataflow.streams.arrays import is_held
from dataflow.streams.digits import Digit
from dataflow.streams.edge import Edge, StreamGraph
from dataflow.streams.node import StreamNode
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES
from mapping import systolic
from mapping.banks import read_lanes, turns, write_lanes
from mapping.boxes import axis_walk, blocks, box_of, counted, node_axis, share, single
from mapping.links import Link, fifos, links
from mapping.pads import (
    Copy,
    Pad,
    channel_elems,
    copies_of,
    copy_name,
    deep_fifo_cells,
    emission_of,
    plan_pads,
    port_value,
    read_loops,
    slots,
    state_elems,
    state_loop,
    touch_distance,
)
from mapping.partition import Group, group_map, ii_of, operand_wires, terms_of
from mapping.systolic_units import next_fold, preload, rows_loop
from mapping.tensors import base_bytes


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


def build(made: StreamGraph, groups: tuple[Group, ...], machine: Machine) -> Program:
    """Return the Program of `made`, not yet placed or routed."""
    return _Build(made, groups, machine).run()


class _Build:
    def __init__(self, made: StreamGraph, groups: tuple[Group, ...], machine: Machine) -> None:
        self.made, self.machine, self.digits = made, machine, made.digits
        self.group_of = group_map(groups)
        self.groups = groups
        self.main: dict[str, StreamNode] = {}
        self.drafts: dict[str, _Draft] = {}
        self.preloads: list[Unit] = []
        self.channels: list[Channel] = []
        self.scratchpads: list[Scratchpad] = []
        self.tensors: dict[str, Tensor] = {}
        self.end_bytes = 0
        # Where the port of a writer that deals its beats out stands among its outputs.
        self.dealers: dict[tuple, int] = {}

    def run(self) -> Program:
        for group in self.groups:
            self._compute(group)
        for node in self.made.nodes:
            if node.kind in ("load", "store", "host"):
                self._off_chip(node)
        for edge in fifos(self.made, self.group_of):
            self._fifo(edge)
        for pad in plan_pads(self.made, self.group_of, self.machine):
            self._scratchpad(pad)
        for group in self.groups:
            self._states(group)
        units = (*(draft.unit() for draft in self.drafts.values()), *self.preloads)
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
        main = self.made.by_name[group.main]
        self.main[group.name] = main
        latency = group.latency_cycles(self.machine)
        ii = max([ii_of(node, self.machine) for node in nodes])
        if any(touch_distance(self.made, node) == 1 for node in nodes):
            ii = max(ii, self.machine.compute.accumulate_latency_cycles)
        if main.array:
            latency = ii = 1
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
                main.array,
            )
            if main.array == "output":
                self._next_fold(self.drafts[name], main)

    def _next_fold(self, draft: _Draft, node: StreamNode) -> None:
        """Let the folds of a result that stays in an array follow one another."""
        made = next_fold(draft.name, systolic.fold_level(self.made, node), self.machine)
        if made:
            channel, port = made
            self.channels.append(channel)
            draft.inputs.append(port)
            draft.outputs.append(port)

    def _preload(self, unit: str, level: int, port: Port) -> None:
        """Let an operand that stays in an array in through a unit of its own."""
        draft = self.drafts[unit]
        made = preload(draft.name, draft.loops, draft.points, level, port, self.machine)
        self.preloads.append(made.unit)
        self.channels += made.channels
        draft.inputs.append(made.array_input)
        draft.outputs.append(made.array_output)

    def _beyond_one_unit(self, edge: Edge) -> tuple[int, int]:
        """What a channel out of an array, or a chain with a FIFO a unit, takes and holds more."""
        source, group = self.made.by_name[edge.source], self.group_of.get(edge.source)
        if not source.array:
            return 0, (group.levels - 1 if group else 0) * self.machine.compute.fifo_depth_beats
        more = systolic.results_in_flight(self.made, source, edge, self.machine)
        return systolic.through_cycles(self.machine), more

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
            yield Operation(node.node, carried, terms_of(self.made, node) if node.merge else 0)

    def _moving(self, node: StreamNode) -> list[str]:
        return [digit for digit in node.loops if self.made.trips(node, digit) > 1]

    def _states(self, group: Group) -> None:
        """Accumulators and values carried to the next point, where their latency can show."""
        main = self.main[group.name]
        for name in group.members:
            node = self.made.by_name[name]
            outer = state_loop(self.made, node) or self._fed_back_loop(group, node)
            if not outer:
                continue
            elems = state_elems(self.made, node, self.machine)
            inside = main.loops[main.loops.index(outer) + 1 :]
            firings = math.prod(self.made.trips(main, d) for d in inside)
            for copy in copies_of(main):
                if elems:
                    self._reserve(f"{copy_name(name, copy)} state", name, elems)
                draft = self.drafts[copy_name(group.name, copy)]
                last = self.machine.compute.latency_cycles  # of a tree the last unit accumulates
                if firings * draft.ii_cycles < (last if node.merge else draft.latency_cycles):
                    self._feed_back(draft, node, main, outer)

    def _fed_back_loop(self, group: Group, node: StreamNode) -> str:
        """The loop along which a member of the group takes `node`'s value of the point before."""
        for edge in self.made.out_of(node.name):
            if edge.earlier and edge.target in group.members and edge.kind == "fifo":
                return self.digits.of_axis[edge.earlier][-1]
        return ""

    def _feed_back(self, draft: _Draft, node: StreamNode, main: StreamNode, outer: str) -> None:
        """A channel from a unit to itself with one token a running result (rule 7)."""
        name = f"{draft.name} -> {draft.name}: {node.name}"
        kept = [d for d in node.loops if d not in node.gone and d not in node.carried]
        inside = node.loops[node.loops.index(outer) + 1 :]
        tokens = math.prod(self.made.trips(node, d) for d in inside if d in kept)
        level = self._level(main, [outer, *node.loops])
        self.channels.append(
            Channel(name, draft.name, draft.name, tokens + 1, 0, 1, tokens, "data")
        )
        draft.inputs.append(Port((name,), level))
        draft.outputs.append(Port((name,), level))

    def _reserve(self, name: str, value: str, elems: int) -> None:
        size = elems * DATA_BYTES[self.machine.accumulate_type]
        cells = deep_fifo_cells(elems, self.machine)
        self.scratchpads.append(Scratchpad(name, value, (), (), elems, 1, size, cells))

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
        # An axis of several digits moves as fast as its fastest one.
        order = tuple(dict.fromkeys(self.digits[d].axis for d in reversed(node.walk)))[::-1]
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
            base = base_bytes(self.machine, self.end_bytes, len(self.tensors))
            self.tensors[name] = tensor = Tensor(name, kind, source, shape, base, size)
            self.end_bytes = base + tensor.bytes
        return name

    # Channels

    def _level(self, main: StreamNode, digits: Iterable[str]) -> int:
        """The loop level just inside the last of `digits` that turns."""
        wanted = set(digits)
        places = [
            i + 1 for i, d in enumerate(main.loops) if d in wanted and self.made.trips(main, d) > 1
        ]
        return max(places, default=0)

    def _out_port(
        self, edge: Edge, channels: tuple[str, ...], select: tuple[tuple[int, int, int], ...]
    ) -> Port:
        _, main = self._owner(edge.source)
        emission = emission_of(self.made, edge)
        level = self._level(main, emission)
        # A result leaves once all is done that is reduced on the way to it, in this node or before.
        last = tuple(i for i, d in enumerate(main.loops[:level]) if d not in emission)
        return Port(channels, level, edge.value, select, last)

    def _in_port(
        self,
        edge: Edge,
        channels: tuple[str, ...],
        level: int,
        select: tuple[tuple[int, int, int], ...],
        boxes: tuple[Box, ...],
    ) -> Port:
        """An operand's port, late where it is needed only once a member before has reduced."""
        node = self.made.by_name[edge.target]
        _, main = self._owner(edge.target)
        own = self._level(main, self._moving(node))
        deeper = self._level(main, self._moving(main))
        last = tuple(i for i, d in enumerate(main.loops[:level]) if d not in node.loops)
        late = bool(last) or level == own < deeper
        return Port(channels, level, port_value(self.made, edge), select, last, late, boxes)

    def _fifo(self, edge: Edge) -> None:
        _, writer = self._owner(edge.source)
        _, reader = self._owner(edge.target)
        network, compute = self.machine.network, self.machine.compute
        depth = edge.depth or compute.fifo_depth_beats
        latency = network.channel_cycles
        deep = depth > compute.fifo_depth_beats
        through, more = self._beyond_one_unit(edge)
        latency += through
        node = self.made.by_name[edge.source]
        lanes = node.lanes if node.vector in node.emission else 1
        if deep:
            memory = self.machine.memory
            latency += network.channel_cycles + memory.write_to_token_cycles + memory.read_cycles
        value = port_value(self.made, edge)
        level = self._level(reader, edge.touch)
        for link in links(edge, writer, reader):
            names = {}
            initial = self._initial(edge, link)
            for pair in link.pairs:
                names[pair] = f"{edge.source}{pair[0]} -> {edge.target}{pair[1]}"
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
                port = self._in_port(edge, channels, level, select, boxes)
                self.drafts[unit].inputs.append(port)
            for (source_end, target_end), name in names.items():
                self.channels.append(
                    Channel(
                        name,
                        copy_name(self._owner(edge.source)[0], source_end.copy_map),
                        copy_name(self._owner(edge.target)[0], target_end.copy_map),
                        depth + initial + more,
                        latency,
                        network.credit_cycles,
                        initial,
                        "data",
                        value,
                        lanes,
                    )
                )
                if deep:
                    self._reserve(name, edge.value, channel_elems(self.made, edge))

    def _initial(self, edge: Edge, link: Link) -> int:
        """Tokens that a feedback starts with: what one point of its axis emits on one channel."""
        if not edge.earlier:
            return 0
        node = self.made.by_name[edge.source]
        loops = list(node.emission)
        axis = self.digits.of_axis[edge.earlier][-1]
        inside = loops[loops.index(axis) + 1 :] if axis in loops else loops
        shares = math.prod(n for d, n in link.source_select.items() if d in inside)
        return math.prod(self.made.trips(node, d) for d in inside) // shares

    def _select(
        self, main: StreamNode, chosen: Mapping[str, int]
    ) -> tuple[tuple[int, int, int], ...]:
        return tuple((main.loops.index(d), 1, count) for d, count in chosen.items())

    def _box(self, edge: Edge, walk_of: Callable[[Digit], DigitWalk]) -> Box:
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

    def _part_box(self, edge: Edge, source: Copy, target: Copy) -> Box:
        """What a tile from copy `source` covers, with the loops of the reader's copy `target`."""
        node = self.made.by_name[edge.source]
        _, reader = self._owner(edge.target)

        def walk_of(digit: Digit) -> DigitWalk:
            name = digit.name
            if name in reader.domain:
                copies = reader.copies(name) * reader.merge.get(name, 1)
                copy = source if name in reader.merge else target
                return counted(digit, reader.domain.index(name), copies, copy.get(name, 0))
            return single(digit) if name in node.domain else share(node, digit, source)

        return self._box(edge, walk_of)

    # Scratchpads

    def _scratchpad(self, pad: Pad) -> None:
        """The write units, one a writer copy, and the read units, one a reader, of a scratchpad."""
        memory = self.machine.memory
        reads: list[tuple[tuple[Edge, ...], _Draft]] = []
        for stream in pad.streams:
            edge = stream[0]
            _, reader = self._owner(edge.target)
            name = f"{pad.name} read"
            if len(pad.streams) > 1:
                name += " " + ", ".join(other.target for other in stream)
            loops = tuple(
                Loop(digit, trips) for digit, trips in read_loops(self.made, self.group_of, edge)
            )
            points = min(len(reader.domain), len(loops))
            if is_held(self.made.by_name[edge.target], edge):
                loops += (rows_loop(self.machine),)
            lanes = read_lanes(self.made, edge, self.made.by_name[edge.target])
            ii = turns(pad.banking, lanes, pad.tile_elems, self.machine, writes=False)
            read = _Draft(name, "read", loops, points, memory.read_cycles, Fetch(pad.name), ii)
            reads.append((stream, read))
        writers = [self._writer(pad, copy, reads) for copy in pad.writers]
        for stream, read in reads:
            self.drafts[read.name] = read
            for edge in stream:
                self._readers(pad, edge, read)
        self.scratchpads.append(
            Scratchpad(
                pad.name,
                pad.edge.value,
                tuple(writers),
                tuple(read.name for _, read in reads),
                pad.tile_elems,
                pad.depth,
                pad.bytes,
                pad.cells,
                pad.ports,
                pad.banking,
            )
        )

    def _writer(
        self, pad: Pad, writer_copy: Copy, reads: list[tuple[tuple[Edge, ...], _Draft]]
    ) -> str:
        """Add the write unit for what one writer copy puts into a scratchpad."""
        edge = pad.edge
        source = self.made.by_name[edge.source]
        source_name, _ = self._owner(edge.source)
        _, reader = self._owner(edge.target)
        memory, network = self.machine.memory, self.machine.network
        emission = emission_of(self.made, edge)
        domain = [d for d in emission if d in source.emits]
        taken = {d: slots(self.made, edge, writer_copy, pad.copy, pad.modes, d) for d in emission}

        packed = [d for d in emission if len(taken[d]) > 1]

        def trips(digit: str) -> int:
            shares = reader.copies(digit) if pad.modes.get(digit) == "deal" else 1
            own = 1 if digit in packed else len(taken[digit])
            return self.made.trips(source, digit) * own // shares

        index = {digit: i for i, digit in enumerate(domain)}
        box = self._stored_box(pad, edge, index, None, writer_copy)
        initial = self.made.initial_tiles(edge)
        work = Buffer(pad.name, edge.value, box, edge.common, pad.depth, initial)
        unit = f"{pad.name} write" + copy_name("", writer_copy)
        # Points that are packed leave together, so that they are taken in turn, one beat of each.
        loops = tuple(Loop(digit, trips(digit)) for digit in emission)
        loops += tuple(Loop(digit, len(taken[digit])) for digit in packed)
        ii = turns(
            pad.banking,
            write_lanes(self.made, edge, source),
            pad.tile_elems,
            self.machine,
            writes=True,
        )
        write = _Draft(unit, "write", loops, len(domain), memory.write_to_token_cycles, work, ii)
        self.drafts[unit] = write
        lanes = source.lanes if source.vector in source.emission else 1
        writer = copy_name(source_name, writer_copy)
        through, more = self._beyond_one_unit(edge)
        wires, depth = 1, memory.fifo_depth_beats
        if source.array and packed:  # a block at a time, a token of all its rows
            wires, depth = math.prod(len(taken[d]) for d in packed), 2
            taken, packed = {d: [0] for d in emission}, []
        channels = []
        for choice in itertools.product(*taken.values()):
            slot = {d: i for d, i in zip(taken, choice, strict=True) if source.pack.get(d, 1) > 1}
            mark = "." + ",".join(f"{d}{i}" for d, i in slot.items()) if slot else ""
            channel = f"{writer}{mark} -> {unit}"
            self._add_output(pad, edge, writer, channel, mark)
            channels.append(channel)
            self.channels.append(
                Channel(
                    channel,
                    writer,
                    unit,
                    depth + more,
                    network.channel_cycles + through,
                    network.credit_cycles,
                    0,
                    "data",
                    edge.value,
                    lanes,
                    wires,
                )
            )
        select = tuple((len(emission) + i, 1, len(taken[d])) for i, d in enumerate(packed))
        fed = self._fed_box(pad, edge, writer_copy, domain)
        level = len(emission) if wires > 1 else len(loops)
        write.inputs.append(
            Port(tuple(channels), level, edge.value, select, (), False, (fed,) * len(channels))
        )
        for stream, read in reads:
            self._tokens(pad, stream[0], write, read, initial)
        return unit

    def _tokens(self, pad: Pad, edge: Edge, write: _Draft, read: _Draft, initial: int) -> None:
        """Tile tokens from a write unit to a read unit, and free buffers back."""
        _, reader = self._owner(edge.target)
        level, tiles = edge.common, pad.depth
        back = f" {edge.target}" if len(pad.streams) > 1 else ""
        token, credit = f"{write.name} full{back}", f"{write.name} free{back}"
        wait = self.machine.network.credit_cycles - 1
        self.channels += [
            Channel(
                token, write.name, read.name, tiles + initial, 0, 1, initial, "tile", edge.value
            ),
            Channel(credit, read.name, write.name, tiles + 1, wait, 1, tiles - initial, "credit"),
        ]
        index = {digit: i for i, digit in enumerate(reader.domain)}
        box = self._stored_box(pad, edge, index, pad.copy, None)
        write.inputs.append(Port((credit,), level))
        write.outputs.append(Port((token,), level, edge.value))
        read.inputs.append(Port((token,), level, edge.value, boxes=(box,)))
        read.outputs.append(Port((credit,), level))

    def _readers(self, pad: Pad, edge: Edge, read: _Draft) -> None:
        """Channels from a read unit to all reader copies that share it."""
        target = self.made.by_name[edge.target]
        target_name, reader = self._owner(edge.target)
        network = self.machine.network
        level = max(self._level(reader, edge.touch), edge.common)
        wires, vector = operand_wires(target, edge)
        lanes = target.lanes if vector and target.vector in edge.touch else 1
        index = {digit: i for i, digit in enumerate(reader.domain)}
        for reader_copy in copies_of(reader):
            if any(reader_copy.get(d, 0) != i for d, i in pad.copy.items()):
                continue
            if not self._takes_part(edge, reader_copy, pad.part):
                continue
            unit = copy_name(target_name, reader_copy)
            channel = f"{read.name} -> {unit}"
            box = self._stored_box(pad, edge, index, reader_copy, None)
            read.outputs.append(Port((channel,), len(read.loops), edge.value))
            port = self._in_port(edge, (channel,), level, (), (box,))
            if is_held(target, edge):
                self._preload(unit, level, port)
                unit = self.preloads[-1].name
            else:
                self.drafts[unit].inputs.append(port)
            self.channels.append(
                Channel(
                    channel,
                    read.name,
                    unit,
                    self.machine.compute.fifo_depth_beats,
                    network.channel_cycles,
                    network.credit_cycles,
                    0,
                    "data",
                    edge.value,
                    lanes,
                    wires,
                )
            )

    def _takes_part(self, edge: Edge, reader_copy: Copy, part: Copy) -> bool:
        target = self.made.by_name[edge.target]
        return all(i % target.copies(d) == reader_copy.get(d, 0) for d, i in part.items())

    def _stored_box(
        self,
        pad: Pad,
        edge: Edge,
        loops: Mapping[str, int],
        reader_copy: Copy | None,
        writer_copy: Copy | None,
    ) -> Box:
        """What a stored tile covers, its outer digits counted by `loops` of the unit that asks:
        a reader copy or a writer copy."""
        target = self.made.by_name[edge.target]
        _, reader = self._owner(edge.target)
        outside = reader.domain[: edge.common]

        def walk_of(digit: Digit) -> DigitWalk:
            name = digit.name
            dealt = pad.modes.get(name, "whole") != "whole"
            if name not in outside:
                block = target.grain(name) * target.pack.get(name, 1)
                copies = reader.copies(name) if dealt else 1
                return blocks(digit, block, copies, pad.copy.get(name, 0) if dealt else 0)
            if reader_copy is not None:
                copies = reader.copies(name) * reader.merge.get(name, 1)
                copy = pad.part if name in pad.part else reader_copy
                return counted(digit, loops[name], copies, copy.get(name, 0))
            return self._written(pad, edge, digit, writer_copy or {}, loops)

        return self._box(edge, walk_of)

    def _written(
        self, pad: Pad, edge: Edge, digit: Digit, writer_copy: Copy, loops: Mapping[str, int]
    ) -> DigitWalk:
        """A domain digit as the write unit of a writer copy counts it."""
        name = digit.name
        source, target = self.made.by_name[edge.source], self.made.by_name[edge.target]
        if pad.modes.get(name) == "deal":
            return counted(digit, loops[name], target.copies(name), pad.copy.get(name, 0))
        return counted(digit, loops[name], source.copies(name), writer_copy.get(name, 0))

    def _fed_box(self, pad: Pad, edge: Edge, writer_copy: Copy, domain: list[str]) -> Box:
        """What a tile from a writer copy covers, with the loops of its write unit."""
        node = self.made.by_name[edge.source]
        loops = {digit: i for i, digit in enumerate(domain)}

        def walk_of(digit: Digit) -> DigitWalk:
            if digit.name in loops:
                return self._written(pad, edge, digit, writer_copy, loops)
            return share(node, digit, writer_copy)

        return self._box(edge, walk_of)

    def _deal_select(self, pad: Pad, edge: Edge) -> tuple[tuple[int, int, int], ...]:
        """Whose turn it is among the copies that the writer deals its beats out to.

        Most significant first, in the order in which copies are listed.
        """
        source, target = self.made.by_name[edge.source], self.made.by_name[edge.target]
        _, writer = self._owner(edge.source)
        select = []
        for digit in pad.copy:
            if pad.modes.get(digit) == "deal":
                block = target.grain(digit) * target.pack.get(digit, 1) // source.grain(digit)
                select.append((writer.loops.index(digit), block, target.copies(digit)))
        return tuple(select)

    def _add_output(self, pad: Pad, edge: Edge, unit: str, channel: str, mark: str) -> None:
        """Add `channel` to the writer: to the port that deals to its siblings, or as its own."""
        select = self._deal_select(pad, edge)
        outputs = self.drafts[unit].outputs
        if not select:
            outputs.append(self._out_port(edge, (channel,), ()))
            return
        dealt = [d for d, mode in pad.modes.items() if mode == "deal"]
        others = tuple((d, i) for d, i in pad.copy.items() if d not in dealt)
        key = (edge.name, port_value(self.made, edge), unit, others, mark)
        if key not in self.dealers:
            self.dealers[key] = len(outputs)
            outputs.append(self._out_port(edge, (channel,), select))
            return
        place = self.dealers[key]
        outputs[place] = self._out_port(edge, (*outputs[place].channels, channel), select)
