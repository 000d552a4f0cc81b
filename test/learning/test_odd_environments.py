"""Any gymnasium environment trains, or is refused in one line; see `odd`."""

import json
import os
import signal
import warnings
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("stable_baselines3", reason="needs the train extra")

import torch

from an_control.cli import main
from an_control.disturbance import DisturbanceSettings
from an_control.learning.forward_model import validation
from an_control.learning.forward_model.episodes import EpisodeTrace
from an_control.learning.forward_model.validation import validate_monitor_and_add_result_to_model
from an_control.learning.rollout.episode import LiveEpisode
from an_control.learning.teacher.learner import TeacherLearner, TeacherLimits
from an_control.learning.teacher.settings import choose_teacher_settings, make_smoke_test_settings
from an_control.load import load_policy, make_policy
from an_control.policy import AttentionSizes, MlpSizes, read_model, write_model
from an_control.policy.model_file import Model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.system.environment_output import FILE, OUTPUT, EnvironmentOutput
from an_control.system.interrupts import INTERRUPTED
from an_control_sim.gym.environments import (
    DEFAULT_MAX_STEPS,
    describe_task,
    find_adapter,
    make_environment,
)
from an_control_sim.gym.failure import MAX_IN_A_ROW, BrokenEnvironmentError, FailureCounter
from an_control_sim.gym.probe import measure_units
from an_control_sim.gym.units import UNSCALED, Units, choose_units

from . import odd as environments
from .odd import STEPS

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # gymnasium's and the Loud one's
PUSH = np.array([0.3], np.float32)


