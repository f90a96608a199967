"""Kernels against NumPy code of their own: Fourier transforms, plain loops, row formulas."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow import kernels
from dataflow.kernels import KERNELS, KernelError
from dataflow.reference import draw_inputs, evaluate

FEW = settings(max_examples=12, deadline=None)
small = st.integers(1, 6)


def run(name, sizes, options=None, rewrites=(), seed=0):
    """Return a kernel's inputs and outputs; the plain form unless asked otherwise."""
    graph = kernels.build(name, sizes, options, rewrites)
    inputs = draw_inputs(graph, seed)
    return inputs, evaluate(graph, inputs)


def close(got, want):
    return np.allclose(got, want, rtol=1e-11, atol=1e-11)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@FEW
@given(small, small, small)
def test_gemm_is_the_matrix_product(i, j, k):
    x, y = run("gemm", {"i": i, "j": j, "k": k})
    assert close(y["c"], x["a"] @ x["b"])


@pytest.mark.parametrize(
    ("activation", "formula"),
    [
        ("relu", lambda x: x * (x > 0)),
        ("tanh", np.tanh),
        ("sigmoid", sigmoid),
        (
            "gelu-tanh",
            lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        ),
    ],
)
def test_gemm_adds_the_bias_before_the_activation(activation, formula):
    x, y = run("gemm", {"i": 3, "j": 4, "k": 5}, {"bias": True, "activation": activation})
    assert close(y["c"], formula(x["a"] @ x["b"] + x["bias"]))


def test_softmax_rows_match_the_formula():
    x, y = run("softmax", {"rows": 3, "n": 7})
    assert close(y["y"], softmax(x["x"]))


def test_layer_norm_rows_have_the_asked_mean_and_spread():
    x, y = run("layer_norm", {"rows": 3, "n": 50})
    want = (x["x"] - x["x"].mean(1, keepdims=True)) / np.sqrt(x["x"].var(1, keepdims=True) + 1e-5)
    assert close(y["y"], want * x["gain"] + x["bias"])


def test_rms_norm_matches_the_formula():
    x, y = run("rms_norm", {"rows": 3, "n": 5})
    power = (x["x"] ** 2).mean(1, keepdims=True)
    assert close(y["y"], x["x"] / np.sqrt(power + 1e-5) * x["gain"])


