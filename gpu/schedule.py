"""The GpuSchedule: how a graph is cut into kernels, and how each runs its axes.

    precision: bf16          # of tensors in memory and of products; sums are fp32
    emitter: triton          # or gluon: Hopper only, a loader warp and warp groups
    kernels:
      - makes: [o]           # nodes whose values the kernel puts in memory, or outputs
        tile: {n: 128}       # points of an axis in one tile; axes not named: all points
        grid: [n, heads, batch]   # axes spread over programs, the fastest first
        loop: [m.b]          # axes walked one tile after the other, outermost first
        chunk: {batch: 16}   # of an axis in grid and loop (or unroll): tiles that one program walks
        group: {i: 8}        # tiles of i that stay together in the grid, for the L2 cache
        unroll: [s]          # axes written out tile by tile (point by point without a tile)
        parts: {k: 8}        # a summed axis in so many parts side by side, one for every warp
        reload: [t2.c]       # values read from memory again at every step, not held over the loop
        warps: 8             # 12: Gluon's three warp groups, a tile's rows shared out in threes
        stages: 3            # loop steps whose loads are in flight
        descriptors: true    # loads and stores through the copy engine, where they fit; or: loads
        stack: true          # products by tables that share operands (a complex one) as one product

Where a graph runs in several kernels, each but the last makes values that later ones read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, StringConstraints

from dataflow.errors import FaultsError
from hwspecs import Located, check, read, write

Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Names = Annotated[tuple[Name, ...], Field(max_length=256)]
Count = Annotated[int, Field(strict=True, ge=1, le=2**20)]
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8"]
Emitter = Literal["triton", "gluon"]
EMITTERS: tuple[str, ...] = ("triton", "gluon")
PRECISIONS: tuple[str, ...] = ("fp32", "tf32", "fp16", "bf16", "fp8")


class GpuScheduleError(FaultsError):
    """A schedule that does not fit its graph; each fault names its place."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class KernelSchedule(_Part):
    """One kernel; see the module's text for the meaning of each field."""

    makes: Names = ()
    tile: dict[Name, Count] = Field(default_factory=dict)
    grid: Names = ()
    loop: Names = ()
    chunk: dict[Name, Count] = Field(default_factory=dict)
    group: Annotated[dict[Name, Count], Field(max_length=1)] = Field(default_factory=dict)
    unroll: Names = ()
    parts: dict[Name, Count] = Field(default_factory=dict)
    reload: Names = ()
    warps: Literal[1, 2, 4, 8, 12, 16, 32] = 4
    stages: Annotated[int, Field(strict=True, ge=1, le=8)] = 2
    descriptors: bool | Literal["loads"] = False
    stack: bool = False


class GpuSchedule(_Part):
    """See the module's text."""

    precision: Precision = "bf16"
    emitter: Emitter = "triton"
    kernels: Annotated[tuple[KernelSchedule, ...], Field(min_length=1, max_length=64)]
    _located: Located | None = PrivateAttr(default=None)

    @classmethod
    def from_yaml(cls, text_or_path: str | Path) -> GpuSchedule:
        """Read a schedule from a file (a Path) or a text (a str).

        Raises SpecError with every fault of the file and its place.
        """
        located = read(text_or_path, "GPU schedule")
        schedule = check(cls, located)
        schedule._located = located
        return schedule

    def placed(self, fault: str) -> str:
        """A fault that begins with its path, such as `kernels.0.tile.i: ..`, with its place too.

        The fault is kept as it is where the schedule came from no file or the path is none of it.
        """
        steps = tuple(
            int(step) if step.isdigit() else step for step in fault.partition(": ")[0].split(".")
        )
        if self._located is None or steps[:1] not in self._located.value_places:
            return fault
        line, column = self._located.place(steps)
        return f"{self._located.source}:{line}:{column}: {fault}"

    def to_yaml(self) -> str:
        """The schedule as text that `from_yaml` reads back to an equal one."""
        return write(self.as_data())

    def as_data(self) -> dict[str, Any]:
        """Plain dicts and lists, what equals its default left out."""
        return _plain(self.model_dump(exclude_defaults=True))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
