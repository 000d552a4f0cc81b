"""The tasks that can be distilled here by name: teacher and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from an_control.learning.camera_cloning import CameraCloning
from an_control.learning.imitation import Collection, Imitation
from an_control.learning.student import StudentSizes
from an_control.learning.tasks import ENVIRONMENTS
from an_control.learning.teachers import Teacher, packaged_ant_teacher
from an_control.policy.sizes import ConvolutionSizes


@dataclass(frozen=True)
class Recipe:
    """`environment` is a gymnasium id or ``module:id``; `teacher` makes the teacher."""

    environment: str
    teacher: Callable[[], Teacher]
    settings: Imitation = field(default_factory=Imitation)


RECIPES = {
    "ant": Recipe(
        ENVIRONMENTS["ant"],
        packaged_ant_teacher,
        Imitation(student=StudentSizes(products=True)),
    ),
}


def smoke(settings: Imitation) -> Imitation:
    """The same stages in seconds: a few episodes, a few updates; learns next to nothing."""
    return replace(
        settings,
        student=replace(settings.student, neuron=8, key=8),
        collection=Collection(clean=1, noisy=1, messy=1, on_policy=1, rewired=1, mixed=1),
        identify_updates=3,
        rounds=2,
        updates=2,
        lanes=2,
        steps=10,
    )


_SEEING = ConvolutionSizes(
    actions=3,
    grid=10,
    message=16,
    stack=4,
    patch=6,
    positions=8,
    norm_weights=True,
    filters=32,
    hidden=64,
    first_action=0,
    choice=False,
)
CAMERA_RECIPES = {
    "car_racing": CameraCloning(_SEEING),
    "pong": CameraCloning(
        replace(_SEEING, actions=6, hidden=128, choice=True),
        batch=64,
        first_episodes=4,
        steps=2000,
        noise=0.0,
        balance=0.5,
        validation_episodes=1,
    ),
}
"""What is learned from patches; the environment brings its teacher."""


def camera_smoke(settings: CameraCloning) -> CameraCloning:
    """The same in seconds; learns next to nothing."""
    return replace(
        settings,
        rounds=2,
        updates=2,
        first_updates=2,
        batch=4,
        steps=30,
        first_episodes=1,
        validate_every=2,
        validation_episodes=1,
    )
