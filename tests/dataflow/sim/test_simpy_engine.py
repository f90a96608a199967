"""Cycles of small Programs, worked by hand. Unit latency 6, channel latency 3, credit 1."""

import dataclasses
import math
import signal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.sim import DeadlockError, Interrupted, ProgramError, timing_graph
from dataflow.sim.simpy_engine import Run


def chain(wire, loops, **channels):
    """first -a-> second -b-> sink, all over the same loops."""
    level = len(loops)
    return wire.program(
        [
            wire.unit("first", loops, [], [wire.port("a", level)]),
            wire.unit("second", loops, [wire.port("a", level)], [wire.port("b", level)]),
            wire.sink("sink", loops, wire.port("b", level)),
        ],
        **channels,
    )


def test_chain_of_two_takes_its_firings_and_two_latencies(wire, simulate):
    # last firing of the first at 63, of the second at 63 + 9, arrival at + 9, + 1
    assert simulate(chain(wire, [64])).cycles == 63 + 9 + 9 + 1


def test_loops_that_no_port_tells_apart_do_not_matter(wire, simulate):
    assert simulate(chain(wire, [4, 1, 8, 2])).cycles == 82


def test_initiation_interval_spaces_the_firings(wire, simulate):
    program = chain(wire, [64])
    units = (dataclasses.replace(program.units[0], ii_cycles=4), *program.units[1:])
    # the last firing of the first comes at 63 * 4
    assert simulate(dataclasses.replace(program, units=units)).cycles == 252 + 9 + 9 + 1


def test_short_fifo_lets_capacity_beats_through_each_round_trip(wire, simulate):
    # a slot is free again 9 (latency) + 1 (credit) cycles after its push: 4 beats each 10 cycles;
    # beat 63 is number 3 of round 15: 15 * 10 + 3
    assert simulate(chain(wire, [64], a={"capacity": 4})).cycles == 153 + 18 + 1


def test_full_rate_needs_latency_and_credit_delay(wire, simulate):
    assert simulate(chain(wire, [64], a={"capacity": 10})).cycles == 82
    # 9 beats each 10 cycles: beat 63 is number 0 of round 7
    assert simulate(chain(wire, [64], a={"capacity": 9})).cycles == 70 + 18 + 1


def test_credit_delay_lengthens_the_round_trip(wire, simulate):
    # 4 beats each 9 + 5 cycles
    program = chain(wire, [64], a={"capacity": 4, "credit_cycles": 5})
    assert simulate(program).cycles == 15 * 14 + 3 + 18 + 1


def test_reader_that_reuses_a_token_pops_where_its_inner_loop_wraps(wire, simulate):
    # 8 tokens, each used 5 times: the second fires from 9 on at every cycle, 40 times
    program = wire.program(
        [
            wire.unit("first", [8], [], [wire.port("a", 1)]),
            wire.unit("second", [8, 5], [wire.port("a", 1)], [wire.port("b", 2)]),
            wire.sink("sink", [40], wire.port("b", 1)),
        ]
    )
    assert simulate(program).cycles == 9 + 39 + 9 + 1


def test_writer_pushes_where_its_inner_loop_wraps(wire, simulate):
    # pushes at 4, 9, ..., 39; the last arrives at 39 + 9
    program = wire.program(
        [
            wire.unit("first", [8, 5], [], [wire.port("a", 1)]),
            wire.sink("sink", [8], wire.port("a", 1)),
        ]
    )
    result = simulate(program)
    assert result.cycles == 39 + 9 + 1
    # from cycle 0: 4 + 9 to the first token, then 4 idle cycles before each of 7 firings
    assert result.accounts["sink"].waiting == 13 + 7 * 4


def test_port_with_last_is_used_only_on_the_last_trip_of_its_loop(wire, simulate):
    # loops k, j: k is carried, so 4 pushes in the last of 3 rounds, at 8, 9, 10, 11
    program = wire.program(
        [
            wire.unit("first", [3, 4], [], [wire.port("a", 2, last=(0,))]),
            wire.sink("sink", [4], wire.port("a", 1)),
        ]
    )
    assert simulate(program).cycles == 11 + 9 + 1


def test_late_port_waits_only_where_it_is_used(wire, simulate):
    def program(late):
        return wire.program(
            [
                wire.unit("slow", [1], [], [wire.port("a", 1)], latency=97),
                wire.unit("second", [20], [wire.port("a", 0, late=late)], [wire.port("b", 1)]),
                wire.sink("sink", [20], wire.port("b", 1)),
            ],
            b={"capacity": 64},
        )

    # the token comes at 100: before the first of 20 firings, or, late, before the last
    assert simulate(program(False)).cycles == 100 + 19 + 9 + 1
    assert simulate(program(True)).cycles == 100 + 9 + 1


