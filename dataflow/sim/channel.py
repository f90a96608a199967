"""A bounded first-in-first-out channel, kept as two sequences of times.

The transfer rules, which units know nothing else of:

* a push that fires at `t` takes the oldest credit (a free slot), whose time must be <= t, and its
  token arrives at `t + latency_cycles` (the writer's own latency and the channel's together);
* a pop that fires at `t` takes the oldest token, whose arrival must be <= t, and gives a credit of
  time `t + credit_cycles`;
* a channel starts with `initial` tokens and `capacity - initial` credits of time 0. Tokens in
  flight and credits on their way back count towards capacity.

Both sequences only grow at one end and are read at the other, so who runs first does not matter:
the writer may push as far as credits are known, the reader pop as far as arrivals are known.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from simpy import Environment, Event

from dataflow.sim.account import BLOCKED, WAITING

_TRIM_TOKENS = 4096

Times = list[int] | range


class Channel:
    """One channel of a run.

    `arrivals[read:]` are the times of tokens not popped yet, `credits[written:]` those of free
    slots; what lies before is kept only until `settle` has found the high-water mark. `sent` are
    the times at which tokens would have arrived over a wire: `arrivals` itself, unless they cross a
    network that channels share, where `late_by` says how late others made each.
    """

    __slots__ = (
        "arrivals",
        "capacity",
        "credit_cycles",
        "credits",
        "initial",
        "last_arrival",
        "late_by",
        "latency_cycles",
        "name",
        "peak",
        "read",
        "reader_event",
        "room_charge",
        "sent",
        "token_charge",
        "writer_event",
        "written",
    )

    def __init__(
        self,
        name: str,
        capacity: int,
        latency_cycles: int,
        credit_cycles: int = 1,
        initial: int = 0,
        token_charge: int = WAITING,
        room_charge: int = BLOCKED,
    ):
        self.name = name
        self.capacity = capacity
        self.latency_cycles = latency_cycles
        self.credit_cycles = credit_cycles
        self.initial = initial
        self.token_charge = token_charge
        self.room_charge = room_charge
        self.arrivals = [0] * initial
        self.sent = self.arrivals
        self.late_by: list[int] | None = None
        self.credits = [0] * (capacity - initial)
        self.read = 0
        self.written = 0
        self.peak = initial
        self.last_arrival = -1
        self.reader_event: Event | None = None
        self.writer_event: Event | None = None

    @property
    def fill(self) -> int:
        """Tokens pushed and not popped, those in flight included."""
        return len(self.sent) - self.read

    def wait_token(self, env: Environment) -> Event:
        """Return the event of the next push."""
        self.reader_event = event = env.event()
        return event

    def wait_room(self, env: Environment) -> Event:
        """Return the event of the next pop."""
        self.writer_event = event = env.event()
        return event

    def push(self, times: Times) -> None:
        """Push a token at each of `times`."""
        self.written += len(times)
        self.arrivals += later(times, self.latency_cycles)

    def pop(self, times: Times) -> None:
        """Pop a token at each of `times`."""
        self.read += len(times)
        self.credits += later(times, self.credit_cycles)

    def pushed(self) -> None:
        """Wake a reader that waits for a token."""
        event = self.reader_event
        if event is not None:
            self.reader_event = None
            event.succeed()

    def popped(self) -> None:
        """Wake a writer that waits for room; forget what both ends have passed."""
        event = self.writer_event
        if event is not None:
            self.writer_event = None
            event.succeed()
        if self.read > _TRIM_TOKENS:
            self.settle()

    def settle(self, final: bool = False) -> None:
        """Fold the pushes already popped into `peak` and `last_arrival` and drop them.

        `peak` is the most slots taken at once, a slot being taken from its push until its credit
        is back: the least capacity with which every firing would have come at the same cycle.
        Only pushes whose token was popped are settled, as the credits up to their time are known
        by then; `final` settles the rest.
        """
        popped = self.read
        count = len(self.arrivals) if final else popped
        start = min(self.initial, count)
        if count == 0:
            return
        self.last_arrival = max(self.last_arrival, self.arrivals[count - 1])
        if count > start:
            times = np.asarray(self.sent[start:count]) - self.latency_cycles
            known = bisect_right(self.credits, times[-1])
            back = np.searchsorted(np.asarray(self.credits[:known]), times, side="right")
            taken = self.capacity + 1 + np.arange(len(times)) - back
            self.peak = max(self.peak, int(taken.max()))
        gone = min(self.initial, popped)
        del self.arrivals[:popped]
        if self.late_by is not None:
            del self.sent[:popped]
            del self.late_by[:popped]
        del self.credits[: popped - gone]
        self.written -= popped - gone
        self.initial -= gone
        self.read = 0


def later(times: Times, delay: int) -> Times:
    """Return `times`, each `delay` later."""
    if isinstance(times, range):
        return range(times.start + delay, times.stop + delay, times.step)
    return [at + delay for at in times]
