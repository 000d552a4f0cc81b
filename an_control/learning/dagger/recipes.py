"""Recipes: the settings of `distill` as YAML files, those that ship by name (`recipes/`).

A file says what the student observes and, by their names, the settings that differ from the
defaults of `DaggerSettings` (scalar channels) or `PatchDaggerSettings` (image patches)::

    an_control_recipe: 1
    observation: scalar channels
    rounds: 8
    streams: {missing: 0.4}
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.learning.dagger.settings import Collection, DaggerSettings
from an_control.learning.yaml_settings import settings_from
from an_control.system.share import share_path
from an_control.wiring.checked_yaml import read_yaml

KINDS = {"scalar channels": DaggerSettings, "image patches": PatchDaggerSettings}
GENERIC = "robust"
"""The recipe of a task without one of its own."""
_OBSERVATION = re.compile("|".join(KINDS))


def recipe_names() -> tuple[str, ...]:
    """The recipes that ship."""
    return tuple(sorted(path.stem for path in share_path("recipes").glob("*.yaml")))


def recipe_path(recipe: str) -> Path:
    """The file of a recipe: one that ships, by its name, or any by its path.

    ValueError where no recipe has this name and it is no path of a YAML file.
    """
    if recipe.endswith((".yaml", ".yml")):
        return Path(recipe)
    if recipe not in recipe_names():
        raise ValueError(
            f"--recipe {recipe!r}: must be one of {', '.join(recipe_names())}, or a .yaml file"
        )
    return share_path(f"recipes/{recipe}.yaml")


def read_recipe(recipe: str) -> DaggerSettings | PatchDaggerSettings:
    """The settings of a recipe, by name or path.

    ValueError for an unknown name; WiringError names file, key, value and what is allowed.
    """
    header = ("an_control_recipe", "observation")
    entry = read_yaml(recipe_path(recipe))
    top = dict(entry.items(f"a mapping of {', '.join(header)} and settings"))
    kind = DaggerSettings
    if "observation" in top:
        text = top["observation"].text(" or ".join(KINDS), _OBSERVATION)
        kind = KINDS[text]  # type: ignore[assignment]
    settings = settings_from(kind, entry, header)
    if top["an_control_recipe"].value != 1:
        raise top["an_control_recipe"].error("1, the version of the format")
    return settings


def recipe_of(task: str) -> str:
    """The name of the recipe that a task is learned by where nobody names one."""
    return task if task in recipe_names() else GENERIC


def smoke(settings: DaggerSettings) -> DaggerSettings:
    """The same stages in seconds: a few episodes, a few updates; learns next to nothing."""
    return replace(
        settings,
        student=replace(settings.student, neuron=8, key=8),
        collection=Collection(clean=1, noisy=1, perturbed=1, on_policy=1, rewired=1, mixed=1),
        memory_updates=min(settings.memory_updates, 3),
        identify_updates=3,
        rounds=2,
        updates=2,
        batch=2,
        steps=10,
    )


def patch_smoke(settings: PatchDaggerSettings) -> PatchDaggerSettings:
    """The same in seconds; learns next to nothing."""
    return replace(
        settings,
        rounds=2,
        updates=2,
        first_updates=2,
        batch=4,
        piece=min(settings.piece, 5),
        steps=30,
        first_episodes=1,
        validate_every=2,
        validation_episodes=1,
    )
