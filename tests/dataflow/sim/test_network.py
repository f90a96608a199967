"""A shared network against the textbook's formulas, hand-worked cases, and its other engine."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.sim.network import Network
from dataflow.sim.result import EngineError
from dataflow.sim.traffic import arrivals, bisection_bound, measure, mesh, uniform_random
from hwspecs.network import Packets

ENGINES = ["simpy", "fast"]


def packets(lanes=1, depth=4, router=1, link=1):
    return Packets(
        flit_bytes=16,
        header_bytes=4,
        virtual_channels=lanes,
        buffer_flits=depth,
        router_cycles=router,
        link_cycles=link,
    )


def leg(nodes, source, sink):
    """The leg of a `mesh` between two of its nodes."""
    return source * (nodes - 1) + sink - (sink > source)


@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=15, deadline=None)
@given(
    ends=st.permutations(range(12)),
    flits=st.integers(1, 6),
    router=st.integers(1, 4),
    link=st.integers(1, 3),
    lanes=st.integers(1, 3),
    at=st.integers(0, 50),
)
def test_packet_alone_takes_hops_and_serialisation(engine, ends, flits, router, link, lanes, at):
    plan = mesh(3, 4, packets(lanes, 2 * link + router, router, link), flits)
    source, sink = ends[:2]
    distance = abs(source // 4 - sink // 4) + abs(source % 4 - sink % 4)
    # Dally, Towles: T = H x t_r + H x t_link + L / b; H routers are left, the last one included.
    flight = (distance + 1) * (router + link) + flits - 1
    number = leg(12, source, sink)
    assert plan.flight_cycles(number) == flight
    assert arrivals(plan, [(number, at)], at + flight + 1, engine) == [at + flight]


@pytest.mark.parametrize("engine", ENGINES)
def test_two_senders_share_a_link_in_turn(engine):
    # Nodes 0 and 2 both send to 1. Set out at 0: in the first router, leave it at 1, are in router
    # 1 at 2, may leave at 3, arrive at 4: one of them, the other a cycle later, and so on in turn.
    plan = mesh(1, 3, packets())
    sends = [(leg(3, source, 1), cycle) for source in (0, 2) for cycle in range(4)]
    assert arrivals(plan, sends, 20, engine) == [4, 6, 8, 10, 5, 7, 9, 11]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("depth", "tail"), [(1, 15), (2, 10), (3, 9), (8, 9)])
def test_few_credits_stall_a_packet(engine, depth, tail):
    # Four flits from node 0 to 2: the head arrives at 3 hops x 2 = 6. A credit is back 2 x link +
    # router = 3 cycles after its flit left, so a buffer of one flit sends at 1, 4, 7, 10 and of
    # two at 1, 2, 4, 5; with three the link never waits.
    plan = mesh(1, 3, packets(depth=depth), flits=4)
    assert arrivals(plan, [(leg(3, 0, 2), 0)], 30, engine) == [tail]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("lanes", "came"), [(1, [13, 16]), (2, [14, 9])])
def test_virtual_channels_let_packets_pass(engine, lanes, came):
    # Eight flits from node 0 to 2, set out at 0, leave node 1 from 3 to 10. One flit from 1 to 3,
    # set out at 3, may leave node 1 at 4. With one virtual channel it gets it after the tail, at
    # 11, and takes 5 more; with two it takes its turn at 4, and the long packet loses a cycle.
    plan = mesh(1, 4, packets(lanes), flits=8)
    short = leg(4, 1, 3)
    legs = [replace(its, flits=1) if n == short else its for n, its in enumerate(plan.legs)]
    plan = replace(plan, legs=tuple(legs))
    assert arrivals(plan, [(leg(4, 0, 2), 0), (short, 3)], 30, engine) == came


@pytest.mark.parametrize("engine", ENGINES)
def test_engine_is_one_of_two(engine):
    with pytest.raises(EngineError, match="did you mean"):
        arrivals(mesh(1, 2, packets()), [], 1, engine + "s")


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(2, 4)),
    flits=st.integers(1, 5),
    made=st.builds(
        packets, st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(1, 2)
    ),
    load=st.floats(0.1, 1.0),
    seed=st.integers(0, 99),
)
def test_random_traffic_arrives_the_same_in_both_engines(shape, flits, made, load, seed):
    nodes = shape[0] * shape[1]
    plan = mesh(shape[0], shape[1], made, flits)
    sends = uniform_random(nodes, load, flits, 60, seed)
    came = arrivals(plan, sends, 4000, "simpy")
    assert came == arrivals(plan, sends, 4000, "fast")
    # All arrive, none before its flight, and those of a leg in order.
    last: dict[int, int] = {}
    for (number, cycle), at in zip(sends, came, strict=True):
        assert at >= cycle + plan.flight_cycles(number)
        assert at >= last.get(number, 0)
        last[number] = at


def test_no_link_takes_more_than_a_flit_a_cycle():
    plan = mesh(3, 3, packets(2), 2)
    came = []
    network = Network(plan, lambda number, cycle: came.append(cycle))
    for number, cycle in uniform_random(9, 1.0, 2, 100, 3):
        network.send(number, cycle)
    cycle = 0
    while network.open:
        before = list(network.flits_moved)
        network.tick(cycle)
        assert max(a - b for a, b in zip(network.flits_moved, before, strict=True)) <= 1
        cycle += 1
    assert max(came) == cycle - 1 + plan.packets.link_cycles


def test_light_traffic_takes_the_mean_flight():
    # Mean distance of two nodes of an 8 x 8 mesh: 2 x (64 - 1) / (3 x 8) x 64 / 63 = 16/3 hops, and
    # one out of the last router, of 2 cycles each: 12.67. At a hundredth of the bound none waits.
    point = measure(mesh(8, 8, packets(4)), 64, 0.005, 30_000)
    assert point.latency_cycles == pytest.approx(2 * (16 / 3 + 1), abs=0.1)


def test_saturation_lies_between_the_textbooks_bounds_and_rises_with_virtual_channels():
    # 0.492 flits a node and cycle can cross the middle of an 8 x 8 mesh. A switch whose inputs are
    # single queues moves 2 - sqrt 2 of what its links can (Karol, Hluchyj, Morgan: "Input versus
    # output queueing on a space-division packet switch", 1987), as the head of a queue holds up
    # those behind it. Virtual channels let packets pass.
    bound = bisection_bound(8)
    assert bound == pytest.approx(0.4921875)
    accepted = [measure(mesh(8, 8, packets(lanes)), 64, 1.0, 6_000).accepted for lanes in (1, 2, 4)]
    assert (2 - 2**0.5) * bound < accepted[0] < accepted[1] < accepted[2] < bound


def test_below_saturation_all_that_is_offered_is_taken():
    point = measure(mesh(8, 8, packets(4)), 64, 0.4, 6_000)
    assert point.accepted == pytest.approx(point.offered, rel=0.01)
    assert point.latency_cycles < 20
