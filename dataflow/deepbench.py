"""DeepBench's recurrent layers as published for Plasticine, and the figures that compare them.

The published layers keep their weights on chip and are served one sequence at a time, so the time
compared is that of T further steps of a run whose weights have arrived:

    ms = T (cycles of 2 n steps - cycles of n steps) / n / clock

Beside it stands the whole run of T steps, which first loads the weights from off-chip memory.
Left out: what a server adds, such as the transfer of a sequence from a host. The published figures'
source stands in dataflow/published/README.md.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

FLOPS = {"lstm": 16, "gru": 12}
"""Operations of a step over H^2: two H x H products a gate, two operations a weight."""
NEAR = (0.7, 1.4)
"""Ratios within are called near."""


@dataclass(frozen=True)
class Layer:
    """A layer of DeepBench, batch 1, input as wide as the state, and its published time."""

    cell: str
    hidden: int
    steps: int
    published_ms: float

    @property
    def name(self) -> str:
        """A name of its own, `lstm_256_150`."""
        return f"{self.cell}_{self.hidden}_{self.steps}"

    def tflops(self, ms: float) -> float:
        """Effective TFLOP/s of the layer in `ms` milliseconds.

        >>> round(Layer("lstm", 1024, 25, 0.0292).tflops(0.0292), 2)
        14.36
        """
        return FLOPS[self.cell] * self.hidden**2 * self.steps / ms / 1e9


@dataclass(frozen=True)
class Served:
    """A layer beside ours.

    step_cycles: cycles of a step with the weights on chip. busy: cycles of a step for which each
    resource must work, by its name in `mapping.bounds`. run_cycles: the whole run of T steps, from
    weights in off-chip memory to the last result; run_bound_by: what bounds it.
    """

    layer: Layer
    step_cycles: float
    busy: Mapping[str, float]
    run_cycles: int
    run_bound_by: str
    clock_hz: float

    @property
    def ms(self) -> float:
        """Milliseconds of the layer's steps, its weights on chip."""
        return self.step_cycles * self.layer.steps / self.clock_hz * 1e3

    @property
    def run_ms(self) -> float:
        """Milliseconds of the whole run."""
        return self.run_cycles / self.clock_hz * 1e3

    @property
    def ratio(self) -> float:
        """Our milliseconds over the published ones."""
        return self.ms / self.layer.published_ms

    @property
    def near(self) -> bool:
        """Whether the ratio is within NEAR."""
        return NEAR[0] <= self.ratio <= NEAR[1]

    @property
    def busiest(self) -> str:
        """The resource that must work for most of a step; ties go to the first."""
        return max(self.busy, key=self.busy.__getitem__)

    @property
    def busiest_share(self) -> float:
        """The share of a step for which it must work; what is left is latency."""
        return self.busy[self.busiest] / self.step_cycles

    @property
    def bound_by(self) -> str:
        """What most of a step goes to: its busiest resource, or latency round the recurrence."""
        return self.busiest if self.busiest_share >= 0.5 else "latency"

    @property
    def bound_share(self) -> float:
        """The share of a step that goes to it: busy, or for latency the share that is not."""
        return max(self.busiest_share, 1 - self.busiest_share)


def layers() -> tuple[Layer, ...]:
    """Return the published layers, in the order of the list that comes with the package."""
    path = Path(str(files("dataflow") / "published" / "deepbench_rnn.csv"))
    with path.open(newline="", encoding="utf-8") as file:
        return tuple(
            Layer(row["cell"], int(row["hidden"]), int(row["steps"]), float(row["plasticine_ms"]))
            for row in csv.DictReader(file)
        )


def mean_ratio(rows: Sequence[Served]) -> float:
    """Return the geometric mean of the ratios."""
    return math.exp(sum(math.log(row.ratio) for row in rows) / len(rows))


def as_json(rows: Sequence[Served]) -> dict[str, Any]:
    """Return the JSON object that `tileloom validate deepbench --json` prints."""
    return {
        "cases": [
            {
                "case": row.layer.name,
                "cell": row.layer.cell,
                "hidden": row.layer.hidden,
                "steps": row.layer.steps,
                "reference_ms": row.layer.published_ms,
                "ms": row.ms,
                "reference_tflops": row.layer.tflops(row.layer.published_ms),
                "tflops": row.layer.tflops(row.ms),
                "ratio": row.ratio,
                "cycles_per_step": row.step_cycles,
                "busy_cycles_per_step": dict(row.busy),
                "bound_by": row.bound_by,
                "bound_share": row.bound_share,
                "run_cycles": row.run_cycles,
                "run_ms": row.run_ms,
                "run_bound_by": row.run_bound_by,
            }
            for row in rows
        ],
        "mean_ratio": mean_ratio(rows),
        "outside": [row.layer.name for row in rows if not row.near],
    }
