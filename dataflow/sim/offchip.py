"""Off-chip memory and the address generators that reach it.

Modelled: generators that issue one request a cycle, with a bounded number in flight, to memory
channels interleaved by address; `memory.py` says when these serve a request. Left out: the order of
reads after writes.

    request k of a load:  issue = max(issue of k-1 + 1, last use of burst k - outstanding + 1)
    beat of a load:       firing = max(firing rule, all its bursts back, in order)
    beat of a store:      firing = max(firing rule, acknowledgement of the burst that lies
                          `outstanding` before the last one it completes)
    request k of a store: issue = max(issue of k-1 + 1, firing of the burst's last beat)
    both:                 reach = issue + generator latency

A tile's beats walk the value's axes as `Access.order` says; neighbouring elements of one burst
share a request within a tile. Elements outside the tensor move nothing.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from simpy import Environment, Event

from dataflow.errors import did_you_mean
from dataflow.program import Access, Program, Tensor, Unit
from dataflow.sim.account import OFF_CHIP
from dataflow.sim.channel import Channel
from dataflow.sim.coordinates import Coordinates, Walker, elements
from dataflow.sim.memory import Memory
from dataflow.sim.timing_graph import ProgramError
from hwspecs import Machine

_AHEAD_BEATS = 4096


@dataclass(frozen=True)
class Requests:
    """The requests of one tile: `addresses` of bursts in order, in bytes.

    needs[b]: how many of them beat b needs back (or, for a store, touches) counting all before;
    ends[b]: how many no later beat touches. useful_elems: elements that move.
    """

    addresses: list[int]
    needs: list[int]
    ends: list[int]
    useful_elems: int


def requests(
    access: Access, tensor: Tensor, coords: Coordinates, burst_bytes: int, firings: int, where: str
) -> Requests:
    """Return the requests of the tile at `coords` for a unit that fires `firings` times a point.

    Raises ProgramError where the tile has more beats than that.
    """
    offsets, inside = elements(access, tensor, coords, access.order)
    fast = offsets.shape[-1] if offsets.ndim else 1
    row_beats = -(-fast // access.lanes)
    rows = offsets.size // fast if fast else 0
    if rows * row_beats > firings:
        raise ProgramError(
            f"{where}: firings a point must hold the {rows * row_beats} beats of its tile,"
            f" got {firings}; {access.lanes} elements of {access.order[-1:]} make a beat"
        )
    bursts = (tensor.base_bytes + offsets.ravel() * tensor.element_bytes) // burst_bytes
    beats = np.add.outer(np.arange(rows) * row_beats, np.arange(fast) // access.lanes).ravel()
    if inside is not None:
        keep = inside.ravel()
        bursts, beats = bursts[keep], beats[keep]
    if not len(bursts):
        return Requests([], [0] * firings, [0] * firings, 0)
    fresh = np.concatenate(([True], bursts[1:] != bursts[:-1]))
    number = np.cumsum(fresh)
    after = np.searchsorted(beats, np.arange(firings), side="right")
    needs = np.concatenate(([0], number))[after]
    # what the next element touches first is still needed after this beat
    ends = np.concatenate((number - 1, number[-1:]))[after]
    return Requests(
        (bursts[fresh] * burst_bytes).tolist(), needs.tolist(), ends.tolist(), len(bursts)
    )


def tensor_of(program: Program, unit: Unit) -> Tensor:
    """Return the tensor that a load or store moves; ProgramError where there is none."""
    assert isinstance(unit.work, Access)
    tensors = {tensor.name: tensor for tensor in program.tensors}
    if unit.work.tensor not in tensors:
        hint = did_you_mean(unit.work.tensor, tensors)
        raise ProgramError(
            f"{unit.name}: tensor must be one of the program, got {unit.work.tensor!r}; {hint}"
        )
    return tensors[unit.work.tensor]


def check_in_flight(unit: Unit, tensor: Tensor, tile: Requests, outstanding: int) -> None:
    """Raise ProgramError where a beat has more bursts, all in flight at once, than may be."""
    widest = max(need - end for need, end in zip(tile.needs, (0, *tile.ends), strict=False))
    if widest > outstanding:
        kind = "writes" if unit.kind == "store" else "requests"
        raise ProgramError(
            f"{unit.name}: bursts of a beat must be at most the {outstanding} {kind} in flight, got"
            f" {widest}; let its lanes run along the fastest axis of {tensor.name}, or the machine"
            f" have more (generators.outstanding_{kind})"
        )


def check_tile(unit: Unit, tensor: Tensor, machine: Machine, counters: Sequence[int]) -> None:
    """Raise ProgramError where the tile at a point has too many beats or bursts a beat."""
    assert isinstance(unit.work, Access)
    coords = Walker().box(unit.work.box, counters)
    firings = math.prod(loop.trips for loop in unit.loops[unit.points :])
    burst = machine.off_chip.burst_bytes
    tile = requests(unit.work, tensor, coords, burst, firings, unit.name)
    check_in_flight(unit, tensor, tile, machine.generators.in_flight(unit.kind == "store"))


class MemoryQueue(Channel):
    """The channel between a load or store unit and its generator; a token is a beat."""

    __slots__ = ()

    def __init__(self, name: str):
        super().__init__(name, 1, 0, token_charge=OFF_CHIP, room_charge=OFF_CHIP)
        self.credits.clear()

    def settle(self, final: bool = False) -> None:
        """Drop what both ends have passed."""
        del self.arrivals[: self.read]
        del self.credits[: self.written]
        self.read = self.written = 0


class AddressGenerator:
    """What a load and a store generator have in common: points, requests, the issue port."""

    writes = False

    def __init__(
        self,
        env: Environment,
        place: int,
        unit: Unit,
        tensor: Tensor,
        machine: Machine,
        memory: Memory,
        walker: Walker,
    ):
        assert isinstance(unit.work, Access)
        self.env, self.place, self.unit, self.tensor = env, place, unit, tensor
        self.access = unit.work
        self.memory, self.walker = memory, walker
        self.latency_cycles = machine.generators.latency_cycles
        self.outstanding = machine.generators.in_flight(self.writes)
        self.queue = MemoryQueue(f"{unit.name}.memory")
        self.next_issue = 0
        self.last_back = -1
        self.known_back = 0
        self.useful_elems = 0
        self.firings = math.prod(loop.trips for loop in unit.loops[unit.points :])
        self.tiles: dict[tuple[int, ...], tuple[Coordinates, Requests]] = {}

    def points(self) -> Iterator[Requests]:
        """The requests of every point in order."""
        ranges = [range(loop.trips) for loop in self.unit.loops[: self.unit.points]]
        for counters in itertools.product(*ranges):
            coords = self.walker.box(self.access.box, counters)
            key = tuple(map(id, coords.values()))
            found = self.tiles.get(key, (None, None))[1]
            if found is None:
                if len(self.tiles) * self.firings > 1 << 16:
                    self.tiles.clear()
                found = requests(
                    self.access,
                    self.tensor,
                    coords,
                    self.memory.burst_bytes,
                    self.firings,
                    self.unit.name,
                )
                check_in_flight(self.unit, self.tensor, found, self.outstanding)
                self.tiles[key] = coords, found  # the arrays are kept, so their ids hold
            yield found

    def issue(self, at: int, address: int) -> None:
        """Send a request at cycle `at` or when the port is free."""
        at = max(at, self.next_issue)
        self.next_issue = at + 1
        self.memory.submit(at + self.latency_cycles, self.place, address, self)

    def run(self) -> Generator[Event, None, None]:
        """The generator's process."""
        raise NotImplementedError

    def back(self, cycle: int) -> None:
        """Note that the next request in order is back at `cycle`."""
        raise NotImplementedError

    def wake(self) -> None:
        """Let the unit go on with what is known now."""
        raise NotImplementedError


