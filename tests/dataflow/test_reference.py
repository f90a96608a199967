"""The NumPy meaning of each operation, against values worked out by hand."""

import ml_dtypes
import numpy as np
import pytest

from dataflow.graph import Builder
from dataflow.index import affine
from dataflow.reference import InputError, check_inputs, draw_inputs, evaluate, node_values


def run(builder, **inputs):
    return evaluate(builder.build(), {k: np.asarray(v, float) for k, v in inputs.items()})


def test_einsum_contracts_axes_that_the_result_lacks():
    g = Builder("g", i=2, j=2, k=2)
    a, b = g.input("a", "i k"), g.input("b", "k j")
    g.output("c", g.einsum("i k, k j -> j i", a, b))
    got = run(g, a=[[1, 2], [3, 4]], b=[[5, 6], [7, 8]])["c"]
    assert got.tolist() == [[19, 43], [22, 50]]


def test_einsum_takes_one_and_three_arguments():
    g = Builder("g", i=3)
    x = g.input("x", "i")
    g.output("sum", g.contract("", x))
    g.output("cube", g.contract("", x, x, x))
    got = run(g, x=[1, 2, 3])
    assert (got["sum"], got["cube"]) == (6, 36)


def test_map_broadcasts_by_axis_name():
    g = Builder("g", i=2, j=3)
    x, y = g.input("x", "i"), g.input("y", "j")
    g.output("z", g.map("sub", x, y))
    g.output("t", g.map("sub", x, y, axes="j i"))
    got = run(g, x=[10, 20], y=[1, 2, 3])
    assert got["z"].tolist() == [[9, 8, 7], [19, 18, 17]]
    assert got["t"].tolist() == got["z"].T.tolist()


def test_reduce_over_nothing_gives_the_identity():
    g = Builder("g", i=2, none=0)
    x = g.input("x", "i none")
    for fn in ("sum", "max", "min"):
        g.output(f"to_{fn}", g.reduce(fn, x, over="none"))
    got = run(g, x=np.zeros((2, 0)))
    assert got["to_sum"].tolist() == [0, 0]
    assert got["to_max"].tolist() == [-np.inf, -np.inf]
    assert got["to_min"].tolist() == [np.inf, np.inf]


def test_mask_keeps_where_the_form_is_not_negative():
    g = Builder("g", n=3, m=3)
    g.output("y", g.mask(g.input("x", "n m"), affine("n") - "m", fill=-1))
    got = run(g, x=np.ones((3, 3)))["y"]
    assert got.tolist() == [[1, -1, -1], [1, 1, -1], [1, 1, 1]]


def test_read_fills_outside_the_source():
    g = Builder("g", n=4, m=3)
    g.output("y", g.read(g.input("x", "m"), "n", ["2*n - 1"], fill=9))
    assert run(g, x=[0, 1, 2])["y"].tolist() == [9, 1, 9, 9]


def test_read_of_two_axes_takes_the_diagonal():
    g = Builder("g", n=2, m=2)
    g.output("y", g.read(g.input("x", "n m"), "n", ["n", "1 - n"]))
    assert run(g, x=[[1, 2], [3, 4]])["y"].tolist() == [2, 3]


def test_const_turn_is_exact_for_whole_turns():
    g = Builder("g", n=5)
    g.output("c", g.turn("cos", ["n", "n", 1000003], 4, "n", scale=0.5))
    # n*n*1000003 mod 4 = 3*n*n mod 4 = 0, 3, 0, 3, 0: cosine 1, 0, 1, 0, 1
    assert np.allclose(run(g)["c"], [0.5, 0, 0.5, 0, 0.5], atol=1e-15)


def test_const_affine_counts():
    g = Builder("g", n=3)
    g.output("c", g.affine("3*n - 1", "n"))
    assert run(g)["c"].tolist() == [-1, 2, 5]


def test_earlier_without_a_cycle_shifts():
    g = Builder("g", i=2, t=3)
    x = g.input("x", "t i")
    start = g.input("start", "i")
    g.output("y", g.earlier(x, "t", start))
    got = run(g, x=[[1, 2], [3, 4], [5, 6]], start=[7, 8])["y"]
    assert got.tolist() == [[7, 8], [1, 2], [3, 4]]


