"""A network whose links all channels share: routers, virtual channels, credits.

Modelled: a router with a buffer of its own for each virtual channel of each link into it, as in
Dally, Towles: "Principles and Practices of Interconnection Networks", 2004, chapters 13 and 16.
A packet is a head, body and tail of flits that follow each other (wormhole flow control, flit by
flit, with virtual channels). In every cycle each link takes one flit from one of the buffers
before it:

* a flit that arrives in a buffer at `t` may leave from t + router_cycles on, in order;
* it needs a virtual channel of the link: its packet's head takes the next free one, in turn, and
  its tail gives it back as it leaves; and room in that channel's buffer, a credit, which comes back
  `link_cycles` after a flit has left the buffer;
* of the buffers whose flit may leave, the link takes the first after the one it took last (round
  robin); a buffer gives one flit a cycle, and each has a way of its own through the router (input
  speed-up: several buffers of one link may send in one cycle, over different links);
* a flit that leaves at `t` arrives at t + link_cycles.

Where packets enter, a link with virtual channels of its own brings one flit a cycle into the first
router, in no time (a channel's own latency holds that): packets in order of (cycle, leg), one
after the other. Where they leave, a link takes one flit a cycle, and always has room. A packet has
arrived with its tail. Packets of one channel may overtake each other on different virtual
channels; each goes to the place in its reader's FIFO that was reserved for it, and its reader sees
them in order. A value for several readers is sent to each in a packet of its own.

So a packet that meets no other takes hops x (router_cycles + link_cycles) + flits - 1, if buffers
hold the flits that leave until the first credit is back: 2 x link_cycles + router_cycles of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from heapq import heappop, heappush

from simpy import Environment, Event

from dataflow.network_plan import OUTSIDE, NetworkPlan
from dataflow.sim.channel import Channel
from dataflow.sim.memory import Late
from dataflow.sim.timing_graph import ChannelPlan

_Flit = tuple[int, int, int, int, int]
"""The first cycle in which it may leave; leg, number of the packet in it, place in the packet, and
place of the link it came over in the leg."""


class _Buffer:
    """The flits of one virtual channel at the end of a link, and what its other end knows of it."""

    __slots__ = ("credits", "flits", "left_at", "number", "onward", "taken")

    def __init__(self, depth: int):
        self.flits: deque[_Flit] = deque()
        self.credits = deque([0] * depth)  # when each place without a flit may be filled
        self.taken = False  # by a packet whose tail is not in it yet
        self.onward: _Buffer | None = None  # where the packet at its front goes on
        self.left_at = -1  # the last cycle in which a flit left
        self.number = 0  # in the order in which links look at buffers

    def has_room(self, cycle: int) -> bool:
        """Whether a flit may be sent to it."""
        return bool(self.credits) and self.credits[0] <= cycle


class _Link:
    """One flit a cycle to one of its `buffers`, of which there are none where packets leave."""

    __slots__ = ("buffers", "channel", "taken_last", "wanted_by")

    def __init__(self, buffers: list[_Buffer]):
        self.buffers = buffers
        self.channel = -1  # the virtual channel given away last
        self.taken_last = -1  # the number of the buffer that it took a flit from last
        self.wanted_by: dict[int, _Buffer] = {}

    def free_buffer(self, cycle: int) -> int:
        """The next virtual channel, in turn, that a packet can be given; -1 where there is none."""
        count = len(self.buffers)
        for step in range(1, count + 1):
            channel = (self.channel + step) % count
            buffer = self.buffers[channel]
            if not buffer.taken and buffer.has_room(cycle):
                return channel
        return -1

    def give(self, cycle: int) -> _Buffer:
        """Give away a virtual channel that `free_buffer` has found."""
        self.channel = self.free_buffer(cycle)
        buffer = self.buffers[self.channel]
        buffer.taken = True
        return buffer


class _Entry:
    """Where packets enter: those that wait by (cycle, leg, number), and the one on its way in."""

    __slots__ = ("buffer", "flit", "link", "packet", "waiting")

    def __init__(self, link: _Link):
        self.link = link
        self.waiting: list[tuple[int, int, int]] = []
        self.packet: tuple[int, int] | None = None
        self.flit = 0
        self.buffer: _Buffer | None = None


class Network:
    """The state of a network, cycle by cycle.

    deliver(leg, cycle) is told of every packet that has arrived, those of a leg in order.
    """

    def __init__(self, plan: NetworkPlan, deliver: Callable[[int, int], None]):
        self.plan = plan
        self.deliver = deliver
        packets = plan.packets
        self.router_cycles, self.link_cycles = packets.router_cycles, packets.link_cycles
        self.links = [
            _Link([_Buffer(packets.buffer_flits) for _ in range(packets.virtual_channels)])
            if end != OUTSIDE
            else _Link([])
            for _, end in plan.links
        ]
        for number, buffer in enumerate(b for link in self.links for b in link.buffers):
            buffer.number = number
        self.entries: dict[int, _Entry] = {}
        for leg in plan.legs:
            self.entries.setdefault(leg.links[0], _Entry(self.links[leg.links[0]]))
        self.wanted: set[int] = set()
        self.sent = [0] * len(plan.legs)
        self.early: list[dict[int, int]] = [{} for _ in plan.legs]
        self.delivered = [0] * len(plan.legs)
        self.arrived_at = [-1] * len(plan.legs)
        self.open = 0  # packets sent and not arrived
        self.flits_moved = [0] * len(plan.links)

    def send(self, leg: int, cycle: int) -> None:
        """Let the next packet of a leg set out at `cycle`, not before the one before it."""
        entry = self.entries[self.plan.legs[leg].links[0]]
        heappush(entry.waiting, (cycle, leg, self.sent[leg]))
        self.sent[leg] += 1
        self.open += 1

    def tick(self, cycle: int) -> None:
        """Work out one cycle, with all packets known that set out until then."""
        for entry in self.entries.values():
            if entry.packet is not None or (entry.waiting and entry.waiting[0][0] <= cycle):
                self._enter(entry, cycle)
        for number in sorted(self.wanted):
            link = self.links[number]
            taken = self._next_of(link, cycle)
            if taken is not None:
                self._move(number, link, taken, cycle)

    def _enter(self, entry: _Entry, cycle: int) -> None:
        """Bring the next flit of an entry's packet into the first router's buffers."""
        if entry.packet is None:
            _, leg, number = heappop(entry.waiting)
            entry.packet, entry.flit = (leg, number), 0
        leg, number = entry.packet
        if entry.flit == 0 and entry.link.free_buffer(cycle) >= 0:
            entry.buffer = entry.link.give(cycle)
        buffer = entry.buffer
        if buffer is None or not buffer.has_room(cycle):
            return
        self.flits_moved[self.plan.legs[leg].links[0]] += 1
        self._fill(buffer, (cycle + self.router_cycles, leg, number, entry.flit, 0))
        entry.flit += 1
        if entry.flit == self.plan.legs[leg].flits:
            buffer.taken = False
            entry.packet = entry.buffer = None

    def _fill(self, buffer: _Buffer, flit: _Flit) -> None:
        """Put a flit into a buffer that has room for it."""
        buffer.credits.popleft()
        buffer.flits.append(flit)
        if len(buffer.flits) == 1:
            self._want(buffer)

    def _want(self, buffer: _Buffer) -> None:
        """Let a buffer ask for the link that its front flit takes next."""
        _, leg, _, _, place = buffer.flits[0]
        number = self.plan.legs[leg].links[place + 1]
        self.links[number].wanted_by[buffer.number] = buffer
        self.wanted.add(number)

    def _next_of(self, link: _Link, cycle: int) -> _Buffer | None:
        """The buffer from which a link takes a flit in this cycle."""
        first = link.taken_last + 1
        turn = sorted(link.wanted_by, key=lambda number: (number < first, number))
        return next(
            (b for b in map(link.wanted_by.get, turn) if self._may_send(link, b, cycle)), None
        )

    def _may_send(self, link: _Link, buffer: _Buffer | None, cycle: int) -> bool:
        """Whether a buffer's front flit may leave over a link in this cycle."""
        assert buffer is not None
        ready, _, _, flit, _ = buffer.flits[0]
        if ready > cycle or buffer.left_at == cycle:
            return False
        if not link.buffers:
            return True
        if flit == 0:
            return link.free_buffer(cycle) >= 0
        assert buffer.onward is not None
        return buffer.onward.has_room(cycle)

    def _move(self, number: int, link: _Link, buffer: _Buffer, cycle: int) -> None:
        """Take the front flit of a buffer over a link."""
        _, leg, packet, flit, place = buffer.flits.popleft()
        buffer.credits.append(cycle + self.link_cycles)
        buffer.left_at = cycle
        link.taken_last = buffer.number
        self.flits_moved[number] += 1
        arrival, is_tail = cycle + self.link_cycles, flit == self.plan.legs[leg].flits - 1
        if link.buffers:
            if flit == 0:
                buffer.onward = link.give(cycle)
            onward = buffer.onward
            assert onward is not None
            self._fill(onward, (arrival + self.router_cycles, leg, packet, flit, place + 1))
            if is_tail:
                onward.taken, buffer.onward = False, None
        del link.wanted_by[buffer.number]
        if not link.wanted_by:
            self.wanted.discard(number)
        if buffer.flits:
            self._want(buffer)
        if is_tail and not link.buffers:
            self._arrive(leg, packet, arrival)

    def _arrive(self, leg: int, packet: int, cycle: int) -> None:
        """Deliver a packet, and those that overtook it."""
        early = self.early[leg]
        early[packet] = cycle
        following, pause = self.plan.legs[leg].following, self.plan.legs[leg].pause_cycles
        while self.delivered[leg] in early:
            at = max(self.arrived_at[leg], early.pop(self.delivered[leg]))
            self.arrived_at[leg] = at
            self.delivered[leg] += 1
            self.open -= 1
            if following >= 0:
                self.send(following, at + pause)
            else:
                self.deliver(leg, at)


