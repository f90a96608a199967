"""A sensible schedule for any graph on any machine, so that nobody must write one.

How it is found, in order:

1. Lanes. One axis is put in the lanes of all nodes that have it: the one with which the machine's
   stages are used least. A node for which another axis is strictly cheaper takes that one.
   On a machine with systolic arrays each tiling is also tried with the largest products on them.
2. Tiles. Axes that no node reduces and most nodes have are time: tiled in several sizes, each
   tried. Axes of recurrences run inside them, in blocks where the weights do not fit on chip.
   Everything else stays whole inside the tile, and is tiled too where scratchpads would not hold
   it.
3. Loads. A tensor that would be loaded again and again is kept on chip where that pays.
4. Copies. For a number of cycles aimed at, every node gets as many points packed in a firing and as
   many units as it needs, time digits shared out first over whole pipelines; the least number of
   cycles that fits the machine is found by bisection. From the best of all on smaller numbers are
   tried one after the other, as more copies may fill whole memory units better.

The measure is the cycles until the first tiles are loaded, plus those until a first tile has passed
through all scratchpads on its way, plus the busiest of all parts, plus those until the last tile is
stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from dataflow.nodes import Graph
from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule, ScheduleError
from dataflow.streams import StreamGraph, connected, stream
from hwspecs import Machine
from hwspecs.machine import Dataflow
from mapping.array_plans import HOLDS, on_arrays
from mapping.axis_roles import Roles, axis_roles
from mapping.copies import meets_others, shared_out
from mapping.errors import MappingError, refuse, shortage
from mapping.estimate import first_tile_cycles, floor_cycles, points_of, transfers
from mapping.partition import Group, partition
from mapping.resources import Needs, busy_cycles, needs
from mapping.tilings import reloaded, tilings

TRIED_TILES = 40
"""Tilings that get the full search, best estimates first."""
WORTH_WHILE = 0.97
"""How much sooner than the best so far another schedule must aim to end."""
BISECTIONS = 8
BEYOND = 64
"""Aims tried beyond the least that bisection found to fit, each STEP of the one before."""
STEP = 0.985
ALL_TRIES = 150
"""Schedules worked out in all, so that the search ends soon on any graph and machine."""
FEW_NODES = 60
"""Larger graphs get fewer tries, since each takes longer, but at least FEWEST_TRIES."""
FEWEST_TRIES = 10
NOT_WORTH = 0.1
"""Parts busy for less than this share of fill and drain get no more copies."""
WHOLE_PIPELINES = (1, 2, 4, 8)


Plan = tuple[dict[str, int], dict[str, int]]
"""Points packed in a firing and copies, by digit."""


@dataclass(frozen=True)
class Candidate:
    """A schedule with its StreamGraph, groups and estimated cycles."""

    schedule: Schedule
    made: StreamGraph
    groups: tuple[Group, ...]
    cycles: float


def default_schedule(graph: Graph, machine: Machine, share: float = 1.0) -> Schedule:
    """Return the schedule that the search finds best for `graph` on `machine`.

    It takes at most `share` of the machine's units. Raises MappingError where no tiling fits.
    """
    return candidates(graph, machine, share)[0].schedule


def candidates(graph: Graph, machine: Machine, share: float = 1.0) -> list[Candidate]:
    """Schedules that fit the machine, best first; MappingError where there is none."""
    least: Needs | None = None
    for roles in axis_roles(graph, machine):
        search = _Search(graph, machine, share, roles)
        found = search.run()
        if found:
            return found[::-1]
        if least is None or (search.least and search.least.excess(machine) < least.excess(machine)):
            least = search.least or least
    hint = "the smallest default schedule needs that many; write one or use a larger machine"
    where = f"{graph.name} on {machine.name}"
    refuse(
        [
            (shortage(where, resource, needed, available, hint), resource, needed, available)
            for resource, needed, available in (least.over(machine, share) if least else ())
        ]
    )
    raise MappingError(f"{where}: no default schedule fits its units; write one")


@dataclass(frozen=True)
class _Aims:
    """How units are shared out: whether products are packed into units of their own; copies of
    whole pipelines over time digits; by how much a tile may take longer in one node than in others.
    """

    packed: bool
    pipelines: Mapping[str, int]
    evenness: float


class _Search:
    def __init__(self, graph: Graph, machine: Machine, share: float, roles: Roles) -> None:
        self.graph, self.machine, self.share = graph, machine, share
        self.roles = roles
        self.products = any(node.op == "einsum" for node in graph.nodes)
        self.least: Needs | None = None
        self.tries = 0
        self._laid: dict[tuple, Candidate | None] = {}
        larger = max(1.0, len(graph.nodes) / FEW_NODES)
        self.most_tries = max(FEWEST_TRIES, int(ALL_TRIES / larger**2))

    def run(self) -> list[Candidate]:
        """Schedules that fit, each better than those found before it."""
        plain = [self._candidate(each) for each in tilings(self.graph, self.machine, self.roles)]
        bases = [base for plan in self._with_arrays(plain) for base in self._with_loads(plan)]
        found: list[Candidate] = []
        of_best: tuple[Candidate, _Aims] | None = None
        for base in sorted(bases, key=lambda base: base.cycles)[:TRIED_TILES]:
            if found and (base.cycles >= found[-1].cycles or self.tries > self.most_tries):
                break
            for aims in self._aims(base.made):
                best = self._bisect(base, aims, found[-1] if found else None)
                if best and (not found or best is not found[-1]):
                    found.append(best)
                    of_best = base, aims
        if of_best:
            found += self._beyond(*of_best, found[-1])
        return found

    def _with_arrays(self, plain: list[Candidate]) -> Iterator[Candidate]:
        """The tilings in SIMD units, and with products on systolic arrays where there are any.

        Those hold what the machine says, or where no tiling allows that, whatever one does.
        """
        yield from plain
        systolic = self.machine.compute.systolic
        first = (systolic.dataflow,) if systolic else ()
        for holds in (first, HOLDS if systolic else ()):
            found = list(self._arrayed(plain, holds))
            yield from found
            if found:
                return

    def _arrayed(self, plain: list[Candidate], holds: Iterable[Dataflow]) -> Iterator[Candidate]:
        for base, held in itertools.product(plain, holds):
            arrayed = on_arrays(self.graph, self.machine, base.schedule, held)
            if arrayed is not None:
                try:
                    yield self._candidate(arrayed)
                except ScheduleError:  # another rule is against it, such as that of a recurrence
                    continue

    def _with_loads(self, base: Candidate) -> Iterator[Candidate]:
        """The tiling as it is, and with tensors kept on chip that it would load again."""
        yield base
        again = reloaded(base.made, self.machine)
        if not again:
            return
        channels = dict(base.schedule.channels)
        room = self.machine.grid.memory_units * self.machine.memory.capacity_bytes // 2
        kept = False
        for name, at, size in again:
            if size <= room:
                room -= size
                channels[name] = ChannelSchedule(at=at)
                kept = True
        if kept:
            yield self._candidate(base.schedule.model_copy(update={"channels": channels}))

    def _candidate(self, schedule: Schedule) -> Candidate:
        compute = self.machine.compute
        made = stream(self.graph, schedule, compute.lanes, compute.fifo_depth_beats)
        groups = partition(made, self.machine)
        return Candidate(
            schedule, made, groups, floor_cycles(made, groups, self.machine, self._pipelines(made))
        )

    def _pipelines(self, made: StreamGraph) -> list[str]:
        """Time digits that can be shared out over copies of everything that has them."""
        recurrent = set(self.roles.recurrent)
        carried = {d for node in made.nodes for d in node.carried}
        return [
            d
            for d in made.digits.time
            if made.digits[d].axis not in recurrent
            and d not in carried
            and made.digits[d].extent > 1
        ]

    def _aims(self, made: StreamGraph) -> list[_Aims]:
        """Ways to share out the units: whole pipelines, packing, and how even tiles must be."""
        choices = self._pipeline_choices(made)
        uneven = len({points_of(made, n) for n in made.nodes if n.kind == "compute"}) > 1
        evenness = (math.inf, 2.0) if uneven else (math.inf,)
        packed = (True, False) if self.products else (False,)
        return [_Aims(*each) for each in itertools.product(packed, choices, evenness)]

    def _pipeline_choices(self, made: StreamGraph) -> list[dict[str, int]]:
        digits = list(reversed(self._pipelines(made)))
        found: list[dict[str, int]] = []
        for count in WHOLE_PIPELINES:
            left, choice = count, {}
            for digit in digits:
                share = min(left, made.digits[digit].extent)
                if share > 1:
                    choice[digit] = share
                left = -(-left // share)
            if left == 1 and math.prod(choice.values()) == count and choice not in found:
                found.append(choice)
        return found

    def _bisect(self, base: Candidate, aims: _Aims, best: Candidate | None) -> Candidate | None:
        """The schedule with the fewest cycles for which all units fit, if it beats `best`."""
        high = float(max(busy_cycles(base.made, g, self.machine) for g in base.groups))
        if best is not None:
            fill, _, drain = transfers(base.made, self.machine)
            high = min(high, best.cycles * WORTH_WHILE - fill - drain)
        if high < 1 or (found := self._try(base, aims, high)) is None:
            return best
        fill, _, drain = transfers(base.made, self.machine)
        low = max(1.0, min(base.cycles, high) / 4, NOT_WORTH * (fill + drain))
        for _ in range(BISECTIONS):
            if best is None or (found is not None and found.cycles < best.cycles):
                best = found
            if high / low < 1.02:
                break
            middle = math.sqrt(low * high)
            found = self._try(base, aims, middle)
            low, high = (middle, high) if found is None else (low, middle)
        return best

    def _beyond(self, base: Candidate, aims: _Aims, best: Candidate) -> Iterator[Candidate]:
        """Better schedules at aims beyond the least that bisection found to fit.

        The fewer memory units a tile fills only in part, the fewer are taken, so that more copies
        may fit where fewer do not: bisection stops short of them.
        """
        taken = needs(best.made, best.groups, self.machine)
        aim = float(max(busy_cycles(best.made, g, self.machine) for g in best.groups))
        least = aim * taken.compute / (self.share * self.machine.grid.compute_units)
        steps = min(BEYOND, self.most_tries - self.tries)
        while steps > 0 and (aim := aim * STEP) > least:
            steps -= 1
            found = self._try(base, aims, aim)
            if found is not None and found.cycles < best.cycles:
                yield (best := found)

    def _try(self, base: Candidate, aims: _Aims, aim: float) -> Candidate | None:
        """The base with copies so that no group takes more than `aim` cycles, if that fits."""
        self.tries += 1
        made, pipelines = base.made, aims.pipelines
        plans: dict[str, Plan] = {}
        most = max(points_of(made, made.by_name[group.name]) for group in base.groups)
        for group in base.groups:
            # A node with fewer, larger tiles must not keep the others waiting for its first.
            points = points_of(made, made.by_name[group.name])
            own = min(aim, aims.evenness * aim * points / most)
            plans |= shared_out(made, group, self.machine, pipelines, aims.packed, own)
        for node in made.nodes:
            unroll = {d: n for d, n in pipelines.items() if d in node.domain}
            if unroll and node.kind == "store":
                plans[node.name] = ({}, unroll)
        # Many an aim asks for the same copies as one before it.
        key = (id(base), *((name, *map(_items, plan)) for name, plan in plans.items()))
        if key not in self._laid:
            self._laid[key] = self._planned(base, plans)
        return self._laid[key]

    def _planned(self, base: Candidate, plans: Mapping[str, Plan]) -> Candidate | None:
        """The base with the pack and unroll of `plans`, if that fits."""
        nodes = dict(base.schedule.nodes)
        for name, (pack, unroll) in plans.items():
            plan = nodes.get(name, NodeSchedule())
            nodes[name] = plan.model_copy(update={"pack": pack, "unroll": unroll})
        try:
            found = self._gathered(base.schedule.model_copy(update={"nodes": nodes}))
        except MappingError:
            return None
        taken = needs(found.made, found.groups, self.machine)
        if not taken.fits(self.machine, self.share):
            if self.least is None or taken.excess(self.machine) < self.least.excess(self.machine):
                self.least = taken
            return None
        busiest = max(busy_cycles(found.made, g, self.machine) for g in found.groups)
        fill, _, drain = transfers(found.made, self.machine)
        total = fill + first_tile_cycles(found.made) + busiest + drain
        return replace(found, cycles=max(found.cycles, total))

    def _gathered(self, schedule: Schedule) -> Candidate:
        """Put scratchpads where a different number of copies meets: a unit has few FIFOs."""
        made = connected(self.graph, schedule, self.machine.compute.lanes)
        channels = dict(schedule.channels)
        for edge in made.edges:
            source, target = made.by_name[edge.source], made.by_name[edge.target]
            if edge.kind != "fifo" or target.merge or target.kind == "host":
                continue
            if any(meets_others(source, target, d) for d in edge.touch if d in source.walk):
                old = channels.get(edge.name, ChannelSchedule())
                channels[edge.name] = old.model_copy(update={"locality": "scratchpad"})
        return self._candidate(schedule.model_copy(update={"channels": channels}))


def _items(counts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(counts.items())
