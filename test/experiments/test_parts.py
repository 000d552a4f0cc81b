"""The script that compares poolings and memories on the cart-pole."""

import json
from itertools import product
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import CARTPOLE_TASK
from experiments.parts import run as parts


def written(policy, seed: int, returns: list[float]) -> None:
    rows = [
        {"protocol": name, "mean": mean, "sd": 4.0, "success_share": 0.5, "episodes": [{}] * 3}
        for name, mean in zip(parts.PROTOCOLS, returns, strict=True)
    ]
    run = policy.runs_folder / str(seed)
    run.mkdir(parents=True, exist_ok=True)
    (run / "rows.json").write_text(json.dumps({"protocols": rows}))
    write_model(run / "model.safetensors", make_random_model(MLP, seed=1, task=CARTPOLE_TASK))


def collected(kept, *policies):
    """With the settings of the table, and a teacher that nobody knows."""
    settings = {one.runs_folder: one.make_run_settings(Path("none"), 4.0, 3) for one in policies}
    return parts.update_results_file(kept, settings)


def test_all_policies_have_about_as_many_parameters(tmp_path):
    policies = [
        parts.ComparedPolicy(*one, tmp_path) for one in product(parts.POOLINGS, parts.MEMORIES)
    ]
    counts = [parts.count_parameters(one.make_sizes(one.neuron_width)) for one in policies]
    assert len(counts) == 15 and max(counts) < 1.07 * min(counts)


MLP = MlpSizes(channels=5, actions=1, head=[8])
PAIRS = [("ISAB + PMA", "GTrXL"), ("sinusoid", "GRU"), ("learned queries", "none")]


@pytest.mark.parametrize(("pooling", "memory"), PAIRS)
def test_a_policy_is_learned_with_the_parts_that_its_row_names(tmp_path, pooling, memory):
    teacher = tmp_path / "teacher.safetensors"
    write_model(teacher, make_random_model(MLP, seed=1, task=CARTPOLE_TASK))
    policy = parts.ComparedPolicy(pooling, memory, tmp_path)
    policy.train_and_evaluate(teacher, seed=1, minutes=0.001, episodes=1)
    learned = read_model(policy.runs_folder / "1/model.safetensors")
    wanted = policy.make_sizes(policy.neuron_width)
    assert learned.sizes.list_array_shapes() == wanted.list_array_shapes()
    assert (learned.sizes.attention == "pma") == ("PMA" in pooling)
    settings = policy.make_run_settings(teacher, 0.001, 1)
    found = parts.update_results_file(tmp_path / "kept.json", {policy.runs_folder: settings})
    assert (
        policy.make_results_table_row(found)[2]
        == str(parts.count_parameters(wanted))
        == str(learned.parameter_count)
    )
    assert set(found[policy.runs_folder.name]["1"]["protocols"]) == set(parts.PROTOCOLS)
    assert found[policy.runs_folder.name]["1"]["settings"] == settings
    policy.train_and_evaluate(teacher, seed=1, minutes=0.001, episodes=1)  # there already


def test_a_row_has_means_over_seeds_with_their_errors_and_success_shares(tmp_path):
    policy, kept = parts.ComparedPolicy("PMA", "none", tmp_path), tmp_path / "kept.json"
    written(policy, 1, [100.0, 50.0, 20.0, 10.0])
    assert policy.make_results_table_row(collected(kept, policy))[3:5] == ["1", "100 (50%)"]
    written(policy, 2, [140.0, 50.0, 20.0, 10.0])
    found = collected(kept, policy)
    assert policy.make_results_table_row(found)[3:6] == ["2", "120 +- 20 (50%)", "50 +- 0 (50%)"]
    everything = [policy, parts.ComparedPolicy("sinusoid", "GRU", tmp_path)]
    assert parts.make_markdown_results_table(everything, found).count("\n") == 2
    parts.draw_returns_as_bars(everything, found, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").stat().st_size > 10_000


def test_results_are_kept_without_their_runs_and_a_new_run_takes_their_place(tmp_path):
    kept, lost = tmp_path / "kept.json", parts.ComparedPolicy("PMA", "none", tmp_path / "lost")
    written(lost, 1, [100.0, 50.0, 20.0, 10.0])
    first = collected(kept, lost)
    again = parts.ComparedPolicy("PMA", "none", tmp_path / "again")
    assert collected(kept, again) == first
    written(again, 1, [200.0, 50.0, 20.0, 10.0])
    found = collected(kept, again)
    assert (
        again.make_results_table_row(found)[3:5] == ["1", "200 (50%)"]
        and json.loads(kept.read_text()) == found
    )


def with_settings(policy, seed: int, **settings) -> None:
    written(policy, seed, [100.0, 50.0, 20.0, 10.0])
    (policy.runs_folder / f"{seed}/settings.json").write_text(json.dumps(settings))


def test_a_trial_is_not_one_more_seed_of_a_table(tmp_path):
    policy, kept = parts.ComparedPolicy("PMA", "none", tmp_path / "out"), tmp_path / "kept.json"
    with_settings(policy, 9, minutes=0.1, episodes=3)
    with pytest.raises(
        parts.SettingsMismatchError, match=r"PMA_with_none/9: minutes was 0.1, not 4.0"
    ):
        collected(kept, policy)
    assert not kept.exists()
    parts.update_results_file(kept, {policy.runs_folder: {"minutes": 0.1, "episodes": 3}})
    elsewhere = parts.ComparedPolicy("PMA", "none", tmp_path / "elsewhere")
    with pytest.raises(
        parts.SettingsMismatchError, match=r"kept.json: PMA_with_none/9: minutes was 0.1"
    ):
        collected(kept, elsewhere)


def test_a_repeated_seed_with_another_teacher_or_number_of_episodes_is_refused(tmp_path):
    teacher, policy = (
        tmp_path / "teacher.safetensors",
        parts.ComparedPolicy("PMA", "none", tmp_path),
    )
    write_model(teacher, make_random_model(MLP, seed=1, task=CARTPOLE_TASK))
    with_settings(policy, 1, **policy.make_run_settings(teacher, 4.0, 3))
    policy.train_and_evaluate(teacher, 1, 4.0, 3)
    with pytest.raises(
        parts.SettingsMismatchError, match="PMA_with_none/1: episodes was 3, not 100"
    ):
        policy.train_and_evaluate(teacher, 1, 4.0, 100)
    write_model(teacher, make_random_model(MLP, seed=2, task=CARTPOLE_TASK))
    with pytest.raises(parts.SettingsMismatchError, match="PMA_with_none/1: teacher was "):
        policy.train_and_evaluate(teacher, 1, 4.0, 3)


def test_a_run_whose_settings_nobody_wrote_down_stays(tmp_path):
    policy, kept = parts.ComparedPolicy("PMA", "none", tmp_path), tmp_path / "kept.json"
    written(policy, 1, [100.0, 50.0, 20.0, 10.0])
    assert "settings" not in collected(kept, policy)[policy.runs_folder.name]["1"]
    policy.train_and_evaluate(Path("none"), seed=1, minutes=1.0, episodes=1)


def test_other_settings_end_the_script_with_one_line(tmp_path, monkeypatch, capsys):
    policy = parts.ComparedPolicy("PMA", "none", tmp_path)
    with_settings(policy, 9, minutes=0.1, episodes=3)
    monkeypatch.setattr(parts, "KEPT", tmp_path / "kept.json")
    with pytest.raises(SystemExit) as ended:
        parts.main(["--out", str(tmp_path)])
    assert ended.value.code == 2 and "minutes was 0.1, not 4.0" in capsys.readouterr().err
