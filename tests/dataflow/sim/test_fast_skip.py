"""Skipping whole periods changes nothing: every figure is that of the run without it."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hwspecs
from dataflow.cases import case_schedule
from dataflow.index import affine
from dataflow.kernels import build
from dataflow.program import Access, AxisWalk, DigitWalk, Loop, Piece
from dataflow.sim import DeadlockError, ProgramError, fast_engine, fast_levels, timing_graph
from dataflow.sim.fast_kernel import SKIPPED
from dataflow.validate import published, read_cases
from mapping import map_graph
from tests.dataflow.sim import test_dram, test_fast_engine, test_memory_rules, test_rules


@pytest.fixture(autouse=True)
def _every_level(monkeypatch):
    """Looks at the state at every level, however little lies between two looks."""
    monkeypatch.setattr(fast_levels, "FEWEST_FIRINGS", 0)
    monkeypatch.setattr(fast_levels, "WORTH_KNOWING", 0)
    monkeypatch.setattr(fast_levels, "KNOWN_WORDS", 1 << 18)


def outcome(program, skip):
    """All that a run says, and how many firings it skipped."""
    run = fast_engine.Run(program, timing_graph.build(program), skip=skip)
    try:
        said = dataclasses.replace(run.go(), wall_seconds=0.0)
    except DeadlockError as error:
        said = str(error), vars(error)
    except ProgramError as error:
        said = str(error)
    return said, int(run.s[SKIPPED])


def skipped(program):
    """Firings skipped, of a run that is the same without."""
    with_skip, firings = outcome(program, True)
    without, none = outcome(program, False)
    assert none == 0
    assert with_skip == without
    return firings


# The smallest runs that have a period


def test_two_units_skip_all_but_their_first_and_last_periods(wire):
    port = wire.port("ab", 2)
    loops = [1000, 16]
    units = [wire.unit("a", loops, [], [port]), wire.unit("b", loops, [port], ii=2)]
    # the state is known at the second mark, compared at the fourth, and the last trip is run
    assert skipped(wire.program(units)) >= 2 * 16 * 900


def test_rows_of_a_tile_repeat_once_the_next_tile_has_come(monkeypatch):
    # 8 tiles of 64 rows of 256 cycles: b of the next tile comes in the first few rows, and a row
    # that repeats is known as such at the second one like it
    monkeypatch.undo()
    case = next(case for case in read_cases(published()) if case.name == "GEMM_0")
    graph, schedule = case_schedule(case)
    program = map_graph(graph, hwspecs.load("tungsten_20x20"), schedule).program
    assert skipped(program) >= 0.7 * sum(unit.firings for unit in program.units)


def test_long_loop_without_another_inside_is_skipped_too(wire):
    port = wire.port("ab", 1)
    units = [wire.unit("a", [1 << 20], [], [port]), wire.unit("b", [1 << 20], [port], ii=3)]
    assert skipped(wire.program(units)) >= 0.98 * (2 << 20)


def test_stream_skips_between_turns_over_the_channels(wire):
    machine = hwspecs.load("tungsten_20x20")
    elems = 4096 * 256
    units = [
        wire.load("load", elems, "x", "a", tile=256),
        wire.sink("sink", [elems // 256, 16], wire.port("a", 2)),
    ]
    program = wire.program(units, machine, tensors=[wire.tensor("x", elems)])
    assert skipped(program) >= 0.9 * 2 * elems / 16


def test_stream_past_the_end_of_its_tensor_is_not_skipped_there(wire):
    machine = hwspecs.load("tungsten_20x20")
    elems, held = 4096 * 256, 1111 * 256 + 13
    units = [
        wire.load("load", elems, "x", "a", tile=256),
        wire.sink("sink", [elems // 256, 16], wire.port("a", 2)),
    ]
    program = wire.program(units, machine, tensors=[wire.tensor("x", held)])
    assert skipped(program) > 0


@pytest.mark.parametrize("trefi", ["1.024 us", "7.68 us"])
def test_stream_skips_over_rows_and_refreshes(wire, trefi):
    machine = test_dram.machine_with(channels=4, trefi=trefi)
    elems = 1 << 21
    units = [
        wire.load("load", elems, "x", "a", tile=1 << 12),
        wire.sink("sink", [elems >> 12, 1 << 8], wire.port("a", 2)),
    ]
    program = wire.program(units, machine, tensors=[wire.tensor("x", elems)])
    assert skipped(program) >= 0


# Properties


def lengthened(program, times):
    """The same program with its outermost loops that many times as long."""
    units = [
        dataclasses.replace(
            unit, loops=(Loop(unit.loops[0].digit, unit.loops[0].trips * times), *unit.loops[1:])
        )
        for unit in program.units
    ]
    return dataclasses.replace(program, units=tuple(units))


@st.composite
def streams(draw, wire):
    """Loads that read their tensors again and again, a unit, a store that moves on or returns."""
    machine = draw(st.just(hwspecs.load("tungsten_20x20")) | test_dram.memories())
    outer, points = draw(st.integers(2, 60)), draw(st.integers(2, 60))
    lanes, beats = draw(st.sampled_from([4, 16])), draw(st.sampled_from([1, 3, 8, 16]))
    tile = lanes * beats
    units, tensors, inputs, base = [], [], [], 0

    def add(name, kind, again):
        nonlocal base
        pieces = [Piece(tile, points, 1), Piece(1, tile)]
        extent = tile * points
        if not again:
            pieces.insert(0, Piece(extent, outer, 0))
            extent *= outer
        extent -= draw(st.sampled_from([0, 0, 0, 1, tile, tile + 3]))
        walk = AxisWalk("n", extent, (DigitWalk(1, extent, tuple(pieces)),))
        access = Access(name, name, (walk,), (affine("n"),), ("n",), lanes)
        port = [wire.port(f"of_{name}", 3)]
        units.append(
            wire.unit(
                name,
                [outer, points, beats],
                port if kind == "store" else [],
                [] if kind == "store" else port,
                kind=kind,
                points=2,
                latency=1,
                work=access,
            )
        )
        tensors.append(wire.tensor(name, extent, base=base))
        align = draw(st.sampled_from([64, 8192]))
        base += -(-4 * extent // align) * align
        return port[0]

    for number in range(draw(st.integers(1, 2))):
        inputs.append(add(f"x{number}", "load", draw(st.booleans())))
    stores = draw(st.booleans())
    outputs = [add("y", "store", draw(st.booleans()))] if stores else []
    trips = [outer, points, beats]
    units.append(wire.unit("work", trips, inputs, outputs, ii=draw(st.integers(1, 4))))
    return wire.program(units, machine, tensors=tensors, capacity=draw(st.integers(1, 40)))


found = Counter()


@test_fast_engine.fuzz(300)
@given(data=st.data())
def test_random_programs_are_the_same_with_the_skip(wire, data):
    kinds = [
        test_rules.programs(wire),
        test_memory_rules.programs(wire, hwspecs.load("tungsten_20x20")),
        test_fast_engine.moving(wire),
    ]
    program = lengthened(data.draw(st.one_of(kinds)), data.draw(st.integers(2, 40)))
    found["programs"] += skipped(program) > 0


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_streams_are_the_same_with_the_skip(wire, data):
    program = data.draw(streams(wire))
    found["streams"] += skipped(program) > 0
    found["rows"] += skipped(program) > 0 and program.machine.off_chip.dram is not None


def test_random_runs_do_skip():
    if found:
        assert found["programs"] >= 20
        assert found["streams"] >= 20, found


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        ("gemm", {"i": 128, "j": 128, "k": 128}),
        ("attention", {"n": 256, "m": 256, "d": 32}),
        ("softmax", {}),
        ("lstm", {}),
        ("dot_product", {"n": 1 << 17}),
        ("filter_sum", {"n": 1 << 16}),
    ],
)
@pytest.mark.parametrize("machine", ["plasticine", "tungsten_20x20", "sn10"])
def test_kernels_are_the_same_with_the_skip(kernel, sizes, machine):
    program = map_graph(build(kernel, sizes), hwspecs.load(machine)).program
    skipped(program)
