"""What a run gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dataflow.chain import Chain
from dataflow.sim.account import Account


@dataclass(frozen=True)
class DramCounts:
    """What the banks of one memory channel did.

    row_hits: bursts whose row was open; row_misses: whose bank had none open, as after a refresh;
    row_conflicts: whose bank had another row open. refresh_cycles: those of the refreshes made
    until the last burst, in which no row was open, rounded down.
    """

    row_hits: int
    row_misses: int
    row_conflicts: int
    refreshes: int
    refresh_cycles: int


@dataclass(frozen=True)
class OffChip:
    """Traffic with off-chip memory: whole bursts moved, and the bytes of them that were wanted.

    channels: what each channel's banks did, where the machine describes its DRAM.
    """

    read_bytes: int = 0
    write_bytes: int = 0
    requests: int = 0
    useful_bytes: int = 0
    channels: tuple[DramCounts, ...] = ()


@dataclass(frozen=True)
class Result:
    """A run: its length, what it computed, and where every unit's cycles went.

    cycles: the last arrival + 1. outputs: arrays by output name, float64 copies of what the
    machine computed (empty in a timing-only run). channel_peaks: the most slots of each channel
    taken at once, tokens in flight and credits on their way back included. complete: False where
    the run was cut short; everything then covers what had run. engine: which one ran. chain: what
    stood behind the run's end, where it was asked for.
    """

    cycles: int
    outputs: Mapping[str, np.ndarray] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    channel_peaks: Mapping[str, int] = field(default_factory=dict)
    off_chip: OffChip = OffChip()
    firings: int = 0
    wall_seconds: float = 0.0
    complete: bool = True
    engine: str = "simpy"
    chain: Chain | None = field(default=None, compare=False)


class Interrupted(KeyboardInterrupt):
    """A run that the user stopped; `result` holds what had run until then."""

    def __init__(self, result: Result):
        self.result = result
        super().__init__(f"interrupted at cycle {result.cycles} after {result.firings} firings")


class EngineError(ValueError):
    """An engine that does not exist, cannot do what was asked, or cannot be loaded."""
