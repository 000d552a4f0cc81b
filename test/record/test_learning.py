"""Models learn from recordings, without a simulator."""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stand import IDS, Stand, tiny_model

pytest.importorskip("torch")

from an_control import load_policy
from an_control.cli import main
from an_control.learning.dagger.cloning import CloningSettings, fit_network_to_commands
from an_control.learning.dagger.recorded import RecordedTeaching, read_task_and_episodes
from an_control.learning.dagger.settings import make_smoke_test_settings, read_recipe
from an_control.learning.dagger.streams import DaggerEpisode
from an_control.learning.excitation import ExcitationOptions, record_excitation
from an_control.learning.recordings import read_recorded_traces, read_task_and_traces
from an_control.learning.runs.run_folder import pack_checkpoint, unpack_checkpoint
from an_control.learning.teacher.teachers import make_network_teacher
from an_control.monitor.excitation import read_excitation
from an_control.policy import read_model, write_model
from an_control.policy.task import Task
from an_control.record.arrays import RecordedArrays, read_arrays
from an_control.record.reader import Bag, load_recorded_wiring


@pytest.fixture
def walked(stand: Stand, tmp_path: Path) -> Path:
    """The recording of two episodes."""
    model = read_model(stand.model)
    task = Task("tiny", "", IDS, ("left", "right"), 0.01)
    write_model(stand.model, type(model)(model.kind, model.sizes, model.arrays, task))
    stand.start(record=str(tmp_path / "bags"))
    for step in range(80):
        stand.step(step)
        if step == 39:
            stand.reset()
    stand.node.trigger_shutdown()
    (found,) = (tmp_path / "bags").iterdir()
    return found


def test_episodes_hold_readings_and_the_actions_that_were_sent(stand: Stand, walked: Path) -> None:
    traces = read_recorded_traces([walked], stand.model, read_model(stand.model))
    assert [len(one.actions) for one in traces] == [39, 39]
    sent = np.array([one.effort for one in stand.commands])
    np.testing.assert_allclose(traces[0].actions, sent[:39] / 10.0, rtol=1e-6)
    assert traces[1].readings.shape == (40, 4)
    task, again = read_task_and_traces([walked], "mine")
    assert task == Task("mine", "", IDS, ("left", "right"), 0.01)
    assert again[0].actions.tobytes() == traces[0].actions.tobytes()


