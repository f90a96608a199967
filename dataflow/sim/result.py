"""What a run gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dataflow.sim.account import Account


@dataclass(frozen=True)
class OffChip:
    """Traffic with off-chip memory: whole bursts moved, and the bytes of them that were wanted."""

    read_bytes: int = 0
    write_bytes: int = 0
    requests: int = 0
    useful_bytes: int = 0


@dataclass(frozen=True)
class Result:
    """A run: its length, what it computed, and where every unit's cycles went.

    cycles: the last arrival + 1. outputs: arrays by output name, float64 copies of what the
    machine computed (empty in a timing-only run). channel_peaks: the most slots of each channel
    taken at once, tokens in flight and credits on their way back included. complete: False where
    the run was cut short; everything then covers what had run. engine: which one ran.
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


class Interrupted(KeyboardInterrupt):
    """A run that the user stopped; `result` holds what had run until then."""

    def __init__(self, result: Result):
        self.result = result
        super().__init__(f"interrupted at cycle {result.cycles} after {result.firings} firings")


class EngineError(ValueError):
    """An engine that does not exist, cannot do what was asked, or cannot be loaded."""
