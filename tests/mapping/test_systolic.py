"""Systolic arrays: the closed forms to the cycle, values, engines, and what does not fit."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hwspecs
from dataflow.graph import Graph
from dataflow.kernels import build
from dataflow.program import Channel, Compute, Loop, Port, Program, Unit
from dataflow.reference import draw_inputs, evaluate
from dataflow.schedule import NodeSchedule, Schedule, ScheduleError
from dataflow.sim import simulate
from dataflow.sim.account import Account
from hwspecs import Machine
from hwspecs.machine import Dataflow, Systolic
from mapping import MappingError, map_graph
from mapping.bounds import bound, program_bound
from mapping.systolic import array_cycles, fold_cycles, refill_cycles, through_cycles
from mapping.systolic_units import next_fold, preload


@lru_cache
def loaded(name: str) -> Machine:
    return hwspecs.load(name)


def machine(name: str = "systolic_128x128", **systolic: object) -> Machine:
    """A machine of ours with some fields of its arrays changed."""
    base = loaded(name)
    assert base.compute.systolic is not None
    array = base.compute.systolic.model_copy(update=systolic)
    return base.model_copy(update={"compute": base.compute.model_copy(update={"systolic": array})})


def exact(target: Machine) -> Machine:
    """The machine with words in which small whole numbers and their sums are exact."""
    return target.model_copy(update={"data_type": "fp32", "word_bytes": 4})


def unlimited(target: Machine) -> Machine:
    """The machine with off-chip memory of any rate."""
    rates = {f"{kind}_bytes_per_s": 1e14 for kind in ("peak", "read", "write")}
    return target.model_copy(update={"off_chip": target.off_chip.model_copy(update=rates)})


def gemm(i: int, j: int, k: int, **options: object) -> Graph:
    return build("gemm", {"i": i, "j": j, "k": k}, options)


# Closed forms


def test_fold_cycles_of_128_by_128():
    array = Systolic(rows=128, columns=128, dataflow="weight")
    # 2 x 128 + 128 + 1024 - 2 and 128 + 128 + 1024 - 2
    assert fold_cycles(array, "weight", 1024) == fold_cycles(array, "input", 1024) == 1406
    assert fold_cycles(array, "output", 1024) == 1278
    assert array_cycles(array, "weight", 64, 1024) == 89_984
    assert array_cycles(array, "output", 64, 1024) == 81_792
    assert array_cycles(array, "output", 256, 2048) == 589_312


def test_fold_cycles_of_stonne():
    array = Systolic(rows=32, columns=32, dataflow="output", overhead_cycles=5)
    assert fold_cycles(array, "output", 100) == 167  # K + 67
    assert array_cycles(array, "output", 16, 128) == 3_120
    assert array_cycles(array, "output", 64, 256) == 20_672


def test_array_cycles_overlapped_hide_all_but_the_first_fill_and_the_last_drain():
    array = Systolic(rows=4, columns=2, dataflow="weight", folds="overlapped")
    # a fold alone: 4 preload + 10 stream + 5 through - 1 = 18; nine more follow 10 apart
    assert array_cycles(array, "weight", 10, 10) == 18 + 90
    # streams shorter than the preload wait for it: 4 + 3 - 1 + 5 = 11, then 4 apart
    assert array_cycles(array, "weight", 10, 3) == 11 + 36
    assert array_cycles(array, "output", 10, 10) == 14 + 90


# An array alone, its operands always there


def lone_array(array: Systolic, holds: str, folds: int, streamed: int) -> Program:
    """Units that give rows and vectors without end, an array, and a unit that takes results."""
    base = machine(**array.model_dump())
    nest = (Loop("fold", folds), Loop("t", streamed))
    nothing = Compute((), {})
    through = through_cycles(base)
    more = through + 1 if holds != "output" else -(-(through + 1) // streamed)
    vectors = Unit("vectors", "compute", nest, 0, (), (Port(("v",), 2),), 1, nothing)
    level = 1 if holds == "output" else 2
    inputs, outputs = [Port(("v",), 2)], [Port(("out",), level)]
    channels = [
        Channel("v", "vectors", "array", 16, 0),
        Channel("out", "array", "sink", 2 + more, through),
    ]
    units = [vectors]
    if holds == "output":
        again = next_fold("array", 1, base)
        if again:
            channels.append(again[0])
            inputs.append(again[1])
            outputs.append(again[1])
    else:
        made = preload("array", nest, 0, 1, Port(("rows",), 1), base)
        rows = Unit("source", "compute", made.unit.loops, 0, (), (Port(("rows",), 2),), 1, nothing)
        units += [rows, made.unit]
        channels += [Channel("rows", "source", made.unit.name, 16, 0), *made.channels]
        inputs.append(made.array_input)
        outputs.append(made.array_output)
    units.append(
        Unit("array", "compute", nest, 0, tuple(inputs), tuple(outputs), 1, nothing, array=holds)
    )
    units.append(Unit("sink", "compute", nest[:level], 0, (Port(("out",), level),), (), 1, nothing))
    return Program(gemm(1, 1, 1), base, tuple(units), tuple(channels))


def test_array_of_2_by_2_holds_its_weights():
    array = Systolic(rows=2, columns=2, dataflow="weight")
    # The first row is there at cycle 1. Fold 0: rows shifted in at 1 and 2, vectors enter at 3, 4
    # and 5, the last is through three cycles later, at 8, when fold 1 begins: vectors at 10, 11 and
    # 12, the last through at 15 and taken then.
    result = simulate(lone_array(array, "weight", 2, 3), values=False)
    assert result.cycles == 16
    # 0 to 2 for the first block, and 6 to 9 for the second
    account = result.accounts["array"]
    assert (account.busy, account.waiting, account.firings) == (6, 3 + 4, 6)


def test_array_of_2_by_2_holds_its_results():
    array = Systolic(rows=2, columns=2, dataflow="output")
    # Vectors enter at 1, 2 and 3; the last is through at 6, when those of fold 1 enter: 6, 7, 8;
    # the second block of results leaves at 11.
    assert simulate(lone_array(array, "output", 2, 3), values=False).cycles == 12


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["weight", "input", "output"]),
    st.sampled_from(["serial", "overlapped"]),
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_array_takes_its_closed_form(holds, folds, rows, columns, count, streamed, overhead):
    overhead = overhead if folds == "serial" else 0
    array = Systolic(rows=rows, columns=columns, dataflow=holds).model_copy(
        update={"folds": folds, "overhead_cycles": overhead}
    )
    program = lone_array(array, holds, count, streamed)
    result = simulate(program, values=False, engine="simpy")
    # Operands are there from cycle 1 on. What takes the results is always free, so that overlapped
    # folds of results need not wait for rows to leave. A run ends with the last result, where an
    # operand stays before the overhead of the last fold.
    expected = array_cycles(array, holds, count, streamed)
    if holds != "output":
        expected -= overhead
    elif folds == "overlapped":
        expected = (count - 1) * streamed + fold_cycles(array, holds, streamed)
    assert result.cycles == 1 + expected + 1


@pytest.mark.slow
@pytest.mark.parametrize("holds", ["weight", "input", "output"])
@pytest.mark.parametrize("folds", ["serial", "overlapped"])
def test_engines_agree_on_an_array(holds, folds):
    array = Systolic(rows=5, columns=3, dataflow=holds, folds=folds)
    program = lone_array(array, holds, 7, 4)
    results = [simulate(program, values=False, engine=e) for e in ("simpy", "fast")]
    assert results[0].cycles == results[1].cycles
    assert results[0].accounts == results[1].accounts


# The ordinary way: gemm by the default schedule


def compute_cycles(account: Account, array: Systolic, holds: str) -> int:
    """From the first fold to the last result, feeding aside: what is not charged to the memory."""
    preload_cycles = 0 if holds == "output" else array.rows
    through = array.rows + array.columns - 2
    return preload_cycles + account.busy + account.waiting + through + array.overhead_cycles


def run_array(graph: Graph, target: Machine, schedule: Schedule | None = None) -> int:
    mapped = map_graph(graph, target, schedule)
    (unit,) = (unit for unit in mapped.program.units if unit.array)
    result = simulate(mapped.program, values=False, engine="simpy")
    assert target.compute.systolic is not None
    assert result.cycles >= max(mapped.bound.cycles, program_bound(mapped.program).cycles)
    return compute_cycles(result.accounts[unit.name], target.compute.systolic, unit.array)


def test_gemm_of_1024_cubed_with_weights_held():
    assert run_array(gemm(1024, 1024, 1024), machine()) == 89_984


def test_gemm_of_1024_cubed_with_outputs_held():
    assert run_array(gemm(1024, 1024, 1024), machine(dataflow="output")) == 81_792


@pytest.mark.slow
def test_gemm_of_2048_cubed_with_outputs_held():
    assert run_array(gemm(2048, 2048, 2048), machine(dataflow="output")) == 589_312


@pytest.mark.parametrize(("size", "cycles"), [(128, 3_120), (256, 20_672)])
def test_gemm_on_32_by_32_takes_what_stonne_says(size, cycles):
    assert run_array(gemm(size, size, size), machine("systolic_32x32")) == cycles


def test_gemm_with_partial_folds_takes_whole_arrays():
    # 200 x 300 x 150: 2 x 3 folds of 200 vectors, 2 x 128 + 128 + 200 - 2 each
    program = map_graph(gemm(200, 300, 150), unlimited(machine()), by_hand("weight", 128, 128))
    result = simulate(program.program, values=False)
    account = result.accounts["c.part"]
    # This time the first block comes later than the first vectors, which counts as waiting too.
    first = first_firing(program.program, "c.part", result.cycles)
    spent = result.cycles - account.done - first
    assert 128 + spent + 254 == 6 * 582


def first_firing(program: Program, name: str, cycles: int) -> int:
    """The cycle at which a unit fires first."""

    def has_fired(most: int) -> bool:
        return simulate(program, values=False, max_cycles=most).accounts[name].firings > 0

    return bisect_left(range(1, cycles + 1), True, key=has_fired)


def test_gemm_with_overlapped_folds():
    # 64 folds 512 apart, the last with its fill and drain: 63 x 512 + 2 x 128 + 128 + 512 - 2
    target = unlimited(machine(folds="overlapped"))
    assert run_array(gemm(512, 1024, 1024), target, by_hand("weight", 128, 128)) == 33_150


@pytest.mark.parametrize("holds", ["weight", "input", "output"])
@pytest.mark.parametrize("folds", ["serial", "overlapped"])
@pytest.mark.parametrize("sizes", [(20, 13, 37), (3, 40, 9), (1, 1, 1), (17, 1, 5)])
def test_gemm_on_arrays_gives_right_values(holds, folds, sizes):
    target = exact(machine(rows=8, columns=4, dataflow=holds, folds=folds))
    graph = gemm(*sizes, bias=True, activation="relu")
    inputs = {name: np.round(8 * each) for name, each in draw_inputs(graph, 0).items()}
    mapped = map_graph(graph, target)
    outputs = simulate(mapped.program, inputs).outputs
    expected = np.maximum(inputs["a"] @ inputs["b"] + inputs["bias"], 0)
    np.testing.assert_array_equal(outputs["c"], expected)


def by_hand(holds: Dataflow, rows: int, columns: int) -> Schedule:
    if holds == "output":
        node = NodeSchedule(walk=("i", "j", "k"), vector={"j": columns}, pack={"i": rows})
        plans = {"c": node.model_copy(update={"array": holds})}
        return Schedule(tile={"i": rows, "j": columns}, time=("i.o", "j.o"), nodes=plans)
    across, along = ("j", "i") if holds == "weight" else ("i", "j")
    part = NodeSchedule(
        walk=(across, along, "k"), vector={across: columns}, pack={"k": rows}, array=holds
    )
    total = NodeSchedule(walk=(across, along), vector={across: columns})
    time = (f"{across}.o", "k.o")
    return Schedule(
        tile={across: columns, "k": rows}, time=time, nodes={"c.part": part, "c": total}
    )


@pytest.mark.slow
@pytest.mark.parametrize("holds", ["weight", "input", "output"])
@pytest.mark.parametrize("folds", ["serial", "overlapped"])
def test_engines_agree_on_mapped_arrays(holds, folds):
    for rows, columns in ((8, 8), (4, 16), (16, 4)):
        target = machine(rows=rows, columns=columns, folds=folds)
        program = map_graph(gemm(20, 18, 37), target, by_hand(holds, rows, columns)).program
        slow, fast = (simulate(program, values=False, engine=e) for e in ("simpy", "fast"))
        assert (slow.cycles, slow.accounts) == (fast.cycles, fast.accounts)


def test_attention_puts_a_product_on_the_array():
    graph = build("attention", {"n": 128, "d": 32})
    target = exact(machine())
    mapped = map_graph(graph, target)
    assert [unit.name for unit in mapped.program.units if unit.array] == ["s"]
    inputs = draw_inputs(graph, 0)
    result = simulate(mapped.program, inputs)
    (name,) = result.outputs
    expected = evaluate(graph, inputs)[name]
    np.testing.assert_allclose(result.outputs[name], expected, rtol=1e-4, atol=1e-5)


def test_array_stands_on_a_unit_that_has_one():
    mapped = map_graph(gemm(64, 64, 64), machine("systolic_32x32"))
    (array,) = (unit for unit in mapped.program.units if unit.array)
    assert mapped.program.sites[array.name] == (machine("systolic_32x32").grid.sites("compute")[0],)


def test_copies_of_a_product_take_an_array_each():
    schedule = by_hand("weight", 8, 8)
    part = schedule.nodes["c.part"].model_copy(update={"unroll": {"j": 2}})
    wide = schedule.model_copy(
        update={"nodes": {**schedule.nodes, "c.part": part}, "tile": {"j": 16, "k": 8}}
    )
    with pytest.raises(MappingError, match="systolic arrays must be at most 1, got 2"):
        map_graph(gemm(16, 16, 16), machine(rows=8, columns=8), wide)
    graph, two = gemm(16, 16, 16), exact(machine(rows=8, columns=8, units=2))
    inputs = {name: np.round(4 * each) for name, each in draw_inputs(graph, 0).items()}
    outputs = simulate(map_graph(graph, two, wide).program, inputs).outputs
    np.testing.assert_array_equal(outputs["c"], inputs["a"] @ inputs["b"])


# Bounds


def test_bound_counts_products_of_arrays():
    # 64 x 64 x 64 multiplies and 64 x 64 x 63 additions; a cycle does 15 x 128 x 2 of them in SIMD
    # units and 2 x 128 x 128 in the array: 520,192 / 36,608 = 14.2
    target = machine()
    assert bound(gemm(64, 64, 64), target).parts["compute"] == 15


def test_bound_of_a_mapping_is_a_vector_a_cycle():
    program = map_graph(gemm(1024, 1024, 1024), machine()).program
    assert program_bound(program).cycles == 1024**3 // 128**2


# What does not fit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"vector": {"j": 16}}, r"nodes.c.part.vector.j must be at most 8, the columns of"),
        ({"pack": {"k": 4}}, r"must name k with all its 8 points: the rows of an array sum them"),
        ({"vector": {"i": 8}}, r"vector.i must be a digit of b alone, the operand that stays"),
        ({"array": "input"}, r"vector.j must be a digit of a alone, the operand that stays"),
        ({"array": "output"}, r"pack.k must be a digit of the result that the operand with"),
        ({"vector": {}}, r"must be a digit of the result: the columns of the array"),
    ],
)
def test_schedules_that_do_not_fit_an_array(change, message):
    schedule = by_hand("weight", 8, 8)
    part = schedule.nodes["c.part"].model_copy(update=change)
    tile = {"j": 16, "k": 8} if change.get("vector") == {"j": 16} else schedule.tile
    changed = schedule.model_copy(
        update={"nodes": {**schedule.nodes, "c.part": part}, "tile": tile}
    )
    with pytest.raises(ScheduleError, match=message):
        map_graph(gemm(32, 32, 32), machine(rows=8, columns=8), changed)


def test_array_on_a_machine_without_arrays():
    with pytest.raises(ScheduleError, match=r"array must be left out: plasticine has no systolic"):
        map_graph(gemm(32, 32, 32), hwspecs.load("plasticine"), by_hand("weight", 8, 8))


def test_array_for_what_is_no_product():
    schedule = by_hand("weight", 8, 8)
    total = schedule.nodes["c"].model_copy(update={"array": "weight"})
    changed = schedule.model_copy(update={"nodes": {**schedule.nodes, "c": total}})
    with pytest.raises(ScheduleError, match="c is no einsum of two arguments"):
        map_graph(gemm(32, 32, 32), machine(rows=8, columns=8), changed)


def test_block_of_results_takes_no_fifo():
    schedule = by_hand("output", 8, 8)
    changed = schedule.model_validate(
        {**schedule.as_data(), "channels": {"c -> store c": {"locality": "fifo"}}}
    )
    with pytest.raises(ScheduleError, match="blocks go into and out of a systolic array row by"):
        map_graph(gemm(32, 32, 32), machine(rows=8, columns=8), changed)


def test_refill_of_overlapped_folds_is_at_once():
    assert refill_cycles(machine(folds="overlapped"), held=True) == 0
    assert refill_cycles(machine(), held=True) == through_cycles(machine()) == 254


def test_preload_works_in_its_arrays_cell():
    target = machine(rows=8, columns=8)
    program = map_graph(gemm(32, 32, 32), target, by_hand("weight", 8, 8)).program
    (inside,) = (unit for unit in program.units if unit.within)
    assert (inside.name, inside.within, inside.cells) == ("c.part preload b", "c.part", 0)
    assert inside.name not in program.sites
