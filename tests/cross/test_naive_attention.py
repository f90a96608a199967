"""Two passes need a whole row of scores held; the online form needs none (arXiv 2404.16629)."""

from __future__ import annotations

import pytest

import hwspecs
from dataflow.kernels import build
from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule
from dataflow.sim import DeadlockError, simulate
from mapping import Mapping, map_graph

KEYS = 64
SCORES = "s -> s.shifted"
LANES = {"d": 16}
SIZES = {"heads": 1, "n": 16, "m": KEYS, "d": 64}


def _naive(depth: int | None = None) -> Mapping:
    """Row by row, a score every 64 / 16 cycles; `depth` beats for a row, or what is derived."""
    nodes = {name: NodeSchedule(vector=LANES) for name in ("q.scaled", "s", "o")}
    channels = {SCORES: ChannelSchedule(depth=depth)} if depth else {}
    schedule = Schedule(
        time=("batch", "heads", "n"), walk=("m", "d"), nodes=nodes, channels=channels
    )
    graph = build("attention", SIZES, rewrites=())
    return map_graph(graph, hwspecs.load("plasticine"), schedule)


def _online(block: int) -> Mapping:
    nodes = {
        name: NodeSchedule(vector=LANES) for name in ("q.scaled", "s", "ba", "acc.kept", "acc", "o")
    }
    channels = {name: ChannelSchedule(at="heads") for name in ("k -> s", "v -> ba")}
    schedule = Schedule(
        time=("batch", "heads", "n", "m.b"), walk=("m.i", "d"), nodes=nodes, channels=channels
    )
    graph = build("attention", SIZES, {"block": block})
    return map_graph(graph, hwspecs.load("plasticine"), schedule)


def _depth(mapped: Mapping, name: str) -> int:
    return next(edge.depth for edge in mapped.stream.edges if edge.name == name)


def test_naive_attention_is_given_a_buffer_for_its_whole_row() -> None:
    mapped = _naive()
    # A row of 64 scores, one a beat, and the 32 beats of an ordinary FIFO of the machine.
    assert _depth(mapped, SCORES) == KEYS + 32
    edge = next(edge for edge in mapped.stream.edges if edge.name == SCORES)
    assert edge.why == "s.shifted waits for r over m: a whole pass, plus one FIFO"
    assert simulate(mapped.program, values=False).complete


@pytest.mark.parametrize("depth", [1, 32, KEYS - 1])
def test_naive_attention_deadlocks_on_less_than_a_row_and_says_what_would_do(depth: int) -> None:
    with pytest.raises(DeadlockError) as caught:
        simulate(_naive(depth).program, values=False)
    error = caught.value
    assert error.channel.startswith(SCORES)
    assert (error.capacity, error.needed_capacity) == (depth, KEYS)
    assert f"must be at least {KEYS}, got {depth}" in str(error)
    assert simulate(_naive(error.needed_capacity).program, values=False).complete


def test_online_attention_keeps_the_rate_with_short_fifos() -> None:
    # Both take 64 keys x 4 beats of 16 lanes for each of 16 queries: 4096 firings of the products.
    block = 16
    naive, online = _naive(), _online(block)
    assert max(edge.depth for edge in online.stream.edges if edge.kind == "fifo") <= 5 * block
    assert _depth(online, SCORES) == block + 32
    cycles = simulate(online.program, values=False).cycles
    assert cycles <= 1.02 * simulate(naive.program, values=False).cycles