@FEW
@given(
    batch=st.integers(1, 2),
    kv=st.integers(1, 2),
    group=st.integers(1, 2),
    n=small,
    more=st.integers(0, 3),
    d=small,
    causal=st.booleans(),
)
def test_attention_matches_a_loop_over_heads(batch, kv, group, n, more, d, causal):
    m = n + more
    sizes = {"batch": batch, "heads": kv * group, "n": n, "m": m, "d": d}
    x, y = run("attention", sizes, {"causal": causal, "kv_heads": kv})
    assert x["k"].shape == (batch, kv, m, d)
    for b in range(batch):
        for head in range(kv * group):
            scores = x["q"][b, head] @ x["k"][b, head // group].T / math.sqrt(d)
            if causal:  # the queries are the last n of the m positions
                scores[np.triu_indices(n, more + 1, m)] = -np.inf
            assert close(y["o"][b, head], softmax(scores) @ x["v"][b, head // group])


def test_attention_without_kv_heads_gives_each_head_its_own():
    x, y = run("attention", {"heads": 2, "n": 5, "d": 3}, {"causal": True})
    assert x["k"].shape == (1, 2, 5, 3)
    scores = x["q"] @ x["k"].swapaxes(2, 3) / math.sqrt(3)
    scores = np.where(np.tri(5) > 0, scores, -np.inf)
    assert close(y["o"], softmax(scores) @ x["v"])


@FEW
@given(
    batch=st.integers(1, 2),
    channels=st.integers(1, 2),
    n=st.integers(1, 40),
    causal=st.booleans(),
    gated=st.booleans(),
)
def test_fft_conv_matches_the_fourier_transform(batch, channels, n, causal, gated):
    sizes = {"batch": batch, "channels": channels, "n": n}
    x, y = run("fft_conv", sizes, {"causal": causal, "gated": gated})
    u = x["u"] * x["g"] if gated else x["u"]
    length = 2 * n if causal else n
    product = np.fft.rfft(u, length) * np.fft.rfft(x["k"], length)
    want = np.fft.irfft(product, length)[..., :n]
    assert close(y["y"], want * x["w"] if gated else want)


@FEW
@given(batch=st.integers(1, 3), t=st.integers(1, 5), h=small, e=small)
def test_lstm_matches_a_plain_loop(batch, t, h, e):
    x, y = run("lstm", {"batch": batch, "t": t, "h": h, "e": e})
    state, cell = np.zeros((batch, h)), np.zeros((batch, h))
    for step in range(t):
        gates = x["x"][:, step] @ x["w"].T + state @ x["u"].T + x["b"]
        i, f, g, o = np.split(gates, 4, axis=1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        state = sigmoid(o) * np.tanh(cell)
        assert close(y["y"][:, step], state)


@FEW
@given(batch=st.integers(1, 3), t=st.integers(1, 5), h=small, e=small)
def test_gru_matches_a_plain_loop(batch, t, h, e):
    x, y = run("gru", {"batch": batch, "t": t, "h": h, "e": e})
    state = np.zeros((batch, h))
    for step in range(t):
        r, z, n = np.split(x["x"][:, step] @ x["w"].T + x["b"], 3, axis=1)
        state_r, state_z, state_n = np.split(state @ x["u"].T + x["b_u"], 3, axis=1)
        new = np.tanh(n + sigmoid(r + state_r) * state_n)
        state = (1 - sigmoid(z + state_z)) * new + sigmoid(z + state_z) * state
        assert close(y["y"][:, step], state)


def test_sum_square_and_generated_dot_product_sum_the_first_squares():
    # 0 + 1 + 4 + 9 + 16 = 30
    for name in ("sum_square", "generated_dot_product"):
        x, y = run(name, {"n": 5})
        assert (x, y["total"]) == ({}, 30)


def test_accumulate_buffer_sums_the_generated_rows():
    # sum over n < 3 of n + d = 3 + 3 d
    x, y = run("accumulate_buffer", {"n": 3, "d": 4})
    assert (x, y["acc"].tolist()) == ({}, [3, 6, 9, 12])


def test_dot_product_and_outer_product_multiply_vectors():
    x, y = run("dot_product", {"n": 9})
    assert close(y["total"], np.dot(x["a"], x["b"]))
    x, y = run("outer_product", {"i": 3, "j": 4})
    assert close(y["c"], np.outer(x["a"], x["b"]))


def test_filter_sum_keeps_a_fair_share_of_the_rows():
    x, y = run("filter_sum", {"n": 1000})
    kept = (x["date"] >= -1) & (x["date"] < 1) & (abs(x["discount"]) <= 1) & (x["quantity"] < 0.5)
    assert 250 < kept.sum() < 400
    assert close(y["total"], (x["price"] * x["discount"])[kept].sum())


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_builds_at_size_one_in_its_plain_form(name):
    ones = dict.fromkeys(KERNELS[name].sizes, 1)
    options = {"kv_heads": 1} if name == "attention" else {}
    _, outputs = run(name, ones, options)
    assert outputs
    assert all(np.isfinite(value).all() for value in outputs.values())


@pytest.mark.parametrize("name", KERNELS)
def test_default_rewrites_keep_inputs_and_values(name):
    sizes = {axis: min(extent, 12) for axis, extent in KERNELS[name].sizes.items()}
    inputs, plain = run(name, sizes)
    again, rewritten = run(name, sizes, rewrites=None)
    assert {k: v.shape for k, v in again.items()} == {k: v.shape for k, v in inputs.items()}
    for output, value in plain.items():
        assert np.allclose(rewritten[output], value, rtol=1e-9, atol=1e-9)


def test_build_lets_an_axis_follow_another_unless_given():
    assert kernels.build("attention", {"n": 5}, rewrites=()).extent("m") == 5
    assert kernels.build("attention", {"n": 5, "m": 7}, rewrites=()).extent("m") == 7
    assert kernels.build("lstm", {"h": 3}, rewrites=()).extent("e") == 3


def test_build_refuses_all_faults_at_once_with_the_nearest_names():
    with pytest.raises(KernelError) as raised:
        kernels.build(
            "attention",
            {"head": 2, "n": 0, "d": 2.5},
            {"casual": True, "causal": "yes", "block": 0, "kv_heads": True},
            ["online_softmaxx"],
        )
    assert raised.value.faults == (
        "kernel attention: size must be of a known axis, got 'head'; did you mean heads?",
        "kernel attention: n must be a whole number >= 1, got 0",
        "kernel attention: d must be a whole number >= 1, got 2.5",
        "kernel attention: option must be known, got 'casual'; did you mean causal?",
        "kernel attention: causal must be true or false, got 'yes'",
        "kernel attention: block must be a whole number >= 1, got 0",
        "kernel attention: kv_heads must be a whole number >= 0, got True",
        "kernel attention: rewrite must be known, got 'online_softmaxx'; "
        "did you mean online_softmax?",
    )


def test_build_refuses_an_unknown_kernel_with_the_nearest_name():
    with pytest.raises(KernelError, match=r"got 'gemn'; did you mean gemm\?"):
        kernels.build("gemn")


def test_build_refuses_choices_and_combinations_that_do_not_exist():
    with pytest.raises(KernelError, match=r"activation must be one of none, relu, .* got 'rely'"):
        kernels.build("gemm", options={"activation": "rely"})
    with pytest.raises(KernelError, match="order must be one of 2, 3, got 4"):
        kernels.build("fft_conv", options={"order": 4})
    with pytest.raises(KernelError) as raised:
        kernels.build("attention", {"heads": 3, "n": 4, "m": 2}, {"causal": True, "kv_heads": 2})
    assert raised.value.faults == (
        "kernel attention: m must be >= n where causal (queries are the last n positions), "
        "got m=2 n=4",
        "kernel attention: kv_heads must divide heads, got kv_heads=2 heads=3",
    )


def test_settings_reads_texts():
    assert kernels.settings("attention", {"n": "4096", "causal": "true", "kv_heads": "1"}) == (
        {"n": 4096},
        {"causal": True, "kv_heads": 1},
    )
    assert kernels.settings("gemm", {"activation": "relu"}) == ({}, {"activation": "relu"})


def test_settings_refuses_all_faults_at_once():
    with pytest.raises(KernelError) as raised:
        kernels.settings("fft_conv", {"n": "-1", "causal": "maybe", "chanels": "2", "order": "5"})
    assert raised.value.faults == (
        "kernel fft_conv: n must be a whole number >= 1, got '-1'",
        "kernel fft_conv: causal must be true or false, got 'maybe'",
        "kernel fft_conv: size or option must be known, got 'chanels'; did you mean channels?",
        "kernel fft_conv: order must be one of 2, 3, got 5",
    )
