"""Mutated schedules and command lines: exit code 2 with the place, never a traceback or a hang."""

import random
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SIZES = ("--set", "i=8", "j=8", "k=8")
ROOMY = ("simulate", "gemm", "--hw", "plasticine", *SIZES)
COMMAND = (
    "simulate",
    "gemm",
    "--hw",
    "tiny",
    *SIZES,
    "--rewrite",
    "none",
    "--engine",
    "simpy",
    "--seed",
    "3",
    "--json",
)
SCHEDULE = """\
tile: {i: 4, j: 4}
time: [i.o, j.o]
walk: [i, j, k]
nodes:
  c:
    vector: {k: 4}
    unroll: {j: 2}
  store c: {vector: {j: 2}}
channels:
  load a -> c: {at: i.o, depth: 2}
  load b -> c: {locality: scratchpad, depth: 2}
"""
WORDS = (
    "",
    "0",
    "-1",
    "1e9",
    "nan",
    "[]",
    "{}",
    "null",
    "true",
    "i.o.o",
    "zz",
    "*a",
    "&a x",
    "1 GHz",
)
COUNTS = ("0", "1", "2", "3", "5", "7", "16", "64", "65536")
PUNCTUATION = ":{}[],=->#'\"\t\\%&*!|\u00e9\x00"


def _mutated_text(text: str, draw: random.Random) -> str:
    """Change a text at one to three places: characters, words, lines, or its end."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(text) + 1)
        lines = text.splitlines(keepends=True) or [""]
        line = draw.randrange(len(lines))
        kind = draw.randrange(9)
        if kind == 0:
            text = text[:at] + text[at + 1 :]
        elif kind == 1:
            text = text[:at] + draw.choice(PUNCTUATION) + text[at:]
        elif kind == 2:
            text = text[:at]
        elif kind == 3:
            text = "".join(lines[:line] + lines[line : line + 1] * 2 + lines[line + 1 :])
        elif kind == 4:
            text = "".join(lines[:line] + lines[line + 1 :])
        elif kind in (5, 6):
            numbers = list(re.finditer("[0-9]+", text))
            if numbers:
                found = draw.choice(numbers)
                count = draw.choice(COUNTS)
                text = text[: found.start()] + count + text[found.end() :]
        else:
            words = lines[line].split(" ")
            words[draw.randrange(len(words))] = draw.choice(WORDS)
            text = "".join([*lines[:line], " ".join(words), *lines[line + 1 :]])
    return text


def _mutated_command(draw: random.Random) -> list[str]:
    args: list[str] = [*COMMAND]
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(1, len(args))
        kind = draw.randrange(5)
        if kind == 0:
            del args[at]
        elif kind == 1:
            args.insert(at, args[at])
        elif kind == 2:
            other = draw.randrange(1, len(args))
            args[at], args[other] = args[other], args[at]
        elif kind == 3:
            place = draw.randrange(len(args[at]) + 1)
            args[at] = args[at][:place] + draw.choice(PUNCTUATION) + args[at][place:]
        else:
            args[at] = draw.choice(WORDS)
    return args


FEW = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own: a mutated command may name a file to write."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.timeout(300)
@FEW
@given(seed=st.integers(0, 2**32 - 1))
def test_mutated_schedules_run_or_are_refused_with_their_place(tileloom, inside, seed) -> None:
    path = inside / "schedule.yaml"
    path.write_text(_mutated_text(SCHEDULE, random.Random(seed)), encoding="utf-8")
    outcome = tileloom(*ROOMY, "--schedule", path, "--json")
    assert outcome.code in (0, 2), outcome.err
    if outcome.code == 2:
        # a place in the file, or the kernel and machine that the schedule asks too much of
        places = (f"{path}", "gemm on plasticine: ")
        assert all(line.startswith(places) for line in outcome.err.splitlines()), outcome.err
        assert outcome.out == ""
    else:
        assert outcome.json["values"]["passed"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@FEW
@given(seed=st.integers(0, 2**32 - 1))
def test_mutated_commands_run_or_are_refused(tileloom, inside, seed) -> None:
    outcome = tileloom(*_mutated_command(random.Random(seed)))
    assert outcome.code in (0, 2), outcome.err
    if outcome.code == 2:
        assert outcome.err.strip()


def test_the_unmutated_schedule_and_command_run(tileloom, inside) -> None:
    path = inside / "schedule.yaml"
    path.write_text(SCHEDULE)
    assert tileloom(*ROOMY, "--schedule", path, "--json").code == 0
    assert tileloom(*COMMAND).code == 0


def test_settings_of_thousands_of_digits_are_refused_in_a_line_one_can_read(tileloom) -> None:
    outcome = tileloom("simulate", "gemm", "--set", f"i={'9' * 5000}")
    assert outcome.code == 2
    assert outcome.err.startswith("kernel gemm: i must be a whole number >= 1, got '999")
    assert len(outcome.err) < 1000
