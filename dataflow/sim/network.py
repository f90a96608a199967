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
them in order. A packet for several readers, which is one flit, forks where their ways part: it
leaves its buffer over each link in turn or at once, as they take it, and is gone with the last.

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
place in the leg of the link it came over."""


class _Buffer:
    """The flits of one virtual channel at the end of a link, and what its other end knows of it."""

    __slots__ = ("branches", "credits", "flits", "left_at", "number", "onward", "taken")

    def __init__(self, depth: int):
        self.flits: deque[_Flit] = deque()
        self.credits = deque([0] * depth)  # when each place without a flit may be filled
        self.taken = False  # by a packet whose tail is not in it yet
        self.onward: _Buffer | None = None  # where the packet at its front goes on
        self.branches = 0  # links that have not taken the flit at its front
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
        self.wanted_by: dict[int, tuple[_Buffer, int]] = {}  # and its place in the flit's leg

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

    deliver(sink, cycle) is told of every packet that has arrived, those of a sink in order.
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
        self.branches = [
            [leg.branches(place) for place in range(len(leg.links))] for leg in plan.legs
        ]
        self.sinks: dict[tuple[int, int], list[int]] = {}
        for number, sink in enumerate(plan.sinks):
            self.sinks.setdefault((sink.leg, sink.place), []).append(number)
        self.sent = [0] * len(plan.legs)
        self.early: list[dict[int, int]] = [{} for _ in plan.sinks]
        self.delivered = [0] * len(plan.sinks)
        self.arrived_at = [-1] * len(plan.sinks)
        self.open = 0  # arrivals to come of packets sent
        self.flits_moved = [0] * len(plan.links)

    def send(self, leg: int, cycle: int) -> None:
        """Let the next packet of a leg set out at `cycle`, not before the one before it."""
        entry = self.entries[self.plan.legs[leg].links[0]]
        heappush(entry.waiting, (cycle, leg, self.sent[leg]))
        self.sent[leg] += 1
        self.open += len(self.plan.legs[leg].sinks)

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
                if not link.wanted_by:
                    self.wanted.discard(number)

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
        """Let a buffer ask for the links that its front flit takes next."""
        _, leg, _, _, place = buffer.flits[0]
        for onward in self.branches[leg][place]:
            number = self.plan.legs[leg].links[onward]
            self.links[number].wanted_by[buffer.number] = (buffer, onward)
            self.wanted.add(number)
        buffer.branches = len(self.branches[leg][place])

    def _next_of(self, link: _Link, cycle: int) -> _Buffer | None:
        """The buffer from which a link takes a flit in this cycle."""
        first = link.taken_last + 1
        for number in sorted(link.wanted_by, key=lambda number: (number < first, number)):
            buffer, _ = link.wanted_by[number]
            if self._may_send(link, buffer, cycle):
                return buffer
        return None

    def _may_send(self, link: _Link, buffer: _Buffer, cycle: int) -> bool:
        """Whether a buffer's front flit may leave over a link in this cycle."""
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
        _, leg, packet, flit, _ = buffer.flits[0]
        _, place = link.wanted_by.pop(buffer.number)
        link.taken_last = buffer.number
        self.flits_moved[number] += 1
        arrival, is_tail = cycle + self.link_cycles, flit == self.plan.legs[leg].flits - 1
        if link.buffers:
            if flit == 0:
                buffer.onward = link.give(cycle)
            onward = buffer.onward
            assert onward is not None
            self._fill(onward, (arrival + self.router_cycles, leg, packet, flit, place))
            if is_tail:
                onward.taken, buffer.onward = False, None
        buffer.branches -= 1
        if not buffer.branches:
            self._leave(buffer, cycle)
        if is_tail and not link.buffers:
            for sink in self.sinks[leg, place]:
                self._arrive(sink, packet, arrival)

    def _leave(self, buffer: _Buffer, cycle: int) -> None:
        """Let go of the front flit of a buffer, which has left over all its links."""
        buffer.flits.popleft()
        buffer.credits.append(cycle + self.link_cycles)
        buffer.left_at = cycle
        if buffer.flits:
            self._want(buffer)

    def _arrive(self, sink: int, packet: int, cycle: int) -> None:
        """Deliver a packet, and those that overtook it."""
        early = self.early[sink]
        early[packet] = cycle
        its = self.plan.sinks[sink]
        while self.delivered[sink] in early:
            at = max(self.arrived_at[sink], early.pop(self.delivered[sink]))
            self.arrived_at[sink] = at
            self.delivered[sink] += 1
            self.open -= 1
            if its.following >= 0:
                self.send(self.plan.sinks[its.following].leg, at + its.pause_cycles)
            else:
                self.deliver(sink, at)


class NetworkChannel(Channel):
    """A channel whose tokens cross a shared network; `late_by` holds what others cost each."""

    __slots__ = ("flight_cycles", "leg", "process")

    def __init__(self, plan: ChannelPlan, capacity: int, process: NetworkProcess, place: int):
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
        network = process.network.plan
        sink = network.first_sinks[place]
        self.leg = network.sinks[sink].leg if process.leads(place) else -1
        self.process = process
        self.flight_cycles = network.flight_cycles(sink)
        process.channels[network.last_sink(sink)] = self

    def push(self, times: Sequence[int]) -> None:
        """Send a packet for each firing in `times`, unless another channel's is for it too."""
        self.written += len(times)
        setting_out = [at + self.latency_cycles for at in times]
        self.sent += setting_out
        if self.leg >= 0:
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
        self.leaders = set(plan.leaders().values())
        self.channels: dict[int, NetworkChannel] = {}
        self.idle: Event | None = None

    def leads(self, place: int) -> bool:
        """Whether it is the channel with this place whose pushes send packets."""
        return place in self.leaders

    def send(self, leg: int, cycles: Sequence[int]) -> None:
        """Let packets of a leg set out."""
        for cycle in cycles:
            self.network.send(leg, cycle)
        if self.idle is not None:
            idle, self.idle = self.idle, None
            idle.succeed()

    def _deliver(self, sink: int, cycle: int) -> None:
        self.channels[sink].arrive(cycle)

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
