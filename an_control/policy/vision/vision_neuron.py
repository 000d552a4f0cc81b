"""The AttentionNeuron policy for camera images, whose channels are image patches.

A patch contains its own past, which is its last frames, so no state is kept by channel. Any subset
of the patches may come at every tick, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from an_control.policy.interface import Policy, PreviousActionMixin, check_unique_ids
from an_control.policy.model_file import Model
from an_control.policy.sizes import TopPatchesSizes, VisionSizes
from an_control.policy.vision.heads import ConvolutionHead, TopPatchesHead
from an_control.policy.vision.kernels import VisionKernels
from an_control.policy.vision.patch_attention import PatchAttention
from an_control.system.blas import one_blas_thread


class VisionNeuron(PreviousActionMixin, Policy):
    """A permutation-invariant policy for image patches (Tang & Ha 2021, section 3.3).

    Args:
        model: A model of a vision kind.
        kernels: The functions for the inner loops, plain or compiled.
    """

    def __init__(self, model: Model, kernels: VisionKernels) -> None:
        assert isinstance(model.sizes, VisionSizes)
        self.model, self.engine = model, kernels.name
        self._sizes: VisionSizes = model.sizes
        self.nominal_ids: tuple[str, ...] = model.task.channels
        self.reading_shape = model.sizes.stack, model.sizes.patch, model.sizes.patch
        self._attend = PatchAttention(model, kernels)
        self._head: TopPatchesHead | ConvolutionHead
        if isinstance(model.sizes, TopPatchesSizes):
            self._head = TopPatchesHead(model, kernels)
        else:
            self._head = ConvolutionHead(model, kernels)
        self.reset()

    def reset(self) -> None:
        """Start an episode: reset the previous action and the head's state."""
        self._previous = self._head.reset_and_get_initial_action()
        self.attention_message = np.zeros((self._sizes.queries, self._sizes.message), np.float32)
        """The attention message (M, m) of the last step."""
        self._ids: tuple[str, ...] = ()

    def step(self, readings: Mapping[str, np.ndarray]) -> np.ndarray:
        """Compute one tick and return the action (A,) float32 in [-1, 1].

        Args:
            readings: By channel id, a patch (stack, patch, patch) uint8 of the last `stack` frames,
                the oldest first, with `patch` x `patch` pixels.
        """
        patches = list(readings.values())
        return self.step_array(
            np.array(patches) if patches else self.empty_patches, tuple(readings)
        )

    @one_blas_thread
    def step_array(self, patches: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick from arrays and return the action (A,) float32 in [-1, 1].

        A policy that chooses one of A actions returns 1 for that action and 0 for the others.

        Args:
            patches: N patches (N, stack, patch, patch) uint8 of the last `stack` frames, the oldest
                first, with `patch` x `patch` pixels.
            ids: Their channel ids (N,), in any order.

        Raises:
            ValueError: The shapes differ, or an id occurs twice.
            TypeError: The pixels are not uint8.
        """
        patches = np.asarray(patches)
        if patches.dtype != np.uint8:
            raise TypeError(f"patches are {patches.dtype}, not uint8")
        if patches.shape != (len(ids), *self.reading_shape):
            raise ValueError(
                f"patches of shape {patches.shape}, not {(len(ids), *self.reading_shape)}:"
                " (ids, frames, rows, columns)"
            )
        if ids is not self._ids:
            self._ids = check_unique_ids(ids)
        self.attention_message = self._attend(patches, self._previous)
        self._previous = self._head(self.attention_message, self._previous)
        return self._previous.copy()

    @property
    def empty_patches(self) -> np.ndarray:
        """An array (0, stack, patch, patch) uint8, for a tick without patches."""
        return np.zeros((0, *self.reading_shape), np.uint8)

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The ids of the last step's patches, in the order of the attention's columns."""
        return self._ids

    @property
    def attention(self) -> np.ndarray:
        """The attention weights (M, N) of the last step, queries by patches in `channel_order`.

        Each row sums to one.
        """
        return self._attend.attention[:, : len(self._ids)]  # none after a reset

    @property
    def patch_vectors(self) -> np.ndarray:
        """The value vectors (N, m) of the last step's patches.

        The attention message consists of their sums, weighted by attention. There is a row for each
        patch, in `channel_order`, and a column for each of the m entries of a row of the message.
        """
        return self._attend.patch_vectors[: len(self._ids)]
