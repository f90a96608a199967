"""Which links of a shared network each channel's packets take, and how many flits cross them.

Links run between routers, one a grid cell, from a place where packets enter the network to its
first router, and from its last router to a place where they leave it. A unit or scratchpad enters
and leaves at its cell's router; an address generator, and the host, has links of its own to and
from the router beside it. Packets run along the row and then the column, so no circle of links can
wait for each other (Dally, Towles: "Principles and Practices of Interconnection Networks", 2004,
14.2), and a packet's place at its reader is reserved before it sets out, so every packet that
arrives is taken in.

A beat for several readers is one packet whose way is a tree: it forks in routers, and takes a link
once. That holds for packets of one flit. Longer ones are sent to each reader apart: a worm with
several heads holds one branch while it waits for another, and two of them can wait for each other
(Lin, Ni: "Deadlock-free multicast wormhole routing in multicomputer networks", ISCA 1991).

A channel that a scratchpad holds crosses the network twice: to the scratchpad, and from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np

from dataflow.program import Channel, Port, Program, Site, Unit
from hwspecs.network import Packets

OUTSIDE = -1
"""In place of a router: where packets enter or leave the network."""


@dataclass(frozen=True)
class Leg:
    """The way of a packet: the link by which it enters, and those that follow from fork to fork.

    links: any of them after the one it comes from, `after`: the place of that one in `links`, -1
    for the first. sinks: the numbers of those who take the packet.
    """

    links: tuple[int, ...]
    after: tuple[int, ...]
    flits: int
    sinks: tuple[int, ...]

    def branches(self, place: int) -> list[int]:
        """The places of the links that a packet takes from the end of the one at `place`."""
        return [onward for onward, before in enumerate(self.after) if before == place]

    def hops(self, place: int) -> int:
        """Routers that a packet leaves until it is over the link at `place`."""
        count = 0
        while self.after[place] >= 0:
            place = self.after[place]
            count += 1
        return count


@dataclass(frozen=True)
class Sink:
    """Who takes the packets of a leg, from the link at `place` of it.

    following: where it sends them on `pause_cycles` later, as the sink of another leg; -1: nowhere.
    """

    leg: int
    place: int
    following: int = -1
    pause_cycles: int = 0


@dataclass(frozen=True)
class NetworkPlan:
    """A network's links, as (router, router), the legs over them and the sinks of these.

    first_sinks: the first sink of each channel over the network, by place of the channel. Of the
    channels whose first sinks have one leg, the first declared leads: it counts the packets.
    """

    packets: Packets
    links: tuple[tuple[int, int], ...]
    legs: tuple[Leg, ...]
    sinks: tuple[Sink, ...]
    first_sinks: dict[int, int] = field(default_factory=dict)

    def feeders(self, link: int) -> list[int]:
        """The links that end where `link` starts, in order."""
        router = self.links[link][0]
        return [other for other, (_, end) in enumerate(self.links) if end == router != OUTSIDE]

    def last_sink(self, sink: int) -> int:
        """Where packets end that a sink may send on."""
        while self.sinks[sink].following >= 0:
            sink = self.sinks[sink].following
        return sink

    def leaders(self) -> dict[int, int]:
        """The channel that leads, by leg."""
        found: dict[int, int] = {}
        for channel, sink in self.first_sinks.items():
            found.setdefault(self.sinks[sink].leg, channel)
        return found

    def flight_cycles(self, sink: int) -> int:
        """Cycles from setting out until the last flit of a packet that meets no other arrives.

        hops x (router + link) + flits - 1, where a hop leaves a router, the last one included; legs
        that follow are counted too.
        """
        hop_cycles = self.packets.router_cycles + self.packets.link_cycles
        cycles = 0
        while sink >= 0:
            its = self.sinks[sink]
            leg = self.legs[its.leg]
            cycles += leg.hops(its.place) * hop_cycles + leg.flits - 1 + its.pause_cycles
            sink = its.following
        return cycles


class Links:
    """The links met so far, in the order in which they were met, and the legs over them."""

    def __init__(self) -> None:
        self.routers: dict[Site, int] = {}
        self.ends: list[tuple[int, int]] = []
        self.known: dict[tuple[Any, Any], int] = {}
        self.legs: list[Leg] = []
        self.sinks: list[Sink] = []

    def path(self, source: Any, cells: Sequence[Site], sink: Any) -> tuple[int, ...]:
        """The links from the port `source` over the routers of `cells` to the port `sink`."""
        links = [self._link(source, OUTSIDE, cells[0], self._router(cells[0]))]
        for one, other in pairwise(cells):
            links.append(self._link(one, self._router(one), other, self._router(other)))
        links.append(self._link(cells[-1], self._router(cells[-1]), sink, OUTSIDE))
        return tuple(links)

    def leg(self, paths: Sequence[tuple[int, ...]], flits: int) -> list[int]:
        """Add the leg of a packet that takes all `paths` from one port; return a sink for each."""
        places: dict[tuple[int, int], int] = {}
        sinks = []
        for path in paths:
            place = -1
            for link in path:
                place = places.setdefault((place, link), len(places))
            sinks.append(len(self.sinks))
            self.sinks.append(Sink(len(self.legs), place))
        after, links = zip(*places, strict=True)
        self.legs.append(Leg(links, after, flits, tuple(sinks)))
        return sinks

    def follow(self, sink: int, following: int, pause_cycles: int) -> None:
        """Let a sink send packets on."""
        its = self.sinks[sink]
        self.sinks[sink] = Sink(its.leg, its.place, following, pause_cycles)

    def plan(self, packets: Packets, first_sinks: dict[int, int]) -> NetworkPlan:
        """All of it."""
        return NetworkPlan(
            packets, tuple(self.ends), tuple(self.legs), tuple(self.sinks), first_sinks
        )

    def _router(self, cell: Site) -> int:
        return self.routers.setdefault(cell, len(self.routers))

    def _link(self, source: Any, start: int, sink: Any, end: int) -> int:
        number = self.known.setdefault((source, sink), len(self.ends))
        if number == len(self.ends):
            self.ends.append((start, end))
        return number


def plan(program: Program) -> NetworkPlan | None:
    """Return how the channels of `program` cross its machine's network; None if none share links.

    Channels without a route, and tile tokens and credits, have wires of their own.
    """
    if not program.routes or program.machine.network.packets is None:
        return None
    links, first_sinks = Links(), {}
    for together in _together(program):
        _add(program, together, links, first_sinks)
    if not first_sinks:
        return None
    return links.plan(program.machine.network.packets, first_sinks)


def packet_flits(program: Program, channel: Channel) -> int:
    """Flits of a packet that carries one token of `channel`."""
    packets = program.machine.network.packets
    assert packets is not None
    return packets.flits(channel.lanes * channel.wires * program.machine.word_bytes)


def link_flits(program: Program, made: NetworkPlan) -> list[int]:
    """Return the flits that cross each link of the plan in a whole run."""
    flits = [0] * len(made.links)
    places = {channel.name: place for place, channel in enumerate(program.channels)}
    leaders = {channel: leg for leg, channel in made.leaders().items()}
    for unit in program.units:
        for port in unit.outputs:
            for number, name in enumerate(port.channels):
                leg = leaders.get(places[name])
                for its in () if leg is None else _following(made, leg):
                    for link in its.links:
                        flits[link] += its.flits * pushes(unit, port, number)
    return flits


def _following(made: NetworkPlan, leg: int) -> list[Leg]:
    """A leg and those that packets take after it."""
    following = [made.sinks[sink].following for sink in made.legs[leg].sinks]
    onward = [_following(made, made.sinks[sink].leg) for sink in following if sink >= 0]
    return [made.legs[leg], *chain.from_iterable(onward)]


def pushes(unit: Unit, port: Port, number: int) -> int:
    """Return how often `unit` pushes channel `number` of an output port in a whole run."""
    digits: list[tuple[int, int, int, int]] = []
    for loop, divisor, modulus in reversed(port.select):
        number, digit = divmod(number, modulus)
        digits.append((loop, divisor, modulus, digit))
    count = 1
    for loop, its in enumerate(unit.loops):
        moves = loop < port.level and loop not in port.last
        at = np.arange(its.trips) if moves else np.array([its.trips - 1])
        chosen = [at // by % m == digit for named, by, m, digit in digits if named == loop]
        count *= int(np.logical_and.reduce(chosen).sum()) if chosen else len(at)
    return count


def _together(program: Program) -> list[list[int]]:
    """The places of channels over the network, those together whose tokens are one packet.

    They leave one unit with one value at the same firings, in one flit.
    """
    places = {channel.name: place for place, channel in enumerate(program.channels)}
    found: dict[tuple[Any, ...], list[int]] = {}
    for unit in program.units:
        for port in unit.outputs:
            for number, name in enumerate(port.channels):
                channel = program.channels[places[name]]
                routes = _routes(program, channel)
                if not routes:
                    continue
                same: tuple[Any, ...] = (unit.name, channel.value, routes[0][0], channel.initial)
                same += (port.level, port.last, port.select, number, channel.latency_cycles)
                if not channel.value or packet_flits(program, channel) > 1:
                    same = (name,)
                found.setdefault(same, []).append(places[name])
    return sorted(sorted(together) for together in found.values())


def _routes(program: Program, channel: Channel) -> list[tuple[Site, ...]]:
    """The routes that a token runs over, one after the other."""
    names = (f"{channel.name}#in", channel.name)
    if channel.kind != "data":
        return []
    return [program.routes[name] for name in names if len(program.routes.get(name, ())) > 1]


def _add(
    program: Program, together: Sequence[int], links: Links, first_sinks: dict[int, int]
) -> None:
    """Add the legs of channels whose tokens are one packet."""
    channels = [program.channels[place] for place in together]
    routes = [_routes(program, channel) for channel in channels]
    paths = [
        _path(program, channel, its[0], links)
        for channel, its in zip(channels, routes, strict=True)
    ]
    flits = max(packet_flits(program, channel) for channel in channels)
    firsts = links.leg(paths, flits)
    first_sinks.update(zip(together, firsts, strict=True))
    hop_cycles = program.machine.network.hop_cycles
    for channel, its, sink in zip(channels, routes, firsts, strict=True):
        if len(its) > 1:
            held = program.sites[channel.name]
            pause_cycles = sum(_distance(a, b) for a, b in pairwise(held)) * hop_cycles
            (following,) = links.leg([_path(program, channel, its[1], links)], flits)
            links.follow(sink, following, pause_cycles)


def _path(
    program: Program, channel: Channel, route: tuple[Site, ...], links: Links
) -> tuple[int, ...]:
    """The links of a route."""
    columns = program.machine.grid.columns
    cells = [site for site in route if 0 <= site[1] < columns]
    # an address generator, and the host, has links of its own
    source, sink = (
        site if 0 <= site[1] < columns else unit
        for site, unit in ((route[0], channel.writer), (route[-1], channel.reader))
    )
    return links.path(("from", source), cells, ("to", sink))


def _distance(a: Site, b: Site) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])
