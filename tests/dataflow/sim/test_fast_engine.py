"""The fast engine equals the SimPy engine in everything: cycles, accounts, peaks, deadlocks."""

import dataclasses
import random
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hwspecs
from dataflow.index import affine
from dataflow.kernels import KERNELS, build
from dataflow.program import Access, AxisWalk, DigitWalk, Piece
from dataflow.schedule import ScheduleError
from dataflow.sim import DeadlockError, EngineError, ProgramError, simulate
from mapping import map_graph
from mapping.errors import MappingError
from tests.cross.random_schedules import CASES, graph_of, random_schedule, roomy
from tests.dataflow.sim import test_memory_rules, test_rules

MACHINES = ("plasticine", "plasticine_rnn", "sn10", "sn40l", "tiny", "tungsten_20x20")


def outcome(program, engine, **options):
    """All that a run says, but for how long it took and who ran it."""
    try:
        result = simulate(program, values=False, engine=engine, **options)
    except DeadlockError as error:
        return str(error), vars(error)
    except ProgramError as error:
        return str(error)
    assert result.engine == engine
    return dataclasses.replace(result, wall_seconds=0.0, engine="")


def assert_same(program, **options):
    assert outcome(program, "fast", **options) == outcome(program, "simpy", **options)


def fuzz(quick):
    """Settings for a property: `quick` examples; a slow test takes many times as many."""
    return settings(
        max_examples=quick, deadline=None, suppress_health_check=[HealthCheck.differing_executors]
    )


ends = st.none() | st.integers(0, 80)


@fuzz(60)
@given(data=st.data())
def test_random_program_is_the_same(wire, data):
    assert_same(data.draw(test_rules.programs(wire)), max_cycles=data.draw(ends))


@fuzz(40)
@given(data=st.data())
def test_random_traffic_is_the_same(wire, data):
    machine = hwspecs.load("tungsten_20x20")
    assert_same(data.draw(test_memory_rules.programs(wire, machine)), max_cycles=data.draw(ends))


@st.composite
def walks(draw, axis, loop):
    """An axis of one or two digits, each of up to three pieces: inner part, loop, copies."""
    digits = []
    for stride in (draw(st.integers(1, 5)), draw(st.integers(1, 3)))[: draw(st.integers(1, 2))]:
        inner, copies = draw(st.sampled_from([2, 8, 25])), draw(st.integers(1, 3))
        pieces = [Piece(1, inner)]
        if draw(st.booleans()):
            pieces.append(Piece(inner, draw(st.integers(1, 6)), loop, copies, copies - 1))
        if draw(st.booleans()):
            pieces.append(Piece(2 * inner, 4, None, copies, draw(st.integers(0, copies - 1))))
        draw(st.randoms()).shuffle(pieces)
        digits.append(DigitWalk(stride, draw(st.sampled_from([3, 20, 50])), tuple(pieces)))
    return AxisWalk(axis, draw(st.sampled_from([5, 40, 90])), tuple(digits))


@st.composite
def accesses(draw, wire, name, kind):
    """A load or store of three loops, two of them over points, and its tensor."""
    box = (draw(walks("i", 0)), draw(walks("j", 1)))
    steps = st.sampled_from([1, 0, -1, 2, 30])
    index = tuple(
        draw(steps) * affine("i") + draw(steps) * affine("j") + draw(st.integers(-3, 9))
        for _ in range(draw(st.integers(1, 2)))
    )
    shape = [draw(st.sampled_from([2, 30, 70])) for _ in index]
    order = draw(st.permutations(["i", "j"]))
    access = Access(name, name, box, index, tuple(order), draw(st.sampled_from([1, 3, 16])))
    base = draw(st.integers(0, 64)) * 4
    tensor = wire.tensor(name, *shape, base=base, element_bytes=draw(st.sampled_from([1, 2, 4])))
    return access, tensor


@st.composite
def moving(draw, wire):
    """A load, a unit, a store, each of its own tensor and order; often too wide or too long."""
    fields = {
        "outstanding_requests": draw(st.integers(1, 40)),
        "outstanding_writes": draw(st.none() | st.integers(1, 40)),
        "latency_cycles": 3,
    }
    machine = hwspecs.load("tungsten_20x20")
    generators = machine.generators.model_copy(update=fields)
    rates = {
        "read_bytes_per_s": draw(st.sampled_from([3.3e9, 7e9, 12.8e9])),
        "write_bytes_per_s": draw(st.sampled_from([1.1e9, 16e9])),
        "interleave_bytes": draw(st.sampled_from([64, 256])),
    }
    chip = machine.off_chip.model_copy(update=rates)
    machine = machine.model_copy(update={"generators": generators, "off_chip": chip})
    loops = [draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.sampled_from([9, 60, 700]))]
    beats = loops[0] * loops[1] * loops[2]
    source, x = draw(accesses(wire, "x", "load"))
    target, y = draw(accesses(wire, "y", "store"))
    port = wire.port
    units = [
        wire.unit("load", loops, [], [port("a", 3)], kind="load", points=2, latency=1, work=source),
        wire.unit("work", [beats], [port("a", 1)], [port("b", 1)], ii=draw(st.integers(1, 9))),
        wire.unit("store", loops, [port("b", 3)], [], kind="store", points=2, work=target),
    ]
    return wire.program(units, machine, tensors=[x, y], capacity=draw(st.integers(1, 40)))


