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