class LoadGenerator(AddressGenerator):
    """Requests a load's bursts ahead of its beats and hands over beats as they come back."""

    def run(self) -> Generator[Event, None, None]:
        """The process: one request after the other, each when one in flight was used up."""
        self.slots = deque([0] * self.outstanding)
        self.needs: deque[int] = deque()
        self.ends: deque[int] = deque()
        self.used = 0
        asked = 0
        for tile in self.points():
            self.useful_elems += tile.useful_elems
            self.needs.extend(asked + need for need in tile.needs)
            self.ends.extend(asked + end for end in tile.ends)
            asked += len(tile.addresses)
            if self._hand_over():
                self.queue.pushed()
            for address in tile.addresses:
                while not self.slots:
                    if not self._collect():
                        yield self.queue.wait_room(self.env)
                self.issue(self.slots.popleft(), address)
            while len(self.ends) > _AHEAD_BEATS:
                if not self._collect():
                    yield self.queue.wait_room(self.env)

    def _collect(self) -> bool:
        """Note the beats that fired: a burst no later beat touches frees its place."""
        queue = self.queue
        fired = queue.credits[queue.written :]
        queue.written += len(fired)
        for cycle in fired:
            end = self.ends.popleft()
            self.slots.extend([cycle] * (end - self.used))
            self.used = end
        return bool(fired)

    def back(self, cycle: int) -> None:
        """Beats are handed over in order, so a burst that overtook another waits for it."""
        self.last_back = max(self.last_back, cycle)
        self.known_back += 1
        self._hand_over()

    def _hand_over(self) -> bool:
        handed = False
        while self.needs and self.needs[0] <= self.known_back:
            self.needs.popleft()
            self.queue.arrivals.append(max(0, self.last_back))
            handed = True
        return handed

    def wake(self) -> None:
        """Let the load unit see the beats handed over."""
        self.queue.pushed()


