"""Turns a row of the published case list into a kernel and the schedule it was run with.

The rows name loops as the published programs do: `x.o` over the tiles of axis x, `x` inside one.
What each family does loop by loop is said beside its function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from dataflow.errors import did_you_mean
from dataflow.kernels import KernelError, build
from dataflow.nodes import Graph
from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule
from dataflow.validate import Case, CaseError

FIFO_BEATS = 16
"""What a FIFO between the published programs' units holds."""


@dataclass(frozen=True)
class Family:
    """How rows of one kernel were run.

    tiled: axes with a loop over tiles; unrolled: loops that may have copies; lanes: for each axis
    that may be in the lanes the loops of the published program that have it, "" for all.
    """

    schedule: Callable[[Case], Schedule]
    tiled: tuple[str, ...]
    unrolled: tuple[str, ...]
    lanes: Mapping[str, tuple[str, ...]]


def case_schedule(case: Case) -> tuple[Graph, Schedule]:
    """Return the graph of a case and its schedule.

    An axis without a tile is one tile; copies of a loop beyond its turns have nothing to do and are
    left out. Raises CaseError, with the row's place, where the kernel has no schedule or does not
    take the sizes, or the row names an axis or a loop that it does not have.
    """
    if case.kernel not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise CaseError(f"{case.where}: kernel must be one with a schedule ({known})")
    family = FAMILIES[case.kernel]
    try:
        graph = build(case.kernel, case.sizes)
    except KernelError as error:
        raise CaseError([f"{case.where}: sizes: {fault}" for fault in error.faults]) from error
    if faults := [*_unknown(case, family)]:
        raise CaseError(faults)
    sizes = dict(graph.axes)
    tile = {axis: min(case.tile.get(axis, sizes[axis]), sizes[axis]) for axis in family.tiled}
    whole = replace(case, sizes=sizes, tile=tile)
    return graph, family.schedule(
        replace(whole, unroll={d: min(n, _turns(whole, d)) for d, n in case.unroll.items()})
    )


def _unknown(case: Case, family: Family) -> list[str]:
    """Axes and loops of a row that its kernel does not have."""
    lanes = [name for axis, loops in family.lanes.items() for name in _lane_names(axis, loops)]
    known = {"tile": family.tiled, "unroll": family.unrolled, "vector": tuple(lanes)}
    given = {"tile": case.tile, "unroll": case.unroll, "vector": case.vector}
    return [
        f"{case.where}: {column} must name a loop of {case.kernel}, got {name!r};"
        f" {did_you_mean(name, known[column])}"
        for column, counts in given.items()
        for name in counts
        if name not in known[column]
    ]


def _lane_names(axis: str, loops: tuple[str, ...]) -> tuple[str, ...]:
    return (axis, *loops, *(f"{loop}:{axis}" for loop in loops))


def _lanes(case: Case, axis: str, loop: str = "") -> int:
    """Lanes of an axis: `loop:axis`, or `loop` alone, or the axis alone; 1 where none is given."""
    for key in (f"{loop}:{axis}" if loop else axis, loop, axis):
        if key in case.vector:
            return case.vector[key]
    return 1


