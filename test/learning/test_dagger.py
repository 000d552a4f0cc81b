# ruff: noqa: E402
"""DAgger learns, continues to the same bits, and exports what it trained."""

import json
import time
from dataclasses import fields, replace
from itertools import count
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control.disturbance import TRAINING_SEEDS, derive_episode_seed
from an_control.learning.dagger.learner import Dagger
from an_control.learning.dagger.settings import StudentSizes, make_smoke_test_settings, read_recipe
from an_control.learning.dagger.streams import (
    DaggerEpisode,
    DaggerStreams,
    NoisyTeacher,
    PerturbedTeacher,
    RolloutSettings,
    StreamBatch,
    StreamSettings,
    StudentDriver,
    record_episode,
)
from an_control.learning.dagger.student import Student
from an_control.learning.runs.run_folder import CHECKPOINT, EpisodeRecordings, RunError, RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.teacher.teachers import load_pybullet_ant_teacher
from an_control.learning.training_disturbances import TrainingDisturbance
from an_control.load import load_policy, make_policy
from an_control.policy import read_model
from an_control.policy.task import Task
from an_control_sim.gym.environments import TASK_ENVIRONMENTS, make_environment

RECIPE = read_recipe("ant")
ENVIRONMENT = TASK_ENVIRONMENTS["ant"]
TEACHER = load_pybullet_ant_teacher()


@pytest.fixture(autouse=True, scope="module")
def _short_episodes():
    """200 steps instead of 1,000: all is there, and some ten times in a test."""
    import gymnasium

    import an_control_sim  # noqa: F401 - registers the Ant

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gymnasium.spec(ENVIRONMENT.rpartition(":")[2]), "max_episode_steps", 200)
        yield


@pytest.fixture(scope="module")
def env():
    env = make_environment(ENVIRONMENT)
    yield env
    env.close()


def dagger(folder, settings=None, seed=3) -> RunLoop:
    settings = make_smoke_test_settings(RECIPE) if settings is None else settings
    learner = Dagger(folder, "ant", ENVIRONMENT, TEACHER, settings, seed)
    return RunLoop(RunFolder(folder, learner.config), learner)


STAGES = Path(__file__).resolve().parents[2] / "experiments/ant_policy/recipes"


