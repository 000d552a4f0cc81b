"""The script that compares poolings and memories on the cart-pole."""

import json
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import random_model
from an_control.policy.tasks import CARTPOLE_TASK


@pytest.fixture
def parts(load_script):
    return load_script("compare_parts")


def written(parts, policy, seed: int, returns: list[float]) -> None:
    rows = [
        {"protocol": name, "mean": mean, "sd": 4.0, "success_share": 0.5, "episodes": [{}] * 3}
        for name, mean in zip(parts.PROTOCOLS, returns, strict=True)
    ]
    run = policy.runs / str(seed)
    run.mkdir(parents=True, exist_ok=True)
    (run / "rows.json").write_text(json.dumps({"protocols": rows}))
    write_model(run / "model.safetensors", random_model(MLP, seed=1, task=CARTPOLE_TASK))


def test_all_policies_have_about_as_many_parameters(parts, tmp_path):
    policies = [parts.Policy(*one, tmp_path) for one in product(parts.POOLINGS, parts.MEMORIES)]
    counts = [parts.parameters(one.sizes(one.neuron)) for one in policies]
    assert len(counts) == 15 and max(counts) < 1.07 * min(counts)


MLP = MlpSizes(channels=5, actions=1, head=[8])
PAIRS = [("ISAB + PMA", "GTrXL"), ("sinusoid", "GRU"), ("learned queries", "none")]


@pytest.mark.parametrize(("pooling", "memory"), PAIRS)
def test_a_policy_is_learned_with_the_parts_that_its_row_names(parts, tmp_path, pooling, memory):
    teacher = tmp_path / "teacher.safetensors"
    write_model(teacher, random_model(MLP, seed=1, task=CARTPOLE_TASK))
    policy = parts.Policy(pooling, memory, tmp_path)
    policy.make(teacher, seed=1, minutes=0.001, episodes=1)
    learned = read_model(policy.runs / "1/model.safetensors")
    wanted = policy.sizes(policy.neuron)
    assert learned.sizes.shapes() == wanted.shapes()
    assert (learned.sizes.attention == "pma") == ("PMA" in pooling)
    found = parts.collect(tmp_path / "kept.json", [policy.runs])
    assert policy.row(found)[2] == str(parts.parameters(wanted)) == str(learned.parameters)
    assert set(found[policy.runs.name]["1"]["protocols"]) == set(parts.PROTOCOLS)
    policy.make(Path("none"), seed=1, minutes=0.0, episodes=1)  # there already


def test_a_row_has_means_over_seeds_with_their_errors_and_success_shares(parts, tmp_path):
    policy, kept = parts.Policy("PMA", "none", tmp_path), tmp_path / "kept.json"
    written(parts, policy, 1, [100.0, 50.0, 20.0, 10.0])
    assert policy.row(parts.collect(kept, [policy.runs]))[3:5] == ["1", "100 (50%)"]
    written(parts, policy, 2, [140.0, 50.0, 20.0, 10.0])
    found = parts.collect(kept, [policy.runs])
    assert policy.row(found)[3:6] == ["2", "120 +- 20 (50%)", "50 +- 0 (50%)"]
    everything = [policy, parts.Policy("sinusoid", "GRU", tmp_path)]
    assert parts.table(everything, found).count("\n") == 2
    parts.picture(everything, found, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 10_000


def test_results_are_kept_without_their_runs_and_a_new_run_takes_their_place(parts, tmp_path):
    kept, lost = tmp_path / "kept.json", parts.Policy("PMA", "none", tmp_path / "lost")
    written(parts, lost, 1, [100.0, 50.0, 20.0, 10.0])
    first = parts.collect(kept, [lost.runs])
    again = parts.Policy("PMA", "none", tmp_path / "again")
    assert parts.collect(kept, [again.runs]) == first
    written(parts, again, 1, [200.0, 50.0, 20.0, 10.0])
    found = parts.collect(kept, [again.runs])
    assert again.row(found)[3:5] == ["1", "200 (50%)"] and json.loads(kept.read_text()) == found
