"""Imitation from image patches: the teacher drives, the student learns, a stopped run resumes."""

import dataclasses

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import TimeLimit

for module in ("torch", "Box2D", "pygame", "ale_py", "cv2"):
    pytest.importorskip(module, reason="needs the sim and train extras")
import torch  # noqa: E402

from an_control.disturbance import DisturbanceSettings, Disturber  # noqa: E402
from an_control.disturbance.patches import PatchDisturber  # noqa: E402
from an_control.learning.dagger.image_patches.batches import (  # noqa: E402
    PatchBatches,
    merge_equal_patches,
    replace_static_patches_by_mean,
)
from an_control.learning.dagger.image_patches.episodes import (  # noqa: E402
    PatchEpisode,
    draw_random_background,
    draw_seen_frame_and_action_step_indices,
    record_episode,
    replace_grass_by_picture,
)
from an_control.learning.dagger.image_patches.learner import PatchDagger, make_student  # noqa: E402
from an_control.learning.dagger.image_patches.student import VisionStudent  # noqa: E402
from an_control.learning.dagger.settings import make_patch_smoke_test_settings, read_recipe  # noqa: E402
from an_control.learning.evaluation.evaluate import play_episodes  # noqa: E402
from an_control.learning.rollout.engine import EpisodeSeeds  # noqa: E402
from an_control.learning.rollout.episode import play_episode  # noqa: E402
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol  # noqa: E402
from an_control.learning.runs.run_folder import RunFolder  # noqa: E402
from an_control.learning.runs.run_loop import RunLoop  # noqa: E402
from an_control.learning.training_disturbances import PatchDisturbance, make_placeholder_ids  # noqa: E402
from an_control.load import make_policy  # noqa: E402
from an_control.policy import Policy, read_model  # noqa: E402
from an_control.policy.task import Task  # noqa: E402
from an_control.system.share import find_share_path  # noqa: E402
from an_control.wiring.image import cut_patches  # noqa: E402
from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment  # noqa: E402

PATCH_RECIPES = {task: read_recipe(task) for task in ("car_racing", "pong")}
TASKS = sorted(PATCH_RECIPES)


@pytest.fixture(params=TASKS)
def task(request):
    return request.param


@pytest.fixture
def env(task):
    env = make_environment(find_environment_id(task))
    yield env
    env.close()


def shown(env, steps=25):
    """Views (3, 4, H, W) of a moving game, one a while after the other."""
    env.reset(seed=1)
    views = []
    for step in range(steps):
        env.step(np.full(env.action_space.shape, 0.3, np.float32))
        if step % 10 == 4:
            views.append(env.unwrapped.frames.copy())
    return np.stack(views)


def test_the_mean_of_the_patches_that_show_no_change_stands_for_all_of_them(task, env):
    views = shown(env)
    settings = PATCH_RECIPES[task]
    student = make_student(settings, 1)
    missing = np.zeros((len(views), len(env.unwrapped.channels)), np.bool_)
    rng = np.random.default_rng(0)
    missing[1, rng.permutation(missing.shape[1])[:50]] = True
    seen = replace_static_patches_by_mean(views, 6, missing, 1000, rng)
    assert seen.patches.shape[1] < missing.shape[1]
    np.testing.assert_array_equal(seen.counts.sum(axis=1), (~missing).sum(axis=1))
    everything, one_each = [], []
    for view, gone in zip(views, missing, strict=True):
        rows, columns = view.shape[1] // 6, view.shape[2] // 6
        cut = view.reshape(4, rows, 6, columns, 6).transpose(1, 3, 0, 2, 4)
        everything.append(cut.reshape(rows * columns, 4, 6, 6))
        one_each.append((~gone).astype(np.float32))
    previous = torch.zeros(len(views), settings.student.actions)
    with torch.no_grad():
        patches, still, counts = map(torch.from_numpy, seen)
        by_count = student.compute_attention_message(
            patches, previous, patch_counts=counts, mean_still_patch=still
        )
        by_all = student.compute_attention_message(
            torch.from_numpy(np.stack(everything)),
            previous,
            patch_counts=torch.from_numpy(np.stack(one_each)),
        )
    torch.testing.assert_close(by_count, by_all, rtol=1e-3, atol=1e-3)


