"""The file that `tileloom map` writes and `tileloom simulate --schedule` takes.

It holds what was asked for, the schedule, and where every unit and channel was put. The schedule is
what decides: placement and routes follow from it. They stand in the file to be read and compared,
may be left out, and are refused where they no longer follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from dataflow.errors import FaultsError
from dataflow.program import Program
from dataflow.report import MODEL_VERSION
from dataflow.request import Request
from dataflow.schedule import Schedule
from hwspecs import Located, Machine, check, read

SHOWN = 10
"""Faults that are listed where every place or route of a file is off."""

Cell = Annotated[list[Annotated[int, Field(strict=True)]], Field(min_length=2, max_length=2)]
Text = Annotated[str, Field(strict=True, max_length=200)]


class MappingFileError(FaultsError):
    """A mapping file that does not belong to what is to be run; each fault has its place."""


class MappingFile(BaseModel):
    """The types of a mapping file. Cells are [row, column] of the machine's grid."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kernel: Text
    sizes: dict[Text, bool | int | float | str] = Field(default_factory=dict)
    options: dict[Text, bool | int | float | str] = Field(default_factory=dict)
    rewrites: list[Text] = Field(default_factory=list)
    machine: Text
    machine_hash: Text
    model_version: Text
    schedule: Schedule
    placement: dict[Text, list[Cell]] = Field(default_factory=dict)
    routes: dict[Text, list[Cell]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A schedule from a file; `file` is set where it came with a placement (a mapping file)."""

    schedule: Schedule
    file: MappingFile | None = None
    located: Located | None = field(default=None, repr=False)

    def settings(self) -> dict[str, str]:
        """Return the sizes and options that the mapping was made for, as texts."""
        if self.file is None:
            return {}
        both = {**self.file.sizes, **self.file.options}
        return {name: _text(value) for name, value in both.items()}

    def agrees_with(self, request: Request, machine: Machine) -> None:
        """Raise MappingFileError with every way in which a mapping file is of something else."""
        if self.file is None:
            return
        wanted = {
            ("kernel",): request.kernel,
            ("machine",): machine.name,
            ("machine_hash",): machine.content_hash,
            ("model_version",): MODEL_VERSION,
            ("rewrites",): list(request.rewrites),
            **{("sizes", name): value for name, value in request.sizes.items()},
            **{("options", name): value for name, value in request.options.items()},
        }
        self._compare(wanted, "make the file again with tileloom map")

    def places_as(self, program: Program) -> None:
        """Raise MappingFileError where placement or routes are not those of `program`.

        A file may leave either out, such as after a change of its schedule.
        """
        if self.file is None:
            return
        wanted: dict[tuple[str, ...], Any] = {}
        for key, derived in (("placement", program.sites), ("routes", program.routes)):
            given = getattr(self.file, key)
            if given:
                wanted |= {(key, name): None for name in given}
                wanted |= {(key, name): value for name, value in _cells(derived).items()}
        hint = "they follow from the schedule: leave them out, or make the file again"
        self._compare(wanted, hint)

    def _compare(self, wanted: Mapping[tuple[str, ...], Any], hint: str) -> None:
        assert self.located is not None
        faults = []
        for path, value in wanted.items():
            found: Any = self.located.content
            for step in path:
                found = found.get(step) if isinstance(found, dict) else None
            if found != value:
                rule = "left out" if value is None else value
                message = f"must be {rule}, got {'nothing' if found is None else found}; {hint}"
                faults.append(str(self.located.fault(path, message)))
        if len(faults) > SHOWN:
            faults[SHOWN:] = [f"{self.located.source}: {len(faults) - SHOWN} more like these"]
        if faults:
            raise MappingFileError(faults)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_plan(path: Path) -> Plan:
    """Read a schedule, or a mapping file, which has one under the key `schedule`.

    Raises SpecError with every fault of the file.
    """
    located = read(path, "schedule")
    if not (isinstance(located.content, dict) and "schedule" in located.content):
        return Plan(Schedule.from_located(located))
    file = check(MappingFile, located)
    return Plan(Schedule.from_located(located, ("schedule",)), file, located)


def as_data(request: Request, schedule: Schedule, program: Program) -> dict[str, Any]:
    """Return the content of the mapping file of `program`, made by `schedule` for `request`."""
    return {
        "kernel": request.kernel,
        "sizes": dict(request.sizes),
        "options": dict(request.options),
        "rewrites": list(request.rewrites),
        "machine": program.machine.name,
        "machine_hash": program.machine.content_hash,
        "model_version": MODEL_VERSION,
        "schedule": schedule.as_data(),
        "placement": _cells(program.sites),
        "routes": _cells(program.routes),
    }


def _cells(places: Mapping[str, Any]) -> dict[str, list[list[int]]]:
    return {name: [[int(r), int(c)] for r, c in sites] for name, sites in places.items()}