@fuzz(40)
@given(data=st.data())
def test_random_access_is_the_same(wire, data):
    assert_same(data.draw(moving(wire)))


@pytest.mark.parametrize("order", [1, -1])
def test_load_that_runs_ahead_over_many_beats_is_the_same(wire, order):
    # tiles of 6000 beats of one element each, many of them past the tensor's end: the generator
    # stops 4096 beats ahead of what fired
    units = [
        wire.load("load", 20_000, "x", "a", tile=6000, lanes=1),
        wire.load("other", 24_000, "y", "b", tile=6000, lanes=1),
        wire.sink("sink", [24_000], wire.port("a", 1), wire.port("b", 1)),
    ]
    tensors = [wire.tensor("x", 7000), wire.tensor("y", 24_000, base=1 << 20)]
    machine = hwspecs.load("tungsten_20x20")
    program = wire.program([*units[:2][::order], units[2]], machine, tensors=tensors)
    assert_same(program)


@pytest.mark.parametrize("name", MACHINES)
def test_every_kernel_is_the_same_on(name):
    machine = hwspecs.load(name)
    compared = 0
    for kernel in KERNELS.values():
        sizes = {axis: min(extent, 8) for axis, extent in kernel.sizes.items()}
        try:
            program = map_graph(build(kernel.name, sizes), machine).program
        except MappingError:
            continue
        assert_same(program)
        compared += 1
    assert compared >= 6


def compare_schedule(case, seed, most):
    """Compare on a random schedule, of depths that may be too small to run."""
    draw = random.Random(f"{case} {seed}")
    schedule = random_schedule(graph_of(case), draw, depths=True)
    try:
        program = map_graph(graph_of(case), roomy(draw.choice((1, 4, 16))), schedule).program
    except (ScheduleError, MappingError):
        return
    if sum(unit.firings for unit in program.units) <= most:
        assert_same(program)


QUICK = ("gemm", "softmax online", "attention causal", "lstm", "accumulate_buffer")


@pytest.mark.parametrize("case", QUICK)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_schedule_is_the_same(case, seed):
    compare_schedule(case, seed, 5000)


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_many_random_schedules_are_the_same(case, seed):
    compare_schedule(case, seed, 50_000)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(data=st.data())
def test_many_random_programs_are_the_same(wire, data):
    machine = hwspecs.load("tungsten_20x20")
    kinds = [test_rules.programs(wire), test_memory_rules.programs(wire, machine), moving(wire)]
    assert_same(data.draw(st.one_of(kinds)), max_cycles=data.draw(ends))


def one_unit(wire):
    return wire.program([wire.unit("only", [4], [], [])])


def test_auto_takes_the_fast_engine_for_long_runs_and_says_so(wire, monkeypatch):
    program = map_graph(build("dot_product", {"n": 4}), hwspecs.load("tiny")).program
    inputs = {"a": np.ones(4), "b": np.ones(4)}
    assert simulate(program).engine == "simpy"
    monkeypatch.setattr("dataflow.sim.engines.WORTH_COMPILING", 1)
    assert simulate(program).engine == "fast"
    assert simulate(program, inputs, values=False).engine == "fast"
    assert simulate(program, inputs).engine == "fast"
    assert simulate(program, inputs, max_cycles=9).engine == "simpy"


def test_fast_engine_refuses_values_of_a_run_cut_short(wire):
    with pytest.raises(EngineError, match="engine must be simpy where values of a run cut short"):
        simulate(one_unit(wire), {}, engine="fast", max_cycles=9)


def test_fast_engine_refuses_rates_beyond_whole_numbers(wire):
    machine = hwspecs.load("tungsten_20x20")
    rates = {"read_bytes_per_s": 1e10 / 3, "write_bytes_per_s": 1e10 / 7}
    machine = machine.model_copy(update={"off_chip": machine.off_chip.model_copy(update=rates)})
    units = [wire.load("load", 64, "x", "a", tile=64), wire.sink("sink", [4], wire.port("a", 1))]
    program = wire.program(units, machine, tensors=[wire.tensor("x", 64)])
    with pytest.raises(EngineError, match=r"off_chip rates must make .*engine='simpy'"):
        simulate(program, engine="fast")
    assert simulate(program, engine="simpy").complete


def test_unknown_engine_is_refused(wire):
    with pytest.raises(EngineError, match="one of auto, simpy, fast, got 'fats'; did you mean"):
        simulate(one_unit(wire), engine="fats")


@pytest.mark.parametrize("engine", ["auto", "fast"])
def test_without_numba_nothing_falls_back(wire, engine, monkeypatch):
    monkeypatch.setattr("dataflow.sim.engines.WORTH_COMPILING", 1)
    for name in [name for name in sys.modules if name.startswith("dataflow.sim.fast_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("dataflow.sim.fast_engine", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(EngineError, match=r"where Numba cannot be loaded, got .*install numba"):
        simulate(one_unit(wire), engine=engine)
    assert simulate(one_unit(wire), engine="simpy").engine == "simpy"
