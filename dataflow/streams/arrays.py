"""Einsums on systolic arrays: what the schedule must say of one, and which operand stays inside.

A beat of lanes runs along the array's columns (`vector`), packed points along its rows (`pack`).

    holds     rows are          columns are          streamed, a row of the other operand a firing
    weight    the summed digit  a digit of args[1]   what is left of the result's digits
    input     the summed digit  a digit of args[0]   what is left of the result's digits
    output    a result's digit  a result's digit     the summed digits, both operands

A *fold* is the run of firings for which the cells hold the same block. `mapping/systolic.py` has
its time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dataflow.schedule import Schedule
from dataflow.streams.digits import Digits
from dataflow.streams.edge import Edge
from dataflow.streams.node import StreamNode
from dataflow.streams.split import Streams


def is_held(node: StreamNode, edge: Edge) -> bool:
    """Whether `edge` brings the operand that stays in the cells of the array that runs `node`."""
    return node.array in ("weight", "input") and node.vector in edge.touch


def waits_beside_array(source: StreamNode, target: StreamNode, edge: Edge) -> bool:
    """Whether a channel must be a scratchpad: it brings rows to an array, or takes a block of rows
    out of one."""
    if target.array and (is_held(target, edge) or any(d in edge.touch for d in target.pack)):
        return True
    return bool(source.array) and any(d in source.emission for d in source.pack)


def array_faults(
    made: Streams, nodes: Mapping[str, StreamNode], edges: Iterable[Edge]
) -> list[str]:
    """Every node on an array whose schedule does not fit the table above."""
    faults: list[str] = []
    for node in nodes.values():
        if node.array:
            faults += _faults(made, node)
    for edge in edges:
        node = nodes[edge.target]
        if is_held(node, edge) and (edge.earlier or edge.last or edge.mapped):
            rule = f"must be left out: {edge.value} is taken of another point, and cannot stay"
            path = ("nodes", plan_name(made.schedule, node), "array")
            faults.append(made.schedule.fault(path, rule))
    return faults


def plan_name(schedule: Schedule, node: StreamNode) -> str:
    """The name under which the schedule has the settings of a node on an array."""
    return node.name if node.name in schedule.nodes else node.name.removesuffix(".part")


def _faults(made: Streams, node: StreamNode) -> Iterator[str]:
    schedule, digits = made.schedule, made.digits
    at = ("nodes", plan_name(schedule, node))
    if node.node.op != "einsum" or len(node.node.args) != 2:
        why = "a systolic array multiplies two matrices"
        yield schedule.fault(
            (*at, "array"), f"must be left out: {node.name} is no einsum of two arguments; {why}"
        )
        return
    first, second = (made.graph.node(name).axes for name in node.node.args)
    held, other = (second, first) if node.array == "weight" else (first, second)
    if not node.vector or node.vector in node.gone:
        yield schedule.fault(
            (*at, "vector"), "must be a digit of the result: the columns of the array"
        )
        return
    if len(node.pack) > 1:
        rule = f"must be a single digit, the rows of the array, got {', '.join(node.pack)}"
        yield schedule.fault((*at, "pack"), rule)
        return
    rows = next(iter(node.pack), "")
    columns = digits[node.vector].axis
    if node.array == "output":
        yield from _output_faults(schedule, digits, node, at, rows, (first, second))
        return
    if columns not in held or columns in other:
        name = node.node.args[1 if node.array == "weight" else 0]
        rule = f"must be a digit of {name} alone, the operand that stays, got {node.vector}"
        yield schedule.fault((*at, "vector", node.vector), rule, True)
    for digit in node.gone:
        size = digits[digit].extent
        if size > (node.pack[digit] if digit == rows else 1):
            rule = f"must name {digit} with all its {size} points: the rows of an array sum them"
            yield schedule.fault((*at, "pack"), f"{rule}; tile {digits[digit].axis} for fewer")
    if rows and rows not in node.gone:
        rule = "must be a summed digit where an operand stays in the array"
        yield schedule.fault((*at, "pack", rows), f"{rule}, got {rows}", True)


def _output_faults(
    schedule: Schedule,
    digits: Digits,
    node: StreamNode,
    at: tuple[str, ...],
    rows: str,
    operands: tuple[tuple[str, ...], tuple[str, ...]],
) -> Iterator[str]:
    columns = digits[node.vector].axis
    having = [columns in axes for axes in operands]
    if all(having):
        rule = f"must be a digit of one operand alone, got {node.vector}"
        yield schedule.fault((*at, "vector", node.vector), rule, True)
    if rows:
        axis = digits[rows].axis
        if rows in node.gone or [axis in axes for axes in operands] == having or axis == columns:
            rule = "must be a digit of the result that the operand with the columns lacks"
            yield schedule.fault((*at, "pack", rows), f"{rule}, got {rows}", True)
    places = [i for i, d in enumerate(node.walk) if d not in node.gone and digits[d].extent > 1]
    early = [d for d in node.walk[: max(places, default=0)] if d in node.gone]
    early = [d for d in early if digits[d].extent > 1]
    if early:
        rule = f"must have the summed digits innermost, got {early[0]} before a digit of the result"
        yield schedule.fault((*at, "walk"), f"{rule}; the array holds one block of it at a time")
