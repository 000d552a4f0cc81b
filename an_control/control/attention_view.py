"""Show the policy's attention: arrays ordered by channel, and coloured camera frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.policy import Policy
from an_control.wiring import ChannelTable

COLOUR = np.array([255.0, 150.0, 0.0])
SCALE = 4
"""The factor by which the picture is enlarged."""
STRONGEST = 0.75
"""The opacity of the overlay colour on the patch with the most attention."""
HIDDEN = np.array([60.0, 60.0, 90.0])


def select_attention_of_channels(policy: Policy, ids: Sequence[str]) -> np.ndarray | None:
    """Return the attention weights (M queries, N) of the newest step, with one column for each id.

    Args:
        policy: The policy.
        ids: The ids (N,) of the wanted channels, in the order of the columns.

    Returns:
        The weights; None if the policy has no attention, or if one of the channels was not among
        the inputs of its newest step.
    """
    attention = policy.attention
    places = None if attention is None else _find_channel_indices(policy, ids)
    return None if attention is None or places is None else attention[:, places]


def select_attention_keys_of_channels(policy: Policy, ids: Sequence[str]) -> np.ndarray | None:
    """Return the attention keys (N, k) of the newest step, one row of k numbers for each id.

    Channels with similar keys get similar attention. If a policy reads camera images, the row of an
    image patch is not a key, but what the patch added to the output of the attention layer.

    Args:
        policy: The policy.
        ids: The ids (N,) of the wanted channels, in the order of the rows.

    Returns:
        The rows; None if the policy has no such rows, or if one of the channels was not among the
        inputs of its newest step.
    """
    keys = policy.keys
    if keys is None:
        keys = policy.patch_vectors
    places = None if keys is None else _find_channel_indices(policy, ids)
    return None if keys is None or places is None else keys[places]


def draw_attention_on_newest_camera_frame(policy: Policy, table: ChannelTable) -> np.ndarray | None:
    """Return the first camera's newest frame with attention drawn on it, as rgb (H, W, 3).

    Patches (squares of the image) that were missing among the inputs of the policy's newest step
    are painted over.

    Args:
        policy: The policy, after a step.
        table: The channel table, which stores the cameras' newest frames.

    Returns:
        The picture, or None if there is no camera or the policy has no attention.
    """
    attention = policy.attention
    if not table.cameras or attention is None:
        return None
    camera, order = table.cameras[0], policy.channel_order
    grid = camera.image.rows_and_columns
    return draw_attention_shares_on_frame(
        camera.frames[-1],
        camera.image.patch,
        compute_shares_of_won_queries(attention, order, camera.ids).reshape(grid),
        present=np.isin(camera.ids, order).reshape(grid),
    )


def _find_channel_indices(policy: Policy, ids: Sequence[str]) -> list[int] | None:
    """Return the index of each id in the policy's `channel_order`; None if one id is not in it.

    `channel_order` has the ids of the inputs of the policy's newest step. It may contain more ids
    than there are present channels, because the identity monitor estimates missing channels.
    """
    place = {name: number for number, name in enumerate(policy.channel_order)}
    return [place[name] for name in ids] if place.keys() >= set(ids) else None


def draw_attention_shares_on_frame(
    frame: NDArray[np.uint8],
    patch_size: int,
    attention_shares: NDArray[np.float64],
    *,
    present: NDArray[np.bool_] | None = None,
) -> NDArray[np.uint8]:
    """Draw attention on a camera frame; return it enlarged, as rgb (H * SCALE, W * SCALE, 3).

    Args:
        frame: The frame, grey (H, W) or rgb (H, W, 3).
        patch_size: The width and height of a patch (a square of the frame) in pixels.
        attention_shares: For each patch (rows, columns), the share (0 to 1) of the attention
            queries that give it their largest weight (see `compute_shares_of_won_queries`).
        present: For each patch (rows, columns), False if it is to be painted over; None: all
            patches are shown.
    """
    picture = np.repeat(frame[..., None], 3, axis=2) if frame.ndim == 2 else frame
    picture = picture.astype(np.float64)
    share = STRONGEST * np.sqrt(
        attention_shares / max(float(attention_shares.max(initial=0.0)), 1e-12)
    )
    rows, columns = (length * patch_size for length in attention_shares.shape)
    seen = picture[:rows, :columns]
    weight = _repeat_elements(share, patch_size)[..., None]
    seen[:] = (1.0 - weight) * seen + weight * COLOUR
    if present is not None:
        seen[_repeat_elements(~present, patch_size)] = HIDDEN
    return _repeat_elements(np.rint(picture).astype(np.uint8), SCALE)


def compute_shares_of_won_queries(
    attention: NDArray[np.floating], column_ids: Sequence[str], ids: Sequence[str]
) -> NDArray[np.float64]:
    """Return, for each channel, the share (0 to 1) of queries that give it their largest weight.

    Args:
        attention: The attention weights (M queries, n channels).
        column_ids: The channel ids (n,) of the columns of `attention`.
        ids: The ids (N,) of the channels for which shares are wanted.

    Returns:
        The shares (N,), in the order of `ids`; 0 for a channel that is not in `column_ids`.
    """
    wins = (
        np.bincount(attention.argmax(axis=1), minlength=len(column_ids)) if len(column_ids) else ()
    )
    count = dict(zip(column_ids, wins, strict=True))
    return np.array([count.get(name, 0) / len(attention) for name in ids])


def _repeat_elements(values: NDArray[Any], times: int) -> NDArray[Any]:
    """Enlarge a picture (H, W, ...) by repeating every element `times` times along both axes."""
    return np.repeat(np.repeat(values, times, axis=0), times, axis=1)
