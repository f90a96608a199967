"""Whatever the schedule: the values are the graph's, the cycles at least the bounds.

Every kernel of the library, at sizes that few tiles divide, under schedules drawn at random. A
schedule may be refused, with a ScheduleError or a MappingError, and nothing else.
"""

from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow import kernels
from dataflow.program import Program
from dataflow.reference import evaluate
from dataflow.schedule import Schedule, ScheduleError
from dataflow.sim import DeadlockError, Result, simulate
from dataflow.sim.untimed import Untimed, why_timed
from dataflow.streams import stream
from hwspecs import Machine, load
from mapping import map_graph
from mapping.bounds import bound, program_bound
from mapping.building.program import build
from mapping.errors import MappingError
from mapping.partition import partition
from mapping.resources import Needs, needs
from tests.cross.random_schedules import CASES, graph_of, inputs_of, random_schedule, roomy

SEEDS = st.integers(0, 2**32 - 1)
TOO_MANY = 60_000  # firings of all units: more would make the test slow, and show no more


@cache
def reference(case: str) -> dict[str, np.ndarray]:
    """The outputs in float64."""
    return evaluate(graph_of(case), inputs_of(graph_of(case)))


def built(case: str, schedule: Schedule, machine: Machine) -> tuple[Program, Needs]:
    """The Program of a case, not placed, and what it was counted to take."""
    made = stream(graph_of(case), schedule, machine.compute.lanes)
    groups = partition(made, machine)
    return build(made, groups, machine), needs(made, groups, machine)


def judge(case: str, program: Program, result: Result) -> None:
    """Values to single precision, cycles not below either bound, every cycle accounted for.

    Values worked out without times are the same to the last bit.
    """
    assert result.complete
    for name, expected in reference(case).items():
        np.testing.assert_allclose(
            result.outputs[name], expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max()
        )
    assert result.cycles >= bound(graph_of(case), program.machine).cycles
    assert result.cycles >= program_bound(program).cycles
    assert {unit.name for unit in program.units} == set(result.accounts)
    assert {account.total for account in result.accounts.values()} == {result.cycles}
    assert why_timed(program) == ""
    untimed = Untimed(program, inputs_of(graph_of(case))).run()
    for name, value in result.outputs.items():
        np.testing.assert_array_equal(untimed[name], value)


def counted(program: Program) -> Needs:
    """What a Program takes, unit by unit."""
    compute = sum(unit.cells for unit in program.units if unit.kind == "compute")
    memory = sum(pad.cells for pad in program.scratchpads)
    return Needs(compute, memory, sum(unit.kind in ("load", "store") for unit in program.units))


def run(case: str, schedule: Schedule, machine: Machine) -> None:
    """Build, count, simulate and judge; return where the schedule is refused."""
    try:
        program, taken = built(case, schedule, machine)
    except (ScheduleError, MappingError) as refusal:
        assert str(refusal)
        return
    assert counted(program) == taken
    if sum(unit.firings for unit in program.units) <= TOO_MANY:
        judge(case, program, simulate(program, inputs_of(graph_of(case))))


