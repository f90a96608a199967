"""Searches schedules for the card at hand, and keeps what it found in a readable file.

The file (YAML, one entry a kernel) is keyed by a hash of the graph and its sizes, the precision,
the card and the versions; it is written after every trial, so that a search can be stopped and
goes on where it was. Candidates differ in tiles, warps and stages; those whose kernels take more
registers or shared memory than the card has are dropped by the compiler before any run.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataflow.nodes import Graph
from dataflow.text import to_text
from gpu.default_schedule import default_schedule
from gpu.module import cache_folder
from gpu.schedule import GpuSchedule, KernelSchedule
from hwspecs import read, write

SHIPPED = Path(__file__).parent / "tuned"


@dataclass(frozen=True)
class Trial:
    """A schedule and its time; infinite where its kernels do not compile or run."""

    schedule: GpuSchedule
    milliseconds: float


def graph_key(graph: Graph, precision: str) -> str:
    """The key of a graph at its sizes: its name, its precision, and a hash of its text."""
    digest = hashlib.sha256(to_text(graph).encode()).hexdigest()[:16]
    return f"{graph.name}-{precision}-{digest}"


def tuned_schedule(graph: Graph, precision: str, card: str | None = None) -> GpuSchedule | None:
    """Return the best schedule known for `graph` on `card`: the user's, else the project's."""
    card = card or _card()
    for folder in (cache_folder() / "tuned", SHIPPED):
        found = _entries(folder / f"{card}.yaml").get(graph_key(graph, precision))
        if found is not None:
            return GpuSchedule.model_validate(found["schedule"])
    return None


def keep(graph: Graph, trial: Trial, folder: Path | None = None) -> Path:
    """Write a schedule into the user's cache (or `folder`), and return the file."""
    from gpu.run import versions

    path = (folder or cache_folder() / "tuned") / f"{_card()}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = _entries(path)
    entries[graph_key(graph, trial.schedule.precision)] = {
        "milliseconds": round(trial.milliseconds, 5),
        "versions": versions(),
        "schedule": trial.schedule.as_data(),
    }
    path.write_text(write(dict(sorted(entries.items()))))
    return path


def candidates(schedule: GpuSchedule) -> Iterator[GpuSchedule]:
    """Yield `schedule` and its neighbours: tiles halved and doubled, other warps and stages."""
    yield schedule
    for place, plan in enumerate(schedule.kernels):
        for other in _neighbours(plan):
            kernels = (*schedule.kernels[:place], other, *schedule.kernels[place + 1 :])
            yield schedule.model_copy(update={"kernels": kernels})


def _neighbours(plan: KernelSchedule) -> Iterator[KernelSchedule]:
    tiles = [sorted({max(1, tile // 2), tile, tile * 2}) for tile in plan.tile.values()]
    for sizes in itertools.product(*tiles):
        tile = dict(zip(plan.tile, sizes, strict=True))
        for warps, stages in itertools.product((4, 8), (2, 3, 4)):
            other = plan.model_copy(update={"tile": tile, "warps": warps, "stages": stages})
            if other != plan:
                yield other


def search(
    graph: Graph,
    precision: str,
    time: Callable[[GpuSchedule], float],
    start: GpuSchedule | None = None,
    limit: int = 64,
) -> list[Trial]:
    """Time up to `limit` candidates around `start` (default: the default schedule), best first.

    time: milliseconds of a schedule; it may raise, which drops the candidate.
    """
    start = start or default_schedule(graph, precision)
    trials = []
    for schedule in itertools.islice(candidates(start), limit):
        try:
            trials.append(Trial(schedule, time(schedule)))
        except Exception:
            trials.append(Trial(schedule, float("inf")))
    return sorted(trials, key=lambda trial: trial.milliseconds)


def _card() -> str:
    import torch

    if not torch.cuda.is_available():
        return "none"
    return torch.cuda.get_device_name(0).lower().replace(" ", "-")


def _entries(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    return dict(read(path, "tuned schedules").content or {})
