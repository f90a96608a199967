"""Which emitter prints a graph where nobody says."""

import pytest

from dataflow.request import read_settings, request
from gpu.defaults.emitter import auto_schedule
from gpu.defaults.schedule import default_schedule
from gpu.emit_gluon.schedule import gluon_schedule
from gpu.module import GpuError


def graph(kernel: str, settings: str):
    return request(kernel, read_settings(settings.split()), []).graph


LOOPS = [("gemm", "i=4096 j=4096 k=4096"), ("attention", "n=4096 m=4096 d=128 causal=true")]


@pytest.mark.parametrize(("kernel", "settings"), LOOPS)
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_loops_of_products_over_loaded_tiles_are_gluons(kernel, settings, precision) -> None:
    made = graph(kernel, settings)
    assert auto_schedule(made, precision) == gluon_schedule(made, precision)


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        ("softmax", "rows=8192 n=32768"),  # no products
        ("fft_conv", "batch=64 channels=768 n=4096"),  # products by tables, stacked
        ("lstm", "t=25 h=1024 e=1024"),  # waits at a barrier
        ("gemm", "i=40 j=40 k=40"),  # no loop
    ],
)
def test_all_else_is_tritons(kernel, settings) -> None:
    made = graph(kernel, settings)
    assert auto_schedule(made) == default_schedule(made)


@pytest.mark.parametrize(
    ("precision", "card"), [("fp32", "h200"), ("tf32", "h200"), ("bf16", "a100")]
)
def test_other_types_and_cards_are_tritons(precision, card) -> None:
    made = graph(*LOOPS[0])
    assert auto_schedule(made, precision, card).emitter == "triton"


def test_what_gluon_cannot_print_is_tritons() -> None:
    made = graph("attention", "n=4096 m=4096 d=512")  # rings and state of that width do not fit
    with pytest.raises(GpuError):
        gluon_schedule(made)
    assert auto_schedule(made) == default_schedule(made)
