"""simulate and map from end to end, on the machine for tests."""

import json
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest

import hwspecs
from dataflow.kernels import build
from dataflow.reference import evaluate
from dataflow.report import STALLS

SMALL = ("gemm", "--hw", "tiny", "--set", "i=8", "j=8", "k=8")


def test_simulate_as_json_checks_values_and_keeps_the_bound(tileloom) -> None:
    data = tileloom("simulate", *SMALL, "--json").json
    assert data["sizes"] == {"i": 8, "j": 8, "k": 8}
    assert data["values"]["checked"] and data["values"]["passed"]
    assert data["values"]["max_abs_error"] <= data["values"]["error_bound"]
    assert data["cycles"] >= data["mapping_bound_cycles"]
    assert data["cycles"] >= data["bound_cycles"] > 0
    assert data["complete"] is True


def test_simulate_accounts_for_every_cycle_of_every_unit(tileloom) -> None:
    data = tileloom("simulate", *SMALL, "--json").json
    assert data["units"]
    for unit in data["units"]:
        assert unit["busy"] + sum(unit[name] for name in STALLS) == data["cycles"], unit["unit"]


def test_simulate_prints_the_same_cycles_as_its_json(tileloom) -> None:
    cycles = tileloom("simulate", *SMALL, "--json").json["cycles"]
    outcome = tileloom("simulate", *SMALL, "--explain")
    assert outcome.code == 0
    assert f"{cycles:,}" in outcome.out
    assert "what each figure means" in outcome.out


def test_simulate_says_why_and_its_links_end_with_the_run(tileloom) -> None:
    data = tileloom("simulate", *SMALL, "--why", "5", "--json").json
    critical = data["critical"]
    assert sum(part["cycles"] for part in critical["parts"]) == data["cycles"]
    assert len(critical["links"]) == 5
    assert critical["links"][-1]["until"] == data["cycles"]
    printed = tileloom("simulate", *SMALL, "--why", "5", "--explain").out
    assert f"{critical['resource']}, {critical['share']:.1%} of the run" in printed
    assert "the last 5 of" in printed


def test_simulate_of_times_alone_is_traced_where_asked(tileloom) -> None:
    times = ("simulate", *SMALL, "--no-values", "--json")
    assert tileloom(*times, "--why", "1").json["critical"]["traced"]
    plain = tileloom(*times).json["critical"]
    assert plain == {"traced": False, "because": "--why 20 traces the run"}
    refused = tileloom(*times, "--engine", "fast", "--why", "1")
    assert refused.code == 2
    assert "--why: the fast engine keeps no causes" in refused.err


def test_simulate_on_banks_counts_their_rows(tileloom) -> None:
    data = tileloom("simulate", "dot_product", "--set", "n=4096", "--hw", "plasticine").out
    # 2 x 4096 elements of 4 B in bursts of 64 B
    assert "of 512 bursts" in data


def test_simulate_twice_gives_the_same_figures(tileloom) -> None:
    first, second = (tileloom("simulate", *SMALL, "--json").json for _ in range(2))
    for data in (first, second):
        assert data.pop("wall_seconds") > 0
        assert data.pop("mapping_seconds") > 0
    assert first == second


def test_simulate_takes_and_keeps_arrays(tileloom, tmp_path) -> None:
    given, kept = tmp_path / "in.npz", tmp_path / "out.npz"
    a, b = np.arange(64.0).reshape(8, 8), np.eye(8)
    np.savez(given, a=a, b=b)
    outcome = tileloom("simulate", *SMALL, "--inputs", given, "--outputs", kept, "--json")
    assert outcome.code == 0
    np.testing.assert_array_equal(np.load(kept)["c"], a)


def test_simulate_of_nan_says_so_and_still_compares(tileloom, tmp_path) -> None:
    given = tmp_path / "in.npz"
    np.savez(given, a=np.full((8, 8), np.nan))
    outcome = tileloom("simulate", *SMALL, "--inputs", given, "--json")
    assert "64 of 64 values are NaN or infinite" in outcome.err
    assert outcome.code == 0


