"""Which links packets take, and how many flits cross them."""

import pytest

from dataflow import network_plan
from dataflow.network_plan import Links, NetworkPlan
from dataflow.sim import simpy_engine, timing_graph
from hwspecs import load
from mapping import map_graph
from mapping.place import place
from mapping.route import route
from tests.cross.random_schedules import CASES, graph_of
from tests.cross.test_dynamic_network import dynamic
from tests.mapping.layout_programs import Sketch, placed_at


def three_in_a_row(flit: int):
    """a, b and c in neighbouring cells of a row; a sends each of its beats to both others."""
    sketch = Sketch(dynamic(load("plasticine"), flit=flit))
    for name in "abc":
        sketch.unit(name, trips=5)
    sketch.wire("a", "b")
    sketch.wire("a", "c")
    return route(placed_at(sketch.program(), {"a": (0, 0), "b": (0, 1), "c": (0, 2)}))


def plan_of(program) -> NetworkPlan:
    """The plan of a program whose channels share links."""
    plan = network_plan.plan(program)
    assert plan is not None
    return plan


def test_one_flit_for_two_readers_takes_a_link_once():
    plan = plan_of(three_in_a_row(72))  # 4 B of header and 16 lanes of 4 B
    # Into a's router, on to b's, out to b, on to c's, out to c.
    assert [leg.links for leg in plan.legs] == [(0, 1, 2, 3, 4)]
    assert plan.legs[0].after == (-1, 0, 1, 1, 3)
    assert [plan.legs[0].hops(plan.sinks[sink].place) for sink in plan.legs[0].sinks] == [2, 3]
    assert network_plan.link_flits(three_in_a_row(72), plan) == [5] * 5


def test_longer_packets_go_to_each_reader_apart():
    program = three_in_a_row(40)  # 68 B: two flits
    plan = plan_of(program)
    assert [leg.links for leg in plan.legs] == [(0, 1, 2), (0, 1, 3, 4)]
    assert network_plan.link_flits(program, plan) == [20, 20, 10, 10, 10]


def test_ways_that_part_share_the_links_before():
    links = Links()
    ends = {"b": [(0, 0), (0, 1)], "c": [(0, 0), (0, 1), (1, 1)], "d": [(0, 0), (1, 0)]}
    paths = [links.path("a", cells, name) for name, cells in ends.items()]
    leg = links.legs[links.sinks[links.leg(paths, 1)[0]].leg]
    assert len(leg.links) == 1 + 1 + 1 + 1 + 1 + 1 + 1  # in, right, b, down, c, down, d
    assert leg.branches(0) == [1, 5]
    assert leg.branches(1) == [2, 3]


def test_a_machine_without_packets_has_no_plan():
    sketch = Sketch(load("plasticine"))
    sketch.wire(sketch.unit("a"), sketch.unit("b"))
    assert network_plan.plan(route(place(sketch.program()))) is None


@pytest.mark.parametrize("case", list(CASES))
def test_counted_flits_are_those_that_move(case):
    program = map_graph(graph_of(case), load("plasticine_dynamic")).program
    plan = plan_of(program)
    run = simpy_engine.Run(program, timing_graph.build(program))
    run.start()
    assert run.network is not None
    assert run.network.network.flits_moved == network_plan.link_flits(program, plan)