def test_recurrence_runs_point_by_point():
    # y[t] = 2 y[t-1] + x[t], y[-1] = 1: 2 + 1 = 3, 6 + 2 = 8, 16 + 3 = 19
    g = Builder("g", t=3)
    before = g.recur("before", "t", axis="t", init=1)
    doubled = g.map("mul", before, 2)
    after = g.close(before, g.map("add", doubled, g.input("x", "t")))
    g.output("y", after)
    g.output("end", g.last(after, "t"))
    got = run(g, x=[1, 2, 3])
    assert got["y"].tolist() == [3, 8, 19]
    assert got["end"] == 19


def test_recurrence_waits_for_values_that_stand_among_its_nodes():
    g = Builder("g", t=2, j=2)
    before = g.recur("before", "t", axis="t", init=-np.inf)
    block = g.reduce("max", g.input("x", "t j"), over="j")
    shifted = g.read(block, "t", ["1 - t"])
    g.output("y", g.close(before, g.map("max", before, shifted)))
    assert run(g, x=[[1, 5], [2, 3]])["y"].tolist() == [3, 5]


def test_recurrence_may_contract_other_axes():
    # h[t] = W h[t-1]: a quarter turn, (1, 0) -> (0, 1) -> (-1, 0)
    g = Builder("g", t=2, h=2, k=2)
    w = g.input("w", "h k")
    before = g.recur("before", "t h", axis="t", init=g.input("start", "h"))
    h = g.einsum("h k, t k -> t h", w, g.read(before, "t k", ["t", "k"]))
    g.output("y", g.close(before, h))
    got = run(g, w=[[0, -1], [1, 0]], start=[1, 0])["y"]
    assert got.tolist() == [[0, 1], [-1, 0]]


def test_output_drops_points_outside_and_merges():
    g = Builder("g", n=4, m=2)
    x = g.input("x", "n")
    g.output("cut", x, "m", ["n - 1"])
    g.output("sum", x, "m", ["0*n"], merge="add")
    g.output("top", x, "m", ["0*n"], merge="max")
    got = run(g, x=[1, 2, 3, 4])
    assert got["cut"].tolist() == [2, 3]
    assert got["sum"].tolist() == [10, 0]
    assert got["top"].tolist() == [4, -np.inf]


def test_node_values_gives_every_node_in_the_type_asked():
    g = Builder("g", n=2)
    x = g.input("x", "n")
    g.output("y", g.map("lt", x, 0, name="y"))
    values = node_values(g.build(), {"x": np.array([-1.0, 1.0])}, np.float32)
    assert {name: v.dtype.name for name, v in values.items()} == {
        "x": "float32",
        "number": "float32",
        "y": "float32",
    }
    assert values["y"].tolist() == [1, 0]


def test_draw_inputs_depends_on_name_and_seed_only():
    g = Builder("g", n=50)
    g.output("y", g.map("add", g.input("a", "n"), g.input("b", "n")))
    h = Builder("h", n=50)
    h.output("y", h.input("b", "n"))
    first, again = draw_inputs(g.build(), 3), draw_inputs(h.build(), 3)
    assert np.array_equal(first["b"], again["b"])
    assert not np.array_equal(first["a"], first["b"])
    assert not np.array_equal(first["b"], draw_inputs(h.build(), 4)["b"])


def test_check_inputs_lists_all_faults():
    g = Builder("g", n=2)
    g.output(
        "y", g.map("add", g.input("a", "n"), g.map("add", g.input("b", "n"), g.input("c", "n")))
    )
    with pytest.raises(InputError) as raised:
        check_inputs(
            g.build(), {"aa": np.zeros(2), "b": np.zeros((2, 1)), "c": np.array(["x", "y"])}
        )
    assert raised.value.faults == (
        "graph g, input aa: name must be an input, got 'aa'; did you mean a?",
        "graph g, input a: an array must be given, got none",
        "graph g, input b: shape must be (2,) (n), got (2, 1)",
        "graph g, input c: type must be a real number, got <U1",
    )


def test_check_inputs_allows_nan_and_says_so():
    g = Builder("g", n=2)
    g.output("y", g.input("a", "n"))
    assert check_inputs(g.build(), {"a": np.array([np.nan, 1])}) == (
        "graph g, input a: 1 of 2 values are NaN or infinite",
    )
    assert check_inputs(g.build(), {"a": np.zeros(2, ml_dtypes.bfloat16)}) == ()
    with pytest.raises(InputError):
        check_inputs(g.build(), {"a": np.zeros(2, complex)})