def test_simulate_without_values_says_that_none_were_checked(tileloom) -> None:
    data = tileloom("simulate", *SMALL, "--no-values", "--json").json
    assert data["values"] == {"checked": False, "because": "--no-values was given"}


def test_simulate_stops_at_max_cycles_and_says_so(tileloom) -> None:
    data = tileloom("simulate", *SMALL, "--max-cycles", "20", "--json").json
    assert data["complete"] is False
    assert data["values"]["because"] == "the run did not end"
    assert "INTERRUPTED" in tileloom("simulate", *SMALL, "--max-cycles", "20").out


def test_simulate_with_wrong_values_exits_1(tileloom, monkeypatch) -> None:
    import dataflow.sim

    right = dataflow.sim.simulate

    def wrong(*args, **kwargs):
        result = right(*args, **kwargs)
        result.outputs["c"][0, 0] += 0.01
        return result

    monkeypatch.setattr(dataflow.sim, "simulate", wrong)
    outcome = tileloom("simulate", *SMALL, "--json")
    assert outcome.code == 1
    assert outcome.json["values"]["passed"] is False


def test_simulate_interrupted_reports_what_had_run_and_exits_130(tileloom, monkeypatch) -> None:
    import dataflow.sim

    right = dataflow.sim.simulate

    def stopped(*args, **kwargs):
        raise dataflow.sim.Interrupted(right(*args, **{**kwargs, "max_cycles": 20}))

    monkeypatch.setattr(dataflow.sim, "simulate", stopped)
    outcome = tileloom("simulate", *SMALL)
    assert outcome.code == 130
    assert "INTERRUPTED" in outcome.out


def test_simulate_draws_a_picture(tileloom, tmp_path) -> None:
    picture = tmp_path / "placement.png"
    assert tileloom("simulate", *SMALL, "--plot", picture).code == 0
    height, width, _ = matplotlib.image.imread(picture).shape
    assert height > 200
    assert width > 200


def test_simulate_takes_a_kernel_and_a_machine_of_the_users_own(tileloom, tmp_path) -> None:
    kernel, machine = tmp_path / "own.py", tmp_path / "own.yaml"
    kernel.write_text(
        "from dataflow.graph import Builder\n"
        "def scaled(n=8):\n"
        "    g = Builder('scaled', n=n)\n"
        "    g.output('y', g.map('mul', g.input('x', 'n'), 2.0))\n"
        "    return g.build()\n"
    )
    import hwspecs

    source = hwspecs.load.__globals__["_FOLDER"] / "tiny.yaml"
    machine.write_text(source.read_text().replace("name: tiny", "name: own"))
    outcome = tileloom("simulate", f"{kernel}:scaled", "--hw", machine, "--set", "n=12", "--json")
    assert outcome.json["machine"] == "own"
    assert outcome.json["sizes"] == {"n": 12}
    assert outcome.json["values"]["passed"]


def test_map_writes_a_file_that_simulate_takes(tileloom, tmp_path) -> None:
    file = tmp_path / "mapping.yaml"
    assert tileloom("map", *SMALL, "-o", file).code == 0
    plain = tileloom("simulate", *SMALL, "--json").json
    mapped = tileloom("simulate", "gemm", "--hw", "tiny", "--schedule", file, "--json").json
    assert mapped["cycles"] == plain["cycles"]
    assert mapped["sizes"] == plain["sizes"]


def test_map_as_json_places_every_unit(tileloom) -> None:
    data = json.loads(tileloom("map", *SMALL, "--json").out)
    assert data["placement"]
    assert data["schedule"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("kernel: gemm", "kernel: softmax"), "kernel must be gemm"),
        (("machine: tiny", "machine: plasticine"), "machine must be tiny"),
        (("model_version: '2'", "model_version: '0'"), "model_version must be 2"),
        (("placement:", "placment:"), "did you mean placement?"),
    ],
)
def test_simulate_refuses_a_mapping_file_of_something_else(
    tileloom, tmp_path, change, said
) -> None:
    file = tmp_path / "mapping.yaml"
    tileloom("map", *SMALL, "-o", file)
    text = file.read_text()
    assert change[0] in text
    file.write_text(text.replace(*change))
    outcome = tileloom("simulate", "gemm", "--hw", "tiny", "--schedule", file)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.startswith(f"{file}:")


