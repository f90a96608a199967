"""Systolic mode: an einsum on an R x C array of multiply-accumulate cells, and its rules of time.

Modelled: the array takes one vector of each streamed operand a cycle (one firing); operand element
(r, .) enters row r a cycle after row r - 1 and meets column c after c more, so that a vector is
through R + C - 1 cycles after it entered (skewed fill and drain). An operand that stays is shifted
in row by row, R cycles a fold, whole rows of the array even where a block has fewer. A fold holds
one block and streams T vectors. Results that stay are summed while they wait; they leave through
registers of their own, a row a cycle, beside the next fold.

    serial       weight, input   F (2 R + C + T - 2 + o)
                 output          F (R + C + T - 2 + o)
    overlapped   weight, input   (F - 1) max(T, R) + 2 R + C + T - 2
                 output          (F - 1) max(T, R) + R + C + T - 2

with F folds, one after the other, and o = `overhead_cycles`. The count runs from the first cycle of
the first fold to the last result's way out of the array, feeding aside.

Sources: serial forms are SCALE-Sim's (Samajdar et al., ISPASS 2020; its 3.0 prints one cycle less),
which takes the whole array for every fold, so a partial fold costs no less: ours too, except that
T is what is really streamed. o is what STONNE (Munoz-Martinez et al., IISWC 2021) takes beyond that
form. The overlapped forms follow from a second register a cell (as in Jouppi et al., ISCA 2017).

How it stands in a Program, in terms of the ordinary contract:

* the array is a compute unit of latency 1, and its results' channels are R + C - 2 cycles longer;
  what is in the array's own pipeline takes no room in a FIFO, so they hold as many tokens more;
* an operand that stays comes through a `preload` unit in the array's own cell, which takes a row a
  firing and hands over a block a fold. The array returns a token for each block: in serial folds
  once the last vector is through (+ o), with overlapped ones as it enters, one block ahead;
* serial folds of a result that stays hand a token to themselves in the same way;
* a block of results leaves as one token, which the scratchpad behind takes in row by row.

Left out: stalls inside the array (a firing without operands waits and the pipeline drains), the
transposition that streaming a matrix by columns asks of a scratchpad, and sparsity.
"""

from __future__ import annotations

import math

from dataflow.streams.arrays import is_held, plan_name
from dataflow.streams.edge import Edge, StreamGraph
from dataflow.streams.node import StreamNode
from hwspecs.machine import Machine, Systolic


def fold_cycles(systolic: Systolic, dataflow: str, streamed: int) -> int:
    """Cycles of one serial fold that streams `streamed` vectors.

    >>> array = Systolic(rows=128, columns=128, dataflow="weight")
    >>> 64 * fold_cycles(array, "weight", 1024), 64 * fold_cycles(array, "output", 1024)
    (89984, 81792)
    """
    preload = 0 if dataflow == "output" else systolic.rows
    through = systolic.rows + systolic.columns - 1
    return preload + streamed - 1 + through + systolic.overhead_cycles


def array_cycles(systolic: Systolic, dataflow: str, folds: int, streamed: int) -> int:
    """Cycles of `folds` folds of `streamed` vectors each (the forms of the module's text)."""
    one = fold_cycles(systolic, dataflow, streamed)
    if systolic.folds == "serial":
        return folds * one
    return (folds - 1) * max(streamed, systolic.rows) + one


def folds_of(made: StreamGraph, node: StreamNode) -> tuple[int, int]:
    """Folds of one copy of a node on an array, and the vectors that each streams."""
    level = fold_level(made, node)
    outside = math.prod(made.trips(node, d) for d in node.loops[:level])
    inside = math.prod(made.trips(node, d) for d in node.loops[level:])
    return outside, inside


def fold_level(made: StreamGraph, node: StreamNode) -> int:
    """The loop level inside which the array's cells hold one block."""
    if node.array == "output":
        kept = (*node.emits, *(d for d in node.walk if d not in node.gone))
        return level_of(made, node, kept)
    held = [edge for edge in made.into(node.name) if is_held(node, edge)]
    return max((max(level_of(made, node, e.touch), e.common) for e in held), default=0)


def level_of(made: StreamGraph, node: StreamNode, digits: tuple[str, ...]) -> int:
    """The loop level just inside the last of `digits` that turns."""
    places = [
        place + 1
        for place, digit in enumerate(node.loops)
        if digit in digits and made.trips(node, digit) > 1
    ]
    return max(places, default=0)


def busy_cycles(made: StreamGraph, node: StreamNode, machine: Machine) -> int:
    """Cycles that one copy of a node on an array takes."""
    systolic = machine.compute.systolic
    assert systolic is not None
    return array_cycles(systolic, node.array, *folds_of(made, node))


def through_cycles(machine: Machine) -> int:
    """Cycles from the firing of the array unit until a vector is through, past its latency of 1."""
    systolic = machine.compute.systolic
    assert systolic is not None
    return systolic.rows + systolic.columns - 2


def refill_cycles(machine: Machine, held: bool) -> int:
    """Latency of the token by which an array asks for the next block or lets the next fold begin.

    held: whether the block is an operand, which with overlapped folds has a second register.
    """
    systolic = machine.compute.systolic
    assert systolic is not None
    if systolic.folds == "overlapped" and held:
        return 0
    return through_cycles(machine) + systolic.overhead_cycles


def blocks_ahead(machine: Machine) -> int:
    """Blocks of an operand that an array holds at once: the one in use and one being shifted in."""
    systolic = machine.compute.systolic
    assert systolic is not None
    return 2 if systolic.folds == "overlapped" else 1


def results_in_flight(made: StreamGraph, node: StreamNode, edge: Edge, machine: Machine) -> int:
    """Tokens on a channel out of the array beyond those of an ordinary FIFO."""
    if node.array != "output":
        return through_cycles(machine) + 1
    _, streamed = folds_of(made, node)
    return -(-(through_cycles(machine) + 1) // streamed)


def size_faults(made: StreamGraph, machine: Machine) -> list[str]:
    """Every node whose array is not on the machine or is too small for it, each with its place."""
    faults: list[str] = []
    systolic = machine.compute.systolic
    for node in made.nodes:
        if not node.array:
            continue
        plan = plan_name(made.schedule, node)
        if systolic is None:
            rule = f"must be left out: {machine.name} has no systolic arrays"
            faults.append(made.schedule.fault(("nodes", plan, "array"), rule))
            continue
        sides = [("vector", node.vector, node.lanes, systolic.columns, "columns")]
        sides += [("pack", digit, n, systolic.rows, "rows") for digit, n in node.pack.items()]
        for kind, digit, count, most, side in sides:
            if count > most:
                rule = f"must be at most {most}, the {side} of {machine.name}'s array, got {count}"
                faults.append(made.schedule.fault(("nodes", plan, kind, digit), rule))
    return faults
