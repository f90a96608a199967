"""Digits: the loop indices that a schedule makes of a graph's axes, and who counts which of them.

An axis `a` tiled by T has the digits `a.o` (stride T, over tiles) and `a` (stride 1, below T); an
axis that is not tiled is one digit. A digit is time (part of domains) or tile (walked inside).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dataflow.errors import did_you_mean
from dataflow.nodes import Graph
from dataflow.schedule import Schedule, ScheduleError


@dataclass(frozen=True)
class Digit:
    """One digit: coordinate of its axis = sum over the axis's digits of stride * index."""

    name: str
    axis: str
    stride: int
    extent: int
    time: bool


@dataclass(frozen=True)
class Digits:
    """All digits of a graph under a schedule. `time` and `walk` are their orders, slowest first."""

    by_name: Mapping[str, Digit]
    of_axis: Mapping[str, tuple[str, ...]]
    time: tuple[str, ...]
    walk: tuple[str, ...]
    extents: Mapping[str, int]

    def extent(self, axis: str) -> int:
        """Points of an axis of the graph."""
        return self.extents[axis]

    def __getitem__(self, name: str) -> Digit:
        return self.by_name[name]

    def time_of(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Time digits of `axes`, in the schedule's order."""
        wanted = {name for axis in axes for name in self.of_axis[axis]}
        return tuple(name for name in self.time if name in wanted)

    def tile_of(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Tile digits of `axes`, in the schedule's order."""
        wanted = {name for axis in axes for name in self.of_axis[axis]}
        return tuple(name for name in self.walk if name in wanted)


def digits_of(graph: Graph, schedule: Schedule) -> Digits:
    """Split the axes of `graph` as `schedule` says; ScheduleError lists all that does not fit."""
    faults: list[str] = []
    recurrent = {node.axis for node in graph.nodes if node.op == "earlier"}
    for axis in schedule.tile:
        if axis not in graph.axes:
            hint = did_you_mean(axis, graph.axes)
            faults.append(
                schedule.fault(("tile", axis), f"must be an axis of the kernel; {hint}", True)
            )
    by_name, of_axis = _split(graph, schedule)
    faults += _order_faults(schedule, by_name, recurrent)
    if faults:
        raise ScheduleError(faults)
    time = tuple(schedule.time)
    rest = [name for name in by_name if name not in time and name not in schedule.walk]
    walk = (*schedule.walk, *rest)
    named = {
        name: Digit(name, axis, stride, extent, name in time)
        for name, (axis, stride, extent) in by_name.items()
    }
    return Digits(named, of_axis, time, walk, graph.axes)


def _split(
    graph: Graph, schedule: Schedule
) -> tuple[dict[str, tuple[str, int, int]], dict[str, tuple[str, ...]]]:
    by_name: dict[str, tuple[str, int, int]] = {}
    of_axis: dict[str, tuple[str, ...]] = {}
    for axis, extent in graph.axes.items():
        tile = min(schedule.tile.get(axis, 0), extent)
        if tile:
            by_name[f"{axis}.o"] = (axis, tile, -(-extent // tile))
            by_name[axis] = (axis, 1, tile)
            of_axis[axis] = (f"{axis}.o", axis)
        else:
            by_name[axis] = (axis, 1, extent)
            of_axis[axis] = (axis,)
    return by_name, of_axis


def _order_faults(
    schedule: Schedule, by_name: Mapping[str, tuple[str, int, int]], recurrent: set[str]
) -> list[str]:
    faults: list[str] = []
    seen: dict[str, str] = {}
    for field in ("time", "walk"):
        for place, name in enumerate(getattr(schedule, field)):
            path = (field, place)
            if name not in by_name:
                hint = did_you_mean(name, by_name)
                faults.append(
                    schedule.fault(path, f"must be a digit of the kernel, got {name!r}; {hint}")
                )
            elif name in seen:
                rule = f"must name each digit once, got {name} again (first under {seen[name]})"
                faults.append(schedule.fault(path, rule))
            seen.setdefault(name, field)
    outer = [f"{axis}.o" for axis in schedule.tile if f"{axis}.o" in by_name]
    for name in dict.fromkeys([*outer, *sorted(recurrent)]):
        if name in by_name and seen.get(name) != "time":
            why = "it counts tiles" if name in outer else "it carries a recurrence"
            faults.append(schedule.fault(("time",), f"must name {name}: {why}"))
    for axis in sorted(recurrent & set(schedule.tile)):
        places = [schedule.time.index(d) for d in (f"{axis}.o", axis) if d in schedule.time]
        if places != sorted(places):
            rule = f"must name {axis}.o before {axis}: {axis} carries a recurrence"
            faults.append(schedule.fault(("time",), rule))
    return faults
