"""Damaged machine files are refused with a place, and never end in anything else."""

import re
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hwspecs
from hwspecs import Machine, SpecError, read

FOLDER = Path(hwspecs.__file__).parent
LINES = {
    name: (FOLDER / f"{name}.yaml").read_text().splitlines()
    for name in ("tiny", "plasticine_rnn", "sn40l")
}
VALUES = [
    *("-1", "0", "9" * 400, "1e999", ".nan", ".inf", "~", "true", "[]", "{}", "''", "0x10", "1_0"),
    *(
        "12 parsecs",
        "-5 GHz",
        "0 B",
        "1 GHz",
        "3 KiB",
        "1e99 B",
        "2.5 cycles",
        "99999999999 cycles",
    ),
    *(
        "*a",
        "&a 1",
        "!!python/none x",
        '"\\UFFFFFFFF"',
        '"\\ud800"',
        "[" * 50,
        "{" * 50,
        "[a: b: c]",
    ),
    *("{a: {b: [c, {d: e}]}}", "| \n x", "? x", "- y", "@", "`", "%", "'unclosed", "a: b: c"),
    *("4", "8", "fp32", "fp8_e4m3", "C", "[CM, MC]", "[C, MC]", "{exp: {stages: 99}}"),
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    lines = list(LINES[draw(st.sampled_from(sorted(LINES)))])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["delete", "repeat", "rename", "value", "indent", "swap"]))
        key, colon, rest = lines[at].partition(":")
        if kind == "delete":
            lines[at] = ""
        elif kind == "repeat":
            lines.insert(at, lines[at])
        elif kind == "rename":
            lines[at] = key + draw(st.sampled_from("xs_ ")) + colon + rest
        elif kind == "value":
            lines[at] = f"{key}: {draw(st.sampled_from(VALUES))}"
        elif kind == "indent":
            lines[at] = draw(st.sampled_from(["  ", " ", "\t"])) + lines[at]
        else:
            other = draw(st.integers(0, len(lines) - 1))
            lines[at], lines[other] = lines[other], lines[at]
    raw = "\n".join(lines).encode("utf-8", "surrogatepass")
    if draw(st.integers(0, 4)) == 0:
        raw = raw[: draw(st.integers(0, len(raw)))]
    if draw(st.integers(0, 4)) == 0:
        at = draw(st.integers(0, len(raw)))
        raw = raw[:at] + draw(st.binary(min_size=1, max_size=6)) + raw[at:]
    return raw


def load_or_explain(path: Path) -> None:
    started = time.perf_counter()
    try:
        machine = hwspecs.load(path)
    except SpecError as error:
        assert error.faults
        for line in str(error).splitlines():
            assert re.match(re.escape(str(path)) + r":\d+:\d+: \S", line), line
    else:
        assert isinstance(machine, Machine)
        assert len(machine.grid.sites("compute")) == machine.grid.compute_units
        assert re.fullmatch("[0-9a-f]{12}", machine.content_hash)
    assert time.perf_counter() - started < 5


@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(raw=damaged())
def test_damaged_machine_loads_or_is_refused_with_a_place(tmp_path, raw):
    path = tmp_path / "damaged.yaml"
    path.write_bytes(raw)
    load_or_explain(path)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(raw=st.binary(max_size=200))
def test_random_bytes_are_refused_with_a_place(tmp_path, raw):
    path = tmp_path / "random.yaml"
    path.write_bytes(raw)
    load_or_explain(path)


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="ab:-[]{}&*!|>'\"%@#?, \n\t", max_size=60))
def test_random_yaml_is_read_or_refused(text):
    try:
        _ = read(text, "machine").data
    except SpecError as error:
        assert all(fault.line >= 1 for fault in error.faults)
