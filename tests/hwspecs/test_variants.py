"""Variants of a machine: one resource grown, as the same change of its file would have it."""

from pathlib import Path

import pytest

import hwspecs
from hwspecs.located_yaml import read
from hwspecs.variants import Change, variants

FOLDER = Path(hwspecs.__file__).parent


def by_name(machine: str) -> dict:
    return {variant.name: variant for variant in variants(hwspecs.load(machine))}


def by_hand(machine: str, changes: tuple[Change, ...], folder: Path) -> hwspecs.Machine:
    """The machine of a file in which every change was made."""
    content = read(FOLDER / f"{machine}.yaml", "machine").content
    for change in changes:
        *path, last = change.path.split(".")
        place = content
        for name in path:
            if isinstance(place[name], str):  # a dram by its preset's name alone
                place[name] = {"preset": place[name]}
            place = place[name]
        place[last] = int(change.after) if change.after.isdigit() else change.after
    (folder / "changed.yaml").write_text(hwspecs.write(content))
    return hwspecs.load(folder / "changed.yaml")


@pytest.mark.parametrize("machine", hwspecs.names())
def test_variants_are_what_a_changed_file_says(machine: str, tmp_path: Path) -> None:
    found = variants(hwspecs.load(machine))
    names = {variant.name for variant in found}
    assert {"one more compute unit", "one more off-chip channel", "10 % faster clock"} <= names
    assert len({variant.machine.content_hash for variant in found}) == len(found)
    for variant in found:
        assert by_hand(machine, variant.changes, tmp_path) == variant.machine, variant.name


def test_one_more_unit_stands_in_a_further_row_where_the_grid_is_full() -> None:
    grown = by_name("plasticine")["one more compute unit"]
    assert grown.changes == (
        Change("grid.rows", "8", "9"),
        Change("grid.compute_units", "64", "65"),
        Change("grid.memory_units", "64", "64"),
    )
    before = hwspecs.load("plasticine").grid.sites("compute")
    assert grown.machine.grid.sites("compute") == (*before, (8, 0))


def test_bandwidth_grows_by_faster_pins_where_banks_are_described() -> None:
    # DDR3-1600: 1.25 ns a clock and four clocks between bursts; 1250 / 1.1 = 1136 ps
    changes = by_name("plasticine")["10 % more off-chip bandwidth"].changes
    assert Change("off_chip.dram.tck", "1.25 ns", "1.136 ns") in changes
    assert Change("off_chip.dram.tccd_s", "5 ns", "4.544 ns") in changes
    rates = by_name("tungsten_20x20")["10 % more off-chip bandwidth"].changes
    assert Change("off_chip.read", "12.8 GB/s", "14.08 GB/s") in rates


def test_defaults_that_no_file_could_give_stay() -> None:
    # Folds that overlap have no overhead between them: none is given, and 0 cycles could not be.
    assert "one more systolic array" in by_name("systolic_128x128")


def test_latencies_stay_at_least_a_cycle() -> None:
    assert "channels one cycle sooner" in by_name("plasticine")  # of 2
    assert "hops one cycle sooner" not in by_name("plasticine")  # of 1


def test_more_lanes_take_as_many_banks_and_a_longer_tree() -> None:
    changes = by_name("plasticine")["twice the lanes of a compute unit"].changes
    assert [(change.path, change.after) for change in changes] == [
        ("compute.lanes", "32"),
        ("compute.reduction_stages", "5"),
        ("memory.banks", "32"),
    ]
