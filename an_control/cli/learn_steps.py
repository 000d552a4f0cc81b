"""The steps of ``an-control learn``: other verbs, one after the other, then table and card."""

from __future__ import annotations

import io
import shutil
from contextlib import closing, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import gymnasium

from an_control.cli import distill, train_monitor, train_teacher
from an_control.cli.learn_display import RunDisplay, Steps
from an_control.learning.dagger.learner import Dagger
from an_control.learning.evaluation.scores import (
    CASES,
    EPISODES,
    REFERENCES,
    Row,
    Scoring,
    markdown,
)
from an_control.learning.runs.card import figures, write_card
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.runs.terminal import displayed_by
from an_control.learning.teacher.teachers import Teacher, own_teacher, read_teacher
from an_control.load import monitor_warning
from an_control.policy import read_model
from an_control_sim.gym.environments import environment_of, make_environment
from an_control_sim.gym.units import Units

SHARES = {"student": 0.55, "monitor": 0.25, "table": 0.2}
"""Of the minutes for all of them; what the student leaves is the monitor's."""
MONITOR_FAULTS, MONITOR_FAULT_SHARE = ("delay=1",), 0.25
"""What the monitor learns to be no evidence of rewiring, and in which share of its episodes."""
MOST_ROWS = len(REFERENCES) + len(CASES)
SMOKE_EPISODES = 2, 2


class Asked(Protocol):
    """What decides a run; as the options of ``learn``."""

    @property
    def task(self) -> str: ...
    @property
    def minutes(self) -> float: ...
    @property
    def teacher_minutes(self) -> float: ...
    @property
    def recipe(self) -> str | None: ...
    @property
    def teacher(self) -> str | None: ...
    @property
    def seed(self) -> int: ...
    @property
    def smoke(self) -> bool: ...


class _Command(Protocol):
    def run(self) -> int:
        """The exit status."""


