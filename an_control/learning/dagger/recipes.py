"""The tasks that can be distilled here by name: teacher and settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.learning.dagger.settings import Collection, DaggerSettings
from an_control.learning.dagger.streams import StreamSettings
from an_control.learning.dagger.student import StudentSizes
from an_control.learning.environments import ENVIRONMENTS
from an_control.learning.teacher.teachers import Teacher, packaged_ant_teacher
from an_control.policy.sizes import ConvolutionSizes


@dataclass(frozen=True)
class Recipe:
    """`environment` is a gymnasium id or ``module:id``; `teacher` makes the teacher, if any."""

    environment: str
    teacher: Callable[[], Teacher] | None
    settings: DaggerSettings = field(default_factory=DaggerSettings)


RECIPES = {
    # what a task is distilled by from nothing; the others are asked for by --recipe
    "ant": Recipe(
        ENVIRONMENTS["ant"],
        packaged_ant_teacher,
        DaggerSettings(student=StudentSizes(products=True)),
    ),
    "cartpole": Recipe(
        ENVIRONMENTS["cartpole"],
        None,
        DaggerSettings(
            student=StudentSizes(neuron=8, paper=True),
            collection=Collection(
                clean=100,
                noisy=20,
                perturbed=60,
                on_policy=12,
                rewired=0,
                mixed=12,
                noisy_noise=0.3,
                perturbed_noise=0.1,
                missing=0.0,
                noise=0.0,
                reshuffle=0.0,
            ),
            streams=StreamSettings(0.0, 0.0, 0.0, action_noise=0.0),
            identify_updates=400,
            rounds=10,
            updates=200,
            batch=128,
            steps=100,
            newest=200,
            kept=1200,
            identify_rate=1e-2,
            rate=1e-2,
            final_rate=3e-4,
            channel_loss=0.3,
        ),
    ),
    "cartpole-softmax": Recipe(ENVIRONMENTS["cartpole"], None),
    "ant-again": Recipe(
        ENVIRONMENTS["ant"],
        packaged_ant_teacher,
        DaggerSettings(
            student=StudentSizes(products=True),
            collection=Collection(
                clean=8,
                noisy=8,
                perturbed=16,
                on_policy=5,
                rewired=5,
                mixed=2,
                missing=0.5,
                reshuffle=0.005,
            ),
            streams=StreamSettings(missing=0.5, frozen=0.1, copies=0.2, max_missing=0.3),
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
        DaggerSettings(
            student=StudentSizes(products=True, memory=64),
            collection=Collection(
                clean=8,
                noisy=8,
                perturbed=16,
                on_policy=3,
                rewired=6,
                mixed=3,
                missing=0.4,
            ),
            streams=StreamSettings(
                reshuffled=0.6,
                missing=0.5,
                frozen=0.1,
                copies=0.2,
                reshuffle_every=(25, 50, 100, 200),
                max_missing=0.33,
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
        DaggerSettings(
            student=StudentSizes(
                products=True,
                memory=64,
                outlier_weighting=True,
                reset_on_jump=True,
                prediction_attention=True,
            ),
            collection=Collection(
                clean=8,
                noisy=8,
                perturbed=16,
                on_policy=1,
                rewired=5,
                mixed=5,
                missing=0.5,
                noise=0.2,
                reshuffle=0.025,
                teacher_share=0.6,
            ),
            streams=StreamSettings(
                reshuffled=0.85,
                noise=0.2,
                missing=0.4,
                frozen=0.05,
                copies=0.1,
                reshuffle_every=(25, 25, 50, 100),
                max_missing=0.33,
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
        DaggerSettings(
            student=StudentSizes(
                products=True,
                memory=64,
                outlier_weighting=True,
                reset_on_jump=True,
                prediction_attention=True,
            ),
            collection=Collection(
                clean=8,
                noisy=8,
                perturbed=16,
                on_policy=1,
                rewired=6,
                mixed=6,
                missing=0.6,
                noise=0.2,
                reshuffle=0.02,
                teacher_share=0.6,
            ),
            streams=StreamSettings(
                reshuffled=0.8,
                noise=0.2,
                missing=0.6,
                frozen=0.05,
                copies=0.1,
                reshuffle_every=(25, 25, 50, 100),
                max_missing=0.36,
            ),
            identify_updates=300,
            rounds=6,
            updates=200,
            identify_rate=8e-4,
            rate=6e-4,
            final_rate=2e-4,
            min_return=1300.0,
            averaged=True,
        ),
    ),
}


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
        max_moving=112,
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
