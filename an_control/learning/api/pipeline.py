"""Train a teacher, a student and a monitor for an environment in one run, and score them."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from an_control.learning.api.monitor import MonitorOptions, train_monitor
from an_control.learning.api.student import DistillOptions, distill
from an_control.learning.api.teacher import TeacherOptions, train_teacher
from an_control.learning.command_line import format_command, get_setting_name_for_user
from an_control.learning.limits import CountOrZero, OverZero, check_numbers_within_limits
from an_control.learning.runs.progress import (
    OnProgress,
    RunProgress,
    RunStoppedError,
    ignore_progress,
)
from an_control.policy import read_model

if TYPE_CHECKING:
    import gymnasium

    from an_control.learning.evaluation.scores import ScorePlayer, ScoreRow
    from an_control.learning.runs.run_folder import RunFolder
    from an_control.learning.teacher.teachers import Teacher

PARTS = ("teacher", "student", "monitor", "table")
SHARES = {"student": 0.55, "monitor": 0.25, "table": 0.2}
"""How `LearnOptions.minutes` is divided among the parts of the run. Time that the student does not
use goes to the monitor."""
MONITOR_FAULTS, MONITOR_FAULT_SHARE = ("delay=1",), 0.25
"""Disturbances that the monitor must not mistake for rewiring, and the share of the monitor's
training episodes that have them."""
SMOKE_EPISODES = 2, 2


@dataclass(frozen=True)
class LearnOptions:
    """Options of `learn`, which makes a policy for an environment in one run."""

    task: str
    """A gymnasium id, also as module:id, or a task known by name (ant, cartpole)."""
    out: Path
    """The run's folder: model.safetensors and model.md are the result; the subfolders teacher,
    student and monitor hold the runs of the steps."""
    minutes: OverZero = 30.0
    """Processor time for student, monitor and table, in minutes."""
    teacher_minutes: OverZero = 45.0
    """Limit of processor time for the teacher, in minutes."""
    recipe: str | None = None
    """A recipe of distill, by name (quick, robust and others) or as a YAML file; by default the one
    with the task's name, or robust if there is none."""
    teacher: str | None = None
    """An existing teacher, as distill takes it: a model file of an MLP policy, an ONNX file of a
    network without memory of earlier ticks, ppo:FILE.zip of stable-baselines3, or
    python:MODULE:FUNCTION, a function from an array of readings to an array of actions in [-1, 1].
    It gets the environment's own numbers; the statistics of NormalizeObservation or VecNormalize
    are in none of these files. By default train-teacher trains one; the ant has one already."""
    seed: CountOrZero = 1
    """Seed of everything random."""
    smoke: bool = False
    """Run for seconds only, to check that everything works; such a run learns almost nothing."""

    def check_options(self) -> None:
        """Check numbers and recipe before the run, which could otherwise fail after hours.

        Raises:
            ValueError: A number is out of bounds, or the recipe is not one for scalar channels.
        """
        from an_control.learning.dagger.settings import (
            DaggerSettings,
            choose_recipe_name,
            read_recipe,
        )

        check_numbers_within_limits(self)
        recipe = read_recipe(self.recipe or choose_recipe_name(self.task))
        if not isinstance(recipe, DaggerSettings):
            raise ValueError(
                f"{self.task}: image patches are not supported; use an-control distill"
            )
        if not recipe.rounds:
            raise ValueError(f"{self.recipe}: rounds: 0 (allowed: 1 or more)")

    @property
    def config(self) -> dict[str, Any]:
        """Return the run's settings, which are written to `config.json` in its folder.

        Another call of `learn` with this folder continues the run only if its settings are the
        same; time limits may differ.
        """
        names = ("minutes", "teacher_minutes", "recipe", "smoke")
        settings = {name: getattr(self, name) for name in names}
        task = {"task": self.task, "seed": self.seed, "teacher": self.teacher}
        return {**task, "settings": settings}


@dataclass(frozen=True)
class LearnResult:
    """Result of `learn`, which makes a policy for an environment in one run.

    Attributes:
        model: The model file of the policy with its monitor.
        rows: Rows of the table of scores, one dict each with name, score and distribution of the
            returns.
        table: The table of scores in Markdown.
        notes: Sentences about what the time limits left unfinished.
    """

    model: Path
    rows: list[dict[str, Any]]
    table: str
    notes: list[str]


