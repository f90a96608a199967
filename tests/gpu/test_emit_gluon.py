"""Gluon text: its values on a machine of NumPy, what the compiler says of it, what is refused."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dataflow.reference import constant
from dataflow.request import Request, read_settings, request
from gpu.defaults.schedule import default_schedule
from gpu.defaults.stacks import without_stacks
from gpu.emit_gluon.emit import options, source
from gpu.emit_gluon.layout import laid_out
from gpu.emitters import printed
from gpu.lowering.lower import lower
from gpu.measure import check as checking
from gpu.module import GpuError
from gpu.plan import Plan, Tensor
from gpu.schedule import GpuSchedule
from tests.gpu import gluon_machine
from tests.gpu.gluon_machine import BFLOAT16, FLOAT16, FLOAT32, Descriptor, Pointer, run_program

GOLDEN = Path(__file__).parents[1] / "golden" / "gpu"
CORES = 2
DTYPES = {"bf16": BFLOAT16, "fp16": FLOAT16, "fp32": FLOAT32}
GEMM = "i=256 j=256 k=200"
CASES = {
    "gemm": (GEMM, {"tile": {"i": 128, "j": 128, "k": 64}, "loop": ["k"], "warps": 8, "stages": 3}),
    "gemm_one_group": (
        GEMM,
        {"tile": {"i": 64, "j": 128, "k": 64}, "loop": ["k"], "warps": 4, "stages": 2},
    ),
    "gemm_odd": (
        "i=200 j=136 k=96 bias=true activation=relu",
        {"tile": {"i": 128, "j": 64, "k": 32}, "loop": ["k"], "warps": 8, "stages": 2},
    ),
    "attention": ("heads=2 n=128 m=320 d=64 block=64", {"tile": {"n": 128}, "warps": 8}),
    "attention_causal": (
        "heads=2 n=320 d=32 causal=true block=32",
        {"tile": {"n": 64}, "warps": 4, "stages": 2},
    ),
    "attention_groups": (
        "heads=4 n=192 d=16 kv_heads=2 causal=true block=16",
        {"tile": {"n": 128}, "warps": 8, "stages": 3},
    ),
    "attention_thirds": (
        "heads=2 n=200 d=32 causal=true block=32",
        {"tile": {"n": 192}, "warps": 12, "stages": 2},
    ),
    "fft_conv": ("batch=4 channels=2 n=4096 pair=true", {"warps": 4, "stages": 2}),
    "fft_conv_gated": (
        "batch=2 channels=1 n=2048 causal=true gated=true",
        {"warps": 4, "stages": 2},
    ),
}


def planned(case: str, precision: str = "bf16", **changes: object) -> tuple[Request, Plan]:
    """The request of a case, and its plan under the default schedule changed as the case says."""
    kernel = next(k for k in ("attention", "fft_conv", "gemm") if case.startswith(k))
    asked, change = request(kernel, read_settings([CASES[case][0]])), CASES[case][1]
    schedule = without_stacks(default_schedule(asked.graph, precision)).as_data()
    schedule["kernels"][-1].update({**change, **changes})
    return asked, lower(asked.graph, GpuSchedule.model_validate(schedule))


class OnNumpy:
    """A plan as `gpu.measure.check` runs it, its Gluon text on the machine of NumPy."""

    where = "interpreter"
    device = torch.device("cpu")
    schedule = SimpleNamespace(emitter="gluon")

    def __init__(self, graph: object, plan: Plan):
        self.graph, self.plan, self.source = graph, plan, source(plan)
        self.launches = printed(plan, "gluon").launches

    def launch(self, inputs: list[torch.Tensor], poison: bool = False) -> list[torch.Tensor]:
        memory = {tensor.name: self._memory(tensor) for tensor in self.plan.tensors.values()}
        for tensor, given in zip(self.plan.inputs, inputs, strict=True):
            memory[tensor.name][...] = given.to(torch.float64).numpy()
        for one in self.launches:
            given = []
            for argument in one.arguments:
                tensor = self.plan.tensors[argument.tensor]
                array, dtype = memory[tensor.name], DTYPES[tensor.type]
                if argument.block is None:
                    given.append(Pointer(array.reshape(-1), dtype))
                else:
                    view = array.reshape(argument.view_shape)
                    given.append(Descriptor(view, dtype, argument.block))
            programs = one.programs(CORES)
            for program in range(programs):
                run_program(self.source, one.kernel.name, given, program, programs)
        return [torch.as_tensor(memory[t.name].astype(np.float64)) for t in self.plan.outputs]

    def _memory(self, tensor: Tensor) -> np.ndarray:
        type_ = DTYPES[tensor.type]
        if tensor.kind != "const":
            return np.full(tensor.shape, np.nan, type_.numpy)
        node = self.graph.node(tensor.node)
        points = {
            axis: np.arange(self.graph.extent(axis)).reshape(
                [-1 if a == axis else 1 for a in node.axes]
            )
            for axis in node.axes
        }
        values = np.broadcast_to(constant(node, points) * tensor.scale, tensor.shape)
        held = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[tensor.type]
        return torch.as_tensor(np.array(values)).to(held).float().numpy().astype(type_.numpy)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("case", CASES)
def test_values_are_within_budget(
    case: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plan = planned(case, precision)
    made = OnNumpy(asked.graph, plan)
    monkeypatch.setattr(checking, "compile", lambda *args: made)
    checked = checking.check(asked, precision, "interpreter")
    assert checked.passed, checked.verdicts


@pytest.mark.parametrize("case", CASES)
def test_source_is_as_it_was(case: str) -> None:
    text = source(planned(case)[1])
    path = GOLDEN / f"gluon_{case}.txt"
    if os.environ.get("TILELOOM_REFRESH"):
        path.write_text(text)
    assert text == path.read_text()


def test_tiles_taken_too_early_or_never_given_back_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # what the machine of NumPy is for: a GPU may run some of these right, most of the time
    monkeypatch.setattr(gluon_machine, "PATIENCE_S", 1.0)
    asked, plan = planned("attention_causal")
    text = source(plan)
    broken = [
        text.replace("num_outstanding=1", "num_outstanding=2"),
        re.sub(r" *mbarrier\.wait\(v_d_full.*\n", "", text),
        re.sub(r" *mbarrier\.arrive\(k_d_empty.*\n", "", text),
    ]
    assert runs_well(OnNumpy(asked.graph, plan))
    for one in broken:
        assert one != text
        made = OnNumpy(asked.graph, plan)
        made.source = one
        assert not runs_well(made)


def test_a_result_has_left_before_the_next_tile_takes_its_memory() -> None:
    asked, plan = planned("gemm")
    made = OnNumpy(asked.graph, plan)
    given = [torch.ones(t.shape) for t in plan.inputs]
    given[1][:, 128:] = 2.0  # two programs: each makes its rows' left tile, then the right one
    right = torch.full((256, 256), 200.0).double()
    right[:, 128:] = 400.0
    assert made.launch(given)[0].equal(right)
    early = made.source.replace("tma.store_wait(0)", "pass", 1)
    assert early != made.source
    made.source = early
    assert not made.launch(given)[0].equal(right)


def runs_well(made: OnNumpy) -> bool:
    """Whether every barrier ends and every output is a number."""
    try:
        (found,) = made.launch([torch.ones(t.shape) for t in made.plan.inputs])
    except AssertionError:
        return False
    return bool(found.isfinite().all())


def test_groups_share_the_rows_and_one_loader_fills_both() -> None:
    text = source(planned("gemm")[1])
    # 128 rows for two groups: boxes of 64; a step of a, b is (2 * 64 * 64 + 64 * 128) * 2 bytes
    assert "[6, 64, 64], SWIZZLE_128_16)" in text
    assert ", 32768)" in text
    assert "], [4, 1], [240, 24])" in text


def test_the_wider_side_of_a_product_becomes_its_columns() -> None:
    # 128 x 256 for two groups: 64 x 256 each, not 128 x 128
    _, plan = planned("gemm", tile={"i": 128, "j": 256, "k": 64})
    assert "c_sum = gl.full([64, 256], 0.0, gl.float32, RESULT_256)" in source(plan)


def test_scores_of_a_step_are_in_flight_beside_the_values_of_the_step_before() -> None:
    text = source(planned("attention_causal")[1])
    turn = text[text.index("for m_b_step in range(1, ") :]
    places = [turn.index(mark) for mark in ("s = warpgroup_mma(", "ba = warpgroup_mma(", "bm = ")]
    assert places == sorted(places)
    assert "v_d_ring.index((m_b_step - 1) % 2)" in turn
    # causal: the longest rows of the grid start first
    assert text.count("n_program = 4 - n_program") == 2


def test_equal_tiles_are_shared_by_as_many_programs_as_fit_the_card() -> None:
    # 256 x 256 in 128 x 128: 4 tiles; two groups and a loader have a core to themselves
    (one,) = printed(planned("gemm")[1], "gluon").launches
    assert [one.programs(cores) for cores in (3, 132)] == [3, 4]
    # 256 x 256 in 64 x 128: 8 tiles, two programs of one group a core
    (one,) = printed(planned("gemm_one_group")[1], "gluon").launches
    assert [one.programs(cores) for cores in (3, 132)] == [6, 8]
    # causal tiles differ: a program each, handed out to cores as they are done; 2 heads of 5 tiles
    (one,) = printed(planned("attention_causal")[1], "gluon").launches
    assert one.programs(3) == 10


def test_three_groups_have_a_third_of_the_rows_each() -> None:
    _, plan = planned("attention_thirds")
    text = source(plan)
    assert "], [4, 4, 1], [160, 160, 24])" in text
    assert "n_lane = group * 64" in text
    with pytest.raises(GpuError, match="warps must be a power of two in Triton, got 12"):
        printed(plan, "triton")


def test_two_programs_of_one_group_fit_a_core() -> None:
    # 8 warps at 128 registers a thread take half of a core's 65,536
    _, plan = planned("fft_conv")
    assert options(plan, plan.kernels[-1]) == {"num_warps": 4, "maxnreg": 128}
    _, plan = planned("gemm")
    assert options(plan, plan.kernels[-1]) == {"num_warps": 4}


REFUSED = [
    ("gemm", "fp32", {}, "product c: must be of bf16 or fp16, got fp32"),
    ("gemm", "bf16", {"warps": 16}, "must be a multiple of 256 for 16 warps, got 128"),
    ("fft_conv", "bf16", {"warps": 8}, "warps must be 4, got 8"),
    ("gemm_one_group", "bf16", {"tile": {"i": 32, "j": 32, "k": 64}}, "must have rows in 64s"),
]


@pytest.mark.parametrize(("case", "precision", "change", "message"), REFUSED)
def test_what_cannot_be_printed_is_refused(
    case: str, precision: str, change: dict, message: str
) -> None:
    _, plan = planned(case, precision, **change)
    with pytest.raises(GpuError, match=re.escape(message)):
        source(plan)


def test_grid_barriers_are_refused() -> None:
    asked = request("lstm", read_settings(["batch=1 t=3 h=256"]))
    plan = lower(asked.graph, default_schedule(asked.graph, "fp16"))
    with pytest.raises(GpuError, match="must be left to the Triton emitter"):
        laid_out(plan, plan.kernels[-1])


@pytest.mark.parametrize(
    ("kernel", "settings"),
    [
        ("gemm", "i=4096 j=4096 k=4096"),
        ("gemm", "i=4000 j=1000 k=4104 bias=true activation=gelu-tanh"),
        ("attention", "batch=1 heads=32 n=16384 d=64 block=128"),
        ("attention", "batch=1 heads=16 n=16384 d=128 block=128"),
        ("attention", "batch=4 heads=16 n=4000 d=128 block=128 causal=true kv_heads=4"),
        ("attention", "batch=4 heads=8 n=4096 d=256 block=64"),
        ("attention", "batch=4 heads=8 n=4096 d=256 block=64 causal=true"),
    ],
)
def test_real_sizes_use_warp_group_products_and_do_not_spill(
    kernel: str, settings: str, compiler_environment: dict[str, str]
) -> None:
    (found,) = compiled(kernel, settings, compiler_environment)
    assert found["matrix"] == ["wgmma"]
    assert found["faults"] == []


def compiled(kernel: str, settings: str, environment: dict[str, str]) -> list[dict]:
    """What `tileloom gpu compile` says, in a process in which Triton compiles."""
    command = [sys.executable, "-c", "from dataflow.cli import main; main()", "gpu", "compile"]
    command += [kernel, "--set", settings, "--emitter", "gluon", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)
