"""Record episodes of image patches for DAgger: the student drives, and the teacher labels.

The teacher belongs to the environment and knows its state. It takes over while it finds the student
lost, so that no episode is spent off the road. The student's view may be disturbed and may show
random pictures in place of CarRacing's grass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import cv2
import gymnasium
import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings, Disturber
from an_control.disturbance.patches import PatchDisturber
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.learning.rollout.episode import LiveEpisode
from an_control.learning.training_disturbances import (
    NO_DISTURBANCE,
    make_disturber,
    make_placeholder_ids,
)
from an_control.policy import Policy
from an_control.wiring.image import cut_patches
from an_control_sim.gym.environments import HasChannels, HasFrames, StateTeacher

ROAD_GRAY = 102.0
"""Gray value of CarRacing's road."""
GRASS_GRAYS = (159, 177)
"""Lowest and highest gray value of CarRacing's grass; hardly anything else lies between."""


def draw_random_background(side: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a random gray picture, a sum of one to three patterns.

    The patterns are blots, blocks, stripes or straight edges. Half of the pictures are about as
    dark as the road, which makes the road hard to see.

    Args:
        side: Height and width of the picture in pixels.
        rng: Source of all random numbers.

    Returns:
        The picture (side, side) uint8.
    """
    dark = rng.random() < 0.5
    shades = np.full((side, side), rng.normal(ROAD_GRAY, 25.0) if dark else rng.uniform(0.0, 255.0))
    for kind in rng.integers(4, size=rng.integers(1, 4)):
        contrast = np.exp(rng.uniform(np.log(5.0), np.log(100.0)))
        shades += contrast * (_draw_blots, _draw_blocks, _draw_stripes, _draw_straight_edges)[kind](
            side, rng
        )
    return np.asarray(np.clip(shades, 0.0, 255.0)).astype(np.uint8)


def _draw_coarse_shade_grid(rng: np.random.Generator) -> np.ndarray:
    """Draw a coarse array (rows, columns) of shades, each from a standard normal distribution.

    The numbers of rows and of columns are random too, from 2 to 32 (log-uniform).
    """
    rows, columns = np.exp(rng.uniform(np.log(2.0), np.log(33.0), 2)).astype(int)
    return rng.standard_normal((rows, columns)).astype(np.float32)


def _draw_blots(side: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a random pattern (side, side) of smooth blots, as shades around 0."""
    return cv2.resize(_draw_coarse_shade_grid(rng), (side, side), interpolation=cv2.INTER_CUBIC)


def _draw_blocks(side: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a random pattern (side, side) of rectangular blocks of one shade each, around 0."""
    return cv2.resize(_draw_coarse_shade_grid(rng), (side, side), interpolation=cv2.INTER_NEAREST)


def _draw_stripes(side: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a random pattern (side, side) of bent stripes, as shades from -1 to 1.

    The direction of the stripes, their width and the softness of their edges are random.
    """
    down, across = np.mgrid[0:side, 0:side] / side
    angle = rng.uniform(0.0, np.pi)
    along = np.cos(angle) * down + np.sin(angle) * across
    bent = rng.uniform(2.0, 15.0) * along + rng.uniform(0.0, 0.3) * _draw_blots(side, rng)
    return np.asarray(np.tanh(rng.uniform(0.5, 5.0) * np.sin(2.0 * np.pi * bent)))


def _draw_straight_edges(side: int, rng: np.random.Generator) -> np.ndarray:
    """Draw a random pattern (side, side) of shades that change abruptly at one to five lines."""
    down, across = np.mgrid[0:side, 0:side] / side - 0.5
    shades = np.zeros((side, side))
    for _ in range(rng.integers(1, 6)):
        angle, place = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(-0.4, 0.4)
        shades += rng.normal() * (np.cos(angle) * down + np.sin(angle) * across > place)
    return shades


def replace_grass_by_picture(view: np.ndarray, picture: np.ndarray) -> None:
    """Replace CarRacing's grass by a picture, in place.

    Every frame gets the picture at the same place.

    Args:
        view: The last f frames (f, S, S) uint8, which this changes.
        picture: The picture (S, S) uint8.
    """
    there = (view >= GRASS_GRAYS[0]) & (view <= GRASS_GRAYS[1])
    np.copyto(view, picture, where=there)


class PatchEpisode(NamedTuple):
    """Recorded episode of T steps of an environment with a camera.

    Attributes:
        frames: Gray frames (T, H, W) uint8.
        labels: The teacher's actions (T, A) float32.
        actions: Actions that were sent (T, A) float32.
        total: The episode's return.
        helped: Share (0..1) of the steps in which the teacher drove instead of the student; 0 in
            episodes that the teacher drove from start to end.
    """

    frames: np.ndarray
    labels: np.ndarray
    actions: np.ndarray
    total: float
    helped: float


def record_episode(
    env: gymnasium.Env[Any, Any],
    teacher: StateTeacher,
    policy: Policy | None,
    settings: PatchDaggerSettings,
    noise_strength: float,
    rng: np.random.Generator,
    max_steps: int,
) -> PatchEpisode:
    """Record one episode, with the teacher's action as the label of each step.

    The policy's view is disturbed, as `settings` say. In some episodes it shows a random picture in
    place of CarRacing's grass. The recorded frames are undisturbed.

    Args:
        env: The environment.
        teacher: Gives the label of every step. It also drives at the start of some episodes, and
            while its `is_helping` is True, for example off the road. The episode ends if the
            teacher has helped for too long (`is_hopeless`).
        policy: The student, which drives at all other times; None to let the teacher drive alone.
        settings: The recipe, the settings of the run.
        noise_strength: Strength of a random walk that is added to the first element of each action.
        rng: Source of all random numbers of the episode.
        max_steps: Maximum number of steps.
    """
    inner = env.unwrapped
    assert isinstance(inner, HasChannels) and isinstance(inner, HasFrames)
    ids = channels = tuple(inner.channels)
    drawn, seed = settings.draw_disturbance(rng), int(rng.integers(2**31))
    delivery = PatchDisturber(Disturber(channels, drawn, seed)) if drawn.is_active else None
    episode = LiveEpisode(env, int(rng.integers(*TRAINING_SEEDS)), limit=max_steps)
    teacher.start_episode()
    if policy is not None:
        policy.reset()
    policy_acts, picture = True, None
    if rng.random() < settings.backgrounds:
        picture = draw_random_background(inner.frames.shape[-1], rng)
    begin = int(rng.integers(max_steps)) if rng.random() < settings.led else 0
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
                replace_grass_by_picture(view, picture)
                patches = cut_patches(view, settings.student.patch)
            if delivery is not None:
                patches, ids = delivery.disturb(patches, channels)
                policy_acts = delivery.has_message_arrived or settings.acts_on_repeated_frames
            own = policy.step_array(patches, ids) if policy_acts else actions[-1].copy()
            if teacher.is_helping or len(actions) < begin:
                helped += 1
            else:
                action = own
        walk = 0.9 * walk + 0.15 * noise_strength * rng.standard_normal()
        action[0] = np.clip(action[0] + walk, -1.0, 1.0)
        actions.append(action)
        if policy is not None:
            policy.previous_action = action
        episode.send_action(action)
        if teacher.is_hopeless:
            break
    done = np.array(labels, np.float32), np.array(actions, np.float32)
    return PatchEpisode(np.array(frames), *done, episode.total, helped / len(frames))


CHANNEL = make_placeholder_ids(1)


def draw_seen_frame_and_action_step_indices(
    steps: int,
    stack: int,
    disturbance: DisturbanceSettings,
    rng: np.random.Generator,
    *,
    acts_on_repeated_frames: bool,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw which frames of a disturbed episode the student sees, and at which steps it acts.

    Frames may be delayed, lost or repeated, in the same way as in an evaluation. Missing patches
    are not chosen here.

    Args:
        steps: Number T of steps of the episode.
        stack: Number f of frames that the student sees at once.
        disturbance: The settings of the disturbances.
        rng: Source of all random numbers.
        acts_on_repeated_frames: Whether the student also acts on frames that it has seen already.
            Otherwise it acts only when a frame arrives.

    Returns:
        Indices (K, f) of the frames seen at each of the K steps at which the student acts, and
        indices (K,) of these steps.
    """
    # Without disturbances; before the start of the episode, frame 0 takes the place of frames.
    frames = np.maximum(np.arange(steps)[:, None] - np.arange(stack)[::-1], 0)
    disturbing = make_disturber(1, replace(disturbance, missing=NO_DISTURBANCE.missing), rng)
    if disturbing is None:
        return frames, np.arange(steps)
    delivery = PatchDisturber(disturbing)
    seen, acted = [], []
    for step, numbers in enumerate(frames):
        shown, _ = delivery.disturb(numbers.reshape(1, stack, 1, 1), CHANNEL)
        if acts_on_repeated_frames or delivery.has_message_arrived:
            seen.append(shown.reshape(stack))
            acted.append(step)
    return np.array(seen), np.array(acted)
