"""Channels that are FIFOs, between every copy that writes and every one that reads."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dataflow.program import Box, Channel, DigitWalk
from dataflow.streams.digits import Digit
from dataflow.streams.edge import Edge
from dataflow.streams.node import StreamNode
from mapping.boxes import counted, share, single
from mapping.building.draft import Building
from mapping.links import Link, links
from mapping.pads import Copy, channel_elems, copy_name, port_value


def add_fifo(b: Building, edge: Edge) -> None:
    """Add the channels of an edge, and their ports at both ends."""
    _, writer = b.owner(edge.source)
    _, reader = b.owner(edge.target)
    network, compute = b.machine.network, b.machine.compute
    depth = edge.depth or compute.fifo_depth_beats
    latency = network.channel_cycles
    deep = depth > compute.fifo_depth_beats
    through, more = b.beyond_one_unit(edge)
    latency += through
    node = b.made.by_name[edge.source]
    lanes = node.lanes if node.vector in node.emission else 1
    if deep:
        memory = b.machine.memory
        latency += network.channel_cycles + memory.write_to_token_cycles + memory.read_cycles
    value = port_value(b.made, edge)
    level = b.level(reader, edge.touch)
    for link in links(edge, writer, reader):
        names = {}
        initial = _initial(b, edge, link)
        for pair in link.pairs:
            names[pair] = f"{edge.source}{pair[0]} -> {edge.target}{pair[1]}"
            names[pair] += f": {value}"
        for source_end, ends in link.from_source():
            channels = tuple(names[source_end, end] for end in ends)
            select = _select(b, writer, link.source_select)
            unit = copy_name(b.owner(edge.source)[0], source_end.copy_map)
            b.drafts[unit].outputs.append(b.out_port(edge, channels, select))
        for target_end, ends in link.from_target():
            channels = tuple(names[end, target_end] for end in ends)
            select = _select(b, reader, link.target_select)
            boxes = tuple(_part_box(b, edge, end.copy_map, target_end.copy_map) for end in ends)
            unit = copy_name(b.owner(edge.target)[0], target_end.copy_map)
            port = b.in_port(edge, channels, level, select, boxes)
            b.drafts[unit].inputs.append(port)
        for (source_end, target_end), name in names.items():
            b.channels.append(
                Channel(
                    name,
                    copy_name(b.owner(edge.source)[0], source_end.copy_map),
                    copy_name(b.owner(edge.target)[0], target_end.copy_map),
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
                b.reserve(name, edge.value, channel_elems(b.made, edge))


def _initial(b: Building, edge: Edge, link: Link) -> int:
    """Tokens that a feedback starts with: what one point of its axis emits on one channel."""
    if not edge.earlier:
        return 0
    node = b.made.by_name[edge.source]
    loops = list(node.emission)
    axis = b.digits.of_axis[edge.earlier][-1]
    inside = loops[loops.index(axis) + 1 :] if axis in loops else loops
    shares = math.prod(n for d, n in link.source_select.items() if d in inside)
    return math.prod(b.made.trips(node, d) for d in inside) // shares


def _select(
    b: Building, main: StreamNode, chosen: Mapping[str, int]
) -> tuple[tuple[int, int, int], ...]:
    return tuple((main.loops.index(d), 1, count) for d, count in chosen.items())


def _part_box(b: Building, edge: Edge, source: Copy, target: Copy) -> Box:
    """What a tile from copy `source` covers, with the loops of the reader's copy `target`."""
    node = b.made.by_name[edge.source]
    _, reader = b.owner(edge.target)

    def walk_of(digit: Digit) -> DigitWalk:
        name = digit.name
        if name in reader.domain:
            copies = reader.copies(name) * reader.merge.get(name, 1)
            copy = source if name in reader.merge else target
            return counted(digit, reader.domain.index(name), copies, copy.get(name, 0))
        return single(digit) if name in node.domain else share(node, digit, source)

    return b.box(edge, walk_of)
