"""Programs by hand: which units, with which loops, channels and boxes, and how long they take."""

import dataclasses

import numpy as np
import pytest

from dataflow.graph import Builder
from dataflow.program import Compute, Program
from dataflow.reference import evaluate
from dataflow.schedule import Schedule
from dataflow.sim import simulate
from dataflow.streams import stream
from hwspecs import Machine, load
from hwspecs.machine import Operation
from mapping.building.program import build
from mapping.partition import partition
from tests.cross.random_schedules import inputs_of, roomy
from tests.dataflow.streams.small import chain, gemm, running_sum, softmax


def program(graph, text="{}", machine: Machine | None = None) -> Program:
    machine = machine or roomy()
    made = stream(graph, Schedule.from_yaml(text), machine.compute.lanes)
    return build(made, partition(made, machine), machine)


def units(made, kind=""):
    return {unit.name: unit for unit in made.units if not kind or unit.kind == kind}


def loops(unit):
    return [(loop.digit, loop.trips) for loop in unit.loops]


def right(graph, made):
    """The run's result, its outputs those of the graph."""
    result = simulate(made, inputs_of(graph))
    for name, expected in evaluate(graph, inputs_of(graph)).items():
        np.testing.assert_allclose(result.outputs[name], expected, rtol=1e-4, atol=1e-5)
    return result


def test_build_gives_a_small_product_its_six_kinds_of_unit() -> None:
    made = program(gemm(), "{time: [i]}")
    c = units(made, "compute")["c"]
    assert (loops(c), c.points) == ([("i", 8), ("j", 6), ("k", 10)], 1)
    assert loops(units(made, "load")["load a"]) == [("i", 8), ("k", 3)]  # 10 in lanes of 4
    assert loops(units(made, "store")["store c"]) == [("i", 8), ("j", 2)]
    # Each operand comes by a scratchpad: a write and a read unit.
    assert len(units(made, "write")) == len(units(made, "read")) == 3


def test_build_pushes_a_sum_when_its_loop_has_wrapped() -> None:
    c = units(program(gemm(), "{time: [i]}"), "compute")["c"]
    (out,) = c.outputs
    assert (out.level, out.last) == (2, ())


def test_build_pushes_at_the_last_turn_of_a_reduced_loop_outside() -> None:
    c = units(program(gemm(), "{time: [i], nodes: {c: {walk: [k, j]}}}"), "compute")["c"]
    (out,) = c.outputs
    # j is innermost: its sums leave one by one, while k stands at its last trip.
    assert (out.level, out.last) == (3, (1,))


def test_build_joins_what_streams_within_the_stages_of_a_unit() -> None:
    made = program(chain(6), machine=roomy(4))
    assert list(units(made, "compute")) == ["m3", "m5"]
    works = [unit.work for unit in units(made, "compute").values()]
    names = [[o.node.name for o in work.operations] for work in works if isinstance(work, Compute)]
    assert names == [["m0", "m1", "m2", "m3"], ["m4", "m5"]]


def test_build_counts_the_latency_of_a_chain_of_units() -> None:
    made = program(gemm(), "{nodes: {c: {vector: {k: 4}, pack: {i: 2}}}}", roomy(4))
    c = units(made)["c"]
    # For each of 2 rows: multiply, 2 levels of 4 lanes, accumulate: 8 stages are 2 units of 4.
    assert (c.stages, c.cells) == (8, 2)
    assert c.latency_cycles == 2 * 4 + 2  # two units, a channel between


def test_build_makes_a_unit_for_each_copy() -> None:
    made = program(gemm(), "{nodes: {c: {unroll: {i: 2, j: 3}}}}")
    copies = list(units(made, "compute"))
    assert copies == [f"c@i{i},j{j}" for i in range(2) for j in range(3)]
    assert loops(units(made)["c@i1,j2"]) == [("i", 4), ("j", 2), ("k", 10)]


def test_build_deals_beats_by_the_loops_of_the_writer() -> None:
    made = program(chain(2), "{nodes: {m0: {}, m1: {unroll: {n: 2}}}}", roomy(1))
    (out,) = units(made)["m0"].outputs
    assert out.channels == ("m0 -> m1@n0: m0", "m0 -> m1@n1: m0")
    assert out.select == ((0, 1, 2),)


def test_build_gives_tokens_and_credits_to_a_scratchpad() -> None:
    made = program(gemm(), "{time: [i]}")
    channels = {channel.name: channel for channel in made.channels}
    full, free = channels["load a -> c write full"], channels["load a -> c write free"]
    assert (full.kind, full.initial) == ("tile", 0)
    assert (free.kind, free.initial) == ("credit", 2)  # two buffers, both free