class LearnRun:
    """The steps that are left of a run in `folder`; `env` is the task's environment.

    ValueError where a teacher that is given does not fit the task.
    """

    def __init__(
        self, asked: Asked, folder: RunFolder, env: gymnasium.Env[Any, Any], command: str
    ) -> None:
        self._asked, self._folder, self._command = asked, folder, command
        self._out = folder.path.absolute()
        self._model = self._out / "model.safetensors"
        self._given: Teacher | None = own_teacher(asked.task)
        if asked.teacher is not None:
            self._given = read_teacher(asked.teacher, env)
        self._loop: RunLoop | None = None
        self._done_before = 0
        """Steps of that run which were done before this command."""
        self._monitor_minutes = asked.minutes * SHARES["monitor"]
        self._notes: list[str] = []
        state = folder.last_checkpoint() or {"watched": False, "rows": []}
        self._watched: bool = state["watched"]
        self._made_of: dict[str, int] = state.get("made_of", {})
        """How far each step had come when what follows was made from it."""
        self._given_s: dict[str, float] = state.get("given_s", {})
        """The time that monitor and table had."""
        self._rows = [
            Row(name, tuple(map(float, all_)), steps) for name, all_, steps in state["rows"]
        ]

    def run(self) -> int:
        """The exit status: that of the first step that fails or is interrupted.

        RunError where another process works in the folder.
        """
        with self._folder.alone():
            return self._make()

    def _make(self) -> int:
        work = {
            "teacher": self._teach,
            "student": self._distill,
            "monitor": self._watch,
            "table": self._measure,
        }
        for name in work:
            shutil.rmtree(self._old(name), ignore_errors=True)
        with Steps(tuple(work)) as self._steps:
            for name, step in work.items():
                self._steps.begin(name)
                status = step()
                if status:
                    return status
        title = f"{self._out.name}: {self._asked.task}"
        model = read_model(self._model)
        rows = [{"protocol": one.name, **figures(one.array, None)} for one in self._rows]
        model = replace(model, trained={**model.trained, "evaluations": rows})
        table = markdown(self._rows)
        write_card(self._folder, model, title, rows, self._command, table)
        print("\n".join([table, *self._notes, str(self._model)]))
        return 0

    def result(self) -> dict[str, Any]:
        """The table for `--json`."""
        random, teacher, *_ = self._rows
        rows = [
            {"name": one.name, "score": one.score(random, teacher), **figures(one.array, None)}
            for one in self._rows
        ]
        about = {"task": self._asked.task, "seed": self._asked.seed, "model": str(self._model)}
        return {**about, "rows": rows, "notes": self._notes}

    @property
    def _teacher(self) -> str | None:
        """The teacher as `distill` takes it, None for the task's own."""
        if self._asked.teacher is not None or self._given is not None:
            return self._asked.teacher
        return str(self._out / "teacher/model.safetensors")

    def _teach(self) -> int:
        if self._given is not None:
            self._steps.end("is there already")
            return 0
        asked = self._asked
        status = self._run(
            train_teacher.Verb(
                asked.task,
                self._out / "teacher",
                minutes=asked.teacher_minutes,
                seed=asked.seed,
                smoke=asked.smoke,
            )
        )
        if status:
            return status
        assert self._loop is not None
        self._follow("teacher", self._loop.done, "student", "monitor")
        self._steps.end("")
        return 0

    def _distill(self) -> int:
        asked = self._asked
        status = self._run(
            distill.Verb(
                asked.task,
                self._out / "student",
                seed=asked.seed,
                teacher=self._teacher,
                recipe=asked.recipe,
                minutes=asked.minutes * SHARES["student"],
                smoke=asked.smoke,
            )
        )
        if status:
            return status
        assert self._loop is not None and isinstance(self._loop.learner, Dagger)
        self._follow("student", self._loop.done, "monitor")
        left = self._asked.minutes * SHARES["student"] - self._loop.learner.minutes
        self._monitor_minutes += max(0.0, left)
        done, all_rounds = self._loop.done, 1 + self._loop.learner.settings.rounds
        if done < all_rounds:
            self._notes.append(
                f"student: its time allowed {done} of {all_rounds} rounds; more --minutes help"
            )
        validated = [line["validation"] for line in self._loop.metrics if "validation" in line]
        best = f", validation {max(validated):.4g}" if validated else ""
        self._steps.end(f"{done} rounds{best}")
        return 0

    def _watch(self) -> int:
        asked = self._asked
        watch = train_monitor.Verb(
            self._out / "student/model.safetensors",
            out=self._model,
            folder=self._out / "monitor",
            task=asked.task,
            disturb=MONITOR_FAULTS,
            disturb_share=MONITOR_FAULT_SHARE,
            minutes=self._monitor_minutes,
            seed=asked.seed,
        )
        if asked.smoke:
            watch = replace(watch, steps=300, updates=30, imputation_updates=30)
        seconds = 60.0 * self._monitor_minutes
        if self._watched and self._updates < watch.updates and self._more("monitor", seconds):
            self._drop("monitor")
        if not self._watched:
            status = self._run(watch)
            if status:
                return status
            self._watched, self._given_s["monitor"] = True, seconds
            self._save()
        made = self._updates
        if made < watch.updates:
            self._notes.append(
                f"monitor: its time allowed {made} of {watch.updates} updates; more --minutes help"
            )
        if warning := monitor_warning(read_model(self._model), None):
            self._notes.append(warning)
        self._steps.end("")
        return 0

    @property
    def _updates(self) -> int:
        """Of the monitor that is there."""
        updates: int = read_model(self._model).trained["forward"]["updates"]
        return updates

    def _measure(self) -> int:
        model = read_model(self._model)
        environment = environment_of(self._asked.task)
        with closing(make_environment(environment, Units.of_task(model.task))) as env:
            teacher = self._given or read_teacher(str(self._teacher), env)
            return self._fill_table(Scoring(env, model.task["channels"], teacher, model))

    def _fill_table(self, scoring: Scoring) -> int:
        seconds = 60.0 * self._asked.minutes * SHARES["table"] / MOST_ROWS
        bounds = SMOKE_EPISODES if self._asked.smoke else EPISODES
        short = any(len(row.returns) < bounds[1] for row in self._rows)
        if short and self._more("table", seconds):
            self._rows = []
        self._given_s["table"] = seconds
        for case in REFERENCES[len(self._rows) :]:
            self._add(scoring.play(case, seconds, bounds))
        cases = scoring.cases(self._rows)
        for case in cases[len(self._rows) - len(REFERENCES) :]:
            self._steps.update(len(self._rows) / (len(REFERENCES) + len(cases)), case.name)
            self._add(scoring.play(case, seconds, bounds))
        self._steps.end("")
        random, learned, *_ = self._rows
        if learned.mean <= random.mean:
            self._notes.append(
                "teacher: no better than the random policy, so there are no scores;"
                " more --teacher-minutes may help"
            )
        if few := [row for row in self._rows if len(row.returns) < bounds[1]]:
            self._notes.append(
                f"table: its time allowed {len(few)} rows fewer than {bounds[1]} episodes"
            )
        return 0

    def _run(self, verb: _Command) -> int:
        """Another verb, shown as the step at hand; its exit status."""

        def display(loop: RunLoop) -> RunDisplay:
            self._loop, self._done_before = loop, loop.done
            return self._steps.display(loop)

        with displayed_by(display), redirect_stdout(io.StringIO()):
            return verb.run()

    def _add(self, row: Row) -> None:
        self._rows.append(row)
        self._save()

    def _more(self, step: str, seconds: float) -> bool:
        """Whether a step has more time now than when it was made."""
        return seconds > 1.01 * self._given_s.get(step, seconds)

    def _follow(self, step: str, done: int, *others: str) -> None:
        """Drop what these other steps made of this one if it has come further since, also where a
        kill came between."""
        if self._made_of.get(step, self._done_before) != done:
            self._drop(*others)
        if self._made_of.get(step) != done:
            self._made_of[step] = done
            self._save()

    def _drop(self, *steps: str) -> None:
        """Delete what these steps have made, and what followed from it."""
        for name in steps:  # first: after a kill the next run has the same reason to drop them,
            with suppress(FileNotFoundError):  # and must not take an old folder for the new step
                (self._out / name).rename(self._old(name))
        self._watched, self._rows = False, []
        self._save()
        for name in steps:
            shutil.rmtree(self._old(name), ignore_errors=True)

    def _old(self, step: str) -> Path:
        """Where a step's folder is deleted: a kill meanwhile leaves no half of it in its place."""
        return self._out / f".{step}.old"

    def _save(self) -> None:
        self._folder.begin([])
        rows = [[row.name, row.array, row.steps] for row in self._rows]
        state = {"watched": self._watched, "rows": rows}
        self._folder.checkpoint({**state, "made_of": self._made_of, "given_s": self._given_s})
