"""The published rows become kernels under the schedules they were run with."""

import dataclasses

import pytest

import hwspecs
from dataflow.cases import FAMILIES, case_schedule
from dataflow.streams import stream
from dataflow.validate import Case, CaseError, published, read_cases
from mapping.partition import partition

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


@pytest.mark.parametrize(("copies", "depth"), [(1, None), (3, None), (4, 1), (9, 1)])
def test_case_of_an_outer_product_has_one_buffer_where_its_loop_turns_once(copies, depth) -> None:
    sizes, tile = {"i": 64, "j": 64}, {"i": 16, "j": 16}
    schedule = case_schedule(case("outer_product", sizes, tile, {"j.o": copies}))[1]
    assert schedule.channel("c", "store c").depth == depth
    assert schedule.channel("b", "c").depth == depth
    assert schedule.channel("a", "c").depth is None


def test_case_of_gemm_loads_a_single_column_along_itself() -> None:
    row = case("gemm", {"i": 8, "j": 1, "k": 48}, {"k": 16}, {}, {"k": 4})
    load = stream(*case_schedule(row)).by_name["load b"]
    assert (load.vector, load.lanes) == ("k", 4)


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


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"tile": {"q": 8}}, "tile must name a loop of sum_square, got 'q'; known: n"),
        (
            {"unroll": {"m.o": 2}},
            "unroll must name a loop of sum_square, got 'm.o'; did you mean n",
        ),
        (
            {"vector": {"fill:n": 2}},
            "vector must name a loop of sum_square, got 'fill:n'; known: n",
        ),
    ],
)
def test_case_that_names_no_loop_of_its_kernel_is_refused_with_its_place(fields, fault) -> None:
    row = dataclasses.replace(case("sum_square", {"n": 64}, {"n": 8}), **fields)
    with pytest.raises(CaseError) as caught:
        case_schedule(row)
    assert str(caught.value).startswith(f"x.csv:2: {fault}")


@pytest.mark.parametrize("kernel", sorted(FAMILIES))
def test_case_without_tile_or_size_runs_its_kernel_s_sizes_in_one_tile(kernel) -> None:
    made = stream(*case_schedule(case(kernel, {})))
    outer = [digit for digit in made.digits.time if digit.endswith(".o")]
    assert [made.digits[digit].extent for digit in outer] == [1] * len(outer)


def test_case_leaves_out_copies_beyond_the_turns_of_their_loop() -> None:
    row = case("sum_square", {"n": 100}, {"n": 32}, {"n.o": 8, "n": 3}, {"n": 16})
    part = stream(*case_schedule(row)).by_name["total.part"]
    # 100 points are 4 tiles, 32 points 2 turns of 16 lanes
    assert dict(part.unroll) == {"n.o": 4, "n": 2}


def test_case_of_an_outer_product_copies_the_loops_inside_its_tiles() -> None:
    unroll = {"i.o": 2, "i": 2, "j": 3}
    row = case("outer_product", {"i": 64, "j": 64}, {"i": 16, "j": 32}, unroll, {"compute:j": 16})
    made = stream(*case_schedule(row))
    # 32 points of j are 2 turns of 16 lanes
    assert dict(made.by_name["c"].unroll) == {"i.o": 2, "i": 2, "j": 2}
    assert dict(made.by_name["store c"].unroll) == {"i.o": 2}


def test_case_adds_up_tiles_in_a_unit_of_its_own_however_short_they_are() -> None:
    # a tile of one turn: its sum and that over tiles would fit one unit of 6 stages
    row = case("sum_square", {"n": 1024}, {"n": 16}, {}, {"n": 16})
    made = stream(*case_schedule(row))
    machine = hwspecs.load("tungsten_20x20")
    assert [group.members for group in partition(made, machine)] == [
        ("square", "total.part"),
        ("total",),
    ]
