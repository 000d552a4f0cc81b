"""Train teachers by reinforcement learning; teachers are MLP policies that students imitate."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from an_control.learning.command_line import format_command, get_setting_name_for_user
from an_control.learning.limits import (
    AnyNumber,
    CountOrZero,
    OverZero,
    SettingLimits,
    Share,
    check_numbers_within_limits,
)
from an_control.learning.runs.progress import OnProgress, ignore_progress
from an_control.policy import Model, read_model

if TYPE_CHECKING:
    from gymnasium import Env

    from an_control.learning.runs.run_folder import RunFolder
    from an_control.learning.teacher.teachers import Teacher

START = "--start-model"
OPTIONS_OF_SETTINGS = {
    "faults": "--disturb",
    "start": START,
    "start_hash": f"the content of {START}",
}
"""A mapping from settings of a teacher's training to the options that set them."""


@dataclass(frozen=True)
class TeacherOptions:
    """Options of `train_teacher`, the training of a teacher by reinforcement learning."""

    task: str
    """A task known by name (ant, cartpole), or a gymnasium id, also as module:id."""
    out: Path
    """The run's folder; its model.safetensors is the model with the best validation so far."""
    algorithm: Literal["auto", "ppo", "sac", "td3", "tqc"] = "auto"
    """The algorithm of stable-baselines3 or sb3-contrib; auto is ppo."""
    start_model: Path | None = None
    """Start PPO from this model file, an MLP policy with relu units."""
    minutes: OverZero | None = 45.0
    """Stop after this many minutes of processor time; one thread is used."""
    steps: Annotated[int, SettingLimits(over=True)] | None = None
    """Stop after this many steps of the environment."""
    score: AnyNumber | None = None
    """Stop as soon as the mean return of a validation reaches this."""
    burst: float = 0.003
    """Probability per step that a burst of up to 20 random or missing actions starts, from which
    the teacher learns to recover; 0: none."""
    disturb: tuple[str, ...] = ()
    """Disturbances in the words of `evaluate --table`, such as `delay=0..2` `gain=0.6..1`; an
    episode has one of them with the probability --disturb-share."""
    disturb_share: Share = 0.5
    """Share of the episodes that have one of --disturb."""
    episodes: Annotated[int, SettingLimits(2)] = 100
    """Number of episodes of the final evaluation, for the model's card."""
    seed: CountOrZero = 1
    """Seed of everything random."""
    smoke: bool = False
    """Run for seconds only, to check that everything works; such a run learns almost nothing."""

    def check_options(self) -> None:
        """Check that all numbers are within their bounds.

        Raises:
            ValueError: A number is out of bounds.
        """
        check_numbers_within_limits(self)
        if not 0.0 <= self.burst < 1.0:
            raise ValueError(f"--burst {self.burst}: must be from 0 to below 1")


@dataclass(frozen=True)
class TeacherResult:
    """Result of `train_teacher`, the training of a teacher by reinforcement learning.

    Attributes:
        model: The model file of the best validated teacher.
        end: Why the run ended.
        evaluations: The distribution of the returns of a random policy and of the teacher.
        metrics: The metrics of each iteration, by name.
        done_before: Number of iterations that were finished before this call.
    """

    model: Path
    end: str
    evaluations: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    done_before: int


