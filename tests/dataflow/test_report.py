"""The report's derived figures, its JSON, and a definition for every printed term."""

import dataclasses
import json
from dataclasses import dataclass, field

import numpy as np
import pytest
from rich.console import Console, RenderableType

from dataflow.chain import Chain
from dataflow.check import Check, OutputCheck
from dataflow.explain import DEFINITIONS
from dataflow.render import explain, quantity, render, seconds, terms_of
from dataflow.render_validation import SERVED_TERMS, VALIDATION_TERMS
from dataflow.render_why import terms_of as why_terms
from dataflow.render_why import why
from dataflow.report import STALLS, BankRow, BufferRow, Report, UnitRow
from dataflow.report_json import as_json, links_json


@dataclass(frozen=True)
class Parts:
    cycles: int
    by: str
    parts: dict[str, int] = field(default_factory=dict)


def _unit(name: str, kind: str, cells: int, busy: int, **stalls: int) -> UnitRow:
    return UnitRow(name, kind, cells, busy, busy, {**dict.fromkeys(STALLS, 0), **stalls})


def _output(name: str, error: float, bound: float, passed: bool = True) -> OutputCheck:
    return OutputCheck(name, error, bound, error, bound, 1.0, True, passed)


# 60 cycles in which the two copies of c fire, 39 of two memory channels, and the last cycle.
CHAIN = Chain(
    names=(
        ("interval", "c@i0"),
        ("interval", "c@i1"),
        ("burst", "memory channel 0"),
        ("row", "memory channel 1"),
        ("end", "store c"),
    ),
    since=np.array([0, 20, 30, 60, 90, 99]),
    places=np.array([0, 2, 1, 0, 3, 4], np.int32),
    cycles=100,
)

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
    mapping_seconds=0.25,
    check=Check((_output("c", 1e-6, 2e-6), _output("d", 1e-9, 1e-3)), "float64 NumPy"),
    banks=(BankRow(7, 1, 0, 2, 26, 512), BankRow(3, 1, 1, 2, 13, 320)),
    chain=CHAIN,
)


def _printed(report: Report) -> str:
    return _text(render(report))


def _text(what: RenderableType) -> str:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(what)
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
    assert (data["wall_seconds"], data["mapping_seconds"]) == (0.5, 0.25)
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
    for term in (*terms_of(REPORT), *terms_of(unchecked), *VALIDATION_TERMS, *SERVED_TERMS):
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
    assert DEFINITIONS["bound"][:60] in _text(explain(["cycles", "bound"]))


def test_critical_resource_takes_copies_and_memory_channels_together() -> None:
    name, parts = CHAIN.critical()
    assert (name, [(part.kind, part.cycles, part.links) for part in parts]) == (
        "c",
        [("interval", 80, 3)],
    )
    assert [(p.resource, p.kind, p.cycles) for p in CHAIN.parts()] == [
        ("c", "interval", 80),
        ("off-chip memory", "burst", 10),
        ("off-chip memory", "row", 9),
        ("store c", "end", 1),
    ]
    assert "c, 80.0% of the run (interval 80.0%)" in _printed(REPORT)


def test_as_json_has_the_critical_resource_and_all_parts_of_the_chain() -> None:
    data = as_json(REPORT)["critical"]
    assert (data["traced"], data["resource"], data["cycles"], data["share"]) == (True, "c", 80, 0.8)
    assert sum(part["cycles"] for part in data["parts"]) == 100
    untraced = dataclasses.replace(REPORT, chain=None, untraced_because="no causes")
    assert as_json(untraced)["critical"] == {"traced": False, "because": "no causes"}
    assert "not traced: no causes" in _printed(untraced)


def test_why_lists_the_last_links_backwards() -> None:
    assert links_json(CHAIN, 2) == [
        {"since": 90, "until": 99, "kind": "row", "resource": "memory channel 1", "cycles": 9},
        {"since": 99, "until": 100, "kind": "end", "resource": "store c", "cycles": 1},
    ]
    text = _text(why(CHAIN, 2))
    assert "the last 2 of 6 links" in text
    assert text.index("99 ") < text.index("90 ")
    for term in why_terms(CHAIN, 2):
        assert DEFINITIONS[term].endswith(".")
        assert term in text
    assert "the last 6 of 6 links" in _text(why(CHAIN, 50))


def test_report_counts_rows_refreshes_and_rates_of_memory_channels() -> None:
    # 13 bursts in 100 ns: 512 B and 320 B make 5.12 and 3.2 GB/s
    assert REPORT.banks_bytes_per_s == pytest.approx((5.12e9, 3.2e9))
    text = _printed(REPORT)
    assert "76.9% of 13 bursts" in text
    assert "2 with no row open, 1 with another" in text
    assert "4, of at most 26 cycles a channel (26.0%)" in text
    assert "3.2 to 5.1 GB/s, 2 channels" in text
    row = as_json(REPORT)["banks"][1]
    assert row["bytes_per_s"] == pytest.approx(3.2e9)
    assert (row["row_hits"], row["row_misses"], row["row_conflicts"]) == (3, 1, 1)
    assert "row hits" not in _printed(dataclasses.replace(REPORT, banks=()))


def test_quantities_read_in_their_unit() -> None:
    assert [seconds(2.0), seconds(3e-3), seconds(12.5e-6), seconds(4e-9)] == [
        "2 s",
        "3 ms",
        "12.5 us",
        "4 ns",
    ]
    assert [quantity(5), quantity(2048), quantity(3 * 2**30)] == ["5 B", "2 KiB", "3 GiB"]
