"""What a systolic array is in a Program beside its compute unit: how an operand that stays gets in,
and how serial folds wait for one another. `mapping/systolic.py` has the rules of time."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.program import Channel, Compute, Loop, Port, Unit
from hwspecs import Machine
from mapping.systolic import blocks_ahead, refill_cycles

ROW = "row"
"""Name of the loop over the rows of an array in the units that fill it."""


@dataclass(frozen=True)
class Preload:
    """A `preload` unit with the channels that it has with its array and the array's new ports."""

    unit: Unit
    channels: tuple[Channel, ...]
    array_input: Port
    array_output: Port


def rows_loop(machine: Machine) -> Loop:
    """The loop over the rows of an array, all of them whatever the block has."""
    assert machine.compute.systolic is not None
    return Loop(ROW, machine.compute.systolic.rows)


def preload(
    array: str,
    loops: tuple[Loop, ...],
    points: int,
    level: int,
    port: Port,
    machine: Machine,
) -> Preload:
    """The unit that shifts an operand into unit `array`, a row a firing and a block a fold.

    loops, points: the array's. level: the array's loop level inside which it holds a block. port:
    its input as it would be without a preload.
    """
    axes = {walk.axis: walk for box in port.boxes for walk in box}
    turning = tuple(
        loop if place < level else Loop(loop.digit, 1) for place, loop in enumerate(loops)
    )
    turning = (*turning[: max(level, points)], rows_loop(machine))
    name = f"{array} preload {port.value}"
    block, refill = f"{name} -> {array}", f"{array} -> {name}"
    ahead = blocks_ahead(machine)
    unit = Unit(
        name,
        "compute",
        turning,
        points,
        (Port(port.channels, len(turning), port.value, boxes=port.boxes), Port((refill,), level)),
        (Port((block,), level, port.value),),
        1,
        Compute((), axes),
        cells=0,
        within=array,
    )
    channels = (
        Channel(block, name, array, ahead, 0, 1, 0, "data", port.value),
        Channel(refill, array, name, ahead + 1, refill_cycles(machine, True), 1, ahead, "credit"),
    )
    given = Port((block,), level, port.value, boxes=port.boxes)
    return Preload(unit, channels, given, Port((refill,), level))


def next_fold(array: str, level: int, machine: Machine) -> tuple[Channel, Port] | None:
    """The token by which a serial fold of a result that stays lets the next one begin; the port
    is both ends'. None where folds overlap."""
    systolic = machine.compute.systolic
    assert systolic is not None
    if systolic.folds == "overlapped":
        return None
    name = f"{array} -> {array}: fold"
    return Channel(name, array, array, 2, refill_cycles(machine, False), 1, 1), Port((name,), level)
