"""Loads: where an off-chip tensor enters, tile by tile, for one reader or for several alike."""

from __future__ import annotations

from collections.abc import Mapping

from dataflow.index import Affine, affine
from dataflow.nodes import Node
from dataflow.schedule import NodeSchedule, Schedule
from dataflow.streams.digits import Digits
from dataflow.streams.edge import Edge
from dataflow.streams.node import Source, StreamNode, address_strides
from dataflow.streams.split import Streams


def load_edge(
    made: Streams,
    nodes: dict[str, StreamNode],
    loads: dict[tuple, str],
    target: StreamNode,
    source: Source,
    lanes: int,
    faults: list[str],
) -> Edge:
    """The channel from an off-chip tensor; adds its load unless another reader has the same."""
    base, digits = source.base, made.digits
    if any(free.op != "read" for free in source.via) or len(source.via) > 1:
        faults.append(
            f"node {target.name}: {base.name} must be read from off-chip memory by one "
            f"affine read, got {', '.join(f.op for f in source.via)}"
        )
    value = source.via[-1] if source.via else base
    index = value.index if source.via else tuple(affine(axis) for axis in base.axes)
    touch = tuple(d for d in target.loops if digits[d].axis in value.axes)
    common = _loaded_at(made.schedule, base.name, target, touch, faults)
    outside = target.domain[:common]
    own = f"load {base.name} -> {target.name}"
    plan = made.schedule.node(own if own in made.schedule.nodes else f"load {base.name}")
    # Copies of the reader over a loop that the tensor does not follow share one load, unless the
    # schedule copies the load too.
    served = {d: n for d, n in target.unroll.items() if d in outside and d not in touch}
    served = {d: n for d, n in served.items() if d not in plan.unroll}
    touch = (*touch, *(d for d in outside if d not in touch and d not in served))
    key = (base.name, value.name, outside, tuple(served.items()))
    if key not in loads:
        name = own if f"load {base.name}" in nodes else f"load {base.name}"
        loads[key] = name
        faults += _plan_faults(made.schedule, plan, own, base, outside)
        nodes[name] = _load_node(made, base, value, index, outside, served, plan, name, lanes)
    return Edge(loads[key], target.name, value.name, "", common, touch)


def _plan_faults(
    schedule: Schedule, plan: NodeSchedule, own: str, base: Node, outside: tuple[str, ...]
) -> list[str]:
    """What a schedule says of a load that loads cannot do."""
    at = ("nodes", own if own in schedule.nodes else f"load {base.name}")
    around = ", ".join(outside) or "there is none"
    return [
        schedule.fault(
            (*at, "unroll", digit), f"must be a loop outside the loaded tile ({around})", True
        )
        for digit in plan.unroll
        if digit not in outside
    ]


def _load_node(
    made: Streams,
    base: Node,
    value: Node,
    index: tuple[Affine, ...],
    outside: tuple[str, ...],
    served: Mapping[str, int],
    plan: NodeSchedule,
    name: str,
    lanes: int,
) -> StreamNode:
    """A load of `base` seen as `value`: a tile for each point of `outside`, in memory order."""
    digits = made.digits
    strides = address_strides(made.graph, base.axes, index, value.axes)
    inside = [d for d in digits.by_name if digits[d].axis in value.axes and d not in outside]
    inside.sort(key=lambda d: -abs(strides[digits[d].axis]) * digits[d].stride)
    vector, width = next(iter(plan.vector.items()), ("", 1))
    if not plan.vector and inside and contiguous(digits, strides, inside[-1]):
        vector, width = inside[-1], min(lanes, digits[inside[-1]].extent)
    unroll = {d: n for d, n in plan.unroll.items() if n > 1 and d in outside}
    return StreamNode(
        name,
        "load",
        value,
        value.axes,
        outside,
        tuple(inside),
        vector=vector,
        lanes=width,
        unroll=unroll,
        merge=served,
        argument=base,
    )


def _loaded_at(
    schedule: Schedule, tensor: str, target: StreamNode, touch: tuple[str, ...], faults: list[str]
) -> int:
    """How many domain loops of `target` lie outside the loaded tile."""
    name = f"{tensor} -> {target.name}"
    at = (schedule.channels.get(name) or schedule.channel(f"load {tensor}", target.name)).at
    if at is None:
        return max((i + 1 for i, d in enumerate(target.domain) if d in touch), default=0)
    if at == "":
        return 0
    if at not in target.domain:
        rule = f"must be a domain loop of {target.name} ({', '.join(target.domain)}), got {at!r}"
        faults.append(schedule.fault(("channels", name, "at"), rule))
        return 0
    return target.domain.index(at) + 1


def contiguous(digits: Digits, strides: Mapping[str, int], digit: str) -> bool:
    return abs(strides[digits[digit].axis]) * digits[digit].stride == 1
