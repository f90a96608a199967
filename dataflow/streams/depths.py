"""How much each channel must hold.

A channel whose reader waits for a second path holds what arrives meanwhile: where that path
passes a reduction or the tile of a scratchpad, a whole pass of the digits collected there. Naive
attention's full-row buffer follows from this. Where copies on one side take turns, a FIFO holds a
whole turn.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from dataflow.schedule import ScheduleError
from dataflow.streams.edge import Edge, StreamGraph, ends
from dataflow.streams.node import StreamNode


def with_depths(made: StreamGraph, fifo_beats: int) -> tuple[Edge, ...]:
    """Set how much each channel must hold while its reader waits for another path."""
    delays = _Delays(made)
    return tuple(_with_depth(made, edge, delays, fifo_beats) for edge in made.edges)


def _with_depth(made: StreamGraph, edge: Edge, delays: _Delays, fifo_beats: int) -> Edge:
    if edge.depth:
        least = made.initial_tiles(edge) if edge.kind == "scratchpad" else 0
        if edge.depth < least:
            path = ("channels", edge.name, "depth")
            rule = f"must be at least {least}, the tiles it starts with, got {edge.depth}"
            raise ScheduleError([made.schedule.fault(path, rule)])
        return edge
    found = _derived(made, edge, delays, fifo_beats)
    initial = made.initial_tiles(edge) if edge.kind == "scratchpad" else 0
    if initial and found.depth <= initial:
        return replace(edge, depth=initial + 1, why=f"it starts with {initial} tiles")
    return found


def _derived(made: StreamGraph, edge: Edge, delays: _Delays, fifo_beats: int) -> Edge:
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    hold, steps, through = delays.beside(edge)
    held = [
        digit
        for digit in source.emission
        if digit in hold
        and made.digits[digit].axis not in edge.last
        and made.trips(source, digit) > 1
    ]
    if edge.kind == "fifo":
        turns = _taking_turns(made, edge, fifo_beats)
        if not held or edge.earlier:
            return turns
        inside = source.emission[source.emission.index(held[0]) :]
        beats = steps * math.prod(made.trips(target, d) for d in inside if d in target.loops)
        why = f"{target.name} waits for {through} over {held[0]}: a whole pass, plus one FIFO"
        return replace(edge, depth=beats + max(turns.depth, fifo_beats), why=why)
    outside = target.domain[: edge.common]
    crossed = [d for d in outside if d in hold]
    if crossed:
        inner = outside[outside.index(crossed[0]) :]
        tiles = math.prod(made.trips(target, d) for d in inner) + 1
        why = f"{target.name} waits for {through} over {crossed[0]}: a whole pass, plus one tile"
        return replace(edge, depth=tiles, why=why)
    tiles = math.prod(made.trips(target, d) for d in outside)
    if tiles == 1 and not edge.earlier:
        return replace(edge, depth=1, why="its tile never changes")
    if steps > 1 and held:
        return replace(edge, depth=steps + 1, why=f"{through} takes {steps} tiles longer")
    return replace(edge, depth=2, why="one tile fills while another is read")


def _taking_turns(made: StreamGraph, edge: Edge, fifo_beats: int) -> Edge:
    """Where copies on one side take turns, each FIFO must hold a whole turn: the copies may wait
    for one another, since they share operands."""
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    for digit in edge.touch:
        if digit in target.merge or ends(source, digit) == ends(target, digit):
            continue
        inside = source.emission[source.emission.index(digit) + 1 :]
        beats = math.prod(made.trips(target, d) for d in inside if d in target.loops)
        if beats > fifo_beats:
            why = f"copies or packed points of {digit} take turns of {beats} beats"
            return replace(edge, depth=beats + fifo_beats, why=why)
    return edge


class _Delays:
    """What other paths collect before they reach the reader of a channel."""

    def __init__(self, made: StreamGraph) -> None:
        self.made = made
        self.forward = [edge for edge in made.edges if not edge.earlier]
        self.feedbacks = [edge for edge in made.edges if edge.earlier]
        self.order = {node.name: place for place, node in enumerate(topological(made))}
        self.forward.sort(key=lambda edge: self.order[edge.source])
        self.forward_into: dict[str, list[Edge]] = {}
        for edge in self.forward:
            self.forward_into.setdefault(edge.target, []).append(edge)
        self.reduced = {n.name: frozenset((*n.gone, *n.carried)) for n in made.nodes}
        self.collected = {id(edge): _collected(made, edge) for edge in made.edges}
        self._paths: dict[str, dict[str, tuple[frozenset[str], int, str]]] = {}
        self._forks: dict[str, list[tuple[str, frozenset[str], frozenset[str]]]] = {}

    def beside(self, edge: Edge) -> tuple[frozenset[str], int, str]:
        """Digits collected on paths to `edge.target` beside `edge`, how often, by which node."""
        hold: frozenset[str] = frozenset()
        steps, through = 0, ""
        for fork, own, shared in self._forks_before(edge.source):
            reached = self._from(fork)
            for other in self.made.into(edge.target):
                if other is edge or other.source not in reached:
                    continue
                if other.source == edge.source and other.value == edge.value:
                    continue
                digits, count, name = reached[other.source]
                more = self.collected[id(other)]
                if other.earlier:
                    digits, more = self._carried_over(other, digits), frozenset()
                # What the channel's own path collects too, it need not hold.
                digits = (digits | more | own) - shared
                # Steps on the channel's own way balance as many on the other.
                count += bool(more) + bool(own) - reached.get(edge.source, (digits, 0, ""))[1]
                count = max(1, count)
                if digits:
                    hold |= digits
                    name = name or other.source
                    steps, through = (count, name) if count > steps else (steps, through)
        return hold, steps, through

    def _forks_before(self, name: str) -> list[tuple[str, frozenset[str], frozenset[str]]]:
        """All that `_branches` finds, worked out once."""
        if name not in self._forks:
            self._forks[name] = list(dict.fromkeys(self._branches(name)))
        return self._forks[name]

    def _branches(self, name: str) -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
        """Where paths that lead to `name` branch off: a node, what it collects itself, and what
        is collected on the way to `name`.

        Readers of one scratchpad may be served by one read unit; then one waits for the other.
        """
        for fork, shared in self._streaming_into(name).items():
            yield fork, frozenset(), shared
            for edge in self.made.into(fork):
                for beside in self._served_with(edge):
                    yield beside, self.reduced[beside], shared | self.reduced[fork]

    def _served_with(self, edge: Edge) -> list[str]:
        """Readers that may take the tiles of `edge` beat by beat together with its own."""
        if edge.kind != "scratchpad" or edge.earlier:
            return []
        return [
            other.target
            for other in self.made.out_of(edge.source)
            if other.kind == "scratchpad"
            and (other.value, other.last, other.earlier) == (edge.value, edge.last, "")
            and other.target not in self._from(edge.target)
            and edge.target not in self._from(other.target)
        ]

    def _streaming_into(self, name: str) -> dict[str, frozenset[str]]:
        """`name` and all nodes that lead to it, with what is collected on the way."""
        found: dict[str, frozenset[str]] = {name: frozenset()}
        waiting = [name]
        for place in waiting:
            reduced = found[place] | self.reduced[place]
            for edge in self.forward_into.get(place, ()):
                if edge.source not in found:
                    found[edge.source] = reduced | self.collected[id(edge)]
                    waiting.append(edge.source)
        return found

    def _from(self, fork: str) -> dict[str, tuple[frozenset[str], int, str]]:
        """For each node reached from `fork`: digits collected on the way, steps, last collector."""
        if fork in self._paths:
            return self._paths[fork]
        reached: dict[str, tuple[frozenset[str], int, str]] = {fork: (frozenset(), 0, "")}
        changed = True
        while changed:
            self._sweep(reached)
            changed = False
            for back in self.feedbacks:
                if back.source not in reached:
                    continue
                collected, steps, through = reached[back.source]
                digits = self._carried_over(back, collected)
                old = reached.get(back.target, (frozenset(), 0, ""))
                if not digits <= old[0]:
                    reached[back.target] = (old[0] | digits, max(old[1], steps), through)
                    changed = True
        self._paths[fork] = reached
        return reached

    def _sweep(self, reached: dict[str, tuple[frozenset[str], int, str]]) -> None:
        """Follow all channels but feedbacks, once."""
        for edge in self.forward:
            if edge.source not in reached:
                continue
            digits, steps, through = reached[edge.source]
            more = self.collected[id(edge)]
            own = self.reduced[edge.target]
            digits, steps = digits | more | own, steps + bool(more) + bool(own)
            through = edge.target if own else through or (edge.source if more else "")
            old = reached.get(edge.target, (frozenset(), 0, ""))
            best = (steps, through) if steps >= old[1] else (old[1], old[2])
            reached[edge.target] = (old[0] | digits, *best)

    def _carried_over(self, back: Edge, digits: frozenset[str]) -> frozenset[str]:
        """Of what is collected before a feedback, what still counts behind it: its axis alone, as
        all else is over before the next point begins."""
        return digits & frozenset(self.made.digits.of_axis[back.earlier])


def _collected(made: StreamGraph, edge: Edge) -> frozenset[str]:
    """Digits that a channel gathers before its reader sees any of them."""
    digits = {d for axis in edge.last for d in made.digits.of_axis[axis]}
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    if edge.kind == "scratchpad":
        outside = target.domain[: edge.common]
        digits |= {d for d in source.emission if d not in outside}
    else:
        packed = [d for d in edge.touch if target.pack.get(d, 1) > 1]
        digits |= {d for d in packed if ends(source, d) != ends(target, d)}
    return frozenset(digits)


def topological(made: StreamGraph) -> list[StreamNode]:
    """Nodes in an order in which every channel but a feedback runs forward."""
    waiting = list(made.nodes)
    done: set[str] = set()
    result: list[StreamNode] = []
    while waiting:
        ready = [
            node
            for node in waiting
            if all(e.source in done for e in made.into(node.name) if not e.earlier)
        ]
        if not ready:
            names = ", ".join(node.name for node in waiting)
            raise ScheduleError(f"nodes {names}: a cycle must pass an earlier node")
        for node in ready:
            done.add(node.name)
        result += ready
        waiting = [node for node in waiting if node.name not in done]
    return result
