"""Which nodes share a unit, and how many units a node takes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwspecs
from dataflow.graph import Builder
from dataflow.kernels import build
from dataflow.nodes import Graph
from dataflow.schedule import NodeSchedule, Schedule, ScheduleError
from dataflow.streams import stream
from mapping import MappingError
from mapping.building.program import build as build_program
from mapping.partition import Group, group_map, partition
from mapping.resources import needs
from tests.cross.random_schedules import CASES, graph_of, random_schedule, roomy

MACHINE = hwspecs.load("plasticine")  # 16 lanes, 6 stages, 3 vector inputs


def _groups(graph: Graph, schedule: Schedule) -> tuple[Group, ...]:
    return partition(stream(graph, schedule), MACHINE)


def _chain(length: int) -> Graph:
    g = Builder("chain", n=64)
    x = g.input("x", "n")
    for i in range(length):
        x = g.map("exp", x, name=f"x{i}")
    g.output("y", x)
    return g.build()


@pytest.mark.parametrize(("length", "units"), [(1, 1), (6, 1), (7, 2), (13, 3)])
def test_pointwise_chain_fills_units_of_six_stages(length: int, units: int) -> None:
    groups = _groups(_chain(length), Schedule())
    assert len(groups) == units
    assert [group.stages for group in groups[:-1]] == [6] * (units - 1)


@pytest.mark.parametrize(
    ("vector", "pack", "stages"),
    [
        ({"k": 16}, {}, 6),  # multiply, four levels of the tree, accumulate
        ({"j": 16}, {}, 2),  # multiply, accumulate
        ({"j": 16}, {"i": 3}, 6),  # three of those
        ({"j": 16}, {"k": 2}, 4),  # two multiplies, an addition, accumulate
    ],
)
def test_stages_of_a_product(vector: dict, pack: dict, stages: int) -> None:
    graph = build("gemm", {"i": 64, "j": 64, "k": 64})
    schedule = Schedule(nodes={"c": NodeSchedule(vector=vector, pack=pack)})
    (group,) = _groups(graph, schedule)
    assert (group.stages, group.cells) == (stages, 1)


@pytest.mark.parametrize(
    ("copies", "cells", "levels"),
    [(2, 1, 1), (4, 1, 1), (5, 2, 2), (7, 2, 2), (8, 3, 2), (16, 5, 2), (17, 6, 3)],
)
def test_partial_sums_meet_in_a_tree_of_four_a_unit(copies: int, cells: int, levels: int) -> None:
    # a unit joins 4 values, each further one 3 more; 4, 16, 64 values are 1, 2, 3 levels
    nodes = {name: NodeSchedule(unroll={"n.o": copies}) for name in ("square", "total.part")}
    schedule = Schedule(tile={"n": 4}, time=("n.o",), nodes=nodes)
    total = _groups(build("sum_square", {"n": 128}), schedule)[-1]
    assert (total.members, total.cells, total.levels) == (("total",), cells, levels)
    # 6 cycles a level, a channel of 2 between them
    assert total.latency_cycles(MACHINE) == levels * 6 + (levels - 1) * 2


@pytest.mark.parametrize(
    ("machine", "cells", "levels"),
    # 7 vectors: 4 + 3 inputs left of 2 x 4; of units with 3 inputs the first joins 3, two more 2
    [("tungsten_20x20", 2, 2), ("plasticine", 3, 2)],
)
def test_partial_vectors_have_an_input_each_in_their_tree(machine, cells, levels) -> None:
    nodes = {"x": NodeSchedule(vector={"d": 16}, unroll={"n": 7})}
    schedule = Schedule(time=("n",), nodes=nodes | {"acc": NodeSchedule(vector={"d": 16})})
    graph = build("accumulate_buffer", {"n": 14, "d": 32})
    total = partition(stream(graph, schedule), hwspecs.load(machine))[-1]
    assert (total.cells, total.levels) == (cells, levels)


def test_product_with_more_stages_than_a_unit_gets_a_chain() -> None:
    graph = build("gemm", {"i": 64, "j": 64, "k": 64})
    schedule = Schedule(nodes={"c": NodeSchedule(vector={"j": 16}, pack={"i": 4})})
    (group,) = _groups(graph, schedule)
    assert (group.stages, group.cells) == (8, 2)


def test_node_with_more_vector_operands_than_ports_is_refused() -> None:
    # Four vectors of b a firing, three ports; six scalars of a fit.
    graph = build("gemm", {"i": 64, "j": 64, "k": 64})
    machine = MACHINE.model_copy(
        update={"compute": MACHINE.compute.model_copy(update={"stages": 16})}
    )
    schedule = Schedule(nodes={"c": NodeSchedule(vector={"j": 16}, pack={"k": 4})})
    with pytest.raises(MappingError) as caught:
        partition(stream(graph, schedule), machine)
    assert (caught.value.needed, caught.value.available) == (5, 3)


def test_a_unit_does_not_wait_for_itself() -> None:
    # x -> max -> sub and x -> sub: sub must not share the unit of x, since max lies between.
    graph = build("softmax", {"rows": 16, "n": 8})
    schedule = Schedule(time=("rows",), walk=("n",))
    for group in _groups(graph, schedule):
        assert not {"r", "s.shifted"} <= set(group.members)


def test_counts_before_building_are_those_of_the_program() -> None:
    graph = build("attention", {"n": 64, "d": 16})
    schedule = Schedule(
        tile={"n": 16},
        time=("batch", "heads", "n.o", "m.b"),
        nodes={"s": NodeSchedule(vector={"n": 16}, pack={"m.i": 3}, unroll={"m.i": 2})},
    )
    made = stream(graph, schedule)
    groups = partition(made, MACHINE)
    program = build_program(made, groups, MACHINE)
    counted = needs(made, groups, MACHINE)
    assert counted.compute == sum(u.cells for u in program.units if u.kind == "compute")
    assert counted.memory == sum(pad.cells for pad in program.scratchpads)
    assert counted.generators == sum(u.kind in ("load", "store") for u in program.units)


def test_nodes_with_copies_of_their_own_are_apart() -> None:
    schedule = Schedule(nodes={"x1": NodeSchedule(unroll={"n": 2})})
    members = [group.members for group in _groups(_chain(3), schedule)]
    assert members == [("x0",), ("x1",), ("x2",)]


def test_nodes_that_wait_for_a_scratchpad_or_a_deep_fifo_are_apart() -> None:
    for text in ("{locality: scratchpad}", "{depth: 40}"):
        schedule = Schedule.from_yaml(f"{{channels: {{x0 -> x1: {text}}}}}")
        assert [g.members for g in _groups(_chain(2), schedule)] == [("x0",), ("x1",)]


def test_a_unit_does_not_wait_for_itself_by_way_of_the_point_before() -> None:
    # r of all blocks is collected before a score is shifted; l follows from those scores, and
    # the l of the block before is what l.kept scales: it must not share the unit of r.
    graph = build("softmax", {"rows": 2, "n": 8}, {"block": 2}, rewrites=("online_softmax",))
    schedule = Schedule(tile={"n.i": 1}, time=("n.i.o", "n.b"))
    for group in partition(stream(graph, schedule), roomy(16)):
        assert not {"r", "l.kept"} <= set(group.members)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(case=st.sampled_from(sorted(CASES)), seed=st.integers(0, 2**32 - 1))
def test_groups_share_out_the_nodes_and_wait_in_no_circle(case: str, seed: int) -> None:
    machine = roomy(6)
    try:
        made = stream(graph_of(case), random_schedule(graph_of(case), random.Random(seed)), 4)
    except ScheduleError:
        return
    groups = partition(made, machine)
    members = [name for group in groups for name in group.members]
    assert sorted(members) == sorted(n.name for n in made.nodes if n.kind == "compute")
    for group in groups:
        assert group.main in group.members
        assert group.cells == -(-group.stages // machine.compute.stages)
        assert group.cells == 1 or len(group.members) == 1
    owner = group_map(groups)
    after: dict[str, set[str]] = {}
    for edge in made.edges:
        ends = [owner[n].name if n in owner else n for n in (edge.source, edge.target)]
        if not edge.earlier and ends[0] != ends[1]:
            after.setdefault(ends[0], set()).add(ends[1])
    while after:
        last = {name for names in after.values() for name in names} - set(after)
        assert last, f"a circle among {sorted(after)}"
        after = {name: left for name, names in after.items() if (left := names - last)}
