"""``an-control train-teacher ENV --out RUN``."""

from __future__ import annotations

import math
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import tyro

from an_control.cli.common import InputError, OutputFile, OutputFolder, command, need, write_json
from an_control.learning.runs.terminal import explained
from an_control.policy import read_model
from an_control.system.interrupts import INTERRUPTED
from an_control_sim.gym.offers import with_offers

if TYPE_CHECKING:
    from gymnasium import Env

    from an_control.learning.runs.run_loop import RunLoop
    from an_control.learning.teacher.teachers import Teacher


@dataclass(frozen=True)
class Verb:
    """Train a teacher by its return (PPO, SAC, TD3 or TQC); `distill` makes a student of it.

    The teacher is an MLP policy, which needs its channels in order. A task that has a teacher of
    its own (ant) starts from that one by PPO. The same command continues a stopped run, also with
    other limits: minutes, steps, score. A run also ends when validation has not improved for half
    of it, and for a third of its limits.
    """

    task: tyro.conf.Positional[str]
    """A task known by name (ant, cartpole), or a gymnasium id, also as module:id."""
    out: OutputFolder
    """The run's folder; its model.safetensors is the best one that was validated so far."""
    algorithm: Literal["auto", "ppo", "sac", "td3", "tqc"] = "auto"
    """What learns, of stable-baselines3 and sb3-contrib; auto is ppo."""
    start_model: Path | None = None
    """Start from this MLP policy of relu units, by PPO."""
    minutes: float | None = 45.0
    """Stop after so many minutes of processor time; one thread is used."""
    steps: int | None = None
    """Stop after so many steps of the environment."""
    score: float | None = None
    """Stop once a validation's mean return is this high."""
    burst: float = 0.003
    """Chance a step that a burst of up to 20 random or missing actions begins, from which the
    teacher learns the way back; 0: none."""
    faults: tuple[str, ...] = ()
    """Disturbances in the words of `evaluate --table`, such as `delay=0..2` `gain=0.6..1`; an
    episode has one of them with the chance --fault-share."""
    fault_share: float = 0.5
    """Share of the episodes that have one of --faults."""
    episodes: int = 100
    """Number of episodes of the evaluation at the end, for the model's card."""
    seed: int = 1
    """Seed of everything random."""
    smoke: bool = False
    """A run of seconds, to check that everything works; it learns almost nothing."""
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        need("train", "torch", "gymnasium", "stable_baselines3", "sb3_contrib")
        from an_control.learning.runs.run_folder import RunError

        self._check()
        try:
            return self._teach()
        except ValueError as error:  # torch's, where an environment gave NaN, has several lines
            raise InputError(" ".join(str(error).split())) from error
        except RunError as error:
            print(f"an-control train-teacher: {error}", file=sys.stderr)
            return 1

    def _check(self) -> None:
        for name in ("minutes", "steps"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise InputError(f"--{name} {value}: must be over 0")
        if self.episodes < 2:
            raise InputError(f"--episodes {self.episodes}: must be 2 or more")
        if self.score is not None and math.isnan(self.score):
            raise InputError(f"--score {self.score}: must be a number")
        if not 0.0 <= self.burst < 1.0:
            raise InputError(f"--burst {self.burst}: must be from 0 to below 1")
        if not 0.0 <= self.fault_share <= 1.0:
            raise InputError(f"--fault-share {self.fault_share}: must be from 0 to 1")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")

    def _teach(self) -> int:
        from an_control.learning.faults import equal_chances
        from an_control.learning.runs.run_folder import RunFolder
        from an_control.learning.runs.run_loop import RunLoop
        from an_control.learning.runs.terminal import run_at_terminal
        from an_control.learning.teacher.learner import Limits, TeacherLearner
        from an_control.learning.teacher.settings import settings_for, smoke
        from an_control_sim.gym.environments import environment_of, make_environment
        from an_control_sim.gym.varied_robot import check_robot

        environment = environment_of(self.task)
        limits = Limits(self.minutes, self.steps, self.score)
        faults = equal_chances(self.faults, self.fault_share)
        with closing(make_environment(environment)) as env:
            start = self._start(env)
            for fault in faults:
                check_robot(env, fault.settings)
            settings = replace(
                settings_for(env, self.algorithm, start),
                burst=self.burst,
                faults=faults,
            )
            if self.smoke:
                settings = smoke(settings)
                limits = Limits(self.minutes, 2 * settings.iteration)
            learner = TeacherLearner(
                self.out, self.task, environment, settings, limits, self.seed, start
            )
            with closing(learner):
                loop = RunLoop(RunFolder(self.out, learner.config), learner)
                if not run_at_terminal(loop, command(self, "train-teacher")):
                    return INTERRUPTED
                print(f"ended: {learner.end}")
                self._finish(loop)
        return 0

    def _start(self, env: Env[Any, Any]) -> Teacher | None:
        """The network that the actor begins as, None where it begins at random."""
        from an_control.learning.teacher.teachers import own_teacher, read_teacher

        if self.start_model is None:
            return own_teacher(self.task) if self.algorithm in ("auto", "ppo") else None
        teacher = read_teacher(str(self.start_model), env)
        if teacher.layers is None:
            raise InputError(f"--start-model {self.start_model}: must have relu units")
        return teacher

    def _finish(self, loop: RunLoop) -> None:
        """Evaluate the model that was kept and a random policy; write the card and the result.

        What has been evaluated before is not played again.
        """
        from an_control.learning.runs.card import write_card

        model = read_model(loop.model_path)
        episodes = 2 if self.smoke else self.episodes
        evaluations = model.trained.get("evaluations", [])
        if not evaluations or evaluations[0]["episodes"] != episodes:
            evaluations = self._evaluate(loop.model_path, episodes)
            model = replace(model, trained={**model.trained, "evaluations": evaluations})
            how = command(self, "train-teacher")
            write_card(loop.folder, model, self.out.name, evaluations, how)
        for row in evaluations:
            score = f"{row['mean']:.1f} +- {row['standard_error']:.1f}"
            print(f"{row['protocol']}: {score}, {row['episodes']} episodes")
        print(loop.model_path)
        result = {"task": self.task, "seed": self.seed, "model": str(loop.model_path)}
        write_json(self.json, {**result, "evaluations": evaluations, "iterations": loop.metrics})

    def _evaluate(self, path: Path, episodes: int) -> list[dict[str, Any]]:
        from an_control.learning.evaluation.scores import REFERENCES, Scoring
        from an_control.learning.runs.card import figures
        from an_control.learning.teacher.teachers import read_teacher
        from an_control_sim.gym.environments import environment_of, make_environment
        from an_control_sim.gym.units import Units

        model = read_model(path)
        evaluations = []
        with closing(make_environment(environment_of(self.task), Units.of_task(model.task))) as env:
            scoring = Scoring(env, model.task["channels"], read_teacher(str(path), env), model)
            for case in REFERENCES:
                row = scoring.play(case, math.inf, (episodes, episodes))
                known = {"protocol": row.name, **figures(row.array, None)}
                evaluations.append({**known, "standard_error": round(row.error, 2)})
        return evaluations


Verb.__doc__ = with_offers(explained(Verb.__doc__, "return", "validation", "failed"))
