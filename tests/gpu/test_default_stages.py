"""Chains of products that are too large for one program, in three kernels."""

import pytest

from dataflow.request import Request, read_settings, request
from gpu.defaults.schedule import default_schedule
from gpu.defaults.stages import Stages, stages_of
from gpu.lowering.lower import lower
from gpu.measure.check import check

LONG = "n=16384 causal=true gated=true order=3 first_radix=8"


def asked(settings: str, kernel: str = "fft_conv") -> Request:
    return request(kernel, read_settings([settings]))


def test_a_long_transform_is_cut_where_its_first_digit_is_done() -> None:
    # 32768 = 8 x 64 x 64: u1 is the first digit's product, t its twiddle; y2 the last but one back,
    # whose own twiddle the third kernel works out
    cuts = Stages("k1", ("u1.t.r", "u1.t.i"), ("y2.r", "y2.i"))
    assert stages_of(asked(LONG).graph) == cuts
    pairs = asked("batch=4 n=16384 pair=true order=3 first_radix=4").graph
    assert stages_of(pairs) == cuts


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        ("fft_conv", "n=4096 pair=true"),
        ("fft_conv", "n=8192 causal=true first_radix=256"),  # 128 x 64 points, two warp groups
        ("fft_conv", "n=216 order=3"),
        ("gemm", "i=4096 j=4096 k=4096"),
        ("attention", "heads=2 n=512 d=64"),
        ("lstm", "batch=1 t=4 h=64"),
    ],
)
def test_what_fits_one_program_is_not_cut(kernel: str, settings: str) -> None:
    assert stages_of(asked(settings, kernel).graph) is None


def test_short_digits_are_summed_term_by_term_and_the_middle_is_a_chain_for_each_frequency() -> (
    None
):
    graph = asked(f"batch=64 channels=768 {LONG}").graph
    first, middle, last = default_schedule(graph).kernels
    # 8 rows of 64 points are 512; 4 frequencies of as many points are written out
    assert first.tile == {"n1": 1, "k1": 1, "n2": 8}
    assert (first.grid, first.unroll) == (("n2", "channels", "batch"), ("n1", "k1"))
    assert last.tile == {"k1": 1, "m1": 1, "m2": 8}
    assert (last.grid, last.unroll) == (("m2", "channels", "batch"), ("k1", "m1"))
    # 64 x 64 points for one frequency are the tile of a warp group
    assert (middle.loop, middle.tile, middle.warps) == (("batch",), {"k1": 1, "n1": 1}, 4)
    assert (middle.stack, middle.stages, middle.descriptors) == (True, 3, True)


def test_long_digits_are_products_and_several_frequencies_share_a_program() -> None:
    graph = asked("batch=64 channels=768 n=16384 causal=true order=3").graph
    # 32768 = 64 x 16 x 32: 32 frequencies; 8 of them have 8 x 16 x 32 = 4096 points
    first, middle, _ = default_schedule(graph).kernels
    assert (first.tile, first.unroll) == ({"n2": 4}, ())  # 32 x (4 x 32): 4096 points
    assert middle.tile == {"k1": 8}


def test_values_between_kernels_are_narrow_where_only_products_read_them_in_the_end() -> None:
    plan = lower(asked(LONG).graph, default_schedule(asked(LONG).graph))
    types = {t.name: t.type for t in plan.tensors.values() if t.kind == "scratch"}
    assert types == {"u1.t.r.made.joint": "bf16", "y2.r.made.joint": "bf16"}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    "settings",
    [
        f"batch=2 channels=1 {LONG}",
        "batch=4 channels=1 n=8192 pair=true order=3 first_radix=2",
        "batch=1 channels=1 n=10000 causal=true order=3",
    ],
)
def test_values_of_long_transforms_are_within_budget(
    settings: str, precision: str, where: str
) -> None:
    made = asked(settings)
    assert len(default_schedule(made.graph, precision, "interpreter").kernels) == 3
    assert check(made, precision, where).passed
