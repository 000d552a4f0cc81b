"""Recorded episodes of image patches: the student drives, a teacher that knows the state labels.

The teacher takes over while it finds the student lost, so that no episode is spent off the road.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import TRAINING_SEEDS
from an_control.learning.dagger.image_patches.backgrounds import pattern, replace_grass
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.learning.faults import disturber, draw, ids_of
from an_control.learning.rollout.episode import DisturbedPatches
from an_control.learning.rollout.live_episode import LiveEpisode
from an_control.policy import Policy
from an_control.wiring.image import cut
from an_control_sim.gym.environments import HasChannels, HasFrames, StateTeacher


class Episode(NamedTuple):
    """T steps: gray frames (T, H, W) uint8, the teacher's and the taken actions (T, A) float32."""

    frames: np.ndarray
    labels: np.ndarray
    actions: np.ndarray
    total: float
    helped: float
    """Share of the steps in which the teacher acted."""


def record(
    env: gymnasium.Env[Any, Any],
    teacher: StateTeacher,
    policy: Policy | None,
    settings: PatchDaggerSettings,
    noise: float,
    rng: np.random.Generator,
    steps: int,
) -> Episode:
    """One episode of so many steps at most; `rng` decides it.

    `policy` drives it where it is not lost, else the teacher, who ends it where help is vain. What
    it sees may be late, lost or repeated, by the chances of `settings.faults`. In a share of
    `settings.backgrounds` of the episodes it sees a pattern instead of the grass; the episode keeps
    the frames without it.
    """
    inner = env.unwrapped
    assert isinstance(inner, HasChannels) and isinstance(inner, HasFrames)
    kept = np.flatnonzero(~draw_missing(len(inner.channels), settings.missing, rng))
    ids = tuple(inner.channels[int(i)] for i in kept)
    episode = LiveEpisode(env, int(rng.integers(*TRAINING_SEEDS)), limit=steps)
    teacher.start()
    if policy is not None:
        policy.reset()
    fault = disturber(len(inner.channels), draw(settings.faults, rng), rng)
    delivery = None if fault is None else DisturbedPatches(fault)
    every, policy_acts = ids_of(len(inner.channels)), True
    picture = None
    if rng.random() < settings.backgrounds:
        picture = pattern(inner.frames.shape[-1], rng)
    begin = int(rng.integers(steps)) if rng.random() < settings.led else 0
    frames: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    walk, helped = 0.0, 0
    for tick in episode:
        label = teacher()
        frames.append(inner.frames[-1].copy())
        labels.append(label)
        action = label.copy()
        if policy is not None:
            patches = tick.values
            if picture is not None:
                view = inner.frames.copy()
                replace_grass(view, picture)
                patches = cut(view, settings.student.patch)
            if delivery is not None:
                patches, _ = delivery.apply(patches, every)
                policy_acts = delivery.arrived or settings.repeats
            own = policy.step_array(patches[kept], ids) if policy_acts else actions[-1].copy()
            if teacher.helps or len(actions) < begin:
                helped += 1
            else:
                action = own
        walk = 0.9 * walk + 0.15 * noise * rng.standard_normal()
        action[0] = np.clip(action[0] + walk, -1.0, 1.0)
        actions.append(action)
        if policy is not None:
            policy.previous_action = action
        episode.act(action)
        if teacher.hopeless:
            break
    done = np.array(labels, np.float32), np.array(actions, np.float32)
    return Episode(np.array(frames), *done, episode.total, helped / len(frames))


def draw_missing(patches: int, share: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    """(N,) True for the patches that are missing: a share between both, drawn at random."""
    missing = np.zeros(patches, np.bool_)
    missing[rng.permutation(patches)[: round(rng.uniform(*share) * patches)]] = True
    return missing