def train_teacher(options: TeacherOptions, progress: OnProgress = ignore_progress) -> TeacherResult:
    """Train an MLP policy by reinforcement learning, or continue the run in its folder.

    Args:
        options: The task, the run's folder, the algorithm and the limits.
        progress: Called after each iteration.

    Returns:
        The teacher's model file, its evaluations and the run's metrics.

    Raises:
        ValueError: Options are out of bounds, or do not fit each other or the task.
        RunError: The folder holds another run, or a file cannot be written.
        BrokenEnvironmentError: Nearly all episodes failed.
        RunStoppedError: `progress` returned False.
    """
    from an_control.learning.runs.run_folder import RunFolder
    from an_control.learning.runs.run_loop import RunLoop
    from an_control.learning.teacher.learner import TeacherLearner, TeacherLimits
    from an_control.learning.teacher.settings import (
        choose_teacher_settings,
        make_smoke_test_settings,
    )
    from an_control.learning.training_disturbances import parse_equally_probable_disturbances
    from an_control_sim.gym.environments import find_environment_id, make_environment
    from an_control_sim.gym.varied_robot import check_robot_settings

    options.check_options()
    environment = find_environment_id(options.task)
    limits = TeacherLimits(options.minutes, options.steps, options.score)
    faults = parse_equally_probable_disturbances(options.disturb, options.disturb_share)
    with closing(make_environment(environment)) as env:
        start = _find_start_policy(options, env)
        for fault in faults:
            check_robot_settings(env, fault.settings)
        settings = choose_teacher_settings(env, options.algorithm, start)
        settings = replace(settings, burst=options.burst, faults=faults)
        if options.smoke:
            settings = make_smoke_test_settings(settings)
            limits = TeacherLimits(options.minutes, 2 * settings.iteration)
        learner = TeacherLearner(
            options.out, options.task, environment, settings, limits, options.seed, start
        )
        with closing(learner):
            loop = RunLoop(RunFolder(options.out, learner.config, False, _name_setting), learner)
            done_before = loop.done
            loop.run_remaining_steps(progress)
            evaluations = _evaluate_and_write_model_card(options, loop.folder)
            return TeacherResult(
                loop.model_path, learner.end_reason, evaluations, loop.metrics, done_before
            )


def _name_setting(key: str) -> str:
    """Return the option of `train-teacher` that sets a setting of a run's `config.json`."""
    return get_setting_name_for_user(key, TeacherOptions, OPTIONS_OF_SETTINGS)


def _find_start_policy(options: TeacherOptions, env: Env[Any, Any]) -> Teacher | None:
    """Return the policy with which PPO starts to train; None for random weights.

    It is the policy that the option `start_model` names. Without this option it is the task's own
    teacher, if there is one and the algorithm is PPO.
    """
    from an_control.learning.teacher.teachers import find_task_teacher, read_teacher

    if options.start_model is None:
        return find_task_teacher(options.task) if options.algorithm in ("auto", "ppo") else None
    teacher = read_teacher(str(options.start_model), env)
    if teacher.layers is None:
        raise ValueError(f"--start-model {options.start_model}: must have relu units")
    return teacher


def _evaluate_and_write_model_card(
    options: TeacherOptions, folder: RunFolder
) -> list[dict[str, Any]]:
    """Evaluate the best model of the run and write its model card, unless this is done already."""
    from an_control.learning.runs.card import write_model_and_card

    path = folder.path / "model.safetensors"
    model = read_model(path)
    episodes = 2 if options.smoke else options.episodes
    known: list[dict[str, Any]] = model.trained.get("evaluations", [])
    if known and known[0]["episodes"] == episodes:
        return known
    made = evaluate_teacher(options.task, path, model, episodes)
    model = replace(model, trained={**model.trained, "evaluations": made})
    write_model_and_card(
        folder, model, options.out.name, made, format_command(options, "train-teacher")
    )
    return made


def evaluate_teacher(
    task: str, model_path: Path, model: Model, episodes: int
) -> list[dict[str, Any]]:
    """Evaluate a random policy and a teacher on the same episodes.

    Args:
        task: A task known by name, or a gymnasium id.
        model_path: The teacher's model file.
        model: The model that was read from this file.
        episodes: Number of episodes.

    Returns:
        Two dicts, the first for the random policy and the second for the teacher. Each holds the
        protocol, the distribution of the returns, and the standard error of their mean.
    """
    from an_control.learning.evaluation.scores import REFERENCES, ScorePlayer
    from an_control.learning.runs.card import summarise_returns
    from an_control.learning.teacher.teachers import read_teacher
    from an_control_sim.gym.environments import find_environment_id, make_environment
    from an_control_sim.gym.units import Units

    evaluations = []
    with closing(make_environment(find_environment_id(task), Units.from_task(model.task))) as env:
        scoring = ScorePlayer(env, model.task.channels, read_teacher(str(model_path), env), model)
        for case in REFERENCES:
            row = scoring.play_episodes_of_score_case(case, math.inf, (episodes, episodes))
            known = {"protocol": row.name, **summarise_returns(row.return_array, None)}
            evaluations.append({**known, "standard_error": round(row.standard_error, 2)})
    return evaluations
