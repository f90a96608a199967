"""Shares out units: how many points a node packs in a firing and how many units it gets, so that
it takes no more than a given number of cycles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping

from dataflow.streams import StreamGraph, StreamNode
from hwspecs import Machine
from mapping.estimate import groups_of, spreadable
from mapping.partition import Group, stages_of
from mapping.resources import busy_cycles

MOST_COPIES = 128
"""Copies of one node over one digit that are thought of."""


def shared_out(
    made: StreamGraph,
    group: Group,
    machine: Machine,
    pipelines: Mapping[str, int],
    packed: bool,
    aim: float,
) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
    """Pack and unroll of each member so that the group takes at most `aim` cycles."""
    nodes = [made.by_name[name] for name in group.members]
    shared = {d: n for d, n in pipelines.items() if d in nodes[0].domain}
    if nodes[0].array:  # its rows are what the schedule packs
        return {nodes[0].name: (dict(nodes[0].pack), shared)}
    cycles = busy_cycles(made, group, machine) / math.prod(shared.values())
    digits = spreadable(made, group)
    room = machine.compute.stages // group.stages
    heavy = [node for node in nodes if node.node.op == "einsum"]
    if packed and heavy and len(nodes) > 1 and cycles > aim:
        # Products get units of their own; what follows them shares others, uncopied.
        result = {n.name: ({}, dict(shared)) for n in nodes}
        for node in heavy:
            own = Group(node.name, node.name, (node.name,), 2, 1)
            digits = spreadable(made, own)
            room = machine.compute.stages // stages_of(made, node, machine)
            pack, unroll = _share(made, node, digits, room, cycles / aim)
            result[node.name] = (pack, {**shared, **unroll})
        return result
    room = room if packed and heavy else 1
    pack, unroll = _share(made, nodes[0], digits, room, cycles / aim)
    return {node.name: (pack, {**shared, **unroll}) for node in nodes}


def _share(
    made: StreamGraph, node: StreamNode, digits: list[str], room: int, wanted: float
) -> tuple[dict[str, int], dict[str, int]]:
    """The fewest units that make a node `wanted` times faster: pack and unroll by digit."""
    if wanted <= 1 or not digits:
        return {}, {}
    counts = {d: groups_of(made, node, d) for d in digits}
    loops = math.prod(counts.values())
    best: tuple[tuple, dict[str, int], dict[str, int]] | None = None
    narrow = [d for d in digits if d != node.vector]
    for pack_digit, pack in [("", 1), *((d, p) for d in narrow for p in range(2, room + 1))]:
        left = dict(counts)
        if pack > 1:
            left[pack_digit] = -(-counts[pack_digit] // pack)
        target = loops / wanted
        for unroll in _unrolls(left, target):
            trips = math.prod(-(-left[d] // n) for d, n in unroll.items())
            units = math.prod(unroll.values())
            missed = max(0.0, trips - target)
            spread = max(unroll.values()) if len(unroll) > 1 else 0
            rank = (missed, units, pack, trips, spread)
            if best is None or rank < best[0]:
                chosen = {d: n for d, n in unroll.items() if n > 1}
                best = (rank, {pack_digit: pack} if pack > 1 else {}, chosen)
    assert best is not None
    return best[1], best[2]


def _unrolls(counts: Mapping[str, int], target: float) -> Iterator[dict[str, int]]:
    """Copies over each digit, the last digit's chosen so that `target` trips are left."""
    *firsts, last = counts
    for choice in itertools.product(*[_useful(counts[d]) for d in firsts]):
        unroll = dict(zip(firsts, choice, strict=True))
        trips = math.prod(-(-counts[d] // n) for d, n in unroll.items())
        allowed = max(1, int(target // trips))
        unroll[last] = min(-(-counts[last] // allowed), counts[last])
        yield unroll


def _useful(count: int) -> Iterable[int]:
    """Numbers of copies that leave fewer trips than any smaller number."""
    seen = set()
    for copies in range(1, min(count, MOST_COPIES) + 1):
        trips = -(-count // copies)
        if trips not in seen:
            seen.add(trips)
            yield copies


def meets_others(source: StreamNode, target: StreamNode, digit: str) -> bool:
    """Whether a FIFO over `digit` would join different numbers of units.

    Points packed in one firing leave one after the other, so where they are neighbours in the order
    of beats a reader that takes them singly needs one FIFO only.
    """
    if source.copies(digit) != target.copies(digit):
        return True
    if source.pack.get(digit, 1) == target.pack.get(digit, 1):
        return False
    return target.pack.get(digit, 1) > 1 or source.emission[-1] != digit
