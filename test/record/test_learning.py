"""Models learn from recordings, without a simulator."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stand import IDS, Stand

pytest.importorskip("torch")

from an_control import load_policy
from an_control.cli import main
from an_control.learning.dagger.recorded import RecordedTeaching, read_task_and_episodes
from an_control.learning.dagger.settings import make_smoke_settings, read_recipe
from an_control.learning.recordings import read_recorded_traces, read_task_and_traces
from an_control.learning.runs.run_folder import pack_checkpoint, unpack_checkpoint
from an_control.policy import read_model, write_model
from an_control.policy.task import Task


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


def test_recorded_commands_are_imitated(walked: Path, tmp_path: Path) -> None:
    task, episodes = read_task_and_episodes([walked], "tiny")
    settings = make_smoke_settings(read_recipe("quick"))
    settings = replace(settings, identify_updates=60, updates=40, rounds=1, faults={})
    learner = RecordedTeaching(task, episodes, settings, seed=1)
    assert learner.steps == 2
    lines = [learner.step(), learner.step()]
    assert lines[1]["action_loss"] < lines[0]["action_loss"]
    again = RecordedTeaching(task, episodes, settings, seed=1)
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


def test_a_recording_of_another_robot_is_refused(
    stand: Stand, walked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = read_model(stand.model)
    task = Task("other", "", ("a", "b", "c", "d"), ("left", "right"), 0.01)
    other = tmp_path / "other.safetensors"
    write_model(other, type(model)(model.kind, model.sizes, model.arrays, task))
    assert main(["train-monitor", str(other), "--bag", str(walked)]) == 2
    assert "has no channel a, b, c, d" in capsys.readouterr().err
