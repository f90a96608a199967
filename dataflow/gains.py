"""What a little more of each resource brought: runs on variants of a machine, as rows and as JSON.

`mapping.sensitivity` makes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hwspecs.variants import Variant


@dataclass(frozen=True)
class Gain:
    """A run on a variant. cycles: by the schedule at hand; anew: by the variant's default schedule,
    where that was asked for. Each is None where there is no such run; `fault` and `anew_fault` then
    say why. clock_hz: of the machine that the variant is made of."""

    variant: Variant
    cycles: int | None
    anew: int | None
    clock_hz: float
    fault: str = ""
    anew_fault: str = ""

    @property
    def seconds(self) -> float:
        """The shorter time of both runs; infinite where there is none."""
        runs = [cycles for cycles in (self.cycles, self.anew) if cycles is not None]
        return min(runs) / self.variant.machine.clock_hz if runs else math.inf

    def saved(self, now: int | None, before: int) -> float | None:
        """Time that a run of `now` cycles on the variant saves, as a share of the run at hand's.

        That is the share of its `before` cycles, unless the clock is what changed. Negative where
        the run takes longer; None where there is no run.
        """
        if now is None or not before:
            return None
        return 1 - now / before * (self.clock_hz / self.variant.machine.clock_hz)

    def changes_nothing(self, cycles: int) -> bool:
        """Whether the run takes what it took, `cycles`, by either schedule."""
        runs = {self.cycles, self.anew} - {None}
        if self.fault or self.anew_fault:
            return False
        return runs == {cycles} and self.variant.machine.clock_hz == self.clock_hz


def gains_json(gains: list[Gain], cycles: int) -> list[dict[str, Any]]:
    """Return gains as JSON has them, the most first, beside the run at hand of `cycles`."""
    return [
        {
            "with": gain.variant.name,
            "changes": [
                {"path": change.path, "before": change.before, "after": change.after}
                for change in gain.variant.changes
            ],
            "cycles": gain.cycles,
            "saved": gain.saved(gain.cycles, cycles),
            "fault": gain.fault,
            "cycles_anew": gain.anew,
            "saved_anew": gain.saved(gain.anew, cycles),
            "fault_anew": gain.anew_fault,
        }
        for gain in gains
    ]
