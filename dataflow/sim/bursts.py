"""What a run notes down of its bursts, so that the causes behind its end can be walked."""

from __future__ import annotations

from array import array

from dataflow.sim.dram import WAITS


class BurstLog:
    """Every burst of off-chip memory: when it reached its channel and when it moved.

    By place of its load or store unit: reach[unit][k], the cycle at which its request k reached
    memory, and turns[unit][k], which of the turns below it had. By turn: channel, unit, number; the
    turn of the burst before it on the channel (-1: none); start, when it was its turn on the bus,
    until, when the next one's could be, end, when its data had moved, all three in 1 / parts
    cycles; wait, an index of WAITS: what held it back beyond its reach and the burst before it.
    """

    def __init__(self) -> None:
        self.parts = 1
        self.reach: dict[int, array[int]] = {}
        self.turns: dict[int, array[int]] = {}
        self.latest: dict[int, int] = {}
        self.channel, self.unit, self.number = array("i"), array("i"), array("i")
        self.before, self.wait = array("i"), array("b")
        self.start, self.until, self.end = array("q"), array("q"), array("q")

    def asked(self, unit: int, cycle: int) -> None:
        """Note the next request of a unit, which reaches memory at `cycle`."""
        self.reach.setdefault(unit, array("q")).append(cycle)
        self.turns.setdefault(unit, array("i")).append(-1)

    def moved(
        self,
        channel: int,
        unit: int,
        number: int,
        times: tuple[int, int, int],
        wait: str = "",
    ) -> None:
        """Note the next burst of a channel; `times` are its start, until and end."""
        turn = len(self.start)
        self.turns[unit][number] = turn
        self.channel.append(channel)
        self.unit.append(unit)
        self.number.append(number)
        self.before.append(self.latest.get(channel, -1))
        self.latest[channel] = turn
        for column, time in zip((self.start, self.until, self.end), times, strict=True):
            column.append(time)
        self.wait.append(WAITS.index(wait))
