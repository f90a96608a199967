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
    "one more compute unit",
    "FIFOs of compute units twice as deep",
    "10 % faster clock",
    "twice the lanes of a compute unit",
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
    seconds = [gain.seconds for gain in gains]
    assert seconds == sorted(seconds)


def test_compute_bound_kernel_gains_what_a_second_unit_takes_over() -> None:
    # One unit of six stages has room for three sums of products a lane. They share 48 rows: 16 x 64
    # products x 12 beats of 16 columns are 12,288 cycles. Two units have half of the columns each.
    machine = hwspecs.load("plasticine")
    grid = machine.grid.model_copy(update={"compute_units": 1})
    mapped = map_graph(
        build("gemm", {"i": 48, "j": 192, "k": 64}), machine.model_copy(update={"grid": grid})
    )
    busy = []

    def noting(program: Program) -> int:
        result = simulate(program, None, values=False)
        busy.append(max(account.busy for account in result.accounts.values()))
        return result.cycles

    cycles = noting(mapped.program)
    gains = {gain.variant.name: gain for gain in sensitivity(mapped, noting)}
    more = gains["one more compute unit"]
    assert (busy[0], min(busy)) == (12_288, 6_144)
    assert more.cycles == cycles  # more units are of use to another schedule alone
    assert more.anew is not None
    assert more.saved(more.anew, cycles) == 1 - more.anew / cycles


def test_scarce_fifo_gains_from_its_second_slot() -> None:
    # A beat leaves the scratchpad's port 1 cycle after its firing, takes 2 + 1 to the unit, and its
    # slot's credit is back 1 later: one slot moves a beat in 5 cycles, two slots move two. The last
    # of 1,024 beats comes at 5 x 1,023 with one, at 5 x 511 + 1 with two.
    tiny = hwspecs.load("tiny")
    shallow = tiny.compute.model_copy(update={"fifo_depth_beats": 1})
    mapped = map_graph(
        build("dot_product", {"n": 4096}), tiny.model_copy(update={"compute": shallow})
    )
    gains = {gain.variant.name: gain for gain in sensitivity(mapped, cycles_of)}
    deeper = gains["FIFOs of compute units twice as deep"]
    assert deeper.cycles == cycles_of(mapped.program) - (5 * 1023 - (5 * 511 + 1))


def test_faster_clock_is_judged_by_time() -> None:
    # A unit, clocked 1.1 times as fast, waits for a memory whose bytes a second stay: 16 B a cycle
    # become 14.5, so that the run takes more cycles and hardly less time.
    mapped = map_graph(build("dot_product", {"n": 1 << 14}), hwspecs.load("tiny"))
    before = cycles_of(mapped.program)
    gains = {gain.variant.name: gain for gain in sensitivity(mapped, cycles_of, anew=False)}
    faster = gains["10 % faster clock"]
    assert faster.variant.machine.clock_hz == 1.1e9
    assert faster.cycles is not None
    assert faster.cycles > before
    saved = faster.saved(faster.cycles, before)
    assert saved == pytest.approx(1 - faster.cycles / 1.1 / before)
    assert not faster.changes_nothing(before)
    assert not faster.changes_nothing(faster.cycles)
    assert gains["one more compute unit"].cycles == before
    assert gains["one more compute unit"].changes_nothing(before)


def test_variant_that_cannot_be_laid_out_says_why() -> None:
    # Twice the lanes take the copies of a schedule for half of them to three compute units of two.
    tiny = hwspecs.load("tiny")
    mapped = map_graph(build("dot_product", {"n": 4096}), tiny)
    gains = {gain.variant.name: gain for gain in sensitivity(mapped, cycles_of)}
    wide = gains["twice the lanes of a compute unit"]
    assert wide.cycles is None
    assert "compute units must be at most 2, got 3" in wide.fault
    assert wide.anew
    assert wide.anew_fault == ""
    assert wide.saved(wide.cycles, 1) is None


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
