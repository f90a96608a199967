"""DRAM presets and the rules between their numbers."""

import re

import pytest

import hwspecs
from hwspecs.dram import PRESETS, Dram, preset, presets
from hwspecs.errors import SpecError
from hwspecs.machine import Machine

FOLDER = PRESETS.parents[1]


def machine_file(tmp_path, dram, lost=("peak", "read", "write", "burst")):
    """A file of `tiny` whose off-chip memory has the lines of `dram` for those named."""
    text = (FOLDER / "tiny.yaml").read_text()
    head, tail = text.split("off_chip:\n")
    lines = [x for x in tail.splitlines() if x.strip().partition(":")[0] not in lost]
    path = tmp_path / "mine.yaml"
    path.write_text(head + "off_chip:\n" + "\n".join([*lines, *dram]) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "bytes_per_s", "burst_bytes"),
    [
        ("DDR3-1600", 12.8e9, 64),  # 1600e6 transfers x 8 B
        ("DDR4-2666", 64e9 / 3, 64),  # 2666.67e6 x 8 B
        ("HBM2", 256e9 / 16, 32),  # a stack's 256 GB/s over 16 pseudo-channels
        ("HBM2E", 409.6e9 / 16, 32),  # 3.2 Gbit/s x 1024 pins
        ("HBM3", 819.2e9 / 32, 32),  # 6.4 Gbit/s x 1024 pins over 32 pseudo-channels
    ],
)
def test_preset_has_the_published_rate(name, bytes_per_s, burst_bytes):
    dram = Dram.model_validate(preset(name))
    assert dram.peak_bytes_per_s == pytest.approx(bytes_per_s, rel=1e-12)
    assert dram.burst_bytes == burst_bytes
    # bursts of different groups follow each other without a gap
    assert dram.burst_ps == dram.tccd_s_ps


@pytest.mark.parametrize("name", presets())
def test_preset_holds_times_of_whole_clocks(name):
    dram = Dram.model_validate(preset(name))
    times = {key: time for key, time in dram if key.endswith("_ps")}
    assert len(times) == 18
    assert [key for key, time in times.items() if time % dram.tck_ps] == []
    assert dram.trc_ps == dram.tras_ps + dram.trp_ps


def test_every_number_of_the_presets_names_its_source():
    for number, line in enumerate(PRESETS.read_text().splitlines()):
        value, _, comment = line.partition("#")
        if re.search(r": .*\d", value):
            assert re.search(r"\b[EDRA]\b", comment), f"{number + 1}: {line}"


def test_machine_takes_rates_and_bursts_from_its_dram(tmp_path):
    chip = hwspecs.load(machine_file(tmp_path, ["  dram: DDR3-1600"])).off_chip
    assert (chip.peak_bytes_per_s, chip.burst_bytes) == (12.8e9, 64)
    # the estimate for mappings: all but tRFC / tREFI = 260 / 7800 of the time
    assert chip.read_bytes_per_s == chip.write_bytes_per_s == pytest.approx(12.8e9 * 29 / 30)


def test_preset_may_be_changed_in_single_numbers(tmp_path):
    dram = ["  dram:", "    preset: DDR3-1600", "    trefi: 3.9 us"]
    found = hwspecs.load(machine_file(tmp_path, dram)).off_chip.dram
    assert found is not None
    assert (found.trefi_ps, found.trfc_ps) == (3_900_000, 260_000)


def test_machine_with_a_dram_comes_back_from_plain_numbers(tmp_path):
    machine = hwspecs.load(machine_file(tmp_path, ["  dram: HBM3"]))
    assert Machine.model_validate(machine.model_dump()) == machine


def faults(path):
    with pytest.raises(SpecError) as caught:
        hwspecs.load(path)
    return [str(fault) for fault in caught.value.faults]


def test_memory_without_dram_needs_its_rates(tmp_path):
    said = faults(machine_file(tmp_path, []))
    assert [line.partition(": ")[2].partition(",")[0] for line in said] == [
        f"off_chip.{key} must be given" for key in ("burst", "peak", "read", "write")
    ]


def test_rate_beside_a_dram_that_says_another_is_refused(tmp_path):
    said = faults(machine_file(tmp_path, ["  dram: DDR3-1600"], lost=("read", "write", "burst")))
    assert len(said) == 1
    assert "off_chip.peak must be left out where a dram is given, got '16 GB/s'" in said[0]


def test_unknown_preset_names_the_nearest(tmp_path):
    (said,) = faults(machine_file(tmp_path, ["  dram: DDR3-1601"]))
    assert "DDR3-1600, DDR4-2666, HBM2, HBM2E, HBM3, got 'DDR3-1601'" in said
    assert said.endswith("did you mean DDR3-1600?")


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("tccd_s: 4 ns", "at least a burst's time on the bus, 5 ns"),
        ("tccd_l: 4.9 ns", "at least tccd_s, 5 ns"),
        ("trc: 30 ns", "at least tras, 35 ns"),
        ("trefi: 300 ns", "at least trfc and trc together, 308.75 ns"),
        ("row: 32 B", "at least one burst, 64 B"),
        ("map: [group, bank]", "group, column and bank, each once"),
        ("banks: 6", "a power of two"),
        ("trcd: 13 cycles", "a time of whole picoseconds such as '13.75 ns'"),
        ("tRCD: 13 ns", "one of the keys"),
    ],
)
def test_faulty_timing_is_refused_at_its_place(tmp_path, line, rule):
    dram = ["  dram:", "    preset: DDR3-1600", f"    {line}"]
    path = machine_file(tmp_path, dram)
    (said,) = faults(path)
    key = line.partition(":")[0]
    row = len(path.read_text().splitlines())
    assert said.startswith(f"{path}:{row}:") or said.startswith(f"mine.yaml:{row}:")
    assert f"off_chip.dram.{key}" in said
    assert rule in said
