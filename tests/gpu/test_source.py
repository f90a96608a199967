"""Generated text, held beside what it was when it was last read.

TILELOOM_REFRESH=1 writes the files anew; each change is to be read before it is kept.
"""

import os
from pathlib import Path

import pytest

from dataflow.request import read_settings, request
from gpu.defaults.schedule import default_schedule
from gpu.emit_triton.emit import source
from gpu.lowering.lower import lower

GOLDEN = Path(__file__).parents[1] / "golden" / "gpu"
CASES = {
    "gemm": "i=1000 j=512 k=300",
    "softmax": "rows=100 n=1000",
    "layer_norm": "rows=64 n=4096",
    "attention": "batch=2 heads=4 n=1024 d=64",
    "attention_causal": "batch=2 heads=4 n=1000 d=64 causal=true",
    "fft_conv": "batch=16 channels=8 n=1024",
    "lstm": "batch=1 t=25 h=256",
    "gru": "batch=16 t=25 h=256",
}


@pytest.mark.parametrize("case", CASES)
def test_source_is_as_it_was(case: str) -> None:
    kernel = case.removesuffix("_causal")
    graph = request(kernel, read_settings([CASES[case]])).graph
    text = source(lower(graph, default_schedule(graph, "bf16")))
    path = GOLDEN / f"{case}.txt"
    if os.environ.get("TILELOOM_REFRESH"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("case", CASES)
def test_source_is_the_same_every_time(case: str) -> None:
    kernel = case.removesuffix("_causal")
    graph = request(kernel, read_settings([CASES[case]])).graph
    texts = {source(lower(graph, default_schedule(graph, "bf16"))) for _ in range(2)}
    assert len(texts) == 1
