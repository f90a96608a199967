"""Values worked out without times: those of the SimPy engine, to the last bit."""

import dataclasses

import numpy as np
import pytest

import hwspecs
from dataflow.kernels import build
from dataflow.reference import draw_inputs
from dataflow.sim import EngineError, Interrupted, engine_for, engines, simulate
from dataflow.sim.untimed import Untimed, why_timed
from mapping import map_graph
from tests.dataflow.sim.test_values import numbers

KERNELS = [
    ("gemm", {"i": 20, "j": 24, "k": 36}, "plasticine"),
    ("attention", {"n": 24, "m": 24, "d": 8}, "plasticine"),
    ("dot_product", {"n": 100}, "tiny"),
    ("fft_conv", {"batch": 1, "channels": 2, "n": 16}, "plasticine"),
    ("lstm", {"t": 3, "h": 12, "e": 8}, "plasticine_rnn"),
    ("layer_norm", {"rows": 3, "n": 40}, "sn10"),
    ("gemm", {"i": 40, "j": 40, "k": 40}, "systolic_32x32"),
    ("softmax", {"rows": 5, "n": 24}, "plasticine_dynamic"),
]


@pytest.mark.parametrize(("kernel", "sizes", "machine"), KERNELS)
def test_values_of_both_engines_are_equal_to_the_bit(kernel, sizes, machine):
    graph = build(kernel, sizes)
    program = map_graph(graph, hwspecs.load(machine)).program
    inputs = draw_inputs(graph)
    by_simpy = simulate(program, inputs, engine="simpy")
    by_fast = simulate(program, inputs, engine="fast")
    assert by_fast.engine == "fast"
    assert by_fast.cycles == by_simpy.cycles
    assert by_fast.outputs.keys() == by_simpy.outputs.keys()
    for name, value in by_simpy.outputs.items():
        np.testing.assert_array_equal(by_fast.outputs[name], value)


@pytest.fixture
def scaled():
    """A small kernel with a scratchpad: its program and inputs."""
    graph = build("gemm", {"i": 20, "j": 24, "k": 36})
    return map_graph(graph, hwspecs.load("plasticine")).program, draw_inputs(graph)


def without(program, kind):
    """The program without its tokens of a kind."""
    gone = {channel.name for channel in program.channels if channel.kind == kind}

    def kept(ports):
        return tuple(port for port in ports if not gone & set(port.channels))

    units = [
        dataclasses.replace(unit, inputs=kept(unit.inputs), outputs=kept(unit.outputs))
        for unit in program.units
    ]
    channels = tuple(channel for channel in program.channels if channel.name not in gone)
    return dataclasses.replace(program, units=tuple(units), channels=channels)


def test_mapped_programs_need_no_times(scaled):
    assert why_timed(scaled[0]) == ""


@pytest.mark.parametrize("kind", ["tile", "credit"])
def test_scratchpad_that_nothing_guards_needs_times(scaled, kind):
    program, inputs = without(scaled[0], kind), scaled[1]
    assert "nothing keeps" in why_timed(program)
    with pytest.raises(EngineError, match=r"nothing keeps .* apart"):
        simulate(program, inputs, engine="fast")


def test_auto_takes_the_compiled_engine_for_long_runs_that_it_can_do(scaled, monkeypatch):
    program = scaled[0]
    short = {"values": True, "max_cycles": None, "why": False}
    assert engine_for(program, "auto", **short) == "simpy"
    monkeypatch.setattr(engines, "WORTH_COMPILING", 1)
    assert engine_for(program, "auto", **short) == "fast"
    assert engine_for(program, "auto", **{**short, "why": True}) == "simpy"
    assert engine_for(program, "auto", **{**short, "max_cycles": 9}) == "simpy"
    assert engine_for(without(program, "tile"), "auto", **short) == "simpy"
    assert engine_for(without(program, "tile"), "auto", **{**short, "values": False}) == "fast"
    with pytest.raises(EngineError, match="values of a run cut short"):
        engine_for(program, "fast", **{**short, "max_cycles": 9})


def test_stores_that_add_to_one_tensor_need_times(wire):
    stores = [wire.load(f"put{n}", 16, "y", f"c{n}", tile=16, kind="store") for n in range(2)]
    added = [
        dataclasses.replace(unit, work=dataclasses.replace(unit.work, merge="add"))
        for unit in stores
    ]
    makers = [wire.unit(f"make{n}", [1, 1], [], [wire.port(f"c{n}", 2)]) for n in range(2)]
    assert "several stores" in why_timed(wire.program([*makers, *added]))
    assert why_timed(wire.program([*makers, *stores])) == ""


def test_interruption_keeps_the_times(scaled):
    program, inputs = scaled

    def stop(done, total, cycle):
        if cycle == times.cycles:  # the times are known: values are being worked out
            raise KeyboardInterrupt

    times = simulate(program, None, engine="fast", values=False)
    with pytest.raises(Interrupted) as stopped:
        simulate(program, inputs, engine="fast", progress=stop)
    assert stopped.value.result.cycles == times.cycles
    assert not stopped.value.result.outputs


def test_writers_stay_near_their_readers(scaled):
    program, inputs = scaled
    run = Untimed(program, inputs)
    most = 0

    def look(done, total, cycle):
        nonlocal most
        most = max(most, *(len(queue) for queue in run.values.queues.values()))

    outputs = run.run(look)
    assert most <= 16
    assert outputs["c"].shape == numbers(20, 24).shape
