"""Where the cycles of a unit went: every cycle of a run is charged to exactly one cause.

    busy + waiting + blocked + bank + network + off_chip + done = cycles of the run

A firing makes its unit busy for its initiation interval; at a scratchpad port one cycle of it is
busy and the rest a bank conflict. The gap before a firing is charged to the token or credit that
arrived last (in a tie: the one declared first, inputs before outputs), from cycle 0 on. What is
left after the last firing is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

BUSY, WAITING, BLOCKED, BANK, NETWORK, OFF_CHIP = range(6)
CAUSES = ("busy", "waiting", "blocked", "bank", "network", "off_chip")


@dataclass(frozen=True)
class Account:
    """One unit's cycles.

    waiting: for tokens of other units; blocked: for room in a channel or a free scratchpad
    buffer; bank: lanes that take turns at a bank; network: shared links (0 on ideal and static
    networks); off_chip: for data that comes from or goes to off-chip memory; done: after the
    last firing. `firings` counts how often the unit fired.
    """

    busy: int
    waiting: int
    blocked: int
    bank: int
    network: int
    off_chip: int
    done: int
    firings: int

    @property
    def total(self) -> int:
        """The run's cycles."""
        return (
            self.busy
            + self.waiting
            + self.blocked
            + self.bank
            + self.network
            + self.off_chip
            + self.done
        )


def close(
    name: str, gaps: Sequence[int], firings: int, ii_cycles: int, port: bool, cycles: int
) -> Account:
    """Return the account of a unit whose gaps are known, in a run of `cycles`.

    gaps: cycles before firings by cause, in the order of CAUSES. The last firing's interval is
    cut at the end of the run. Raises AssertionError where the sum is not `cycles`.
    """
    spent = firings * ii_cycles
    free_at = spent + sum(gaps)
    spent -= max(0, free_at - cycles)
    bank = gaps[BANK]
    if port and ii_cycles > 1:
        bank += spent - firings
        spent = firings
    account = Account(
        busy=spent,
        waiting=gaps[WAITING],
        blocked=gaps[BLOCKED],
        bank=bank,
        network=gaps[NETWORK],
        off_chip=gaps[OFF_CHIP],
        done=max(0, cycles - free_at),
        firings=firings,
    )
    assert account.total == cycles, f"{name}: {account} must sum to {cycles} cycles"
    return account
