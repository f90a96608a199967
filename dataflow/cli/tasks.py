"""What `simulate` and `map` have in common: a kernel on a machine, perhaps with a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataflow.mapping_file import Plan
    from dataflow.request import Request
    from hwspecs import Machine
    from mapping import Mapping as Mapped


@dataclass(frozen=True)
class Task:
    """What simulate and map have in common: a kernel on a machine, perhaps with a schedule."""

    request: Request
    machine: Machine
    plan: Plan | None

    def map(self) -> Mapped:
        """Map it, by the schedule given or the default one."""
        from mapping import map_graph

        mapped = map_graph(self.request.graph, self.machine, self.plan and self.plan.schedule)
        if self.plan:
            self.plan.places_as(mapped.program)
        return mapped


def task_of(
    kernel: str, hw: str, texts: list[str], rewrites: list[str], schedule: Path | None
) -> Task:
    """Read what the options of a command ask for; a fault of theirs says which option."""
    import hwspecs
    from dataflow.mapping_file import read_plan
    from dataflow.request import read_settings, request

    settings = read_settings(texts)
    plan = read_plan(schedule) if schedule else None
    if plan and plan.file:
        settings = {**plan.settings(), **settings}
        rewrites = rewrites or plan.file.rewrites or ["none"]
    machine = hwspecs.load(hw)
    asked = request(kernel, settings, rewrites)
    if plan:
        plan.agrees_with(asked, machine)
    return Task(asked, machine, plan)
