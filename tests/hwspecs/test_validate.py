"""Wording and places of faults, for models of any kind."""

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict

from hwspecs import SpecError, check, did_you_mean, read
from hwspecs.validate import show


class Loop(BaseModel):
    model_config = ConfigDict(extra="forbid")
    axis: str
    extent: int | Literal["all"] = "all"


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid")
    loops: list[Loop] = []
    named: dict[str, Loop] = {}
    order: tuple[str, ...] | None = None


def faults(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        check(Plan, read(text, "plan"))
    return [str(fault).removeprefix("<plan text>:") for fault in caught.value.faults]


def test_check_returns_the_model():
    plan = check(Plan, read("loops: [{axis: i, extent: 4}, {axis: j}]", "plan"))
    assert [loop.extent for loop in plan.loops] == [4, "all"]


def test_check_names_the_key_in_a_list():
    assert faults("loops:\n  - axis: i\n    extend: 3") == [
        "3:5: loops[0].extend must be one of the keys axis, extent, got the key 'extend'; "
        "did you mean extent?"
    ]


def test_check_names_the_key_in_a_free_mapping():
    assert faults("named: {x: {axes: i}}") == [
        "1:12: named.x.axis must be given, got nothing",
        "1:13: named.x.axes must be one of the keys axis, extent, got the key 'axes'; "
        "did you mean axis?",
    ]


def test_check_joins_the_branches_of_a_union():
    assert faults("loops: [{axis: i, extent: al}]") == [
        "1:27: loops[0].extent must be a whole number or one of all, got 'al'; did you mean all?"
    ]


def test_check_adds_the_faults_of_the_reader():
    assert [line.split(" ")[0] for line in faults("loops: 1\nloops: 2\nordre: *x")] == [
        "1:8:",
        "2:1:",
        "3:1:",
        "3:8:",
    ]


def test_check_refuses_an_empty_file():
    assert faults("") == ["1:1: must be a mapping, got nothing"]


def test_check_shortens_a_flood_of_faults():
    lines = faults("loops: [" + "1, " * 500 + "]")
    assert len(lines) == 101
    assert lines[-1].endswith("and the rest of the file has 400 more faults")


def test_check_survives_text_that_cannot_be_printed():
    (line,) = faults('loops: "\\ud800"')
    assert line.encode("utf-8")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "nothing"),
        (True, "true"),
        ({"a": 1}, "a mapping of 1"),
        ([1], "a list of 1"),
        (float("nan"), "nan"),
        ("a\nb", "'a\\nb'"),
    ],
)
def test_show_words_values(value, shown):
    assert show(value) == shown


def test_show_cuts_long_text():
    assert len(show("x" * 10_000)) <= 70


def test_did_you_mean_says_nothing_where_nothing_is_near():
    assert did_you_mean("zzz", ["rows"]) == ""
