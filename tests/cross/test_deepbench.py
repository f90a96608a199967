"""DeepBench's recurrent layers on Plasticine for recurrent networks: what served layers reach."""

import pytest

import hwspecs
from dataflow.cli.deepbench import serve
from dataflow.deepbench import Layer, Served

HIDDEN = (256, 512, 1024, 1536, 2048)
PEAK_TFLOPS = 192 * 64 * 2 * 1e9 / 1e12
"""192 units of 16 lanes, four multiplies and their sum in each, at 1 GHz."""


def _served(cell: str, hidden: int) -> Served:
    layer = Layer(cell, hidden, steps=25, published_ms=1.0)
    return serve(layer, hwspecs.load("plasticine_rnn"), "fast")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("cell", "most"), [("lstm", 1536), ("gru", 2048)])
def test_effective_rate_rises_with_the_hidden_size_and_saturates(cell: str, most: int) -> None:
    # `most`: the largest size whose weights, 8 H^2 or 6 H^2 bytes, fit in 31.5 MiB.
    rows = [_served(cell, hidden) for hidden in HIDDEN if hidden <= most]
    rates = [row.layer.tflops(row.ms) for row in rows]
    assert all(rate < PEAK_TFLOPS for rate in rates)
    # Up to H = 1024 each size doubles the work of a step and its rate rises.
    assert rates[0] < rates[1] < rates[2]
    # From there on the products take most of a step, and the rate no longer rises as H does.
    assert all(row.bound_by == "compute" for row in rows[2:])
    assert all(0.85 * rates[2] < rate < 1.25 * rates[2] for rate in rates[3:])
    # What is left of a step beside its products does not grow as they do.
    shares = [row.busiest_share for row in rows]
    assert shares == sorted(shares)
    assert rows[0].busiest_share < 0.5 < 0.8 < rows[-1].busiest_share
