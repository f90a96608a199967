"""The report's derived figures, its JSON, and a definition for every printed term."""

import dataclasses
import json
from dataclasses import dataclass, field

import pytest
from rich.console import Console

from dataflow.check import Check, OutputCheck
from dataflow.explain import DEFINITIONS
from dataflow.render import VALIDATION_TERMS, explain, quantity, render, seconds, terms_of
from dataflow.report import STALLS, BufferRow, Report, UnitRow, as_json


@dataclass(frozen=True)
class Parts:
    cycles: int
    by: str
    parts: dict[str, int] = field(default_factory=dict)


def _unit(name: str, kind: str, cells: int, busy: int, **stalls: int) -> UnitRow:
    return UnitRow(name, kind, cells, busy, busy, {**dict.fromkeys(STALLS, 0), **stalls})


def _output(name: str, error: float, bound: float, passed: bool = True) -> OutputCheck:
    return OutputCheck(name, error, bound, error, bound, 1.0, True, passed)


REPORT = Report(
    kernel="gemm",
    sizes={"i": 8},
    options={"bias": False},
    rewrites=(),
    machine="tiny",
    machine_hash="0123456789ab",
    clock_hz=1e9,
    engine="simpy",
    complete=True,
    cycles=100,
    bound=Parts(80, "off_chip", {"off_chip": 80}),
    mapping_bound=Parts(90, "c"),
    compute_cells=3,
    compute_units=4,
    memory_cells=1,
    memory_units=4,
    generators=2,
    generators_there=3,
    units=(
        _unit("c[0]", "compute", 2, 60, waiting=30, done=10),
        _unit("d", "compute", 1, 40, blocked=60),
        _unit("load a", "load", 1, 90, off_chip=10),
    ),
    buffers=(BufferRow("a -> c", "scratchpad", 1, 2, None, 2048, "one fills while one is read"),),
    read_bytes=640,
    written_bytes=160,
    useful_bytes=700,
    peak_bytes_per_s=16e9,
    firings=190,
    wall_seconds=0.5,
    check=Check((_output("c", 1e-6, 2e-6), _output("d", 1e-9, 1e-3)), "float64 NumPy"),
)


def _printed(report: Report) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(report))
    return console.export_text()


def test_report_utilisation_counts_cells_of_the_whole_machine() -> None:
    # (2 cells x 60 + 1 x 40) busy of 4 units x 100 cycles
    assert REPORT.utilisation == pytest.approx(160 / 400)


def test_report_distance_and_rate() -> None:
    assert REPORT.distance == pytest.approx(1.25)
    assert REPORT.bytes_per_s == pytest.approx(800 / 100e-9)


def test_report_stalls_sum_over_the_units_of_a_kind() -> None:
    assert REPORT.stalls()["waiting"] == 30
    assert REPORT.stalls(["load"]) == {**dict.fromkeys(STALLS, 0), "off_chip": 10}


def test_report_of_no_cycles_divides_by_nothing() -> None:
    empty = dataclasses.replace(REPORT, cycles=0, bound=Parts(0, ""), complete=False)
    assert empty.utilisation == 0
    json.dumps(as_json(empty), allow_nan=False)
    assert "INTERRUPTED" in _printed(empty)


def test_as_json_has_the_promised_fields() -> None:
    data = as_json(REPORT)
    promised = "kernel sizes options rewrites machine machine_hash model_version engine cycles"
    promised += " seconds bound_cycles bound_by utilisation stalls off_chip_bytes values buffers"
    assert {*promised.split(), "wall_seconds"} <= set(data)
    assert data["seconds"] == pytest.approx(100e-9)
    assert data["stalls"]["units"]["d"]["blocked"] == 60
    assert data["values"]["max_abs_error"] == 1e-6
    assert data["values"]["checked"] is True


def test_as_json_accounts_sum_to_the_cycles() -> None:
    for unit in as_json(REPORT)["units"]:
        assert unit["busy"] + sum(unit[name] for name in STALLS) == 100


def test_as_json_writes_no_infinity() -> None:
    wrong = Check((_output("c", float("inf"), 1e-6, passed=False),), "float64 NumPy")
    data = as_json(dataclasses.replace(REPORT, check=wrong))
    assert data["values"]["max_abs_error"] is None
    assert json.loads(json.dumps(data, allow_nan=False))["values"]["passed"] is False


def test_values_that_rounding_alone_decides_do_not_count_as_checked() -> None:
    loose = dataclasses.replace(_output("c", 0.1, 2.0), decisive=False)
    report = dataclasses.replace(REPORT, check=Check((loose,), "float64 NumPy"))
    assert as_json(report)["values"]["checked"] is False
    assert "not decided" in _printed(report)


def test_every_printed_term_is_defined() -> None:
    unchecked = dataclasses.replace(REPORT, check=None, unchecked_because="--no-values")
    for term in (*terms_of(REPORT), *terms_of(unchecked), *VALIDATION_TERMS):
        assert DEFINITIONS[term].endswith(".")


def test_terms_are_those_that_are_printed() -> None:
    text = _printed(REPORT)
    for term in terms_of(REPORT):
        assert term in text, term


def test_render_prints_names_with_brackets_as_they_are() -> None:
    assert "c[0]" in _printed(REPORT)


def test_render_prints_the_worst_output_beside_its_bound() -> None:
    text = _printed(REPORT)
    assert "within rounding of float64 NumPy" in text
    assert "1e-06 in c" in text


def test_explain_prints_a_sentence_a_term() -> None:
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(explain(["cycles", "bound"]))
    assert DEFINITIONS["bound"][:60] in console.export_text()


def test_quantities_read_in_their_unit() -> None:
    assert [seconds(2.0), seconds(3e-3), seconds(12.5e-6), seconds(4e-9)] == [
        "2 s",
        "3 ms",
        "12.5 us",
        "4 ns",
    ]
    assert [quantity(5), quantity(2048), quantity(3 * 2**30)] == ["5 B", "2 KiB", "3 GiB"]
