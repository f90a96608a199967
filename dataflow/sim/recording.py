"""What a run notes down so that the chain of causes behind its end can be walked afterwards.

A firing's cause is what arrived last before it, by the rule that the account of cycles goes by: the
unit's own interval where nothing came later, else the token or credit that came last, in a tie the
one declared first. Only causes of the second kind are kept. With the firing that pushed each token
and the one that freed each slot, every cause leads to an earlier firing; those are kept as runs, in
which every firing did one. That is 8 bytes a firing, 16 a cause, 8 a run, and 40 a burst.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from dataflow.sim.bursts import BurstLog
from dataflow.sim.channel import Channel
from dataflow.sim.firing import Gate, Times


class Ends:
    """Which firing of its unit used one end of a channel for the k-th time, as runs."""

    __slots__ = ("ahead", "count", "firsts", "lead")

    def __init__(self) -> None:
        self.count = 0
        self.lead = -1
        self.firsts = array("i")
        self.ahead = array("i")

    def used(self, firing: int, times: int) -> None:
        """Note `times` uses by as many firings, the first of them `firing`."""
        if firing - self.count != self.lead:
            self.lead = firing - self.count
            self.firsts.append(self.count)
            self.ahead.append(self.lead)
        self.count += times

    def firing(self, use: int) -> int:
        """The firing of use number `use`."""
        return use + self.ahead[bisect_right(self.firsts, use) - 1]


class Recording:
    """Firings of every unit, and both ends of every channel, in the order in which they happened.

    times[unit][n]: cycle of firing n. caused[unit]: the firings before which something came later
    than the unit's interval ended; ends[unit] and numbers[unit] say for each what it was: 2 c for a
    token and 2 c + 1 for a free slot of channel c, `memory` and `memory + 1` for those of off-chip
    memory, and which one of them, counted from the first of the run.
    """

    def __init__(
        self, units: int, channels: Sequence[Channel], queues: Sequence[Channel], log: BurstLog
    ):
        self.memory = 2 * len(channels)
        self.codes = {id(channel): 2 * place for place, channel in enumerate(channels)}
        self.codes |= {id(queue): self.memory for queue in queues}
        self.times = [array("q") for _ in range(units)]
        self.caused = [array("i") for _ in range(units)]
        self.ends = [array("i") for _ in range(units)]
        self.numbers = [array("i") for _ in range(units)]
        self.pushed = [Ends() for _ in channels]
        self.popped = [Ends() for _ in channels]
        self.log = log
        self.gates: dict[int, tuple[Gate, list[Ends]]] = {}

    def fired(self, place: int, gate: Gate, times: Times, ii_cycles: int) -> None:
        """Note firings of a unit that are worked out but whose pops and pushes are still to come.

        All of them have the one action of `gate`.
        """
        mine = self.times[place]
        before = len(mine)
        free_at = mine[-1] + ii_cycles if before else 0
        mine.extend(times)
        # in a range all but the first come at the unit's interval
        for turn, at in enumerate(times if isinstance(times, list) else times[:1]):
            if at != free_at:
                self._cause(place, before + turn, gate, turn, at)
            free_at = at + ii_cycles
        bound = self.gates.get(id(gate))
        if bound is None:
            # the gate is kept, so that its id holds
            bound = self.gates[id(gate)] = (gate, self._ends(gate))
        for ends in bound[1]:
            ends.used(before, len(times))

    def _ends(self, gate: Gate) -> list[Ends]:
        """The ends of channels that each firing of a gate uses."""
        found = []
        for channels, ends in ((gate.pops, self.popped), (gate.pushes, self.pushed)):
            codes = [self.codes[id(channel)] for channel in channels]
            found += [ends[code // 2] for code in codes if code != self.memory]
        return found

    def _cause(self, place: int, firing: int, gate: Gate, turn: int, at: int) -> None:
        """Note which token or credit of firing `turn` of those at hand came at cycle `at`."""
        code, ahead = self._latest(gate, turn, at)
        if code >= self.memory:
            number = firing  # a beat a firing
        else:
            ends = self.pushed if code % 2 else self.popped
            number = ends[code // 2].count + ahead
        self.caused[place].append(firing)
        self.ends[place].append(code)
        self.numbers[place].append(number)

    def _latest(self, gate: Gate, turn: int, at: int) -> tuple[int, int]:
        """The code of what came at cycle `at`, and how far behind the channel's next it lies."""
        for channel, popped in gate.needs:
            ahead = turn if popped else 0
            if channel.arrivals[channel.read + ahead] == at:
                return self.codes[id(channel)], ahead
        for channel in gate.pushes:
            if channel.credits[channel.written + turn] == at:
                return self.codes[id(channel)] + 1, turn
        raise AssertionError(f"nothing arrived at cycle {at}, at which a unit fired")
