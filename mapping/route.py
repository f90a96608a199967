"""Routing: which links of the network each channel takes, and what they add to its latency.

Modelled: a mesh of registered switches, one a grid cell, with a fixed number of vector and of
scalar links in each direction between neighbours; a route reserves its links for good, so beats
never wait for each other. A channel's latency = its own + hops x hop latency, plus the hops from
cell to cell of a unit or scratchpad that is a chain of several. Left out: buffers in switches,
and control (tile tokens and credits of scratchpads), whose single-bit wires are taken as plentiful;
an address generator has a link of its own to the switch beside it. A dynamic network reserves
nothing: routes run along the row and then the column, and links are shared as packets come.

A value that one unit sends to several readers is one *net*: a tree that takes a link once, whether
every reader takes every beat or the beats are dealt out to them in turn.
Nets first run along the row and then the column. Those that meet in an overfull link are taken up
and laid anew, link prices rising with the history of overuse, until none is overfull: negotiated
congestion (McMurchie, Ebeling: PathFinder, FPGA 1995).
"""

from __future__ import annotations

import dataclasses
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from dataflow import network_plan
from dataflow.program import Channel, Port, Program, Site
from hwspecs import Machine
from mapping.errors import MappingError, shortage
from mapping.place import End, blocks, distance, ends, held_by, is_local

ROUNDS = 80  # of taking up and laying anew, at most
PATIENCE = 12  # rounds without fewer overfull links before giving up
MOST_SITES = 1_000_000  # looked at while laying anew, at most: some seconds
PRICE_OF_OVERUSE = 0.6  # of a link, for each wire too many, doubled every few rounds
PRICE_OF_HISTORY = 0.4  # added to a link's price for good after a round that left it overfull

Link = tuple[Site, Site]


@dataclass(frozen=True)
class Net:
    """What is routed as one tree: channels that carry the same tokens from the same port.

    `kind` is "vector", "scalar" or "control"; `wires` links of that kind are taken on each hop.
    """

    kind: str
    wires: int
    source: Site
    sinks: Mapping[str, Site]  # by channel


@dataclass(frozen=True)
class ShortChannel:
    """A channel too short to run at full rate: `needed` tokens would do, it holds `capacity`."""

    name: str
    capacity: int
    needed: int


def route(program: Program) -> Program:
    """Return the placed `program` with `routes`, and hops added to its channels' latencies.

    A route lists the sites it passes, ends included; `<name>#2` is the wire from the second to the
    third cell of a chain, `<name>#-2` the one back, which a scratchpad with several writers has.
    A channel that a scratchpad of its own name holds starts there; `<name>#in` leads to it.
    Channels inside one block have no route. On an ideal network every channel has its own wire:
    nothing changes. On a dynamic one nothing is reserved, every route runs along the row and then
    the column, and what the hops of data channels cost is left to the run. Raises MappingError
    naming the fullest link, how many links were wanted there and how many there are.
    """
    if program.machine.network.kind == "ideal":
        return dataclasses.replace(program, routes={})
    found = nets(program)
    shared = program.machine.network.kind == "dynamic"
    columns = program.machine.grid.columns
    trees = [straight(net, columns) for net in found] if shared else _negotiate(program, found)
    routes = {
        name: path
        for net, tree in zip(found, trees, strict=True)
        for name, path in _paths(net, tree).items()
    }
    inside = _hops_inside(program, routes)
    hop_cycles = program.machine.network.hop_cycles
    channels = []
    for channel in program.channels:
        hops = inside.get(channel.name, 0)
        if not (shared and channel.kind == "data"):
            hops += len(routes.get(channel.name, ((0, 0),))) - 1
        latency = channel.latency_cycles + hops * hop_cycles
        channels.append(dataclasses.replace(channel, latency_cycles=latency))
    ordered = {name: routes[name] for name in (c.name for c in channels) if name in routes}
    chains = {name: path for name, path in routes.items() if name not in ordered}
    return dataclasses.replace(program, channels=tuple(channels), routes={**ordered, **chains})