class StoreGenerator(AddressGenerator):
    """Writes a store's bursts once their last beat has fired; bounds those not acknowledged."""

    writes = True

    def run(self) -> Generator[Event, None, None]:
        """The process: allow beats, and write what those that fired complete."""
        self.ends: deque[int] = deque()
        self.allowed: deque[int] = deque()
        self.addresses: deque[int] = deque()
        self.acknowledged: deque[int] = deque()
        self.forgotten = 0
        self.written = 0
        asked = 0
        for tile in self.points():
            self.useful_elems += tile.useful_elems
            ends = [asked + end for end in tile.ends]
            self.ends.extend(ends)
            self.allowed.extend(ends)
            self.addresses.extend(tile.addresses)
            asked += len(tile.addresses)
            if self._allow():
                self.queue.popped()
            while len(self.ends) > _AHEAD_BEATS:
                yield self.queue.wait_token(self.env)
                self._collect()
        while self.ends:
            yield self.queue.wait_token(self.env)
            self._collect()

    def _collect(self) -> None:
        """Write the bursts that the beats fired since the last call complete."""
        queue = self.queue
        fired = queue.arrivals[queue.read :]
        queue.read += len(fired)
        for cycle in fired:
            end = self.ends.popleft()
            for _ in range(end - self.written):
                self.issue(cycle, self.addresses.popleft())
            self.written = end
        queue.popped()

    def back(self, cycle: int) -> None:
        """Acknowledgements count in the order of the requests."""
        self.last_back = max(self.last_back, cycle)
        self.known_back += 1
        self.acknowledged.append(self.last_back)
        self._allow()

    def _allow(self) -> bool:
        """Allow beats up to the first whose bursts would exceed those in flight."""
        allowed = False
        known = self.forgotten + len(self.acknowledged)
        while self.allowed and self.allowed[0] - self.outstanding <= known:
            before = self.allowed.popleft() - self.outstanding
            while self.forgotten < before - 1:
                self.acknowledged.popleft()
                self.forgotten += 1
            self.queue.credits.append(self.acknowledged[0] if before > 0 else 0)
            allowed = True
        return allowed

    def wake(self) -> None:
        """Let the store unit see the beats allowed."""
        self.queue.popped()