def test_each_different_patch_stands_for_all_that_are_equal_where_seeds_pool(task, env):
    views = shown(env)
    sizes = PATCH_RECIPES[task].student
    sizes = dataclasses.replace(sizes, attention="pma", encoder="isab", inducing=4, heads=2)
    student = VisionStudent(sizes, 1)
    rng = np.random.default_rng(0)
    missing = rng.random((len(views), len(env.unwrapped.channels))) < 0.3
    seen = merge_equal_patches(views, 6, missing, 1000, rng)
    assert seen.patches.shape[1] < missing.shape[1]
    np.testing.assert_array_equal(seen.counts.sum(axis=1), (~missing).sum(axis=1))
    rows, columns = views.shape[2] // 6, views.shape[3] // 6
    cut = views.reshape(len(views), 4, rows, 6, columns, 6).transpose(0, 2, 4, 1, 3, 5)
    everything = torch.from_numpy(cut.reshape(len(views), rows * columns, 4, 6, 6).copy())
    previous = torch.zeros(len(views), sizes.actions)
    with torch.no_grad():
        patches, still, counts = map(torch.from_numpy, seen)
        by_count = student.compute_attention_message(
            patches, previous, patch_counts=counts, mean_still_patch=still
        )
        by_all = student.compute_attention_message(everything, previous, torch.from_numpy(~missing))
    torch.testing.assert_close(by_count, by_all, rtol=1e-3, atol=1e-3)
    few = merge_equal_patches(views, 6, missing, 5, rng)
    assert few.patches.shape[1] == 6 and (few.counts[:, 1:] > 0).all()


def test_the_student_acts_as_the_policy_that_it_becomes(task, env):
    settings = PATCH_RECIPES[task]
    student = make_student(settings, 2)
    policy = make_policy(
        student.make_model(describe_task(env, task, find_environment_id(task)), {})
    )
    patches, _ = env.reset(seed=4)
    units = torch.zeros(1, settings.student.memory)
    for _ in range(10):
        previous = torch.from_numpy(policy.previous_action)[None, None]
        with torch.no_grad():
            message = student.compute_attention_message(
                torch.from_numpy(patches)[None, None], previous
            )
            scores, units = student.run_convolving_head(message, previous, units)
        action = policy.step_array(patches, env.unwrapped.channels)
        if settings.student.choice:
            assert int(scores.argmax()) == int(action.argmax())
        else:
            np.testing.assert_allclose(action, scores.tanh()[0, 0].numpy(), atol=1e-4)
        patches, *_ = env.step(action)


def test_the_previous_action_makes_no_difference_behind_a_softmax(task, env):
    patches, _ = env.reset(seed=4)
    student = make_student(PATCH_RECIPES[task], 2)
    with torch.no_grad():
        student.find_parameter("key.action").normal_()
        messages = [
            student.compute_attention_message(
                torch.from_numpy(patches), torch.full((env.action_space.shape), value)
            )
            for value in (-1.0, 0.0, 1.0)
        ]
    for message in messages[1:]:
        torch.testing.assert_close(message, messages[0], rtol=1e-4, atol=1e-4)


def test_missing_patches_are_in_no_example(task, env):
    settings = dataclasses.replace(
        PATCH_RECIPES[task],
        disturb={PatchDisturbance.parse("missing=0.5"): 1.0},
        batch=8,
        max_moving=1000,
    )
    teacher = env.unwrapped.teacher()
    rng = np.random.default_rng(0)
    episode = record_episode(env, teacher, None, settings, 0.0, rng, 20)
    assert episode.labels.shape == (20, env.action_space.shape[0])
    batch = PatchBatches([episode], settings, rng).make_next_batch()
    half = len(env.unwrapped.channels) // 2
    np.testing.assert_array_equal(batch.seen.counts.sum(axis=1), half)


