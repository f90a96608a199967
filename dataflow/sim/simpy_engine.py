"""The SimPy engine: one process a unit, the definition of a run's times.

A process works out its unit's firing times (`firing.py` has the rule) from the times in its
channels, as far ahead as tokens and credits are known, and waits on a SimPy event only where one
is not. What it waits for is a time, not the present: who runs first changes nothing, as a channel
has one writer and one reader. Only off-chip memory and the links of a dynamic network are shared,
and they decide late in a cycle, when all that can be known is.

Invariant: every action with time T is executed at env.now <= T.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

from simpy import Environment, Event

from dataflow import network_plan
from dataflow.program import Access, Program
from dataflow.sim import account, critical, timing_graph
from dataflow.sim.bursts import BurstLog
from dataflow.sim.channel import Channel
from dataflow.sim.coordinates import Walker
from dataflow.sim.deadlock import Blocked, DeadlockError, judge
from dataflow.sim.firing import Gate, Running, fire_many, fire_once, move, ready, wait
from dataflow.sim.interrupt import Progress, stop_on_signal
from dataflow.sim.memory import DramMemory, Memory
from dataflow.sim.network import NetworkChannel, NetworkProcess
from dataflow.sim.offchip import (
    AddressGenerator,
    LoadGenerator,
    StoreGenerator,
    tensor_of,
)
from dataflow.sim.recording import Recording
from dataflow.sim.result import Interrupted, OffChip, Result
from dataflow.sim.timing_graph import TimingGraph
from dataflow.sim.values import Values

_PROGRESS_FIRINGS = 1 << 16


def run(
    program: Program,
    inputs: Mapping[str, Any] | None,
    progress: Progress | None = None,
    max_cycles: int | None = None,
    why: bool = False,
) -> Result:
    """Return the times of `program` and, with inputs, its values; raises as `simulate` does."""
    graph = timing_graph.build(program, keep_points=inputs is not None)
    made = Run(program, graph, inputs, progress, max_cycles)
    if not why:
        return made.go()
    made.record()
    result = made.go()
    return replace(result, chain=critical.chain(made, result.cycles))


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
        shared = network_plan.plan(program)
        self.network = None if shared is None else NetworkProcess(self.env, shared)
        self.channels = self._channels()
        self.units = [Running(plan) for plan in graph.units]
        self.walker = Walker()
        self.memory: Memory | None = None
        self.generators = self._generators()
        self.values = None if inputs is None else Values(program, inputs, self.walker)
        self.recording: Recording | None = None

    def _channels(self) -> list[Channel]:
        """The channels: a wire each, but those that cross a shared network."""
        network, pushes = self.network, _most_pushes(self.graph)
        crossing = {} if network is None else network.network.plan.first_sinks
        found: list[Channel] = []
        for place, plan in enumerate(self.graph.channels):
            capacity = min(plan.capacity, plan.initial + max(1, pushes[place]))
            if network is not None and place in crossing:
                found.append(NetworkChannel(plan, capacity, network, place))
            else:
                found.append(
                    Channel(
                        plan.name,
                        capacity,
                        plan.latency_cycles,
                        plan.credit_cycles,
                        plan.initial,
                        plan.token_charge,
                    )
                )
        return found

    def _generators(self) -> dict[str, AddressGenerator]:
        """An address generator for each load and store unit, by name."""
        found: dict[str, AddressGenerator] = {}
        for place, unit in enumerate(self.program.units):
            if not isinstance(unit.work, Access):
                continue
            machine = self.program.machine
            if self.memory is None:
                make = DramMemory if machine.off_chip.dram else Memory
                self.memory = make(self.env, machine)
                self.memory.stepwise = self.network is not None
            kind = StoreGenerator if unit.kind == "store" else LoadGenerator
            tensor = tensor_of(self.program, unit)
            found[unit.name] = kind(
                self.env, place, unit, tensor, machine, self.memory, self.walker
            )
        return found

    def record(self) -> None:
        """Note the cause of every firing and burst to come."""
        log = BurstLog()
        queues = [generator.queue for generator in self.generators.values()]
        self.recording = Recording(len(self.units), self.channels, queues, log)
        if self.memory is not None:
            self.memory.record(log)

    def go(self) -> Result:
        """Run to the end and return the result."""
        started = time.perf_counter()
        try:
            with stop_on_signal(self):
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
        if self.network is not None:
            self.env.process(self.network.run())
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
        return judge(self.program, self.graph, blocked, waits, cycle, self._finishes)

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
                    known = ready(gate, count, unit)
                    if not known:
                        yield wait(unit, env)
                        continue
                    if self.max_cycles is not None:
                        known = self._before_end(gate, unit, known, self.max_cycles)
                        if not known:
                            return
                    if known == 1:
                        times = [fire_once(gate, unit)]
                    else:
                        times = fire_many(gate, unit, known, ii_cycles)
                    if self.values is not None:
                        self.values.fired(place, unit.fired, times)
                    if self.recording is not None:
                        self.recording.fired(place, gate, times, ii_cycles)
                    move(gate, times)
                    count -= known
                    unit.last_fired = times[-1]
                    unit.fired += known
                    self.fired += known
                    if self.stop or self.fired >= self.next_report:
                        self._report(unit)

    def _before_end(self, gate: Gate, unit: Running, known: int, end: int) -> int:
        """How many of `known` firings to make so as to stay before cycle `end`: all, 1 or 0."""
        for count in dict.fromkeys((known, 1)):
            kept = unit.free_at, list(unit.gaps)
            if count > 1:
                at = fire_many(gate, unit, count, unit.plan.ii_cycles)[-1]
            else:
                at = fire_once(gate, unit)
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
            channels=memory.counts(),
        )


def _most_pushes(graph: TimingGraph) -> list[int]:
    """For each channel, no fewer than the pushes it can see: room beyond that is never used."""
    return [graph.units[channel.writer].firings for channel in graph.channels]
