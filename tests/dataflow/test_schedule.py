"""Schedules as text and data: round trips, faults with their place, defaults."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.schedule import ChannelSchedule, NodeSchedule, Schedule, ScheduleError
from dataflow.streams import stream
from hwspecs import SpecError, read
from tests.dataflow.streams.small import gemm

TEXT = """\
tile: {i: 4, k: 5}
time: [i.o, k.o]
walk: [i, j, k]
nodes:
  c.part:
    vector: {j: 2}
    pack: {i: 2}
    unroll: {j: 3}
channels:
  a -> c.part: {at: i.o, depth: 2}
  c.part -> c: {locality: scratchpad}
"""


def test_schedule_reads_every_field() -> None:
    schedule = Schedule.from_yaml(TEXT)
    assert schedule.tile == {"i": 4, "k": 5}
    assert schedule.time == ("i.o", "k.o")
    assert schedule.node("c.part") == NodeSchedule(vector={"j": 2}, pack={"i": 2}, unroll={"j": 3})
    assert schedule.channel("a", "c.part") == ChannelSchedule(at="i.o", depth=2)
    assert schedule.channel("c.part", "c").locality == "scratchpad"


def test_schedule_is_default_where_nothing_is_said() -> None:
    assert Schedule.from_yaml("{}") == Schedule()
    assert Schedule().node("c") == NodeSchedule()
    assert Schedule().channel("a", "c") == ChannelSchedule()


def test_schedule_equals_another_that_says_the_same_elsewhere(tmp_path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(TEXT)
    assert Schedule.from_yaml(path) == Schedule.from_yaml(TEXT)
    assert Schedule.from_yaml(TEXT) != Schedule()


_DIGITS = st.sampled_from(["i", "j.o", "k", "rows", "n.b.o"])
_COUNTS = st.dictionaries(_DIGITS, st.integers(1, 64), max_size=3)
_NODES = st.builds(
    NodeSchedule,
    walk=st.none() | st.lists(_DIGITS, unique=True).map(tuple),
    vector=st.dictionaries(_DIGITS, st.integers(1, 16), max_size=1),
    pack=_COUNTS,
    unroll=_COUNTS,
)
_CHANNELS = st.builds(
    ChannelSchedule,
    locality=st.sampled_from([None, "fifo", "scratchpad"]),
    at=st.none() | _DIGITS | st.just(""),
    depth=st.none() | st.integers(1, 600),
)
_SCHEDULES = st.builds(
    Schedule,
    tile=_COUNTS,
    time=st.lists(_DIGITS, unique=True).map(tuple),
    walk=st.lists(_DIGITS, unique=True).map(tuple),
    nodes=st.dictionaries(st.sampled_from(["c", "c.part", "load a"]), _NODES, max_size=2),
    channels=st.dictionaries(st.sampled_from(["a -> c", "c -> store c"]), _CHANNELS, max_size=2),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(schedule=_SCHEDULES)
def test_schedule_comes_back_from_its_text(schedule) -> None:
    back = Schedule.from_yaml(schedule.to_yaml())
    assert back == schedule
    # What a node or channel says nothing of may be left out.
    assert all(back.node(name) == plan for name, plan in schedule.nodes.items())
    assert all(
        back.channels.get(name, ChannelSchedule()) == plan
        for name, plan in schedule.channels.items()
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("tiles: {i: 4}", "<schedule text>:1:1: tiles"),
        ("tile: {i: 0}", "<schedule text>:1:11: tile.i"),
        ("tile: {i: 2.5}", "<schedule text>:1:11: tile.i"),
        ("nodes:\n  c: {vector: {i: 2, j: 2}}", "<schedule text>:2:15: nodes.c.vector"),
        ("channels:\n  a -> c: {locality: dram}", "<schedule text>:2:22: channels.a -> c"),
    ],
)
def test_schedule_refuses_what_it_does_not_know_with_its_place(text, fault) -> None:
    with pytest.raises(SpecError) as caught:
        Schedule.from_yaml(text)
    assert str(caught.value).startswith(fault)


def test_schedule_inside_another_file_keeps_its_places() -> None:
    located = read("kernel: gemm\nschedule:\n  time: [q]\n", "mapping")
    schedule = Schedule.from_located(located, ("schedule",))
    with pytest.raises(ScheduleError) as caught:
        stream(gemm(), schedule)
    assert str(caught.value).startswith("<mapping text>:3:10: time")


def test_schedule_of_python_names_its_path() -> None:
    with pytest.raises(ScheduleError, match=r"^schedule: time\.0 must be a digit of the kernel"):
        stream(gemm(), Schedule(time=("q",)))


def test_schedule_keeps_an_empty_at_apart_from_none() -> None:
    schedule = Schedule(channels={"a -> c": ChannelSchedule(at="")})
    assert Schedule.from_yaml(schedule.to_yaml()).channel("a", "c").at == ""


def test_schedule_faults_come_at_once_with_their_places(tmp_path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("tile: {i: 0}\nwalks: [i]\nnodes:\n  c: {vector: {i: 4, j: 4}}\n")
    with pytest.raises(SpecError) as caught:
        Schedule.from_yaml(path)
    places = [(fault.line, fault.column) for fault in caught.value.faults]
    assert places == [(1, 11), (2, 1), (4, 15)]
    assert "did you mean walk?" in str(caught.value)


@pytest.mark.parametrize("field", ["vector", "pack", "unroll"])
@pytest.mark.parametrize("count", ["-1", "0", "1.5", "many", "true"])
def test_schedule_refuses_counts_that_are_none(field, count) -> None:
    with pytest.raises(SpecError, match=f"nodes.c.{field}.i must be"):
        Schedule.from_yaml(f"nodes: {{c: {{{field}: {{i: {count}}}}}}}")
