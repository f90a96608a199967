"""The search and its files, with times that are worked out instead of measured."""

from pathlib import Path

import pytest

from dataflow.kernels import build
from gpu.measure.known import graph_key, keep, known_schedule
from gpu.measure.tune import neighbours, search
from gpu.module import GpuError
from gpu.schedule import GpuSchedule

START = GpuSchedule.model_validate(
    {
        "precision": "bf16",
        "kernels": [{"tile": {"i": 64, "j": 64}, "grid": ["i", "j"], "warps": 4, "stages": 2}],
    }
)


def cost(schedule: GpuSchedule) -> float:
    """Least, 0, at tiles of 256 x 32, 8 warps, 4 stages; tiles of i beyond 256 do not compile."""
    (plan,) = schedule.kernels
    if plan.tile["i"] > 256:
        raise GpuError("gemm: shared memory must be at most 232448 bytes, got 262144")
    apart = abs(plan.tile["i"] - 256) / 64 + abs(plan.tile["j"] - 32) / 16
    return apart + abs(plan.warps - 8) + abs(plan.stages - 4)


def test_neighbours_change_one_field() -> None:
    # the other emitter; warps 8, 16; stages 1, 3; tiles of i and j halved and doubled; three groups
    made = list(neighbours(START))
    assert len(made) == 1 + 2 + 2 + 4 + 3
    assert START not in made


def test_search_walks_to_the_fastest() -> None:
    best = search(START, cost, 500)
    (plan,) = best.schedule.kernels
    assert best.milliseconds == 0
    assert (plan.tile, plan.warps, plan.stages) == ({"i": 256, "j": 32}, 8, 4)


def test_search_stops_at_the_limit() -> None:
    timed = []
    search(START, lambda s: timed.append(s) or cost(s), 5)
    assert len(timed) == 5


def test_search_goes_on_where_it_was(tmp_path: Path) -> None:
    log = tmp_path / "trials.yaml"
    first: list[GpuSchedule] = []
    search(START, lambda s: first.append(s) or cost(s), 7, log)
    second: list[GpuSchedule] = []
    best = search(START, lambda s: second.append(s) or cost(s), 500, log)
    assert best.milliseconds == 0
    assert not {s.to_yaml() for s in first} & {s.to_yaml() for s in second}
    assert "remark: 'gemm: shared memory must be at most 232448" in log.read_text()


def test_search_without_a_schedule_that_works_says_so() -> None:
    def never(schedule: GpuSchedule) -> float:
        raise GpuError("gemm: no")

    best = search(START, never, 3)
    assert best.milliseconds == float("inf")
    assert best.remark == "gemm: no"


def test_kept_schedule_is_known_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILELOOM_CACHE", str(tmp_path))
    graph = build("gemm", {"i": 5, "j": 7, "k": 9})
    before = known_schedule(graph, "bf16")
    assert before != START
    path = keep(graph, START, 1.25)
    assert known_schedule(graph, "bf16") == START
    assert known_schedule(graph, "fp16") == before.model_copy(update={"precision": "fp16"})
    assert "milliseconds: 1.25" in path.read_text()


def test_key_tells_sizes_apart() -> None:
    graphs = [build("gemm", {"i": i, "j": 7, "k": 9}) for i in (5, 6)]
    assert len({graph_key(graph, "bf16") for graph in graphs}) == 2
