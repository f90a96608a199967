"""What a little more of each resource brings, beside the same changes made one by one."""

import pytest

import hwspecs
from dataflow.kernels import build
from dataflow.program import Program
from dataflow.sim import simulate
from hwspecs.variants import variants
from mapping import map_graph
from mapping import sensitivity as tested
from mapping.sensitivity import sensitivity

WANTED = {
    "10 % more off-chip bandwidth",
    "one more off-chip channel",
    "one more stage of a compute unit",
    "FIFOs of compute units twice as deep",
}


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few variants are enough to tell."""

    def few(machine: hwspecs.Machine) -> tuple:
        return tuple(v for v in variants(machine) if v.name in WANTED)

    monkeypatch.setattr(tested, "variants", few)


def cycles_of(program: Program) -> int:
    return simulate(program, None, values=False).cycles


def test_memory_bound_kernel_gains_what_the_pins_gain() -> None:
    # 2 x 2^18 elements of 4 B at 51.2 GB/s are 40,960 cycles of some 42,900: the rest is refresh,
    # which faster pins do not shorten. A clock of 1136 ps for 1250 saves 9.12 % of them.
    graph = build("dot_product", {"n": 1 << 18})
    mapped = map_graph(graph, hwspecs.load("plasticine"))
    cycles = cycles_of(mapped.program)
    gains = {gain.variant.name: gain for gain in sensitivity(mapped, cycles_of)}
    faster = gains["10 % more off-chip bandwidth"]
    assert faster.cycles == pytest.approx(cycles - 40_960 * (1 - 1136 / 1250), rel=0.003)
    assert gains["one more off-chip channel"].cycles == pytest.approx(cycles * 4 / 5, rel=0.003)
    assert gains["FIFOs of compute units twice as deep"].changes_nothing(cycles)


def test_gains_are_those_of_the_changed_machine_and_come_in_order() -> None:
    graph = build("gemm", {"i": 64, "j": 64, "k": 64})
    mapped = map_graph(graph, hwspecs.load("plasticine"))
    gains = sensitivity(mapped, cycles_of)
    assert len(gains) == len(WANTED)
    for gain in gains:
        machine = gain.variant.machine
        assert gain.cycles == cycles_of(map_graph(graph, machine, mapped.schedule).program)
        assert gain.anew == cycles_of(map_graph(graph, machine).program)
    best = [gain.best for gain in gains]
    assert best == sorted(best, key=lambda cycles: cycles or 0)


def test_schedule_given_is_kept() -> None:
    graph = build("dot_product", {"n": 1024})
    mapped = map_graph(graph, hwspecs.load("tiny"))
    named = []
    gains = sensitivity(mapped, cycles_of, anew=False, progress=lambda *step: named.append(step))
    assert all(gain.anew is None and gain.cycles for gain in gains)
    assert [step[:2] for step in named] == [(n, len(gains)) for n in range(len(gains))]


def test_run_that_deadlocks_says_so() -> None:
    graph = build("dot_product", {"n": 1024})
    mapped = map_graph(graph, hwspecs.load("tiny"))
    gains = sensitivity(mapped, lambda program: None, anew=False)
    assert {gain.fault for gain in gains} == {"the run deadlocks"}
    assert not any(gain.changes_nothing(1) for gain in gains)
