"""The default schedule fits and is repeatable; what does not fit is refused with numbers."""

import pytest

import hwspecs
from dataflow.kernels import KERNELS, build
from dataflow.schedule import Schedule
from dataflow.sim import simulate
from mapping import MappingError, default_schedule, map_graph

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
    fast = slow.model_copy(
        update={
            "peak_bytes_per_s": 2 * slow.peak_bytes_per_s,
            "read_bytes_per_s": 2 * slow.read_bytes_per_s,
            "write_bytes_per_s": 2 * slow.write_bytes_per_s,
        }
    )
    cycles = [
        simulate(
            map_graph(graph, machine.model_copy(update={"off_chip": each}), schedule).program,
            values=False,
        ).cycles
        for each in (slow, fast)
    ]
    assert cycles[1] < cycles[0]


def test_kernel_that_fits_no_way_is_refused_with_what_it_needs() -> None:
    with pytest.raises(MappingError, match=r"the smallest needs \d+ compute, \d+ memory units"):
        map_graph(build("attention"), hwspecs.load("tiny"))


def test_more_copies_than_units_are_refused_before_they_are_built() -> None:
    schedule = Schedule.from_yaml("nodes: {c: {unroll: {i: 100}}}")
    with pytest.raises(MappingError, match="100"):
        map_graph(build("gemm"), hwspecs.load("plasticine"), schedule)
