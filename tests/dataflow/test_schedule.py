"""Schedules: read with places, written back, refused with every fault."""

from pathlib import Path

import pytest

from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule
from hwspecs import SpecError

TEXT = """\
tile: {i: 64, k: 32}
time: [i.o, k.o]
walk: [i, j, k]
nodes:
  c: {vector: {j: 16}, pack: {i: 3}, unroll: {j: 4}}
channels:
  a -> c: {at: i.o, depth: 2}
  c -> store c: {locality: scratchpad}
"""


def test_schedule_reads_what_yaml_says() -> None:
    schedule = Schedule.from_yaml(TEXT)
    assert schedule.tile == {"i": 64, "k": 32}
    assert schedule.time == ("i.o", "k.o")
    assert schedule.node("c") == NodeSchedule(vector={"j": 16}, pack={"i": 3}, unroll={"j": 4})
    assert schedule.channel("a", "c") == ChannelSchedule(at="i.o", depth=2)
    assert schedule.node("other") == NodeSchedule()


def test_schedule_written_reads_back_equal() -> None:
    schedule = Schedule.from_yaml(TEXT)
    assert Schedule.from_yaml(schedule.to_yaml()) == schedule


def test_schedule_keeps_an_empty_at_apart_from_none() -> None:
    schedule = Schedule(channels={"a -> c": ChannelSchedule(at="")})
    assert Schedule.from_yaml(schedule.to_yaml()).channel("a", "c").at == ""


def test_schedule_faults_come_at_once_with_their_places(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("tile: {i: 0}\nwalks: [i]\nnodes:\n  c: {vector: {i: 4, j: 4}}\n")
    with pytest.raises(SpecError) as caught:
        Schedule.from_yaml(path)
    places = [(fault.line, fault.column) for fault in caught.value.faults]
    assert places == [(1, 11), (2, 1), (4, 15)]
    assert "did you mean walk?" in str(caught.value)


@pytest.mark.parametrize("field", ["vector", "pack", "unroll"])
@pytest.mark.parametrize("count", ["-1", "0", "1.5", "many", "true"])
def test_schedule_refuses_counts_that_are_none(field: str, count: str) -> None:
    with pytest.raises(SpecError, match=f"nodes.c.{field}.i must be"):
        Schedule.from_yaml(f"nodes: {{c: {{{field}: {{i: {count}}}}}}}")
