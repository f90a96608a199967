"""Which nodes share a unit, and how many units a node takes."""

import pytest

import hwspecs
from dataflow.graph import Builder
from dataflow.kernels import build
from dataflow.nodes import Graph
from dataflow.schedule import NodeSchedule, Schedule
from dataflow.streams import stream
from mapping import MappingError
from mapping.build import build as build_program
from mapping.partition import Group, partition
from mapping.resources import needs

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