def learn(options: LearnOptions, progress: OnProgress = ignore_progress) -> LearnResult:
    """Make a policy for any environment, or continue the run in its folder.

    The run trains a teacher, a student that imitates the teacher, and a monitor for the student. It
    then compares their returns in a table of scores.

    Args:
        options: The task, the run's folder and the time limits.
        progress: Called with each progress report, whose field `part` names the part of the run. At
            the beginning and at the end of a part there is a report of unit "part".

    Returns:
        The model file and its table of scores.

    Raises:
        ValueError: Options are out of bounds, or do not fit each other or the task.
        RunError: The folder holds another run, or a file cannot be written.
        BrokenEnvironmentError: Nearly all episodes failed.
        RunStoppedError: `progress` returned False.
    """
    from an_control.learning.runs.run_folder import RunFolder
    from an_control_sim.gym.environments import find_environment_id, make_environment

    options.check_options()
    folder = RunFolder(
        options.out,
        options.config,
        False,
        lambda key: get_setting_name_for_user(key, LearnOptions, {}),
    )
    with closing(make_environment(find_environment_id(options.task))) as env:
        run = _Run(options, folder, env, progress)
        with folder.lock():
            return run.run_unfinished_parts()


@dataclass
class _RunState:
    """State of a run of `learn` as it is stored in the run's folder.

    Attributes:
        has_monitor: Whether the monitor is trained.
        rows: Rows of the table of scores whose episodes have been played.
        made_from_steps: A mapping from the names "teacher" and "student" to the number of training
            steps that this part had finished when the parts after it were made. If the part has
            been trained further since then, those later parts are out of date.
        time_limits_s: A mapping from the names "monitor" and "table" to the time limit in seconds
            with which this part was made.
    """

    has_monitor: bool = False
    rows: list[ScoreRow] = field(default_factory=list)
    made_from_steps: dict[str, int] = field(default_factory=dict)
    time_limits_s: dict[str, float] = field(default_factory=dict)


