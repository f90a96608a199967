"""A sensible schedule for any graph on any machine, so that nobody must write one.

How it is found, in order:

1. Lanes. One axis is put in the lanes of all nodes that have it: the one with which the machine's
   stages are used least. A node for which another axis is strictly cheaper takes that one.
2. Tiles. Axes that no node reduces and most nodes have are time: tiled in several sizes, each
   tried. Axes of recurrences run inside them. Everything else stays whole inside the tile, and is
   tiled too where scratchpads would not hold it.
3. Loads. A tensor that would be loaded again and again is kept on chip where that pays.
4. Copies. For a number of cycles aimed at, every node gets as many points packed in a firing and as
   many units as it needs, time digits shared out first over whole pipelines; the least number of
   cycles that fits the machine is found by bisection.

The measure is the cycles until the first tiles are loaded, plus those until a first tile has passed
through all scratchpads on its way, plus the busiest of all parts, plus those until the last tile is
stored.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from dataflow.nodes import Graph, Node
from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule
from dataflow.streams import StreamGraph, stream
from dataflow.streams.node import StreamNode, source_of
from dataflow.streams.split import COMPUTED
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES
from mapping.errors import MappingError
from mapping.pads import emission_of
from mapping.partition import Group, partition, stages_of
from mapping.resources import busy_cycles, firings, needs, off_chip_cycles

TRIED_TILES = 40
"""Tilings that get the full search, best estimates first."""
WORTH_WHILE = 0.97
"""How much sooner than the best so far another schedule must aim to end."""
BISECTIONS = 8
ALL_TRIES = 150
"""Schedules worked out in all, so that the search ends soon on any graph and machine."""
NOT_WORTH = 0.1
"""Parts busy for less than this share of fill and drain get no more copies."""
WHOLE_PIPELINES = (1, 2, 4, 8)


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
    search = _Search(graph, machine, share)
    found = search.run()
    if not found:
        raise MappingError(
            f"{graph.name} on {machine.name}: no tiling of the default schedule fits; "
            f"the smallest needs {search.least}; write a schedule or use a larger machine",
            resource="units",
        )
    return found[::-1]


@dataclass
class _Roles:
    """What each axis is for."""

    outer: list[str]
    recurrent: list[str]
    inner: list[str]
    lane: str
    vectors: dict[str, tuple[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Aims:
    """How units are shared out: whether products are packed into units of their own; copies of
    whole pipelines over time digits; by how much a tile may take longer in one node than in others.
    """

    packed: bool
    pipelines: Mapping[str, int]
    evenness: float


class _Search:
    def __init__(self, graph: Graph, machine: Machine, share: float) -> None:
        self.graph, self.machine, self.share = graph, machine, share
        self.lanes = machine.compute.lanes
        self.computed = [node for node in graph.nodes if node.op in COMPUTED]
        self.roles = self._roles()
        self.least = "more units than there are"
        self.tries = 0

    def run(self) -> list[Candidate]:
        """Schedules that fit, each better than those found before it."""
        tilings = sorted(self._tilings(), key=lambda base: base.cycles)
        found: list[Candidate] = []
        for base in tilings[:TRIED_TILES]:
            if found and (base.cycles >= found[-1].cycles or self.tries > ALL_TRIES):
                break
            for aims in self._aims(base.made):
                best = self._bisect(base, aims, found[-1] if found else None)
                if best and (not found or best is not found[-1]):
                    found.append(best)
        return found

    # Axes

    def _axes_of(self, node: Node) -> list[str]:
        inner = [axis for arg in node.args for axis in self.graph.node(arg).axes]
        return list(dict.fromkeys([*node.axes, *inner]))

    def _roles(self) -> _Roles:
        graph = self.graph
        recurrent = list(dict.fromkeys(n.axis for n in graph.nodes if n.op == "earlier"))
        reduced = {a for n in self.computed for a in self._axes_of(n) if a not in n.axes}
        mapped = set()
        for node in self.computed:
            for arg in node.args:
                source = source_of(graph, arg)
                if not source.off_chip and any(free.op == "read" for free in source.via):
                    mapped |= set(source.base.axes)
        used = [axis for axis in graph.axes if any(axis in self._axes_of(n) for n in self.computed)]
        outer = [
            axis
            for axis in used
            if axis not in recurrent
            and axis not in reduced
            and axis not in mapped - set(recurrent)
            and 2 * sum(axis in self._axes_of(n) for n in self.computed) >= len(self.computed)
        ]
        outer = [a for a in outer if a not in mapped or self._everywhere(a)]
        # Axes that fewer nodes have go inside, so that what lacks them is made once and kept.
        outer.sort(key=lambda axis: -sum(axis in self._axes_of(n) for n in self.computed))
        inner = [axis for axis in used if axis not in outer and axis not in recurrent]
        roles = _Roles(outer, recurrent, inner, "")
        movable = [axis for axis in used if axis not in recurrent and graph.extent(axis) > 1]
        if movable:
            roles.lane = min(movable, key=lambda axis: (self._lane_cost(axis), -used.index(axis)))
        for node in self.computed:
            roles.vectors[node.name] = self._vector(node, roles)
        return roles

    def _everywhere(self, axis: str) -> bool:
        return all(axis in self._axes_of(node) for node in self.computed)

    def _width(self, node: Node, axis: str) -> int:
        """Lanes that may run along `axis`: packed multiplies only where their sum stays inside."""
        packing = self.machine.compute.packing if node.op == "einsum" else 1
        lanes = self.lanes * (packing if axis not in node.axes else 1)
        return min(lanes, self.graph.extent(axis))

    def _cost(self, node: Node, axis: str) -> int:
        """Stages taken by a node over its whole space with lanes along `axis`."""
        compute = self.machine.compute
        lost = [a for a in self._axes_of(node) if a not in node.axes]
        stages = compute.operation(node.fn).stages if node.op == "map" else 1
        if node.op == "einsum":
            stages = max(1, len(node.args) - 1) + bool(lost)
        if axis in lost:
            stages += compute.reduction_stages
        beats = math.prod(
            -(-self.graph.extent(a) // (self._width(node, a) if a == axis else 1))
            for a in self._axes_of(node)
        )
        return stages * beats

    def _lane_cost(self, axis: str) -> int:
        total = 0
        for node in self.computed:
            axes = [a for a in self._axes_of(node) if a not in self._recurrent_axes()]
            if axis in axes:
                total += self._cost(node, axis)
            elif axes:
                total += min(self._cost(node, a) for a in axes)
        return total

    def _recurrent_axes(self) -> set[str]:
        return {node.axis for node in self.graph.nodes if node.op == "earlier"}

    def _vector(self, node: Node, roles: _Roles) -> tuple[str, int]:
        axes = [a for a in self._axes_of(node) if a not in roles.recurrent]
        axes = [a for a in axes if self.graph.extent(a) > 1]
        if not axes:
            return "", 1
        producers = [
            roles.vectors.get(source_of(self.graph, arg).base.name, ("", 1))[0] for arg in node.args
        ]

        def rank(axis: str) -> tuple:
            reduced = axis not in node.axes
            place = -list(node.axes).index(axis) if not reduced else 1
            return self._cost(node, axis), axis != roles.lane, axis not in producers, place

        best = min(axes, key=rank)
        return best, self._width(node, best)

    # Tilings

    def _tilings(self) -> Iterator[Candidate]:
        options = [self._tile_options(axis) for axis in self.roles.outer]
        inner = self._inner_options()
        for choice in itertools.product(*options, *inner.values()):
            outer = dict(zip(self.roles.outer, choice[: len(options)], strict=True))
            tiled = dict(zip(inner, choice[len(options) :], strict=True))
            base = self._base(outer, {a: t for a, t in tiled.items() if t})
            yield from self._with_loads(base)

    def _tile_options(self, axis: str) -> list[int]:
        """Tile extents to try; 1 makes the axis a time digit of its own."""
        extent = self.graph.extent(axis)
        if extent == 1:
            return [1]
        wide = any(vector == axis for vector, _ in self.roles.vectors.values())
        least = min(self.lanes, extent) if wide else 1
        sizes = {least, extent}
        sizes |= {n for n in (16, 32, 48, 64, 96, 128, 256) if least < n < extent}
        if extent > 512:
            sizes.discard(extent)
            sizes |= {512}
        return sorted(sizes)

    def _inner_options(self) -> dict[str, list[int]]:
        """Whole where it may fit (0), smaller tiles of long axes that are reduced."""
        options = {}
        for axis in self.roles.inner:
            extent = self.graph.extent(axis)
            reduced_only = self._can_tile(axis)
            if reduced_only and extent > 1024:
                options[axis] = [512] if extent > 16384 else [0, 512]
        return options

    def _can_tile(self, axis: str) -> bool:
        """Whether parts over tiles of the axis can be added up: a sum that no other node needs."""
        for node in self.computed:
            if axis not in self._axes_of(node):
                continue
            if axis in node.axes and not self._only_summed(node, axis):
                return False
        return True

    def _only_summed(self, node: Node, axis: str) -> bool:
        readers = self.graph.consumers(node.name)
        outputs = any(output.node == node.name for output in self.graph.outputs)
        return not outputs and all(axis in self._axes_of(r) for r in readers if r.op in COMPUTED)

    def _base(self, outer: Mapping[str, int], tiled: Mapping[str, int]) -> Candidate:
        time: list[str] = []
        tile: dict[str, int] = {}
        for axis, size in outer.items():
            if size == 1:
                time.append(axis)
            elif size < self.graph.extent(axis):
                tile[axis] = size
                time.append(f"{axis}.o")
        time += self.roles.recurrent
        for axis, size in tiled.items():
            tile[axis] = size
            time.append(f"{axis}.o")
        nodes = {}
        for node in self.computed:
            vector, width = self.roles.vectors[node.name]
            if not vector or vector in time:
                continue
            width = min(width, tile.get(vector, width))
            # Beats of lanes turn outermost, so that packed points are neighbours in time.
            used = [a for a in self._axes_of(node) if a in node.axes and a not in time]
            lost = [a for a in self._axes_of(node) if a not in node.axes and a not in time]
            order = sorted(used, key=lambda axis: (axis != vector, self._place(axis)))
            order += sorted(lost, key=self._place)
            plan = NodeSchedule(walk=tuple(order), vector={vector: width})
            lost = [a for a in self._axes_of(node) if a not in node.axes]
            parted = any(a in time or a in tiled for a in lost)
            if parted and (node.op == "einsum" or any(a not in time for a in lost)):
                nodes[f"{node.name}.part"] = plan
                kept = [a for a in node.axes if a not in time and self.graph.extent(a) > 1]
                own = vector if vector in kept else (kept[-1] if kept else "")
                if own:
                    size = tile.get(own, self.graph.extent(own))
                    width = min(self.lanes, size)
                    order = sorted(used, key=lambda axis: (axis != own, self._place(axis)))
                    nodes[node.name] = NodeSchedule(walk=tuple(order), vector={own: width})
            else:
                nodes[node.name] = plan
        used = [a for a in self.graph.axes if a in (*outer, *self.roles.inner) and a not in time]
        schedule = Schedule(tile=tile, time=tuple(time), walk=tuple(used), nodes=nodes)
        return self._candidate(schedule)

    def _place(self, axis: str) -> int:
        return list(self.graph.axes).index(axis)

    def _candidate(self, schedule: Schedule, made: StreamGraph | None = None) -> Candidate:
        made = made or self._stream(schedule)
        groups = partition(made, self.machine)
        return Candidate(schedule, made, groups, self._estimate(made, groups))

    def _with_loads(self, base: Candidate) -> Iterator[Candidate]:
        """The tiling as it is, and with tensors kept on chip that it would load again."""
        yield base
        again = self._reloaded(base.made)
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

    def _reloaded(self, made: StreamGraph) -> list[tuple[str, str, int]]:
        """Loads with a loop outside their tile that they do not follow: channel, place outside of
        all such loops, bytes of the tile there; most often loaded first."""
        found = []
        for edge in made.edges:
            load, target = made.by_name[edge.source], made.by_name[edge.target]
            if load.kind != "load":
                continue
            outside = target.domain[: edge.common]
            own = {d for axis in load.axes for d in made.digits.of_axis[axis]}
            idle = [d for d in outside if d not in own and made.trips(target, d) > 1]
            if not idle or load.argument is None:
                continue
            place = outside.index(idle[0])
            inside = [d for d in outside[place:] if d in own]
            elems = made.tile_elems(edge) * math.prod(made.trips(target, d) for d in inside)
            buffers = 1 if math.prod(made.trips(target, d) for d in outside[:place]) == 1 else 2
            size = elems * buffers * DATA_BYTES[self.machine.data_type]
            times = math.prod(made.trips(target, d) for d in idle)
            at = outside[place - 1] if place else ""
            found.append((-times, f"{load.argument.name} -> {target.name}", at, size))
        return [(name, at, size) for _, name, at, size in sorted(found)]

    # Estimates

    def _estimate(self, made: StreamGraph, groups: tuple[Group, ...]) -> float:
        """Fill, plus the busiest part, plus drain, in cycles: what no number of copies beats."""
        fill, traffic, drain = self._transfers(made)
        work = sum(
            busy_cycles(made, group, self.machine)
            * self._copies(made, group)
            / self._packable(made, group)
            for group in groups
        )
        units = self.machine.grid.compute_units
        fixed = [
            busy_cycles(made, group, self.machine) for group in groups if self._fixed(made, group)
        ]
        loads = [firings(made, n) for n in made.nodes if n.kind in ("load", "store")]
        steady = max([traffic - fill - drain, work / units, *fixed, *loads])
        return fill + steady + drain

    def _transfers(self, made: StreamGraph) -> tuple[float, float, float]:
        """Cycles of the off-chip memory: for first tiles, for everything, for last tiles."""
        fill = traffic = drain = 0.0
        for node in made.nodes:
            if node.kind not in ("load", "store"):
                continue
            cycles = off_chip_cycles(made, node, self.machine)
            traffic += cycles * math.prod(
                -(-made.digits[d].extent // node.merge.get(d, 1)) for d in node.domain
            )
            if node.kind == "load":
                fill += cycles
            else:
                drain += cycles
        return fill, traffic, drain

    def _packable(self, made: StreamGraph, group: Group) -> int:
        """How many points of a narrow digit one unit could work on at a time."""
        node = made.by_name[group.name]
        heavy = any(made.by_name[name].node.op == "einsum" for name in group.members)
        narrow = [d for d in self._spreadable(made, group) if d != node.vector]
        if not heavy or not narrow or node.pack:
            return 1
        return max(1, self.machine.compute.stages // group.stages)

    def _copies(self, made: StreamGraph, group: Group) -> int:
        node = made.by_name[group.name]
        return math.prod(node.unroll.values())

    def _fixed(self, made: StreamGraph, group: Group) -> bool:
        """Whether no digit is left over which the group could get more copies."""
        return not self._spreadable(made, group) and not any(
            d in made.by_name[group.name].domain for d in self._pipelines(made)
        )

    # Copies

    def _spreadable(self, made: StreamGraph, group: Group) -> list[str]:
        """Tile digits that all members keep, so that copies need nothing from one another."""
        nodes = [made.by_name[name] for name in group.members]
        digits = [
            d for d in nodes[0].walk if all(d in node.walk and d not in node.gone for node in nodes)
        ]
        return [d for d in digits if self._groups(made, nodes[0], d) > 1]

    def _groups(self, made: StreamGraph, node: StreamNode, digit: str) -> int:
        return -(-made.digits[digit].extent // node.grain(digit))

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
        uneven = len({self._points(made, n) for n in made.nodes if n.kind == "compute"}) > 1
        evenness = (math.inf, 2.0) if uneven else (math.inf,)
        products = any(node.op == "einsum" for node in self.computed)
        packed = (True, False) if products else (False,)
        return [_Aims(*each) for each in itertools.product(packed, choices, evenness)]

    def _points(self, made: StreamGraph, node: StreamNode) -> int:
        return math.prod(made.trips(node, digit) for digit in node.domain)

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
            fill, _, drain = self._transfers(base.made)
            high = min(high, best.cycles * WORTH_WHILE - fill - drain)
        if high < 1 or (found := self._try(base, aims, high)) is None:
            return best
        fill, _, drain = self._transfers(base.made)
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

    def _try(self, base: Candidate, aims: _Aims, aim: float) -> Candidate | None:
        """The base with copies so that no group takes more than `aim` cycles, if that fits."""
        self.tries += 1
        made, pipelines = base.made, aims.pipelines
        nodes = dict(base.schedule.nodes)
        most = max(self._points(made, made.by_name[group.name]) for group in base.groups)
        for group in base.groups:
            # A node with fewer, larger tiles must not keep the others waiting for its first.
            points = self._points(made, made.by_name[group.name])
            own = min(aim, aims.evenness * aim * points / most)
            plans = self._spread(made, group, pipelines, aims.packed, own)
            for name, (pack, unroll) in plans.items():
                plan = nodes.get(name, NodeSchedule())
                nodes[name] = plan.model_copy(update={"pack": pack, "unroll": unroll})
        for node in made.nodes:
            if node.kind in ("store", "host"):
                unroll = {d: n for d, n in pipelines.items() if d in node.domain}
                if unroll and node.kind == "store":
                    nodes[node.name] = NodeSchedule(unroll=unroll)
        schedule = base.schedule.model_copy(update={"nodes": nodes})
        try:
            found = self._gathered(schedule)
        except MappingError:
            return None
        taken = needs(found.made, found.groups, self.machine)
        if not taken.fits(self.machine, self.share):
            self.least = f"{taken.compute} compute, {taken.memory} memory units"
            return None
        busiest = max(busy_cycles(found.made, g, self.machine) for g in found.groups)
        fill, _, drain = self._transfers(found.made)
        total = fill + first_tile_cycles(found.made) + busiest + drain
        return replace(found, cycles=max(found.cycles, total))

    def _gathered(self, schedule: Schedule) -> Candidate:
        """Put scratchpads where a different number of copies meets: a unit has few FIFOs."""
        made = self._stream(schedule)
        channels = dict(schedule.channels)
        for edge in made.edges:
            source, target = made.by_name[edge.source], made.by_name[edge.target]
            if edge.kind != "fifo" or target.merge or target.kind == "host":
                continue
            if any(_meets_others(source, target, d) for d in edge.touch if d in source.walk):
                old = channels.get(edge.name, ChannelSchedule())
                channels[edge.name] = old.model_copy(update={"locality": "scratchpad"})
        if len(channels) == len(schedule.channels):
            return self._candidate(schedule, made)
        return self._candidate(schedule.model_copy(update={"channels": channels}))

    def _stream(self, schedule: Schedule) -> StreamGraph:
        compute = self.machine.compute
        return stream(self.graph, schedule, self.lanes, compute.fifo_depth_beats)

    def _spread(
        self,
        made: StreamGraph,
        group: Group,
        pipelines: Mapping[str, int],
        packed: bool,
        aim: float,
    ) -> dict[str, tuple[dict[str, int], dict[str, int]]]:
        """Pack and unroll of each member so that the group takes at most `aim` cycles."""
        nodes = [made.by_name[name] for name in group.members]
        shared = {d: n for d, n in pipelines.items() if d in nodes[0].domain}
        cycles = busy_cycles(made, group, self.machine) / math.prod(shared.values())
        digits = self._spreadable(made, group)
        room = self.machine.compute.stages // group.stages
        heavy = [node for node in nodes if node.node.op == "einsum"]
        if packed and heavy and len(nodes) > 1 and cycles > aim:
            # Products get units of their own; what follows them shares others, uncopied.
            result = {n.name: ({}, dict(shared)) for n in nodes}
            for node in heavy:
                own = Group(node.name, node.name, (node.name,), 2, 1)
                digits = self._spreadable(made, own)
                room = self.machine.compute.stages // stages_of(made, node, self.machine)
                pack, unroll = self._share(made, node, digits, room, cycles / aim)
                result[node.name] = (pack, {**shared, **unroll})
            return result
        room = room if packed and heavy else 1
        pack, unroll = self._share(made, nodes[0], digits, room, cycles / aim)
        return {node.name: (pack, {**shared, **unroll}) for node in nodes}

    def _share(
        self, made: StreamGraph, node: StreamNode, digits: list[str], room: int, wanted: float
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The fewest units that make a node `wanted` times faster: pack and unroll by digit."""
        if wanted <= 1 or not digits:
            return {}, {}
        counts = {d: self._groups(made, node, d) for d in digits}
        loops = math.prod(counts.values())
        best: tuple[tuple, dict[str, int], dict[str, int]] | None = None
        narrow = [d for d in digits if d != node.vector]
        for pack_digit, pack in [("", 1), *((d, p) for d in narrow for p in range(2, room + 1))]:
            left = dict(counts)
            if pack > 1:
                left[pack_digit] = -(-counts[pack_digit] // pack)
            target = loops / wanted
            for unroll in self._unrolls(left, target):
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

    def _unrolls(self, counts: Mapping[str, int], target: float) -> Iterator[dict[str, int]]:
        """Copies over each digit, the last digit's chosen so that `target` trips are left."""
        *firsts, last = counts
        for choice in itertools.product(*[_useful(counts[d]) for d in firsts]):
            unroll = dict(zip(firsts, choice, strict=True))
            trips = math.prod(-(-counts[d] // n) for d, n in unroll.items())
            allowed = max(1, int(target // trips))
            unroll[last] = min(-(-counts[last] // allowed), counts[last])
            yield unroll


def _meets_others(source: StreamNode, target: StreamNode, digit: str) -> bool:
    """Whether a FIFO over `digit` would join different numbers of units.

    Points packed in one firing leave one after the other, so where they are neighbours in the order
    of beats a reader that takes them singly needs one FIFO only.
    """
    if source.copies(digit) != target.copies(digit):
        return True
    if source.pack.get(digit, 1) == target.pack.get(digit, 1):
        return False
    return target.pack.get(digit, 1) > 1 or source.emission[-1] != digit


def first_tile_cycles(made: StreamGraph) -> int:
    """Firings that a first tile waits for on the longest way through the scratchpads of `made`.

    Each scratchpad passes a tile on when the slowest of the nodes that stream into it has fired for
    all of it.
    """
    delay = {node.name: 0 for node in made.nodes}
    span = {
        node.name: math.prod(made.trips(node, d) for d in node.walk)
        for node in made.nodes
        if node.kind == "compute"
    }
    forward = [e for e in made.edges if not e.earlier and e.source in span]
    for _ in made.nodes:
        changed = False
        for edge in forward:
            source, target = made.by_name[edge.source], made.by_name[edge.target]
            through = delay[edge.source]
            if edge.kind == "scratchpad":
                outside = target.domain[: edge.common]
                packed = [d for d in emission_of(made, edge) if d in source.emits]
                tiles = math.prod(made.trips(source, d) for d in packed if d not in outside)
                through += span[edge.source] * tiles
            elif source.domain == target.domain and span[edge.source] > span.get(
                edge.target, math.inf
            ):
                span[edge.target] = span[edge.source]
                changed = True
            if through > delay[edge.target]:
                delay[edge.target] = through
                changed = True
        if not changed:
            break
    return max(delay.values(), default=0)


def _useful(count: int) -> Iterable[int]:
    """Numbers of copies that leave fewer trips than any smaller number."""
    seen = set()
    for copies in range(1, min(count, 128) + 1):
        trips = -(-count // copies)
        if trips not in seen:
            seen.add(trips)
            yield copies