def numbered(length, actions):
    """An episode whose steps' numbers are their labels; 100 more is what was done."""
    steps = np.arange(length, dtype=np.float32)[:, None].repeat(actions, 1)
    return PatchEpisode(np.zeros((length, 84, 84), np.uint8), steps, steps + 100.0, 0.0, 0.0)


class Watching(Policy):
    """Presses nothing and keeps what it sees."""

    reading_shape, nominal_ids = (4, 6, 6), ()

    def __init__(self, model):
        self.model, self.engine, self.seen = model, "none", []
        self.previous_action = np.zeros(6, np.float32)

    def reset(self):
        self.seen.clear()

    def step(self, readings):
        return self.step_array(np.array(list(readings.values())), tuple(readings))

    def step_array(self, values, ids):
        self.seen.append(values[np.argsort(ids)])
        return self.previous_action


@pytest.mark.parametrize(
    "fault", ["delay=2", "lose=0.3", "repeat=0.3", "delay=1,lose=0.2,repeat=0.2"]
)
@pytest.mark.parametrize("repeats", [False, True])
def test_a_row_sees_the_frames_that_a_policy_sees_under_the_same_disturbance(fault, repeats):
    settings = DisturbanceSettings.parse(fault)
    env = make_environment(find_environment_id("pong"))
    task = dataclasses.replace(
        describe_task(env, "pong", find_environment_id("pong")), repeats=repeats
    )
    policy = Watching(
        dataclasses.replace(read_model(find_share_path("models/pong.safetensors")), task=task)
    )
    seed = int(np.random.default_rng(5).integers(2**31))
    frames = []

    class Keeping(gymnasium.Wrapper):
        def step(self, action):
            frames.append(self.unwrapped.frames[-1].copy())
            return super().step(action)

    names = make_placeholder_ids(len(task.channels))
    disturber = Disturber(names, settings, seed)
    play_episode(policy, TimeLimit(Keeping(env), 60), names, disturber, EpisodeSeeds(3, seed, 0))
    env.close()
    seen, acted = draw_seen_frame_and_action_step_indices(
        60, 4, settings, np.random.default_rng(5), acts_on_repeated_frames=repeats
    )
    assert len(acted) == len(policy.seen)
    assert (len(acted) < 60) == ("lose" in fault and not repeats)
    for numbers, patches in zip(seen, policy.seen, strict=True):
        np.testing.assert_array_equal(patches, cut_patches(np.array(frames)[numbers], 6))


def test_rows_of_a_student_with_memory_go_through_episodes_piece_by_piece():
    settings = dataclasses.replace(PATCH_RECIPES["pong"], batch=3, piece=4)
    assert settings.student.memory
    batches = PatchBatches([numbered(10, 6)], settings, np.random.default_rng(0))
    following, started = [None] * 3, 0
    for _ in range(12):
        batch = batches.make_next_batch()
        for row, begins in enumerate(batch.begins):
            counts = batch.counts[row]
            labels = batch.labels[row, counts, 0]
            first = int(labels[0])
            if following[row] is None:
                assert begins
            else:
                assert first == following[row] and begins == (first == 0)
            np.testing.assert_array_equal(labels, np.arange(first, min(first + 4, 10)))
            taken = batch.previous[row, counts]
            if first == 0:
                started += 1
                np.testing.assert_array_equal(taken[0], settings.student.initial_action)
                np.testing.assert_array_equal(taken[1:, 0], labels[:-1] + 100.0)
            else:
                np.testing.assert_array_equal(taken[:, 0], labels + 99.0)
            following[row] = 0 if first + 4 >= 10 else first + 4
    assert started > 6