def test_scatter_and_gather_take_channels_in_turn(wire, simulate):
    program = wire.program(
        [
            wire.unit("first", [16], [], [wire.port("a0 a1", 1, select=((0, 1, 2),))]),
            wire.unit("even", [8], [wire.port("a0", 1)], [wire.port("b0", 1)]),
            wire.unit("odd", [8], [wire.port("a1", 1)], [wire.port("b1", 1)]),
            wire.unit(
                "join", [16], [wire.port("b0 b1", 1, select=((0, 1, 2),))], [wire.port("c", 1)]
            ),
            wire.sink("sink", [16], wire.port("c", 1)),
        ]
    )
    result = simulate(program)
    assert result.cycles == 15 + 9 + 9 + 9 + 1
    assert result.accounts["odd"].waiting == 10 + 7


def test_select_of_two_loops_counts_in_mixed_radix(wire, simulate):
    # channel = (i % 2) * 2 + j % 2 for i, j in 2 x 4: each of the four sees two tokens
    names = "a0 a1 a2 a3"
    program = wire.program(
        [
            wire.unit("first", [2, 4], [], [wire.port(names, 2, select=((0, 1, 2), (1, 1, 2)))]),
            *(wire.sink(f"s{n}", [2], wire.port(f"a{n}", 1)) for n in range(4)),
        ]
    )
    result = simulate(program)
    # i = 1, j = 3 is firing 7 and goes to a3; a1 gets firings 1 and 3
    assert result.cycles == 7 + 9 + 1
    assert result.accounts["s1"].waiting == 10 + 1
    assert result.accounts["s1"].done == 17 - 13


def test_select_with_a_divisor_takes_channels_in_groups(wire, simulate):
    # firings 0 1 go to a0, 2 3 to a1, 4 5 to a0, 6 7 to a1
    program = wire.program(
        [
            wire.unit("first", [8], [], [wire.port("a0 a1", 1, select=((0, 2, 2),))]),
            wire.sink("s0", [4], wire.port("a0", 1)),
            wire.sink("s1", [4], wire.port("a1", 1)),
        ]
    )
    result = simulate(program)
    assert result.accounts["s0"].done == 17 - (5 + 9 + 1)
    assert result.cycles == 7 + 9 + 1


def test_multicast_goes_at_the_pace_of_its_slowest_reader(wire, simulate):
    program = wire.program(
        [
            wire.unit("first", [32], [], [wire.port("a", 1), wire.port("b", 1)]),
            wire.sink("quick", [32], wire.port("a", 1)),
            dataclasses.replace(wire.sink("slow", [32], wire.port("b", 1)), ii_cycles=3),
        ],
        a={"capacity": 4},
        b={"capacity": 4},
    )
    # 4 beats each 10 cycles, faster than the reader's 3 a beat? No: 10 / 4 = 2.5 < 3, so the slow
    # reader sets the pace: first at 9, last at 9 + 31 * 3
    assert simulate(program).cycles == 9 + 93 + 1


@pytest.mark.parametrize(("depth", "interval"), [(1, 9), (2, 5), (4, 3), (9, 1), (16, 1)])
def test_feedback_with_initial_tokens_sets_the_interval(wire, depth, interval, simulate):
    # a token comes back 9 cycles after it was used: depth firings each 9 cycles
    program = wire.program(
        [
            wire.unit(
                "sum",
                [90],
                [wire.port("back", 1)],
                [wire.port("back", 1), wire.port("out", 1)],
            ),
            wire.sink("sink", [90], wire.port("out", 1)),
        ],
        back={"initial": depth, "capacity": depth + 1},
    )
    rounds, rest = divmod(89, depth)
    last = 89 if depth >= 9 else rounds * 9 + rest
    assert simulate(program).cycles == last + 9 + 1
    assert interval == math.ceil(9 / depth)


def test_accounts_say_what_each_gap_waited_for(wire, simulate):
    program = chain(wire, [8], a={"capacity": 4}, b={"capacity": 2})
    result = simulate(program)
    # the second: pushes b in pairs each 10 cycles: 9, 10, 19, 20, 29, 30, 39, 40
    # the first: 0..3, then its a slots come back at 10, 11, 20, 21
    assert result.cycles == 40 + 9 + 1
    second, first = result.accounts["second"], result.accounts["first"]
    assert (second.busy, second.waiting, second.blocked, second.done) == (8, 9, 3 * 8, 9)
    assert (first.busy, first.blocked, first.done) == (8, 6 + 0 + 8, 50 - 22)


