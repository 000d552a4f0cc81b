"""Messages about a run's settings name the option that a user types, or the recipe's key."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from an_control.cli import main
from an_control.learning.api import evolution, monitor, student, teacher
from an_control.learning.api.evolution import EvolveOptions
from an_control.learning.runs.run_folder import (
    _flatten_settings,
    drop_settings_changeable_on_resume,
)

OTHER_VALUES = {
    "optimiser": "cma",
    "score": 7.0,
    "starts": 3,
    "popsize": 12,
    "rollouts": 5,
    "max_rollouts": 12,
    "sigma": 0.3,
    "rate": 0.7,
    "sigma_rate": 0.3,
    "decay": 0.1,
    "shuffle": ("reset",),
    "validate_every": 3,
    "episodes": 7,
}


@pytest.mark.parametrize("name", OTHER_VALUES)
def test_each_option_of_a_search_is_named_as_it_is_typed(name):
    options = EvolveOptions("cartpole", Path("run"))
    changed = replace(options, **{name: OTHER_VALUES[name]})
    before, after = (
        dict(
            _flatten_settings(
                drop_settings_changeable_on_resume(
                    {"settings": asdict(evolution._make_search_settings(one, 5))}
                )
            )
        )
        for one in (options, changed)
    )
    keys = [key for key in before | after if before.get(key) != after.get(key)]
    names = {evolution._name_setting(key) for key in keys}
    assert f"--{name.replace('_', '-')}" in names
    if name != "optimiser":  # which also decides whether the rates are used
        assert len(names) == 1


@pytest.mark.parametrize(
    ("api", "key", "name"),
    [
        (teacher, "settings.burst", "--burst"),
        (teacher, "settings.faults.delay=0..2", "--disturb delay=0..2"),
        (teacher, "start_hash", "the content of --start-model"),
        (teacher, "task.environment", "task.environment"),
        (monitor, "settings.identity_updates", "--updates"),
        (monitor, "trained.steps", "trained.steps"),
        (student, "settings.student.neuron", "student.neuron (--neuron)"),
        (student, "settings.student.heads", "student.heads (--heads)"),
        (student, "settings.streams.reshuffled", "streams.reshuffled (--reshuffled-chance)"),
        (student, "settings.collection.clean", "collection.clean"),
        (student, "seed", "--seed"),
    ],
)
def test_a_setting_of_other_runs_is_named_by_option_or_recipe(api, key, name):
    assert api._name_setting(key) == name


def test_a_run_with_other_settings_names_the_typed_options(tmp_path, capsys):
    few = ["--generations", "1", "--rollouts", "1", "--episodes", "1", "--starts", "0"]
    run = ["train", "cartpole", "--form", "mlp", "--out", str(tmp_path / "run"), *few]
    assert main([*run, "--popsize", "4"]) == 0
    assert main([*run, "--popsize", "6", "--shuffle", "reset"]) == 1
    error = capsys.readouterr().err
    assert '(--popsize is 4, not 6; --shuffle is ["none"], not ["reset"])' in error
    for words, named in (
        (["--popsize", "5"], "--popsize 5: must be even"),
        (["--shuffle", "none", "reset"], "--rollouts 1: must be 2 or more, one for each --shuffle"),
    ):
        assert main([*run[:-8], "--out", str(tmp_path / "other"), *few, *words]) == 2
        assert named in capsys.readouterr().err