def test_build_waits_for_a_running_value_as_long_as_its_latency() -> None:
    machine = roomy(4)  # latency 4
    short, long = (program(running_sum(h=h), "{time: [t]}", machine) for h in (2, 6))
    (back,) = (channel for channel in short.channels if channel.writer == channel.reader)
    # 2 values go round: one is touched again after 2 firings, before 4 cycles have gone by.
    assert (back.initial, back.capacity) == (2, 3)
    # 6 of them take longer than the latency: nothing to wait for.
    assert not [channel for channel in long.channels if channel.writer == channel.reader]


@pytest.mark.parametrize(("h", "cycles"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_build_makes_a_short_recurrence_as_slow_as_it_is(h: int, cycles: int) -> None:
    # Each firing waits for the one a point before: ceil(latency 4 / h) cycles a firing.
    few, many = (
        right(graph, program(graph, "{time: [t]}"))
        for graph in (running_sum(t=20, h=h), running_sum(t=60, h=h))
    )
    assert (many.cycles - few.cycles) / (40 * h) == pytest.approx(cycles, rel=0.05)


def test_build_holds_a_deep_fifo_in_memory() -> None:
    made = program(softmax(rows=2, n=50))
    (deep,) = (channel for channel in made.channels if channel.name.startswith("e -> y"))
    assert deep.capacity == 50 + 16
    (held,) = (pad for pad in made.scratchpads if pad.name == deep.name)
    assert (held.writers, held.readers, held.bytes) == ((), (), 66 * 4)


def test_build_aligns_tensors_so_that_none_shares_a_burst() -> None:
    tensors = {tensor.name: tensor for tensor in program(gemm()).tensors}
    # c is 8 x 6 x 4 B = 3 interleaves of 64 B, a 8 x 10 x 4 B = 5, b 10 x 6 x 4 B less than 4.
    assert list(tensors) == ["output c", "input a", "input b"]
    assert [tensor.base_bytes for tensor in tensors.values()] == [0, 192, 192 + 320]
    assert tensors["output c"].shape == (8, 6)


def test_build_takes_a_scalar_result_to_the_host() -> None:
    g = Builder("total", n=6)
    g.output("total", g.reduce("sum", g.input("x", "n"), over="n", name="total"))
    made = program(g.build())
    assert list(units(made, "host")) == ["store total"]
    right(g.build(), made)


@pytest.mark.parametrize("copies", ["k.o: 5", "k.o: 8", "k.o: 4, k: 2", "k.o: 5, j: 2"])
def test_build_adds_up_tiles_of_many_copies(copies: str) -> None:
    text = "tile: {k: 2}, time: [i, k.o], walk: [j, k], channels: {c.part -> c: {at: k.o}}"
    graph = gemm(k=16)
    right(graph, program(graph, f"{{{text}, nodes: {{c.part: {{unroll: {{{copies}}}}}}}}}"))


@pytest.mark.parametrize(("stages", "cells"), [(6, 1), (7, 2), (24, 4)])
def test_build_lets_a_chain_of_units_fire_every_cycle(stages: int, cells: int) -> None:
    machine = load("tungsten_20x20")  # 6 cycles a unit, channels of 3, FIFOs of 16
    compute = machine.compute.model_copy(update={"operations": {"exp": Operation(stages=stages)}})
    machine = machine.model_copy(update={"compute": compute})

    def made(n: int) -> Program:
        g = Builder("chain", n=n)
        e = g.map("exp", g.affine("-n", "n", name="ramp"), name="e")
        g.output("total", g.reduce("max", e, over="n", name="total"))
        return program(g.build(), "{}", machine)

    assert units(made(100))["e"].cells == cells
    few, many = (simulate(made(n), values=False).cycles for n in (100, 400))
    assert many - few == 300


def test_build_is_the_same_each_time() -> None:
    text = "{nodes: {c: {unroll: {i: 2, j: 3}}}}"
    assert program(gemm(), text) == program(gemm(), text)


def test_build_with_a_buffer_too_few_gives_wrong_values() -> None:
    """The values follow the connections: a writer that does not wait for its readers shows."""
    graph, made = gemm(), program(gemm(), "{time: [i]}")
    channels = tuple(
        dataclasses.replace(channel, initial=channel.initial + 6, capacity=channel.capacity + 6)
        if channel.name == "load a -> c write free"
        else channel
        for channel in made.channels
    )
    result = simulate(dataclasses.replace(made, channels=channels), inputs_of(graph))
    assert not np.allclose(result.outputs["c"], evaluate(graph, inputs_of(graph))["c"])
