"""What the compiler says of kernels at real sizes, for cards that need not be there."""

import json
import subprocess
import sys

import pytest

from gpu.compile import SHARED_LIMIT_BYTES, Resources, faults

PRODUCTS = {90: {"wgmma"}, 80: {"mma"}}

REAL = [
    ("gemm", "i=4096 j=4096 k=4096", "bf16"),
    ("gemm", "i=4095 j=1001 k=4097 bias=true activation=gelu-tanh", "fp16"),
    ("attention", "batch=1 heads=16 n=16384 d=128", "bf16"),
    ("attention", "batch=4 heads=32 n=4096 d=64 causal=true", "bf16"),
    ("attention", "batch=4 heads=16 n=4000 d=128 causal=true kv_heads=4", "fp16"),
    ("fft_conv", "batch=64 channels=768 n=1024 causal=true gated=true first_radix=128", "bf16"),
    ("fft_conv", "batch=64 channels=768 n=2048 causal=true gated=true first_radix=128", "fp16"),
    ("fft_conv", "batch=64 channels=768 n=4096 causal=true gated=true", "bf16"),
]
SPILLING = {(4, 80), (7, 80)}
"""Places in REAL, and the cards for which the default schedule is not yet right."""
ROWS = [
    ("softmax", "rows=32768 n=4096", "bf16"),
    ("softmax", "rows=8192 n=32768", "fp32"),
    ("softmax", "rows=8192 n=32768", "bf16"),
    ("layer_norm", "rows=32768 n=4096", "bf16"),
    ("layer_norm", "rows=8192 n=32768", "bf16"),
    ("rms_norm", "rows=1000 n=5000", "bf16"),
    ("dot_product", "n=1000001", "fp32"),
    ("outer_product", "i=4096 j=4095", "fp32"),
    ("filter_sum", "n=1000001", "fp32"),
    ("sum_square", "n=100000", "fp32"),
    ("generated_dot_product", "n=100000", "fp32"),
    ("accumulate_buffer", "n=100 d=100000", "fp32"),
]
CELLS = [
    ("lstm", "batch=1 t=25 h=1024", "fp16"),
    ("gru", "batch=1 t=1500 h=1024", "fp16"),
    ("gru", "batch=16 t=375 h=2048", "fp16"),
    ("gru", "batch=64 t=25 h=1024", "bf16"),
    ("lstm", "batch=16 t=150 h=256", "fp16"),
    ("lstm", "batch=16 t=50 h=1536", "fp16"),
    ("lstm", "batch=16 t=25 h=2048", "fp16"),
]


SPILLS_ON_80 = pytest.mark.xfail(reason="the default, made for sm_90, spills registers on sm_80")
BOTH = [
    pytest.param(*case, capability, marks=[SPILLS_ON_80] if (place, capability) in SPILLING else [])
    for capability in (90, 80)
    for place, case in enumerate(REAL)
]


@pytest.mark.parametrize(("kernel", "settings", "precision", "capability"), BOTH, ids=str)
def test_products_use_the_matrix_units_and_do_not_spill(
    kernel: str,
    settings: str,
    precision: str,
    capability: int,
    compiler_environment: dict[str, str],
) -> None:
    for found in compiled(kernel, settings, precision, capability, compiler_environment):
        assert PRODUCTS[capability] <= set(found["matrix"])
        assert found["faults"] == []


@pytest.mark.parametrize(("kernel", "settings", "precision"), ROWS, ids=lambda x: x)
def test_rows_do_not_spill(
    kernel: str, settings: str, precision: str, compiler_environment: dict[str, str]
) -> None:
    for found in compiled(kernel, settings, precision, 90, compiler_environment):
        assert found["faults"] == []


@pytest.mark.parametrize(("kernel", "settings", "precision"), CELLS, ids=lambda x: x)
def test_cells_project_their_inputs_on_the_matrix_units_and_do_not_spill(
    kernel: str, settings: str, precision: str, compiler_environment: dict[str, str]
) -> None:
    projection, *_ = made = compiled(kernel, settings, precision, 90, compiler_environment)
    assert projection["matrix"]
    assert [fault for found in made for fault in found["faults"]] == []


def test_faults_name_spills_and_shared_memory() -> None:
    found = Resources("k", 255, 64, SHARED_LIMIT_BYTES[90] + 1, 8, (), "")
    assert faults(found, 90) == [
        "k: registers must suffice, got 64 spilled bytes",
        "k: shared memory must be at most 232448 bytes, got 232449",
    ]
    assert faults(Resources("k", 255, 0, SHARED_LIMIT_BYTES[80], 8, (), ""), 80) == []


def compiled(
    kernel: str, settings: str, precision: str, capability: int, environment: dict[str, str]
) -> list[dict]:
    """What `tileloom gpu compile` says, in a process in which Triton compiles."""
    command = [sys.executable, "-c", "from dataflow.cli import main; main()", "gpu", "compile"]
    command += [kernel, "--set", settings, "--precision", precision]
    command += ["--capability", str(capability), "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)
