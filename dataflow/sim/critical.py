"""The chain of causes behind the end of a run, walked back from its last event to cycle 0.

    a firing      <- the unit's own interval back to the last firing that something came later for
                  <- the push of the token, or the pop of the slot, that it waited for
                  <- the burst, or the acknowledgement, that its beat waited for
    a burst       <- its request's reach, or the burst before it on its channel, the later of both;
                     what lies between that and its own turn went to rows, refresh or the bus
    a request     <- the request before it, one cycle earlier, back to one that came of a firing:
                     the last use of the place in flight that it took, or a store's last beat in it

Each step ends where the one before it began, so links sum to the run's cycles. Bursts move at
fractions of a cycle; a link starts at the whole cycle after. The rules are those of `firing.py`,
`offchip.py`, `memory.py` and `dram.py`; in a tie of the two a unit's own interval, and a memory
channel's own burst, come first.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dataflow.chain import MEMORY_CHANNEL, Chain
from dataflow.program import Program
from dataflow.sim.bursts import BurstLog
from dataflow.sim.channel import Channel
from dataflow.sim.dram import WAITS
from dataflow.sim.firing import Running
from dataflow.sim.offchip import AddressGenerator
from dataflow.sim.recording import Recording
from dataflow.sim.timing_graph import TimingGraph

Step = tuple[Callable[..., "Step | None"], int, int]
"""Where the walk goes on: at a firing (unit, n) or at a request (unit, k); None at cycle 0."""


class Recorded(Protocol):
    """What the walk reads of a run that has ended."""

    program: Program
    graph: TimingGraph
    units: list[Running]
    channels: list[Channel]
    generators: dict[str, AddressGenerator]
    recording: Recording | None


def chain(run: Recorded, cycles: int) -> Chain:
    """Return the chain behind the end of a recorded run of `cycles`."""
    walk = Walk(run, cycles)
    step = walk.end() if cycles else None
    while step is not None:
        follow, place, number = step
        step = follow(place, number)
    assert walk.at == 0, f"the chain of causes ends at cycle {walk.at}, not at 0"
    return walk.chain(cycles)


class Walk:
    """One walk; `at` is the cycle that it has come back to."""

    def __init__(self, run: Recorded, cycles: int):
        assert run.recording is not None
        self.run = run
        self.recording, self.log = run.recording, run.recording.log
        self.at = cycles
        self.names: dict[tuple[str, str], int] = {}
        self.since: array[int] = array("q")
        self.places: array[int] = array("i")
        self.requests: dict[int, Requests] = {}

    def chain(self, cycles: int) -> Chain:
        """The links walked, turned round."""
        since = np.array(self.since, np.int64)[::-1]
        return Chain(tuple(self.names), since, np.array(self.places, np.int32)[::-1], cycles)

    def back_to(self, since: int, kind: str, resource: str) -> None:
        """Add the link from `since` up to where the walk stands."""
        assert since <= self.at, f"{kind} of {resource} from {since} to {self.at}"
        if since == self.at:
            return
        place = self.names.setdefault((kind, resource), len(self.names))
        if self.places and self.places[-1] == place:
            self.since[-1] = since
        else:
            self.since.append(since)
            self.places.append(place)
        self.at = since

    def end(self) -> Step | None:
        """The last cycle: a burst's return, else a firing, else a token's arrival."""
        last = self.at - 1
        for place, unit in enumerate(self.run.graph.units):
            generator = self.run.generators.get(unit.name)
            if generator is not None and generator.last_back == last:
                self.back_to(last, "end", unit.name)
                return self.burst(place, self.requests_of(place).first_back(last))
        fired = [unit.last_fired for unit in self.run.units]
        if last in fired:
            place = fired.index(last)
            self.back_to(last, "end", self.run.graph.units[place].name)
            return self.firing, place, len(self.recording.times[place]) - 1
        ended = [
            plan.carries and channel.last_arrival == last
            for plan, channel in zip(self.run.graph.channels, self.run.channels, strict=True)
        ]
        place = ended.index(True)
        plan = self.run.graph.channels[place]
        self.back_to(last, "end", plan.name)
        return self.token(place, plan.initial + self.recording.pushed[place].count - 1)

    def firing(self, place: int, number: int) -> Step | None:
        """A firing: back to the one whose cause was another's, then to that cause."""
        recording = self.recording
        caused = recording.caused[place]
        last = bisect_right(caused, number) - 1
        first = caused[last] if last >= 0 else 0
        self.interval(place, first, number)
        if last < 0:  # the unit's first, at cycle 0
            return None
        code, ordinal = recording.ends[place][last], recording.numbers[place][last]
        if code == recording.memory:
            requests = self.requests_of(place)
            return self.burst(place, requests.first_back(self.at, requests.needs[ordinal]))
        if code == recording.memory + 1:
            return self.burst(place, self.requests_of(place).first_back(self.at))
        return (self.room if code % 2 else self.token)(code // 2, ordinal)

    def interval(self, place: int, first: int, last: int) -> None:
        """The firings of a unit from `first` to `last`, an interval apart each."""
        plan, times = self.run.graph.units[place], self.recording.times[place]
        if plan.kind in ("write", "read") and plan.ii_cycles > 1:
            for number in range(last - 1, first - 1, -1):
                self.back_to(times[number] + 1, "bank", plan.name)
                self.back_to(times[number], "interval", plan.name)
        else:
            self.back_to(times[first], "interval", plan.name)

    def token(self, place: int, number: int) -> Step | None:
        """A token that arrived: over the wires and out of its writer's pipeline."""
        plan = self.run.graph.channels[place]
        if number < plan.initial:  # there from cycle 0 on
            return None
        firing = self.recording.pushed[place].firing(number - plan.initial)
        pushed = self.recording.times[plan.writer][firing]
        writer = self.run.program.units[plan.writer]
        self.back_to(pushed + plan.latency_cycles, "network", plan.name)
        self.back_to(pushed + writer.latency_cycles, "wires", plan.name)
        self.back_to(pushed, "pipeline", writer.name)
        return self.firing, plan.writer, firing

    def room(self, place: int, number: int) -> Step:
        """A slot that came free."""
        plan, channel = self.run.graph.channels[place], self.run.channels[place]
        firing = self.recording.popped[place].firing(number - (channel.capacity - plan.initial))
        self.back_to(self.recording.times[plan.reader][firing], "room", plan.name)
        return self.firing, plan.reader, firing

    def burst(self, place: int, number: int) -> Step:
        """A burst that came back: through what moved on its channel to what first asked for it."""
        log = self.log
        turn = log.turns[place][number]
        name = f"{MEMORY_CHANNEL} {log.channel[turn]}"
        self.back_to(self.whole(log.until[turn]), "access", name)
        while True:
            self.back_to(self.whole(log.start[turn]), "burst", name)
            before = log.before[turn]
            reach = log.reach[log.unit[turn]][log.number[turn]] * log.parts
            free = log.until[before] if before >= 0 else -1
            if log.wait[turn]:
                self.back_to(self.whole(max(reach, free)), WAITS[log.wait[turn]], name)
            if free < reach:
                return self.request, log.unit[turn], log.number[turn]
            turn = before

    def whole(self, time: int) -> int:
        """The whole cycle at or after a time of the memory."""
        return -(-time // self.log.parts)

    def request(self, place: int, number: int) -> Step | None:
        """A request that has reached memory: back to the firing that let its port send."""
        requests = self.requests_of(place)
        first = int(requests.last_free[number])
        self.back_to(int(requests.issue[first]), "generator", requests.name)
        if not self.at:
            return None
        beat = requests.beat_behind(first)
        self.back_to(self.recording.times[place][beat], "generator", requests.name)
        return self.firing, place, beat

    def requests_of(self, place: int) -> Requests:
        """The requests of the load or store at `place`."""
        found = self.requests.get(place)
        if found is None:
            name = self.run.graph.units[place].name
            found = self.requests[place] = Requests(self.run.generators[name], place, self.log)
        return found


class Requests:
    """The requests of one load or store and the beats that they belong to.

    issue[k]: the cycle at which request k was sent; last_free[k]: the last request up to k that did
    not follow right behind another. back[k]: the cycle by which all up to k are back.
    """

    def __init__(self, generator: AddressGenerator, place: int, log: BurstLog):
        self.generator = generator
        self.name = generator.unit.name
        reach = np.array(log.reach.get(place, ()), np.int64)
        self.issue = reach - generator.latency_cycles
        self.last_free = _last(np.diff(self.issue, prepend=-2) != 1)
        turns = np.array(log.turns.get(place, ()), np.int64)
        turns = turns[: np.argmin(turns)] if (turns < 0).any() else turns  # a run cut short
        back = -(-np.array(log.end, np.int64)[turns] // log.parts)
        self.back = np.maximum.accumulate(back + generator.memory.latency_cycles)

    @cached_property
    def beats(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`needs` and `ends` of `offchip.Requests` for all beats of the run, counted from its first
        request."""
        needs, ends, asked = [], [], 0
        for tile in self.generator.points():
            needs.append(np.array(tile.needs, np.int64) + asked)
            ends.append(np.array(tile.ends, np.int64) + asked)
            asked += len(tile.addresses)
        return np.concatenate(needs), np.concatenate(ends)

    @property
    def needs(self) -> NDArray[np.int64]:
        """How many requests each beat needs back, counted from the first."""
        return self.beats[0]

    def first_back(self, cycle: int, among: int | None = None) -> int:
        """The first request of a store or load, up to `among`, that was back only at `cycle`."""
        found = int(np.searchsorted(self.back[:among], cycle))
        assert self.back[found] == cycle, f"{self.name}: no request is back at cycle {cycle}"
        return found

    def beat_behind(self, number: int) -> int:
        """The beat whose firing let request `number` go: it freed a place, or completed a burst."""
        if not self.generator.writes:
            number -= self.generator.outstanding
        return int(np.searchsorted(self.beats[1], number, side="right"))


def _last(marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """For each place the last one up to it that is marked; -1 where none is."""
    return np.maximum.accumulate(np.where(marks, np.arange(len(marks)), -1))