def test_a_changed_schedule_runs_without_the_placement_that_it_had(tileloom, tmp_path) -> None:
    file = tmp_path / "mapping.yaml"
    tileloom("map", *SMALL, "-o", file)
    lines = file.read_text().splitlines(keepends=True)
    cell = next(i for i, line in enumerate(lines) if line.startswith("placement:")) + 2
    file.write_text("".join([*lines[:cell], "  - [7, 7]\n", *lines[cell + 1 :]]))
    args = ("simulate", "gemm", "--hw", "tiny", "--schedule", file, "--json")
    refused = tileloom(*args)
    assert refused.code == 2
    assert "placement" in refused.err
    assert "leave them out" in refused.err
    file.write_text("".join(lines[: cell - 2]))
    assert tileloom(*args).code == 0


def test_simulate_refuses_settings_that_a_mapping_file_is_not_for(tileloom, tmp_path) -> None:
    file = tmp_path / "mapping.yaml"
    tileloom("map", *SMALL, "-o", file)
    outcome = tileloom(
        "simulate", "gemm", "--hw", "tiny", "--schedule", file, "--set", "i=16", "--json"
    )
    assert outcome.code == 2
    assert "sizes.i must be 16, got 8" in outcome.err


def test_outputs_equal_the_plain_form_in_single_precision(tileloom, tmp_path) -> None:
    kept = tmp_path / "out.npz"
    args = ("softmax", "--set", "rows=4", "n=8", "--outputs", kept, "--inputs")
    given = tmp_path / "in.npz"
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    np.savez(given, x=x)
    assert tileloom("simulate", *args, given).code == 0
    graph = build("softmax", {"rows": 4, "n": 8}, None, ())
    np.testing.assert_allclose(np.load(kept)["y"], evaluate(graph, {"x": x})["y"], rtol=1e-5)


def test_simulate_does_not_decide_values_beyond_the_range_of_the_type(tileloom) -> None:
    sizes = ("--set", "n=100")  # squares up to 99 * 99
    outcome = tileloom("simulate", "sum_square", *sizes, "--hw", "plasticine_rnn", "--json")
    assert outcome.code == 0
    values = outcome.json["values"]
    assert values["checked"] is False
    assert "are beyond the range of fp8_e4m3 (448)" in values["because"]


def test_simulate_of_subnormals_is_within_rounding(tileloom, tmp_path) -> None:
    given = tmp_path / "in.npz"
    np.savez(given, a=np.random.default_rng(0).standard_normal((4, 4)) * 1e-40)
    sizes = ("--set", "i=4", "j=4", "k=4")
    outcome = tileloom("simulate", "gemm", *sizes, "--hw", "plasticine", "--inputs", given)
    assert outcome.code == 0


def _interrupt(*_args, **_kwargs):
    raise KeyboardInterrupt


def test_simulate_interrupted_while_checking_still_reports(tileloom, monkeypatch) -> None:
    import dataflow.check

    monkeypatch.setattr(dataflow.check, "check", _interrupt)
    outcome = tileloom("simulate", *SMALL, "--json")
    assert outcome.code == 130
    assert outcome.json["complete"] is True
    assert outcome.json["values"] == {"checked": False, "because": "interrupted"}


@pytest.mark.parametrize("excess", ["bound", "program_bound"])
def test_simulate_below_its_bound_is_said_to_be_a_bug(tileloom, monkeypatch, excess) -> None:
    from dataclasses import replace

    import mapping.bounds

    right = getattr(mapping.bounds, excess)
    monkeypatch.setattr(mapping.bounds, excess, lambda *args: replace(right(*args), cycles=10**9))
    outcome = tileloom("simulate", *SMALL, "--json")
    assert outcome.code == 1
    assert "fewer than the bound of 1000000000" in outcome.err
    assert "report it" in outcome.err
    assert outcome.json["cycles"] < 10**9
    assert tileloom("simulate", *SMALL, "--max-cycles", "20").code == 0


