"""Runs three kernels on Plasticine as a user would type them, and names the picture it drew."""

import subprocess
import sys
import time
from pathlib import Path

from measured_series import write_series

OUT = Path("out")
PICTURE = OUT / "attention.png"
SERIES = OUT / "series.npz"
COMMANDS = (
    ("attention, one pass by the online softmax",
     f"simulate attention --hw plasticine --set heads=2 n=256 d=64 --plot {PICTURE}"),
    ("a causal FFT convolution, as Monarch products, over 1024 trading days",
     "simulate fft_conv --hw plasticine --set batch=1 channels=2 n=1024 causal=true"
     f" --inputs {SERIES}"),
    ("an LSTM, 8 steps",
     "simulate lstm --hw plasticine --set t=8 h=256"),
)  # fmt: skip


def main() -> int:
    """Run the commands in turn; the first that fails ends the demo with its exit code."""
    OUT.mkdir(exist_ok=True)
    print(f"{SERIES}: {write_series(SERIES)}")
    started = time.monotonic()
    for title, command in COMMANDS:
        print(f"\n=== {title}\n$ tileloom {command}\n", flush=True)
        done = subprocess.run([sys.executable, "-m", "dataflow.cli", *command.split()])
        if done.returncode:
            return done.returncode
    print(f"\n{len(COMMANDS)} kernels in {time.monotonic() - started:.0f} s")
    print(f"the placement of attention, with routes and utilisation: {PICTURE.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
