"""The default schedule fits and is repeatable; what does not fit is refused with numbers."""

import pytest

import hwspecs
from dataflow.kernels import KERNELS, build
from dataflow.schedule import Schedule, ScheduleError
from dataflow.sim import simulate
from dataflow.streams import stream
from mapping import MappingError, default_schedule, map_graph
from mapping.default_schedule import candidates
from mapping.partition import partition
from mapping.resources import busy_cycles, needs

SMALL = [name for name in KERNELS if name not in ("fft_conv",)]


@pytest.mark.parametrize("name", SMALL)
def test_default_schedule_reads_back_and_maps_again_alike(name: str) -> None:
    graph, machine = build(name), hwspecs.load("plasticine")
    schedule = default_schedule(graph, machine)
    assert Schedule.from_yaml(schedule.to_yaml()) == schedule
    assert default_schedule(graph, machine) == schedule


def test_default_schedule_puts_products_into_all_stages() -> None:
    mapped = map_graph(build("gemm"), hwspecs.load("plasticine"))
    products = [unit for unit in mapped.program.units if unit.kind == "compute"]
    assert {unit.stages for unit in products} == {6}


def test_default_schedule_keeps_softmax_rows_in_lanes() -> None:
    # A maximum over lanes of rows takes one stage, one along lanes of n the whole tree.
    graph = build("softmax", {"rows": 64, "n": 64})
    schedule = default_schedule(graph, hwspecs.load("plasticine"))
    vectors = {digit for node in schedule.nodes.values() for digit in node.vector}
    assert vectors == {"rows"}


def test_more_off_chip_bandwidth_is_no_slower() -> None:
    machine = hwspecs.load("plasticine")
    graph = build("outer_product")
    schedule = default_schedule(graph, machine)
    slow = machine.off_chip
    fast = slow.faster(2)
    cycles = [
        simulate(
            map_graph(graph, machine.model_copy(update={"off_chip": each}), schedule).program,
            values=False,
        ).cycles
        for each in (slow, fast)
    ]
    assert cycles[1] < cycles[0]


def test_kernel_that_fits_no_way_is_refused_with_what_it_needs() -> None:
    with pytest.raises(MappingError, match=r"compute units must be at most 2, got 6 \(over by 4\)"):
        map_graph(build("attention"), hwspecs.load("tiny"))


def test_shortage_of_generators_is_told_as_such() -> None:
    machine = hwspecs.load("tiny")
    few = machine.generators.model_copy(update={"count": 2})
    machine = machine.model_copy(update={"generators": few})
    with pytest.raises(MappingError, match=r"address generators must be at most 2, got 3"):
        map_graph(build("gemm", {"i": 8, "j": 8, "k": 8}), machine)


@pytest.mark.parametrize("sizes", [(8, 7, 8), (7, 13, 11), (8, 8, 8), (1, 1, 1)])
def test_small_products_fit_a_machine_of_two_memory_units(sizes: tuple[int, int, int]) -> None:
    graph = build("gemm", dict(zip("ijk", sizes, strict=True)))
    assert map_graph(graph, hwspecs.load("tiny")).program.units


def test_no_other_number_of_copies_fits_and_is_faster() -> None:
    # 18 copies of each product take 3 memory units a copy for its weights and all 384 but 14;
    # 19 to 24 do not fit, 25 and 26 take 2 a copy and do.
    graph, machine = build("gru", {"h": 2048, "t": 1500}), hwspecs.load("plasticine_rnn")
    best = candidates(graph, machine)[0]
    products = {name for name, node in best.schedule.nodes.items() if node.unroll}
    assert len(products) == 6
    fitting = {}
    for copies in range(1, 33):
        nodes = {
            name: node.model_copy(update={"unroll": {"h": copies} if name in products else {}})
            for name, node in best.schedule.nodes.items()
        }
        schedule = best.schedule.model_copy(update={"nodes": nodes})
        made = stream(graph, schedule, machine.compute.lanes, machine.compute.fifo_depth_beats)
        groups = partition(made, machine)
        if needs(made, groups, machine).fits(machine):
            fitting[copies] = max(busy_cycles(made, group, machine) for group in groups)
    assert {18, 26} <= set(fitting)
    assert not {20, 24} & set(fitting)
    (chosen,) = {best.schedule.nodes[name].unroll["h"] for name in products}
    assert fitting[chosen] == min(fitting.values())


def test_more_lanes_than_the_machine_has_are_refused_with_their_place() -> None:
    schedule = Schedule.from_yaml("nodes: {c: {vector: {j: 64}}, load b: {vector: {j: 64}}}")
    with pytest.raises(ScheduleError) as caught:
        map_graph(build("gemm"), hwspecs.load("tiny"), schedule)
    assert "1:25: nodes.c.vector.j must be at most 4, the lanes of tiny, got 64" in str(
        caught.value
    )
    assert "1:52: nodes.load b.vector.j must be at most 4" in str(caught.value)


def test_tensors_must_fit_the_off_chip_memory() -> None:
    machine = hwspecs.load("tiny")
    small = machine.off_chip.model_copy(update={"capacity_bytes": 64})
    machine = machine.model_copy(update={"off_chip": small})
    # Three tensors of 16 x 16 words of 4 bytes.
    with pytest.raises(MappingError, match=r"off-chip memory must be at most 64, got 3072"):
        map_graph(build("gemm", {"i": 16, "j": 16, "k": 16}), machine)


def test_more_copies_than_units_are_refused_before_they_are_built() -> None:
    schedule = Schedule.from_yaml("nodes: {c: {unroll: {i: 100}}}")
    with pytest.raises(MappingError, match="100"):
        map_graph(build("gemm"), hwspecs.load("plasticine"), schedule)
