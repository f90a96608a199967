"""Products by tables that share operands, as one product of stacked matrices."""

import numpy as np
import pytest

from dataflow.request import Request, read_settings, request
from gpu.defaults.schedule import default_schedule
from gpu.defaults.stacks import without_stacks
from gpu.lowering.lower import lower
from gpu.measure.check import check
from gpu.plan import Dot, Kernel, Load, Loop, Plan, Stack, Store, Unstack
from gpu.schedule import GpuSchedule
from gpu.tables import numbers

PAIR = "batch=4 channels=2 n=4096 pair=true"
GATED = "batch=4 channels=2 n=4096 causal=true gated=true"


def asked(settings: str) -> Request:
    return request("fft_conv", read_settings([settings]))


def changed(schedule: GpuSchedule, **fields: object) -> GpuSchedule:
    kernels = tuple(kernel.model_copy(update=fields) for kernel in schedule.kernels)
    return schedule.model_copy(update={"kernels": kernels})


def planned(settings: str, **fields: object) -> Plan:
    graph = asked(settings).graph
    plain = without_stacks(default_schedule(graph, "bf16"))
    return lower(graph, changed(plain, **fields))


def inside(kernel: Kernel) -> list:
    (loop,) = (s for s in kernel.body if isinstance(s, Loop))
    return list(loop.body)


def count(kernel: Kernel, kind: type) -> int:
    return sum(isinstance(statement, kind) for statement in inside(kernel))


def test_stacked_complex_products_are_one_product_each() -> None:
    # two products each way; of complex numbers four real ones each, of a real signal and for a
    # real result two
    (plain,), (stacked,) = (planned(PAIR, stack=s).kernels for s in (False, True))
    assert (count(plain, Dot), count(stacked, Dot)) == (16, 4)
    (plain,), (stacked,) = (planned(GATED, stack=s).kernels for s in (False, True))
    assert (count(plain, Dot), count(stacked, Dot)) == (12, 4)


def test_stacked_operands_and_results_that_lie_together_are_one_load_and_one_store() -> None:
    (kernel,) = planned(PAIR, stack=True).kernels
    assert (count(kernel, Load), count(kernel, Store)) == (1, 1)
    # u is loaded stacked: what is stacked in registers is what the other three products read
    assert (count(kernel, Stack), count(kernel, Unstack)) == (3, 3)
    (load,) = (s for s in inside(kernel) if isinstance(s, Load))
    assert load.index[0].coefficient("part") == 1


def test_stacked_tables_of_the_same_numbers_are_loaded_once() -> None:
    plan = planned(PAIR, stack=True)
    (kernel,) = plan.kernels
    tables = [
        plan.tensors[s.tensor]
        for s in kernel.body
        if isinstance(s, Load) and plan.tensors[s.tensor].blocks
    ]
    # 64 x 64 complex, for both digits and both ways; and the real signal's half of it, 128 x 64
    assert sorted(tensor.shape for tensor in tables) == [(128, 64), (128, 128)]


def test_stacked_table_holds_the_complex_matrix_block_by_block() -> None:
    graph = asked(PAIR).graph
    plan = planned(PAIR, stack=True)
    (table,) = (t for t in plan.tensors.values() if t.blocks and t.shape == (128, 128))
    angle = -2 * np.pi * np.outer(np.arange(64), np.arange(64)) / 64
    c, s = np.cos(angle), np.sin(angle)
    expected = np.block([[c, -s], [s, c]])  # of the column [re; im]
    made = numbers(graph, table)
    assert any(np.allclose(made, each, atol=1e-12) for each in (expected, expected.T))


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize(
    "settings",
    [
        "batch=4 channels=2 n=256 pair=true",
        "batch=3 channels=1 n=512 pair=true",
        "batch=2 channels=2 n=256 causal=true gated=true",
        "batch=2 channels=1 n=300 causal=true",
        "batch=1 channels=2 n=2048 causal=true order=3",
        "batch=2 channels=1 n=256 pair=true gauss=true",
        "batch=2 channels=1 n=100",
    ],
    ids=lambda settings: settings.replace(" ", "-"),
)
def test_stacked_values_are_within_budget(settings: str, precision: str, where: str) -> None:
    made = asked(settings)
    plain = default_schedule(made.graph, precision, "interpreter")
    assert check(made, precision, where, changed(plain, stack=True)).passed


@pytest.mark.parametrize("moved", [True, "loads"])
def test_stacked_values_through_the_copy_engine_are_within_budget(
    moved: bool | str, where: str
) -> None:
    made = asked("batch=4 channels=2 n=1024 causal=true gated=true first_radix=64")
    plain = default_schedule(made.graph, "bf16", "interpreter")
    assert check(made, "bf16", where, changed(plain, stack=True, descriptors=moved)).passed


def test_stacking_leaves_other_products_as_they_are() -> None:
    made = request("gemm", read_settings(["i=64 j=64 k=64"]))
    plain = default_schedule(made.graph, "bf16")
    assert lower(made.graph, changed(plain, stack=True)) == lower(made.graph, plain)
