"""Programs on a network that their channels share: values, times, bounds, both engines equal."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.errors import FaultsError
from dataflow.program import Scratchpad
from dataflow.sim import fast_engine, simpy_engine, simulate
from hwspecs import Machine, load
from hwspecs.network import Network, Packets
from mapping import map_graph, program_bound
from mapping.errors import MappingError
from mapping.place import place
from mapping.route import route, row_then_column, short_channels
from tests.cross.random_schedules import CASES, graph_of, inputs_of, random_schedule
from tests.cross.test_random_schedules import judge, static
from tests.mapping.layout_programs import Sketch, placed_at

FIELDS = ("cycles", "accounts", "channel_peaks", "off_chip", "firings", "complete")


def dynamic(machine: Machine, flit=20, lanes=2, depth=3, router=1, link=1) -> Machine:
    """`machine` with a network of shared links; a flit of 20 B holds a beat of 4 words."""
    packets = Packets(
        flit_bytes=flit,
        header_bytes=4,
        virtual_channels=lanes,
        buffer_flits=depth,
        router_cycles=router,
        link_cycles=link,
    )
    old = machine.network
    network = Network(
        kind="dynamic",
        channel_cycles=old.channel_cycles,
        credit_cycles=old.credit_cycles,
        packets=packets,
    )
    return machine.model_copy(update={"network": network})


def both(program, max_cycles=None):
    """The result of both engines, which must be the same."""
    slow = simpy_engine.run(program, None, max_cycles=max_cycles)
    fast = fast_engine.run(program, max_cycles=max_cycles)
    for field in FIELDS:
        assert getattr(slow, field) == getattr(fast, field), field
    return slow


def test_a_token_takes_its_flight():
    # Fires at 0, sets out at 6 + 2, leaves two routers: 2 x (1 + 1), arrives at 12.
    sketch = Sketch(dynamic(load("plasticine"), flit=72))
    sketch.wire(sketch.unit("a", trips=1), sketch.unit("b", trips=1))
    program = route(placed_at(sketch.program(), {"a": (0, 0), "b": (0, 1)}))
    assert both(program).cycles == 13


def test_what_others_of_a_link_cost_is_charged_to_the_network():
    # a and c send to b, whose router has one link to it. Alone tokens would arrive at 12 + k; two a
    # firing take two cycles: at 12 + 2k and 13 + 2k. So b fires at 13 + 2k, and waits 12 cycles for
    # the first tokens and 1 a firing for the network; 4 firings end at 19.
    sketch = Sketch(dynamic(load("plasticine"), flit=72))
    for name in "abc":
        sketch.unit(name, trips=4)
    sketch.wire("a", "b")
    sketch.wire("c", "b")
    sites = {"a": (0, 0), "b": (0, 1), "c": (0, 2)}
    result = both(route(placed_at(sketch.program(), sites)))
    account = result.accounts["b"]
    assert result.cycles == 20
    assert (account.busy, account.waiting, account.network) == (4, 12, 4)


@pytest.mark.parametrize(("names", "cycles"), [(("", ""), 54), (("x", "y"), 94)])
def test_a_beat_for_two_readers_is_one_packet_that_forks(names, cycles):
    # a's beats set out at 8 + k. On the way to b two routers are left, to c three, in 2 cycles
    # each: there at 12 + k and 14 + k. Room comes back before a's 16 tokens are used up, so that
    # the last of 40 is at c at 53. Two values are two packets: c's set out over a's link at 9 + 2k.
    sketch = Sketch(dynamic(load("plasticine"), flit=72))
    for name in "abc":
        sketch.unit(name, trips=40)
    for reader, name in zip("bc", names, strict=True):
        sketch.wire("a", reader, name)
    sites = {"a": (0, 0), "b": (0, 1), "c": (0, 2)}
    result = both(route(placed_at(sketch.program(), sites)))
    assert result.cycles == cycles
    if names == ("", ""):
        assert [result.accounts[name].waiting for name in "bc"] == [12, 14]
        assert {account.network for account in result.accounts.values()} == {0}


def test_readers_behind_one_link_take_the_same_packet():
    sketch = Sketch(dynamic(load("plasticine"), flit=72))
    for name in "abcd":
        sketch.unit(name, trips=4)
    for reader in "bcd":
        sketch.wire("a", reader)
    sites = {"a": (0, 0), "b": (0, 1), "c": (0, 2), "d": (0, 1)}
    result = both(route(placed_at(sketch.program(), sites)))
    assert [result.accounts[name].waiting for name in "bcd"] == [12, 14, 12]


def test_a_branch_that_waits_does_not_hold_up_the_other():
    # a sends to b and, past its router, to d; b sends to d, over the same link. a's beats may leave
    # b's router at 11 + k, b's, which sets out at 12 + 8 + k, at 21 + k: a's last and b's first
    # meet. It is b's turn; a's goes at 22, but to b already at 21. Of b's all but the first are one
    # late: there at 26, and 27 + k.
    sketch = Sketch(dynamic(load("plasticine"), flit=72, lanes=1))
    for name in "abd":
        sketch.unit(name, trips=11)
    for writer, reader in ("ab", "ad", "bd"):
        sketch.wire(writer, reader)
    sites = {"a": (0, 0), "b": (0, 1), "d": (0, 3)}
    result = both(route(placed_at(sketch.program(), sites)))
    b, d = result.accounts["b"], result.accounts["d"]
    assert (b.waiting, b.network) == (12, 0)
    assert (d.waiting, d.network) == (26, 1)
    assert result.cycles == 27 + 10 + 1


def test_a_channel_that_a_scratchpad_holds_crosses_twice():
    # In the scratchpad at 12, like a beat of its neighbour, and two routers on at 16.
    sketch = Sketch(dynamic(load("plasticine"), flit=72))
    sketch.wire(sketch.unit("a", trips=1), sketch.unit("b", trips=1), "deep")
    sketch.pads.append(Scratchpad("deep", "deep", (), (), 64, 2, 512, 1))
    sites = {"a": (0, 0), "deep": (0, 1), "b": (0, 2)}
    assert both(route(placed_at(sketch.program(), sites))).cycles == 17


def test_routes_run_along_the_row_and_then_the_column():
    mapped = map_graph(graph_of("attention online"), dynamic(static()))
    program = mapped.program
    columns = program.machine.grid.columns
    assert program.routes
    for path in program.routes.values():
        assert path == row_then_column(path[0], path[-1], columns)


def test_short_channels_count_the_flight():
    sketch = Sketch(dynamic(load("plasticine"), flit=72))
    sketch.wire(sketch.unit("a"), sketch.unit("b"))
    # 6 + 2, 19 routers left in 2 cycles each, 1 for the credit: 47 tokens for full rate.
    program = route(placed_at(sketch.program(), {"a": (0, 0), "b": (3, 15)}))
    assert [short.needed for short in short_channels(program)] == [6 + 2 + 19 * 2 + 1]


@pytest.mark.parametrize("case", list(CASES))
def test_every_kernel_is_right_and_the_same_in_both_engines(case):
    program = map_graph(graph_of(case), load("plasticine_dynamic")).program
    result = both(program)
    assert result.cycles >= program_bound(program).cycles
    with_values = simulate(program, inputs_of(graph_of(case)))
    assert (with_values.cycles, with_values.accounts) == (result.cycles, result.accounts)
    judge(case, program, with_values)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    case=st.sampled_from([case for case in CASES if not case.startswith("fft")]),
    seed=st.integers(0, 10**6),
)
def test_random_schedules_are_right_and_the_same_in_both_engines(case, seed):
    draw = random.Random(f"{case} {seed}")
    options = {
        "flit": draw.choice((8, 12, 20)),
        "lanes": draw.randint(1, 3),
        "depth": draw.randint(1, 4),
        "router": draw.randint(1, 3),
        "link": draw.randint(1, 2),
    }
    schedule = random_schedule(graph_of(case), draw)
    try:
        program = map_graph(graph_of(case), dynamic(static(), **options), schedule).program
    except (FaultsError, MappingError):
        return
    result = both(program)
    assert result.cycles >= program_bound(program).cycles
    judge(case, program, simulate(program, inputs_of(graph_of(case))))


@settings(max_examples=25, deadline=None)
@given(
    wires=st.dictionaries(
        st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] < pair[1]),
        st.tuples(st.integers(1, 8), st.booleans()),
        min_size=1,
        max_size=20,
    ),
    trips=st.integers(1, 40),
    options=st.fixed_dictionaries(
        {
            "flit": st.sampled_from([16, 40, 72]),
            "lanes": st.integers(1, 3),
            "depth": st.integers(1, 4),
            "router": st.integers(1, 3),
            "link": st.integers(1, 2),
        }
    ),
    cut=st.none() | st.integers(1, 200),
)
def test_random_graphs_of_units_are_the_same_in_both_engines(wires, trips, options, cut):
    sketch = Sketch(dynamic(load("plasticine"), **options))
    for unit in sorted({unit for pair in wires for unit in pair}):
        sketch.unit(f"u{unit}", trips=trips)
    for (a, b), (capacity, alike) in sorted(wires.items()):
        value = f"u{a}" if alike else f"c{a}_{b}"  # what is alike is sent as one packet
        sketch.wire(f"u{a}", f"u{b}", f"c{a}_{b}", capacity=capacity, value=value)
    program = route(place(sketch.program()))
    result = both(program, max_cycles=cut)
    if cut is None:
        assert result.cycles >= program_bound(program).cycles
