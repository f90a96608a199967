"""The table of operations: meanings, costs, missing rows."""

import math

import numpy as np
import pytest

from dataflow.graph import Builder
from dataflow.ops import (
    MAPS,
    REDUCES,
    OperationError,
    bytes_of,
    flops_of,
    reduce_row,
    row,
    total_flops,
)

# (operation, arguments, value by hand)
MEANINGS = [
    ("identity", (3.0,), 3.0),
    ("add", (2.0, 3.0), 5.0),
    ("sub", (2.0, 3.0), -1.0),
    ("mul", (2.0, 3.0), 6.0),
    ("div", (3.0, 2.0), 1.5),
    ("max", (2.0, 3.0), 3.0),
    ("min", (2.0, 3.0), 2.0),
    ("neg", (2.0,), -2.0),
    ("abs", (-2.0,), 2.0),
    ("exp", (1.0,), math.e),
    ("exp2", (3.0,), 8.0),
    ("log", (math.e,), 1.0),
    ("log2", (8.0,), 3.0),
    ("tanh", (0.5,), math.tanh(0.5)),
    ("sigmoid", (math.log(3),), 0.75),
    ("erf", (0.5,), math.erf(0.5)),
    ("cos", (math.pi,), -1.0),
    ("sin", (math.pi / 2,), 1.0),
    ("relu", (-2.0,), 0.0),
    ("sqrt", (9.0,), 3.0),
    ("rsqrt", (4.0,), 0.5),
    ("reciprocal", (4.0,), 0.25),
    ("square", (-3.0,), 9.0),
    ("lt", (1.0, 1.0), 0.0),
    ("le", (1.0, 1.0), 1.0),
    ("gt", (2.0, 1.0), 1.0),
    ("ge", (0.0, 1.0), 0.0),
    ("eq", (1.0, 1.0), 1.0),
    ("logical_and", (1.0, 0.0), 0.0),
    ("where", (1.0, 2.0, 3.0), 2.0),
]


@pytest.mark.parametrize(("fn", "args", "value"), MEANINGS, ids=[m[0] for m in MEANINGS])
def test_row_means_what_its_name_says(fn, args, value):
    assert row(fn).arity == len(args)
    arrays = [np.full(2, arg) for arg in args]
    assert np.allclose(row(fn).numpy(*arrays), [value, value], rtol=1e-15)


def test_every_row_is_tried():
    assert {fn for fn, _, _ in MEANINGS} == set(MAPS)


def test_sigmoid_does_not_overflow():
    with np.errstate(all="raise", under="ignore"):
        assert row("sigmoid").numpy(np.array([-1e4, 0, 1e4])).tolist() == [0, 0.5, 1]


@pytest.mark.parametrize("fn", REDUCES)
def test_reduce_row_combines_halves_and_starts_at_its_identity(fn):
    x, reduction = np.array([3.0, -1.0, 2.0, 5.0]), reduce_row(fn)
    combine = row(reduction.combine).numpy
    halves = combine(reduction.numpy(x[:2]), reduction.numpy(x[2:]))
    assert halves == reduction.numpy(x) == combine(halves, reduction.identity)


def test_missing_rows_name_the_operation_and_the_nearest():
    with pytest.raises(OperationError, match=r"got 'sigmoyd'; did you mean sigmoid\?"):
        row("sigmoyd")
    with pytest.raises(OperationError, match="got 'prod'; known: sum, max, min"):
        reduce_row("prod")


def test_flops_count_two_a_contracted_point():
    g = Builder("g", i=2, j=3, k=5)
    a, b = g.input("a", "i k"), g.input("b", "k j")
    c = g.einsum("i k, k j -> i j", a, b)
    outer = g.einsum("i j, k j -> i j k", c, b)
    g.output("y", g.map("exp", g.reduce("sum", outer, over="j k", name="total")))
    graph = g.build()
    assert flops_of(graph.node(c.name), graph) == 2 * 5
    assert flops_of(graph.node(outer.name), graph) == 1
    assert flops_of(graph.node("total"), graph) == 3 * 5
    assert flops_of(graph.node("a"), graph) == 0
    # c 2*3*10, outer 2*3*5*1, total 2*15, exp 2
    assert total_flops(graph) == 60 + 30 + 30 + 2
    assert bytes_of(graph.node("a"), graph, 2) == 2 * 5 * 2
