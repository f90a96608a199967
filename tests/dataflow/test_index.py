"""Affine forms: arithmetic, evaluation, substitution, text."""

import doctest

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow import errors, index
from dataflow.index import Affine, AffineError, affine, parse_affine

names = st.sampled_from(["n", "n1", "m.b", "m.i", "rows", "_x"])
forms = st.builds(
    Affine,
    st.lists(st.tuples(names, st.integers(-70, 70)), max_size=5).map(tuple),
    st.integers(-1000, 1000),
)
COMMON = settings(max_examples=60, deadline=None)


def test_affine_sorts_terms_and_drops_zeros():
    form = Affine((("b", 2), ("a", 1), ("b", -2), ("c", 3)), 4)
    assert form.terms == (("a", 1), ("c", 3))
    assert form == affine("3*c + a + 4")
    assert form.symbols() == ("a", "c")
    assert (form.coefficient("c"), form.coefficient("b")) == (3, 0)


def test_affine_takes_whole_numbers_only():
    assert affine(np.int64(3)) == Affine((), 3)
    for wrong in (2.5, None):
        with pytest.raises(TypeError):
            affine(wrong)
    with pytest.raises(TypeError):
        affine("n") * 0.5


def test_arithmetic_reads_as_written():
    n = affine("n")
    assert 64 * n + "m" - 3 == affine("64*n + m - 3")
    assert 5 - n == affine("5 - n")
    assert -(n - 2) * 3 == affine("-3*n + 6")


def test_str_puts_the_constant_last():
    assert str(affine("n2 - 3 + 64*n1")) == "64*n1 + n2 - 3"
    assert [str(affine(x)) for x in (0, -3, "-n", "0*n", "-2*n + 1")] == [
        "0",
        "-3",
        "-n",
        "0",
        "-2*n + 1",
    ]


def test_evaluate_takes_ints_and_arrays():
    form = affine("10*i + j - 1")
    assert form.evaluate({"i": 2, "j": 3}) == 22
    rows, columns = np.arange(2)[:, None], np.arange(3)
    assert form.evaluate({"i": rows, "j": columns}).tolist() == [[-1, 0, 1], [9, 10, 11]]
    with pytest.raises(AffineError, match="values must be given for i, j"):
        form.evaluate({"k": 1})


def test_bounds_are_the_extreme_values():
    # 2 i - 3 j + 1, i < 4, j < 3: least 0 - 6 + 1, greatest 6 - 0 + 1
    assert affine("2*i - 3*j + 1").bounds({"i": 4, "j": 3}) == (-5, 7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "column 1: the text must go on with a number, a name, or number[*]name, got the end"),
        ("n +", "column 4: .* got the end"),
        ("n * m", r"column 2: the text must go on with \+ or -, got '\* m'"),
        ("2*n m", r"column 4: .* \+ or -, got 'm'"),
        ("n + /2", "column 4: .* got '/2'"),
    ],
)
def test_parse_affine_places_the_fault(text, message):
    with pytest.raises(AffineError, match=message):
        parse_affine(text)


def test_parse_affine_takes_the_factor_on_either_side():
    assert parse_affine(" - n1*64+ 2 * m.b -3+1 ") == affine("2*m.b - 64*n1 - 2")


@COMMON
@given(forms)
def test_parse_affine_gives_back_what_str_wrote(form):
    assert parse_affine(str(form)) == form


@COMMON
@given(forms, forms, st.integers(-5, 5), st.lists(st.integers(-9, 9), min_size=6, max_size=6))
def test_arithmetic_and_substitution_agree_with_evaluation(a, b, factor, values):
    at = dict(zip(["n", "n1", "m.b", "m.i", "rows", "_x"], values, strict=True))
    left, right = a.evaluate(at), b.evaluate(at)
    assert (a + b).evaluate(at) == left + right
    assert (a - b).evaluate(at) == left - right
    assert (a * factor).evaluate(at) == left * factor
    assert a.substitute({"n": b}).evaluate(at) == a.evaluate({**at, "n": right})


@pytest.mark.parametrize("module", [index, errors], ids=lambda module: module.__name__)
def test_examples_in_docstrings_hold(module):
    failed, tried = doctest.testmod(module)
    assert (failed, tried > 0) == (0, True)