class NetworkChannel(Channel):
    """A channel whose tokens cross a shared network; `late_by` holds what others cost each."""

    __slots__ = ("flight_cycles", "leg", "process")

    def __init__(self, plan: ChannelPlan, capacity: int, process: NetworkProcess, leg: int):
        super().__init__(
            plan.name,
            capacity,
            plan.latency_cycles,
            plan.credit_cycles,
            plan.initial,
            plan.token_charge,
        )
        self.sent = [0] * plan.initial
        self.late_by: list[int] = [0] * plan.initial
        self.leg, self.process = leg, process
        self.flight_cycles = process.network.plan.flight_cycles(leg)
        process.channels[leg] = self

    def push(self, times: Sequence[int]) -> None:
        """Send a packet for each firing in `times`."""
        self.written += len(times)
        setting_out = [at + self.latency_cycles for at in times]
        self.sent += setting_out
        self.process.send(self.leg, setting_out)

    def pushed(self) -> None:
        """Nothing to see for a reader until the network delivers."""

    def arrive(self, cycle: int) -> None:
        """Take the next token, which has arrived at `cycle`."""
        set_out = self.sent[len(self.arrivals)]
        self.arrivals.append(cycle)
        self.late_by.append(cycle - set_out - self.flight_cycles)
        super().pushed()


