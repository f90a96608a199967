"""`tileloom gpu` on the command line."""

import json

import pytest
import torch
from typer.testing import CliRunner

from dataflow.cli import app

ON_GPU = torch.cuda.is_available()


def run(*arguments: str):
    """The result of `tileloom gpu ARGUMENTS`."""
    return CliRunner().invoke(app, ["gpu", *arguments])


def test_check_prints_where_it_ran_and_what_it_found(where: str) -> None:
    done = run("check", "softmax", "--set", "rows=3 n=17", "--on", where, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["where"] == where and found["device"] and found["passed"]
    assert found["outputs"][0]["rule"] == "2 x eager"


def test_check_sets_the_simulator_beside_the_gpu(where: str) -> None:
    arguments = ["--set", "i=16 j=16 k=16", "--precision", "fp32", "--on", where]
    done = run("check", "gemm", *arguments, "--hw", "plasticine", "--json")
    assert done.exit_code == 0, done.output
    beside = json.loads(done.stdout)["simulator"]
    assert beside["cycles"] > 0
    assert beside["largest_difference"]["c"] < 1e-4


def test_check_of_wrong_values_exits_with_one(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.measure.check.EAGER_FACTOR", -100.0)
    done = run("check", "softmax", "--set", "rows=3 n=17", "--on", where)
    assert done.exit_code == 1
    assert "BEYOND" in done.stdout


def test_source_is_a_module_of_kernels() -> None:
    done = run("source", "gemm", "--set", "i=64 j=64 k=64")
    assert done.exit_code == 0, done.output
    assert "@triton.jit\ndef gemm(" in done.stdout
    compile(done.stdout, "gemm.py", "exec")


def test_schedule_that_is_printed_is_read_back(tmp_path) -> None:
    arguments = ["source", "gemm", "--set", "i=64 j=64 k=64"]
    path = tmp_path / "schedule.yaml"
    path.write_text(run(*arguments, "--show-schedule").stdout)
    again = run(*arguments, "--schedule", str(path))
    assert again.exit_code == 0, again.output
    assert again.stdout == run(*arguments).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "gemm", "--on", "tpu"], "where: must be one of gpu, interpreter, got 'tpu'"),
        (["check", "gemm", "--precision", "fp12"], "--precision: must be one of fp32, tf32"),
        (["source", "gem"], "gemm"),
        (["source", "gemm", "--set", "i=0"], "i"),
        (["bench", "missing.csv"], "missing.csv"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_bad_input_exits_with_two_and_says_why(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(ON_GPU, reason="there is a GPU")
@pytest.mark.parametrize("command", ["bench", "tune"])
def test_commands_that_need_a_gpu_say_so(command: str) -> None:
    done = run(command, "gemm")
    assert done.exit_code == 2
    assert "TRITON_INTERPRET: must not be set to run on the GPU" in done.stderr
