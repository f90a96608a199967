"""Files of cases and of results; times themselves are taken on a GPU only."""

import math
from pathlib import Path

import pytest
import torch

from gpu.measure.bench import (
    BenchError,
    Ceilings,
    Row,
    bench,
    best_ratios,
    ceilings,
    read_cases,
    write_rows,
)
from gpu.measure.peers import flops

CASES = Path(__file__).parents[2] / "benchmarks" / "gpu_cases.csv"
ON_GPU = torch.cuda.is_available()


def test_cases_of_the_project_can_be_made() -> None:
    cases = read_cases(CASES)
    assert len({case.case for case in cases}) == len(cases)
    families = {}
    for case in cases:
        families.setdefault(case.kernel, case)
    assert set(families) == {
        "gemm",
        "attention",
        "fft_conv",
        "lstm",
        "gru",
        "softmax",
        "layer_norm",
    }
    for case in families.values():
        assert case.request().graph.outputs


def test_file_without_columns_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("case,kernel\na,gemm\n")
    with pytest.raises(BenchError, match=r"cases.csv:1: columns must include .*, got none called"):
        read_cases(path)


def test_missing_fields_and_unknown_precisions_are_refused_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("case,kernel,settings,precision\na,,n=1,bf16\nb,softmax,n=1,bf17\n")
    with pytest.raises(BenchError) as raised:
        read_cases(path)
    assert [fault.split(": ", 1)[1] for fault in raised.value.faults] == [
        "kernel must be given, got nothing",
        "precision must be one of fp32, tf32, fp16, bf16, fp8, got 'bf17'",
    ]
    assert [fault.split(": ", 1)[0].rsplit(":", 1)[1] for fault in raised.value.faults] == [
        "2",
        "3",
    ]


def test_best_ratio_is_that_of_the_fastest_peer() -> None:
    rows = [
        Row("a", "tileloom", "bf16", "triton", 2.0, gpu_ratio=1.0),
        Row("a", "slow", "bf16", "", 8.0, gpu_ratio=4.0),
        Row("a", "fast", "bf16", "", 1.0, gpu_ratio=0.5),
        Row("a", "refused", "bf16", remark="no"),
        Row("b", "tileloom", "bf16", remark="OutOfResources"),
    ]
    assert best_ratios(rows) == {"a": rows[2]}


def test_results_say_card_versions_and_ceilings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu.measure.bench.device_name", lambda where: "some card")
    path = tmp_path / "rows.csv"
    row = Row("a", "tileloom", "bf16", "gluon", 2.0, 1.9, 2.1, tflops=math.nan, gb_per_s=1234.56)
    write_rows(path, [row], Ceilings(4.2e12, 7e14))
    about, limits, names, line = path.read_text().splitlines()
    assert "device some card" in about and f"torch {torch.__version__}" in about
    assert limits.endswith("copy 4.20 TB/s, bf16 products 700 TFLOP/s")
    found = dict(zip(names.split(","), line.split(","), strict=True))
    assert found["emitter"] == "gluon"
    assert (found["milliseconds"], found["tflops"], found["gb_per_s"]) == ("2", "", "1234.6")


def test_operations_are_counted_by_custom() -> None:
    counts = {
        case.case: flops(case.request()) for case in read_cases(CASES) if "d64-n512" in case.case
    }
    # 4 B H N^2 d = 4 * 32 * 32 * 512^2 * 64, and half of it where causal
    assert counts["attention/full-d64-n512-b32-h32"] == 4 * 32 * 32 * 512**2 * 64
    assert counts["attention/causal-d64-n512-b32-h32"] == 2 * 32 * 32 * 512**2 * 64


@pytest.mark.gpu
@pytest.mark.bench
@pytest.mark.skipif(not ON_GPU, reason="times need a CUDA device")
def test_bench_gives_ours_and_every_peer(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_text("case,kernel,settings,precision\nsmall,gemm,i=512 j=512 k=512,bf16\n")
    rows = list(bench(read_cases(path), ceilings()))
    assert [row.call for row in rows] == ["tileloom", "cublas"]
    assert all(row.milliseconds > 0 and not row.remark for row in rows)
    assert rows[0].error < rows[0].budget
