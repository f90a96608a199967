"""Monarch keeps the values of long convolutions of any length, and does only half the work."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.graph import Builder, Graph
from dataflow.kernels import build
from dataflow.ops import total_flops
from dataflow.reference import draw_inputs, evaluate
from dataflow.rewrites import RewriteError, monarch


def assert_same_values(plain: Graph, rewritten: Graph) -> None:
    inputs = draw_inputs(plain, 3)
    before, after = evaluate(plain, inputs), evaluate(rewritten, inputs)
    assert before.keys() == after.keys()
    for name in before:
        scale = np.max(np.abs(before[name]), initial=1.0)
        np.testing.assert_allclose(after[name], before[name], rtol=0, atol=1e-13 * scale)


def fft_conv(n: int, causal: bool, gated: bool = False, batch: int = 2) -> Graph:
    sizes = {"batch": batch, "channels": 2, "n": n}
    return build("fft_conv", sizes, {"causal": causal, "gated": gated}, rewrites=())


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 150),
    batch=st.integers(1, 3),
    causal=st.booleans(),
    gated=st.booleans(),
    order=st.sampled_from([2, 3]),
    pair=st.booleans(),
    gauss=st.booleans(),
)
def test_monarch_keeps_convolutions_of_any_length(n, batch, causal, gated, order, pair, gauss):
    plain = fft_conv(n, causal, gated, batch)
    assert_same_values(plain, monarch(plain, order, pair=pair, gauss=gauss))


@settings(max_examples=40, deadline=None)
@given(
    signal=st.integers(1, 20),
    taps=st.integers(1, 20),
    result=st.integers(1, 30),
    offsets=st.sets(st.integers(-3, 25), min_size=1, max_size=3),
)
def test_monarch_keeps_convolutions_at_any_offsets(signal, taps, result, offsets):
    g = Builder("conv", c=2, m=signal, j=taps, n=result)
    u, k = g.input("u", "c m"), g.input("k", "j")
    reads = [g.read(k, "n m", [f"n - m + {c}" if c >= 0 else f"n - m - {-c}"]) for c in offsets]
    rows = reads[0]
    for read in reads[1:]:
        rows = g.map("add", rows, read)
    g.output("y", g.einsum("c m, n m -> c n", u, rows, name="y"))
    plain = g.build()
    if all(signal - 1 + taps - 1 < c or c + result - 1 < 0 for c in offsets):
        return  # the result is 0 everywhere
    assert_same_values(plain, monarch(plain))


@pytest.mark.parametrize("radices", [(4, 3), (3, 4), (2, 2, 3), (6, 2), (2, 6)])
def test_monarch_transforms_circular_convolutions_at_their_own_length(radices):
    plain = fft_conv(12, causal=False)
    graph = monarch(plain, radices=radices)
    assert_same_values(plain, graph)
    assert graph.extent("k1") == radices[0] // 2 + 1
    assert graph.extent("n1") == radices[0]


@pytest.mark.parametrize("radices", [(6, 4), (10, 3), (4, 3, 2)])
def test_monarch_takes_given_radices_of_padded_convolutions(radices):
    plain = fft_conv(12, causal=True)  # padded to at least 23
    graph = monarch(plain, radices=radices)
    assert_same_values(plain, graph)
    assert graph.extent("k1") == radices[0] // 2
    assert graph.extent("n1") == math.ceil(12 / math.prod(radices[1:]))


def test_monarch_shifts_the_signal_where_the_filter_is_the_summed_factor():
    g = Builder("conv", b=2, c=2, j=7, n=7)
    u, k = g.input("u", "b c n"), g.input("k", "c j")
    rows = g.read(u, "b c n j", ["b", "c", "n - j"])
    g.output("y", g.einsum("b c n j, c j -> b c n", rows, k))
    plain = g.build()
    graph = monarch(plain)
    assert_same_values(plain, graph)
    assert "b" not in graph.node("k2.r").axes


def test_monarch_reads_inputs_only_and_halves_causal_work():
    graph = monarch(fft_conv(1024, causal=True, gated=True))
    reads = [node for node in graph.nodes if node.op == "read"]
    assert sorted(node.args[0] for node in reads) == ["g", "k", "u", "w"]
    assert not any(node.op == "mask" for node in graph.nodes)
    # padded to 2048 = 64 x 32: half of the 64 frequencies, half of the 64 signal rows
    extents = {axis: graph.extent(axis) for axis in ("n1", "k1", "m1", "n2", "k2", "m2")}
    assert extents == dict.fromkeys(extents, 32)


def test_monarch_needs_far_fewer_flops_than_the_direct_sum():
    plain = fft_conv(1024, causal=False)
    assert total_flops(monarch(plain)) < 0.3 * total_flops(plain)


def test_monarch_masks_what_padding_leaves_in_the_signal():
    g = Builder("conv", m=5, n=5)
    u, k = g.map("exp", g.input("u", "m"), name="grown"), g.input("k", "m")
    g.output("y", g.einsum("m, n m -> n", u, g.read(k, "n m", ["n - m"])))
    plain = g.build()
    graph = monarch(plain)
    assert_same_values(plain, graph)
    assert "grown.pad" in graph.by_name


def test_monarch_refuses_readers_that_sum_over_the_result():
    g = Builder("conv", m=5, n=5)
    u, k = g.input("u", "m"), g.input("k", "m")
    y = g.einsum("m, n m -> n", u, g.read(k, "n m", ["n - m"]), name="y")
    g.output("total", g.reduce("sum", y, over="n", name="total"))
    with pytest.raises(RewriteError, match="node total: readers of the convolution y must be"):
        monarch(g.build())


def test_monarch_refuses_graphs_without_a_convolution():
    with pytest.raises(RewriteError, match="graph gemm: a sum over m of"):
        monarch(build("gemm", {"i": 2, "j": 2, "k": 2}, rewrites=()))


@pytest.mark.parametrize("radices", [(3, 3), (5, 5), (4,), (1, 40)])
def test_monarch_refuses_radices_that_do_not_fit(radices):
    with pytest.raises(RewriteError, match="node y: radices must"):
        monarch(fft_conv(12, causal=True), radices=radices)


def test_monarch_refuses_lengths_past_its_radices():
    with pytest.raises(RewriteError, match=r"node y: padded length must be at most 4\^2, got 23"):
        monarch(fft_conv(12, causal=True), max_radix=4)


@pytest.mark.parametrize("radices", [(4, 3), (3, 4), (2, 2, 3)])
@pytest.mark.parametrize("batch", [1, 2, 5])
def test_monarch_pairs_transform_two_signals_as_one(radices, batch):
    plain = fft_conv(12, causal=False, gated=True, batch=batch)
    graph = monarch(plain, radices=radices, pair=True)
    assert_same_values(plain, graph)
    assert graph.extent("k1") == radices[0]  # all frequencies, of half as many signals
    assert graph.extent("batch.pair") == -(-batch // 2)
    assert graph.extent("batch.side") == 2


def test_monarch_pairs_leave_padded_convolutions_at_half_of_their_frequencies():
    plain = fft_conv(12, causal=True)
    assert monarch(plain, pair=True) == monarch(plain)


def test_monarch_pairs_need_an_axis_that_the_filter_lacks():
    g = Builder("conv", m=4, n=4)
    u, k = g.input("u", "m"), g.input("k", "m")
    rows = g.map("add", g.read(k, "n m", ["n - m"]), g.read(k, "n m", ["n - m + 4"]))
    g.output("y", g.einsum("m, n m -> n", u, rows, name="y"))
    with pytest.raises(RewriteError, match="node y: pairs must be along an axis that the filter"):
        monarch(g.build(), radices=(2, 2), pair=True)


def test_monarch_gauss_takes_three_products_for_four():
    plain = fft_conv(16, causal=False)
    count = {}
    for pair in (False, True):
        for gauss in (False, True):
            graph = monarch(plain, radices=(4, 4), pair=pair, gauss=gauss)
            assert_same_values(plain, graph)
            count[pair, gauss] = sum(node.op == "einsum" for node in graph.nodes)
    # filter: 2 real-by-complex, 1 complex; signal: the same and back again
    assert count[False, False] == (2 + 4) + (2 + 4) + (4 + 2)
    assert count[False, True] == (2 + 3) + (2 + 3) + (3 + 2)
    # of pairs all four products of the signal are complex
    assert count[True, False] == (2 + 4) + 4 * 4
    assert count[True, True] == (2 + 3) + 4 * 3


def test_monarch_takes_the_first_radix_asked_for():
    plain = fft_conv(24, causal=True)  # padded to at least 47
    graph = monarch(plain, first_radix=16)
    assert_same_values(plain, graph)
    assert graph.extent("k1") == 8
    with pytest.raises(RewriteError, match="node y: first radix must begin a product of 2 radices"):
        monarch(plain, first_radix=15)


def test_monarch_takes_a_first_radix_below_16_beside_two_even_ones():
    plain = fft_conv(
        200, causal=True
    )  # padded to at least 399, of which 4 x 10 x 10 = 400 is least
    graph = monarch(plain, order=3, first_radix=4)
    assert_same_values(plain, graph)
    extents = [graph.extent(axis) for axis in ("k1", "k2", "k3")]
    assert extents[0] == 2
    assert 4 * extents[1] * extents[2] >= 399
