"""The whole way from graph to placed Program, and how it ends where it cannot."""

import numpy as np
import pytest

from dataflow.graph import Builder
from dataflow.reference import evaluate
from dataflow.schedule import Schedule, ScheduleError
from dataflow.sim import simulate
from hwspecs import load
from mapping import MappingError, map_graph
from mapping.bounds import bound
from tests.cross.random_schedules import graph_of, inputs_of
from tests.dataflow.streams.small import chain, gemm

PLASTICINE = load("plasticine")


@pytest.mark.parametrize(
    "case",
    ["gemm", "softmax", "layer_norm", "attention online", "lstm", "outer_product", "filter_sum"],
)
def test_map_by_default_computes_the_kernel(case) -> None:
    graph = graph_of(case)
    mapped = map_graph(graph, PLASTICINE)
    result = simulate(mapped.program, inputs_of(graph))
    for name, expected in evaluate(graph, inputs_of(graph)).items():
        np.testing.assert_allclose(result.outputs[name], expected, rtol=1e-4, atol=1e-4)
    assert result.cycles >= mapped.bound.cycles


def test_map_gives_what_it_was_made_from() -> None:
    schedule = Schedule.from_yaml("{time: [i]}")
    mapped = map_graph(gemm(), PLASTICINE, schedule)
    assert mapped.schedule is schedule
    assert mapped.stream.schedule is schedule
    assert mapped.bound == bound(gemm(), PLASTICINE)


def test_map_places_every_unit_and_scratchpad() -> None:
    program = map_graph(gemm(), PLASTICINE, Schedule()).program
    named = {u.name for u in program.units if u.kind in ("compute", "load", "store")}
    assert named <= set(program.sites)
    taken = [site for sites in program.sites.values() for site in sites]
    assert len(taken) == len(set(taken))


def test_map_is_the_same_each_time() -> None:
    first, second = (map_graph(graph_of("softmax"), PLASTICINE).program for _ in range(2))
    assert first == second


def test_map_refuses_more_units_than_there_are_by_count() -> None:
    # 20 maps of one stage each, 4 a unit: 5 units, of which tiny has 2.
    with pytest.raises(MappingError) as caught:
        map_graph(chain(20), load("tiny"), Schedule())
    assert (caught.value.needed, caught.value.available) == (5, 2)
    assert "chain on tiny: compute units must be at most 2, got 5" in str(caught.value)


def test_map_refuses_more_transfers_than_there_are_generators() -> None:
    copied = ", ".join(f"{name}: {{unroll: {{i: 8}}}}" for name in ("c", "load a", "store c"))
    text = f"{{time: [i], nodes: {{{copied}}}}}"
    with pytest.raises(MappingError, match="address generators must be at most 8, got 17"):
        map_graph(gemm(), load("tiny"), Schedule.from_yaml(text))


def test_map_refuses_a_schedule_that_does_not_fit_the_graph() -> None:
    with pytest.raises(ScheduleError, match="must be a digit of the kernel"):
        map_graph(gemm(), PLASTICINE, Schedule(time=("q",)))


def test_map_refuses_axes_without_points_by_name() -> None:
    g = Builder("empty", i=4, j=0)
    g.output("y", g.map("exp", g.input("x", "i j")))
    with pytest.raises(MappingError) as caught:
        map_graph(g.build(), load("plasticine"))
    rule = "graph empty, axis j: extent must be at least 1 to run on a machine, got 0"
    assert str(caught.value) == rule


def test_map_names_places_in_the_text_at_hand_though_another_said_the_same() -> None:
    graph = gemm()
    for text, place in (
        ("nodes: {c: {vector: {k: 32}}}", "1:"),
        ("\n\nnodes:\n  c: {vector: {k: 32}}", "4:"),
    ):
        with pytest.raises(ScheduleError, match=f"^<schedule text>:{place}"):
            map_graph(graph, load("plasticine"), Schedule.from_yaml(text))


def test_map_returns_the_mapping_known_where_the_default_schedule_is_its_own() -> None:
    graph, machine = gemm(), load("plasticine")
    made = map_graph(graph, machine)
    assert map_graph(graph, machine, known=made) is made
    other = map_graph(graph, machine, Schedule.from_yaml("{time: [i]}"))
    assert map_graph(graph, machine, known=other) == made


def test_map_of_what_no_default_fits_says_what_the_smallest_needs() -> None:
    with pytest.raises(MappingError, match="attention on tiny"):
        map_graph(graph_of("attention online"), load("tiny"))
