"""The SimPy engine: one process a unit, the definition of a run's times.

The timing rule, for every unit kind:

    firing(n) = max(firing(n-1) + ii_cycles, arrival of every front token needed,
                    credit of every channel pushed)

A process works out its firing times from the times in its channels, as far ahead as tokens and
credits are known, and waits on a SimPy event only where one is not. What it waits for is a time,
not the present: who runs first changes nothing, as a channel has one writer and one reader. Only
off-chip memory is shared, and it decides late in a cycle, when all that can be known is.

Invariant: every action with time T is executed at env.now <= T.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from operator import gt
from typing import Any

from simpy import Environment, Event

from dataflow.errors import did_you_mean
from dataflow.program import Access, Program
from dataflow.sim import account, timing_graph
from dataflow.sim.channel import Channel
from dataflow.sim.coordinates import Walker
from dataflow.sim.deadlock import Blocked, DeadlockError, needed, suspects
from dataflow.sim.offchip import AddressGenerator, LoadGenerator, Memory, StoreGenerator
from dataflow.sim.result import Interrupted, OffChip, Result
from dataflow.sim.timing_graph import Action, ProgramError, TimingGraph, UnitPlan
from dataflow.sim.values import Values

Progress = Callable[[int, int, int], None]
Times = list[int] | range
_PROGRESS_FIRINGS = 1 << 16


def simulate(
    program: Program,
    inputs: Mapping[str, Any] | None = None,
    *,
    values: bool = True,
    progress: Progress | None = None,
    max_cycles: int | None = None,
) -> Result:
    """Run `program` and return its cycles, account and outputs.

    inputs: arrays by name of input node; None, or values=False, runs the timing alone.
    progress: called now and then with firings done, firings in all, and the cycle reached.
    max_cycles: firings at this cycle or later do not happen; the result is then not complete.

    Raises ProgramError where units and channels do not fit together, DeadlockError where nothing
    can move, and Interrupted (with what had run) on a KeyboardInterrupt.
    """
    with_values = values and inputs is not None
    graph = timing_graph.build(program, keep_points=with_values)
    run = Run(program, graph, inputs if with_values else None, progress, max_cycles)
    return run.go()


class Gate:
    """An action bound to a run's channels: those popped, only looked at, and pushed."""

    __slots__ = ("charges", "holds", "needs", "pops", "pushes")

    def __init__(self, action: Action, channels: list[Channel], memory: AddressGenerator | None):
        self.needs = tuple((channels[place], popped) for place, popped in action.needs)
        self.pops = tuple(channel for channel, popped in self.needs if popped)
        self.holds = tuple(channel for channel, popped in self.needs if not popped)
        self.pushes = tuple(channels[place] for place in action.pushes)
        if memory is not None and memory.writes:
            self.pushes += (memory.queue,)
        elif memory is not None:
            self.needs += ((memory.queue, True),)
            self.pops += (memory.queue,)
        self.charges = [c.token_charge for c in self.pops] + [c.room_charge for c in self.pushes]


class Running:
    """A unit in a run: the cycle it is free from, its firings, its gaps by cause."""

    __slots__ = ("fired", "free_at", "gaps", "lacks", "last_fired", "plan", "waits_token")

    def __init__(self, plan: UnitPlan):
        self.plan = plan
        self.free_at = 0
        self.fired = 0
        self.last_fired = -1
        self.gaps = [0] * len(account.CAUSES)
        self.lacks: Channel | None = None
        self.waits_token = False

    @property
    def finished(self) -> bool:
        """Whether it has fired all it will."""
        return self.fired == self.plan.firings


