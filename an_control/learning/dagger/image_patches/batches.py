"""Batches for DAgger on image patches.

Order and place of patches never reach the student, so nothing has to be shuffled to teach it; the
previous action adds the same to all keys, which a softmax over patches takes out again, so it is
not taught either.

Most patches show no change. All of these have the same key, so a batch holds the mean of their
values with their number: the same gradients for a fraction of the work. Where seeds pool what key
and value make together, it holds each different patch with its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from an_control.disturbance import draw_present
from an_control.learning.dagger.image_patches.episodes import (
    Episode,
    as_seen,
    pattern,
    replace_grass,
)
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.policy.set_transformer import NORM_EPSILON
from an_control.policy.vision.patch_attention import WHITE


class Seen(NamedTuple):
    """What matters of B views, in K places each.

    Place 0 stands for all patches that show no change. They have one key, and their values enter
    with one weight, so that their mean tells all: the same message, and the same gradients. Where
    each different patch has a place, nothing is in place 0.
    """

    patches: np.ndarray
    """(B, K, f, p, p) uint8; nothing in place 0."""
    still: np.ndarray
    """(B, p * p) float32: the mean of the layer-normed frames of those that show no change."""
    counts: np.ndarray
    """(B, K) float32: of how many patches each place is the sign, 0 where nothing is."""


class Batch(NamedTuple):
    """T steps of B rows."""

    seen: Seen
    """Of B T views, row by row."""
    previous: np.ndarray
    """(B, T, A) float32: the actions taken before."""
    labels: np.ndarray
    """(B, T, A) float32."""
    counts: np.ndarray
    """(B, T) False after an episode's end."""
    begins: np.ndarray
    """(B,) True where the row has left what came before: nothing is to be remembered."""


@dataclass
class Row:
    """A row's way through an episode: the step that comes next, and how it is shown."""

    episode: Episode
    step: int
    """The next one of those in which the student acts."""
    seen: np.ndarray
    """(K, f) the frames that are seen in these."""
    acted: np.ndarray
    """(K,) the episode's steps that these are."""
    missing: np.ndarray
    """(N,)"""
    picture: np.ndarray | None
    """In place of the grass."""
    mirrored: bool


