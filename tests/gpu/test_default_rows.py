"""Rows too long to share a core: one program a core that walks over them, loads ahead."""

import pytest

from dataflow.request import read_settings, request
from gpu.defaults.rows import walked_rows
from gpu.defaults.schedule import default_schedule

SHARED = 227 * 1024


def kernel(name: str, settings: str, precision: str = "bf16", card: str = "h200"):
    graph = request(name, read_settings(settings.split()), []).graph
    (made,) = default_schedule(graph, precision, card).kernels
    return made


def test_two_rows_a_core_are_walked_over_with_two_more_under_way() -> None:
    # 32768 x 4 B are 128 KiB: two rows fill the 256 KiB of registers; 8192 rows on 132 cores are 63
    made = kernel("softmax", "rows=8192 n=32768")
    assert (made.loop, made.chunk, made.warps, made.stages) == (("rows",), {"rows": 63}, 32, 3)


@pytest.mark.parametrize(
    ("name", "settings", "precision", "card"),
    [
        ("softmax", "rows=8192 n=16384", "bf16", "h200"),  # four rows fit the registers
        ("softmax", "rows=100 n=32768", "bf16", "h200"),  # less than a row a core
        ("softmax", "rows=8192 n=32768", "fp32", "h200"),  # three rows of 128 KiB: too much memory
        ("softmax", "rows=8192 n=32768", "bf16", "a100"),  # three rows of 64 KiB: 163 KiB there
        ("layer_norm", "rows=8192 n=32768", "bf16", "h200"),  # gain and offset would ring as well
    ],
)
def test_other_rows_have_a_program_each(name, settings, precision, card) -> None:
    assert kernel(name, settings, precision, card).loop == ()


def test_longest_axis_is_walked_and_the_others_share_the_cores() -> None:
    walked = walked_rows([("heads", 4), ("rows", 1000)], 32768, 1, 132, SHARED)
    assert walked["chunk"] == {"rows": 31}  # 132 / 4 = 33 programs
    assert walked_rows([("rows", 1000)], 32768, 2, 132, SHARED) == {}
    assert walked_rows([], 32768, 1, 132, SHARED) == {}
