"""Which links of a shared network each channel's packets take, and how many flits cross them.

Links run between routers, one a grid cell, from a place where packets enter the network to its
first router, and from its last router to a place where they leave it. A unit or scratchpad enters
and leaves at its cell's router; an address generator, and the host, has links of its own to and
from the router beside it. Packets run along the row and then the column, so no circle of links can
wait for each other (Dally, Towles: "Principles and Practices of Interconnection Networks", 2004,
14.2), and a packet's place at its reader is reserved before it sets out, so every packet that
arrives is taken in.

A channel that a scratchpad holds runs over two *legs*: to the scratchpad, and from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dataflow.program import Channel, Port, Program, Site, Unit
from hwspecs.network import Packets

OUTSIDE = -1
"""In place of a router: where packets enter or leave the network."""


@dataclass(frozen=True)
class Leg:
    """One crossing of the network: the links from where packets enter to where they leave.

    following: the leg after it, or -1; its packets set out `pause_cycles` after they arrive.
    """

    links: tuple[int, ...]
    flits: int
    following: int = -1
    pause_cycles: int = 0


@dataclass(frozen=True)
class NetworkPlan:
    """A network's links, as (router, router), and the legs over them.

    first_legs: the first leg of each channel over the network, by place of the channel.
    """

    packets: Packets
    links: tuple[tuple[int, int], ...]
    legs: tuple[Leg, ...]
    first_legs: dict[int, int] = field(default_factory=dict)

    def feeders(self, link: int) -> list[int]:
        """The links that end where `link` starts, in order."""
        router = self.links[link][0]
        return [other for other, (_, end) in enumerate(self.links) if end == router != OUTSIDE]

    def flight_cycles(self, leg: int) -> int:
        """Cycles from setting out until the last flit of a packet that meets no other arrives.

        hops x (router + link) + flits - 1, where a hop leaves a router, the last one included; legs
        that follow are counted too.
        """
        cycles = 0
        while leg >= 0:
            its = self.legs[leg]
            hop_cycles = self.packets.router_cycles + self.packets.link_cycles
            cycles += (len(its.links) - 1) * hop_cycles + its.flits - 1 + its.pause_cycles
            leg = its.following
        return cycles


class Links:
    """The links met so far, numbered in the order in which they were met."""

    def __init__(self) -> None:
        self.routers: dict[Site, int] = {}
        self.ends: list[tuple[int, int]] = []
        self.known: dict[tuple[Any, Any], int] = {}

    def path(self, source: Any, cells: Sequence[Site], sink: Any) -> tuple[int, ...]:
        """The links from the port `source` over the routers of `cells` to the port `sink`."""
        links = [self._link(source, OUTSIDE, cells[0], self._router(cells[0]))]
        for one, other in pairwise(cells):
            links.append(self._link(one, self._router(one), other, self._router(other)))
        links.append(self._link(cells[-1], self._router(cells[-1]), sink, OUTSIDE))
        return tuple(links)

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
    packets = program.machine.network.packets
    links, legs, first_legs = Links(), [], {}
    for place, channel in enumerate(program.channels):
        routes = _routes(program, channel)
        if routes:
            first_legs[place] = len(legs)
            legs += _legs(program, channel, routes, links, len(legs))
    if not legs:
        return None
    return NetworkPlan(packets, tuple(links.ends), tuple(legs), first_legs)


def packet_flits(program: Program, channel: Channel) -> int:
    """Flits of a packet that carries one token of `channel`."""
    packets = program.machine.network.packets
    assert packets is not None
    return packets.flits(channel.lanes * channel.wires * program.machine.word_bytes)


def link_flits(program: Program, made: NetworkPlan) -> list[int]:
    """Return the flits that cross each link of the plan in a whole run."""
    flits = [0] * len(made.links)
    places = {channel.name: place for place, channel in enumerate(program.channels)}
    for unit in program.units:
        for port in unit.outputs:
            for number, name in enumerate(port.channels):
                leg = made.first_legs.get(places[name], -1)
                while leg >= 0:
                    for link in made.legs[leg].links:
                        flits[link] += made.legs[leg].flits * pushes(unit, port, number)
                    leg = made.legs[leg].following
    return flits


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


def _routes(program: Program, channel: Channel) -> list[tuple[Site, ...]]:
    """The routes that a token runs over, one after the other."""
    names = (f"{channel.name}#in", channel.name)
    if channel.kind != "data":
        return []
    return [program.routes[name] for name in names if len(program.routes.get(name, ())) > 1]


def _legs(
    program: Program,
    channel: Channel,
    routes: Sequence[tuple[Site, ...]],
    links: Links,
    first: int,
) -> Iterable[Leg]:
    """The legs of a channel, of which the first has number `first`."""
    columns = program.machine.grid.columns
    held = program.sites.get(channel.name, ())
    hop_cycles = program.machine.network.hop_cycles
    legs = []
    for number, route in enumerate(routes):
        cells = [site for site in route if 0 <= site[1] < columns]
        # an address generator, and the host, has links of its own
        ports = [
            (site, site if 0 <= site[1] < columns else unit)
            for site, unit in ((route[0], channel.writer), (route[-1], channel.reader))
        ]
        path = links.path(("from", *ports[0]), cells, ("to", *ports[1]))
        legs.append(Leg(path, packet_flits(program, channel)))
        if number + 1 < len(routes):
            pause = sum(_distance(a, b) for a, b in pairwise(held)) * hop_cycles
            legs[-1] = replace(legs[-1], following=first + number + 1, pause_cycles=pause)
    return legs


def _distance(a: Site, b: Site) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])
