"""Routing: links never overfull (counted anew here), latencies by hops, refusals with numbers."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.program import Loop, Port, Scratchpad
from hwspecs import load
from mapping.errors import MappingError
from mapping.place import place
from mapping.route import _spacing, link_loads, route, row_then_column, short_channels
from tests.mapping.layout_programs import Sketch, matmul_like, placed_at, variant


def wires_by_link(program):
    """Wires on each grid link, counted from the routes alone: a writer's value once a link."""
    columns = program.machine.grid.columns
    channels = {channel.name: channel for channel in program.channels}
    taken = {"vector": {}, "scalar": {}}
    for name, path in program.routes.items():
        channel = channels.get(name.removesuffix("#in"))
        if channel is not None and channel.kind != "data":
            continue
        kind = "vector" if channel is None or channel.lanes > 1 else "scalar"
        # What a scratchpad holds is a net of its own from there on.
        alone = channel is None or f"{name}#in" in program.routes
        net = name if alone else (channel.writer, channel.value)
        for a, b in pairwise(path):
            assert abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1
            if -1 not in (a[1], b[1]) and columns not in (a[1], b[1]):
                taken[kind].setdefault((a, b), {})[net] = 1 if channel is None else channel.wires
    return {
        kind: Counter({k: sum(v.values()) for k, v in links.items()})
        for kind, links in taken.items()
    }


def check_routes(program):
    network = program.machine.network
    taken = wires_by_link(program)
    assert max(taken["vector"].values(), default=0) <= network.vector_links
    assert max(taken["scalar"].values(), default=0) <= network.scalar_links
    assert {kind: Counter(loads) for kind, loads in link_loads(program).items()} == taken


@pytest.mark.parametrize(("copies", "chain"), [(8, 1), (30, 2), (60, 1)])
def test_route_never_overfills_a_link(copies, chain):
    check_routes(route(place(matmul_like(load("plasticine"), copies, chain))))


@settings(max_examples=20, deadline=None)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=30, unique=True),
    links=st.integers(1, 4),
    seed=st.integers(0, 5),
)
def test_route_holds_limits_or_refuses(pairs, links, seed):
    sketch = Sketch(variant("plasticine", network={"vector_links": links}))
    for i in range(12):
        sketch.unit(f"c{i}", cells=1 + i % 2)
    for a, b in pairs:
        if a != b:
            sketch.wire(f"c{a}", f"c{b}", value=f"v{a}.{b}")
    placed = place(sketch.program(), seed)
    try:
        check_routes(route(placed))
    except MappingError as error:
        assert error.needed > error.available


def test_route_adds_hops_to_the_latency_and_nothing_else():
    program = place(matmul_like(load("plasticine"), 6))
    routed = route(program)
    for before, after in zip(program.channels, routed.channels, strict=True):
        hops = len(routed.routes.get(after.name, (None,))) - 1
        assert after.latency_cycles == before.latency_cycles + hops
        assert (after.capacity, after.writer, after.wires) == (
            before.capacity,
            before.writer,
            before.wires,
        )
    assert routed.units == program.units
    assert routed.sites == program.sites


def test_route_counts_the_hops_inside_the_writers_chain():
    # Cells of one kind are 2 hops apart on a checkerboard: the chain of 3 adds 4 to what leaves it.
    sketch = Sketch(load("plasticine"))
    sketch.unit("a", cells=3)
    name = sketch.wire("a", sketch.unit("b"))
    routed = route(place(sketch.program()))
    inside = sum(len(routed.routes[f"a#{i}"]) - 1 for i in (1, 2))
    own = len(routed.routes[name]) - 1
    assert inside == 4
    assert routed.channels[0].latency_cycles == 2 + inside + own


def test_route_leads_a_deep_channel_through_the_scratchpad_that_holds_it():
    sketch = Sketch(load("plasticine"))
    name = sketch.wire(sketch.unit("a"), sketch.unit("b"))
    sketch.pads.append(Scratchpad(name, "a", (), (), 4096, 1, 16384, 2))
    placed = placed_at(sketch.program(), {"a": (0, 0), "b": (0, 4)})
    placed.sites[name] = ((0, 1), (0, 3))
    routed = route(placed)
    check_routes(routed)
    assert routed.routes[f"{name}#in"] == ((0, 0), (0, 1))
    assert routed.routes[name] == ((0, 3), (0, 4))
    # one hop to the scratchpad, two between its cells, one on to the reader
    assert routed.channels[0].latency_cycles == 2 + 1 + 2 + 1


def test_route_keeps_a_running_result_inside_its_unit():
    sketch = Sketch(load("plasticine"))
    sketch.unit("a", cells=3)
    name = sketch.wire("a", "a", "state", latency_cycles=0)
    routed = route(place(sketch.program()))
    assert name not in routed.routes
    assert routed.channels[0].latency_cycles == 0