@pytest.mark.parametrize("case", [case for case in CASES if not case.startswith("fft")])
@settings(max_examples=10, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_values_do_not_depend_on_the_schedule(case, seed) -> None:
    draw = random.Random(f"{case} {seed}")
    run(case, random_schedule(graph_of(case), draw), roomy(draw.choice((1, 4, 6, 16))))


@pytest.mark.parametrize("case", ["fft_conv", "fft_conv causal"])
@settings(max_examples=3, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_values_of_convolutions_do_not_depend_on_the_schedule(case, seed) -> None:
    draw = random.Random(f"{case} {seed}")
    run(case, random_schedule(graph_of(case), draw), roomy(draw.choice((4, 6, 16))))


@pytest.mark.slow
@pytest.mark.parametrize("case", list(CASES))
@settings(max_examples=150, deadline=None, derandomize=True)
@given(seed=SEEDS)
def test_values_do_not_depend_on_the_schedule_at_length(case, seed) -> None:
    draw = random.Random(f"at length {case} {seed}")
    run(case, random_schedule(graph_of(case), draw), roomy(draw.choice((1, 4, 6, 16))))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(case=st.sampled_from([case for case in CASES if not case.startswith("fft")]), seed=SEEDS)
def test_depths_of_the_users_own_run_right_or_deadlock(case, seed) -> None:
    schedule = random_schedule(graph_of(case), random.Random(f"{case} {seed}"), depths=True)
    try:
        run(case, schedule, roomy(4))
    except DeadlockError as stuck:
        assert stuck.blocked


@cache
def static() -> Machine:
    """A machine of 16 x 16 units like `tiny`'s, its network static."""
    tiny = load("tiny")
    grid = {"rows": 16, "columns": 16, "compute_units": 128, "memory_units": 128}
    wires = {"vector_in": 8, "vector_out": 8, "scalar_in": 8, "scalar_out": 8}
    return tiny.model_copy(
        update={
            "grid": tiny.grid.model_copy(update=grid),
            "compute": tiny.compute.model_copy(update=wires),
            "generators": tiny.generators.model_copy(update={"count": 64}),
            "network": tiny.network.model_copy(update={"vector_links": 16, "scalar_links": 16}),
        }
    )


@settings(max_examples=12, deadline=None, derandomize=True)
@given(case=st.sampled_from([case for case in CASES if not case.startswith("fft")]), seed=SEEDS)
def test_places_and_routes_change_no_value(case, seed) -> None:
    schedule = random_schedule(graph_of(case), random.Random(f"{case} {seed}"))
    try:
        mapped = map_graph(graph_of(case), static(), schedule)
    except (ScheduleError, MappingError):
        return
    judge(case, mapped.program, simulate(mapped.program, inputs_of(graph_of(case))))


FOUND = {
    "parts of copies over time, of a value that still has the digit": (
        "sum_square",
        "{time: [n], nodes: {square: {unroll: {n: 2}}}}",
    ),
    "one copy, said": ("sum_square", "{time: [n], nodes: {square: {unroll: {n: 1}}}}"),
    "parts through a scratchpad": (
        "accumulate_buffer",
        "{time: [n], nodes: {x: {unroll: {n: 2}}}, channels: {x -> acc: {locality: scratchpad}}}",
    ),
    "parts of packed results": (
        "softmax",
        "{nodes: {l: {pack: {rows: 2}, unroll: {n: 2}}}}",
    ),
    "a prime number of parts": ("dot_product", "{nodes: {total: {unroll: {n: 7}}}}"),
    "a loop of the first pass outside the blocks of the second": (
        "attention causal",
        "{tile: {m.i: 1}, time: [m.i.o, m.b]}",
    ),
    "a feedback through a scratchpad with a loop inside its axis": (
        "softmax online",
        "{tile: {rows: 1}, time: [n.b, rows.o], channels: {l -> l.kept: {locality: scratchpad}}}",
    ),
    "a feedback dealt out to two copies": (
        "attention grouped",
        "{time: [m.b], nodes: {acc.kept: {unroll: {n: 2}}}}",
    ),
    "packed points far apart": (
        "attention plain",
        "{walk: [heads], nodes: {e: {pack: {heads: 2}}}}",
    ),
    "an axis tiled by all of it, loaded at once": (
        "gemm with bias",
        "{tile: {j: 3}, time: [j.o], channels: {load b -> c: {at: ''}}}",
    ),
    "a sum that waits for a loop outside the last": (
        "gemm",
        "{tile: {k: 5}, time: [i, k.o],"
        " nodes: {c.part: {walk: [k, j], vector: {j: 2}}, c: {vector: {j: 2}}}}",
    ),
    "an operand that is used at the last turn of a loop outside its own": (
        "attention causal",
        "{time: [m.b], nodes: {bl: {walk: [heads, batch, m.i, n]}}}",
    ),
    "packed points that are written into one tile": (
        "attention plain",
        "{nodes: {e: {pack: {heads: 2}}, l: {unroll: {m: 2}}, p: {walk: [n, batch, m, heads]}}}",
    ),
    "a whole pass in a tile beside a reduction": (
        "attention online",
        "{time: [m.b], nodes: {s.shifted: {unroll: {n: 2}}, p: {unroll: {n: 2}},"
        " bl: {unroll: {n: 2}}, l: {unroll: {n: 2}}}, channels: {r.drop -> corr: {at: ''}}}",
    ),
    "a whole pass in a tile, beside tiles that readers share": (
        "filter_sum",
        "{tile: {n: 10}, time: [n.o, n], channels: {logical_and_3 -> logical_and_4: {at: ''}}}",
    ),
    "a whole pass in a tile before a recurrence": (
        "lstm",
        "{time: [t], channels: {gates.g.free -> gates.g: {at: ''}}}",
    ),
    "a feedback in tiles beside others that are collected": (
        "attention causal",
        "{time: [m.b, n, batch],"
        " channels: {bm -> r: {at: n}, l -> l.kept: {locality: scratchpad}}}",
    ),
    "packed points of a writer that a reader takes one after the other": (
        "attention plain",
        "{nodes: {s: {pack: {heads: 2}}}}",
    ),
    "a feedback of sums that wait for a loop outside the last": (
        "attention grouped",
        "{time: [m.b, group], walk: [kv_heads], nodes: {l: {unroll: {n: 2}},"
        " bl: {walk: [m.i, batch, kv_heads, n], unroll: {n: 2}}}}",
    ),
    "several readers of one state in a unit": (
        "attention causal",
        "{time: [m.b], nodes: {r: {vector: {n: 2}}}}",
    ),
}


def test_readers_served_together_hold_what_one_of_them_waits_for() -> None:
    # A whole pass of the comparisons is packed into a tile before the products, of which the same
    # read unit serves an operand, are asked for: 40 beats, more than a FIFO holds.
    graph = kernels.build("filter_sum", {"n": 40})
    text = "{channels: {logical_and_2 -> logical_and_3: {locality: scratchpad}}}"
    made = stream(graph, Schedule.from_yaml(text), 4)
    program = build(made, partition(made, roomy(2)), roomy(2))
    result = simulate(program, inputs_of(graph))
    expected = evaluate(graph, inputs_of(graph))["total"]
    np.testing.assert_allclose(result.outputs["total"], expected, rtol=1e-4)


@pytest.mark.parametrize("found", list(FOUND))
def test_schedules_that_once_gave_wrong_values_or_hung(found) -> None:
    case, text = FOUND[found]
    machine = roomy(4)
    program, taken = built(case, Schedule.from_yaml(text), machine)
    assert counted(program) == taken
    judge(case, program, simulate(program, inputs_of(graph_of(case))))
