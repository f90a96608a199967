"""Turns a row of the published case list into a kernel and the schedule it was run with.

The rows name loops as the published programs do: `x.o` over the tiles of axis x, `x` inside one.
What each family does loop by loop is said beside its function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dataflow.kernels import build
from dataflow.nodes import Graph
from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule
from dataflow.validate import Case, CaseError


def case_schedule(case: Case) -> tuple[Graph, Schedule]:
    """Return the graph of a case and its schedule; CaseError where its family has none."""
    if case.kernel not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise CaseError(f"{case.where}: kernel must be one with a schedule ({known})")
    return build(case.kernel, case.sizes), FAMILIES[case.kernel](case)


def _lanes(case: Case, axis: str, loop: str = "") -> int:
    """Lanes of an axis: `loop:axis`, or `loop` alone, or the axis alone; 1 where none is given."""
    for key in (f"{loop}:{axis}" if loop else axis, loop, axis):
        if key in case.vector:
            return case.vector[key]
    return 1


def _turns(case: Case, axis: str) -> int:
    """How often one copy turns the loop over the tiles of an axis."""
    tiles = -(-case.sizes[axis] // case.tile.get(axis, case.sizes[axis]))
    return -(-tiles // case.unroll.get(f"{axis}.o", 1))


def _unroll(case: Case, *digits: str) -> dict[str, int]:
    return {digit: case.unroll[digit] for digit in digits if digit in case.unroll}


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
    copies = _unroll(case, "i.o", "j.o", "k.o", "i", "j")
    nodes = {
        "c.part": _node({"k": lanes}, copies),
        "c": _node({"j": lanes}, outer),
        "load a": _node({"k": lanes}, _unroll(case, "i.o", "j.o", "k.o", "i")),
        "load b": _node({"j": lanes}, _unroll(case, "i.o", "j.o", "k.o")),
        "store c": _node({"j": lanes}, outer),
    }
    channels = {
        "b -> c.part": ChannelSchedule(at="k.o"),
        "c.part -> c": ChannelSchedule(at="k.o"),
        "c -> store c": ChannelSchedule(at="j.o"),
    }
    if _turns(case, "k") == 1:
        # The published compiler gives one buffer only where the loop around a tile turns once.
        for name in ("b -> c.part", "c.part -> c"):
            channels[name] = ChannelSchedule(at="k.o", depth=1)
    return Schedule(
        tile=dict(case.tile),
        time=("i.o", "j.o", "k.o", "i"),
        walk=("j", "k"),
        nodes=nodes,
        channels=channels,
    )


def _sum_square(case: Case) -> Schedule:
    """For each tile, sum n * n in lanes; the sums of tiles are added up."""
    part = _node({"n": _lanes(case, "n")}, _unroll(case, "n.o"))
    return Schedule(tile=dict(case.tile), time=("n.o",), nodes={"square": part, "total.part": part})


def _generated_dot_product(case: Case) -> Schedule:
    """For each tile, write n into a scratchpad, then sum its squares from there."""
    part = _node({"n": _lanes(case, "n")}, _unroll(case, "n.o"))
    return Schedule(
        tile=dict(case.tile),
        time=("n.o",),
        nodes={"a": part, "square": part, "total.part": part},
        channels={"a -> square": ChannelSchedule(locality="scratchpad")},
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
    lanes, copies = {"n": _lanes(case, "n")}, _unroll(case, "n.o")
    part = _node(lanes, copies)
    nodes = {"total.part": part, "load a": part, "load b": part}
    return Schedule(tile=dict(case.tile), time=("n.o",), nodes=nodes)


def _outer_product(case: Case) -> Schedule:
    """For i.o load a tile of a; for j.o load a tile of b, form the i x j tile, store it."""
    outer = _unroll(case, "i.o", "j.o")
    nodes = {
        "c": _node({"j": _lanes(case, "j", "compute")}, outer),
        "load a": _node({"i": _lanes(case, "i", "load")}, _unroll(case, "i.o")),
        "load b": _node({"j": _lanes(case, "j", "load")}, outer),
        "store c": _node({"j": _lanes(case, "j", "store")}, outer),
    }
    return Schedule(
        tile=dict(case.tile),
        time=("i.o", "j.o"),
        walk=("i", "j"),
        nodes=nodes,
        channels={"c -> store c": ChannelSchedule(locality="scratchpad")},
    )


def _filter_sum(case: Case) -> Schedule:
    """For each tile, load four columns and sum price * discount of the rows that pass."""
    part = _node({"n": _lanes(case, "n")}, _unroll(case, "n.o"))
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
    nodes = dict.fromkeys((*mapped, *(f"load {column}" for column in columns)), part)
    return Schedule(tile=dict(case.tile), time=("n.o",), nodes=nodes)


FAMILIES: dict[str, Callable[[Case], Schedule]] = {
    "gemm": _gemm,
    "sum_square": _sum_square,
    "generated_dot_product": _generated_dot_product,
    "accumulate_buffer": _accumulate_buffer,
    "dot_product": _dot_product,
    "outer_product": _outer_product,
    "filter_sum": _filter_sum,
}
