"""Gluon's default schedule: rows that fill warp groups, at any size."""

import pytest

from dataflow.request import read_settings, request
from gpu.emit_gluon.schedule import gluon_schedule
from gpu.module import GpuError


@pytest.mark.parametrize(
    ("kernel", "settings", "tile", "warps"),
    [
        # 3 heads of 333 rows: Triton's default takes 32 rows to have more programs
        ("attention", "heads=3 n=333 d=64 block=64", {"n": 128}, 8),
        ("attention", "heads=16 batch=4 n=4096 d=128 block=128", {"n": 128}, 8),
        ("gemm", "i=200 j=136 k=104", {"i": 64, "j": 64}, 4),
        ("gemm", "i=4096 j=4096 k=4096", {"i": 128, "j": 256, "k": 64}, 8),
    ],
)
def test_rows_fill_warp_groups(kernel: str, settings: str, tile: dict, warps: int) -> None:
    schedule = gluon_schedule(request(kernel, read_settings([settings])).graph)
    last = schedule.kernels[-1]
    assert (last.tile, last.warps, schedule.emitter) == (tile, warps, "gluon")


def test_refusal_names_what_is_in_the_way() -> None:
    with pytest.raises(GpuError, match="must be of bf16 or fp16, got fp32"):
        gluon_schedule(request("gemm", read_settings(["i=256 j=256 k=256"])).graph, "fp32")
