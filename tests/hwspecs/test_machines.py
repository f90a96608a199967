"""The machines of the package: counts, peaks and rates by the arithmetic that their files show."""

import re
from pathlib import Path

import pytest

import hwspecs
from hwspecs.machine import Grid, Machine

FOLDER = Path(hwspecs.__file__).parent
NAMES = hwspecs.names()


@pytest.mark.parametrize("name", NAMES)
def test_machine_loads_under_its_file_name(name):
    assert hwspecs.load(name).name == name


@pytest.mark.parametrize(
    ("name", "compute", "memory"),
    [
        ("tiny", 2, 2),
        ("plasticine", 64, 64),
        ("plasticine_rnn", 192, 384),
        ("tungsten_20x20", 200, 200),
        ("sn10", 640, 640),
        ("sn40l", 1040, 1040),
    ],
)
def test_machine_has_the_published_counts(name, compute, memory):
    grid = hwspecs.load(name).grid
    assert len(grid.sites("compute")) == grid.compute_units == compute
    assert len(grid.sites("memory")) == grid.memory_units == memory
    assert not set(grid.sites("compute")) & set(grid.sites("memory"))


@pytest.mark.parametrize(
    ("name", "flops_a_stage", "published", "tolerance"),
    [
        # 64 x 16 x 6 x 2 x 1e9 = 12.288e12, published 12.3 TFLOP/s
        ("plasticine", 2, 12.3e12, 0.05e12),
        # 192 x 16 x 4 x 1 x 1e9 = 12.288e12, published 12.5 TFLOP/s
        ("plasticine_rnn", 1, 12.5e12, 0.25e12),
        # the same times 4 packed operations = 49.152e12, published 49 TOP/s
        ("plasticine_rnn", 4, 49e12, 0.5e12),
        # 640 x 32 x 6 x 2 x 1.303e9 = 320.2e12, published "over 320"
        ("sn10", 2, 320e12, 0.5e12),
        # 1040 x 32 x 6 x 2 x 1.6e9 = 638.98e12, published 638 TFLOP/s
        ("sn40l", 2, 638e12, 1e12),
    ],
)
def test_peak_is_the_published_one(name, flops_a_stage, published, tolerance):
    machine = hwspecs.load(name)
    assert flops_a_stage in (1, 2, machine.compute.packing)
    peak = machine.peak_ops_per_cycle * flops_a_stage * machine.clock_hz
    assert peak == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize(
    ("name", "bytes_per_s"),
    [
        ("plasticine", 51.2e9),  # 4 x 12.8
        ("sn10", 128e9),  # 6 x 21.336 = 128.016
        ("sn40l", 1.6e12),  # 32 x 50
    ],
)
def test_off_chip_peak_is_the_published_one(name, bytes_per_s):
    machine = hwspecs.load(name)
    peak = machine.off_chip_peak_bytes_per_cycle * machine.clock_hz
    assert peak == pytest.approx(bytes_per_s, rel=0.001)


def test_tungsten_peak_is_above_the_published_writes():
    # Published writes reach 62 GB/s; a bound below that would be broken by them.
    assert hwspecs.load("tungsten_20x20").off_chip_peak_bytes_per_cycle >= 62


def test_tungsten_has_the_constants_found_from_its_counts():
    machine = hwspecs.load("tungsten_20x20")
    assert (machine.compute.latency_cycles, machine.compute.fifo_depth_beats) == (6, 16)
    assert (machine.network.kind, machine.network.channel_cycles) == ("ideal", 3)
    assert (machine.network.credit_cycles, machine.generators.latency_cycles) == (1, 8)
    assert (machine.memory.write_to_token_cycles, machine.memory.read_cycles) == (1, 1)
    assert (machine.off_chip.latency_cycles, machine.off_chip.interleave_bytes) == (31, 64)
    assert (machine.off_chip.channels, machine.off_chip.read_bytes_per_s) == (4, 12.8e9)
    assert machine.generators.outstanding_requests == 64
    # a store of rows to two of four channels is to reach 58 GB/s
    assert machine.generators.outstanding_writes >= 256


def test_scratchpads_add_up_to_the_published_totals():
    # 384 x 84 KiB = 31.5 MiB; 640 x 0.5 MiB = 320 MiB; 1040 x 0.5 MiB = 520 MiB.
    for name, total_mib in (("plasticine_rnn", 31.5), ("sn10", 320), ("sn40l", 520)):
        machine = hwspecs.load(name)
        assert machine.grid.memory_units * machine.memory.capacity_bytes == total_mib * 2**20


def test_recurrent_dot_product_fits_one_unit():
    # multiply 1 + in-lane and folded tree 2 + accumulate 1 = 4 stages.
    compute = hwspecs.load("plasticine_rnn").compute
    assert 1 + compute.reduction_stages + 1 == compute.stages == 4


@pytest.mark.parametrize("name", NAMES)
def test_fifo_keeps_the_longest_shortest_route_at_full_rate(name):
    machine = hwspecs.load(name)
    network, compute, grid = machine.network, machine.compute, machine.grid
    hops = 0 if network.kind == "ideal" else grid.rows - 1 + grid.columns - 1
    travel = hops * network.hop_cycles
    if network.packets is not None:
        # a packet leaves the last router too; a beat with its header is one flit
        assert network.packets.flits(compute.lanes * machine.word_bytes) == 1
        travel = (hops + 1) * (network.packets.router_cycles + network.packets.link_cycles)
    latency = compute.latency_cycles + network.channel_cycles + travel
    assert compute.fifo_depth_beats >= latency + network.credit_cycles


