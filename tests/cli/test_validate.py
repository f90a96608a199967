"""`tileloom validate`: both published sets, as tables and as JSON, and what the user stops."""

from pathlib import Path

import pytest

from dataflow.cli import validate
from dataflow.validate import Measured


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def test_validate_prints_units_beside_the_published_ones(tileloom) -> None:
    outcome = tileloom("validate", "--case", "SumSquare_0", "--case", "GEMM_7", "--json")
    assert outcome.code == 0
    gemm, squares = outcome.json["cases"]
    # n * n and its sum take the unit's stages twice over; nothing waits in a scratchpad.
    assert (squares["pcus"], squares["reference_pcus"]) == (2, 2)
    assert (squares["pmus"], squares["reference_pmus"]) == (0, 0)
    assert (gemm["reference_pcus"], gemm["reference_pmus"]) == (18, 5)
    printed = tileloom("validate", "tungsten", "--case", "SumSquare_0").out
    assert "PCUs apart" in printed
    assert "+0 to +0, none in 1 of 1 cases" in printed


def test_validate_deepbench_sets_a_layer_beside_the_published_one(tileloom) -> None:
    outcome = tileloom("validate", "deepbench", "--case", "gru_512_1", "--json")
    assert outcome.code == 0
    (row,) = outcome.json["cases"]
    # One step of the list: 12 H^2 operations in 0.4 us.
    assert row["reference_tflops"] == pytest.approx(12 * 512**2 / 0.4e-6 / 1e12)
    # 6 H^2 weights of a byte over 192 units x 64 packed multiplies, were nothing else to do.
    assert row["cycles_per_step"] >= 6 * 512**2 / (192 * 64)
    # The whole run cannot end before its weights have come at 76.8 bytes a cycle.
    assert row["run_cycles"] >= 6 * 512**2 / 76.8
    assert row["run_bound_by"] == "off_chip"
    assert row["ms"] == pytest.approx(row["cycles_per_step"] * 1e-6)


def test_validate_deepbench_prints_a_table(tileloom, monkeypatch) -> None:
    from dataflow.deepbench import Served

    made = iter([20.0, 400.0])
    monkeypatch.setattr(
        validate,
        "serve",
        lambda layer, *_: Served(layer, next(made), {"compute": 15.0}, 9, "x", 1e9),
    )
    outcome = tileloom(
        "validate", "deepbench", *["--case", "gru_512_1"], *["--case", "lstm_512_25"]
    )
    assert outcome.code == 0
    # 20 cycles a step, 25 of them at 1 GHz: 0.0005 ms of 0.0139.
    assert "lstm_512_25" in outcome.out
    assert "0.0005" in outcome.out
    assert "compute 75%" in outcome.out
    assert "latency 96%" in outcome.out
    assert "outside" in outcome.out


HEADER = "case,kernel,sizes,tile,unroll,vector,reference_cycles\n"
GOOD = "A,sum_square,n=64,-,-,n=16,99\n"


def _list(folder: Path, rows: str) -> Path:
    path = folder / "cases.csv"
    path.write_text(HEADER + rows)
    return path


def test_validate_names_every_row_without_a_schedule_before_it_runs_one(
    tileloom, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(validate, "_measured", _interrupt)
    rows = "B,softmax,-,-,-,-,9\nC,gemm,i=8 q=8,-,-,-,9\nD,gemm,i=8,-,l.o=2,-,9\n"
    path = _list(tmp_path, GOOD + rows)
    outcome = tileloom("validate", str(path))
    assert (outcome.code, outcome.out) == (2, "")
    third, fourth, fifth = outcome.err.splitlines()
    assert third.startswith(f"{path}:3: kernel must be one with a schedule")
    assert fourth.startswith(f"{path}:4: sizes: kernel gemm: size must be of a known axis")
    assert fifth.startswith(f"{path}:5: unroll must name a loop of gemm, got 'l.o'")


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ("B,sum_square,n=64,-,-,n=64,9", "vector.n must be at most 16, the lanes of"),
        ("B,sum_square,n=8192,n=16,n.o=300,n=16,9", "compute units must be at most 200, got"),
    ],
)
def test_validate_says_which_row_does_not_fit_the_machine(tileloom, tmp_path, row, fault) -> None:
    path = _list(tmp_path, f"{GOOD}{row}\n")
    outcome = tileloom("validate", str(path))
    assert outcome.code == 2
    assert all(line.startswith(f"{path}:3: case B: ") for line in outcome.err.splitlines())
    assert fault in outcome.err


def test_validate_interrupted_prints_the_cases_that_finished(tileloom, monkeypatch) -> None:
    done = iter([Measured(1000, 2, 3)])
    monkeypatch.setattr(validate, "_measured", lambda *_: next(done, None) or _interrupt())
    outcome = tileloom("validate", "--json")
    assert outcome.code == 130
    assert [row["cycles"] for row in outcome.json["cases"]] == [1000]
    assert "interrupted; the cases that had run" in outcome.err


@pytest.mark.parametrize(("cases", "one"), [("tungsten", "_measured"), ("deepbench", "serve")])
def test_validate_interrupted_before_any_case_exits_130(tileloom, monkeypatch, cases, one) -> None:
    monkeypatch.setattr(validate, one, _interrupt)
    outcome = tileloom("validate", cases)
    assert (outcome.code, outcome.out) == (130, "")
