"""Runs every kind of generated kernel at a small size under compute-sanitizer, on the GPU at hand.

memcheck finds accesses outside of memory, racecheck threads that meet in shared memory without a
barrier between them. Prints a line a tool: kernels run, errors and hazards; exits with 1 where
there are any, 2 where the tool is missing. Values are checked too, against float64.
"""

from __future__ import annotations

import shutil
import subprocess
import sys

TOOLS = ("memcheck", "racecheck")
# kernel, settings, precision, emitter
CASES = (
    ("gemm", "i=200 j=136 k=100 bias=true activation=relu", "bf16", "triton"),
    ("gemm", "i=256 j=256 k=256", "fp16", "gluon"),
    ("gemm", "i=200 j=136 k=104", "bf16", "gluon"),
    ("attention", "n=200 m=200 d=64 causal=true", "bf16", "triton"),
    ("attention", "n=256 m=300 d=64 heads=4 kv_heads=2", "bf16", "gluon"),
    ("attention", "n=256 m=256 d=128 causal=true", "bf16", "gluon"),
    ("attention", "n=128 m=256 d=256", "fp16", "gluon"),
    ("fft_conv", "batch=3 channels=4 n=256", "bf16", "triton"),
    ("fft_conv", "batch=2 channels=3 n=4096 causal=true gated=true", "fp16", "triton"),
    ("lstm", "t=4 h=256 e=128", "fp16", "triton"),
    ("gru", "t=4 h=256 e=128 batch=16", "fp16", "triton"),
    ("softmax", "rows=300 n=32768", "bf16", "triton"),
    ("softmax", "rows=33 n=1000", "fp32", "triton"),
    ("layer_norm", "rows=33 n=4096", "bf16", "triton"),
    ("rms_norm", "rows=33 n=1000", "fp32", "triton"),
    ("dot_product", "n=100001", "fp32", "triton"),
    ("outer_product", "i=100 j=77", "fp32", "triton"),
    ("filter_sum", "n=10001", "fp32", "triton"),
)


def inside() -> int:
    """Run all cases in this process; how many failed."""
    from dataflow.request import read_settings, request
    from gpu.defaults.schedule import default_schedule
    from gpu.emit_gluon.schedule import gluon_schedule
    from gpu.measure.check import check

    failed = 0
    for kernel, settings, precision, emitter in CASES:
        asked = request(kernel, read_settings(settings.split()), [])
        make = gluon_schedule if emitter == "gluon" else default_schedule
        try:
            passed = check(asked, precision, "gpu", make(asked.graph, precision)).passed
            said = "values within their budget" if passed else "VALUES BEYOND THEIR BUDGET"
        except Exception as error:  # a fault of the device ends in many kinds of error
            passed, said = False, f"{type(error).__name__}: {str(error).splitlines()[0][:100]}"
        failed += not passed
        print(f"{kernel} {settings} {precision} {emitter}: {said}", flush=True)
    return failed


def under(tool: str) -> bool:
    """Run all cases under a tool, print what it found; whether it is clean."""
    command = ["compute-sanitizer", "--tool", tool, "--target-processes", "application-only"]
    command += ["--print-limit", "20", sys.executable, __file__, "--inside"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    found = [line for line in lines if line.startswith("=========")]
    summary = next((line for line in reversed(found) if "SUMMARY" in line), "no summary")
    run = [line for line in lines if line.startswith(tuple(case[0] for case in CASES))]
    clean = done.returncode == 0 and " 0 " in summary and len(run) == len(CASES)
    print(f"{tool}: {len(run)} of {len(CASES)} kernels ran; {summary.strip('= ')}")
    if not clean:
        print("\n".join([*run, *found[:60]]))
    return clean


def main() -> int:
    """Run every tool; the exit code."""
    if "--inside" in sys.argv:
        return int(inside() > 0)
    if shutil.which("compute-sanitizer") is None:
        print("compute-sanitizer: must be on the path, got none; it comes with CUDA")
        return 2
    clean = [under(tool) for tool in TOOLS]
    return int(not all(clean))


if __name__ == "__main__":
    sys.exit(main())
