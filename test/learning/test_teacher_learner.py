# ruff: noqa: E402
"""A teacher learns any environment, and what is saved of it acts as what learned."""

from contextlib import closing
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("stable_baselines3", reason="needs the train extra")
pytest.importorskip("sb3_contrib", reason="needs the train extra")

from an_control.learning.environments import make_environment
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.teacher.learner import Limits, TeacherLearner
from an_control.learning.teacher.settings import settings_for, smoke
from an_control.policy import read_model

KINDS = [
    ("CartPole-v1", "ppo"),
    ("Pendulum-v1", "ppo"),
    ("Pendulum-v1", "sac"),
    ("Pendulum-v1", "tqc"),
]


def learner_in(folder, environment, algorithm, limits=Limits(steps=192), **changed):
    with closing(make_environment(environment)) as env:
        settings = replace(smoke(settings_for(env, algorithm)), burst=0.05, **changed)
    return TeacherLearner(folder, environment, environment, settings, limits, 1)


def run(folder, environment, algorithm, stop_after=None, **others):
    with closing(learner_in(folder, environment, algorithm, **others)) as learner:
        loop = RunLoop(RunFolder(folder, learner.config), learner)
        loop.run(stop_after=stop_after)
        return loop


@pytest.mark.parametrize(("environment", "algorithm"), KINDS)
def test_a_stopped_run_continues_to_the_same_bits(tmp_path, environment, algorithm):
    run(tmp_path / "whole", environment, algorithm)
    for stop in (1, 2, None):
        loop = run(tmp_path / "parts", environment, algorithm, stop)
    assert loop.done == 3
    whole, parts = (
        RunFolder(tmp_path / name, loop.learner.config).last_checkpoint()
        for name in ("whole", "parts")
    )
    for name, arrays in whole["learner"]["library"]["parameters"].items():
        assert str(arrays) == str(parts["learner"]["library"]["parameters"][name]), name
    models = [read_model(tmp_path / name / "model.safetensors") for name in ("whole", "parts")]
    for name, array in models[0].arrays.items():
        assert array.tobytes() == models[1].arrays[name].tobytes()
