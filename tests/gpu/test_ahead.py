"""Steps that wait for each other: their loads come first."""

import re

import pytest

from dataflow import kernels
from dataflow.nodes import live
from gpu.defaults.schedule import default_schedule
from gpu.emit_triton.emit import source
from gpu.lowering.lower import lower
from gpu.plan import Barrier, Fetch, Load, Loop, Mask, Publish, Store, statements_of


@pytest.mark.parametrize(("kernel", "batch"), [("gru", 1), ("lstm", 16)])
def test_a_step_asks_for_all_it_loads_before_it_works(kernel: str, batch: int) -> None:
    sizes = {"batch": batch, "t": 25, "h": 1024, "e": 1024}
    graph = live(kernels.build(kernel, sizes))
    cell = lower(graph, default_schedule(graph, "fp16")).kernels[-1]
    (loop,) = (s for s in statements_of(cell.body) if isinstance(s, Loop))
    kinds = [type(s) for s in loop.body]
    fetched = kinds.count(Fetch)
    loaded = [s for s in loop.body if isinstance(s, Load)]
    assert fetched and loaded
    assert kinds[:fetched] == [Fetch] * fetched
    assert kinds[fetched : fetched + len(loaded)] == [Load] * len(loaded)
    zeros = [s for s in loop.body if isinstance(s, Mask)]
    assert [s.arg for s in zeros] == [s.out for s in loop.body[:fetched]]


def test_the_first_step_does_not_use_what_it_fetched() -> None:
    graph = live(kernels.build("gru", {"batch": 1, "t": 25, "h": 256, "e": 256}))
    text = source(lower(graph, default_schedule(graph, "fp16")))
    assert re.search(r"y_state = tl\.where\(\(\(t_step - 1\) >= 0\), y_state_left, 0\.0\)", text)


def test_loops_without_a_barrier_are_as_they_were() -> None:
    graph = live(kernels.build("gemm", {"i": 512, "j": 512, "k": 512}))
    (kernel,) = lower(graph, default_schedule(graph, "bf16")).kernels
    (loop,) = (s for s in kernel.statements() if isinstance(s, Loop))
    assert not any(isinstance(s, Fetch | Mask) for s in loop.body)


def test_sums_of_gates_are_made_at_once_and_what_needs_them_comes_after() -> None:
    graph = live(kernels.build("lstm", {"batch": 16, "t": 25, "h": 256, "e": 256}))
    plan = lower(graph, default_schedule(graph, "fp16"))
    loop = source(plan).split("for t_step")[1]
    sums = re.findall(r"^ *([\w, ]+) = tl\.reduce\(\((.*)\), 0, _sum_4\)", loop, re.M)
    ((names, tiles),) = sums
    before, after = loop.split("tl.reduce(")
    for name, tile in zip(names.split(", "), tiles.split(", "), strict=True):
        assert f" {tile} = tl.dot(" in before
        assert re.search(rf"= .*\b{name}\b", after)
    assert "tl.reduce(" not in source(plan, interpreted=True)


def test_sums_of_tiles_that_fill_registers_are_made_one_by_one() -> None:
    graph = live(kernels.build("gru", {"batch": 1, "t": 25, "h": 2048, "e": 2048}))
    text = source(lower(graph, default_schedule(graph, "fp16")))
    assert "tl.reduce(" not in text
    assert text.count("tl.sum(") == 3


def test_results_are_stored_behind_the_barrier() -> None:
    graph = live(kernels.build("gru", {"batch": 16, "t": 25, "h": 256, "e": 256}))
    cell = lower(graph, default_schedule(graph, "fp16")).kernels[-1]
    (loop,) = (s for s in cell.body if isinstance(s, Loop))
    kinds = [type(s) for s in loop.body]
    assert kinds[-1] is Store
    assert kinds.index(Publish) < kinds.index(Barrier) < kinds.index(Store)