def nets(program: Program) -> tuple[Net, ...]:
    """Return what must be routed: trees of channels, and the wires inside chains of cells."""
    place_of = ends(program)
    several = {pad.name: len(pad.writers) > 1 for pad in program.scratchpads}
    holders = held_by(program)
    found: list[Net] = []
    for block in blocks(program):
        cells = program.sites[block.name]
        for i in range(block.cells - 1):
            if block.kind in ("compute", "memory"):
                found.append(Net("vector", 1, cells[i], {f"{block.name}#{i + 1}": cells[i + 1]}))
            if block.kind == "memory" and several[block.name]:
                found.append(Net("vector", 1, cells[i + 1], {f"{block.name}#-{i + 1}": cells[i]}))
    for group in _groups(program, place_of):
        kind, wires = _kind(group[0]), max(channel.wires for channel in group)
        source, sinks = place_of[group[0].writer], {}
        here = program.sites[source.block][source.leave]
        for channel in group:
            sink = place_of[channel.reader]
            there = program.sites[sink.block][sink.enter]
            if channel.name in holders:
                held = program.sites[channel.name]
                sinks[f"{channel.name}#in"] = held[0]
                found.append(Net(kind, channel.wires, held[-1], {channel.name: there}))
            else:
                sinks[channel.name] = there
        sinks = {name: there for name, there in sinks.items() if there != here}
        if sinks:
            found.append(Net(kind, wires, here, sinks))
    return tuple(found)


def _kind(channel: Channel) -> str:
    if channel.kind != "data":
        return "control"
    return "vector" if channel.lanes > 1 else "scalar"


def _groups(program: Program, place_of: Mapping[str, End]) -> list[list[Channel]]:
    """Channels of which each group runs over the same tree.

    They leave the same unit with the same value at the same firings. A port that deals its tokens
    out in turn is no different: every beat runs down the whole tree, and of its readers only the
    one whose turn it is takes it. Points packed in one firing leave one after the other.
    """
    by_name = {channel.name: channel for channel in program.channels}
    grouped: dict[tuple[object, ...], list[Channel]] = {}
    for unit in program.units:
        for port in unit.outputs:
            for name in port.channels:
                channel = by_name[name]
                if is_local(place_of[channel.writer], place_of[channel.reader]):
                    continue
                same = (unit.name, channel.value or name, port.level, port.last)
                grouped.setdefault((*same, _kind(channel)), []).append(channel)
    return list(grouped.values())


def _hops_inside(program: Program, routes: Mapping[str, tuple[Site, ...]]) -> dict[str, int]:
    """For each channel, the hops its tokens make from where they enter the writer's chain.

    What a scratchpad's reader passes on has come from the farthest of the cells that are written.
    """
    place_of = ends(program)
    last_written = {pad.name: min(len(pad.writers), pad.cells) - 1 for pad in program.scratchpads}
    hops: dict[str, int] = {}
    for channel in program.channels:
        source = place_of[channel.writer]
        if channel.kind == "data" and not is_local(source, place_of[channel.reader]):
            ahead = [f"{source.block}#{i + 1}" for i in range(source.leave)]
            end = max(source.leave, last_written.get(source.block, 0))
            back = [f"{source.block}#-{i + 1}" for i in range(source.leave, end)]
            ways = [[routes[name] for name in names if name in routes] for names in (ahead, back)]
            hops[channel.name] = max(sum(len(path) - 1 for path in way) for way in ways)
            if f"{channel.name}#in" in routes and program.machine.network.kind != "dynamic":
                held = [f"{channel.name}#{i}" for i in range(1, len(program.sites[channel.name]))]
                way = [routes[name] for name in (f"{channel.name}#in", *held)]
                hops[channel.name] += sum(len(path) - 1 for path in way)
    return hops


def limits(machine: Machine) -> dict[str, int]:
    """Return how many links of each kind there are in a direction between neighbours."""
    return {"vector": machine.network.vector_links, "scalar": machine.network.scalar_links}


def link_loads(program: Program) -> dict[str, dict[Link, int]]:
    """Return how many vector and scalar links the routes of `program` take, by link.

    Links from and to address generators are left out: each generator has its own.
    """
    loads: dict[str, dict[Link, int]] = {"vector": {}, "scalar": {}}
    for net in nets(program):
        links = {link for name in net.sinks for link in _links(program.routes[name])}
        for link in sorted(links):
            if net.kind in loads and not _at_edge(link, program.machine):
                loads[net.kind][link] = loads[net.kind].get(link, 0) + net.wires
    return loads


