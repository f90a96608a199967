"""What a run in which nothing can move says: who waits for what, and what would have helped.

The blamed channel is a full one: a unit waits for room in it while its reader waits for something
else. For a scratchpad that is the credit channel, whose initial tokens are its buffers. The
capacity that would do is found by running the timing again: first with room without bound, whose
high-water mark is enough, then by bisection below it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataflow.program import Program
from dataflow.sim.timing_graph import TimingGraph


@dataclass(frozen=True)
class Blocked:
    """A unit that cannot fire: it has waited since `cycle` for a token of, or room in, a channel.

    fill: tokens in the channel, those in flight included.
    """

    unit: str
    channel: str
    waits_for: str
    fill: int
    capacity: int
    cycle: int

    def __str__(self) -> str:
        what = "a token of" if self.waits_for == "token" else "room in"
        return (
            f"{self.unit} at cycle {self.cycle}: waits for {what} {self.channel}"
            f" ({self.fill} of {self.capacity} tokens)"
        )


class DeadlockError(RuntimeError):
    """Nothing can move and units have firings left.

    blocked: a Blocked for each unit that has not finished, in declaration order. cycle: the last
    at which anything happened. channel, capacity: the full channel to blame (for a scratchpad its
    name and depth), or "" and 0 where none is full. needed_capacity: the least capacity of it with
    which the run ends; None where no capacity of one channel helps.
    """

    def __init__(
        self,
        blocked: tuple[Blocked, ...],
        cycle: int,
        channel: str = "",
        capacity: int = 0,
        needed_capacity: int | None = None,
        scratchpad: bool = False,
    ):
        self.blocked = blocked
        self.cycle = cycle
        self.channel = channel
        self.capacity = capacity
        self.needed_capacity = needed_capacity
        lines = [f"deadlock at cycle {cycle}: nothing can move", *map(str, blocked)]
        what = f"scratchpad {channel}: depth" if scratchpad else f"channel {channel}: capacity"
        if not channel:
            lines.append("no channel is full: a token that units wait for is never sent")
        elif needed_capacity is None:
            lines.append(f"{what} {capacity} is full, but no size of it alone would do")
        else:
            lines.append(f"{what} must be at least {needed_capacity}, got {capacity}")
        super().__init__("\n  ".join(lines))


@dataclass(frozen=True)
class Suspect:
    """Something full: a channel, or a scratchpad by its credit channels. `places` are channels."""

    name: str
    capacity: int
    places: tuple[int, ...]
    scratchpad: bool


def judge(
    program: Program,
    graph: TimingGraph,
    blocked: Sequence[Blocked],
    waits: dict[str, tuple[int, str]],
    cycle: int,
    finishes: Callable[[TimingGraph], bool],
) -> DeadlockError:
    """Return what to say of a run stuck at `cycle`, with the capacity that would do.

    waits: for each unit not finished, the place of the channel it waits at and "token" or "room".
    finishes: whether the timing alone of another graph runs to its end.
    """
    found = suspects(program, graph, waits)
    for suspect in found:
        capacity = needed(graph, suspect, finishes)
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


def suspects(
    program: Program, graph: TimingGraph, waits: dict[str, tuple[int, str]]
) -> list[Suspect]:
    """Return what may be to blame, the likeliest first.

    waits: for each unit not finished, the place of the channel it waits at and "token" or "room".
    """
    found: list[Suspect] = []
    for place, what in waits.values():
        plan = graph.channels[place]
        reader = graph.units[plan.reader].name
        at, wants = waits.get(reader, (place, ""))
        if what == "room" and not (at == place and wants == "token"):
            found.append(Suspect(plan.name, plan.capacity, (place,), False))
        elif what == "token" and program.channels[place].kind == "credit":
            found.append(_pad_of(program, place))
    unique = list(dict.fromkeys(found))
    # a full channel whose reader starves for another's token comes first
    return sorted(unique, key=lambda suspect: not _reader_starves(suspect, graph, waits))


def _reader_starves(
    suspect: Suspect, graph: TimingGraph, waits: dict[str, tuple[int, str]]
) -> bool:
    ends = graph.channels[suspect.places[0]]
    reader = graph.units[ends.writer if suspect.scratchpad else ends.reader].name
    return reader in waits and waits[reader][1] == "token"


def _pad_of(program: Program, place: int) -> Suspect:
    """The scratchpad that a credit channel belongs to, with all its credit channels."""
    channel = program.channels[place]
    for pad in program.scratchpads:
        if channel.reader in pad.writers and channel.writer in pad.readers:
            credits = tuple(
                other
                for other, its in enumerate(program.channels)
                if its.kind == "credit" and its.reader in pad.writers and its.writer in pad.readers
            )
            return Suspect(pad.name, pad.depth, credits, True)
    return Suspect(channel.name, channel.initial, (place,), True)


def enlarged(graph: TimingGraph, suspect: Suspect, capacity: int) -> TimingGraph:
    """Return `graph` with `capacity` for the suspect; a scratchpad's tile channels grow too."""
    channels = list(graph.channels)
    for place in suspect.places:
        plan = channels[place]
        if not suspect.scratchpad:
            channels[place] = plan._replace(capacity=capacity)
            continue
        extra = capacity - suspect.capacity
        channels[place] = plan._replace(
            capacity=plan.capacity + extra, initial=plan.initial + extra
        )
        for other, its in enumerate(graph.channels):
            if (its.writer, its.reader) == (plan.reader, plan.writer):
                channels[other] = its._replace(capacity=its.capacity + extra)
    return TimingGraph(graph.units, tuple(channels))


def needed(
    graph: TimingGraph, suspect: Suspect, finishes: Callable[[TimingGraph], bool]
) -> int | None:
    """Return the least capacity of `suspect` with which `finishes` says yes, or None."""
    low, high = suspect.capacity, suspect.capacity
    most = max(graph.units[graph.channels[place].writer].firings for place in suspect.places)
    most += suspect.capacity
    while high < most:
        low, high = high, min(most, 2 * high + 1)
        if finishes(enlarged(graph, suspect, high)):
            break
    else:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if finishes(enlarged(graph, suspect, middle)):
            high = middle
        else:
            low = middle
    return high