@pytest.fixture(autouse=True)
def odd(monkeypatch):
    """Lets the environments be named, also in worker processes."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", f"{here}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(here)
    measure_units.cache_clear()


def opened(name, units=UNSCALED):
    return make_environment(f"odd:Odd/{name}-v0", units)


def learned(name, tmp_path, *options):
    """The status of a run of seconds that goes through every step."""
    return main(
        ["learn", f"odd:Odd/{name}-v0", "--smoke", "--out", str(tmp_path / "run"), *options]
    )


def searched(name, tmp_path, *options):
    sizes = "--generations", "2", "--popsize", "4", "--rollouts", "2", "--episodes", "2"
    out = "--out", str(tmp_path / "run"), "--workers", "1", "--form", "mlp"
    return main(["train", f"odd:Odd/{name}-v0", *out, *sizes, *options])


def episode(env, seed=1, action=PUSH):
    """The readings (T, N) of an episode under one action."""
    played = LiveEpisode(env, seed)
    rows = []
    for tick in played:
        rows.append(tick.observation)
        played.send_action(action)
    return np.array(rows)


@pytest.mark.parametrize("name", ["Milli", "Baro", "Counts"])
def test_readings_of_any_size_come_in_units_in_which_they_are_ordinary(name):
    units = measure_units(f"odd:Odd/{name}-v0")
    with opened(name, units) as env, opened("Cart") as plain:
        seen, ordinary = episode(env), episode(plain)
        assert describe_task(env, "", "").units == units.scale_offset_pairs
    assert 0.1 < seen.std() < 10.0 and np.abs(seen).max() < 50.0
    assert abs(np.corrcoef(seen[:, 0], ordinary[:, 0])[0, 1]) > 0.9999


def test_readings_of_ordinary_size_stay_as_they_are():
    assert measure_units("odd:Odd/Cart-v0") == Units()
    with opened("Cart") as env:
        assert not describe_task(env, "", "").units


def test_units_and_back_give_the_environments_numbers():
    units = choose_units(
        np.random.default_rng(0).normal(1e5, 20.0, (400, 1)), np.ones(1, bool), 1e-7
    )
    numbers = np.array([101_325.0])
    assert units.to_numbers(units.to_readings(numbers)) == pytest.approx(numbers, abs=1e-3)


@pytest.mark.parametrize("name", ["Milli", "Baro", "Counts", "One", "Short", "Goal", "Bits"])
def test_learn_makes_a_model_and_a_table(name, tmp_path, capsys):
    assert learned(name, tmp_path) == 0
    said = capsys.readouterr()
    assert "| student, clean |" in said.out
    assert [line for line in said.err.splitlines() if "compil" not in line] == []  # numba's
    model = read_model(tmp_path / "run/model.safetensors")
    assert model.task.units == measure_units(f"odd:Odd/{name}-v0").scale_offset_pairs
    assert load_policy(tmp_path / "run/model.safetensors", "match").monitor_report is not None


def test_a_teacher_keeps_the_weights_of_readings_that_vary_little(tmp_path):
    """Below 0.001 sqrt(1 + mean^2) their scale was infinite, and the model as good as random."""
    out = tmp_path / "run"
    assert main(["train-teacher", "odd:Odd/Milli-v0", "--out", str(out), "--smoke"]) == 0
    first = read_model(out / "model.safetensors").arrays["head.0.weight"]
    assert (np.abs(first).max(0) > 1e-3).all()


def test_a_missing_reading_is_missing_for_a_policy_and_the_newest_one_for_a_teacher(tmp_path):
    with opened("BlindStart") as env:
        rows = episode(env)
    assert np.isnan(rows[::10, 1]).all() and np.isfinite(np.delete(rows, np.s_[::10], 0)).all()
    arrays = {"head.0.weight": np.eye(2, dtype=np.float32), "head.0.bias": np.zeros(2, np.float32)}
    mlp = make_policy(Model("mlp", MlpSizes(2, 2, [], output="clip"), arrays, Task(), {}), "off")
    assert mlp.step_array(np.array([np.nan, 0.5]), ("a", "b")).tolist() == [0.0, 0.5]
    mlp.step_array(np.array([0.25, 0.5]), ("a", "b"))
    assert mlp.step_array(np.array([np.nan, 0.75]), ("a", "b")).tolist() == [0.25, 0.75]


def test_learn_and_train_bear_readings_that_are_not_there_at_the_start(tmp_path, capsys):
    assert learned("BlindStart", tmp_path) == 0
    assert searched("BlindStart", tmp_path / "train") == 0
    assert "failed" not in capsys.readouterr().out


@pytest.mark.parametrize("work", [learned, searched])
def test_an_environment_without_any_finite_reading_is_refused_before_the_work(
    work, tmp_path, capsys
):
    assert work("Blind", tmp_path) == 1
    said = capsys.readouterr().err
    assert "'odd:Odd/Blind-v0': no reading is a finite number in 400 steps" in said
    assert "Traceback" not in said.splitlines()[-1]


@pytest.mark.parametrize("algorithm", ["ppo", "sac", "td3", "tqc"])
def test_each_algorithm_learns_from_the_newest_reading_in_place_of_a_missing_one(
    algorithm, tmp_path
):
    """NaN in one observation made all weights NaN; TD3 ran to its end with them."""
    name = "odd:Odd/BlindStart-v0"
    with opened("BlindStart") as env:
        settings = replace(
            make_smoke_test_settings(choose_teacher_settings(env, algorithm)), burst=0.0
        )
    learner = TeacherLearner(tmp_path, name, name, settings, TeacherLimits(steps=1000), seed=1)
    with closing(learner):
        for _ in range(3):
            line = learner.step()
        model = learner.make_model()
        library = learner._newest.library._algorithm
    assert np.isfinite(line["validation"])
    assert all(np.isfinite(array).all() for array in model.arrays.values())
    if algorithm != "ppo":
        positions, speeds = library.replay_buffer.observations[:STEPS, 0].T
        assert (np.diff(positions) != 0.0).all()
        assert speeds[0] == 0.0, "there is no newest one before the first"
        again = [t for t in range(1, STEPS) if speeds[t] == speeds[t - 1]]
        assert again == list(range(10, STEPS, 10))


@pytest.mark.parametrize("verb", ["train", "train-teacher", "learn"])
def test_sigterm_within_an_episode_that_never_ends_stops_a_command_which_says_how_to_continue(
    verb, tmp_path, monkeypatch, capsys
):
    """The episode was waited for, for ever."""
    asked, out = tmp_path / "asked", tmp_path / "run"
    monkeypatch.setenv("ODD_STOP", f"{os.getpid()}:{asked}")
    with signals_raise():
        if verb == "train":
            status = searched("Stopped", tmp_path)
        else:
            status = main([verb, "odd:Odd/Stopped-v0", "--smoke", "--out", str(out)])
    said = capsys.readouterr()
    assert asked.exists() and status == INTERRUPTED
    unit = "generation" if verb == "train" else "iteration"
    assert f"stops after this {unit} (Ctrl-C again: at once)" in said.out
    last = said.out.splitlines()[-1]
    assert f"; to continue: an-control {verb} odd:Odd/Stopped-v0" in last
    assert (said.out + said.err).count("has no time limit: its episodes are cut off") == 1


@contextmanager
def signals_raise():
    """In this block a SIGTERM that no run handles fails the test; it would end pytest."""

    def fail(*_):
        raise AssertionError("SIGTERM came outside of the run")

    before = signal.signal(signal.SIGTERM, fail)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def test_episodes_of_an_environment_without_a_time_limit_are_cut_off_and_this_is_said(capsys):
    with opened("Endless") as env:
        assert len(episode(env)) == DEFAULT_MAX_STEPS
    (note,) = [one for one in OUTPUT.pop_new_notes() if "Endless" in one]
    assert "has no time limit" in note and "max_episode_steps=N" in note


def test_a_wrapper_with_running_statistics_is_named_once_by_each_verb(tmp_path, capsys):
    with opened("Goal"):
        assert not [one for one in OUTPUT.pop_new_notes() if "NormalizeObservation" in one]
    gymnasium.register(
        "Odd/Running-v0",
        lambda: gymnasium.wrappers.NormalizeObservation(environments.Cart()),
        max_episode_steps=STEPS,
    )
    out = tmp_path / "run"
    assert main(["train-teacher", "Odd/Running-v0", "--out", str(out), "--smoke"]) == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count("its wrapper NormalizeObservation") == 1
    model = str(out / "model.safetensors")
    assert main(["evaluate", model, "--episodes", "1", "--shuffle", "none"]) == 0
    assert "they are no part of a policy" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Flaky", "NanReward"])
def test_an_episode_that_fails_is_left_out_and_the_reason_is_said_once(name, tmp_path, capsys):
    assert learned(name, tmp_path) == 0
    said = capsys.readouterr()
    reason = {"Flaky": "the gripper is stuck (odd.py, line", "NanReward": "gave the reward nan"}
    both = said.out + said.err
    assert both.count("an episode failed and is left out") == 1 and reason[name] in both
    lines = (tmp_path / "run/student/metrics.jsonl").read_text().splitlines()
    assert sum(json.loads(line).get("failed", 0) for line in lines) > 0


def test_a_search_says_why_episodes_failed(tmp_path, capsys):
    assert searched("Flaky", tmp_path, "--rollouts", "12") == 0
    said = capsys.readouterr()
    assert (said.out + said.err).count("the gripper is stuck") == 1


def test_too_many_failing_episodes_in_a_row_end_a_run():
    failures = FailureCounter()
    for _ in range(MAX_IN_A_ROW - 1):
        failures.count_failure(BrokenEnvironmentError("no"))
    with pytest.raises(BrokenEnvironmentError, match="no; 20 episodes in a row failed"):
        failures.count_failure(BrokenEnvironmentError("no"))
    failures.reset_consecutive_failures()
    failures.count_failure(BrokenEnvironmentError("no"))
    assert (
        failures.pop_failure_metrics()["failed"] == MAX_IN_A_ROW + 1
        and failures.pop_failure_metrics() == {}
    )


def test_an_environment_that_writes_over_its_arrays_gives_what_one_with_new_arrays_gives():
    action = PUSH.copy()
    with opened("SameArray") as env, opened("Cart") as plain:
        assert np.array_equal(episode(env, action=action), episode(plain))
    assert action == PUSH, "and does not get ours to write into"


def test_one_reading_is_enough_for_a_student():
    """It was asked to act without any channel, which gave NaN."""
    from an_control.learning.dagger.settings import StudentSizes
    from an_control.learning.dagger.streams import (
        PerturbedTeacher,
        RolloutSettings,
        StudentDriver,
        record_episode,
    )
    from an_control.learning.dagger.student import Student
    from an_control.learning.teacher.teachers import Teacher
    from an_control.learning.training_disturbances import TrainingDisturbance

    torch.manual_seed(0)
    teacher = Teacher(lambda seen: -seen)
    with opened("One") as env:
        policy = make_policy(
            Student(1, 1, StudentSizes()).make_model(describe_task(env, "", ""), {}), "off"
        )
        words = TrainingDisturbance("missing=0.25,garbage=0.2,copies=1,noise=1")
        everything = RolloutSettings(0.0, 0.1, 0.5, {words: 1.0})
        for seed in range(20):
            rng = np.random.default_rng(seed)
            for driver, how in (
                (StudentDriver(rng, policy, everything), everything),
                (PerturbedTeacher(rng, teacher, 0.1), RolloutSettings(shuffled=False)),
            ):
                disturbance = how.draw_disturbance({}, rng)
                played = record_episode(env, teacher, driver, rng, disturbance, how.reshuffle)
                assert np.isfinite(played.previous).all() and np.isfinite(played.total)


ATTENTION = AttentionSizes(actions=1, neuron=2, queries=4, key=2, inputs=["value"], head=[])


def cart_model(path, name="Cart", sizes=ATTENTION, units=UNSCALED):
    """A random policy of a cart, written to `path`."""
    with opened(name, units) as env:
        model = make_random_model(sizes, task=describe_task(env, *[f"odd:Odd/{name}-v0"] * 2))
    write_model(path, model)
    return model


@pytest.mark.parametrize("sizes", [ATTENTION, MlpSizes(2, 1, [])], ids=["attention", "mlp"])
def test_a_model_of_another_number_of_channels_is_not_evaluated(sizes, tmp_path, capsys):
    cart_model(tmp_path / "cart.safetensors", sizes=sizes)
    evaluate = ["evaluate", str(tmp_path / "cart.safetensors"), "--episodes", "1", "--task"]
    assert main([*evaluate, "odd:Odd/Goal-v0"]) == 2
    assert "expects 2 channels, but odd:Odd/Goal-v0 has 4" in capsys.readouterr().err
    assert main([*evaluate, "odd:Odd/Milli-v0"]) == 0


def test_what_an_environment_prints_is_in_the_runs_folder_and_said_once(tmp_path, capfd):
    assert searched("Loud", tmp_path) == 0
    said = "".join(capfd.readouterr())
    log = tmp_path / "run" / FILE
    assert said.count(f"what the environment prints is in {log}") == 1
    assert "wheel" not in said and "squeaks" not in said
    for printed in ("the wheel turns", "and squeaks", "the wheel is old"):
        assert printed in log.read_text()


def test_output_beyond_what_is_kept_is_counted_and_not_kept():
    output = EnvironmentOutput()
    with output:
        for _ in range(3):
            print("x" * 600_000)
    assert output.lines == 3 and len(output.pop_new_output().text) == 1_000_000


@pytest.mark.parametrize("verb", ["learn", "train", "train-teacher", "distill"])
@pytest.mark.parametrize(("name", "status"), [("BadInit", 2), ("BadReset", 1)])
def test_every_verb_names_an_environment_that_cannot_be_made_or_reset_in_one_line(
    verb, name, status, tmp_path, capsys
):
    teacher = ["--teacher", "python:odd:push"] if verb == "distill" else []
    out = "--out", str(tmp_path / "run")
    assert main([verb, f"odd:Odd/{name}-v0", *out, *teacher]) == status
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert said.startswith(f"an-control {verb}: environment 'odd:Odd/{name}-v0': ")
    assert "OSError: no controller on the bus (odd.py, line " in said


@pytest.mark.parametrize("name", ["Wide", "Half", "Whole", "Unbounded", "Signs", "Bits"])
def test_an_environment_that_asserts_its_actions_is_learned_without_a_failure(
    name, tmp_path, capsys
):
    assert searched(name, tmp_path) == 0
    metrics = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line).get("failed", 0) for line in metrics] == [0, 0]
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if "compil" not in line] == []  # numba's


@pytest.mark.parametrize("name", ["NoActions", "NoReadings"])
def test_a_space_without_a_number_is_refused(name):
    with pytest.raises(ValueError, match=f"'odd:Odd/{name}-v0'.* holds no number"):
        opened(name)


def test_a_run_whose_environment_fails_later_names_what_it_has_made(tmp_path, capsys, monkeypatch):
    assert learned("Cart", tmp_path) == 0
    capsys.readouterr()

    def fail(self, *, seed=None, options=None):
        raise OSError("the cable is off")

    monkeypatch.setattr(environments.Cart, "reset", fail)
    assert learned("Cart", tmp_path) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "the cable is off" in said and "; kept: " in said and "student/model.saf" in said


def test_an_environment_cannot_set_the_threads_of_torch():
    before = torch.get_num_threads()
    with opened("Threads") as env:
        env.reset(seed=1)
    assert torch.get_num_threads() == before


def test_unbounded_actions_pass_as_they_are_without_a_warning():
    with warnings.catch_warnings(), opened("Unbounded") as env:
        warnings.simplefilter("error")
        env.reset(seed=1)
        env.step(PUSH)
        assert find_adapter(env).actions.to_action(PUSH) == PUSH


def test_a_monitor_is_tried_on_readings_in_the_units_of_its_model(tmp_path, monkeypatch, capsys):
    milli, cart = tmp_path / "milli.safetensors", tmp_path / "cart.safetensors"
    name, tried = "odd:Odd/Milli-v0", []
    units = measure_units(name)
    model = cart_model(milli, "Milli", units=units)

    def validated(env, *others):
        tried.append(find_adapter(env).units)
        return validate_monitor_and_add_result_to_model(env, *others)

    monkeypatch.setattr(validation, "validate_monitor_and_add_result_to_model", validated)
    short = "--steps", "300", "--updates", "20", "--imputation-updates", "3"
    assert main(["train-monitor", str(milli), *short]) == 0
    assert main(["train-monitor", str(milli), *short, "--validate"]) == 0
    assert tried == [units] * 2
    write_model(cart, replace(model, task=replace(model.task, units=((1.0, 0.0),) * 2)))
    capsys.readouterr()
    assert main(["train-monitor", str(cart), "--take", str(milli)]) == 2
    assert "its units differ from those of" in capsys.readouterr().err


def test_a_monitor_of_short_episodes_is_tried_on_signals_that_move_too():
    """Signals moved every 50 ticks, which no episode of 40 has: 0 % were found of none."""
    readings = np.arange(41.0)[:, None] * [1.0, -1.0]
    trace = EpisodeTrace(readings, np.zeros((40, 1)), False)

    class Knows:
        """A monitor that reads the sign of a signal."""

        def reset(self):
            self.slot_by_channel = np.arange(2)

        def step(self, readings, action):
            self.slot_by_channel = np.argsort(-readings, kind="stable")

    rng, alike = np.random.default_rng(0), np.eye(2, dtype=bool)
    assert validation.measure_share_of_identified_signals(Knows(), alike, [trace] * 20, rng) == 1.0


@pytest.mark.parametrize("name", ["Flaky", "Gaps"])
def test_a_validation_bears_episodes_that_fail_and_readings_that_are_missing(name, tmp_path):
    model = cart_model(tmp_path / "cart.safetensors", name)
    with opened(name) as env:
        rng = np.random.default_rng(0)
        traces = validation.record_episodes_without_monitor(
            env, model, DisturbanceSettings(), 500, rng
        )
    assert sum(len(one.actions) for one in traces) == 500
    assert all(np.isfinite(part).all() for one in traces for part in (one.readings, one.actions))


def test_a_drafted_wiring_reads_in_the_units_that_a_model_learns_in(tmp_path):
    from an_control.wiring import load_wiring
    from an_control_sim.bridge.draft import draft_wiring_and_simulation_files

    drafted = tmp_path / "cart.yaml"
    drafted.write_text(draft_wiring_and_simulation_files("cart", "odd:Odd/Baro-v0").wiring)
    pairs = tuple((one.scale, one.offset) for one in load_wiring(drafted).channels)
    assert pairs == measure_units("odd:Odd/Baro-v0").scale_offset_pairs != ()


@pytest.mark.parametrize(("name", "action"), [("Signs", (1, 2)), ("Whole", (2,)), ("Goal", (0.4,))])
def test_an_environment_with_other_spaces_is_served_as_a_robot(name, action, tmp_path):
    pytest.importorskip("rclpy", reason="needs ROS 2")
    from an_control_sim.bridge.draft import draft_wiring_and_simulation_files
    from an_control_sim.bridge.robot import SimulatedRobot
    from an_control_sim.bridge.simulation_file import load_simulation

    drafted = draft_wiring_and_simulation_files("cart", f"odd:Odd/{name}-v0")
    (tmp_path / "cart_sim.yaml").write_text(drafted.simulation)
    robot = SimulatedRobot(load_simulation(tmp_path / "cart_sim.yaml"))
    seen = []
    robot._environment.unwrapped.push = seen.append  # in place of the cart's motor
    commands = {"Signs": [-1.0, 1.0, 0.1, 0.2, 0.3], "Whole": [2.2], "Goal": [0.4]}[name]
    robot.reset(1)
    robot._environment.unwrapped.force = lambda given: seen.append(np.ravel(given)) or 0.0
    robot.step(np.array(commands))
    robot.fill_sensor_messages(0)
    assert tuple(seen[0].tolist()) == pytest.approx(action)
    assert len(robot.sensor_topics[0].message.position) == len(drafted.channels)
    robot.close()
