"""When the default stacks products, and how far ahead it loads."""

import json
import subprocess
import sys

import pytest

from dataflow.request import read_settings, request
from gpu.defaults.schedule import default_schedule
from gpu.defaults.stacks import stacked_bytes, with_stacks, without_stacks
from gpu.lowering.lower import lower

AT = "batch=64 channels=768"
KIB = 1024


def chosen(settings: str, precision: str = "bf16", card: str = "h200") -> tuple:
    graph = request("fft_conv", read_settings([f"{AT} {settings}"])).graph
    kernel = default_schedule(graph, precision, card).kernels[-1]
    return kernel.stack, kernel.stages, kernel.descriptors


def used(settings: str) -> int:
    graph = request("fft_conv", read_settings([f"{AT} {settings}"])).graph
    plan = lower(graph, default_schedule(graph))
    return stacked_bytes(plan, plan.kernels[-1])


def test_stacked_bytes_of_a_gated_convolution_are_those_worked_by_hand() -> None:
    # 4096 points are 64 x 64, the first digit's transform of length 128. Tables 128 x 64 and
    # 128 x 128; u, g and w of 64 x 64 are taken to registers, so two steps of three have tiles;
    # the last product's right operand is 128 x 64; the copy engine stores nothing
    assert used("n=4096 causal=true gated=true") == (16 + 32 + 2 * 3 * 8 + 16) * KIB
    # 4096 points circular, in pairs: one table, u of two sequences is multiplied as it lies,
    # so three steps; the result of two sequences is stored from shared memory
    assert used("n=4096 pair=true") == (32 + 3 * 16 + 16 + 16) * KIB


def test_default_loads_as_far_ahead_as_the_programs_of_a_core_have_room_for() -> None:
    assert chosen("n=4096 pair=true") == (True, 3, True)
    assert chosen("n=4096 causal=true gated=true") == (True, 3, "loads")
    assert chosen("n=8192 causal=true gated=true first_radix=256") == (True, 3, "loads")


def test_default_stacks_only_16_bits_only_full_rows_only_with_a_copy_engine() -> None:
    plain = (False, 1, False)
    assert chosen("n=4096 pair=true", "fp32") == plain
    assert chosen("n=4096 pair=true", card="a100") == plain
    assert chosen("n=2048 pair=true") == plain  # 32 x 64: rows of half a warp group


def test_without_stacks_undoes_with_stacks() -> None:
    graph = request("fft_conv", read_settings([f"{AT} n=4096 pair=true"])).graph
    made = default_schedule(graph)
    plain = without_stacks(made)
    assert not any(kernel.stack for kernel in plain.kernels)
    assert with_stacks(graph, plain) == made


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        "n=1024 causal=true gated=true first_radix=128",
        "n=4096 causal=true gated=true",
        "n=8192 causal=true first_radix=256",
    ],
)
def test_stacked_bytes_are_what_the_compiler_says(
    settings: str, compiler_environment: dict[str, str]
) -> None:
    command = [sys.executable, "-m", "dataflow.cli", "gpu", "compile", "fft_conv", "--json"]
    done = subprocess.run(
        [*command, "--set", f"{AT} {settings}", "--precision", "bf16"],
        env=compiler_environment,
        capture_output=True,
        text=True,
        check=False,
    )
    (found,) = json.loads(done.stdout)
    assert 0 <= found["shared_bytes"] - used(settings) < 256  # barriers of 8 bytes
    assert "wgmma" in found["matrix"]
