"""DeepBench's published layers, and the figures that set ours beside them."""

import math

import pytest

from dataflow.deepbench import Layer, Served, as_json, layers, mean_ratio

LSTM = Layer("lstm", 100, 50, 0.010)


def _served(step_cycles: float, compute: float = 60.0) -> Served:
    busy = {"compute": compute, "off_chip": 20.0}
    return Served(LSTM, step_cycles, busy, 30_000, "off_chip", clock_hz=2e9)


def test_layers_are_those_published_with_a_name_each() -> None:
    found = layers()
    assert [layer.cell for layer in found] == ["lstm"] * 5 + ["gru"] * 5
    assert len({layer.name for layer in found}) == 10
    assert found[0] == Layer("lstm", 256, 150, 0.0419)


def test_published_tflops_rise_with_the_hidden_size() -> None:
    # Read from the list: a row typed wrongly would break the order within its cell.
    for cell in ("lstm", "gru"):
        rates = [layer.tflops(layer.published_ms) for layer in layers() if layer.cell == cell]
        assert rates == sorted(rates)


def test_served_figures_follow_from_the_cycles_of_a_step() -> None:
    row = _served(step_cycles=400.0)
    assert row.ms == pytest.approx(400 * 50 / 2e9 * 1e3)  # 0.010 ms
    assert row.ratio == pytest.approx(1.0)
    assert LSTM.tflops(row.ms) == pytest.approx(16 * 100**2 * 50 / 10e-6 / 1e12)
    assert row.run_ms == pytest.approx(0.015)


def test_served_is_bound_by_latency_where_nothing_works_for_half_of_a_step() -> None:
    assert (_served(100.0).bound_by, _served(100.0).bound_share) == ("compute", 0.6)
    assert (_served(150.0).bound_by, _served(150.0).bound_share) == ("latency", 0.6)


def test_ratios_outside_the_band_are_named() -> None:
    near, far = _served(400.0), _served(40.0)
    assert (near.near, far.near) == (True, False)
    found = as_json([near, far])
    assert found["outside"] == [LSTM.name]
    assert found["mean_ratio"] == pytest.approx(math.sqrt(0.1)) == mean_ratio([near, far])
