"""Lanes that meet in one bank take turns: intervals by hand, and what they cost in a run."""

import dataclasses

import numpy as np
import pytest

from dataflow.cases import case_schedule
from dataflow.graph import Builder
from dataflow.reference import evaluate
from dataflow.schedule import Schedule, ScheduleError
from dataflow.sim import simulate
from dataflow.streams import stream
from dataflow.validate import published, read_cases
from hwspecs import load
from mapping import map_graph
from mapping.banks import read_lanes, tile_strides, turns, write_lanes
from mapping.building.program import build
from mapping.partition import partition
from tests.cross.random_schedules import inputs_of

TINY = load("tiny")  # 4 lanes, 4 banks, words of 4 B, fp32
ROWS, COLUMNS = 8, 16


def cost(banking, *lanes, elems=128, machine=TINY, writes=False):
    return turns(banking, lanes, elems, machine, writes)


def test_neighbours_meet_no_bank_twice() -> None:
    # words 0, 1, 2, 3 in banks 0, 1, 2, 3
    assert cost("strided", (1, 4)) == 1
    assert cost("padded", (1, 4)) == 1


@pytest.mark.parametrize(("stride", "expected"), [(1, 1), (2, 2), (3, 1), (4, 4), (6, 2), (8, 4)])
def test_strided_lanes_meet_as_often_as_stride_and_banks_share_factors(stride, expected) -> None:
    # words 0, s, 2 s, 3 s modulo 4: s = 2 gives 0 2 0 2, s = 4 gives 0 0 0 0, s = 3 gives 0 3 2 1
    assert cost("strided", (stride, 4)) == expected


def test_padded_lanes_meet_in_no_stride() -> None:
    assert [cost("padded", (stride, 4)) for stride in (1, 2, 4, 8, 16)] == [1] * 5


def test_blocked_neighbours_share_a_bank() -> None:
    # 128 words in 4 banks: blocks of 32, and four neighbours in one of them
    assert cost("blocked", (1, 4)) == 4
    # 8 words in blocks of 2: neighbours two by two
    assert cost("blocked", (1, 4), elems=8) == 2


def test_blocked_lanes_a_block_apart_have_a_bank_each() -> None:
    assert cost("blocked", (32, 4)) == 1
    assert cost("blocked", (16, 4)) == 2  # 0 16 | 32 48
    # blocks of ceil(13 / 4) = 4 words: a beat that starts at 2 has 2, 5, 8, 11: banks 0 1 2 2
    assert cost("blocked", (3, 4), elems=13) == 2


def test_duplicated_reads_never_wait_and_writes_take_a_turn_a_word() -> None:
    assert [cost("duplicated", (stride, 4)) for stride in (1, 4, 16)] == [1, 1, 1]
    assert cost("duplicated", (1, 4), writes=True) == 4
    assert cost("duplicated", writes=True) == 1  # one element a beat


def test_lanes_that_want_one_word_share_it() -> None:
    assert cost("strided", (0, 4)) == cost("blocked", (0, 4)) == 1
    # four bytes of one word, as plasticine_rnn packs them: 16 lanes in 4 words
    packed = load("plasticine_rnn")
    assert cost("strided", (1, 16), machine=packed) == 1
    assert cost("duplicated", (1, 16), machine=packed, writes=True) == 4
    # 64 of 16 banks' words: one turn each
    assert cost("strided", (1, 64), machine=packed) == 1
    # every fourth byte is a word of its own: 64 words in 16 banks
    assert cost("strided", (4, 64), elems=256, machine=packed) == 4


def test_lanes_along_two_digits_are_counted_together() -> None:
    # 0 1 | 16 17: two lanes each in banks 0 and 1
    assert cost("strided", (1, 2), (16, 2)) == 2


# Reading a matrix by columns that was written by rows


def transposed(banking, columns=COLUMNS):
    """Sums of the rows of x: stored row by row, read with lanes along i."""
    g = Builder("row_sums", i=ROWS, j=columns)
    x = g.input("x", "i j")
    g.output("y", g.reduce("sum", x, "j", name="y"))
    channel = f", banking: {banking}" if banking else ""
    text = (
        "{walk: [i, j], nodes: {load x: {vector: {j: 4}}, y: {vector: {i: 4}}},"
        f" channels: {{x -> y: {{at: ''{channel}}}}}}}"
    )
    return g.build(), Schedule.from_yaml(text)


def mapped(graph, schedule, machine=TINY):
    made = stream(graph, schedule, machine.compute.lanes)
    return build(made, partition(made, machine), machine)


