"""Proven lower bounds on cycles: of a kernel on a machine, and of one mapping of it.

`bound` holds for every mapping that computes each node of the graph once at each of its points,
under the rules of time. It is the largest of four parts; each of their functions has its proof.
`program_bound` holds for one Program and is the tighter the better its units are known.
Cycles below a bound are a bug; cycles far above it name what the mapping should mend.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dataflow import network_plan
from dataflow.graph import Graph, Node, Output, live
from dataflow.index import Affine
from dataflow.ops import contracted, elements_of
from dataflow.program import Access, AxisWalk, Program, Unit
from hwspecs import Machine
from hwspecs.machine import DATA_BYTES

MOST_POINTS = 1 << 22  # of an index map that are listed; beyond it counts as touching nothing
_MOVES = ("read", "earlier", "last")


@dataclass(frozen=True)
class Bound:
    """At least `cycles`, because of the resource `by`; `parts` has what each resource asks alone.

    `at` names the unit that binds, where it is a single one.
    """

    cycles: int
    by: str
    parts: Mapping[str, int]
    at: str = ""


def bound(graph: Graph, machine: Machine) -> Bound:
    """Return a lower bound on the cycles of `graph` on `machine`, whatever the mapping.

    Parts: "compute", "off_chip", "recurrence" and "latency". Ties go to the first.
    """
    graph = live(graph)
    parts = {
        "compute": compute_cycles(graph, machine),
        "off_chip": off_chip_cycles(graph, machine),
        "recurrence": recurrence_cycles(graph, machine),
        "latency": latency_cycles(graph, machine),
    }
    by = max(parts, key=parts.__getitem__)
    return Bound(parts[by], by, parts)


def compute_cycles(graph: Graph, machine: Machine) -> int:
    """Return the operations of `graph` over the operations a cycle of `machine`, rounded up.

    Proof: a compute unit fires at most once a cycle, and a firing gives each of its
    `lanes x stages` slots one operation; so a run of T cycles has at most
    T x units x lanes x stages of them, and needs operation_slots of every node. A unit in systolic
    mode gives at most rows x columns products and as many additions a firing.
    """
    slots = sum(operation_slots(node, graph, machine) for node in graph.nodes)
    return math.ceil(slots / (machine.peak_ops_per_cycle + _beyond_simd(machine)))


def _beyond_simd(machine: Machine) -> int:
    """Slots a cycle by which units with a systolic mode exceed as many without one."""
    compute = machine.compute
    if compute.systolic is None:
        return 0
    mul = compute.operation("mul")
    worth = compute.systolic.rows * compute.systolic.columns * (mul.stages * mul.ii_cycles + 1)
    return machine.arrays * max(0, worth - compute.lanes * compute.stages)


def _least_latency_cycles(machine: Machine) -> int:
    """The least time from a firing of a compute unit to its result's way out, in either mode."""
    systolic = machine.compute.systolic
    if systolic is None:
        return machine.compute.latency_cycles
    return min(machine.compute.latency_cycles, systolic.rows + systolic.columns - 1)