class _Run:
    """Run of `learn` in its folder, which makes the parts teacher, student, monitor and table.

    Args:
        options: Options of the run.
        folder: The run's folder.
        env: Environment of the task.
        progress: Called with each progress report.
    """

    def __init__(
        self,
        options: LearnOptions,
        folder: RunFolder,
        env: gymnasium.Env[Any, Any],
        progress: OnProgress,
    ) -> None:
        from an_control.learning.evaluation.scores import ScoreRow
        from an_control.learning.teacher.teachers import find_task_teacher, read_teacher

        self._options, self._folder, self._progress = options, folder, progress
        self._out = folder.path.absolute()
        self._model = self._out / "model.safetensors"
        self._given_teacher: Teacher | None = find_task_teacher(options.task)
        if options.teacher is not None:
            self._given_teacher = read_teacher(options.teacher, env)
        self._monitor_minutes = options.minutes * SHARES["monitor"]
        self._notes: list[str] = []
        self._state = _RunState()
        if (state := folder.load_checkpoint()) is not None:
            rows = [ScoreRow(name, tuple(map(float, all_)), n) for name, all_, n in state["rows"]]
            self._state = _RunState(state["watched"], rows, state["made_of"], state["given_s"])

    def run_unfinished_parts(self) -> LearnResult:
        """Make the parts that are not finished, write the model card and return the result."""
        from an_control.learning.evaluation.scores import format_score_table
        from an_control.learning.runs.card import summarise_returns, write_model_and_card

        for part in PARTS:
            shutil.rmtree(self._get_trash_path(part), ignore_errors=True)
        makers = (
            self._train_teacher_and_make_note,
            self._train_student_and_make_note,
            self._train_monitor_and_make_note,
            self._make_score_table_and_note,
        )
        for part, make in zip(PARTS, makers, strict=True):
            self._progress(RunProgress("begin", "part", part=part))
            about = make()
            self._progress(RunProgress("end", "part", part=part, note=about))
        rows = self._state.rows
        known = [summarise_returns(row.return_array, None) for row in rows]
        evaluations = [{"protocol": row.name, **of} for row, of in zip(rows, known, strict=True)]
        model = read_model(self._model)
        model = replace(model, trained={**model.trained, "evaluations": evaluations})
        title, table = f"{self._out.name}: {self._options.task}", format_score_table(rows)
        how = format_command(self._options, "learn")
        write_model_and_card(self._folder, model, title, evaluations, how, table)
        random, teacher, *_ = rows
        scored = [
            {
                "name": row.name,
                "score": row.compute_score_relative_to_teacher(random, teacher),
                **of,
            }
            for row, of in zip(rows, known, strict=True)
        ]
        return LearnResult(self._model, scored, table, self._notes)

    def _train_teacher_and_make_note(self) -> str:
        """Train the teacher, unless the user gave one or the task has one."""
        options = self._options
        if self._given_teacher is not None:
            return "is there already"
        result = train_teacher(
            TeacherOptions(
                options.task,
                self._out / "teacher",
                minutes=options.teacher_minutes,
                seed=options.seed,
                smoke=options.smoke,
            ),
            self._make_part_reporter("teacher"),
        )
        self._delete_later_parts_if_outdated(
            "teacher", result.done_before, len(result.metrics), "student", "monitor"
        )
        return ""

    @property
    def _teacher_option_for_distill(self) -> str | None:
        """Return the option `teacher` for `distill`; None for the task's own teacher.

        It is the text that the user gave, or the path of the teacher that this run trained.
        """
        if self._options.teacher is not None or self._given_teacher is not None:
            return self._options.teacher
        return str(self._out / "teacher/model.safetensors")

    def _train_student_and_make_note(self) -> str:
        """Train the student, which imitates the teacher."""
        options, minutes = self._options, self._options.minutes * SHARES["student"]
        result = distill(
            DistillOptions(
                options.task,
                self._out / "student",
                seed=options.seed,
                teacher=self._teacher_option_for_distill,
                recipe=options.recipe,
                minutes=minutes,
                smoke=options.smoke,
            ),
            self._make_part_reporter("student"),
        )
        done = len(result.metrics)
        self._delete_later_parts_if_outdated("student", result.done_before, done, "monitor")
        self._monitor_minutes += max(0.0, minutes - result.minutes)
        if done < result.rounds:
            self._notes.append(
                f"student: {done} of {result.rounds} rounds fitted into its time;"
                " increase --minutes"
            )
        validated = [line["validation"] for line in result.metrics if "validation" in line]
        best = f", best of {len(validated)} validations {max(validated):.4g}" if validated else ""
        return f"{done} rounds{best}"

    def _train_monitor_and_make_note(self) -> str:
        """Train the monitor, unless a finished one exists.

        A monitor whose training was cut short by its time limit is trained again if the limit is
        longer now.
        """
        options, seconds = self._options, 60.0 * self._monitor_minutes
        monitor = MonitorOptions(
            self._out / "student/model.safetensors",
            out=self._model,
            folder=self._out / "monitor",
            task=options.task,
            disturb=MONITOR_FAULTS,
            disturb_share=MONITOR_FAULT_SHARE,
            minutes=self._monitor_minutes,
            seed=options.seed,
        )
        if options.smoke:
            monitor = replace(monitor, steps=300, updates=30, imputation_updates=30)
        made = self._state
        if (
            made.has_monitor
            and self._monitor_gradient_update_count < monitor.updates
            and self._is_time_limit_longer_than_before("monitor", seconds)
        ):
            self._delete_parts_and_scores("monitor")
        if not made.has_monitor:
            train_monitor(monitor, self._make_part_reporter("monitor"))
            made.has_monitor, made.time_limits_s["monitor"] = True, seconds
            self._save_state()
        if (updates := self._monitor_gradient_update_count) < monitor.updates:
            self._notes.append(
                f"monitor: {updates} of {monitor.updates} updates fitted into its time;"
                " increase --minutes"
            )
        if warning := read_model(self._model).monitor_default_off_reason:
            self._notes.append(warning)
        return ""

    @property
    def _monitor_gradient_update_count(self) -> int:
        """Return how many gradient updates the training of the saved monitor has made."""
        updates: int = read_model(self._model).trained["forward"]["updates"]
        return updates

    def _make_score_table_and_note(self) -> str:
        """Play the episodes of the rows that the table of scores still lacks; the note is ""."""
        from an_control.learning.evaluation.scores import ScorePlayer
        from an_control.learning.teacher.teachers import read_teacher
        from an_control_sim.gym.environments import find_environment_id, make_environment
        from an_control_sim.gym.units import Units

        model = read_model(self._model)
        environment = find_environment_id(self._options.task)
        with closing(make_environment(environment, Units.from_task(model.task))) as env:
            teacher = self._given_teacher or read_teacher(
                str(self._teacher_option_for_distill), env
            )
            self._add_missing_score_rows(ScorePlayer(env, model.task.channels, teacher, model))
        return ""

    def _add_missing_score_rows(self, player: ScorePlayer) -> None:
        """Play the episodes of the missing rows of the table of scores, and add the rows.

        Notes for the user are added where a time limit was too short, or if the teacher is no
        better than a random policy.
        """
        from an_control.learning.evaluation.scores import CASES, EPISODES, REFERENCES

        made = self._state
        seconds = 60.0 * self._options.minutes * SHARES["table"] / (len(REFERENCES) + len(CASES))
        bounds = SMOKE_EPISODES if self._options.smoke else EPISODES
        short = any(len(row.returns) < bounds[1] for row in made.rows)
        if short and self._is_time_limit_longer_than_before("table", seconds):
            made.rows = []
        made.time_limits_s["table"] = seconds
        for case in REFERENCES[len(made.rows) :]:
            self._add_score_row(player.play_episodes_of_score_case(case, seconds, bounds))
        cases = [*REFERENCES, *player.select_score_cases_for_task(made.rows)]
        for case in cases[len(made.rows) :]:
            done, share = len(made.rows), len(made.rows) / len(cases)
            row = RunProgress("step", "row", done, len(cases), share, note=case.name, part="table")
            if self._progress(row) is False:
                raise RunStoppedError(self._out)
            self._add_score_row(player.play_episodes_of_score_case(case, seconds, bounds))
        random, learned, *_ = made.rows
        if learned.mean_return <= random.mean_return:
            self._notes.append(
                "teacher: no better than the random policy, so there are no scores;"
                " increasing --teacher-minutes may help"
            )
        if few := [row for row in made.rows if len(row.returns) < bounds[1]]:
            self._notes.append(
                f"table: {len(few)} rows have fewer than {bounds[1]} episodes; increase --minutes"
            )

    def _make_part_reporter(self, part: str) -> OnProgress:
        """Return a function that marks progress reports with a part's name and passes them on."""
        return lambda progress: self._progress(replace(progress, part=part))

    def _add_score_row(self, row: ScoreRow) -> None:
        """Add a played row to the table of scores and save the state."""
        self._state.rows.append(row)
        self._save_state()

    def _is_time_limit_longer_than_before(self, part: str, new_limit_s: float) -> bool:
        """Return whether a part's time limit is now longer than when the part was made."""
        return new_limit_s > 1.01 * self._state.time_limits_s.get(part, new_limit_s)

    def _delete_later_parts_if_outdated(
        self, trained_part: str, steps_before: int, steps_done: int, *later_parts: str
    ) -> None:
        """Delete later parts of the run if the part that they were made from was trained further.

        The number of steps is saved after the deletion, so that a run that is killed before still
        deletes them when it is continued.
        """
        made_of = self._state.made_from_steps
        if made_of.get(trained_part, steps_before) != steps_done:
            self._delete_parts_and_scores(*later_parts)
        if made_of.get(trained_part) != steps_done:
            made_of[trained_part] = steps_done
            self._save_state()

    def _delete_parts_and_scores(self, *parts: str) -> None:
        """Delete the folders of some parts, and mark monitor and table of scores as not made."""
        for name in parts:  # rename first: if the process is killed, the next run drops them too
            with suppress(FileNotFoundError):  # and cannot take an old folder for a new one
                (self._out / name).rename(self._get_trash_path(name))
        self._state.has_monitor, self._state.rows = False, []
        self._save_state()
        for name in parts:
            shutil.rmtree(self._get_trash_path(name), ignore_errors=True)

    def _get_trash_path(self, part: str) -> Path:
        """Return the path to which a part's folder is renamed, at once, before it is deleted."""
        return self._out / f".{part}.old"

    def _save_state(self) -> None:
        """Write the state (which parts are done, and the scores so far) into the run's folder."""
        made = self._state
        self._folder.write_settings_and_metrics([])
        rows = [[row.name, row.return_array, row.steps] for row in made.rows]
        state = {"watched": made.has_monitor, "rows": rows}
        self._folder.save_checkpoint(
            {**state, "made_of": made.made_from_steps, "given_s": made.time_limits_s}
        )
