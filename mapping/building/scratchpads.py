"""Scratchpads with their write units, one a writer copy, and read units, one a reader."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

from dataflow.program import Box, Buffer, Channel, DigitWalk, Fetch, Loop, Port, Scratchpad
from dataflow.streams.arrays import is_held
from dataflow.streams.digits import Digit
from dataflow.streams.edge import Edge
from mapping.banks import read_lanes, turns, write_lanes
from mapping.boxes import blocks, counted, share
from mapping.building.draft import Building, Draft
from mapping.pads import Copy, Pad, copies_of, copy_name, emission_of, port_value, read_loops, slots
from mapping.partition import operand_wires
from mapping.systolic_units import preload, rows_loop


def add_scratchpad(b: Building, pad: Pad) -> None:
    """The write units, one a writer copy, and the read units, one a reader, of a scratchpad."""
    memory = b.machine.memory
    reads: list[tuple[tuple[Edge, ...], Draft]] = []
    for stream in pad.streams:
        edge = stream[0]
        _, reader = b.owner(edge.target)
        name = f"{pad.name} read"
        if len(pad.streams) > 1:
            name += " " + ", ".join(other.target for other in stream)
        loops = tuple(Loop(digit, trips) for digit, trips in read_loops(b.made, b.group_of, edge))
        points = min(len(reader.domain), len(loops))
        if is_held(b.made.by_name[edge.target], edge):
            loops += (rows_loop(b.machine),)
        lanes = read_lanes(b.made, edge, b.made.by_name[edge.target])
        ii = turns(pad.banking, lanes, pad.tile_elems, b.machine, writes=False)
        read = Draft(name, "read", loops, points, memory.read_cycles, Fetch(pad.name), ii)
        reads.append((stream, read))
    writers = [_writer(b, pad, copy, reads) for copy in pad.writers]
    for stream, read in reads:
        b.drafts[read.name] = read
        for edge in stream:
            _readers(b, pad, edge, read)
    b.scratchpads.append(
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
    b: Building, pad: Pad, writer_copy: Copy, reads: list[tuple[tuple[Edge, ...], Draft]]
) -> str:
    """Add the write unit for what one writer copy puts into a scratchpad."""
    edge = pad.edge
    source = b.made.by_name[edge.source]
    source_name, _ = b.owner(edge.source)
    _, reader = b.owner(edge.target)
    memory, network = b.machine.memory, b.machine.network
    emission = emission_of(b.made, edge)
    domain = [d for d in emission if d in source.emits]
    taken = {d: slots(b.made, edge, writer_copy, pad.copy, pad.modes, d) for d in emission}

    packed = [d for d in emission if len(taken[d]) > 1]

    def trips(digit: str) -> int:
        shares = reader.copies(digit) if pad.modes.get(digit) == "deal" else 1
        own = 1 if digit in packed else len(taken[digit])
        return b.made.trips(source, digit) * own // shares

    index = {digit: i for i, digit in enumerate(domain)}
    box = _stored_box(b, pad, edge, index, None, writer_copy)
    initial = b.made.initial_tiles(edge)
    work = Buffer(pad.name, edge.value, box, edge.common, pad.depth, initial)
    unit = f"{pad.name} write" + copy_name("", writer_copy)
    # Points that are packed leave together, so that they are taken in turn, one beat of each.
    loops = tuple(Loop(digit, trips(digit)) for digit in emission)
    loops += tuple(Loop(digit, len(taken[digit])) for digit in packed)
    ii = turns(
        pad.banking,
        write_lanes(b.made, edge, source),
        pad.tile_elems,
        b.machine,
        writes=True,
    )
    write = Draft(unit, "write", loops, len(domain), memory.write_to_token_cycles, work, ii)
    b.drafts[unit] = write
    lanes = source.lanes if source.vector in source.emission else 1
    writer = copy_name(source_name, writer_copy)
    through, more = b.beyond_one_unit(edge)
    wires, depth = 1, memory.fifo_depth_beats
    if source.array and packed:  # a block at a time, a token of all its rows
        wires, depth = math.prod(len(taken[d]) for d in packed), 2
        taken, packed = {d: [0] for d in emission}, []
    channels = []
    for choice in itertools.product(*taken.values()):
        slot = {d: i for d, i in zip(taken, choice, strict=True) if source.pack.get(d, 1) > 1}
        mark = "." + ",".join(f"{d}{i}" for d, i in slot.items()) if slot else ""
        channel = f"{writer}{mark} -> {unit}"
        _add_output(b, pad, edge, writer, channel, mark)
        channels.append(channel)
        b.channels.append(
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
    fed = _fed_box(b, pad, edge, writer_copy, domain)
    level = len(emission) if wires > 1 else len(loops)
    write.inputs.append(
        Port(tuple(channels), level, edge.value, select, (), False, (fed,) * len(channels))
    )
    for stream, read in reads:
        _tokens(b, pad, stream[0], write, read, initial)
    return unit


def _tokens(b: Building, pad: Pad, edge: Edge, write: Draft, read: Draft, initial: int) -> None:
    """Tile tokens from a write unit to a read unit, and free buffers back."""
    _, reader = b.owner(edge.target)
    level, tiles = edge.common, pad.depth
    back = f" {edge.target}" if len(pad.streams) > 1 else ""
    token, credit = f"{write.name} full{back}", f"{write.name} free{back}"
    wait = b.machine.network.credit_cycles - 1
    b.channels += [
        Channel(token, write.name, read.name, tiles + initial, 0, 1, initial, "tile", edge.value),
        Channel(credit, read.name, write.name, tiles + 1, wait, 1, tiles - initial, "credit"),
    ]
    index = {digit: i for i, digit in enumerate(reader.domain)}
    box = _stored_box(b, pad, edge, index, pad.copy, None)
    write.inputs.append(Port((credit,), level))
    write.outputs.append(Port((token,), level, edge.value))
    read.inputs.append(Port((token,), level, edge.value, boxes=(box,)))
    read.outputs.append(Port((credit,), level))


def _readers(b: Building, pad: Pad, edge: Edge, read: Draft) -> None:
    """Channels from a read unit to all reader copies that share it."""
    target = b.made.by_name[edge.target]
    target_name, reader = b.owner(edge.target)
    network = b.machine.network
    level = max(b.level(reader, edge.touch), edge.common)
    wires, vector = operand_wires(target, edge)
    lanes = target.lanes if vector and target.vector in edge.touch else 1
    index = {digit: i for i, digit in enumerate(reader.domain)}
    for reader_copy in copies_of(reader):
        if any(reader_copy.get(d, 0) != i for d, i in pad.copy.items()):
            continue
        if not _takes_part(b, edge, reader_copy, pad.part):
            continue
        unit = copy_name(target_name, reader_copy)
        channel = f"{read.name} -> {unit}"
        box = _stored_box(b, pad, edge, index, reader_copy, None)
        read.outputs.append(Port((channel,), len(read.loops), edge.value))
        port = b.in_port(edge, (channel,), level, (), (box,))
        if is_held(target, edge):
            _preload(b, unit, level, port)
            unit = b.preloads[-1].name
        else:
            b.drafts[unit].inputs.append(port)
        b.channels.append(
            Channel(
                channel,
                read.name,
                unit,
                b.machine.compute.fifo_depth_beats,
                network.channel_cycles,
                network.credit_cycles,
                0,
                "data",
                edge.value,
                lanes,
                wires,
            )
        )


def _preload(b: Building, unit: str, level: int, port: Port) -> None:
    """Let an operand that stays in an array in through a unit of its own."""
    draft = b.drafts[unit]
    made = preload(draft.name, draft.loops, draft.points, level, port, b.machine)
    b.preloads.append(made.unit)
    b.channels += made.channels
    draft.inputs.append(made.array_input)
    draft.outputs.append(made.array_output)


def _takes_part(b: Building, edge: Edge, reader_copy: Copy, part: Copy) -> bool:
    target = b.made.by_name[edge.target]
    return all(i % target.copies(d) == reader_copy.get(d, 0) for d, i in part.items())


def _stored_box(
    b: Building,
    pad: Pad,
    edge: Edge,
    loops: Mapping[str, int],
    reader_copy: Copy | None,
    writer_copy: Copy | None,
) -> Box:
    """What a stored tile covers, its outer digits counted by `loops` of the unit that asks:
    a reader copy or a writer copy."""
    target = b.made.by_name[edge.target]
    _, reader = b.owner(edge.target)
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
        return _written(b, pad, edge, digit, writer_copy or {}, loops)

    return b.box(edge, walk_of)


def _written(
    b: Building, pad: Pad, edge: Edge, digit: Digit, writer_copy: Copy, loops: Mapping[str, int]
) -> DigitWalk:
    """A domain digit as the write unit of a writer copy counts it."""
    name = digit.name
    source, target = b.made.by_name[edge.source], b.made.by_name[edge.target]
    if pad.modes.get(name) == "deal":
        return counted(digit, loops[name], target.copies(name), pad.copy.get(name, 0))
    return counted(digit, loops[name], source.copies(name), writer_copy.get(name, 0))


def _fed_box(b: Building, pad: Pad, edge: Edge, writer_copy: Copy, domain: list[str]) -> Box:
    """What a tile from a writer copy covers, with the loops of its write unit."""
    node = b.made.by_name[edge.source]
    loops = {digit: i for i, digit in enumerate(domain)}

    def walk_of(digit: Digit) -> DigitWalk:
        if digit.name in loops:
            return _written(b, pad, edge, digit, writer_copy, loops)
        return share(node, digit, writer_copy)

    return b.box(edge, walk_of)


def _deal_select(b: Building, pad: Pad, edge: Edge) -> tuple[tuple[int, int, int], ...]:
    """Whose turn it is among the copies that the writer deals its beats out to.

    Most significant first, in the order in which copies are listed.
    """
    source, target = b.made.by_name[edge.source], b.made.by_name[edge.target]
    _, writer = b.owner(edge.source)
    select = []
    for digit in pad.copy:
        if pad.modes.get(digit) == "deal":
            block = target.grain(digit) * target.pack.get(digit, 1) // source.grain(digit)
            select.append((writer.loops.index(digit), block, target.copies(digit)))
    return tuple(select)


def _add_output(b: Building, pad: Pad, edge: Edge, unit: str, channel: str, mark: str) -> None:
    """Add `channel` to the writer: to the port that deals to its siblings, or as its own."""
    select = _deal_select(b, pad, edge)
    outputs = b.drafts[unit].outputs
    if not select:
        outputs.append(b.out_port(edge, (channel,), ()))
        return
    dealt = [d for d, mode in pad.modes.items() if mode == "deal"]
    others = tuple((d, i) for d, i in pad.copy.items() if d not in dealt)
    key = (edge.name, port_value(b.made, edge), unit, others, mark)
    if key not in b.dealers:
        b.dealers[key] = len(outputs)
        outputs.append(b.out_port(edge, (channel,), select))
        return
    place = b.dealers[key]
    outputs[place] = b.out_port(edge, (*outputs[place].channels, channel), select)
