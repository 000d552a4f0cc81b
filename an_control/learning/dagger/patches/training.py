"""Imitation for cameras: the student drives, a teacher that knows the state labels (DAgger).

The teacher takes over while it finds the student lost, so that no episode is spent off the road.
Order and place of patches never reach the student, so nothing has to be shuffled to teach it; the
previous action adds the same to all keys, which a softmax over patches takes out again, so it is
not taught either.

Most patches show no change. All of these have the same key, so a batch holds the mean of their
values with their number: the same gradients for a fraction of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import cv2
import gymnasium
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from an_control.learning.dagger.patches.student import VisionStudent
from an_control.learning.environments import HasChannels, HasFrames, StateTeacher
from an_control.learning.rollout.engine import TRAINING_SEEDS
from an_control.policy import Policy
from an_control.policy.sizes import ConvolutionSizes
from an_control.policy.vision.weights import NORM_EPSILON, WHITE
from an_control.wiring.image import cut

ROAD_GRAY = 102.0
GRASS_GRAYS = (159, 177)
"""Between them is what CarRacing's grass looks like, and hardly anything else."""


class Episode(NamedTuple):
    """T steps: gray frames (T, H, W) uint8, the teacher's and the taken actions (T, A) float32."""

    frames: np.ndarray
    labels: np.ndarray
    actions: np.ndarray
    total: float
    helped: float
    """Share of the steps in which the teacher acted."""


@dataclass(frozen=True)
class CameraCloning:
    """A run's numbers.

    `hidden` are the least and the most patches that are hidden, as a share: drawn for each
    episode, and for each lane's way through one. `balance` weighs the examples of each button by
    that power of how rare it is; of no effect where the actions are no choice.
    """

    student: ConvolutionSizes
    rounds: int = 100
    updates: int = 300
    first_updates: int = 1500
    """In the first round, where the student is new."""
    batch: int = 32
    """Lanes: steps that are learned from side by side."""
    piece: int = 1
    """Steps in a row of each lane in an update. A student with a memory learns from whole episodes,
    piece by piece; one without from steps at random."""
    steps: int = 1000
    """To record in a round, of one episode or several."""
    longest: int = 1000
    """Steps of an episode at most; few of them are more starts."""
    led: float = 0.0
    """Share of the episodes that the teacher begins and the student takes over on the way."""
    first_episodes: int = 8
    """Of the teacher with noise, before the first round."""
    memory: int = 300
    """Newest episodes that are learned from."""
    newest: int = 30
    """Of these, the newest that make half of each batch."""
    rate: float = 1e-3
    final_rate: float = 6e-5
    noise: float = 0.1
    """On the first action of every other round's episode: a random walk of this strength."""
    hidden: tuple[float, float] = (0.0, 0.0)
    most_moving: int = 144
    """Patches that show a change: an example with more of them loses some at random."""
    backgrounds: float = 0.0
    """Share of the episodes and of the lanes of CarRacing in which a random pattern stands where
    the grass is."""
    mirrored: tuple[int, ...] = ()
    """Actions that change their sign where left and right are exchanged, as they are for half of
    the lanes; where there are none, no example is mirrored."""
    average: float = 0.998
    """How slowly the weights that drive follow those that learn."""
    loss_scale: tuple[float, ...] = (12.0, 1.0, 1.0)
    """Weight of each action's error, where the actions are no choice."""
    balance: float = 0.0
    key_gain: float = 6.0
    query_gain: float = 3.0
    """The first weights' size over that of a usual layer: attention that begins undecided learns
    slowly."""
    validate_every: int = 10
    validation_episodes: int = 3

    def rate_of(self, number: int) -> float:
        """Constant for two thirds of the run, then falling."""
        left = 3.0 * (1.0 - number / max(1, self.rounds))
        return self.final_rate + (self.rate - self.final_rate) * min(1.0, left)


def new_student(settings: CameraCloning, seed: int) -> VisionStudent:
    """A student whose first weights follow from the seed."""
    student = VisionStudent(settings.student, seed)
    with torch.no_grad():
        student.array("key.change").mul_(settings.key_gain)
        student.array("query.weight").mul_(settings.query_gain)
        student.array("key.action").zero_()
    return student


