"""Online softmax and pull keep the values; the loop they leave is tight."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.graph import Builder, Graph
from dataflow.kernels import build
from dataflow.reference import draw_inputs, evaluate
from dataflow.rewrites import RewriteError, apply, online_softmax, pull

SIZE = st.integers(1, 9)


def assert_same_values(plain: Graph, rewritten: Graph, inputs=None) -> None:
    inputs = draw_inputs(plain, 1) if inputs is None else inputs
    before, after = evaluate(plain, inputs), evaluate(rewritten, inputs)
    assert before.keys() == after.keys()
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(n=SIZE, more=st.integers(0, 8), d=SIZE, block=st.integers(1, 12), causal=st.booleans())
def test_online_softmax_keeps_attention(n, more, d, block, causal):
    sizes = {"batch": 2, "heads": 1, "n": n, "m": n + more, "d": d}
    plain = build("attention", sizes, {"causal": causal}, rewrites=())
    assert_same_values(plain, online_softmax(plain, block))


@settings(max_examples=15, deadline=None)
@given(kv_heads=st.integers(1, 3), group=st.integers(1, 3), n=SIZE, block=st.integers(1, 12))
def test_online_softmax_keeps_grouped_query_attention(kv_heads, group, n, block):
    sizes = {"batch": 1, "heads": kv_heads * group, "n": n, "m": n, "d": 3}
    plain = build("attention", sizes, {"kv_heads": kv_heads, "causal": True}, rewrites=())
    assert_same_values(plain, online_softmax(plain, block))


@settings(max_examples=30, deadline=None)
@given(rows=SIZE, n=st.integers(1, 20), block=st.integers(1, 24))
def test_online_softmax_keeps_softmax_that_leaves_the_graph(rows, n, block):
    plain = build("softmax", {"rows": rows, "n": n}, rewrites=())
    assert_same_values(plain, online_softmax(plain, block))


def test_online_softmax_leaves_one_pass_with_short_state():
    plain = build("attention", {"n": 8, "m": 8, "d": 4}, rewrites=())
    graph = online_softmax(plain, 4)
    assert {n.name for n in graph.nodes} >= {
        "s",
        "bm",
        "r",
        "corr",
        "p",
        "bl",
        "l",
        "ba",
        "acc",
        "o",
    }
    assert [n.fn for n in graph.nodes].count("div") == 1
    # q k v, 1/sqrt d, q scaled, k and v in digits, s; bm r; drop corr; shift p;
    # three states; l and acc as sum, product, add; two last values; the division
    assert len(graph.nodes) == 8 + 2 + 2 + 2 + 3 + 6 + 2 + 1
    reads = [n for n in graph.nodes if n.op == "read"]
    assert all(graph.node(n.args[0]).op == "input" for n in reads)
    assert not any(n.op == "mask" for n in graph.nodes)
    assert graph.extent("m.b") == 2 and graph.extent("m.i") == 4


def test_online_softmax_of_causal_scores_adds_no_mask_for_padding():
    plain = build("attention", {"n": 7, "m": 7, "d": 4}, {"causal": True}, rewrites=())
    graph = online_softmax(plain, 4)
    assert sum(n.op == "mask" for n in graph.nodes) == 1


def test_online_softmax_survives_blocks_without_scores():
    g = Builder("rows", i=1, a=6)
    x, y = g.input("x", "i a"), g.input("y", "i a")
    shifted = g.map("sub", x, g.reduce("max", x, over="a", name="r"))
    e = g.map("exp", shifted)
    g.output("o", g.map("div", g.einsum("i a, i a -> i", e, y), g.reduce("sum", e, over="a")))
    plain = g.build()
    x_row = np.array([[-np.inf, -np.inf, -np.inf, 1.0, 800.0, -900.0]])
    inputs = {"x": x_row, "y": np.arange(6.0)[None]}
    assert_same_values(plain, online_softmax(plain, 2), inputs)
    assert evaluate(online_softmax(plain, 4), inputs)["o"] == pytest.approx([4.0])


def test_online_softmax_masks_factors_that_padding_makes_infinite():
    g = Builder("rows", i=2, a=5)
    x, y = g.input("x", "i a"), g.input("y", "i a")
    r = g.reduce("max", x, over="a", name="r")
    e = g.map("exp2", g.map("sub", x, r))
    g.output("o", g.einsum("i a, i a -> i", e, g.map("reciprocal", y, name="inverse")))
    g.output("r", r)
    plain = g.build()
    graph = online_softmax(plain, 3)
    assert_same_values(plain, graph)
    assert "inverse.pad" in graph.by_name


def test_online_softmax_refuses_a_maximum_without_linear_sums():
    g = Builder("rows", i=2, a=5)
    x = g.input("x", "i a")
    e = g.map("exp", g.map("sub", x, g.reduce("max", x, over="a", name="top")))
    g.output("o", g.reduce("max", e, over="a"))
    with pytest.raises(RewriteError, match="node top: some sum over a must be linear"):
        online_softmax(g.build())


def test_online_softmax_refuses_an_axis_with_a_recurrence():
    g = Builder("rows", i=2, a=5)
    s = g.earlier(g.input("x", "i a"), "a", name="before")
    e = g.map("exp", g.map("sub", s, g.reduce("max", s, over="a")))
    g.output("o", g.reduce("sum", e, over="a"))
    with pytest.raises(RewriteError, match="node before: axis must not be split"):
        online_softmax(g.build())


def test_online_softmax_refuses_graphs_and_blocks_that_do_not_fit():
    with pytest.raises(RewriteError, match="graph gemm: a max over one axis"):
        online_softmax(build("gemm", {"i": 2, "j": 2, "k": 2}, rewrites=()))
    with pytest.raises(RewriteError, match="block must be >= 1, got 0"):
        online_softmax(build("softmax", {"rows": 2, "n": 2}, rewrites=()), block=0)


def test_pull_takes_a_factor_out_of_a_sum():
    g = Builder("scaled", i=3, a=4, j=2)
    x, c, y = g.input("x", "i a"), g.input("c", "i"), g.input("y", "a j")
    g.output("o", g.einsum("i a, a j -> i j", g.map("div", x, c, name="xc"), y, name="o"))
    plain = g.build()
    graph = pull(plain)
    assert_same_values(plain, graph)
    assert graph.node("o").fn == "div" and "xc" not in graph.by_name


def test_pull_refuses_a_factor_that_is_summed_over():
    g = Builder("scaled", i=3, a=4)
    x, c = g.input("x", "i a"), g.input("c", "a")
    g.output("o", g.reduce("sum", g.map("mul", x, c, name="xc"), over="a"))
    with pytest.raises(RewriteError, match="node xc: a div or mul must stand in a sum"):
        pull(g.build(), "xc")


def test_apply_names_the_nearest_rewrite():
    with pytest.raises(RewriteError, match=r"did you mean monarch\?"):
        apply(build("softmax", rewrites=()), "monarc")
