"""What a deadlock says."""

import pytest

from dataflow.program import Scratchpad
from dataflow.sim import DeadlockError


def two_pass(wire, length, capacity):
    """A row goes to a sum and beside it; only when the sum is there does the row go on.

    As in naive attention: `divide` needs the row's sum, which needs the whole row, so the channel
    beside it must hold the row.
    """
    rows = 3
    return wire.program(
        [
            wire.unit("source", [rows, length], [], [wire.port("row", 2), wire.port("beside", 2)]),
            wire.unit("sum", [rows, length], [wire.port("row", 2)], [wire.port("total", 1)]),
            wire.unit(
                "divide",
                [rows, length],
                [wire.port("beside", 2), wire.port("total", 1)],
                [wire.port("out", 2)],
            ),
            wire.sink("sink", [rows, length], wire.port("out", 2)),
        ],
        beside={"capacity": capacity},
    )


def test_two_pass_with_a_short_buffer_names_it_and_the_capacity_that_would_do(wire, simulate):
    with pytest.raises(DeadlockError) as caught:
        simulate(two_pass(wire, 100, 16))
    error = caught.value
    assert (error.channel, error.capacity, error.needed_capacity) == ("beside", 16, 100)
    blocked = {entry.unit: entry for entry in error.blocked}
    assert (blocked["source"].channel, blocked["source"].waits_for) == ("beside", "room")
    assert (blocked["source"].fill, blocked["source"].capacity) == (16, 16)
    assert (blocked["divide"].channel, blocked["divide"].waits_for) == ("total", "token")
    # the source fired at 0..15 and waits since 16; the sum's last firing is at 15 + 9
    assert blocked["source"].cycle == 16
    assert error.cycle == 24
    assert "channel beside: capacity must be at least 100, got 16" in str(error)


def test_two_pass_runs_with_the_capacity_named(wire, simulate):
    assert simulate(two_pass(wire, 100, 100)).complete
    with pytest.raises(DeadlockError):
        simulate(two_pass(wire, 100, 99))


def test_two_pass_with_room_to_overlap_rows_runs_at_full_rate(wire, simulate):
    # divide starts a row 9 + 99 + 9 cycles after the source; rows follow without a gap where the
    # buffer covers that: 300 beats, then 18 more to the sink
    result = simulate(two_pass(wire, 100, 200))
    assert result.cycles == 99 + 9 + 9 + 299 + 9 + 1


def test_scratchpad_that_is_too_shallow_is_named_with_the_depth_that_would_do(wire, simulate):
    # the reader holds its first tile until the writer has sent three more beside it
    port = wire.port
    program = wire.program(
        [
            wire.unit(
                "write", [8], [port("free", 1)], [port("full", 1), port("seen", 1)], kind="write"
            ),
            wire.unit("count", [8], [port("seen", 1)], [port("go", 1)]),
            wire.unit(
                "read", [2, 4], [port("full", 2), port("go4", 1)], [port("free", 2)], kind="read"
            ),
            wire.unit("four", [2, 4], [port("go", 2)], [port("go4", 1)]),
        ],
        full={"kind": "tile"},
        free={"kind": "credit", "capacity": 2, "initial": 2},
        scratchpads=[Scratchpad("pad", "x", ("write",), ("read",), 4, 2, 64, 1)],
    )
    with pytest.raises(DeadlockError) as caught:
        simulate(program)
    error = caught.value
    assert (error.channel, error.capacity, error.needed_capacity) == ("pad", 2, 4)
    assert "scratchpad pad: depth must be at least 4, got 2" in str(error)


def test_cycle_without_a_token_is_not_blamed_on_a_capacity(wire, simulate):
    program = wire.program(
        [
            wire.unit("ping", [4], [wire.port("b", 1)], [wire.port("a", 1)]),
            wire.unit("pong", [4], [wire.port("a", 1)], [wire.port("b", 1)]),
        ]
    )
    with pytest.raises(DeadlockError, match="no channel is full") as caught:
        simulate(program)
    assert caught.value.needed_capacity is None


def test_full_channel_that_no_capacity_frees_is_said_so(wire, simulate):
    # the sink wants a token of b that is never sent; a fills up meanwhile
    program = wire.program(
        [
            wire.unit("first", [64], [], [wire.port("a", 1)]),
            wire.unit("second", [2], [], [wire.port("b", 1)]),
            wire.sink("sink", [64], wire.port("a", 1), wire.port("b", 1)),
        ]
    )
    with pytest.raises(DeadlockError, match="no size of it alone would do") as caught:
        simulate(program)
    assert (caught.value.channel, caught.value.needed_capacity) == ("a", None)