def test_a_monitor_is_learned_from_a_recording(
    stand: Stand, walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "watched.safetensors"
    words = ["--updates", "3", "--imputation-updates", "3", "--hidden", "8", "8"]
    assert (
        main(["train-monitor", str(stand.model), "--bag", str(walked), "--out", str(out), *words])
        == 0
    )
    assert "not validated" in capsys.readouterr().out
    model = read_model(out)
    assert model.forward is not None
    assert model.forward.validation is None
    assert model.trained["forward"]["steps"] == 78
    policy = load_policy(out, "match", engine="numpy")
    policy.step(dict.fromkeys(IDS, 0.5))
    assert policy.monitor_report is not None
    refused = ["train-monitor", str(stand.model), "--bag", str(walked), "--validate"]
    assert main(refused) == 2


def test_the_monitor_of_an_onnx_file_is_learned_beside_it_from_a_recording(
    walked: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("onnxruntime")
    from foreign.networks import linear, save

    names = {"observation_names": ",".join(IDS), "joint_names": "left,right", "step_s": "0.01"}
    policy = save(tmp_path, linear(4, 2, names))
    beside = tmp_path / "policy.monitor.safetensors"
    words = ["--updates", "3", "--imputation-updates", "3", "--hidden", "8", "8"]
    train = ["train-monitor", str(policy), "--bag", str(walked), *words]
    assert main(train) == 0
    said = capsys.readouterr().out
    assert f"train-monitor {policy} --validate" in said
    assert said.splitlines()[-1] == str(beside)
    assert read_model(policy).forward is not None
    beside.write_bytes(b"of another version")
    assert main(train) == 0, "it is replaced"
    monkeypatch.setattr("an_control.learning.recordings.read_recorded_traces", None)
    for name in ("other.safetensors", "other.onnx"):
        assert main([*train, "--out", str(tmp_path / name)]) == 2
        assert f"lies beside it, {beside}" in capsys.readouterr().err


def test_recorded_commands_are_imitated(walked: Path, tmp_path: Path) -> None:
    task, episodes = read_task_and_episodes([walked], "tiny")
    settings = make_smoke_test_settings(read_recipe("quick"))
    settings = replace(settings, identify_updates=60, updates=40, rounds=1, faults={})
    cloning = CloningSettings(hidden=(16,), updates=20)
    learner = RecordedTeaching(task, episodes, settings, seed=1, cloning=cloning)
    assert learner.total_step_calls == 2
    lines = [learner.step(), learner.step()]
    assert lines[1]["action_loss"] < lines[0]["action_loss"]
    again = RecordedTeaching(task, episodes, settings, seed=1, cloning=cloning)
    again.step()
    again.restore(unpack_checkpoint(pack_checkpoint(again.make_checkpoint())))
    again.step()
    assert all(
        array.tobytes() == again.make_model().arrays[name].tobytes()
        for name, array in learner.make_model().arrays.items()
    )


def test_the_verb_imitates_recordings(walked: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["distill", "tiny", "--bag", str(walked), "--out", str(out), "--smoke"]) == 0
    policy = load_policy(out / "model.safetensors", engine="numpy")
    assert policy.nominal_ids == IDS
    assert policy.model.task.actuators == ("left", "right")
    refused = ["distill", "tiny", "--bag", str(walked), "--out", str(out), "--minutes", "3"]
    assert main(refused) == 2


def test_the_verb_clones_recordings_into_a_network_in_order(
    walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    words = ["distill", "tiny", "--bag", str(walked), "--out", str(out), "--ordered"]
    assert main([*words, "--smoke"]) == 0
    policy = load_policy(out / "model.safetensors", engine="numpy")
    assert policy.model.kind == "mlp"
    assert policy.nominal_ids == IDS
    assert main([*words, "--smoke"]) == 0  # the finished run is continued
    assert main([*words, "--recipe", "quick"]) == 2
    assert "--recipe: not with --ordered" in capsys.readouterr().err
    assert main(["distill", "tiny", "--out", str(tmp_path / "other"), "--ordered"]) == 2
    assert "only with --bag" in capsys.readouterr().err


def test_no_excitation_is_made_of_channels_that_are_missing_at_the_beginning(
    stand: Stand, walked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_late(bag: Bag) -> RecordedArrays:
        arrays = read_arrays(bag)
        arrays.readings[np.flatnonzero(np.diff(arrays.episode, prepend=-1)), 1] = np.nan
        return arrays

    monkeypatch.setattr("an_control.learning.recordings.read_arrays", read_late)
    options = ExcitationOptions(Path(stand.model), bag=(walked,) * 5)
    with pytest.raises(ValueError, match=f"missing at the beginning of episodes: {IDS[1]}$"):
        record_excitation(options, read_model(stand.model))
    traces = read_recorded_traces([walked], stand.model, read_model(stand.model))
    assert traces[0].readings[0, 1] == 0.0 and np.isfinite(traces[0].readings).all()


def test_an_excitation_is_the_mean_beginning_of_recorded_episodes(
    walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    out, policy = tmp_path / "run", tmp_path / "policy.onnx"
    clone = ["distill", "tiny", "--bag", str(walked), "--out", str(out), "--ordered", "--smoke"]
    assert main(clone) == 0
    assert main(["export", str(out / "model.safetensors"), "--onnx", str(policy)]) == 0
    words = ["record-excitation", str(policy), "--seconds", "0.2", "--bag"]
    assert main([*words, *[str(walked)] * 5]) == 0
    excitation = read_excitation(tmp_path / "policy.excitation.safetensors")
    traces = read_recorded_traces([walked], policy, read_model(policy))
    assert excitation.motion.shape == (20, 2) and excitation.runs.shape == (10, 21, 4)
    mean = np.mean([one.actions[:20] for one in traces], axis=0)
    np.testing.assert_allclose(excitation.motion, mean, rtol=1e-5)
    np.testing.assert_array_equal(excitation.runs[0], traces[0].readings[:21].astype(np.float32))
    for refused, reason in (
        ([*words, str(walked)], "--bag: 2 episodes of 0.2 s or more; at least 10 are needed"),
        ([*words, str(walked), "--amplitude", "0.3"], "--bag: not with --amplitude"),
        ([*words, str(walked), "--seconds", "0.05"], "--seconds 0.05: must be from 0.1 to 10.0"),
        (words[:2], "--amplitude: is needed"),
    ):
        capsys.readouterr()
        assert main(refused) == 2
        error = capsys.readouterr().err.strip()
        assert reason in error and "\n" not in error


def test_a_recording_of_another_robot_is_refused(
    stand: Stand, walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = read_model(stand.model)
    task = Task("other", "", ("a", "b", "c", "d"), ("left", "right"), 0.01)
    other = tmp_path / "other.safetensors"
    write_model(other, type(model)(model.kind, model.sizes, model.arrays, task))
    assert main(["train-monitor", str(other), "--bag", str(walked)]) == 2
    assert "has no channel a, b, c, d" in capsys.readouterr().err
    tiny_model(other, actions=3)
    assert main(["train-monitor", str(other), "--bag", str(walked)]) == 2
    assert f"the wiring in {walked}: command.actuators: 2 is" in capsys.readouterr().err


def test_recordings_of_different_rates_are_not_mixed(
    stand: Stand, walked: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates_hz = itertools.cycle((100.0, 50.0))
    monkeypatch.setattr(
        "an_control.learning.recordings.load_recorded_wiring",
        lambda text, bag: replace(load_recorded_wiring(text, bag), rate_hz=next(rates_hz)),
    )
    for read in (
        lambda paths: read_task_and_traces(paths, "mine"),
        lambda paths: read_recorded_traces(paths, stand.model, read_model(stand.model)),
    ):
        with pytest.raises(ValueError, match=r"has 50 ticks per second, but .* has 100"):
            read([walked, walked])


def test_recorded_commands_are_cloned_from_single_ticks() -> None:
    rng = np.random.default_rng(0)
    readings = rng.normal(5.0, 2.0, (400, 4)).astype(np.float32)
    readings[:, 2] = 1e-3  # never varies, so that it cannot tell anything
    actions = np.tanh(readings[:, :2] - 5.0)
    episode = DaggerEpisode(readings, 0.0 * actions, actions)
    settings = CloningSettings(hidden=(32,), updates=800, rate=1e-2, averaging=0.9)
    layers = fit_network_to_commands([episode], "tanh", settings, seed=1)
    assert not layers[0][0][:, 2].any()
    clone = make_network_teacher(layers, "tanh")
    errors = [clone(one) - action for one, action in zip(readings, actions, strict=True)]
    assert np.abs(errors).mean() < 0.03


def test_the_head_starts_as_the_clone_of_the_recorded_commands(walked: Path) -> None:
    task, episodes = read_task_and_episodes([walked], "tiny")
    settings = replace(make_smoke_test_settings(read_recipe("quick")), identify_updates=1)
    settings = replace(settings, identify_rate=1e-9)
    cloning = CloningSettings(hidden=(12, 6), updates=5)
    learner = RecordedTeaching(task, episodes, settings, seed=1, cloning=cloning)
    learner.step()
    (first, *_), model = (
        fit_network_to_commands(episodes, "clip", cloning, seed=1),
        learner.make_model(),
    )
    assert model.sizes.head == [12, 6]
    np.testing.assert_allclose(model.arrays["head.0.weight"][:, :4], first[0], rtol=1e-3)
