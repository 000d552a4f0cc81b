"""Batches for DAgger on image patches.

The order of patches never matters to the student, so nothing is shuffled. The previous action adds
the same to all keys, which cancels in a softmax over patches, so its weights are not learned
either.

Most patches show no change, and all of these have the same key. So a batch holds the mean of their
values with their number: the same gradients for a fraction of the work. Where seeds pool keys and
values together (PMA), it holds each different patch with its number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from an_control.disturbance import draw_present
from an_control.learning.dagger.image_patches.episodes import (
    PatchEpisode,
    draw_background,
    draw_seen_frames,
    replace_grass,
)
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.policy.set_transformer import NORM_EPSILON
from an_control.policy.vision.patch_attention import WHITE


class CompressedViews(NamedTuple):
    """Views of B steps, compressed to K patches each.

    Patch 0 stands for all patches that show no change. They have one key and equal weights, so the
    mean of their values gives the same message and the same gradients. Where each different patch
    is listed (`compress_equal_patches`), patch 0 is empty.
    """

    patches: np.ndarray
    """(B, K, f, p, p) uint8; patch 0 is empty."""
    still: np.ndarray
    """(B, p * p) float32: mean of the layer-normed frames of the patches that show no change."""
    counts: np.ndarray
    """(B, K) float32: how many patches each one stands for, 0 for none."""


class PatchBatch(NamedTuple):
    """A batch of T steps of B rows with A actions."""

    seen: CompressedViews
    """The B * T views, row by row."""
    previous: np.ndarray
    """(B, T, A) float32: previous actions."""
    labels: np.ndarray
    """(B, T, A) float32: the teacher's actions."""
    counts: np.ndarray
    """(B, T) False after an episode's end."""
    begins: np.ndarray
    """(B,) True where a row does not continue its last batch, so that its memory is reset."""


@dataclass
class PatchRow:
    """A row's episode, its next step, and how it is disturbed."""

    episode: PatchEpisode
    step: int
    """Index of the next step, among those in which the student acts."""
    seen: np.ndarray
    """(K, f) indices of the frames that the student sees in these steps."""
    acted: np.ndarray
    """(K,) the episode's steps in which the student acts."""
    missing: np.ndarray
    """(N,) True for patches that are missing."""
    picture: np.ndarray | None
    """Picture in place of the grass; None for the grass."""
    mirrored: bool
    """Whether left and right are exchanged."""


