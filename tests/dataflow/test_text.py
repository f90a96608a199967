"""Graphs print as text that parses back; faults name line and column."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow import kernels
from dataflow.graph import OPS, Builder
from dataflow.text import TextError, parse, to_text

GEMM = """graph gemm

axis i = 4
axis j = 5
axis k = 6

a[i k] = input
b[k j] = input
c[i j] = einsum(a, b)
number[] = const number 0.5
half[i j] = map mul(c, number)

output c[i j] = half at [i, j]
"""


def every_operation():
    g = Builder("all", n=4, m=3, t=2)
    x, start = g.input("x", "t n"), g.input("graph", "n")
    shifted = g.read(x, "t m", ["t", "2*m - 1"], fill=-math.inf, name="axis")
    kept = g.mask(shifted, "m - t", fill=1e-30, name="output")
    top = g.reduce("max", kept, over="m")
    before = g.recur("before", "t n", axis="t", init=start)
    turned = g.map("mul", before, g.turn("sin", ["n", "n + 1"], 7, "n", scale=0.25))
    state = g.close(before, g.map("add", turned, g.map("add", top, x)))
    g.output("end", g.last(state, "t"))
    g.output("shift", g.earlier(x, "t", -2.5))
    g.output("count", g.affine("3*n - m", "n m"), "n", ["n"], merge="add")
    return g.build()


def test_to_text_prints_one_statement_a_line():
    g = Builder("gemm", i=4, j=5, k=6)
    c = g.einsum("i k, k j -> i j", g.input("a", "i k"), g.input("b", "k j"), name="c")
    g.output("c", g.map("mul", c, 0.5, name="half"))
    assert to_text(g.build()) == GEMM
    assert parse(GEMM) == g.build()


def test_parse_gives_back_every_operation():
    graph = every_operation()
    assert parse(to_text(graph)) == graph


@pytest.mark.parametrize("name", kernels.KERNELS)
@pytest.mark.parametrize("rewrites", [(), None], ids=["plain", "default"])
def test_parse_gives_back_every_kernel(name, rewrites):
    graph = kernels.build(name, rewrites=rewrites)
    assert parse(to_text(graph)) == graph


def test_parse_skips_comments_and_space():
    text = GEMM.replace("\n\n", "\n  # a note\n").replace("a[i k] =", "  a[ i  k ]=")
    assert parse(text.replace("einsum(a, b)", " einsum( a ,b )  # product")) == parse(GEMM)


def test_parse_says_where_a_line_stops_short():
    with pytest.raises(TextError) as raised:
        parse(GEMM.replace("= input", "=  # rows", 1))
    # "a[i k] =  " is ten columns
    assert raised.value.faults[0].startswith("line 7, column 11: the text must go on with an op")
    assert raised.value.faults[0].endswith("got the end of the line; known: " + ", ".join(OPS))


def test_parse_lists_all_faults_with_line_and_column():
    text = GEMM.replace("axis j = 5", "axis j = five").replace("einsum(a, b)", "einsun(a, b)")
    with pytest.raises(TextError) as raised:
        parse(text.replace("at [i, j]", "at [i, j*j]"))
    assert raised.value.faults == (
        "line 4, column 10: the text must go on with a whole number, got 'five'",
        "line 9, column 10: the text must go on with an operation, got 'einsun(a, b)'; "
        "did you mean einsum?",
        "line 13, column 29: the text must go on with an affine form, got 'j*j]'; "
        "affine form 'j*j', column 2: the text must go on with + or -, got '*j'",
    )


def test_parse_places_broken_rules_at_the_line_of_the_node():
    with pytest.raises(TextError) as raised:
        parse(GEMM.replace("map mul", "map mull").replace("= half at", "= hal at"))
    assert raised.value.faults == (
        "line 11, column 1: graph gemm, node half: fn must be a row of the table, got 'mull'; "
        "did you mean mul?",
        "line 13, column 1: graph gemm, output c: node must be a node of the graph, got 'hal'; "
        "did you mean half?",
    )


def test_parse_refuses_a_text_without_a_graph():
    with pytest.raises(TextError, match="line 1, column 1: the text must name its graph"):
        parse("")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_parse_refuses_damaged_text_with_a_place_or_reads_it(data):
    text = to_text(every_operation())
    at = data.draw(st.integers(0, len(text)))
    length = data.draw(st.integers(0, 12))
    text = text[:at] + data.draw(st.text(max_size=6)) + text[at + length :]
    try:
        graph = parse(text)
    except TextError as error:
        assert all(fault.startswith("line ") for fault in error.faults)
    else:
        assert parse(to_text(graph)) == graph
