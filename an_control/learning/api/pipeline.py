"""From an environment to a policy that runs: teacher, student, monitor, table of scores, card."""

from __future__ import annotations

import shutil
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from an_control.learning.api.monitor import MonitorOptions, train_monitor
from an_control.learning.api.student import DistillOptions, distill
from an_control.learning.api.teacher import TeacherOptions, train_teacher
from an_control.learning.command_line import command, option
from an_control.learning.runs.progress import OnProgress, Progress, RunStopped, ignore
from an_control.load import monitor_warning
from an_control.policy import read_model

if TYPE_CHECKING:
    import gymnasium

    from an_control.learning.evaluation.scores import Row, Scoring
    from an_control.learning.runs.run_folder import RunFolder
    from an_control.learning.teacher.teachers import Teacher

PARTS = ("teacher", "student", "monitor", "table")
SHARES = {"student": 0.55, "monitor": 0.25, "table": 0.2}
"""Of the minutes for all of them; what the student leaves is the monitor's."""
MONITOR_FAULTS, MONITOR_FAULT_SHARE = ("delay=1",), 0.25
"""What the monitor learns to be no evidence of rewiring, and in which share of its episodes."""
SMOKE_EPISODES = 2, 2


@dataclass(frozen=True)
class LearnOptions:
    """What decides a run of `learn`."""

    task: str
    """A gymnasium id, also as module:id, or a task known by name (ant, cartpole)."""
    out: Path
    """The run's folder: model.safetensors and model.md are the result; teacher, student and monitor
    are the folders of the steps."""
    minutes: float = 30.0
    """Processor time for student, monitor and table, in minutes."""
    teacher_minutes: float = 45.0
    """Processor time for the teacher at most."""
    recipe: str | None = None
    """A recipe of distill, by name (quick, robust and others) or as a YAML file; by default that of
    the task's name, robust where it has none."""
    teacher: str | None = None
    """A teacher that is there already, as distill takes it: a model file of an MLP policy,
    ppo:FILE.zip of stable-baselines3, or python:MODULE:FUNCTION, from the array of readings to one
    of actions from -1 to 1. By default train-teacher makes one; the ant has its own."""
    seed: int = 1
    """Seed of everything random."""
    smoke: bool = False
    """A run of seconds, to check that everything works; it learns almost nothing."""

    def check(self) -> None:
        """Raise ValueError for what would be refused only after hours."""
        from an_control.learning.dagger.settings import DaggerSettings, read_recipe, recipe_of

        for name in ("minutes", "teacher_minutes"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{option(name)} {getattr(self, name)}: must be over 0")
        if self.seed < 0:
            raise ValueError(f"--seed {self.seed}: must be 0 or more")
        recipe = read_recipe(self.recipe or recipe_of(self.task))
        if not isinstance(recipe, DaggerSettings):
            raise ValueError(f"{self.task}: learns from image patches; an-control distill does")
        if not recipe.rounds:
            raise ValueError(f"{self.recipe}: rounds: 0 (allowed: 1 or more)")

    @property
    def config(self) -> dict[str, Any]:
        """The settings that the run's folder keeps."""
        names = ("minutes", "teacher_minutes", "recipe", "smoke")
        settings = {name: getattr(self, name) for name in names}
        task = {"task": self.task, "seed": self.seed, "teacher": self.teacher}
        return {**task, "settings": settings}


@dataclass(frozen=True)
class LearnResult:
    """A policy with its monitor, and what it is worth.

    Attributes:
        model: its file.
        rows: the table of scores: name, score, and the returns in a few numbers.
        table: the same in Markdown.
        notes: sentences on what the time did not allow.
    """

    model: Path
    rows: list[dict[str, Any]]
    table: str
    notes: list[str]


def learn(options: LearnOptions, progress: OnProgress = ignore) -> LearnResult:
    """Make a policy for any environment, or continue the run in its folder.

    The parts in `PARTS` are reported too: their begin and their end have the unit "part".

    Raises:
        ValueError: options that are out of bounds, or fit neither each other nor the task.
        RunError: the folder holds another run, or the disk refuses.
        BrokenEnvironmentError: nearly all episodes fail.
        RunStopped: `progress` returned False.
    """
    from an_control.learning.runs.run_folder import RunFolder
    from an_control_sim.gym.environments import environment_of, make_environment

    options.check()
    folder = RunFolder(options.out, options.config)
    with closing(make_environment(environment_of(options.task))) as env:
        run = _Run(options, folder, env, progress)
        with folder.alone():
            return run.make()


@dataclass
class _Made:
    """What is made so far, as the folder keeps it."""

    watched: bool = False
    """Whether the monitor is done."""
    rows: list[Row] = field(default_factory=list)
    made_of: dict[str, int] = field(default_factory=dict)
    """How far each part had come when what follows was made from it."""
    given_s: dict[str, float] = field(default_factory=dict)
    """The time that monitor and table had."""


class _Run:
    """The parts that are left of a run in `folder`; `env` is the task's environment."""

    def __init__(
        self,
        options: LearnOptions,
        folder: RunFolder,
        env: gymnasium.Env[Any, Any],
        progress: OnProgress,
    ) -> None:
        from an_control.learning.evaluation.scores import Row
        from an_control.learning.teacher.teachers import own_teacher, read_teacher

        self._options, self._folder, self._progress = options, folder, progress
        self._out = folder.path.absolute()
        self._model = self._out / "model.safetensors"
        self._given: Teacher | None = own_teacher(options.task)
        if options.teacher is not None:
            self._given = read_teacher(options.teacher, env)
        self._monitor_minutes = options.minutes * SHARES["monitor"]
        self._notes: list[str] = []
        self._made = _Made()
        if (state := folder.last_checkpoint()) is not None:
            rows = [Row(name, tuple(map(float, all_)), n) for name, all_, n in state["rows"]]
            past = state.get("made_of", {}), state.get("given_s", {})
            self._made = _Made(state["watched"], rows, *past)

    def make(self) -> LearnResult:
        """Make the parts that are left and the card."""
        from an_control.learning.evaluation.scores import markdown
        from an_control.learning.runs.card import figures, write_card

        for part in PARTS:
            shutil.rmtree(self._old(part), ignore_errors=True)
        makers = self._teach, self._distill, self._watch, self._measure
        for part, make in zip(PARTS, makers, strict=True):
            self._progress(Progress("begin", "part", part=part))
            about = make()
            self._progress(Progress("end", "part", part=part, note=about))
        rows = self._made.rows
        known = [figures(row.array, None) for row in rows]
        evaluations = [{"protocol": row.name, **of} for row, of in zip(rows, known, strict=True)]
        model = read_model(self._model)
        model = replace(model, trained={**model.trained, "evaluations": evaluations})
        title, table = f"{self._out.name}: {self._options.task}", markdown(rows)
        how = command(self._options, "learn")
        write_card(self._folder, model, title, evaluations, how, table)
        random, teacher, *_ = rows
        scored = [
            {"name": row.name, "score": row.score(random, teacher), **of}
            for row, of in zip(rows, known, strict=True)
        ]
        return LearnResult(self._model, scored, table, self._notes)

    def _teach(self) -> str:
        """Make the teacher unless one was given; return what there is to say of it, as those
        below."""
        options = self._options
        if self._given is not None:
            return "is there already"
        result = train_teacher(
            TeacherOptions(
                options.task,
                self._out / "teacher",
                minutes=options.teacher_minutes,
                seed=options.seed,
                smoke=options.smoke,
            ),
            self._of_part("teacher"),
        )
        self._follow("teacher", result.done_before, len(result.metrics), "student", "monitor")
        return ""

    @property
    def _teacher(self) -> str | None:
        """The teacher as `distill` takes it, None for the task's own."""
        if self._options.teacher is not None or self._given is not None:
            return self._options.teacher
        return str(self._out / "teacher/model.safetensors")

    def _distill(self) -> str:
        options, minutes = self._options, self._options.minutes * SHARES["student"]
        result = distill(
            DistillOptions(
                options.task,
                self._out / "student",
                seed=options.seed,
                teacher=self._teacher,
                recipe=options.recipe,
                minutes=minutes,
                smoke=options.smoke,
            ),
            self._of_part("student"),
        )
        done = len(result.metrics)
        self._follow("student", result.done_before, done, "monitor")
        self._monitor_minutes += max(0.0, minutes - result.minutes)
        if done < result.rounds:
            self._notes.append(
                f"student: its time allowed {done} of {result.rounds} rounds; more --minutes help"
            )
        validated = [line["validation"] for line in result.metrics if "validation" in line]
        best = f", validation {max(validated):.4g}" if validated else ""
        return f"{done} rounds{best}"

    def _watch(self) -> str:
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
        made = self._made
        if made.watched and self._updates < monitor.updates and self._more("monitor", seconds):
            self._drop("monitor")
        if not made.watched:
            train_monitor(monitor, self._of_part("monitor"))
            made.watched, made.given_s["monitor"] = True, seconds
            self._save()
        if (updates := self._updates) < monitor.updates:
            self._notes.append(
                f"monitor: its time allowed {updates} of {monitor.updates} updates;"
                " more --minutes help"
            )
        if warning := monitor_warning(read_model(self._model), None):
            self._notes.append(warning)
        return ""

    @property
    def _updates(self) -> int:
        """Gradient updates of the monitor that is there."""
        updates: int = read_model(self._model).trained["forward"]["updates"]
        return updates

    def _measure(self) -> str:
        from an_control.learning.evaluation.scores import Scoring
        from an_control.learning.teacher.teachers import read_teacher
        from an_control_sim.gym.environments import environment_of, make_environment
        from an_control_sim.gym.units import Units

        model = read_model(self._model)
        environment = environment_of(self._options.task)
        with closing(make_environment(environment, Units.of_task(model.task))) as env:
            teacher = self._given or read_teacher(str(self._teacher), env)
            self._fill_table(Scoring(env, model.task["channels"], teacher, model))
        return ""

    def _fill_table(self, scoring: Scoring) -> None:
        from an_control.learning.evaluation.scores import CASES, EPISODES, REFERENCES

        made = self._made
        seconds = 60.0 * self._options.minutes * SHARES["table"] / (len(REFERENCES) + len(CASES))
        bounds = SMOKE_EPISODES if self._options.smoke else EPISODES
        short = any(len(row.returns) < bounds[1] for row in made.rows)
        if short and self._more("table", seconds):
            made.rows = []
        made.given_s["table"] = seconds
        for case in REFERENCES[len(made.rows) :]:
            self._add(scoring.play(case, seconds, bounds))
        cases = [*REFERENCES, *scoring.cases(made.rows)]
        for case in cases[len(made.rows) :]:
            done, share = len(made.rows), len(made.rows) / len(cases)
            row = Progress("step", "row", done, len(cases), share, note=case.name, part="table")
            if self._progress(row) is False:
                raise RunStopped(self._out)
            self._add(scoring.play(case, seconds, bounds))
        random, learned, *_ = made.rows
        if learned.mean <= random.mean:
            self._notes.append(
                "teacher: no better than the random policy, so there are no scores;"
                " more --teacher-minutes may help"
            )
        if few := [row for row in made.rows if len(row.returns) < bounds[1]]:
            self._notes.append(
                f"table: its time allowed {len(few)} rows fewer than {bounds[1]} episodes"
            )

    def _of_part(self, part: str) -> OnProgress:
        """Return what reports a part's run as this part's."""
        return lambda progress: self._progress(replace(progress, part=part))

    def _add(self, row: Row) -> None:
        self._made.rows.append(row)
        self._save()

    def _more(self, part: str, seconds: float) -> bool:
        """Return whether a part has more time now than when it was made."""
        return seconds > 1.01 * self._made.given_s.get(part, seconds)

    def _follow(self, part: str, before: int, done: int, *others: str) -> None:
        """Drop what these other parts made of this one if it has come further since, also where a
        kill came between."""
        made_of = self._made.made_of
        if made_of.get(part, before) != done:
            self._drop(*others)
        if made_of.get(part) != done:
            made_of[part] = done
            self._save()

    def _drop(self, *parts: str) -> None:
        """Delete what these parts have made, and what followed from it."""
        for name in parts:  # first: after a kill the next run has the same reason to drop them,
            with suppress(FileNotFoundError):  # and must not take an old folder for the new part
                (self._out / name).rename(self._old(name))
        self._made.watched, self._made.rows = False, []
        self._save()
        for name in parts:
            shutil.rmtree(self._old(name), ignore_errors=True)

    def _old(self, part: str) -> Path:
        """Return where a part's folder is deleted: a kill meanwhile leaves no half of it in its
        place."""
        return self._out / f".{part}.old"

    def _save(self) -> None:
        made = self._made
        self._folder.begin([])
        rows = [[row.name, row.array, row.steps] for row in made.rows]
        state = {"watched": made.watched, "rows": rows}
        self._folder.checkpoint({**state, "made_of": made.made_of, "given_s": made.given_s})
