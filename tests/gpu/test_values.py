"""Every kernel of the library against float64, at small odd sizes, within the budget of `check`."""

import pytest

from dataflow.kernels import KERNELS
from dataflow.request import read_settings, request
from gpu.measure.check import check

CASES = [
    ("gemm", "i=33 j=17 k=65"),
    ("gemm", "i=5 j=70 k=3 bias=true activation=gelu-tanh"),
    ("softmax", "rows=5 n=77"),
    ("softmax", "rows=1 n=1"),
    ("layer_norm", "rows=7 n=33"),
    ("rms_norm", "rows=3 n=130"),
    ("attention", "heads=2 n=40 m=24 d=17"),
    ("attention", "heads=1 n=65 d=16 causal=true"),
    ("attention", "heads=4 n=20 d=8 kv_heads=2"),
    ("fft_conv", "batch=3 channels=2 n=64"),
    ("fft_conv", "batch=2 channels=1 n=105"),
    ("fft_conv", "batch=2 channels=2 n=100 causal=true gated=true"),
    ("fft_conv", "batch=1 channels=1 n=216 order=3"),
    ("fft_conv", "batch=3 channels=2 n=64 pair=true"),
    ("fft_conv", "batch=2 channels=2 n=64 pair=true gauss=true"),
    ("fft_conv", "batch=2 channels=1 n=100 causal=true gauss=true"),
    ("lstm", "batch=1 t=3 h=20 e=12"),
    ("lstm", "batch=3 t=2 h=17"),
    ("gru", "batch=2 t=3 h=20"),
    ("sum_square", "n=37"),
    ("generated_dot_product", "n=37"),
    ("accumulate_buffer", "n=7 d=33"),
    ("dot_product", "n=101"),
    ("outer_product", "i=19 j=35"),
    ("filter_sum", "n=97"),
]
HARD = [case for case in CASES if case[0] in ("gemm", "attention", "softmax", "lstm")]
WITHOUT_INPUTS = {"sum_square", "generated_dot_product", "accumulate_buffer"}


def test_cases_cover_every_kernel() -> None:
    assert {kernel for kernel, _ in CASES} == set(KERNELS)


@pytest.mark.parametrize(("kernel", "settings"), CASES, ids=lambda text: text.replace(" ", "-"))
def test_values_in_fp32_are_within_budget(kernel: str, settings: str, where: str) -> None:
    assert_passes(kernel, settings, "fp32", where)


@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16", "fp8"])
@pytest.mark.parametrize(("kernel", "settings"), HARD, ids=lambda text: text.replace(" ", "-"))
def test_values_in_short_types_are_within_budget(
    kernel: str, settings: str, precision: str, where: str
) -> None:
    assert_passes(kernel, settings, precision, where)


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize(
    "settings",
    [
        "batch=3 channels=2 n=64",
        "batch=2 channels=2 n=96 causal=true",
        "batch=2 channels=2 n=64 pair=true gauss=true",
    ],
)
def test_fft_conv_in_short_types_is_within_one_percent(
    settings: str, precision: str, where: str
) -> None:
    assert_passes("fft_conv", settings, precision, where)


def assert_passes(kernel: str, settings: str, precision: str, where: str) -> None:
    made = check(request(kernel, read_settings([settings])), precision, where)
    for verdict in made.verdicts:
        assert verdict.decisive, f"zeros would pass: {verdict}"
        assert verdict.passed, verdict