@pytest.mark.parametrize(
    "options",
    [
        ("simulate", *SMALL, "--outputs", "{}/nowhere/out.npz"),
        ("simulate", *SMALL, "--plot", "{}/nowhere/out.png"),
        ("map", *SMALL, "-o", "{}/nowhere/out.yaml"),
        ("simulate", *SMALL, "--outputs", "{}"),
    ],
)
def test_files_that_cannot_be_written_are_refused_before_the_run(
    tileloom, monkeypatch, tmp_path, options
) -> None:
    import mapping

    monkeypatch.setattr(mapping, "map_graph", _interrupt)
    outcome = tileloom(*(str(option).format(tmp_path) for option in options))
    assert outcome.code == 2
    assert str(tmp_path) in outcome.err
    assert outcome.err.startswith("-")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(
    "options", [("simulate", *SMALL, "--outputs"), ("map", *SMALL, "--output")]
)
def test_a_full_disk_is_named_after_the_report(tileloom, options) -> None:
    outcome = tileloom(*options, "/dev/full")
    assert outcome.code == 2
    assert "/dev/full: No space left on device" in outcome.err
    assert options[0] == "map" or "cycles" in outcome.out


def test_simulate_keeps_its_json_clear_of_a_users_prints(tileloom, tmp_path) -> None:
    kernel = tmp_path / "own.py"
    kernel.write_text(
        "from dataflow.graph import Builder\n"
        "print('loading')\n"
        "def scaled(n=8):\n"
        "    print('building')\n"
        "    g = Builder('scaled', n=n)\n"
        "    g.output('y', g.map('mul', g.input('x', 'n'), 2.0))\n"
        "    return g.build()\n"
    )
    outcome = tileloom("simulate", f"{kernel}:scaled", "--hw", "tiny", "--json")
    assert outcome.json["complete"]
    assert "loading" in outcome.err
    assert "building" in outcome.err


def test_simulate_says_what_a_little_more_would_bring(tileloom) -> None:
    asked = ("simulate", "dot_product", "--set", "n=512", "--hw", "tiny", "--no-values")
    data = tileloom(*asked, "--sensitivity", "--json").json
    rows = {row["with"]: row for row in data["sensitivity"]}
    faster = rows["10 % more off-chip bandwidth"]
    assert faster["cycles"] < data["cycles"]
    assert faster["saved"] == 1 - faster["cycles"] / data["cycles"]
    assert {change["path"].split(".")[0] for change in faster["changes"]} == {"off_chip"}
    assert [row["saved"] for row in data["sensitivity"] if row["with"] == "10 % faster clock"]
    printed = tileloom(*asked, "--sensitivity", "--explain").out
    assert "what a little more would bring" in printed
    assert f"{faster['cycles']:,}" in printed
    assert "no change with " in printed
    refused = tileloom(*asked, "--sensitivity", "--max-cycles", "9")
    assert refused.code == 2
    assert "--sensitivity: it must stand without --max-cycles" in refused.err


def test_simulate_gives_a_machine_changed_by_hand_the_cycles_that_sensitivity_says(
    tileloom, tmp_path
) -> None:
    asked = ("simulate", "dot_product", "--set", "n=512", "--no-values", "--json")
    data = tileloom(*asked, "--hw", "tiny", "--sensitivity").json
    rows = {row["with"]: row for row in data["sensitivity"]}
    more = rows["one more off-chip channel"]
    assert more["changes"] == [{"path": "off_chip.channels", "before": "1", "after": "2"}]
    text = (Path(hwspecs.__file__).parent / "tiny.yaml").read_text()
    assert text.count("  channels: 1 #") == 1
    file = tmp_path / "changed.yaml"
    file.write_text(text.replace("  channels: 1 #", "  channels: 2 #"))
    assert tileloom(*asked, "--hw", str(file)).json["cycles"] == more["cycles_anew"]