def test_strides_and_lanes_of_a_tile_follow_its_rows() -> None:
    graph, schedule = transposed("strided")
    made = stream(graph, schedule, 4)
    (edge,) = made.into("y")
    assert tile_strides(made, edge) == {"i": COLUMNS, "j": 1}
    assert write_lanes(made, edge, made.by_name["load x"]) == ((1, 4),)
    assert read_lanes(made, edge, made.by_name["y"]) == ((COLUMNS, 4),)


@pytest.mark.parametrize("engine", ["simpy", "fast"])
@pytest.mark.parametrize(
    ("banking", "columns", "write_turns", "read_turns"),
    [
        ("padded", 16, 1, 1),
        ("strided", 16, 1, 4),  # words 0 16 32 48: all in bank 0
        ("strided", 12, 1, 4),  # 0 12 24 36: all multiples of 4
        ("blocked", 16, 4, 2),  # blocks of 32: neighbours in one; 0 16 | 32 48
        ("duplicated", 16, 4, 1),
    ],
)
def test_transposed_read_costs_what_its_banks_say(
    engine, banking, columns, write_turns, read_turns
) -> None:
    graph, schedule = transposed(banking, columns)
    made = mapped(graph, schedule)
    result = simulate(made, values=False, engine=engine)
    names = {unit.kind: unit for unit in made.units if "load x" in unit.name}
    assert names["write"].ii_cycles == write_turns
    assert names["read"].ii_cycles == read_turns
    # a beat written is 4 of a row, one read 4 of a column: rows x columns / 4 of each, and of
    # each all cycles but the first are charged to the bank
    beats = ROWS * columns // 4
    for kind, interval in (("write", write_turns), ("read", read_turns)):
        account = result.accounts[names[kind].name]
        assert (account.busy, account.bank) == (beats, beats * (interval - 1))
    # the tile is there whole before it is read
    assert result.cycles > beats * (write_turns + read_turns) - max(write_turns, read_turns)


def test_banking_changes_no_value() -> None:
    graph, schedule = transposed("blocked")
    result = simulate(mapped(graph, schedule), inputs_of(graph))
    expected = evaluate(graph, inputs_of(graph))
    np.testing.assert_allclose(result.outputs["y"], expected["y"], rtol=1e-5)


def test_duplicated_tile_takes_the_capacity_of_all_banks() -> None:
    pads = {
        banking: mapped(*transposed(banking)).scratchpads[0] for banking in ("padded", "duplicated")
    }
    once = ROWS * COLUMNS * 4 * pads["padded"].depth
    assert pads["padded"].bytes == once
    assert (pads["duplicated"].bytes, pads["duplicated"].banking) == (4 * once, "duplicated")


def test_parts_of_a_result_lie_in_banks_as_the_result_does() -> None:
    # c.part is no node of the graph, but its tiles are those of c
    graph, schedule = case_schedule(next(c for c in read_cases(published()) if c.name == "GEMM_0"))
    made = map_graph(graph, load("tungsten_20x20"), schedule).program
    assert any(pad.value == "c.part" for pad in made.scratchpads)
    assert {unit.ii_cycles for unit in made.units if unit.kind in ("write", "read")} == {1}


def test_machine_may_choose_the_mode_and_a_channel_another() -> None:
    memory = TINY.memory.model_copy(update={"banking": "strided"})
    machine = TINY.model_copy(update={"memory": memory})
    assert mapped(*transposed(None), machine).scratchpads[0].banking == "strided"
    assert mapped(*transposed("blocked"), machine).scratchpads[0].banking == "blocked"
    assert mapped(*transposed(None)).scratchpads[0].banking == "padded"


def test_banking_of_a_fifo_is_refused() -> None:
    g = Builder("twice", n=16)
    x = g.input("x", "n")
    a = g.map("exp", x, name="a")
    g.output("b", g.map("exp", a, name="b"))
    schedule = Schedule.from_yaml("{channels: {a -> b: {banking: strided}}}")
    with pytest.raises(ScheduleError, match=r"banking must be left out for a FIFO, got strided"):
        stream(g.build(), schedule, 4)


def test_unknown_banking_is_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean strided"):
        Schedule.from_yaml("{channels: {a -> b: {banking: stridden}}}")


def test_schedule_keeps_its_banking_as_text() -> None:
    _, schedule = transposed("blocked")
    assert Schedule.from_yaml(schedule.to_yaml()) == schedule
    assert dataclasses.is_dataclass(mapped(*transposed("blocked")))
