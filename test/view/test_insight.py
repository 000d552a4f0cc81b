"""What the page makes of attention, keys and images, without a robot."""

from __future__ import annotations

from array import array
from types import SimpleNamespace

import numpy as np
import pytest

from an_control.view.insight import (
    MOST_COLUMNS,
    MOST_PIXELS,
    MOST_ROWS,
    KeyProjection,
    compute_attention_strength,
    encode_image_message,
    read_channel_ids_of_matrix,
    scale_attention_to_percent,
)


def image(pixels: np.ndarray, encoding: str, pad: int = 0) -> SimpleNamespace:
    """A sensor_msgs/Image, with `pad` bytes after each row."""
    height, width = pixels.shape[:2]
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (0, pad)))
    data = array("B", rows.astype(np.uint8).tobytes())
    return SimpleNamespace(
        height=height, width=width, encoding=encoding, step=rows.shape[1], data=data
    )


def shown(message: bytes | None) -> np.ndarray:
    assert message is not None
    width, height = np.frombuffer(message[:4], "<u2")
    return np.frombuffer(message[4:], np.uint8).reshape(height, width, 3)


def test_a_channel_is_as_strong_as_the_mean_of_its_magnitudes():
    attention = np.array([[1.0, -2.0, 0.0], [-1.0, 2.0, 0.0]])
    assert compute_attention_strength(attention).tolist() == [0.5, 1.0, 0.0]
    assert compute_attention_strength(np.zeros((2, 3))).tolist() == [0.0, 0.0, 0.0]
    assert compute_attention_strength(np.full((2, 3), np.nan)).tolist() == [0.0, 0.0, 0.0]


def test_the_channels_of_a_matrix_are_known_also_where_an_id_has_a_blank():
    ids = ["left hip.position", "imu.x", "knee.position"]
    dims = [SimpleNamespace(label=f"channel {' '.join(ids)}", size=3)]
    message = SimpleNamespace(layout=SimpleNamespace(dim=dims))
    assert read_channel_ids_of_matrix(message, ids) == ids
    assert read_channel_ids_of_matrix(message, ids[:2]) == [], "a message of another tick"
    dims[0].label = "channel a b c"
    assert read_channel_ids_of_matrix(message, ids) == ["a", "b", "c"]


def test_a_large_attention_is_shown_as_means_and_a_small_one_as_it_is():
    assert scale_attention_to_percent(np.array([[0.5, -1.0]])).tolist() == [[50, -100]]
    large = np.random.default_rng(0).normal(size=(1000, 256))
    assert scale_attention_to_percent(large).shape == (MOST_ROWS, MOST_COLUMNS)
    assert not scale_attention_to_percent(np.zeros((3, 2))).any()


def test_keys_are_shown_on_the_axes_of_their_largest_spread_which_turn_little():
    rng, keys = np.random.default_rng(1), KeyProjection()
    directions = rng.normal(size=(2, 16))
    places = rng.normal(size=(28, 2)) * [5.0, 2.0]
    before = None
    for _ in range(50):
        points = keys.project_keys(places @ directions + 0.01 * rng.normal(size=(28, 16)))
        assert points.shape == (28, 2) and np.abs(points).max() <= 1.0 + 1e-9
        assert before is None or np.abs(points - before).max() < 0.1
        before = points
    assert keys.project_keys(np.full((28, 3), np.nan)).shape == (28, 2)
    assert keys.project_keys(np.ones((5, 1))).shape == (5, 2)


@pytest.mark.parametrize(
    ("encoding", "depth", "places"),
    [
        ("mono8", 1, [0, 0, 0]),
        ("rgb8", 3, [0, 1, 2]),
        ("bgr8", 3, [2, 1, 0]),
        ("rgba8", 4, [0, 1, 2]),
    ],
)
def test_an_image_of_any_usual_encoding_comes_out_as_rgb(encoding, depth, places):
    pixels = np.random.default_rng(2).integers(0, 256, (6, 8, depth), np.uint8)
    np.testing.assert_array_equal(
        shown(encode_image_message(image(pixels, encoding, pad=3))), pixels[..., places]
    )


def test_a_large_image_is_thinned_out_and_what_makes_no_sense_is_left_out():
    large = shown(encode_image_message(image(np.zeros((480, 640, 3), np.uint8), "rgb8")))
    assert max(large.shape) <= MOST_PIXELS and large.shape[:2] == (160, 214)
    good = image(np.zeros((6, 8, 3), np.uint8), "rgb8")
    for change in ({"encoding": "16UC1"}, {"height": 7}, {"width": 0}, {"step": 8}):
        assert encode_image_message(SimpleNamespace(**(vars(good) | change))) is None
