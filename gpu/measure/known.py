"""Schedules that a search has found, in one readable file a card.

`tuned/CARD.yaml` (in the user's cache, else the project's own in `gpu/tuned`) has the best schedule
of each kernel under the graph's name, the precision and a hash of the graph at its sizes, with its
time and the versions that it was timed with.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from dataflow.nodes import Graph
from dataflow.text import to_text
from gpu.defaults.emitter import auto_schedule
from gpu.module import cache_folder
from gpu.run import card_at_hand, versions
from gpu.schedule import GpuSchedule
from hwspecs import read, write

SHIPPED = Path(__file__).parents[1] / "tuned"


def graph_key(graph: Graph, precision: str) -> str:
    """The key of a graph at its sizes: its name, its precision, and a hash of its text."""
    digest = hashlib.sha256(to_text(graph).encode()).hexdigest()[:16]
    return f"{graph.name}-{precision}-{digest}"


def known_schedule(graph: Graph, precision: str, card: str | None = None) -> GpuSchedule:
    """Return the best schedule that a search has found for `card`, else the default one
    of the faster emitter.

    card: as `card_name` gives it; None for the one at hand, if any.
    """
    card = card or card_name()
    for folder in (cache_folder() / "tuned", SHIPPED):
        found = entries_of(folder / f"{card}.yaml").get(graph_key(graph, precision))
        if found is not None:
            return GpuSchedule.model_validate(found["schedule"])
    return auto_schedule(graph, precision, card_at_hand())


def keep(
    graph: Graph, schedule: GpuSchedule, milliseconds: float, folder: Path | None = None
) -> Path:
    """Write a schedule into the user's cache (or `folder`), and return the file."""
    path = (folder or cache_folder() / "tuned") / f"{card_name()}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = entries_of(path)
    entries[graph_key(graph, schedule.precision)] = {
        "milliseconds": round(milliseconds, 5),
        "versions": {name: str(version) for name, version in versions().items()},
        "schedule": schedule.as_data(),
    }
    path.write_text(write(dict(sorted(entries.items()))))
    return path


def card_name() -> str:
    """The card at hand as files are named after it; "none" without one."""
    import torch

    if not torch.cuda.is_available():
        return "none"
    return torch.cuda.get_device_name(0).lower().replace(" ", "-")


def entries_of(path: Path) -> dict[str, Any]:
    """The entries of a file of schedules, none where there is no file."""
    if not path.exists():
        return {}
    return dict(read(path, "tuned schedules").content or {})
