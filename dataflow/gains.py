"""What a little more of each resource brought: runs on variants of a machine, as rows and as JSON.

`mapping.sensitivity` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hwspecs.variants import Variant


@dataclass(frozen=True)
class Gain:
    """A run on a variant. cycles: by the schedule at hand; anew: by the variant's default schedule,
    where that was asked for. Each is None where there is no such run; `fault` then says why."""

    variant: Variant
    cycles: int | None
    anew: int | None
    fault: str = ""

    @property
    def best(self) -> int | None:
        """The fewer cycles of both."""
        return min((cycles for cycles in (self.cycles, self.anew) if cycles), default=None)

    def changes_nothing(self, cycles: int) -> bool:
        """Whether the run takes what it took, `cycles`, by either schedule."""
        return not self.fault and {self.cycles, self.anew} <= {cycles, None}


def gains_json(gains: list[Gain]) -> list[dict[str, Any]]:
    """Return gains as JSON has them, the most first."""
    return [
        {
            "with": gain.variant.name,
            "changes": [
                {"path": change.path, "before": change.before, "after": change.after}
                for change in gain.variant.changes
            ],
            "cycles": gain.cycles,
            "cycles_anew": gain.anew,
            "fault": gain.fault,
        }
        for gain in gains
    ]
