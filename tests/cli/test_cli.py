"""What every command shares: settings, JSON, messages and exit codes."""

import subprocess
import sys
import time

import pytest

import hwspecs
from dataflow.kernels import KERNELS
from dataflow.options import _spread


def test_machines_lists_every_machine(tileloom) -> None:
    outcome = tileloom("machines")
    assert outcome.code == 0
    assert all(name in outcome.out for name in hwspecs.names())


def test_machines_as_json_carry_their_hash_and_peaks(tileloom) -> None:
    rows = {row["machine"]: row for row in tileloom("machines", "--json").json["machines"]}
    machine = hwspecs.load("plasticine")
    assert rows["plasticine"]["machine_hash"] == machine.content_hash
    # 64 compute units x 16 lanes x 6 stages at 1 GHz
    assert rows["plasticine"]["peak_ops_per_s"] == 64 * 16 * 6 * 1e9


def test_kernels_lists_every_kernel_with_its_sizes(tileloom) -> None:
    rows = {row["kernel"]: row for row in tileloom("kernels", "--json").json["kernels"]}
    assert set(rows) == set(KERNELS)
    assert rows["attention"]["sizes"]["d"] == 64
    assert all(name in tileloom("kernels").out for name in KERNELS)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("gemm --set i=1 j=2 --json", "gemm --set i=1 --set j=2 --json"),
        ("--set i=1 j=2 gemm", "--set i=1 --set j=2 gemm"),
        ("--set i=1 --set j=2 k=3", "--set i=1 --set j=2 --set k=3"),
        ("gemm --set i=1 --hw a=b.yaml", "gemm --set i=1 --hw a=b.yaml"),
        ("gemm --set", "gemm --set"),
    ],
)
def test_set_takes_several_settings(given: str, meant: str) -> None:
    assert list(_spread(given.split())) == meant.split()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("simulate attenton", "did you mean attention?"),
        ("simulate gemm --hw plasticin", "did you mean plasticine?"),
        ("simulate gemm --set ii=4", "kernel gemm: size or option must be known, got 'ii'"),
        ("simulate gemm --set i=0", "i must be a whole number >= 1, got '0'"),
        ("simulate gemm --set i", "--set: a setting must be name=value, got 'i'"),
        ("simulate gemm --rewrite monarchs", "did you mean monarch?"),
        (
            "simulate gemm --engine fast --max-cycles 9",
            "--engine: fast gives no values of a run cut",
        ),
        ("simulate gemm --engine fats", "auto, simpy, fast, got 'fats'; did you mean fast?"),
        ("simulate gemm --schedule nowhere.yaml", "nowhere.yaml"),
        ("simulate gemm --inputs nowhere.npz", "nowhere.npz"),
        ("simulate gemm --no-values --outputs out.npz", "--no-values"),
        ("simulate gemm --plot picture.xyz", "--plot: file must end in .png"),
        ("simulate nowhere.py:f", "nowhere.py"),
        ("validate nowhere.csv", "nowhere.csv"),
        ("validate --case GEMM_O", "did you mean GEMM"),
        ("validate deepbnch", "did you mean deepbench?"),
        ("validate deepbench --case lstm_256", "did you mean lstm_256_150?"),
        ("simulate", "kernel"),
        ("simulate gemm --seed x", "--seed"),
        ("simulte gemm", "simulte"),
    ],
)
def test_bad_input_is_said_on_standard_error_with_exit_code_2(tileloom, command, said) -> None:
    outcome = tileloom(*command.split())
    assert outcome.code == 2
    assert said.lower() in outcome.err.lower()
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


def test_all_faults_of_the_settings_are_said_at_once(tileloom) -> None:
    outcome = tileloom("simulate", "gemm", "--set", "i=0", "kk=2", "bias=maybe")
    assert len(outcome.err.splitlines()) == 3


def test_faults_of_a_machine_file_have_line_and_column(tileloom, tmp_path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(hwspecs.load.__globals__["_FOLDER"].joinpath("tiny.yaml").read_text()
                    .replace("clock:", "clok:"))  # fmt: skip
    outcome = tileloom("simulate", "gemm", "--hw", path)
    assert outcome.code == 2
    assert "did you mean clock?" in outcome.err
    assert all(line.startswith(f"{path}:") for line in outcome.err.splitlines())


def test_version_names_the_model_version(tileloom) -> None:
    assert "model version 2" in tileloom("--version").out


def test_help_is_quick() -> None:
    started = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "dataflow.cli", "--help"], check=True, capture_output=True
    )
    assert time.monotonic() - started < 3  # 0.3 s alone; a busy computer takes longer