@pytest.mark.parametrize("recipe", ["third", pytest.param("first", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path, recipe):
    settings = make_smoke_test_settings(read_recipe(f"{STAGES}/{recipe}.yaml"))
    whole = dagger(tmp_path / "whole", settings)
    whole.run()
    for stop in (1, 3):
        part = dagger(tmp_path / "parts", settings)
        part.run(stop_after=stop)
    assert whole.is_finished and part.is_finished
    ours = read_model(part.model_path).arrays
    for name, array in read_model(whole.model_path).arrays.items():
        assert array.tobytes() == ours[name].tobytes(), name


def test_a_run_that_averages_gives_the_mean_of_its_rounds(tmp_path):
    means = {}
    for averaged in (False, True):
        recipe = read_recipe(f"{STAGES}/second.yaml")
        settings = replace(make_smoke_test_settings(recipe), averaged=averaged)
        learner = dagger(tmp_path / str(averaged), settings).learner
        students = []
        for _ in range(learner.total_step_calls):
            learner.step()
            students.append(learner.make_model())
        queries = [student.arrays["attention.queries"] for student in students]
        means[averaged] = queries[-1] if averaged else np.mean(queries, axis=0)
    np.testing.assert_allclose(means[True], means[False], atol=1e-6)


@pytest.fixture
def clock(monkeypatch):
    """Processor time: 100 s each time that it is asked for."""
    ticks = count(step=100.0)
    monkeypatch.setattr(time, "process_time", lambda: next(ticks))


def test_a_run_of_so_many_minutes_makes_rounds_until_they_are_over(tmp_path, clock):
    settings = replace(
        make_smoke_test_settings(RECIPE), rounds=1, validation_episodes=0, minutes=30.0
    )
    run = dagger(tmp_path, settings)
    run.run()
    assert run.learner.progress == 1.0 and run.done == run.learner.total_step_calls > 3
    assert 1800.0 <= run.learner.make_checkpoint()["cpu_s"][0] < 3000.0


def test_a_run_of_so_many_minutes_ends_where_its_students_are_as_good_as_the_teacher(
    tmp_path, monkeypatch
):
    settings = replace(
        make_smoke_test_settings(RECIPE), rounds=1, minutes=1e9, validation_episodes=1
    )
    run = dagger(tmp_path, settings)
    monkeypatch.setattr(
        run.learner,
        "_measure_driver_validation_returns",
        lambda driver, how, episode_set=0: np.ones(1),
    )
    run.run()
    assert run.is_finished and run.done == 5


def test_the_student_is_kept_that_is_best_with_the_two_rounds_before(tmp_path, monkeypatch):
    """A lucky early round was kept: 4,911 in ten episodes, 4,474 in a hundred."""
    settings = replace(make_smoke_test_settings(RECIPE), rounds=6, validation_episodes=1)
    run = dagger(tmp_path, settings)
    returns = iter([1000.0, 500.0, 910.0, 300.0, 890.0, 905.0, 900.0, 880.0])
    monkeypatch.setattr(
        run.learner,
        "_measure_driver_validation_returns",
        lambda driver, how, episode_set=0: np.array([next(returns)]),
    )
    run.run()
    validations = [line["validation"] for line in run.metrics]
    assert validations == pytest.approx([500.0, 705.0, 570.0, 700.0, 698.3, 898.3, 895.0], abs=0.1)
    assert read_model(run.model_path).trained["rounds"] == 6


def test_own_episodes_that_fail_are_left_out_but_for_the_best(tmp_path):
    settings = replace(make_smoke_test_settings(RECIPE), min_return=1e9, rounds=1)
    run = dagger(tmp_path, settings)
    run.run()
    stored = [
        EpisodeRecordings(tmp_path, DaggerEpisode).read_episodes(number) for number in range(2)
    ]
    assert [len(episodes) for episodes in stored] == [3, 1]
    assert run.metrics[1]["episodes"] == 3 and run.metrics[1]["return"] <= stored[1][0].total


def test_a_run_folder_explains_itself(tmp_path):
    run = dagger(tmp_path)
    run.run(stop_after=1)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["seed"] == 3 and config["settings"]["rounds"] == 2
    (line,) = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line)["round"] == 1
    assert load_policy(run.model_path).model.trained["seed"] == 3


def test_a_folder_of_another_run_is_refused(tmp_path):
    dagger(tmp_path).run(stop_after=1)
    with pytest.raises(RunError, match="other settings"):
        dagger(tmp_path, seed=4)


def test_a_full_disk_ends_a_run_with_its_last_round_intact(tmp_path, monkeypatch):
    dagger(tmp_path).run(stop_after=1)
    before = (tmp_path / CHECKPOINT).read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    part = dagger(tmp_path)
    with monkeypatch.context() as context, pytest.raises(RunError, match="No space left"):
        context.setattr("os.fsync", full)
        part.run()
    assert (tmp_path / CHECKPOINT).read_bytes() == before
    assert dagger(tmp_path).done == 1


def test_training_never_sees_an_evaluation_seed():
    assert (
        max(derive_episode_seed(seed, e) for seed in range(30) for e in range(30))
        < TRAINING_SEEDS[0]
    )


def test_an_episode_follows_from_its_generator_alone(env):
    policy = make_policy(Student(28, 8, StudentSizes()).make_model(Task(), {}))
    own = RolloutSettings(
        0.5, 0.1, 0.1, {TrainingDisturbance("missing=0.05..0.25,noise=1..6"): 1.0}
    )
    makers = [
        (lambda rng: PerturbedTeacher(rng, TEACHER, 0.1), RolloutSettings(shuffled=False)),
        (lambda rng: StudentDriver(rng, policy, own), own),
    ]
    for make, how in makers:
        one, two = (
            record_episode(
                env, TEACHER, make(rng), rng, how.draw_disturbance({}, rng), how.reshuffle
            )
            for rng in (np.random.default_rng(5), np.random.default_rng(5))
        )
        assert one.observations.tobytes() == two.observations.tobytes()
        assert one.total == two.total


def test_the_teacher_walks(env):
    rng = np.random.default_rng(0)
    assert record_episode(env, TEACHER, NoisyTeacher(rng, 0.0), rng).total > 400


def numbered(steps: int, channels: int = 8) -> DaggerEpisode:
    """Channel c shows 100 c + step."""
    readings = (np.arange(steps)[:, None] + 100 * np.arange(channels)).astype(np.float32)
    actions = np.zeros((steps, 2), np.float32)
    return DaggerEpisode(readings, actions, actions)


def test_a_slots_label_names_the_channel_that_it_shows():
    words = "missing=0.25,garbage=0.2,freeze=0.2,copies=2,noise=1"
    how = StreamSettings({TrainingDisturbance(words): 1.0}, reshuffled=1.0, action_noise=0.0)
    streams = DaggerStreams([numbered(120)], 3, 50, how, 1, np.random.default_rng(0))
    for _ in range(6):
        batch = streams.make_next_batch()
        expected = torch.take_along_dim(batch.ordered, batch.channel.clamp(max=7), 2)
        shown = (batch.channel < 8) & (batch.present == 1) & (batch.counts[..., None] == 1)
        assert shown.any() and (batch.values == expected)[shown].all()
        assert (batch.values[batch.present == 0] == 0).all()


def test_rows_continue_where_the_last_piece_ended_and_say_when_an_episode_starts():
    streams = DaggerStreams(
        [numbered(120)],
        1,
        50,
        StreamSettings({}, reshuffled=0.0, action_noise=0.0),
        1,
        np.random.default_rng(0),
    )
    batches = [streams.make_next_batch() for _ in range(4)]
    assert [bool(batch.fresh) for batch in batches] == [True, False, False, True]
    assert [batch.counts.sum().item() for batch in batches] == [50, 50, 20, 50]
    assert batches[1].ordered[0, 0, 0] == 50
    assert (batches[0].change[0] == 0).all() and (batches[1].change == 1).all()


def test_resetting_reshuffles_of_a_batch_share_two_steps_and_hide_the_jump():
    how = StreamSettings({}, reshuffled=1.0, reshuffle_every=(50,))
    rng = np.random.default_rng(0)
    streams = DaggerStreams([numbered(400)], 8, 50, how, 1, rng, reset_on_reshuffle=True)
    whole = 0
    for _ in range(8):
        batch = streams.make_next_batch()
        moments = batch.moved.any(1).nonzero().flatten()
        assert len(moments) <= 2
        whole += int(batch.moved.sum())
        if len(moments):
            assert (batch.moved[moments].amax(1) == 1).all()
        assert (batch.change[batch.moved > 0] == 0).all()
        assert (batch.channel[1:] != batch.channel[:-1]).any(-1)[batch.moved[1:] == 0].sum() == 0
    assert 40 < whole < 90


def test_neurons_are_reset_on_a_jump_and_the_head_remembers():
    torch.manual_seed(3)
    sizes = StudentSizes(
        neuron=6, key=4, head=(), memory=5, reset_on_jump=True, prediction_attention=True
    )
    student = Student(8, 2, sizes)
    how = StreamSettings({}, reshuffled=0.0, action_noise=0.0)
    streams = DaggerStreams([numbered(120)], 2, 50, how, 1, np.random.default_rng(0))
    batch = streams.make_next_batch()
    moved = torch.zeros(50, 2)
    moved[20, 1] = 1.0
    with torch.no_grad():
        start = student.make_initial_state(2, 8)
        cut_batch = replace(batch, moved=moved)
        plain, cut = student(batch, start), student(cut_batch, start)
        parts = (field.name for field in fields(StreamBatch) if field.name != "fresh")
        later = replace(cut_batch, **{name: getattr(cut_batch, name)[20:] for name in parts})
        fresh, _ = student.run_neurons(later, start)
        whole, _ = student.run_neurons(cut_batch, start)
    assert torch.equal(plain.action[:, 0], cut.action[:, 0])
    assert torch.equal(plain.action[:20, 1], cut.action[:20, 1])
    torch.testing.assert_close(whole[20:, 1], fresh[:, 1])
    torch.testing.assert_close(plain.expected[20, 1], cut.expected[20, 1])


@pytest.mark.parametrize("stack", [0, 4])
def test_a_student_takes_over_the_neurons_keys_and_queries_of_a_model(stack):
    torch.manual_seed(1)
    sizes = StudentSizes(neuron=8, key=5, products=True, stack=stack)
    first = Student(28, 8, sizes).make_model(Task(), {})
    again = Student(28, 8, replace(sizes, memory=6))
    again.load_identification_weights(first)
    arrays = again.make_model(Task(), {}).arrays
    for name, array in first.arrays.items():
        if not name.startswith("head."):
            np.testing.assert_allclose(arrays[name], array, atol=1e-6, err_msg=name)
    with pytest.raises(ValueError, match="start"):
        Student(28, 8, StudentSizes()).load_identification_weights(first)


def test_a_student_keeps_a_models_head_where_that_is_asked_for():
    torch.manual_seed(1)
    sizes = StudentSizes(neuron=8, key=5, head=(7, 6))
    first = Student(28, 8, sizes).make_model(Task(), {})
    again = Student(28, 8, sizes)
    again.load_identification_weights(first, with_head=True)
    for name, array in again.make_model(Task(), {}).arrays.items():
        np.testing.assert_allclose(array, first.arrays[name], atol=1e-6, err_msg=name)
    for other in ((7,), (7, 6, 5), (7, 5)):
        with pytest.raises(ValueError, match="start"):
            Student(28, 8, replace(sizes, head=other)).load_identification_weights(
                first, with_head=True
            )


def test_a_student_that_remembers_keeps_what_the_head_of_a_model_without_memory_does_to_readings():
    torch.manual_seed(1)
    sizes = StudentSizes(neuron=8, key=5, head=(7, 6))
    remembering = replace(sizes, memory=4)
    first = Student(28, 8, sizes)
    again, back = Student(28, 8, remembering), Student(28, 8, sizes)
    again.load_identification_weights(first.make_model(Task(), {}), with_head=True)
    back.load_identification_weights(again.make_model(Task(), {}), with_head=True)
    readings = torch.randn(3, 28)
    with torch.no_grad():
        action = first.run_head(torch.cat([readings, torch.zeros(3, 28)], -1))
        torch.testing.assert_close(
            again.run_head(torch.cat([readings, torch.randn(3, 4)], -1)), action
        )
        torch.testing.assert_close(
            back.run_head(torch.cat([readings, torch.randn(3, 28)], -1)), action
        )
    with pytest.raises(ValueError, match="start"):
        Student(28, 8, replace(remembering, head=(5, 6))).load_identification_weights(
            first.make_model(Task(), {}), with_head=True
        )


def test_a_student_that_remembers_goes_on_with_a_models_memory_and_head():
    torch.manual_seed(1)
    sizes = StudentSizes(
        neuron=8, key=5, head=(7,), memory=6, outlier_weighting=True, prediction_attention=True
    )
    first = Student(28, 8, sizes).make_model(Task(), {})
    again = Student(28, 8, replace(sizes, reset_on_jump=True))
    again.load_identification_weights(first, with_head=True)
    for name, array in again.make_model(Task(), {}).arrays.items():
        np.testing.assert_allclose(array, first.arrays[name], atol=1e-6, err_msg=name)
    with pytest.raises(ValueError, match="start"):
        Student(28, 8, replace(sizes, memory=5)).load_identification_weights(first)


def test_a_student_that_remembers_takes_a_models_memory_behind_a_teachers_head():
    """The Ant's neurons that know its channels walk at once with the head of a new teacher."""
    torch.manual_seed(1)
    sizes = StudentSizes(neuron=8, key=5, head=(7,), memory=6)
    first = Student(28, 8, sizes).make_model(Task(), {})
    layers = [(np.full(shape, 0.5), np.full(shape[0], 0.1)) for shape in ((7, 28), (8, 7))]
    again = Student(28, 8, sizes)
    again.copy_teacher_into_head(layers)
    again.load_identification_weights(first)
    arrays = again.make_model(Task(), {}).arrays
    for name, array in first.arrays.items():
        if not name.startswith("head."):
            np.testing.assert_allclose(arrays[name], array, atol=1e-6, err_msg=name)
    assert (arrays["head.0.weight"] == [[0.5] * 28 + [0.0] * 6] * 7).all()
    assert (arrays["head.1.weight"] == 0.5).all() and (arrays["head.1.bias"] == 0.1).all()


def test_added_slots_repeat_channels_or_carry_noise_and_some_are_missing():
    how = StreamSettings({TrainingDisturbance("copies=0..3,noise=0..3"): 1.0}, reshuffled=0.0)
    streams = DaggerStreams([numbered(60)], 32, 50, how, 1, np.random.default_rng(0))
    batch = streams.make_next_batch()
    assert batch.values.shape == (50, 32, 14) and batch.ordered.shape == (50, 32, 8)
    there, channel = batch.present[..., 8:] > 0, batch.channel[..., 8:]
    copies = there & (channel < 8)
    assert copies.any() and (there & (channel == 8)).any() and (~there).any()
    nominal = batch.ordered.gather(-1, channel.clamp(max=7))
    assert (batch.values[..., 8:][copies] == nominal[copies]).all()
    student = Student(8, 2, StudentSizes(neuron=4, key=4, head=(), normalise=True))
    assert student(batch, student.make_initial_state(32, 14)).action.shape == (50, 32, 2)


def test_a_missing_slot_adds_nothing_to_the_message():
    how = StreamSettings({TrainingDisturbance("missing=0.25"): 1.0})
    batch = DaggerStreams([numbered(60)], 2, 50, how, 1, np.random.default_rng(0)).make_next_batch()
    wild = torch.where(batch.present > 0, batch.values, 1e3)
    weights = torch.rand(50, 2, 8, 9).softmax(-1)
    assert (batch.present == 0).any()
    tame, wilder = (
        Student._sum_readings_by_channel(weights, x, batch.present) for x in (batch.values, wild)
    )
    assert torch.allclose(tame, wilder, atol=1e-3)


def test_the_true_message_shows_present_channels_and_nothing_else():
    words = "missing=0.25,garbage=0.2,copies=2"
    how = StreamSettings({TrainingDisturbance(words): 1.0}, reshuffled=1.0)
    batch = DaggerStreams(
        [numbered(120)], 2, 50, how, 1, np.random.default_rng(0)
    ).make_next_batch()
    student = Student(8, 2, StudentSizes(neuron=4, key=4, head=(), memory=3))
    shown, there = student.compute_perfect_attention_message(batch).split(8, -1)
    assert set(there.unique().tolist()) == {0.0, 1.0}
    assert (shown == torch.where(there > 0, batch.ordered, 0.0)).all()
    for row in range(2):
        seen = batch.channel[0, row][batch.present[0, row] > 0]
        assert set(seen[seen < 8].tolist()) == set(there[0, row].nonzero().flatten().tolist())