def test_rows_of_a_student_without_memory_are_somewhere_else_each_time():
    settings = dataclasses.replace(PATCH_RECIPES["pong"], batch=50, piece=1)
    settings = dataclasses.replace(
        settings, student=dataclasses.replace(settings.student, memory=0)
    )
    batches = PatchBatches([numbered(10, 6)], settings, np.random.default_rng(0))
    batch = batches.make_next_batch()
    assert batch.begins.all() and batches.make_next_batch().begins.all()
    assert set(batch.labels[:, 0, 0]) == set(range(10))


def test_the_memory_of_the_student_that_drives_hears_what_was_done(env, task):
    """Where the teacher leads, the student looks on, and remembers the teacher's action."""
    settings = dataclasses.replace(PATCH_RECIPES[task], led=1.0)
    policy = make_policy(make_student(settings, 2).make_model(Task(), {}))
    rng = np.random.default_rng(1)
    episode = record_episode(env, env.unwrapped.teacher(), policy, settings, 0.0, rng, 30)
    led = round(episode.helped * 30)
    assert 0 < led < 30
    np.testing.assert_array_equal(episode.actions[:led], episode.labels[:led])
    np.testing.assert_array_equal(policy.previous_action, episode.actions[-1])


@pytest.mark.parametrize("fault", ["lose=0.5", "delay=1", "lose=0.5,repeat=0.1"])
def test_a_student_learns_and_drives_by_frames_that_are_late_or_lost(fault, tmp_path):
    smoke, environment = (
        make_patch_smoke_test_settings(PATCH_RECIPES["pong"]),
        find_environment_id("pong"),
    )
    settings = dataclasses.replace(smoke, faults={PatchDisturbance.parse(fault): 1.0})
    env = make_environment(environment)
    learner = PatchDagger(tmp_path, env, describe_task(env, "pong", environment), settings, seed=5)
    learner.step()
    learner.step()
    assert bool(learner.make_model().task.repeats) == ("repeat" in fault)
    batches = PatchBatches(learner._episodes, settings, np.random.default_rng(0))
    batches.make_next_batch()
    row = batches._rows[0]
    assert (len(row.acted) < len(row.episode.frames)) == (fault == "lose=0.5")
    learner.close()


def test_frames_cannot_be_noisy_and_motors_are_no_matter_of_patches():
    with pytest.raises(
        ValueError, match=r"jitter=0.1.*missing=NUMBER, delay=NUMBER, lose=NUMBER, repeat"
    ):
        PatchDisturbance.parse("delay=1,jitter=0.1")
    with pytest.raises(ValueError, match=r"\(allowed: up to 1"):
        dataclasses.replace(PATCH_RECIPES["pong"], faults={PatchDisturbance.parse("delay=1"): 1.5})


def test_half_of_the_examples_show_the_road_mirrored_and_steer_the_other_way():
    rng = np.random.default_rng(0)
    settings = dataclasses.replace(PATCH_RECIPES["car_racing"], batch=64, piece=1)
    frames = np.zeros((4, 96, 96), np.uint8)
    frames[3, 6:12, 6:12] = rng.integers(0, 256, (6, 6))
    labels = np.full((4, 3), (0.5, 1.0, -1.0), np.float32)
    seen, previous, labels, *_ = PatchBatches(
        [PatchEpisode(frames, labels, labels, 0.0, 0.0)], settings, rng
    ).make_next_batch()
    straight, labels, previous = labels[:, 0, 0] > 0, labels[:, 0], previous[:, 0]
    assert 20 < straight.sum() < 44
    assert (labels[:, 1:] == (1.0, -1.0)).all()
    before = previous.any(axis=1)
    np.testing.assert_array_equal(previous[before], labels[before])
    moved = seen.patches[:, 1, 3].any(axis=(1, 2))
    for there, patch in ((straight, frames[3, 6:12, 6:12]), (~straight, frames[3, 6:12, 11:5:-1])):
        shown = seen.patches[there & moved, 1, 3]
        assert len(shown) and (shown == patch).all()