class Run:
    """One run of a timing graph; all that changes during a run hangs from here."""

    def __init__(
        self,
        program: Program,
        graph: TimingGraph,
        inputs: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        max_cycles: int | None = None,
    ):
        self.program = program
        self.graph = graph
        self.env = Environment()
        self.progress = progress
        self.max_cycles = max_cycles
        self.fired = 0
        self.next_report = _PROGRESS_FIRINGS
        self.cut = False
        self.stop = False
        pushes = _most_pushes(graph)
        self.channels = [
            Channel(
                plan.name,
                min(plan.capacity, plan.initial + max(1, pushes[place])),
                plan.latency_cycles,
                plan.credit_cycles,
                plan.initial,
                plan.token_charge,
            )
            for place, plan in enumerate(graph.channels)
        ]
        self.units = [Running(plan) for plan in graph.units]
        self.walker = Walker()
        self.memory: Memory | None = None
        self.generators = self._generators()
        self.values = None if inputs is None else Values(program, inputs, self.walker)

    def _generators(self) -> dict[str, AddressGenerator]:
        """An address generator for each load and store unit, by name."""
        tensors = {tensor.name: tensor for tensor in self.program.tensors}
        found: dict[str, AddressGenerator] = {}
        for place, unit in enumerate(self.program.units):
            if not isinstance(unit.work, Access):
                continue
            machine = self.program.machine
            if self.memory is None:
                self.memory = Memory(self.env, machine)
            if unit.work.tensor not in tensors:
                hint = did_you_mean(unit.work.tensor, tensors)
                raise ProgramError(
                    f"{unit.name}: tensor must be one of the program,"
                    f" got {unit.work.tensor!r}; {hint}"
                )
            kind = StoreGenerator if unit.kind == "store" else LoadGenerator
            tensor = tensors[unit.work.tensor]
            found[unit.name] = kind(
                self.env, place, unit, tensor, machine, self.memory, self.walker
            )
        return found

    def go(self) -> Result:
        """Run to the end and return the result."""
        started = time.perf_counter()
        try:
            with _stop_on_signal(self):
                self.start()
        except KeyboardInterrupt:
            raise Interrupted(self._result(started, complete=False)) from None
        if not self.cut and not self.finished:
            raise self._deadlock()
        return self._result(started, complete=not self.cut)

    def start(self) -> None:
        """Run until nothing can move."""
        for place, unit in enumerate(self.units):
            self.env.process(self._fire(place, unit))
        for generator in self.generators.values():
            self.env.process(generator.run())
        if self.memory is not None:
            self.env.process(self.memory.run())
        self.env.run()

    @property
    def finished(self) -> bool:
        """Whether every unit has fired all it will."""
        return all(unit.finished for unit in self.units)

    def _deadlock(self) -> DeadlockError:
        """Say who waits for what, and find the capacity that would do."""
        waits: dict[str, tuple[int, str]] = {}
        blocked = []
        places = {id(channel): place for place, channel in enumerate(self.channels)}
        for unit in self.units:
            channel = unit.lacks
            if unit.finished or channel is None:
                continue
            what = "token" if unit.waits_token else "room"
            plan = self.graph.channels[places[id(channel)]] if id(channel) in places else channel
            blocked.append(
                Blocked(unit.plan.name, plan.name, what, channel.fill, plan.capacity, unit.free_at)
            )
            if id(channel) in places:
                waits[unit.plan.name] = (places[id(channel)], what)
        cycle = max(unit.last_fired for unit in self.units)
        found = suspects(self.program, self.graph, waits)
        for suspect in found:
            capacity = needed(self.graph, suspect, self._finishes)
            if capacity is not None or suspect is found[-1]:
                return DeadlockError(
                    tuple(blocked),
                    cycle,
                    suspect.name,
                    suspect.capacity,
                    capacity,
                    suspect.scratchpad,
                )
        return DeadlockError(tuple(blocked), cycle)

    def _finishes(self, graph: TimingGraph) -> bool:
        """Whether the timing alone of another graph runs to its end."""
        run = Run(self.program, graph)
        run.start()
        return run.finished

    def _fire(self, place: int, unit: Running) -> Generator[Event, None, None]:
        """The process of one unit: fire run by run, as many at once as are known."""
        env, channels = self.env, self.channels
        ii_cycles = unit.plan.ii_cycles
        gates: dict[int, Gate] = {}
        memory = self.generators.get(unit.plan.name)
        for pattern in timing_graph.runs(unit.plan):
            for count, action in pattern:
                gate = gates.get(id(action))
                if gate is None:
                    gate = gates[id(action)] = Gate(action, channels, memory)
                while count:
                    ready = _ready(gate, count, unit)
                    if not ready:
                        yield _wait(unit, env)
                        continue
                    if self.max_cycles is not None:
                        ready = self._before_end(gate, unit, ready, self.max_cycles)
                        if not ready:
                            return
                    if ready == 1:
                        times = [_fire_once(gate, unit)]
                    else:
                        times = _fire_many(gate, unit, ready, ii_cycles)
                    if self.values is not None:
                        self.values.fired(place, unit.fired, times)
                    _move(gate, times)
                    count -= ready
                    unit.last_fired = times[-1]
                    unit.fired += ready
                    self.fired += ready
                    if self.stop or self.fired >= self.next_report:
                        self._report(unit)

    def _before_end(self, gate: Gate, unit: Running, ready: int, end: int) -> int:
        """How many of `ready` firings to make so as to stay before cycle `end`: all, 1 or 0."""
        for count in dict.fromkeys((ready, 1)):
            kept = unit.free_at, list(unit.gaps)
            if count > 1:
                at = _fire_many(gate, unit, count, unit.plan.ii_cycles)[-1]
            else:
                at = _fire_once(gate, unit)
            unit.free_at, unit.gaps = kept
            if at < end:
                return count
        self.cut = True
        return 0

    def _report(self, unit: Running) -> None:
        """Between two firings, where a run can be left with all its accounts in order."""
        self.next_report = self.fired + _PROGRESS_FIRINGS
        if self.stop:
            raise KeyboardInterrupt
        if self.progress is not None:
            self.progress(self.fired, self.graph.firings, unit.last_fired)

    def _result(self, started: float, complete: bool) -> Result:
        end = max((unit.last_fired for unit in self.units), default=-1)
        for channel, plan in zip(self.channels, self.graph.channels, strict=True):
            channel.settle(final=True)
            if plan.carries:
                end = max(end, channel.last_arrival)
        for generator in self.generators.values():
            end = max(end, generator.last_back)
        cycles = end + 1
        accounts = {
            unit.plan.name: account.close(
                unit.plan.name,
                unit.gaps,
                unit.fired,
                unit.plan.ii_cycles,
                unit.plan.kind in ("write", "read"),
                cycles,
            )
            for unit in self.units
        }
        return Result(
            cycles=cycles,
            outputs={} if self.values is None else self.values.outputs(),
            accounts=accounts,
            channel_peaks={channel.name: channel.peak for channel in self.channels},
            off_chip=self._traffic(),
            firings=self.fired,
            wall_seconds=time.perf_counter() - started,
            complete=complete,
        )

    def _traffic(self) -> OffChip:
        memory = self.memory
        if memory is None:
            return OffChip()
        useful = sum(
            generator.useful_elems * generator.tensor.element_bytes
            for generator in self.generators.values()
        )
        return OffChip(
            read_bytes=memory.reads * memory.burst_bytes,
            write_bytes=memory.writes * memory.burst_bytes,
            requests=memory.reads + memory.writes,
            useful_bytes=useful,
        )


