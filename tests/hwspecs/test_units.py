"""Quantities with units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwspecs import RuleError, units


@pytest.mark.parametrize(
    ("text", "quantity", "value"),
    [
        ("1 GHz", units.FREQUENCY, 1e9),
        ("1.303 GHz", units.FREQUENCY, 1_303_000_000.0),
        ("1600MHz", units.FREQUENCY, 1.6e9),
        ("256 KiB", units.SIZE, 256 * 1024),
        ("0.5 MiB", units.SIZE, 512 * 1024),
        ("84 kB", units.SIZE, 84_000),
        ("51.2 GB/s", units.RATE, 51.2e9),
        ("2 GiB/s", units.RATE, 2.0 * 2**30),
        ("2 cycles", units.DURATION, 2),
        ("1 cycle", units.DURATION, 1),
        ("1e3 cycles", units.DURATION, 1000),
        (" 16 beats ", units.DEPTH, 16),
    ],
)
def test_parse_gives_base_units(text, quantity, value):
    assert units.parse(text, quantity) == value


@pytest.mark.parametrize("quantity", [units.SIZE, units.DURATION, units.DEPTH])
def test_parse_gives_int_for_whole_quantities(quantity):
    assert isinstance(units.parse(quantity.example, quantity), int)


def test_parse_is_exact_for_decimal_fractions():
    # 0.1 + 0.2 style rounding must not turn 1.1 kB into 1100.0000000000002 bytes and be refused.
    assert units.parse("1.1 kB", units.SIZE) == 1100


@pytest.mark.parametrize(
    ("text", "quantity", "said"),
    [
        ("1 ghz", units.FREQUENCY, "did you mean the unit GHz?"),
        ("256 KB", units.SIZE, "did you mean the unit kB?"),
        ("5 parsecs", units.SIZE, "units are B, kB"),
        ("0.5 cycles", units.DURATION, "a whole number of cycles"),
        ("0 cycles", units.DURATION, "above 0"),
        ("-1 cycles", units.DURATION, "such as '2 cycles'"),
        ("1e50 GB/s", units.RATE, "at most"),
        ("nan GHz", units.FREQUENCY, "such as '1 GHz'"),
        ("1 GHz GHz", units.FREQUENCY, "such as '1 GHz'"),
        ("٣ cycles", units.DURATION, "such as '2 cycles'"),
        (6, units.DURATION, "write the unit too, for example '6 cycles'"),
        (True, units.DURATION, "such as '2 cycles'"),
        (None, units.SIZE, "such as '256 KiB'"),
        (["1 B"], units.SIZE, "such as '256 KiB'"),
    ],
)
def test_parse_refuses_with_the_rule(text, quantity, said):
    with pytest.raises(RuleError) as caught:
        units.parse(text, quantity)
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 2.5, float("nan"), float("inf"), float("-inf")])
def test_number_refuses_what_is_no_positive_whole_duration(value):
    with pytest.raises(RuleError):
        units.number(value, units.DURATION)


@given(st.text(max_size=40))
def test_parse_never_fails_otherwise(text):
    for quantity in (units.FREQUENCY, units.SIZE, units.RATE, units.DURATION):
        try:
            value = units.parse(text, quantity)
        except RuleError:
            continue
        assert 0 < value <= quantity.maximum