def test_tie_between_token_and_room_is_charged_to_the_token(wire, simulate):
    # the second fires at 0 + 9; for its second firing both the token (pushed at 10) and the slot
    # of b (popped at 18, credit 1) come at 19
    program = wire.program(
        [
            wire.unit("first", [2], [], [wire.port("a", 1)], ii=10),
            wire.unit("second", [2], [wire.port("a", 1)], [wire.port("b", 1)]),
            wire.sink("sink", [2], wire.port("b", 1)),
        ],
        b={"capacity": 1},
    )
    second = simulate(program).accounts["second"]
    assert (second.waiting, second.blocked) == (9 + 9, 0)


def test_peak_is_the_least_capacity_that_changes_nothing(wire, simulate):
    result = simulate(chain(wire, [64]))
    assert result.channel_peaks == {"a": 10, "b": 10}


def test_run_beyond_max_cycles_is_cut(wire, simulate):
    result = simulate(chain(wire, [64]), max_cycles=40)
    assert not result.complete
    assert result.accounts["first"].firings == 40
    assert result.accounts["sink"].firings == 40 - 18


def test_progress_is_told_and_its_interrupt_reports_what_had_run(wire, simulate):
    seen = []

    def stop(done, total, cycle):
        seen.append((done, total, cycle))
        raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        simulate(chain(wire, [100_000]), progress=stop)
    result = stopped.value.result
    assert seen[0][1] == 300_000
    assert not result.complete
    assert seen[0][0] <= result.firings < 300_000
    assert all(account.total == result.cycles for account in result.accounts.values())


def test_all_wiring_faults_come_in_one_raise(wire, simulate):
    program = chain(wire, [4])
    channels = (
        dataclasses.replace(program.channels[0], reader="secnd"),
        dataclasses.replace(program.channels[1], capacity=0),
    )
    with pytest.raises(ProgramError) as caught:
        simulate(dataclasses.replace(program, channels=channels))
    text = str(caught.value)
    assert "a: reader must be a unit, got 'secnd'; did you mean second?" in text
    assert "b: capacity must be at least 1" in text


@st.composite
def chains(draw):
    length = draw(st.integers(1, 4))
    return draw(st.integers(1, 40)), [
        (draw(st.integers(1, 12)), draw(st.integers(1, 12)), draw(st.integers(1, 3)))
        for _ in range(length)
    ]


@settings(max_examples=40, deadline=None)
@given(case=chains())
def test_random_chain_follows_the_recurrence(wire, case, simulate):
    """The firing rule, written as the plain recurrence over firings."""
    firings, links = case
    units, given_channels = [], {}
    for place, (capacity, latency, ii) in enumerate(links):
        source = [wire.port(f"c{place - 1}", 1)] if place else []
        units.append(
            wire.unit(
                f"u{place}", [firings], source, [wire.port(f"c{place}", 1)], latency=latency, ii=ii
            )
        )
        given_channels[f"c{place}"] = {"capacity": capacity}
    units.append(wire.sink("sink", [firings], wire.port(f"c{len(links) - 1}", 1)))
    result = simulate(wire.program(units, **given_channels))

    at = [[0] * firings for _ in units]
    for n in range(firings):
        for u, unit in enumerate(units):
            need = [at[u][n - 1] + unit.ii_cycles] if n else [0]
            if u:
                need.append(at[u - 1][n] + units[u - 1].latency_cycles + 3)
            if u < len(links) and n >= links[u][0]:
                need.append(at[u + 1][n - links[u][0]] + 1)
            at[u][n] = max(need)
    assert result.cycles == at[-1][-1] + 1
    assert all(account.total == result.cycles for account in result.accounts.values())
    assert all(result.channel_peaks[name] <= c["capacity"] for name, c in given_channels.items())


def test_interrupt_signal_stops_between_two_firings(wire, simulate):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Interrupted) as stopped:
        simulate(chain(wire, [100_000]), progress=lambda *_: signal.raise_signal(signal.SIGINT))
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert 0 < stopped.value.result.firings < 300_000
    assert signal.getsignal(signal.SIGINT) is before


def test_long_run_keeps_its_channels_short(wire):
    program = chain(wire, [50_000])
    run = Run(program, timing_graph.build(program))
    run.go()
    assert all(len(c.arrivals) + len(c.credits) < 20_000 for c in run.channels)


def test_deadlock_is_an_error(wire, simulate):
    program = wire.program(
        [
            wire.unit("ping", [4], [wire.port("b", 1)], [wire.port("a", 1)]),
            wire.unit("pong", [4], [wire.port("a", 1)], [wire.port("b", 1)]),
        ]
    )
    with pytest.raises(DeadlockError):
        simulate(program)