@contextmanager
def _stop_on_signal(run: Run) -> Iterator[None]:
    """Let Ctrl-C stop `run` between two firings; a second one stops it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def stop(*_: Any) -> None:
        run.stop = True
        signal.signal(signal.SIGINT, before)

    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _most_pushes(graph: TimingGraph) -> list[int]:
    """For each channel, no fewer than the pushes it can see: room beyond that is never used."""
    return [graph.units[channel.writer].firings for channel in graph.channels]


def _ready(gate: Gate, count: int, unit: Running) -> int:
    """How many of `count` firings have every time they need known; notes what one lacks."""
    for channel in gate.pops:
        known = len(channel.arrivals) - channel.read
        if known < count:
            count = known
            if not known:
                unit.lacks, unit.waits_token = channel, True
                return 0
    for channel in gate.holds:
        if len(channel.arrivals) == channel.read:
            unit.lacks, unit.waits_token = channel, True
            return 0
    for channel in gate.pushes:
        known = len(channel.credits) - channel.written
        if known < count:
            count = known
            if not known:
                unit.lacks, unit.waits_token = channel, False
                return 0
    return count


def _wait(unit: Running, env: Environment) -> Event:
    channel: Any = unit.lacks
    return channel.wait_token(env) if unit.waits_token else channel.wait_room(env)


def _fire_once(gate: Gate, unit: Running) -> int:
    """Return the time of one firing; the first of a run, where held tokens may be late."""
    at = free_at = unit.free_at
    charge = 0
    for channel, _ in gate.needs:
        arrival = channel.arrivals[channel.read]
        if arrival > at:
            at, charge = arrival, channel.token_charge
    for channel in gate.pushes:
        credit = channel.credits[channel.written]
        if credit > at:
            at, charge = credit, channel.room_charge
    if at > free_at:
        unit.gaps[charge] += at - free_at
    unit.free_at = at + unit.plan.ii_cycles
    return at


def _fire_many(gate: Gate, unit: Running, count: int, ii_cycles: int) -> Times:
    """Return the times of `count` >= 2 firings whose tokens and credits are all known."""
    columns = [c.arrivals[c.read + 1 : c.read + count] for c in gate.pops]
    columns += [c.credits[c.written + 1 : c.written + count] for c in gate.pushes]
    first = _fire_once(gate, unit)
    free_at = unit.free_at
    even = range(free_at, free_at + (count - 1) * ii_cycles, ii_cycles)
    for column in columns:
        if any(map(gt, column, even)):
            break
    else:  # nothing comes later than the unit is free: no gaps
        unit.free_at = even.stop
        return range(first, even.stop, ii_cycles)
    times = [first]
    gaps, charges = unit.gaps, gate.charges
    latest = columns[0] if len(columns) == 1 else map(max, *columns)
    for place, at in enumerate(latest):
        if at > free_at:
            for column, charge in zip(columns, charges, strict=True):
                if column[place] == at:
                    gaps[charge] += at - free_at
                    break
            free_at = at
        times.append(free_at)
        free_at += ii_cycles
    unit.free_at = free_at
    return times


def _move(gate: Gate, times: Times) -> None:
    """Pop and push at `times`, and wake who waited for it."""
    count = len(times)
    for channel in gate.pops:
        channel.read += count
        channel.credits += _later(times, channel.credit_cycles)
    for channel in gate.pushes:
        channel.written += count
        channel.arrivals += _later(times, channel.latency_cycles)
    for channel in gate.pops:
        channel.popped()
    for channel in gate.pushes:
        channel.pushed()


def _later(times: Times, delay: int) -> Times:
    """`times`, each `delay` later."""
    if isinstance(times, range):
        return range(times.start + delay, times.stop + delay, times.step)
    return [at + delay for at in times]