def short_channels(program: Program) -> tuple[ShortChannel, ...]:
    """Return the channels that cannot run at full rate for want of room.

    A token keeps its slot from the writer's firing until credit_cycles after the reader pops it, so
    tokens that follow each other every `period` cycles need
    capacity x period >= writer latency + channel latency + credit. The period is that of the
    slower end: its interval times the trips of the loops inside the port's level.
    """
    units = {unit.name: unit for unit in program.units}
    period: dict[str, int] = {}
    for unit in program.units:
        for port in (*unit.inputs, *unit.outputs):
            trips = [loop.trips for loop in unit.loops]
            for name in port.channels:
                period[name] = max(period.get(name, 1), unit.ii_cycles * _spacing(port, trips))
    short = []
    shared = network_plan.plan(program)
    for place, channel in enumerate(program.channels):
        flight = units[channel.writer].latency_cycles + channel.latency_cycles
        if shared is not None and place in shared.first_sinks:
            flight += shared.flight_cycles(shared.first_sinks[place])
        needed = -(-(flight + channel.credit_cycles) // period.get(channel.name, 1))
        if channel.kind == "data" and channel.capacity < needed:
            short.append(ShortChannel(channel.name, channel.capacity, needed))
    return tuple(short)


def _spacing(port: Port, trips: list[int]) -> int:
    """The least number of firings between two uses of one channel of a port."""
    firings = 1
    for count in trips[port.level :]:
        firings *= count
    for loop, divisor, modulus in port.select:
        if loop == port.level - 1 and divisor == 1 and trips[loop] % modulus == 0:
            return firings * modulus
    return firings


def _links(path: Iterable[Site]) -> list[Link]:
    return list(pairwise(path))


def _at_edge(link: Link, machine: Machine) -> bool:
    return any(column in (-1, machine.grid.columns) for _, column in link)


def row_then_column(source: Site, sink: Site, columns: int) -> tuple[Site, ...]:
    """Return the sites of the route along the source's row and then the sink's column.

    Sites at an edge are entered along the row: from the switch beside them.

    >>> row_then_column((0, 0), (1, 2), 4)
    ((0, 0), (0, 1), (0, 2), (1, 2))
    >>> row_then_column((0, 0), (1, -1), 4)
    ((0, 0), (1, 0), (1, -1))
    """
    turn = min(max(sink[1], 0), columns - 1)
    start = min(max(source[1], 0), columns - 1)
    path = [source, (source[0], start)]
    path += [(source[0], column) for column in _steps(start, turn)]
    path += [(row, turn) for row in _steps(source[0], sink[0])]
    path.append(sink)
    return tuple(site for i, site in enumerate(path) if i == 0 or site != path[i - 1])


def _steps(start: int, stop: int) -> range:
    return range(start + 1, stop + 1) if stop > start else range(start - 1, stop - 1, -1)


Tree = dict[Site, Site]  # each site of a net's tree but the source -> the site before it


def _paths(net: Net, tree: Tree) -> dict[str, tuple[Site, ...]]:
    """The route of each channel of a net, from its source."""
    paths = {}
    for name, sink in net.sinks.items():
        path = [sink]
        while path[-1] != net.source:
            path.append(tree[path[-1]])
        paths[name] = tuple(reversed(path))
    return paths


def straight(net: Net, columns: int) -> Tree:
    """Return the tree of a net each of whose sinks is reached along the row and then the column."""
    tree: Tree = {}
    for sink in net.sinks.values():
        tree.update((b, a) for a, b in _links(row_then_column(net.source, sink, columns)))
    return tree


def _negotiate(program: Program, found: tuple[Net, ...]) -> list[Tree]:
    """A tree for each net such that no link is overfull; MappingError where none was found."""
    machine = program.machine
    columns = machine.grid.columns
    trees: list[Tree] = []
    links = {kind: _Links(machine, limit) for kind, limit in limits(machine).items()}
    for net in found:
        trees.append(straight(net, columns))
        if net.kind in links:
            links[net.kind].charge(trees[-1], net.wires)
    for kind, table in links.items():
        _check_ends(program, found, kind)
        _relieve(found, trees, kind, table)
        if table.overfull():
            raise _refusal(program, kind, *_fullest(table), table.limit)
    return trees


def _check_ends(program: Program, found: tuple[Net, ...], kind: str) -> None:
    """Refuse at once what no route can help: more wires to or from a switch than it has links."""
    grid, limit = program.machine.grid, limits(program.machine)[kind]
    wanted: dict[tuple[str, Site], int] = {}
    for net in found:
        if net.kind == kind:
            source = _switch(net.source, grid.columns)
            switches = sorted({_switch(sink, grid.columns) for sink in net.sinks.values()})
            away = [switch for switch in switches if switch != source]
            for place in [("out of", source)] * bool(away) + [("into", s) for s in away]:
                wanted[place] = wanted.get(place, 0) + net.wires
    for (way, (row, column)), needed in wanted.items():
        sides = (row > 0) + (row < grid.rows - 1) + (column > 0) + (column < grid.columns - 1)
        if needed > sides * limit:
            raise _refusal(program, kind, f"{way} {(row, column)}", needed, sides * limit)


def _switch(site: Site, columns: int) -> Site:
    return (site[0], min(max(site[1], 0), columns - 1))


def _relieve(found: tuple[Net, ...], trees: list[Tree], kind: str, table: _Links) -> None:
    """Lay nets of overfull links anew until there are none, or none of the limits is left."""
    fewest, since = len(found) ** 2, 0
    for attempt in range(ROUNDS):
        full = table.overfull()
        since = 0 if len(full) < fewest else since + 1
        fewest = min(fewest, len(full))
        if not full or since > PATIENCE or table.sites_seen > MOST_SITES:
            return
        table.raise_prices(full, PRICE_OF_OVERUSE * 2 ** min(attempt / 4, 12))
        for i, net in enumerate(found):
            if net.kind == kind and any((a, b) in full for b, a in trees[i].items()):
                table.charge(trees[i], -net.wires)
                trees[i] = table.grow(net)
                table.charge(trees[i], net.wires)


class _Links:
    """The links of one kind: how many wires each carries, and what another would cost."""

    def __init__(self, machine: Machine, limit: int) -> None:
        self.machine = machine
        self.limit = limit
        self.rows, self.columns = machine.grid.rows, machine.grid.columns
        self.load: dict[Link, int] = {}
        self.history: dict[Link, float] = {}
        self.price_of_overuse = 0.0
        self.sites_seen = 0

    def charge(self, tree: Tree, wires: int) -> None:
        """Add `wires` on every link of a tree; take them off where negative."""
        for to, come_from in tree.items():
            if 0 <= to[1] < self.columns and 0 <= come_from[1] < self.columns:
                link = (come_from, to)
                self.load[link] = self.load.get(link, 0) + wires

    def overfull(self) -> dict[Link, int]:
        """The links that carry more than they can, and how much they carry."""
        return {link: load for link, load in self.load.items() if load > self.limit}

    def raise_prices(self, full: dict[Link, int], price_of_overuse: float) -> None:
        """Make the links that are overfull dearer for good, and overuse dearer for now."""
        self.price_of_overuse = price_of_overuse
        for link, load in full.items():
            dearer = PRICE_OF_HISTORY * (load - self.limit)
            self.history[link] = self.history.get(link, 0.0) + dearer

    def price(self, link: Link, wires: int) -> float:
        """What a net of `wires` pays for a link: 1, its history, its overuse."""
        over = max(0, self.load.get(link, 0) + wires - self.limit)
        return (1.0 + self.history.get(link, 0.0)) * (1.0 + over * self.price_of_overuse)

    def grow(self, net: Net) -> Tree:
        """The cheapest tree found for a net: nearest sink first, each joined to the tree so far."""
        tree: Tree = {}
        wanted = sorted(set(net.sinks.values()), key=lambda s: (distance(net.source, s), s))
        for sink in wanted:
            if sink not in tree:
                self._join(net, tree, sink)
        return tree

    def _join(self, net: Net, tree: Tree, sink: Site) -> None:
        """Add the cheapest path from the tree to `sink` (A*: the distance is a lower bound)."""
        best = dict.fromkeys((net.source, *tree), 0.0)
        before: Tree = {}
        waiting = [(float(distance(site, sink)), site) for site in best]
        heapq.heapify(waiting)
        done: set[Site] = set()
        while waiting:
            _, site = heapq.heappop(waiting)
            if site == sink:
                break
            if site in done:
                continue
            done.add(site)
            self.sites_seen += 1
            for following in self._neighbours(site, sink):
                cost = best[site] + self.price((site, following), net.wires)
                if cost < best.get(following, float("inf")):
                    best[following] = cost
                    before[following] = site
                    heapq.heappush(waiting, (cost + distance(following, sink), following))
        while sink in before:
            tree[sink] = before[sink]
            sink = before[sink]

    def _neighbours(self, site: Site, sink: Site) -> list[Site]:
        row, column = site
        if column in (-1, self.columns):
            return [(row, min(max(column, 0), self.columns - 1))]
        around = ((row, column + 1), (row, column - 1), (row + 1, column), (row - 1, column))
        return [
            (r, c)
            for r, c in around
            if 0 <= r < self.rows and (0 <= c < self.columns or (r, c) == sink)
        ]


def _fullest(table: _Links) -> tuple[str, int]:
    full = table.overfull()
    (a, b), wanted = max(full.items(), key=lambda item: (item[1], item[0]))
    return f"from {a} to {b}", wanted


def _refusal(program: Program, kind: str, place: str, wanted: int, available: int) -> MappingError:
    resource = f"{kind} links {place}"
    hint = f"lower the unrolling or use a network with more {kind} links"
    where = f"{program.graph.name} on {program.machine.name}"
    line = shortage(where, resource, wanted, available, hint)
    return MappingError(line, resource=resource, needed=wanted, available=available)