@pytest.mark.parametrize("name", NAMES)
def test_every_number_names_its_source(name):
    lines = (FOLDER / f"{name}.yaml").read_text().splitlines()
    assert lines[0] == "# yaml-language-server: $schema=machine.schema.json"
    for number, line in enumerate(lines):
        value, _, comment = line.partition("#")
        if not re.search(r": .*\d", value) or value.startswith(("name:", "summary:")):
            continue
        comment += lines[number - 1] if lines[number - 1].lstrip().startswith("#") else ""
        block = lines[max(0, number - 4) : number]
        comment += "".join(part for part in block if part.lstrip().startswith("#"))
        assert re.search(r"\b([EDRA]|found)\b", comment), f"{name}.yaml:{number + 1}: {line}"


def test_sites_follow_the_pattern_in_row_major_order():
    grid = Grid(rows=2, columns=4, pattern=("CMM",))
    assert grid.sites("compute") == ((0, 0), (0, 3), (1, 0), (1, 3))
    assert grid.sites("memory") == ((0, 1), (0, 2), (1, 1), (1, 2))


def test_sites_of_a_checkerboard_have_even_sums():
    grid = Grid(rows=3, columns=3)
    assert all((row + column) % 2 == 0 for row, column in grid.sites("compute"))
    assert len(grid.sites("compute")) == 5


def test_sites_leave_the_last_ones_empty_where_fewer_units_are_given():
    grid = Grid(rows=2, columns=2, compute_units=1)
    assert grid.sites("compute") == ((0, 0),)


def test_sites_refuse_another_kind():
    with pytest.raises(ValueError, match="kind must be compute or memory, got 'switch'"):
        Grid(rows=2, columns=2).sites("switch")  # type: ignore[arg-type]


def test_reduction_takes_log2_lanes_where_not_given():
    # log2(16) = 4, log2(4) = 2.
    assert hwspecs.load("plasticine").compute.reduction_stages == 4
    assert hwspecs.load("tiny").compute.reduction_stages == 2


def test_hash_ignores_comments_layout_and_form_of_units(tmp_path):
    text = (FOLDER / "tiny.yaml").read_text()
    bare = "\n".join(line.partition(" #")[0] for line in text.splitlines()[4:])
    changed = bare.replace("1 GHz", "1000 MHz").replace("64 KiB", "65536B")
    path = tmp_path / "other.yaml"
    path.write_text(changed.replace("[CM, MC]", "\n    - 'CM'\n    - \"MC\""))
    assert hwspecs.load(path).content_hash == hwspecs.load("tiny").content_hash


def test_hash_changes_with_any_number():
    tiny = hwspecs.load("tiny")
    hashes = {tiny.content_hash}
    for section in ("grid", "compute", "memory", "network", "generators", "off_chip"):
        part = getattr(tiny, section)
        for field, value in part:
            if isinstance(value, int | float):
                varied = part.model_copy(update={field: value + 1})
                hashes.add(tiny.model_copy(update={section: varied}).content_hash)
    # 1 unchanged + 4 grid + 12 compute + 7 memory + 5 network + 3 generators + 8 off-chip numbers.
    assert len(hashes) == 1 + 4 + 12 + 7 + 5 + 3 + 8


def test_hash_is_twelve_hex_digits_and_machines_differ():
    hashes = {hwspecs.load(name).content_hash for name in NAMES}
    assert len(hashes) == len(NAMES)
    assert all(re.fullmatch("[0-9a-f]{12}", digits) for digits in hashes)


def test_machine_is_frozen_and_hashable():
    tiny = hwspecs.load("tiny")
    with pytest.raises(ValueError, match="frozen"):
        tiny.clock_hz = 2e9  # type: ignore[misc]
    assert hash(tiny) == hash(hwspecs.load("tiny"))


def test_machine_from_python_takes_plain_numbers():
    tiny = hwspecs.load("tiny")
    assert Machine.model_validate(tiny.model_dump()) == tiny


# Systolic mode


def test_systolic_machines_have_one_array():
    for name, side, dataflow in (
        ("systolic_128x128", 128, "weight"),
        ("systolic_32x32", 32, "output"),
    ):
        machine = hwspecs.load(name)
        array = machine.compute.systolic
        assert array is not None
        assert (array.rows, array.columns, array.dataflow) == (side, side, dataflow)
        assert machine.arrays == 1


def test_systolic_128x128_peak_is_half_a_tpu_v2():
    machine = hwspecs.load("systolic_128x128")
    # 128 x 128 multiply-adds at 0.7 GHz: 22.9 TFLOP/s, of the chip's 46 with two cores
    assert 2 * 128 * 128 * machine.clock_hz == pytest.approx(46e12 / 2, rel=0.01)


def test_machines_without_systolic_mode_have_no_arrays():
    assert hwspecs.load("tiny").arrays == 0


def test_every_unit_has_the_mode_where_no_number_is_given():
    text = (FOLDER / "systolic_32x32.yaml").read_text()
    with_all = text.replace("    units: 1 # A\n", "")
    assert hwspecs.check(Machine, hwspecs.read(with_all, "machine")).arrays == 16


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("rows: 32 #", "rows: 33 #", "must be an array of at most 32 rows and columns, the lanes"),
        ("units: 1 #", "units: 17 #", "must be a systolic mode in at most the grid's 16 compute"),
        ("folds: serial", "folds: overlapped", "must be left out where folds are overlapped"),
        ("dataflow: output", "dataflow: outputs", "got 'outputs'; did you mean output"),
    ],
)
def test_systolic_faults_say_what_is_wrong(old, new, fault):
    text = (FOLDER / "systolic_32x32.yaml").read_text()
    assert text.count(old) == 1
    with pytest.raises(hwspecs.SpecError, match=fault):
        hwspecs.check(Machine, hwspecs.read(text.replace(old, new), "machine"))
