"""The fused cell keeps the values and cuts weights instead of gates."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.graph import Builder
from dataflow.kernels import build
from dataflow.reference import draw_inputs, evaluate
from dataflow.rewrites import RewriteError, fused_cell

SIZE = st.integers(1, 6)


@settings(max_examples=40, deadline=None)
@given(cell=st.sampled_from(["lstm", "gru"]), batch=SIZE, t=SIZE, h=SIZE, e=SIZE)
def test_fused_cell_keeps_the_values(cell, batch, t, h, e):
    plain = build(cell, {"batch": batch, "t": t, "h": h, "e": e}, rewrites=())
    inputs = draw_inputs(plain, 2)
    y, fused = evaluate(plain, inputs)["y"], evaluate(fused_cell(plain), inputs)["y"]
    np.testing.assert_allclose(fused, y, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
def test_fused_cell_forms_each_gate_over_hidden_units(cell, gates):
    graph = fused_cell(build(cell, {"t": 2, "h": 5, "e": 3}, rewrites=()))
    products = [node for node in graph.nodes if node.op == "einsum"]
    assert len(products) == 2 * gates
    assert all(node.axes == ("batch", "t", "h") for node in products)
    computed = [n for n in graph.nodes if n.op == "read" and graph.node(n.args[0]).op != "input"]
    assert [node.name for node in computed] == ["y.state"]


def test_fused_cell_adds_the_carried_product_last():
    graph = fused_cell(build("lstm", {"t": 2, "h": 5, "e": 3}, rewrites=()))
    assert graph.node("gates.f").args == ("gates.f.free", "uy.f")
    assert graph.node("gates.f.free").args == ("wx.f", "b.f")


def test_fused_cell_refuses_graphs_without_cuts():
    with pytest.raises(RewriteError, match="graph gemm: a recurrence must be there"):
        fused_cell(build("gemm", {"i": 2, "j": 2, "k": 2}, rewrites=()))
    g = Builder("sum", t=3)
    before = g.recur("before", "t", "t")
    g.output("y", g.close(before, g.map("add", before, g.input("x", "t"))))
    with pytest.raises(RewriteError, match="graph sum: a cut of computed gates"):
        fused_cell(g.build())


def test_fused_cell_refuses_cuts_past_the_end():
    g = Builder("cell", t=3, h=4, g=6)
    before = g.recur("before", "t h", "t")
    gates = g.map("exp", g.input("x", "t g"), name="gates")
    cut = g.read(gates, "t h", ["t", "h + 4"], name="cut")
    g.output("y", g.close(before, g.map("add", before, cut)))
    with pytest.raises(RewriteError, match=r"node cut: index of g must stay inside 0\.\.5"):
        fused_cell(g.build())