def record(
    env: gymnasium.Env[Any, Any],
    teacher: StateTeacher,
    policy: Policy | None,
    settings: CameraCloning,
    noise: float,
    rng: np.random.Generator,
    steps: int,
) -> Episode:
    """One episode of so many steps at most; `rng` decides it.

    `policy` drives it where it is not lost, else the teacher, who ends it where help is vain. In a
    share of `settings.backgrounds` of the episodes it sees a pattern instead of the grass; the
    episode keeps the frames without it.
    """
    inner = env.unwrapped
    assert isinstance(inner, HasChannels) and isinstance(inner, HasFrames)
    kept = np.flatnonzero(~hide(len(inner.channels), settings.hidden, rng))
    ids = tuple(inner.channels[int(i)] for i in kept)
    patches, _ = env.reset(seed=int(rng.integers(*TRAINING_SEEDS)))
    teacher.start()
    if policy is not None:
        policy.reset()
    picture = None
    if rng.random() < settings.backgrounds:
        picture = pattern(inner.frames.shape[-1], rng)
    begin = int(rng.integers(steps)) if rng.random() < settings.led else 0
    frames, labels, actions = [], [], []
    total, walk, helped = 0.0, 0.0, 0
    for step in range(steps):
        label = teacher()
        frames.append(inner.frames[-1].copy())
        labels.append(label)
        action = label.copy()
        if policy is not None:
            if picture is not None:
                view = inner.frames.copy()
                replace_grass(view, picture)
                patches = cut(view, settings.student.patch)
            own = policy.step_array(patches[kept], ids)
            if teacher.helps or step < begin:
                helped += 1
            else:
                action = own
        walk = 0.9 * walk + 0.15 * noise * rng.standard_normal()
        action[0] = np.clip(action[0] + walk, -1.0, 1.0)
        actions.append(action)
        if policy is not None:
            policy.previous_action = action
        patches, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated or teacher.hopeless:
            break
    done = np.array(labels, np.float32), np.array(actions, np.float32)
    return Episode(np.array(frames), *done, total, helped / len(frames))