class Batches:
    """What is learned from: half of the rows pass through the newest episodes, half through all.

    A row of a student with memory continues where it was until its episode ends, and then begins
    another one. Its first episode it enters on the way, so that no two rows go in step. Without
    memory, a row is somewhere else in each batch.
    """

    def __init__(
        self, episodes: Sequence[Episode], settings: PatchDaggerSettings, rng: np.random.Generator
    ) -> None:
        self._episodes, self._settings, self._rng = episodes, settings, rng
        self._rows: list[Row | None] = [None] * settings.batch

    def draw(self) -> Batch:
        """The next steps of all rows."""
        settings, student = self._settings, self._settings.student
        begins = np.array([self._has_ended(row) for row in self._rows])
        rows = [
            self._begin(place, row) if begins[place] or row is None else row
            for place, row in enumerate(self._rows)
        ]
        self._rows[:] = rows
        steps = np.arange(settings.piece)
        views, labels, actions, counts = [], [], [], []
        for row in rows:
            episode, at = row.episode, row.step + steps
            last = len(row.acted) - 1
            place = np.minimum(at, last)
            step = row.acted[place]
            views.append(self._view(row, episode.frames[row.seen[place]]))
            labels.append(self._turned(row, episode.labels[step]))
            previous = episode.actions[np.maximum(step - 1, 0)]
            if row.step == 0:
                previous[0] = student.start
            actions.append(self._turned(row, previous))
            counts.append(at <= last)
            row.step += settings.piece
        missing = np.repeat([row.missing for row in rows], settings.piece, axis=0)
        shown_as = distinct if student.attention == "pma" else compact
        seen = shown_as(
            np.concatenate(views), student.patch, missing, settings.max_moving, self._rng
        )
        return Batch(seen, np.stack(actions), np.stack(labels), np.stack(counts), begins)

    def _has_ended(self, row: Row | None) -> bool:
        remembers = self._settings.student.memory > 0
        return row is None or not remembers or row.step >= len(row.acted)

    def _begin(self, place: int, last: Row | None) -> Row:
        settings, rng = self._settings, self._rng
        newest = settings.newest if place % 2 else len(self._episodes)
        episode = self._episodes[-1 - int(rng.integers(min(newest, len(self._episodes))))]
        height, width = episode.frames.shape[1:]
        patch = settings.student.patch
        at_start = last is not None and settings.student.memory > 0
        drawn, stack = settings.draw_disturbance(rng), settings.student.stack
        seen, acted = as_seen(len(episode.frames), stack, drawn, rng, repeats=settings.repeats)
        patches = (height // patch) * (width // patch)
        return Row(
            episode,
            0 if at_start else int(rng.integers(len(acted))),
            seen,
            acted,
            ~draw_present(rng, patches, drawn.missing.draw(rng)),
            pattern(width, rng) if rng.random() < settings.backgrounds else None,
            bool(settings.mirrored) and rng.random() < 0.5,
        )

    def _view(self, row: Row, views: np.ndarray) -> np.ndarray:
        """Views (T, f, H, W) as this row sees them."""
        if row.mirrored:
            views = np.ascontiguousarray(views[..., ::-1])
        if row.picture is not None:
            replace_grass(views, row.picture)
        return views

    def _turned(self, row: Row, actions: np.ndarray) -> np.ndarray:
        """Actions (T, A) as they are in this row."""
        signs = np.ones(actions.shape[-1], np.float32)
        if row.mirrored:
            signs[list(self._settings.mirrored)] = -1.0
        return actions * signs


def compact(
    views: np.ndarray, patch: int, missing: np.ndarray, max_moving: int, rng: np.random.Generator
) -> Seen:
    """What matters of views (B, f, H, W) uint8.

    `missing` (B, N) patches are not seen. Of those of a view that show a change, `max_moving` are
    seen, drawn at random.
    """
    batch, stack, height, width = views.shape
    rows, columns = height // patch, width // patch
    changed = (views[:, 1:] != views[:, :1]).any(axis=1)
    moving = changed.reshape(batch, rows, patch, columns, patch).any(axis=(2, 4))
    moving = moving.reshape(batch, -1)
    still, number = _mean_of(views[:, -1], patch, ~moving & ~missing)
    moving &= ~missing
    max_moving = min(max_moving, int(moving.sum(axis=1).max()))
    order = np.argsort(np.where(moving, rng.random(moving.shape), 2.0), axis=1)[:, :max_moving]
    there = np.arange(max_moving) < moving.sum(axis=1, keepdims=True)
    cut = views.reshape(batch, stack, rows, patch, columns, patch).transpose(0, 2, 4, 1, 3, 5)
    chosen = np.zeros((batch, 1 + max_moving, stack, patch, patch), np.uint8)
    chosen[:, 1:] = cut[np.arange(batch)[:, None], order // columns, order % columns]
    chosen[:, 1:] *= there[:, :, None, None, None]
    counts = np.concatenate([number[:, None], there], axis=1).astype(np.float32)
    return Seen(chosen, still, counts)


def distinct(
    views: np.ndarray, patch: int, missing: np.ndarray, most: int, rng: np.random.Generator
) -> Seen:
    """The different patches of views (B, f, H, W) uint8, with how often each is seen.

    `missing` (B, N) patches are not. Of the different ones of a view `most` are seen, drawn at
    random.
    """
    batch, stack, height, width = views.shape
    cut = views.reshape(batch, stack, height // patch, patch, width // patch, patch)
    cut = np.ascontiguousarray(cut.transpose(0, 2, 4, 1, 3, 5)).reshape(batch, -1, stack * patch**2)
    as_one = cut.view(np.dtype((np.void, cut.shape[2])))[..., 0]
    found = []
    for patches, gone in zip(as_one, missing, strict=True):
        _, places, numbers = np.unique(patches[~gone], return_index=True, return_counts=True)
        chosen = rng.permutation(len(places))[:most] if len(places) > most else slice(None)
        found.append((np.flatnonzero(~gone)[places[chosen]], numbers[chosen]))
    longest = max(len(places) for places, _ in found)
    chosen_patches = np.zeros((batch, 1 + longest, stack, patch, patch), np.uint8)
    counts = np.zeros((batch, 1 + longest), np.float32)
    for row, (places, numbers) in enumerate(found):
        chosen_patches[row, 1 : 1 + len(places)] = cut[row, places].reshape(-1, stack, patch, patch)
        counts[row, 1 : 1 + len(places)] = numbers
    return Seen(chosen_patches, np.zeros((batch, patch**2), np.float32), counts)


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