def operation_slots(node: Node, graph: Graph, machine: Machine) -> int:
    """Return the least number of lane-stage slots that any mapping spends on `node`.

    * map, mask: at each point the operation's stages, each for its initiation interval. What a map
      repeats along axes that its arguments lack may be computed once. identity is free.
    * einsum: each product of n arguments takes n - 1 multiplies; a sum of K terms takes K - 1
      additions, however it is ordered: over time, over lanes, by a tree of units. A cross-lane
      reduction of R stages takes R slots of each of its lanes, which is less only where R = 0.
    * einsum of a type that packs P to a lane: K / P multiplies of P products, and either at least
      one stage that adds the P and K / P - 1 additions, or R stages of reduction; the lesser.
    * reduce: its sums, as an einsum's. const, read, earlier, last: none.
    """
    compute = machine.compute
    if node.op in ("map", "mask"):
        if node.fn == "identity":
            return 0
        row = compute.operation(node.fn if node.op == "map" else "mask")
        fed = {axis for arg in node.args for axis in graph.node(arg).axes}
        fed |= {name for form in node.index for name in form.symbols()}
        points = math.prod(graph.shape(axis for axis in node.axes if axis in fed))
        return points * row.stages * row.ii_cycles
    if node.op not in ("einsum", "reduce"):
        return 0
    terms = math.prod(graph.shape(contracted(node, graph)))
    reduction = compute.reduction_stages
    sums = min(terms - 1, reduction * terms)
    if node.op == "reduce":
        return elements_of(node, graph) * max(0, sums)
    mul = compute.operation("mul")
    multiply = (len(node.args) - 1) * mul.stages * mul.ii_cycles
    slots = terms * multiply + sums
    packed = -(-terms // compute.packing)
    if compute.packing > 1:
        slots = min(slots, packed * multiply + min(2 * packed - 1, reduction * packed))
    return elements_of(node, graph) * max(0, slots)


def off_chip_cycles(graph: Graph, machine: Machine) -> int:
    """Return the bytes that must cross the pins over the peak bytes a cycle, rounded up.

    Proof: every element of an input that the graph reads comes in at least once, every element of
    an output goes out at least once, and reads and writes share pins of the peak rate. Constants
    may be generated, and results without axes go to the host's registers: neither counts.
    """
    elements = sum(input_elements(node, graph) for node in graph.inputs)
    elements += sum(output_elements(output, graph) for output in graph.outputs)
    return _at_peak(elements * DATA_BYTES[machine.data_type], machine)


def _at_peak(moved_bytes: int, machine: Machine) -> int:
    # Rates are given in bytes a second; dividing first would round twice.
    peak = Fraction(machine.off_chip.peak_bytes_per_s) * machine.off_chip.channels
    return math.ceil(moved_bytes * Fraction(machine.clock_hz) / peak)


def input_elements(node: Node, graph: Graph) -> int:
    """Return how many elements of an input are read at all, each counted once."""
    shape = graph.shape(node.axes)
    readers = graph.consumers(node.name)
    outputs = any(output.node == node.name for output in graph.outputs)
    if outputs or any(reader.op not in _MOVES for reader in readers):
        return math.prod(shape)
    return touched([_reach(reader, node, graph) for reader in readers], shape, graph.axes)


def _reach(reader: Node, source: Node, graph: Graph) -> tuple[Affine, ...]:
    """The index map by which a read, earlier or last sees its source."""
    if reader.op == "read":
        return reader.index
    forms = {axis: Affine(((axis, 1),)) for axis in source.axes}
    if reader.op == "last":
        forms[reader.axis] = Affine((), graph.extent(reader.axis) - 1)
    elif reader.axis in forms:
        forms[reader.axis] = Affine(((reader.axis, 1),), -1)
    return tuple(forms.values())


def output_elements(output: Output, graph: Graph) -> int:
    """Return how many elements of an output tensor are written, each counted once."""
    return touched([output.index], graph.shape(output.axes), graph.axes) if output.axes else 0


def touched(
    maps: Sequence[tuple[Affine, ...]], shape: tuple[int, ...], extents: Mapping[str, int]
) -> int:
    """Return the size of the union of the images of index maps, inside `shape`.

    Where forms of one map share axes and have too many points to list, that map counts as touching
    nothing; where the tensor is too large to mark, the largest image counts. Never too many.

    >>> touched([(Affine((("i", 2),)),), (Affine((("i", 1),)),)], (6,), {"i": 3})
    4
    """
    images = [_image(forms, shape, extents) for forms in maps]
    if len(images) == 1 or math.prod(shape) > 1 << 26:
        return max((_size(image) for image in images), default=0)
    marked = np.zeros(shape, bool)
    for image in images:
        marked[np.ix_(*image) if isinstance(image, list) else image] = True
    return int(marked.sum())


_Image = list[np.ndarray] | tuple[np.ndarray, ...]  # indices an axis, or of points one by one


def _size(image: _Image) -> int:
    if isinstance(image, list):
        return math.prod(len(indices) for indices in image)
    return len(image[0])


def _image(forms: tuple[Affine, ...], shape: tuple[int, ...], extents: Mapping[str, int]) -> _Image:
    symbols = [name for form in forms for name in form.symbols()]
    if len(set(symbols)) == len(symbols):
        return [_values(f, size, extents) for f, size in zip(forms, shape, strict=True)]
    names = sorted(set(symbols))
    sizes = [extents[name] for name in names]
    if math.prod(sizes) > MOST_POINTS:
        return tuple(np.zeros(0, int) for _ in forms)
    at = dict(zip(names, np.indices(sizes).reshape(len(names), -1), strict=True))
    rows = np.stack([np.broadcast_to(f.evaluate(at), math.prod(sizes)) for f in forms])
    inside = np.all((rows >= 0) & (rows < np.array(shape)[:, None]), axis=0)
    return tuple(np.unique(rows[:, inside], axis=1))


def _values(form: Affine, size: int, extents: Mapping[str, int]) -> np.ndarray:
    """The sorted values from 0 to size - 1 that an affine form takes."""
    values = np.array([form.constant])
    for name, coefficient in form.terms:
        steps = coefficient * np.arange(extents[name])
        few, many = sorted((steps, values), key=len)
        low = int(steps.min() + values.min())
        seen = np.zeros(int(steps.max() + values.max()) - low + 1, bool)
        for one in few:
            seen[many + (one - low)] = True
        values = np.flatnonzero(seen) + low
    return values[(values >= 0) & (values < size)]


def recurrence_cycles(graph: Graph, machine: Machine) -> int:
    """Return the longest time that any `earlier` needs to run through its axis.

    Proof: let T(t) be when the first element of the carried value at point t is known. On a
    cycle through n einsums or reductions over more than one point, an element at t needs results
    that lanes or beats apart have given: each leaves the end of a unit's pipeline and comes back
    through a channel, L = latency + channel cycles. So T(0) >= n L, T(t) >= T(t-1) + n L, and the
    run takes extent x n L. Without one the value can stay in its lane: T(t) >= T(t-1) + the
    accumulator's latency. Cycles through a mask, or a read that may leave its source, are left
    out: there an element need not depend on the point before.
    """
    exchange = _least_latency_cycles(machine) + machine.network.channel_cycles
    longest = 0
    for node in graph.nodes:
        if node.op == "earlier":
            exchanges = _exchanges(node, graph)
            extent = graph.extent(node.axis)
            if exchanges is not None:
                kept = (extent - 1) * machine.compute.accumulate_latency_cycles + 1
                longest = max(longest, extent * exchanges * exchange, kept)
    return longest


def _exchanges(before: Node, graph: Graph) -> int | None:
    """The most contractions on a path from an `earlier` to what it carries; None for no path."""
    most = {before.name: 0}
    for node in graph.nodes:
        reached = [most[name] for name in node.sources_now if name in most]
        if reached and node.name != before.name and _depends(node, graph):
            summed = math.prod(graph.shape(contracted(node, graph))) > 1
            most[node.name] = max(reached) + summed
    return most.get(before.args[0])


def _depends(node: Node, graph: Graph) -> bool:
    """Whether every element of a node surely depends on some element of its arguments."""
    if node.op == "read":
        shape = graph.shape(graph.node(node.args[0]).axes)
        spans = [form.bounds(graph.axes) for form in node.index]
        inside = zip(spans, shape, strict=True)
        return all(low >= 0 and high < size for (low, high), size in inside)
    return node.op not in ("mask", "earlier")


def latency_cycles(graph: Graph, machine: Machine) -> int:
    """Return the time that the first element takes from an input to an output.

    Proof: a stored result needs a store's generator and the memory's latency until its
    acknowledgement; one that is computed needs at least one unit and one channel before that; one
    that depends on an input needs at least one load before that, its generator, the memory's
    latency, one cycle of the load unit and a channel.
    """
    generator = machine.generators.latency_cycles
    load = generator + machine.off_chip_access_cycles(writes=False)
    store = generator + machine.off_chip_access_cycles(writes=True)
    channel = machine.network.channel_cycles
    longest = 0
    for output in graph.outputs:
        node = graph.node(output.node)
        while (node.op in _MOVES and node.args) or node.fn == "identity":
            node = graph.node(node.args[0])
        cycles = store if output.axes else 0
        if node.op not in ("input", "const"):
            cycles += _least_latency_cycles(machine) + channel
        if _needs_input(node, graph):
            cycles += load + 1 + channel
        longest = max(longest, cycles)
    return longest


def _needs_input(node: Node, graph: Graph) -> bool:
    seen, waiting = {node.name}, [node]
    while waiting:
        here = waiting.pop()
        if here.op == "input":
            return True
        for name in here.sources:
            if name not in seen:
                seen.add(name)
                waiting.append(graph.node(name))
    return False


def program_bound(program: Program) -> Bound:
    """Return a lower bound on the cycles of one Program, placed or not.

    Parts: "compute", "scratchpad" and "generator", each its busiest unit: firings are at least an
    initiation interval apart; "off_chip": the bytes that load and store units move, each time they
    move them, at the peak rate; "links", where packets share them: the flits that cross the busiest
    link, which takes one a cycle.
    """
    kinds = {"compute": "compute", "write": "scratchpad", "read": "scratchpad"}
    kinds |= {"load": "generator", "store": "generator"}
    parts: dict[str, int] = {"compute": 0, "off_chip": 0, "scratchpad": 0, "generator": 0}
    busiest: dict[str, str] = {}
    for unit in program.units:
        kind = kinds.get(unit.kind)
        cycles = (unit.firings - 1) * unit.ii_cycles + 1
        if kind and cycles > parts[kind]:
            parts[kind], busiest[kind] = cycles, unit.name
    sizes = {tensor.name: tensor.element_bytes for tensor in program.tensors}
    shapes = {tensor.name: tensor.shape for tensor in program.tensors}
    moved_bytes = sum(
        moved_elements(unit, unit.work, shapes[unit.work.tensor]) * sizes[unit.work.tensor]
        for unit in program.units
        if isinstance(unit.work, Access)
    )
    parts["off_chip"] = _at_peak(moved_bytes, program.machine)
    shared = network_plan.plan(program)
    if shared is not None:
        parts["links"] = max(network_plan.link_flits(program, shared))
    by = max(parts, key=parts.__getitem__)
    return Bound(parts[by], by, parts, busiest.get(by, ""))


def moved_elements(unit: Unit, access: Access, shape: tuple[int, ...]) -> int:
    """Return how many elements a load or store unit moves in a run, repeats counted.

    Points outside the tensor move nothing. An access whose index forms join axes with too many
    points to list counts as moving nothing, so that the bound stays one.
    """
    trips = [loop.trips for loop in unit.loops[: unit.points]]
    used: set[int] = set()
    counts: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for walk in access.box:
        counts[walk.axis] = _coordinates(walk, trips, used)
    repeats = math.prod(count for loop, count in enumerate(trips) if loop not in used)
    names = [walk.axis for walk in access.box]
    joined = [form for form in access.index if len(form.symbols()) > 1]
    for form, size in zip(access.index, shape, strict=True):
        symbols = form.symbols()
        if len(symbols) == 1:
            coordinates, times = counts[symbols[0]]
            values = form.evaluate({symbols[0]: coordinates})
            counts[symbols[0]] = (coordinates, times * ((values >= 0) & (values < size)))
        elif not symbols and not 0 <= form.constant < size:
            return 0
    mixed = sorted({name for form in joined for name in form.symbols()})
    total = math.prod(int(counts[name][1].sum()) for name in names if name not in mixed)
    return repeats * total * _joined(access, shape, mixed, counts)


def _coordinates(walk: AxisWalk, trips: list[int], used: set[int]) -> tuple[np.ndarray, np.ndarray]:
    """The coordinates of an axis that a unit visits in a whole run, and how often each.

    The loops that count its pieces are added to `used`.
    """
    visits = np.zeros(1, int)
    for digit in walk.digits:
        index = np.zeros(1, int)
        for piece in digit.pieces:
            if piece.loop is None:
                counted = np.arange(piece.copy, piece.count, piece.copies)
            else:
                used.add(piece.loop)
                counted = np.arange(trips[piece.loop]) * piece.copies + piece.copy
                counted = counted[counted < piece.count]
            index = np.add.outer(index, piece.step * counted).ravel()
        index = index[index < digit.extent]
        visits = np.add.outer(visits, digit.stride * index).ravel()
    coordinates, times = np.unique(visits[visits < walk.extent], return_counts=True)
    return coordinates, times


def _joined(
    access: Access,
    shape: tuple[int, ...],
    names: list[str],
    counts: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> int:
    """Visits inside the tensor over the axes that forms of several axes join."""
    if math.prod(len(counts[name][0]) for name in names) > MOST_POINTS:
        return 0
    at = dict(zip(names, np.ix_(*(counts[name][0] for name in names)), strict=True))
    times: np.ndarray = np.ones((1,) * len(names), int)
    for weight in np.ix_(*(counts[name][1] for name in names)):
        times = times * weight
    for form, size in zip(access.index, shape, strict=True):
        if len(form.symbols()) > 1:
            values = form.evaluate(at)
            times = times * ((values >= 0) & (values < size))
    return int(times.sum())
