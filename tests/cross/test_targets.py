"""What default mappings reach, and how near published counts the simulator comes."""

from __future__ import annotations

import numpy as np
import pytest

import hwspecs
from dataflow.cases import case_schedule
from dataflow.kernels import KERNELS, build
from dataflow.sim import simulate
from dataflow.validate import Case, published, read_cases
from mapping import map_graph, program_bound

# Cycles over the proven bound that a user would still call a mapping.
DISTANCES = [
    ("gemm", {"i": 512, "j": 512, "k": 512}, "plasticine", 1.5),
    ("attention", {"n": 512, "d": 64}, "plasticine", 2.0),
    ("fft_conv", {"n": 4096}, "plasticine", 2.5),
    ("lstm", {"h": 1024}, "plasticine_rnn", 2.0),
]
CASES = {case.name: case for case in read_cases(published())}


@pytest.mark.slow
@pytest.mark.parametrize(("kernel", "sizes", "machine", "most"), DISTANCES)
def test_default_schedule_stays_near_the_bound(
    kernel: str, sizes: dict[str, int], machine: str, most: float
) -> None:
    mapped = map_graph(build(kernel, sizes), hwspecs.load(machine))
    cycles = simulate(mapped.program, values=False).cycles
    assert mapped.bound.cycles <= cycles <= most * mapped.bound.cycles


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["plasticine", "tungsten_20x20", "sn40l"])
@pytest.mark.parametrize("kernel", sorted(set(KERNELS) - {"fft_conv"}))
def test_default_schedule_of_every_kernel_respects_both_bounds(kernel: str, machine: str) -> None:
    mapped = map_graph(build(kernel), hwspecs.load(machine))
    result = simulate(mapped.program, values=False)
    assert result.cycles >= mapped.bound.cycles
    assert result.cycles >= program_bound(mapped.program).cycles
    for account in result.accounts.values():
        assert account.total == result.cycles


def _cycles(case: Case) -> int:
    graph, schedule = case_schedule(case)
    mapped = map_graph(graph, hwspecs.load("tungsten_20x20"), schedule)
    return simulate(mapped.program, values=False).cycles


@pytest.mark.parametrize("name", ["SumSquare_0", "SumSquare_1", "SumSquare_5"])
def test_sum_square_is_exact(name: str) -> None:
    # One copy fires, then two units of 6 cycles and two channels of 3: firings - 1 + 9 + 9 + 1.
    firings = {"SumSquare_0": 32 * 2, "SumSquare_1": 32 * 32, "SumSquare_5": 16 * 11}[name]
    assert _cycles(CASES[name]) == firings + 18 == CASES[name].reference_cycles


@pytest.mark.parametrize(("tile", "turns"), [(64, 4), (32, 2), (16, 1), (7, 1)])
def test_sum_square_is_exact_with_tiles_of_one_turn_too(tile: int, turns: int) -> None:
    row = Case("x", "sum_square", {"n": 448}, {"n": tile}, {}, {"n": 16}, 1, "x.csv:2")
    assert _cycles(row) == 448 // tile * turns + 18


@pytest.mark.parametrize(
    ("copies", "levels"), [(3, 1), (4, 1), (5, 2), (7, 2), (8, 2), (16, 2), (17, 3)]
)
def test_sum_over_copies_takes_a_tree_of_units(copies: int, levels: int) -> None:
    # 34 tiles of 2 beats, as above; each level past the first is a channel of 3 and a unit of 6
    row = Case("x", "sum_square", {"n": 1088}, {"n": 32}, {"n.o": copies}, {"n": 16}, 1, "x.csv:2")
    assert _cycles(row) == -(-34 // copies) * 2 + 18 + 9 * (levels - 1)


@pytest.mark.parametrize("copies", [2, 5, 6, 8, 11])
def test_tiles_of_many_copies_are_added_up_as_they_come(copies: int) -> None:
    # ceil(20 / copies) turns of 512 words, one a cycle, each into a scratchpad of its copy
    lanes = {"fill:d": 1, "accumulate:d": 16}
    row = Case(
        "x", "accumulate_buffer", {"n": 20, "d": 512}, {}, {"n": copies}, lanes, 1, "x.csv:2"
    )
    turns, levels = -(-20 // copies), 1 + (copies > 4)
    # the last word fires at 512 turns - 1, is in the scratchpad 6 + 3 later, a token after 1, read
    # after 1, added 3 + 6 later (3 + 6 more a further level), 32 beats; then 3, 1, 1, 3 until the
    # last of 32 beats leaves for memory, 8, written by 4, back after 31
    filled = 512 * turns - 1 + 6 + 3 + 1 + 1
    added = filled + 3 + 9 * levels - 3 + 31 + 3
    stored = added + 1 + 1 + 3 + 31 + 8 + 4 + 31
    assert _cycles(row) == stored + 1


@pytest.mark.parametrize("unroll", [{}, {"i.o": 2}, {"j.o": 2}, {"i.o": 4}, {"i.o": 2, "j.o": 2}])
def test_stores_reach_the_rate_of_published_writes(unroll: dict[str, int]) -> None:
    # 58 to 62 GB/s, though every tile's rows of 32 words lie on two of the four channels
    lanes = {"compute:j": 16, "load": 16, "store": 16}
    sizes, tile = {"i": 256, "j": 256}, {"i": 64, "j": 32}
    cycles = _cycles(Case("x", "outer_product", sizes, tile, unroll, lanes, 1, "x.csv:2"))
    assert 58 <= 256 * 256 * 4 / cycles <= 62


@pytest.mark.slow
def test_published_counts_are_met_within_one_percent_on_average() -> None:
    cases = list(CASES.values())
    ours = np.array([_cycles(case) for case in cases], dtype=float)
    reference = np.array([case.reference_cycles for case in cases], dtype=float)
    error = np.abs(ours / reference - 1)
    assert error.mean() <= 0.01
    assert error.max() <= 0.05
    ranks = [np.argsort(np.argsort(values)) for values in (ours, reference)]
    assert np.corrcoef(*ranks)[0, 1] >= 0.99
