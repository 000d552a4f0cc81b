"""Training batches for DAgger on image patches.

The student's action does not depend on the order of the patches, so nothing is shuffled. The
previous action adds the same to all keys, which cancels in a softmax over patches, so its weights
are not learned either.

Most patches show no change between frames, and all of these have the same key. So a batch holds the
mean of their values with their number: the same gradients for a fraction of the work. Where an
attention pooling (PMA) computes keys and values together, a batch holds each different patch with
its number of occurrences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from an_control.disturbance import draw_present_mask
from an_control.learning.dagger.image_patches.episodes import (
    PatchEpisode,
    draw_random_background,
    draw_seen_frame_and_action_step_indices,
    replace_grass_by_picture,
)
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.policy.set_transformer import NORM_EPSILON
from an_control.policy.vision.patch_attention import WHITE


class CompressedViews(NamedTuple):
    """Camera views of B steps, compressed to K entries each, which makes training faster.

    An entry stands for one image patch, or for several patches that have the same attention key.
    Entry 0 stands for all patches that do not change between frames (see
    `replace_static_patches_by_mean`), or is empty (see `merge_equal_patches`).

    Attributes:
        patches: Pixels of the entries (B, K, f, p, p) uint8, of f frames with p * p pixels.
            Entry 0 has zeros here, because `still` holds its content.
        still: Content of entry 0 (B, p * p) float32. Each of its patches is layer-normalised, then
            the mean of the patches is taken.
        counts: Number of patches that each entry stands for (B, K) float32; 0 for an empty entry.
    """

    patches: np.ndarray
    still: np.ndarray
    counts: np.ndarray


class PatchBatch(NamedTuple):
    """Training batch of B rows, each with T steps of a recorded episode.

    Attributes:
        seen: The camera views of the B * T steps, all steps of the first row first.
        previous: The action of A numbers before each step (B, T, A) float32.
        labels: The teacher's action for each step (B, T, A) float32.
        counts: A mask (B, T), True for steps of the episode, and False for padding after its end,
            from which nothing is learned.
        begins: A mask (B,), True for rows that do not continue their episode of the previous batch.
            The student's memory is reset in them.
    """

    seen: CompressedViews
    previous: np.ndarray
    labels: np.ndarray
    counts: np.ndarray
    begins: np.ndarray


@dataclass
class PatchRow:
    """State of one row of the batches: an episode that is replayed, and its disturbances.

    The student acts at K steps of the episode. At other steps no frame arrives.

    Attributes:
        episode: The recorded episode.
        step: Index, from 0 to K - 1, of the step with which the next batch begins.
        seen: Indices (K, f), in the episode, of the f frames that the student sees at each of the K
            steps.
        acted: Indices (K,), in the episode, of the K steps.
        missing: Mask (N,) of the N patches of a view, True for those that the student does not see.
        picture: Picture that replaces CarRacing's grass; None to leave the grass.
        mirrored: Whether left and right are exchanged.
    """

    episode: PatchEpisode
    step: int
    seen: np.ndarray
    acted: np.ndarray
    missing: np.ndarray
    picture: np.ndarray | None
    mirrored: bool


class PatchBatches:
    """Endless source of training batches from recorded episodes.

    Half of the rows of each batch come from the newest episodes, the other half from all episodes.
    For a student with a memory, a row continues its episode in the next batch until the episode
    ends. Otherwise, each row of every batch starts at a random step of a random episode.

    Args:
        episodes: Episodes to draw from, the newest last.
        settings: Numbers of rows and steps, and disturbances.
        rng: Source of all random numbers.
    """

    def __init__(
        self,
        episodes: Sequence[PatchEpisode],
        settings: PatchDaggerSettings,
        rng: np.random.Generator,
    ) -> None:
        self._episodes, self._settings, self._rng = episodes, settings, rng
        self._rows: list[PatchRow | None] = [None] * settings.batch

    def make_next_batch(self) -> PatchBatch:
        """Return the next batch. Its rows continue their last episodes or start new ones."""
        settings, student = self._settings, self._settings.student
        begins = np.array([self._needs_new_episode(row) for row in self._rows])
        rows = [
            self._start_row_with_new_episode(place, row) if begins[place] or row is None else row
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
            views.append(self._mirror_and_replace_grass(row, episode.frames[row.seen[place]]))
            labels.append(self._mirror_actions(row, episode.labels[step]))
            previous = episode.actions[np.maximum(step - 1, 0)]
            if row.step == 0:
                previous[0] = student.initial_action
            actions.append(self._mirror_actions(row, previous))
            counts.append(at <= last)
            row.step += settings.piece
        missing = np.repeat([row.missing for row in rows], settings.piece, axis=0)
        shown_as = (
            merge_equal_patches if student.attention == "pma" else replace_static_patches_by_mean
        )
        seen = shown_as(
            np.concatenate(views), student.patch, missing, settings.max_moving, self._rng
        )
        return PatchBatch(seen, np.stack(actions), np.stack(labels), np.stack(counts), begins)

    def _needs_new_episode(self, row: PatchRow | None) -> bool:
        """Return whether a row of the batch must now draw a new episode to replay.

        It must if its episode has ended, or if it has none yet. If the student has no memory, every
        row draws a new episode for each batch.
        """
        remembers = self._settings.student.memory > 0
        return row is None or not remembers or row.step >= len(row.acted)

    def _start_row_with_new_episode(
        self, row_number: int, previous_row: PatchRow | None
    ) -> PatchRow:
        """Draw an episode and disturbances for a row of the batch and return the new row.

        Odd rows draw from the newest episodes only. For a student with a memory, only the first
        episode of a row starts at a random step.
        """
        settings, rng = self._settings, self._rng
        newest = settings.newest if row_number % 2 else len(self._episodes)
        episode = self._episodes[-1 - int(rng.integers(min(newest, len(self._episodes))))]
        height, width = episode.frames.shape[1:]
        patch = settings.student.patch
        at_start = previous_row is not None and settings.student.memory > 0
        drawn, stack = settings.draw_disturbance(rng), settings.student.stack
        seen, acted = draw_seen_frame_and_action_step_indices(
            len(episode.frames),
            stack,
            drawn,
            rng,
            acts_on_repeated_frames=settings.acts_on_repeated_frames,
        )
        patches = (height // patch) * (width // patch)
        return PatchRow(
            episode,
            0 if at_start else int(rng.integers(len(acted))),
            seen,
            acted,
            ~draw_present_mask(rng, patches, drawn.missing.draw(rng)),
            draw_random_background(width, rng) if rng.random() < settings.backgrounds else None,
            bool(settings.mirrored) and rng.random() < 0.5,
        )

    def _mirror_and_replace_grass(self, row: PatchRow, views: np.ndarray) -> np.ndarray:
        """Return camera views (T, f, H, W) as a row shows them to the student.

        Depending on the row, left and right are exchanged, or a picture replaces the grass, or
        both.
        """
        if row.mirrored:
            views = np.ascontiguousarray(views[..., ::-1])
        if row.picture is not None:
            replace_grass_by_picture(views, row.picture)
        return views

    def _mirror_actions(self, row: PatchRow, actions: np.ndarray) -> np.ndarray:
        """Return actions (T, A) that fit the views of a row.

        If the views are mirrored, the actions that steer left or right get the opposite sign.
        """
        signs = np.ones(actions.shape[-1], np.float32)
        if row.mirrored:
            signs[list(self._settings.mirrored)] = -1.0
        return actions * signs


def replace_static_patches_by_mean(
    views: np.ndarray,
    patch_side: int,
    missing: np.ndarray,
    max_patches: int,
    rng: np.random.Generator,
) -> CompressedViews:
    """Compress camera views: replace all patches that do not change between frames by their mean.

    All these patches have the same attention key. The student therefore learns the same from their
    mean. The patches that change are copied one by one.

    Args:
        views: The last f frames of B steps (B, f, H, W) uint8.
        patch_side: Side of a patch in pixels.
        missing: Mask (B, N), True for those of the N patches of a view that are left out.
        max_patches: Maximum number of changing patches of a view. If there are more, a random
            choice of them is copied.
        rng: Source of the random numbers for this choice.

    Returns:
        The compressed views. Entry 0 of each view is the mean of its patches that do not change.
    """
    batch, stack, height, width = views.shape
    rows, columns = height // patch_side, width // patch_side
    changed = (views[:, 1:] != views[:, :1]).any(axis=1)
    moving = changed.reshape(batch, rows, patch_side, columns, patch_side).any(axis=(2, 4))
    moving = moving.reshape(batch, -1)
    still, number = _average_and_count_normalised_patches(
        views[:, -1], patch_side, ~moving & ~missing
    )
    moving &= ~missing
    max_patches = min(max_patches, int(moving.sum(axis=1).max()))
    order = np.argsort(np.where(moving, rng.random(moving.shape), 2.0), axis=1)[:, :max_patches]
    there = np.arange(max_patches) < moving.sum(axis=1, keepdims=True)
    cut = views.reshape(batch, stack, rows, patch_side, columns, patch_side).transpose(
        0, 2, 4, 1, 3, 5
    )
    chosen = np.zeros((batch, 1 + max_patches, stack, patch_side, patch_side), np.uint8)
    chosen[:, 1:] = cut[np.arange(batch)[:, None], order // columns, order % columns]
    chosen[:, 1:] *= there[:, :, None, None, None]
    counts = np.concatenate([number[:, None], there], axis=1).astype(np.float32)
    return CompressedViews(chosen, still, counts)


def merge_equal_patches(
    views: np.ndarray,
    patch_side: int,
    missing: np.ndarray,
    max_patches: int,
    rng: np.random.Generator,
) -> CompressedViews:
    """Compress camera views: keep one of all equal image patches of a view, and count them.

    Patches are equal if all pixels of all f frames are. Patches that do not change between frames
    are not treated in another way, unlike in `replace_static_patches_by_mean`.

    Args:
        views: The last f frames of B steps (B, f, H, W) uint8.
        patch_side: Side of a patch in pixels.
        missing: Mask (B, N), True for those of the N patches of a view that are left out.
        max_patches: Maximum number of different patches of a view. If there are more, a random
            choice of them is kept.
        rng: Source of the random numbers for this choice.

    Returns:
        The compressed views. Entry 0 of each view is empty, with a count of 0. Each further entry
        is one of the different patches, and its count is the number of patches equal to it.
    """
    batch, stack, height, width = views.shape
    cut = views.reshape(
        batch, stack, height // patch_side, patch_side, width // patch_side, patch_side
    )
    cut = np.ascontiguousarray(cut.transpose(0, 2, 4, 1, 3, 5)).reshape(
        batch, -1, stack * patch_side**2
    )
    as_one = cut.view(np.dtype((np.void, cut.shape[2])))[..., 0]
    found = []
    for patches, gone in zip(as_one, missing, strict=True):
        _, places, numbers = np.unique(patches[~gone], return_index=True, return_counts=True)
        chosen = (
            rng.permutation(len(places))[:max_patches] if len(places) > max_patches else slice(None)
        )
        found.append((np.flatnonzero(~gone)[places[chosen]], numbers[chosen]))
    longest = max(len(places) for places, _ in found)
    chosen_patches = np.zeros((batch, 1 + longest, stack, patch_side, patch_side), np.uint8)
    counts = np.zeros((batch, 1 + longest), np.float32)
    for row, (places, numbers) in enumerate(found):
        chosen_patches[row, 1 : 1 + len(places)] = cut[row, places].reshape(
            -1, stack, patch_side, patch_side
        )
        counts[row, 1 : 1 + len(places)] = numbers
    return CompressedViews(chosen_patches, np.zeros((batch, patch_side**2), np.float32), counts)


def _average_and_count_normalised_patches(
    frames: np.ndarray, patch_side: int, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (B, p * p) and number of layer-normalised patches, those of a mask (B, N)."""
    batch, height, width = frames.shape
    cut = frames.reshape(batch, height // patch_side, patch_side, width // patch_side, patch_side)
    pixels = cut.transpose(0, 1, 3, 2, 4).reshape(batch, -1, patch_side**2) / np.float32(WHITE)
    pixels -= pixels.mean(axis=2, keepdims=True)
    variance = np.einsum("bnp,bnp->bn", pixels, pixels) / patch_side**2
    number = chosen.sum(axis=1)
    weight = chosen / np.sqrt(variance + NORM_EPSILON) / np.maximum(number, 1)[:, None]
    return np.einsum("bn,bnp->bp", weight, pixels).astype(np.float32), number