class PatchBatches:
    """An endless supply of batches: half of the rows play the newest episodes, half all episodes.

    A row of a student with memory continues to the end of its episode before it starts another. Its
    first episode starts at a random step, so that rows do not run in parallel. Without memory, a
    row starts at a random step in each batch.

    Args:
        episodes: the episodes to draw from, the newest last.
        settings: numbers of rows and steps, and disturbances.
        rng: decides all random numbers.
    """

    def __init__(
        self,
        episodes: Sequence[PatchEpisode],
        settings: PatchDaggerSettings,
        rng: np.random.Generator,
    ) -> None:
        self._episodes, self._settings, self._rng = episodes, settings, rng
        self._rows: list[PatchRow | None] = [None] * settings.batch

    def next_batch(self) -> PatchBatch:
        """Return the next steps of all rows."""
        settings, student = self._settings, self._settings.student
        begins = np.array([self._has_ended(row) for row in self._rows])
        rows = [
            self._start_row(place, row) if begins[place] or row is None else row
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
            views.append(self._disturb_views(row, episode.frames[row.seen[place]]))
            labels.append(self._mirror_actions(row, episode.labels[step]))
            previous = episode.actions[np.maximum(step - 1, 0)]
            if row.step == 0:
                previous[0] = student.start
            actions.append(self._mirror_actions(row, previous))
            counts.append(at <= last)
            row.step += settings.piece
        missing = np.repeat([row.missing for row in rows], settings.piece, axis=0)
        shown_as = compress_equal_patches if student.attention == "pma" else compress_still_patches
        seen = shown_as(
            np.concatenate(views), student.patch, missing, settings.max_moving, self._rng
        )
        return PatchBatch(seen, np.stack(actions), np.stack(labels), np.stack(counts), begins)

    def _has_ended(self, row: PatchRow | None) -> bool:
        """Return whether the row needs a new episode or a new place in one."""
        remembers = self._settings.student.memory > 0
        return row is None or not remembers or row.step >= len(row.acted)

    def _start_row(self, row_number: int, previous_row: PatchRow | None) -> PatchRow:
        """Return the row for index `row_number` with a newly drawn episode and disturbances."""
        settings, rng = self._settings, self._rng
        newest = settings.newest if row_number % 2 else len(self._episodes)
        episode = self._episodes[-1 - int(rng.integers(min(newest, len(self._episodes))))]
        height, width = episode.frames.shape[1:]
        patch = settings.student.patch
        at_start = previous_row is not None and settings.student.memory > 0
        drawn, stack = settings.draw_disturbance(rng), settings.student.stack
        seen, acted = draw_seen_frames(
            len(episode.frames), stack, drawn, rng, repeats=settings.repeats
        )
        patches = (height // patch) * (width // patch)
        return PatchRow(
            episode,
            0 if at_start else int(rng.integers(len(acted))),
            seen,
            acted,
            ~draw_present(rng, patches, drawn.missing.draw(rng)),
            draw_background(width, rng) if rng.random() < settings.backgrounds else None,
            bool(settings.mirrored) and rng.random() < 0.5,
        )

    def _disturb_views(self, row: PatchRow, views: np.ndarray) -> np.ndarray:
        """Return views (T, f, H, W) with the row's mirroring and picture applied."""
        if row.mirrored:
            views = np.ascontiguousarray(views[..., ::-1])
        if row.picture is not None:
            replace_grass(views, row.picture)
        return views

    def _mirror_actions(self, row: PatchRow, actions: np.ndarray) -> np.ndarray:
        """Return actions (T, A), with signs changed if the row is mirrored."""
        signs = np.ones(actions.shape[-1], np.float32)
        if row.mirrored:
            signs[list(self._settings.mirrored)] = -1.0
        return actions * signs


def compress_still_patches(
    views: np.ndarray, patch: int, missing: np.ndarray, max_patches: int, rng: np.random.Generator
) -> CompressedViews:
    """Compress views: one mean for all patches without a change, and the patches with one.

    Args:
        views: (B, f, H, W) uint8.
        patch: side of a patch in pixels.
        missing: (B, N) True for patches that are left out.
        max_patches: patches with a change to keep of each view, drawn at random.
        rng: draws them.
    """
    batch, stack, height, width = views.shape
    rows, columns = height // patch, width // patch
    changed = (views[:, 1:] != views[:, :1]).any(axis=1)
    moving = changed.reshape(batch, rows, patch, columns, patch).any(axis=(2, 4))
    moving = moving.reshape(batch, -1)
    still, number = _mean_layer_normed(views[:, -1], patch, ~moving & ~missing)
    moving &= ~missing
    max_patches = min(max_patches, int(moving.sum(axis=1).max()))
    order = np.argsort(np.where(moving, rng.random(moving.shape), 2.0), axis=1)[:, :max_patches]
    there = np.arange(max_patches) < moving.sum(axis=1, keepdims=True)
    cut = views.reshape(batch, stack, rows, patch, columns, patch).transpose(0, 2, 4, 1, 3, 5)
    chosen = np.zeros((batch, 1 + max_patches, stack, patch, patch), np.uint8)
    chosen[:, 1:] = cut[np.arange(batch)[:, None], order // columns, order % columns]
    chosen[:, 1:] *= there[:, :, None, None, None]
    counts = np.concatenate([number[:, None], there], axis=1).astype(np.float32)
    return CompressedViews(chosen, still, counts)


def compress_equal_patches(
    views: np.ndarray, patch: int, missing: np.ndarray, max_patches: int, rng: np.random.Generator
) -> CompressedViews:
    """Compress views: each different patch, with how often it occurs.

    Args:
        views: (B, f, H, W) uint8.
        patch: side of a patch in pixels.
        missing: (B, N) True for patches that are left out.
        max_patches: different patches to keep of each view, drawn at random.
        rng: draws them.
    """
    batch, stack, height, width = views.shape
    cut = views.reshape(batch, stack, height // patch, patch, width // patch, patch)
    cut = np.ascontiguousarray(cut.transpose(0, 2, 4, 1, 3, 5)).reshape(batch, -1, stack * patch**2)
    as_one = cut.view(np.dtype((np.void, cut.shape[2])))[..., 0]
    found = []
    for patches, gone in zip(as_one, missing, strict=True):
        _, places, numbers = np.unique(patches[~gone], return_index=True, return_counts=True)
        chosen = (
            rng.permutation(len(places))[:max_patches] if len(places) > max_patches else slice(None)
        )
        found.append((np.flatnonzero(~gone)[places[chosen]], numbers[chosen]))
    longest = max(len(places) for places, _ in found)
    chosen_patches = np.zeros((batch, 1 + longest, stack, patch, patch), np.uint8)
    counts = np.zeros((batch, 1 + longest), np.float32)
    for row, (places, numbers) in enumerate(found):
        chosen_patches[row, 1 : 1 + len(places)] = cut[row, places].reshape(-1, stack, patch, patch)
        counts[row, 1 : 1 + len(places)] = numbers
    return CompressedViews(chosen_patches, np.zeros((batch, patch**2), np.float32), counts)


def _mean_layer_normed(
    frames: np.ndarray, patch: int, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean (B, p * p) of the layer-normed chosen patches, and their number (B,).

    Args:
        frames: (B, H, W).
        patch: side of a patch in pixels.
        chosen: (B, N) True for patches to average.
    """
    batch, height, width = frames.shape
    cut = frames.reshape(batch, height // patch, patch, width // patch, patch)
    pixels = cut.transpose(0, 1, 3, 2, 4).reshape(batch, -1, patch**2) / np.float32(WHITE)
    pixels -= pixels.mean(axis=2, keepdims=True)
    variance = np.einsum("bnp,bnp->bn", pixels, pixels) / patch**2
    number = chosen.sum(axis=1)
    weight = chosen / np.sqrt(variance + NORM_EPSILON) / np.maximum(number, 1)[:, None]
    return np.einsum("bn,bnp->bp", weight, pixels).astype(np.float32), number
