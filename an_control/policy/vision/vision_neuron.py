"""The AttentionNeuron for camera patches: which patches a tick brings, and in which order.

A patch carries its own past (its last frames), so nothing is kept by channel: any subset of the
patches may come at every tick, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from an_control.policy.model_file import Model
from an_control.policy.protocol import Policy, PreviousAction, distinct
from an_control.policy.sizes import TopPatchesSizes, VisionSizes
from an_control.policy.vision.heads import Convolution, TopPatches
from an_control.policy.vision.kernels import Kernels
from an_control.policy.vision.patch_attention import PatchAttention
from an_control.system.blas import one_blas_thread


class VisionNeuron(PreviousAction, Policy):
    """A permutation-invariant policy for image patches (Tang & Ha 2021, section 3.3).

    Args:
        model: a model of one of the vision kinds.
        kernels: the loops, plain or compiled.
    """

    def __init__(self, model: Model, kernels: Kernels) -> None:
        assert isinstance(model.sizes, VisionSizes)
        self.model, self.engine = model, kernels.name
        self._sizes: VisionSizes = model.sizes
        self.nominal_ids: tuple[str, ...] = model.task.channels
        self.reading_shape = model.sizes.stack, model.sizes.patch, model.sizes.patch
        self._attend = PatchAttention(model, kernels)
        self._head: TopPatches | Convolution
        if isinstance(model.sizes, TopPatchesSizes):
            self._head = TopPatches(model, kernels)
        else:
            self._head = Convolution(model, kernels)
        self.reset()

    def reset(self) -> None:
        """Start an episode: the previous action and the head's state go."""
        self._previous = self._head.reset()
        self.message = np.zeros((self._sizes.queries, self._sizes.message), np.float32)
        """The last step's message (M, m)."""
        self._ids: tuple[str, ...] = ()

    def step(self, readings: Mapping[str, np.ndarray]) -> np.ndarray:
        """One tick on ``{patch id: (stack, patch, patch) uint8}``; the action as `step_array`'s."""
        patches = list(readings.values())
        return self.step_array(np.array(patches) if patches else self.no_patches, tuple(readings))

    @one_blas_thread
    def step_array(self, patches: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """One tick on `patches` (N, stack, patch, patch) uint8, oldest frame first, in any order.

        Returns the action (A,) float32 in [-1, 1], for a policy that chooses one of A actions 1 at
        its place. ValueError where shapes differ or an id comes twice, TypeError where the pixels
        are no uint8.
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
            self._ids = distinct(ids)
        self.message = self._attend(patches, self._previous)
        self._previous = self._head(self.message, self._previous)
        return self._previous.copy()

    @property
    def no_patches(self) -> np.ndarray:
        """(0, stack, patch, patch) uint8, for a tick that brings none."""
        return np.zeros((0, *self.reading_shape), np.uint8)

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The ids of the last step's patches, in the order of the attention's columns."""
        return self._ids

    @property
    def attention(self) -> np.ndarray:
        """The last step's attention (M, N), columns in `channel_order`; rows sum to one."""
        return self._attend.attention[:, : len(self._ids)]  # none after a reset

    @property
    def messages(self) -> np.ndarray:
        """What each patch gives to the message (N, m) of the last step, in `channel_order`."""
        return self._attend.messages[: len(self._ids)]
