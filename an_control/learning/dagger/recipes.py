"""The tasks that can be distilled here by name: teacher and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from an_control.learning.dagger.patches.settings import PatchDaggerSettings
from an_control.learning.dagger.staged import Collection, Imitation
from an_control.learning.dagger.streams import Disturbance
from an_control.learning.dagger.student import StudentSizes
from an_control.learning.environments import ENVIRONMENTS
from an_control.learning.teacher.teachers import Teacher, packaged_ant_teacher
from an_control.policy.sizes import ConvolutionSizes


@dataclass(frozen=True)
class Recipe:
    """`environment` is a gymnasium id or ``module:id``; `teacher` makes the teacher."""

    environment: str
    teacher: Callable[[], Teacher]
    settings: Imitation = field(default_factory=Imitation)


RECIPES = {
    # what a task is distilled by from nothing; the others are asked for by --recipe
    "ant": Recipe(
        ENVIRONMENTS["ant"],
        packaged_ant_teacher,
        Imitation(student=StudentSizes(products=True)),
    ),
    "ant-again": Recipe(
        ENVIRONMENTS["ant"],
        packaged_ant_teacher,
        Imitation(
            student=StudentSizes(products=True),
            collection=Collection(
                clean=8,
                noisy=8,
                messy=16,
                on_policy=5,
                rewired=5,
                mixed=2,
                absent=0.5,
                reshuffle=0.005,
            ),
            disturbance=Disturbance(empty=0.5, frozen=0.1, doubled=0.2, empty_share=0.3),
            identify_updates=120,
            rounds=16,
            updates=200,
            identify_rate=1e-3,
            rate=1e-3,
            final_rate=2e-4,
        ),
    ),
    "ant-remembering": Recipe(
        ENVIRONMENTS["ant"],
        packaged_ant_teacher,
        Imitation(
            student=StudentSizes(products=True, memory=64),
            collection=Collection(
                clean=8,
                noisy=8,
                messy=16,
                on_policy=3,
                rewired=6,
                mixed=3,
                absent=0.4,
            ),
            disturbance=Disturbance(
                reshuffled=0.6,
                empty=0.5,
                frozen=0.1,
                doubled=0.2,
                reshuffle_every=(25, 50, 100, 200),
                empty_share=0.33,
            ),
            memory_updates=300,
            identify_updates=120,
            rounds=8,
            updates=120,
            identify_rate=2e-3,
            rate=1e-3,
            final_rate=2e-4,
        ),
    ),
    "ant-rewired": Recipe(
        ENVIRONMENTS["ant"],
        packaged_ant_teacher,
        Imitation(
            student=StudentSizes(products=True, memory=64, doubt=True, startle=True, compare=True),
            collection=Collection(
                clean=8,
                noisy=8,
                messy=16,
                on_policy=1,
                rewired=5,
                mixed=5,
                absent=0.5,
                foreign=0.2,
                reshuffle=0.025,
                teacher_share=0.6,
            ),
            disturbance=Disturbance(
                reshuffled=0.85,
                foreign=0.2,
                empty=0.4,
                frozen=0.05,
                doubled=0.1,
                reshuffle_every=(25, 25, 50, 100),
                empty_share=0.33,
            ),
            rounds=8,
            updates=120,
            identify_rate=1.5e-3,
            rate=6e-4,
            final_rate=1e-4,
        ),
    ),
    "ant-lacking": Recipe(
        ENVIRONMENTS["ant"],
        packaged_ant_teacher,
        Imitation(
            student=StudentSizes(products=True, memory=64, doubt=True, startle=True, compare=True),
            collection=Collection(
                clean=8,
                noisy=8,
                messy=16,
                on_policy=1,
                rewired=6,
                mixed=6,
                absent=0.6,
                foreign=0.2,
                reshuffle=0.02,
                teacher_share=0.6,
            ),
            disturbance=Disturbance(
                reshuffled=0.8,
                foreign=0.2,
                empty=0.6,
                frozen=0.05,
                doubled=0.1,
                reshuffle_every=(25, 25, 50, 100),
                empty_share=0.36,
            ),
            identify_updates=300,
            rounds=6,
            updates=200,
            identify_rate=8e-4,
            rate=6e-4,
            final_rate=2e-4,
            least=1300.0,
            averaged=True,
        ),
    ),
}


def smoke(settings: Imitation) -> Imitation:
    """The same stages in seconds: a few episodes, a few updates; learns next to nothing."""
    return replace(
        settings,
        student=replace(settings.student, neuron=8, key=8),
        collection=Collection(clean=1, noisy=1, messy=1, on_policy=1, rewired=1, mixed=1),
        memory_updates=min(settings.memory_updates, 3),
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
PATCH_RECIPES = {
    "car_racing": PatchDaggerSettings(
        replace(_SEEING, memory=64),
        rounds=200,
        updates=200,
        batch=10,
        piece=16,
        newest=60,
        most_moving=112,
        mirrored=(0,),
        average=0.995,
        validate_every=20,
        validation_episodes=4,
    ),
    "pong": PatchDaggerSettings(
        replace(_SEEING, actions=6, message=32, hidden=128, choice=True, memory=128),
        updates=120,
        first_updates=1000,
        batch=16,
        piece=24,
        led=0.3,
        first_episodes=4,
        steps=2000,
        longest=2000,
        rate=3e-3,
        noise=0.0,
        balance=0.5,
        key_gain=30.0,
        query_gain=5.0,
        validation_episodes=4,
    ),
}
"""What is learned from patches; the environment brings its teacher."""


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
