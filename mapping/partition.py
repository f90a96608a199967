"""Partition: which stream nodes share a compute unit, and how many units one node takes.

A unit works as a pipeline of `stages` operations. Nodes are joined where one takes the beats of
the other as they leave: same copies, same loops (or the loops that are left once a reduction is
done), nothing held between them. A node that needs more stages than a unit has gets a chain.

Stages of a node, for every point of its packed digits:
    map, mask     the operation's stages in the machine file (1 by default)
    einsum        one multiply for each product, pack - 1 additions of products that are summed in
                  the same firing, the cross-lane tree where lanes run along a summed digit, and 1
                  where it accumulates over firings
    reduce        the same without the multiply
    total         terms - 1 additions, and 1 where it accumulates; more than FAN_IN terms take a
                  tree of units
    on an array   all of a unit's: it works in systolic mode, for this node alone
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dataflow.streams.edge import Edge, StreamGraph
from dataflow.streams.node import StreamNode
from hwspecs import Machine
from mapping.errors import MappingError, shortage

FAN_IN = 4
"""Partial results that one unit of a merge tree joins (rule 5 of the rules of time)."""


@dataclass(frozen=True)
class Group:
    """Stream nodes that run in one unit, or in a chain of `cells` units, in order of evaluation.

    `main` is the member whose loops are the unit's: the others run with it, or once it has reduced.
    Of its `cells` units `levels` follow one another: all of a chain, fewer of a tree of merges.
    """

    name: str
    main: str
    members: tuple[str, ...]
    stages: int
    cells: int
    levels: int = 1

    def latency_cycles(self, machine: Machine) -> int:
        """Cycles from a firing to its result, through the units and the wires between them."""
        wires = (self.levels - 1) * machine.network.channel_cycles
        return self.levels * machine.compute.latency_cycles + wires


@dataclass(frozen=True)
class Ports:
    """Input and output wires of a group, by kind."""

    vector_in: int
    scalar_in: int
    vector_out: int
    scalar_out: int


def partition(made: StreamGraph, machine: Machine) -> tuple[Group, ...]:
    """Join the compute nodes of `made` into groups that fit the machine's units.

    Raises MappingError where a single node has more inputs or outputs than a chain of its length.
    """
    return _Partition(made, machine).run()


def stages_of(made: StreamGraph, node: StreamNode, machine: Machine) -> int:
    """Pipeline stages that one unit spends on `node` (see the module's text)."""
    compute = machine.compute
    if node.array:
        return compute.stages
    kept = math.prod(n for d, n in node.pack.items() if d not in node.gone)
    summed = math.prod(n for d, n in node.pack.items() if d in node.gone)
    op = node.node.op
    if op in ("map", "mask"):
        name = node.node.fn if op == "map" else "mask"
        return kept * compute.operation(name).stages
    if node.merge or node.carried:
        terms = terms_of(made, node)
        return kept * max(1, (terms - 1) + bool(node.carried))
    products = max(0, len(node.node.args) - 1) if op == "einsum" else 0
    tree = compute.reduction_stages if node.vector in node.gone else 0
    beats = math.prod(made.trips(node, d) for d in node.gone)
    mul = compute.operation("mul").stages
    return kept * max(1, summed * products * mul + (summed - 1) + tree + (beats > 1))


def terms_of(made: StreamGraph, node: StreamNode) -> int:
    """How many partial results `node` joins at a firing."""
    terms = 1
    for edge in made.into(node.name):
        source = made.by_name[edge.source]
        for digit in node.merge:
            terms *= max(1, source.copies(digit) // node.copies(digit))
    return terms


def tree_of(made: StreamGraph, node: StreamNode, machine: Machine) -> tuple[int, int]:
    """Units of the tree that joins the parts of `node`, and its levels: 1, 1 where one will do.

    A unit joins FAN_IN parts, or as many as it has inputs for.
    """
    parts = terms_of(made, node) if node.merge else 1
    compute = machine.compute
    vectors = any(operand_wires(node, edge)[1] for edge in made.into(node.name))
    inputs = compute.vector_in + (0 if vectors else compute.scalar_in)
    joined = max(2, min(FAN_IN, inputs))
    levels = 1
    while joined**levels < parts:
        levels += 1
    return max(1, -(-(parts - 1) // (joined - 1))), levels


def ii_of(node: StreamNode, machine: Machine) -> int:
    """Cycles between two firings that the machine's table asks of `node`."""
    compute = machine.compute
    if node.node.op == "map":
        return compute.operation(node.node.fn).ii_cycles
    if node.node.op == "einsum":
        return max(compute.operation("mul").ii_cycles, compute.operation("add").ii_cycles)
    return 1


def operand_wires(node: StreamNode, edge: Edge) -> tuple[int, bool]:
    """How many beats of an operand a firing takes, and whether they are vectors.

    Packed scalars that come from one scratchpad read travel as the lanes of one vector.
    """
    if node.array:
        return 1, True  # a row or a column of a block a firing
    packed = math.prod(n for d, n in node.pack.items() if d in edge.touch)
    if node.vector in edge.touch and node.lanes > 1:
        return packed, True
    return 1, packed > 1


class _Partition:
    def __init__(self, made: StreamGraph, machine: Machine) -> None:
        self.made, self.machine = made, machine
        self.order = [n.name for n in made.nodes if n.kind == "compute"]
        self.group_of = {name: (name,) for name in self.order}
        self.stages = {n: stages_of(made, made.by_name[n], machine) for n in self.order}
        self.trees = {n: tree_of(made, made.by_name[n], machine) for n in self.order}
        self.place = {name: i for i, name in enumerate(self.order)}
        nodes = [made.by_name[name] for name in self.order]
        self.loops = {node.name: self._turning(node, node.loops) for node in nodes}

    def run(self) -> tuple[Group, ...]:
        for name in self.order:
            self._join(name)
        members = dict.fromkeys(self.group_of[name] for name in self.order)
        groups = tuple(self._group(names) for names in members)
        for group in groups:
            if not self.made.by_name[group.main].array:  # an array has a wire a row and column
                self._check_ports(group)
        return groups

    def _join(self, name: str) -> None:
        """Join `name` with as many of the groups it streams from as fit, all before some."""
        candidates = []
        for edge in self.made.into(name):
            group = self.group_of.get(edge.source)
            if group and group not in candidates and self._streams(edge):
                candidates.append(group)
        trials = [candidates] if len(candidates) > 1 else []
        trials += [[group] for group in candidates]
        for trial in trials:
            names = {name, *(member for group in trial for member in group)}
            joined = tuple(sorted(names, key=self.place.__getitem__))
            if self._fits(joined):
                for member in joined:
                    self.group_of[member] = joined
                return

    def _streams(self, edge: Edge) -> bool:
        """Whether the reader can take the writer's beats inside one unit."""
        if edge.kind != "fifo" or edge.depth or edge.last or edge.mapped:
            return False
        source, target = self.made.by_name[edge.source], self.made.by_name[edge.target]
        if source.kind != "compute" or source.carried or target.merge:
            return False
        if dict(source.unroll) != dict(target.unroll):
            return False
        return self._turning(source, source.emission) == self.loops[target.name]

    def _turning(self, node: StreamNode, digits: Iterable[str]) -> list[tuple[str, int, int]]:
        """Loops with their trips and grain, and what is packed, single trips left out."""
        found = []
        for digit in digits:
            trips = self.made.trips(node, digit)
            packed = node.grain(digit) * node.pack.get(digit, 1)
            if trips > 1 or packed > 1:
                found.append((digit, trips, packed))
        return found

    def _fits(self, names: tuple[str, ...]) -> bool:
        if sum(self.stages[name] for name in names) > self.machine.compute.stages:
            return False
        if any(self.trees[name][0] > 1 for name in names):
            return False
        inside = set(names)
        deepest = max(len(self.loops[name]) for name in names)
        if len({tuple(self.loops[n]) for n in names if len(self.loops[n]) == deepest}) > 1:
            return False
        if any(self.made.by_name[n].domain != self.made.by_name[names[0]].domain for n in names):
            return False
        for edge in self.made.edges:
            if edge.source in inside and edge.target in inside:
                if edge.earlier and edge.kind == "fifo" and not edge.mapped:
                    continue
                if not self._streams(edge):
                    return False
        return not self._leaves_and_returns(inside) and self._within(self._ports(names), 1)

    def _leaves_and_returns(self, inside: set[str]) -> bool:
        """Whether a path leaves the group and comes back before the unit can go on: at the same
        point, or at the next one of an axis that is collected on the way. A unit cannot wait for
        itself."""
        waiting = [(name, frozenset[str]()) for name in inside]
        seen = set(waiting)
        while waiting:
            name, collected = waiting.pop()
            for edge in self.made.out_of(name):
                if name in inside and edge.target in inside:
                    continue
                if edge.earlier and edge.earlier not in collected:
                    continue
                reached = collected | self._collected(edge)
                # A path may run through the other members of any group that it enters.
                for member in self.group_of.get(edge.target, (edge.target,)):
                    if member in inside:
                        return True
                    if (member, reached) not in seen:
                        seen.add((member, reached))
                        waiting.append((member, reached))
        return False

    def _collected(self, edge: Edge) -> frozenset[str]:
        """Axes along which a whole pass has come before the reader sees any of it."""
        source, target = self.made.by_name[edge.source], self.made.by_name[edge.target]
        digits = {*target.carried, *target.gone}
        if edge.kind == "scratchpad":
            outside = target.domain[: edge.common]
            digits |= {d for d in source.emission if d not in outside}
        return frozenset(self.made.digits[d].axis for d in digits)

    def _ports(self, names: tuple[str, ...]) -> Ports:
        inside = set(names)
        counts = {"vector_in": 0, "scalar_in": 0, "vector_out": 0, "scalar_out": 0}
        seen: set[tuple[str, str, bool]] = set()
        for edge in self.made.edges:
            if edge.target in inside and edge.source not in inside:
                key = (edge.source, edge.earlier, edge.kind == "scratchpad")
                if key not in seen:
                    seen.add(key)
                    node = self.made.by_name[edge.target]
                    wires, vector = operand_wires(node, edge)
                    wires *= terms_of(self.made, node) if node.merge else 1
                    counts["vector_in" if vector else "scalar_in"] += wires
        for name in names:
            node = self.made.by_name[name]
            if any(e.source == name and e.target not in inside for e in self.made.edges):
                packed = math.prod(n for d, n in node.pack.items() if d not in node.gone)
                wide = node.lanes > 1 and node.vector not in node.gone
                counts["vector_out" if wide else "scalar_out"] += packed
        return Ports(**counts)

    def _within(self, ports: Ports, cells: int) -> bool:
        return not list(self._over(ports, cells))

    def _over(self, ports: Ports, cells: int) -> Iterable[tuple[str, int, int]]:
        """Kinds of wires of which there are too few: (kind, needed, there are).

        A scalar may come or leave on a vector wire.
        """
        compute = self.machine.compute
        for side in ("in", "out"):
            vector = getattr(ports, f"vector_{side}")
            scalar = getattr(ports, f"scalar_{side}")
            vectors = cells * getattr(compute, f"vector_{side}")
            scalars = cells * getattr(compute, f"scalar_{side}")
            if vector > vectors:
                yield f"vector_{side}", vector, vectors
            elif scalar > scalars + vectors - vector:
                yield f"scalar_{side}", scalar, scalars + vectors - vector

    def _group(self, names: tuple[str, ...]) -> Group:
        stages = sum(self.stages[name] for name in names)
        main = max(names, key=lambda name: len(self.loops[name]))
        chained = -(-stages // self.machine.compute.stages)
        joined, levels = self.trees[main]
        cells = max(chained, joined)
        return Group(names[-1], main, names, stages, cells, levels if joined > 1 else cells)

    def _check_ports(self, group: Group) -> None:
        for kind, needed, available in self._over(self._ports(group.members), group.cells):
            hint = "pack fewer points of a digit in one firing"
            line = shortage(f"node {group.name}", kind, needed, available, hint)
            raise MappingError(line, resource=kind, needed=needed, available=available)


def group_map(groups: Iterable[Group]) -> Mapping[str, Group]:
    """The group of every compute node."""
    return {name: group for group in groups for name in group.members}