def test_route_scales_with_the_hop_latency():
    machine = variant("plasticine", network={"hop_cycles": 3})
    sketch = Sketch(machine)
    name = sketch.wire(sketch.unit("a"), sketch.unit("b"))
    routed = route(place(sketch.program()))
    assert len(routed.routes[name]) == 3
    assert routed.channels[0].latency_cycles == 2 + 2 * 3


def test_route_leaves_an_ideal_network_alone():
    program = place(matmul_like(load("tungsten_20x20"), 10))
    routed = route(program)
    assert routed.routes == {}
    assert routed.channels == program.channels


def test_route_keeps_a_scratchpads_tokens_local():
    program = route(place(matmul_like(load("plasticine"), 2)))
    local = [c for c in program.channels if c.kind in ("tile", "credit")]
    assert local
    assert all(c.name not in program.routes and c.latency_cycles == 2 for c in local)


def test_route_charges_a_multicast_once_a_link():
    # One value to five readers in a row with one vector link: possible only as a shared tree.
    sketch = Sketch(variant("plasticine", network={"vector_links": 1}))
    sketch.unit("a")
    for i in range(5):
        sketch.wire("a", sketch.unit(f"b{i}"))
    check_routes(route(place(sketch.program())))


def test_route_detours_where_the_straight_way_is_full():
    # Three values from a to b over single links: of the four ways out of a switch three are used.
    sketch = Sketch(variant("plasticine", network={"vector_links": 1}))
    for name in ("x", "a", "b"):
        sketch.unit(name)
    for i in range(3):
        sketch.wire("a", "b", f"w{i}")
    routed = route(placed_at(sketch.program(), {"x": (0, 0), "a": (4, 4), "b": (4, 8)}))
    check_routes(routed)
    lengths = sorted(len(routed.routes[f"w{i}"]) - 1 for i in range(3))
    assert lengths == [4, 6, 6]


def test_route_refuses_what_no_route_can_help_with_the_numbers():
    # A corner has two neighbours with one link each: a third value cannot leave it.
    sketch = Sketch(variant("plasticine", network={"vector_links": 1}))
    sketch.unit("a")
    sketch.unit("b")
    for i in range(3):
        sketch.wire("a", "b", f"w{i}")
    with pytest.raises(MappingError) as caught:
        route(placed_at(sketch.program(), {"a": (0, 0), "b": (4, 8)}))
    error = caught.value
    assert (error.resource, error.needed, error.available) == (
        "vector links out of (0, 0)",
        3,
        2,
    )
    assert "at most 2, got 3 (over by 1)" in str(error)


def test_route_names_the_fullest_link_when_negotiation_fails():
    # Values of 2 wires pass single links nowhere.
    sketch = Sketch(variant("plasticine", network={"vector_links": 1}))
    sketch.unit("a")
    sketch.unit("b")
    sketch.wire("a", "b", "w", wires=2)
    with pytest.raises(MappingError, match=r"vector links from \(.*\) to \(.*\) must be at most 1"):
        route(placed_at(sketch.program(), {"a": (4, 4), "b": (4, 6)}))


def test_route_counts_scalars_apart_from_vectors():
    sketch = Sketch(variant("plasticine", network={"vector_links": 1, "scalar_links": 1}))
    sketch.unit("a")
    sketch.unit("b")
    sketch.wire("a", "b", "v")
    sketch.wire("a", "b", "s", lanes=1)
    routed = route(placed_at(sketch.program(), {"a": (4, 4), "b": (4, 6)}))
    assert routed.routes["v"] == routed.routes["s"]


def test_route_is_deterministic():
    program = place(matmul_like(load("plasticine"), 30, 2))
    assert route(program) == route(program)


def test_row_then_column_enters_an_edge_from_the_switch_beside_it():
    assert row_then_column((2, -1), (0, 1), 4) == ((2, -1), (2, 0), (2, 1), (1, 1), (0, 1))
    assert row_then_column((0, 1), (1, 4), 4) == ((0, 1), (0, 2), (0, 3), (1, 3), (1, 4))


def test_short_channels_name_what_cannot_run_at_full_rate():
    # Unit 6 + channel 2 + credit 1 = 9 beats in flight; the second channel holds 8.
    sketch = Sketch(load("plasticine"))
    sketch.unit("a")
    sketch.unit("b")
    sketch.wire("a", "b", "long", capacity=9)
    sketch.wire("a", "b", "short", capacity=8)
    (found,) = short_channels(sketch.program())
    assert (found.name, found.capacity, found.needed) == ("short", 8, 9)


def test_spacing_counts_inner_loops_and_turns():
    # Loops of 4, 6, 5 trips. Pushed where the last wraps: every 5 firings; dealt to 3 channels by
    # the middle loop (6 is a multiple of 3): every 15. Dealt by the outer loop: 5 again.
    trips = [loop.trips for loop in (Loop("i", 4), Loop("j", 6), Loop("k", 5))]
    assert _spacing(Port(("c",), 2), trips) == 5
    assert _spacing(Port(("c", "d", "e"), 2, select=((1, 1, 3),)), trips) == 15
    assert _spacing(Port(("c", "d"), 2, select=((0, 1, 2),)), trips) == 5