def _turns(case: Case, digit: str) -> int:
    """Turns of a loop without copies: over the tiles of an axis, or inside one a lane each."""
    axis, mark, _ = digit.partition(".o")
    size, tile = case.sizes[axis], case.tile.get(axis, case.sizes[axis])
    return -(-size // tile) if mark else -(-tile // _lanes(case, axis, "compute"))


def _unroll(case: Case, *digits: str) -> dict[str, int]:
    return {digit: case.unroll[digit] for digit in digits if digit in case.unroll}


def _tiles(case: Case, loop: str, at: str | None = None) -> ChannelSchedule:
    """A channel of tiles that are new at each turn of `loop`, in a scratchpad.

    As in the published programs it has one buffer where the loop turns once: even where loops
    outside turn on, the next tile then waits until this one is used.
    """
    once = _turns(case, loop) <= case.unroll.get(loop, 1)
    return ChannelSchedule(locality="scratchpad", at=at, depth=1 if once else None)


def _apart(part: str) -> dict[str, ChannelSchedule]:
    """The channel to a sum over tiles: their loop has a unit of its own, however short a tile."""
    return {f"{part}.part -> {part}": ChannelSchedule(depth=FIFO_BEATS)}


def _node(
    vector: Mapping[str, int] | None = None, unroll: Mapping[str, int] | None = None
) -> NodeSchedule:
    return NodeSchedule(vector=dict(vector or {}), unroll=dict(unroll or {}))


def _gemm(case: Case) -> Schedule:
    """For i.o, j.o: for k.o load a k x j tile of b and, row by row, the i x k tile of a; each row's
    dot products fill a partial tile, which is added into the c tile, stored after the last k.o.
    Loads, stores and the addition use as many lanes as k.
    """
    lanes = _lanes(case, "k")
    outer = _unroll(case, "i.o", "j.o")
    copies = _unroll(case, "i.o", "j.o", "k.o", "i", "j", "k")
    nodes = {
        "c.part": _node({"k": lanes}, copies),
        "c": _node({"j": lanes}, outer),
        "load a": _node({"k": lanes}, _unroll(case, "i.o", "j.o", "k.o", "i")),
        # a b of one column lies along k
        "load b": _node(
            {"j" if case.sizes["j"] > 1 else "k": lanes}, _unroll(case, "i.o", "j.o", "k.o")
        ),
        "store c": _node({"j": lanes}, outer),
    }
    channels = {
        "a -> c.part": _tiles(case, "i"),
        "b -> c.part": _tiles(case, "k.o", at="k.o"),
        "c.part -> c": _tiles(case, "k.o", at="k.o"),
        "c -> store c": _tiles(case, "j.o", at="j.o"),
    }
    return Schedule(
        tile=dict(case.tile),
        time=("i.o", "j.o", "k.o", "i"),
        walk=("j", "k"),
        nodes=nodes,
        channels=channels,
    )


def _sum_square(case: Case) -> Schedule:
    """For each tile, sum n * n in lanes; the sums of tiles are added up."""
    part = _node({"n": _lanes(case, "n")}, _unroll(case, "n.o", "n"))
    return Schedule(
        tile=dict(case.tile),
        time=("n.o",),
        nodes={"square": part, "total.part": part},
        channels=_apart("total"),
    )


def _generated_dot_product(case: Case) -> Schedule:
    """For each tile, write n into a scratchpad, then sum its squares from there."""
    part = _node({"n": _lanes(case, "n")}, _unroll(case, "n.o", "n"))
    return Schedule(
        tile=dict(case.tile),
        time=("n.o",),
        nodes={"a": part, "square": part, "total.part": part},
        channels={"a -> square": _tiles(case, "n.o"), **_apart("total")},
    )


def _accumulate_buffer(case: Case) -> Schedule:
    """For each n, fill a buffer of d words; add it into an accumulator, stored at the end."""
    copies = _unroll(case, "n")
    add = _lanes(case, "d", "accumulate")
    return Schedule(
        time=("n",),
        walk=("d",),
        nodes={
            "x": _node({"d": _lanes(case, "d", "fill")}, copies),
            "acc": _node({"d": add}),
            "store acc": _node({"d": add}),
        },
        channels={
            "x -> acc": ChannelSchedule(locality="scratchpad"),
            "acc -> store acc": ChannelSchedule(locality="scratchpad"),
        },
    )


def _dot_product(case: Case) -> Schedule:
    """For each tile, load a and b, sum their products in lanes; the sums are added up."""
    lanes = {"n": _lanes(case, "n")}
    load = _node(lanes, _unroll(case, "n.o"))
    part = _node(lanes, _unroll(case, "n.o", "n"))
    nodes = {"total.part": part, "load a": load, "load b": load}
    return Schedule(tile=dict(case.tile), time=("n.o",), nodes=nodes, channels=_apart("total"))


def _outer_product(case: Case) -> Schedule:
    """For i.o load a tile of a; for j.o load a tile of b, form the i x j tile, store it."""
    outer = _unroll(case, "i.o", "j.o")
    nodes = {
        "c": _node({"j": _lanes(case, "j", "compute")}, outer | _unroll(case, "i", "j")),
        "load a": _node({"i": _lanes(case, "i", "load")}, _unroll(case, "i.o")),
        "load b": _node({"j": _lanes(case, "j", "load")}, outer),
        "store c": _node({"j": _lanes(case, "j", "store")}, outer),
    }
    return Schedule(
        tile=dict(case.tile),
        time=("i.o", "j.o"),
        walk=("i", "j"),
        nodes=nodes,
        channels={
            "a -> c": _tiles(case, "i.o"),
            "b -> c": _tiles(case, "j.o"),
            "c -> store c": _tiles(case, "j.o"),
        },
    )


def _filter_sum(case: Case) -> Schedule:
    """For each tile, load four columns and sum price * discount of the rows that pass."""
    lanes = {"n": _lanes(case, "n")}
    load = _node(lanes, _unroll(case, "n.o"))
    part = _node(lanes, _unroll(case, "n.o", "n"))
    columns = ("price", "discount", "quantity", "date")
    mapped = (
        "date.from",
        "date.to",
        "discount.from",
        "discount.to",
        "quantity.to",
        "logical_and",
        "logical_and_2",
        "logical_and_3",
        "logical_and_4",
        "sale",
        "chosen",
        "total.part",
    )
    nodes = dict.fromkeys(mapped, part) | {f"load {column}": load for column in columns}
    return Schedule(tile=dict(case.tile), time=("n.o",), nodes=nodes, channels=_apart("total"))


_TILES = {"tiled": ("n",), "unrolled": ("n.o", "n"), "lanes": {"n": ()}}

FAMILIES: dict[str, Family] = {
    "gemm": Family(_gemm, ("i", "j", "k"), ("i.o", "j.o", "k.o", "i", "j", "k"), {"k": ()}),
    "sum_square": Family(_sum_square, **_TILES),
    "generated_dot_product": Family(_generated_dot_product, **_TILES),
    "accumulate_buffer": Family(_accumulate_buffer, (), ("n",), {"d": ("fill", "accumulate")}),
    "dot_product": Family(_dot_product, **_TILES),
    "outer_product": Family(
        _outer_product,
        ("i", "j"),
        ("i.o", "j.o", "i", "j"),
        {"i": ("load",), "j": ("compute", "load", "store")},
    ),
    "filter_sum": Family(_filter_sum, **_TILES),
}
