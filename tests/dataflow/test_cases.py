"""The published rows become kernels under the schedules they were run with."""

import dataclasses

import pytest

from dataflow.cases import FAMILIES, case_schedule
from dataflow.streams import stream
from dataflow.validate import Case, CaseError, published, read_cases

CASES = read_cases(published())


def case(kernel, sizes, tile=(), unroll=(), vector=()):
    return Case("x", kernel, dict(sizes), dict(tile), dict(unroll), dict(vector), 1, "x.csv:2")


@pytest.mark.parametrize("row", CASES, ids=[row.name for row in CASES])
def test_case_fits_its_kernel(row) -> None:
    graph, schedule = case_schedule(row)
    assert graph.name == row.kernel
    assert stream(graph, schedule).nodes


def test_cases_cover_every_family() -> None:
    assert {row.kernel for row in CASES} == set(FAMILIES)


def test_case_of_gemm_streams_rows_of_a_against_a_tile_of_b() -> None:
    sizes = {"i": 64, "j": 64, "k": 64}
    row = case("gemm", sizes, {"i": 32, "j": 32, "k": 64}, {"j": 2}, {"k": 16})
    made = stream(*case_schedule(row))
    part = made.by_name["c.part"]
    assert (part.vector, part.lanes, dict(part.unroll)) == ("k", 16, {"j": 2})
    assert part.domain == ("i.o", "j.o", "k.o", "i")
    tiles = {edge.name: made.tile_elems(edge) for edge in made.into("c.part")}
    # A 64 x 32 tile of b, and of a one row of 64 at a time.
    assert tiles == {"load a -> c.part": 64, "load b -> c.part": 64 * 32}


def test_case_of_gemm_has_one_buffer_where_the_loop_around_it_turns_once() -> None:
    sizes = {"i": 64, "j": 64, "k": 64}
    tile = {"i": 32, "j": 32, "k": 32}
    twice = case_schedule(case("gemm", sizes, tile, {}, {"k": 16}))[1]
    once = case_schedule(case("gemm", sizes, tile, {"k.o": 2}, {"k": 16}))[1]
    assert twice.channel("b", "c.part").depth is None
    assert once.channel("b", "c.part").depth == 1


def test_case_of_a_sum_adds_up_in_lanes() -> None:
    row = case("sum_square", {"n": 1024}, {"n": 64}, {"n.o": 2}, {"n": 16})
    made = stream(*case_schedule(row))
    part = made.by_name["total.part"]
    assert (part.vector, part.lanes, dict(part.unroll)) == ("n", 16, {"n.o": 2})
    # 16 tiles for 2 copies, 64 / 16 = 4 beats each.
    assert (made.trips(part, "n.o"), made.trips(part, "n")) == (8, 4)


def test_case_of_a_dot_product_made_on_chip_writes_its_operand_first() -> None:
    row = case("generated_dot_product", {"n": 64}, {"n": 16}, {}, {"n": 16})
    made = stream(*case_schedule(row))
    (written,) = (e for e in made.edges if e.name == "a -> square")
    assert written.kind == "scratchpad"


def test_case_of_another_kernel_is_refused_with_its_place() -> None:
    row = dataclasses.replace(CASES[0], kernel="softmax")
    with pytest.raises(CaseError, match=f"^{row.where}: kernel must be one with a schedule"):
        case_schedule(row)