class NetworkProcess:
    """The network of a run: a SimPy process that works out the cycles in which it is not empty.

    It works out a cycle late in it: every packet that sets out until then is known. What it
    delivers arrives in a later one.
    """

    def __init__(self, env: Environment, plan: NetworkPlan):
        self.env = env
        self.network = Network(plan, self._deliver)
        self.last_legs: dict[int, int] = {}
        for first in plan.first_legs.values():
            leg = first
            while plan.legs[leg].following >= 0:
                leg = plan.legs[leg].following
            self.last_legs[leg] = first
        self.channels: dict[int, NetworkChannel] = {}
        self.idle: Event | None = None

    def send(self, leg: int, cycles: Sequence[int]) -> None:
        """Let packets of a leg set out."""
        for cycle in cycles:
            self.network.send(leg, cycle)
        if self.idle is not None:
            idle, self.idle = self.idle, None
            idle.succeed()

    def _deliver(self, leg: int, cycle: int) -> None:
        self.channels[self.last_legs[leg]].arrive(cycle)

    def run(self) -> Generator[Event, None, None]:
        """The process: a cycle at a time, until all that was sent has arrived."""
        while True:
            if not self.network.open:
                self.idle = self.env.event()
                yield self.idle
            yield Late(self.env)
            self.network.tick(int(self.env.now))
            while self.network.open:
                yield Late(self.env, 1)
                self.network.tick(int(self.env.now))
