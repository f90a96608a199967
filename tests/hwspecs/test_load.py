"""Finding and loading machine files, and the message of every kind of fault."""

from pathlib import Path

import pytest

import hwspecs
from hwspecs import SpecError

TINY = (Path(hwspecs.__file__).parent / "tiny.yaml").read_text()


def load_changed(tmp_path: Path, *changes: tuple[str, str]) -> hwspecs.Machine:
    text = TINY
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} must stand once in tiny.yaml"
        text = text.replace(old, new)
    path = tmp_path / "changed.yaml"
    path.write_text(text)
    return hwspecs.load(path)


def line_of(text: str) -> int:
    return TINY[: TINY.index(text)].count("\n") + 1


def test_names_lists_the_machines():
    assert set(hwspecs.names()) >= {"tiny", "plasticine", "plasticine_rnn", "tungsten_20x20"}
    assert set(hwspecs.names()) >= {"sn10", "sn40l"}


def test_load_reads_a_file_of_the_user(tmp_path):
    machine = load_changed(tmp_path, ("clock: 1 GHz", "clock: 2 GHz"))
    assert machine.clock_hz == 2e9
    assert hwspecs.load(str(tmp_path / "changed.yaml")) == machine


def test_load_suggests_the_nearest_name():
    with pytest.raises(SpecError, match=r"got 'plastisine'; did you mean plasticine\?"):
        hwspecs.load("plastisine")


def test_load_says_that_a_file_is_missing():
    with pytest.raises(SpecError, match=r"none\.yaml: must be readable, got: No such file"):
        hwspecs.load("none.yaml")


@pytest.mark.parametrize(
    ("old", "new", "column", "said"),
    [
        ("clock: 1 GHz", "clok: 1 GHz", 1, "clok must be one of the keys name, summary,"),
        ("clock: 1 GHz", "clock: 1 gHz", 8, "clock must be a frequency such as '1 GHz', got"),
        ("clock: 1 GHz", "clock: 5", 8, "clock must be a frequency such as '1 GHz', got 5; write"),
        ("data_type: fp32", "data_type: fp23", 12, "got 'fp23'; did you mean fp32?"),
        ("accumulate_type: fp32", "accumulate_type: bf16", 18, "at least as wide as"),
        ("word: 4 B", "word: 2 B", 12, "data_type must be a type that fits a word of 2 B"),
        ("rows: 2", "rows: 0", 9, "grid.rows must be at least 1, got 0"),
        ("rows: 2", "rows: 2.0", 9, "grid.rows must be a whole number, got 2.0"),
        ("rows: 2", "rows: true", 9, "grid.rows must be a whole number, got true"),
        ("rows: 2", "rows: 1", 12, "grid.pattern must be no larger than the grid, 1 rows of 2"),
        ("rows: 2", "rows: 99999999", 9, "grid.rows must be at most 512"),
        ("pattern: [CM, MC]", "pattern: [CM, M]", 12, "rows of equal length"),
        ("pattern: [CM, MC]", "pattern: [CM, MX]", 17, "grid.pattern[1] must be text of the form"),
        ("pattern: [CM, MC]", "pattern: [CC, CC]", 12, "a pattern with memory units (M)"),
        ("pattern: [CM, MC]", "compute_units: 3", 18, "compute_units must be at most the pattern"),
        ("lanes: 4", "lanes: 12", 10, "lanes must be a power of two, got 12; 8 is the nearest"),
        ("lanes: 4", "lanes: -4", 10, "compute.lanes must be at least 1, got -4"),
        ("lanes: 4", "lanes: .nan", 10, "compute.lanes must be a whole number, got nan"),
        ("lanes: 4", "lanes: four", 10, "compute.lanes must be a whole number, got 'four'"),
        ("stages: 4", "stages: 4\n  stages: 5", 3, "compute.stages must be given once"),
        ("capacity: 64 KiB", "capacity: 64 KiB/s", 13, "memory.capacity must be a size"),
        ("capacity: 64 KiB", "capacity: -64 KiB", 13, "memory.capacity must be a size"),
        ("capacity: 64 KiB", "capacity: 6 B", 10, "memory.banks must be a divisor of the capacity"),
        ("write_to_token: 1 cycle", "write_to_token: 0 cycles", 19, "above 0 and at most"),
        (
            "kind: static",
            "kind: statik",
            9,
            "ideal, static, dynamic, got 'statik'; did you mean static?",
        ),
        ("read: 16 GB/s", "read: 17 GB/s", 9, "read must be at most the peak rate, 16 GB/s, got"),
        ("burst: 16 B", "burst: 48 B", 10, "burst must be a power of two, got '48 B'; 32 is"),
        ("interleave: 64 B", "interleave: 8 B", 15, "interleave must be at least one burst, 16 B"),
    ],
)
def test_load_reports_a_fault_with_its_place(tmp_path, old, new, column, said):
    with pytest.raises(SpecError) as caught:
        load_changed(tmp_path, (old, new))
    hits = [fault for fault in caught.value.faults if said in str(fault)]
    assert len(hits) == 1, str(caught.value)
    assert hits[0].column == column
    # A rule between two values is reported at the second of them; a key given twice likewise.
    second = {"word: 2 B": "data_type:", "rows: 1": "pattern", "capacity: 6 B": "banks"}
    line = line_of(second.get(new) or old) + new.count("\n")
    assert str(hits[0]).startswith(f"{tmp_path / 'changed.yaml'}:{line}:{column}: ")


def test_load_reports_a_missing_key_at_its_mapping(tmp_path):
    with pytest.raises(SpecError) as caught:
        load_changed(tmp_path, ("  lanes: 4 # A\n", ""))
    (fault,) = caught.value.faults
    assert fault.path == "compute.lanes"
    assert (fault.line, fault.column) == (line_of("  lanes: 4"), 3)


def test_load_reports_all_faults_at_once(tmp_path):
    changes = [
        ("clock: 1 GHz", "clok: 1 GHz"),
        ("rows: 2", "rows: two"),
        ("lanes: 4", "lanes: 5"),
        ("fifo_depth: 16 beats # A: covers", "fifo_depth: 16 # A: covers"),
        ("banks: 4", "banks: &four 4"),
        ("kind: static", "kind: ring"),
        ("burst: 16 B", "burst: 0 B"),
    ]
    with pytest.raises(SpecError) as caught:
        load_changed(tmp_path, *changes)
    paths = [fault.path for fault in caught.value.faults]
    assert ", ".join(paths) == (
        "clock, clok, grid.rows, compute.lanes, compute.fifo_depth, "
        "memory.banks, network.kind, off_chip.burst"
    )


def test_load_reads_operations(tmp_path):
    rows = "latency: 4 cycles # A, one a stage\n  operations: {exp: {stages: 2, ii: 3 cycles}}"
    machine = load_changed(tmp_path, ("latency: 4 cycles # A, one a stage", rows))
    assert machine.compute.operation("exp").ii_cycles == 3
    assert machine.compute.operation("add").stages == 1


def test_load_refuses_an_operation_longer_than_the_unit(tmp_path):
    rows = "latency: 4 cycles # A, one a stage\n  operations: {exp: {stages: 5}}"
    with pytest.raises(SpecError, match="at most the unit's 4 stages, got a mapping of 1; see exp"):
        load_changed(tmp_path, ("latency: 4 cycles # A, one a stage", rows))