def hide(patches: int, share: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    """(N,) True for the patches that are hidden: a share between both, drawn at random."""
    hidden = np.zeros(patches, np.bool_)
    hidden[rng.permutation(patches)[: round(rng.uniform(*share) * patches)]] = True
    return hidden


def pattern(side: int, rng: np.random.Generator) -> np.ndarray:
    """A picture (side, side) uint8: blots, blocks, stripes and cuts, one to three of these.

    Half of them are about as dark as the road, which is then hard to see.
    """
    dark = rng.random() < 0.5
    shades = np.full((side, side), rng.normal(ROAD_GRAY, 25.0) if dark else rng.uniform(0.0, 255.0))
    for kind in rng.integers(4, size=rng.integers(1, 4)):
        contrast = np.exp(rng.uniform(np.log(5.0), np.log(100.0)))
        shades += contrast * (_blots, _blocks, _stripes, _cuts)[kind](side, rng)
    return np.asarray(np.clip(shades, 0.0, 255.0)).astype(np.uint8)


def _cells(rng: np.random.Generator) -> np.ndarray:
    """Shades of 2 to 32 rows and columns of cells, as often few as many."""
    rows, columns = np.exp(rng.uniform(np.log(2.0), np.log(33.0), 2)).astype(int)
    return rng.standard_normal((rows, columns)).astype(np.float32)


def _blots(side: int, rng: np.random.Generator) -> np.ndarray:
    return cv2.resize(_cells(rng), (side, side), interpolation=cv2.INTER_CUBIC)


def _blocks(side: int, rng: np.random.Generator) -> np.ndarray:
    return cv2.resize(_cells(rng), (side, side), interpolation=cv2.INTER_NEAREST)


def _stripes(side: int, rng: np.random.Generator) -> np.ndarray:
    """In any direction, bent by blots, soft or hard."""
    down, across = np.mgrid[0:side, 0:side] / side
    angle = rng.uniform(0.0, np.pi)
    along = np.cos(angle) * down + np.sin(angle) * across
    bent = rng.uniform(2.0, 15.0) * along + rng.uniform(0.0, 0.3) * _blots(side, rng)
    return np.asarray(np.tanh(rng.uniform(0.5, 5.0) * np.sin(2.0 * np.pi * bent)))


def _cuts(side: int, rng: np.random.Generator) -> np.ndarray:
    """Straight cuts through the picture, each with another shade on its far side."""
    down, across = np.mgrid[0:side, 0:side] / side - 0.5
    shades = np.zeros((side, side))
    for _ in range(rng.integers(1, 6)):
        angle, place = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(-0.4, 0.4)
        shades += rng.normal() * (np.cos(angle) * down + np.sin(angle) * across > place)
    return shades


def replace_grass(view: np.ndarray, picture: np.ndarray) -> None:
    """Put a picture (S, S) uint8 where a view (f, S, S) uint8 shows grass, in place.

    It stands still, as the backgrounds of CarRacing do.
    """
    there = (view >= GRASS_GRAYS[0]) & (view <= GRASS_GRAYS[1])
    np.copyto(view, picture, where=there)


class Seen(NamedTuple):
    """What matters of B views, in K places each.

    Place 0 stands for all patches that show no change. They have one key, and their values enter
    with one weight, so that their mean tells all: the same message, and the same gradients.
    """

    patches: np.ndarray
    """(B, K, f, p, p) uint8; nothing in place 0."""
    still: np.ndarray
    """(B, p * p) float32: the mean of the layer-normed frames of those that show no change."""
    counts: np.ndarray
    """(B, K) float32: of how many patches each place is the sign, 0 where nothing is."""


class Batch(NamedTuple):
    """T steps of B lanes."""

    seen: Seen
    """Of B T views, lane by lane."""
    previous: np.ndarray
    """(B, T, A) float32: the actions taken before."""
    labels: np.ndarray
    """(B, T, A) float32."""
    counts: np.ndarray
    """(B, T) False behind an episode's end."""
    begins: np.ndarray
    """(B,) True where the lane has left what came before: nothing is to be remembered."""


@dataclass
class Lane:
    """A way through an episode: the step that comes next, and how it is shown."""

    episode: Episode
    step: int
    hidden: np.ndarray
    """(N,)"""
    picture: np.ndarray | None
    """In place of the grass."""
    mirrored: bool


class Lanes:
    """What is learned from: half of the lanes pass through the newest episodes, half through all.

    A lane of a student with memory goes on where it was until its episode ends, and then begins
    another one. The first episode it enters on the way, so that no two lanes go in step. Without
    memory, a lane is somewhere else in each batch.
    """

    def __init__(
        self, episodes: Sequence[Episode], settings: CameraCloning, rng: np.random.Generator
    ) -> None:
        self._episodes, self._settings, self._rng = episodes, settings, rng
        self._lanes: list[Lane | None] = [None] * settings.batch

    def draw(self) -> Batch:
        """The next steps of all lanes."""
        settings, student = self._settings, self._settings.student
        begins = np.array([self._has_ended(lane) for lane in self._lanes])
        lanes = [
            self._begin(place, lane) if begins[place] or lane is None else lane
            for place, lane in enumerate(self._lanes)
        ]
        self._lanes[:] = lanes
        steps = np.arange(settings.piece)
        views, labels, actions, counts = [], [], [], []
        for lane in lanes:
            episode, at = lane.episode, lane.step + steps
            last = len(episode.frames) - 1
            shown = at[:, None] - np.arange(student.stack)[::-1]
            views.append(self._view(lane, episode.frames[np.clip(shown, 0, last)]))
            labels.append(self._turned(lane, episode.labels[np.minimum(at, last)]))
            previous = episode.actions[np.clip(at - 1, 0, last)]
            if lane.step == 0:
                previous[0] = student.start
            actions.append(self._turned(lane, previous))
            counts.append(at <= last)
            lane.step += settings.piece
        hidden = np.repeat([lane.hidden for lane in lanes], settings.piece, axis=0)
        seen = compact(
            np.concatenate(views), student.patch, hidden, settings.most_moving, self._rng
        )
        return Batch(seen, np.stack(actions), np.stack(labels), np.stack(counts), begins)

    def _has_ended(self, lane: Lane | None) -> bool:
        remembers = self._settings.student.memory > 0
        return lane is None or not remembers or lane.step >= len(lane.episode.frames)

    def _begin(self, place: int, last: Lane | None) -> Lane:
        settings, rng = self._settings, self._rng
        newest = settings.newest if place % 2 else len(self._episodes)
        episode = self._episodes[-1 - int(rng.integers(min(newest, len(self._episodes))))]
        height, width = episode.frames.shape[1:]
        patch = settings.student.patch
        at_start = last is not None and settings.student.memory > 0
        return Lane(
            episode,
            0 if at_start else int(rng.integers(len(episode.frames))),
            hide((height // patch) * (width // patch), settings.hidden, rng),
            pattern(width, rng) if rng.random() < settings.backgrounds else None,
            bool(settings.mirrored) and rng.random() < 0.5,
        )

    def _view(self, lane: Lane, views: np.ndarray) -> np.ndarray:
        """Views (T, f, H, W) as this lane sees them."""
        if lane.mirrored:
            views = np.ascontiguousarray(views[..., ::-1])
        if lane.picture is not None:
            replace_grass(views, lane.picture)
        return views

    def _turned(self, lane: Lane, actions: np.ndarray) -> np.ndarray:
        """Actions (T, A) as they are on this lane."""
        signs = np.ones(actions.shape[-1], np.float32)
        if lane.mirrored:
            signs[list(self._settings.mirrored)] = -1.0
        return actions * signs


def compact(
    views: np.ndarray, patch: int, hidden: np.ndarray, most: int, rng: np.random.Generator
) -> Seen:
    """What matters of views (B, f, H, W) uint8.

    `hidden` (B, N) patches are not seen, nor those beyond the `most` of a view that show a change,
    at random.
    """
    batch, stack, height, width = views.shape
    rows, columns = height // patch, width // patch
    changed = (views[:, 1:] != views[:, :1]).any(axis=1)
    moving = changed.reshape(batch, rows, patch, columns, patch).any(axis=(2, 4))
    moving = moving.reshape(batch, -1)
    still, number = _mean_of(views[:, -1], patch, ~moving & ~hidden)
    moving &= ~hidden
    most = min(most, int(moving.sum(axis=1).max()))
    order = np.argsort(np.where(moving, rng.random(moving.shape), 2.0), axis=1)[:, :most]
    there = np.arange(most) < moving.sum(axis=1, keepdims=True)
    cut = views.reshape(batch, stack, rows, patch, columns, patch).transpose(0, 2, 4, 1, 3, 5)
    chosen = np.zeros((batch, 1 + most, stack, patch, patch), np.uint8)
    chosen[:, 1:] = cut[np.arange(batch)[:, None], order // columns, order % columns]
    chosen[:, 1:] *= there[:, :, None, None, None]
    counts = np.concatenate([number[:, None], there], axis=1).astype(np.float32)
    return Seen(chosen, still, counts)


def _mean_of(frames: np.ndarray, patch: int, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of frames (B, H, W), the mean (B, p * p) of the `chosen` (B, N) patches, each layer-normed.

    And how many they are (B,).
    """
    batch, height, width = frames.shape
    cut = frames.reshape(batch, height // patch, patch, width // patch, patch)
    pixels = cut.transpose(0, 1, 3, 2, 4).reshape(batch, -1, patch**2) / np.float32(WHITE)
    pixels -= pixels.mean(axis=2, keepdims=True)
    variance = np.einsum("bnp,bnp->bn", pixels, pixels) / patch**2
    number = chosen.sum(axis=1)
    weight = chosen / np.sqrt(variance + NORM_EPSILON) / np.maximum(number, 1)[:, None]
    return np.einsum("bn,bnp->bp", weight, pixels).astype(np.float32), number


def update(
    student: VisionStudent,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    units: Tensor,
    settings: CameraCloning,
) -> tuple[float, Tensor]:
    """One step down the gradient, through this batch's steps and not through those before.

    `units` (B, H) are what the lanes' memories hold; returns the loss, and these after the batch.
    """
    device = student.table.device
    patches, still, numbers, previous, labels, counts, begins = (
        torch.from_numpy(part).to(device) for part in (*batch.seen, *batch[1:])
    )
    units = units * ~begins[:, None]
    common = previous.new_zeros(len(patches), settings.student.actions)
    message = student.message(patches, common, counts=numbers, still=still)
    message = message.unflatten(0, labels.shape[:2])
    scores, units = student.choose(message, previous, units)
    loss = _loss(scores[counts], labels[counts], settings)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
    optimiser.step()
    return loss.item(), units.detach()


def _loss(scores: Tensor, labels: Tensor, settings: CameraCloning) -> Tensor:
    if not settings.student.choice:
        scale = scores.new_tensor(settings.loss_scale)
        error = functional.smooth_l1_loss(scores.tanh(), labels, reduction="none", beta=0.3)
        return (error * scale).mean()
    chosen = labels.argmax(-1)
    weight = None
    if settings.balance:
        seen = torch.bincount(chosen, minlength=scores.shape[-1]).clamp(min=1)
        weight = (len(chosen) / seen) ** settings.balance
    return functional.cross_entropy(scores, chosen, weight)