def test_a_run_that_was_stopped_resumes_to_the_same_bits(task, tmp_path):
    settings = dataclasses.replace(make_patch_smoke_test_settings(PATCH_RECIPES[task]), rounds=3)
    environment = find_environment_id(task)

    def run(folder, rounds):
        env = make_environment(environment, max_episode_steps=40)
        learner = PatchDagger(folder, env, describe_task(env, task, environment), settings, seed=5)
        loop = RunLoop(RunFolder(folder, learner.config), learner)
        loop.run(stop_after=rounds)
        learner.close()
        return loop

    whole = run(tmp_path / "whole", 3)
    run(tmp_path / "parts", 1)
    parts = run(tmp_path / "parts", 3)
    ours = parts.learner.make_model().arrays
    for name, array in whole.learner.make_model().arrays.items():
        np.testing.assert_array_equal(array, ours[name])
    timeless = [
        [{k: v for k, v in line.items() if k not in ("wall_s", "cpu_s")} for line in run.metrics]
        for run in (whole, parts)
    ]
    assert timeless[0] == timeless[1]
    assert parts.model_path.exists()


def test_patches_shuffled_at_the_reset_or_announced_change_no_bit_of_an_episode(task, env):
    settings = PATCH_RECIPES[task]
    model = make_student(settings, 3).make_model(
        describe_task(env, task, find_environment_id(task)), {}
    )
    env = make_environment(find_environment_id(task), max_episode_steps=60)
    channels = env.unwrapped.channels
    totals = [
        play_episodes(make_policy(model), env, channels, 1, 1, EvaluationProtocol.parse(text))[0]
        for text in ("none", "reset", "20,announced")
    ]
    assert totals[0].rewards.tolist() == totals[1].rewards.tolist() == totals[2].rewards.tolist()
    assert [one.shuffles for one in totals] == [0, 1, 2]


def test_a_shuffle_on_the_way_moves_the_frames_that_come_from_then_on():
    channels = tuple(f"camera.0.{i}" for i in range(5))
    disturber = Disturber(channels, EvaluationProtocol.parse("7").disturbance, 1)
    patches = PatchDisturber(disturber)
    orders = []
    for tick in range(12):
        view = np.zeros((5, 4, 1, 1), np.int64)  # each pixel says its content and its frame
        view[..., 0, 0] = 100 * np.arange(5)[:, None] + np.maximum(tick - 3 + np.arange(4), 0)
        shown, ids = patches.disturb(view, channels)
        orders.append(
            [int(disturber.signal_ids_by_slot[disturber.ids.index(name)][-1]) for name in ids]
        )
        for age in range(4):
            at = max(tick - age, 0)
            expected = [100 * content + at for content in orders[at]]
            assert shown[:, 3 - age, 0, 0].tolist() == expected
    assert orders[6] != orders[7]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("none,noise=3", "noise_channels: 3 .allowed for image patches: shuffle"),
        ("none,jitter=0.1", "jitter: 0.1"),
    ],
)
def test_what_patches_cannot_suffer_is_refused(env, task, text, message):
    model = make_student(PATCH_RECIPES[task], 3).make_model(Task(), {})
    with pytest.raises(ValueError, match=message):
        play_episodes(
            make_policy(model), env, env.unwrapped.channels, 1, 1, EvaluationProtocol.parse(text)
        )


def test_patterns_stand_still_where_the_grass_was_and_nowhere_else():
    env = make_environment(find_environment_id("car_racing"))
    view = shown(env, 5)[0]
    before = view.copy()
    replace_grass_by_picture(view, draw_random_background(96, np.random.default_rng(3)))
    changed = view[-1] != before[-1]
    red, green, blue = env.unwrapped.sensors()["camera"].transpose(2, 0, 1)
    grass = (red == 100) & (blue == 100) & (green >= 202) & (green <= 228)
    grass[-12:] = False
    assert changed.mean() > 0.4 and (changed & ~grass).mean() < 0.02
    always = (before >= 159).all(axis=0) & (before <= 177).all(axis=0)
    assert (view[0][always] == view[-1][always]).all()
    env.close()
