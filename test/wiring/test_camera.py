"""Images become patches with ids that stay; what is no picture of the camera is missing."""

import array
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from an_control.wiring import WiringError
from an_control.wiring.image import cut_patches, join_patches

cv2 = pytest.importorskip("cv2", reason="needs OpenCV")
IMAGE, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
STEP_NS = 20_000_000
SIZE = [8, 12]


def picture(seed=0, shape=(8, 12), low=9):
    return np.random.default_rng(seed).integers(low, 256, shape).astype(np.uint8)


def image(pixels, stamp_ns=STEP_NS, encoding=None, padding=0, **changes):
    """An Image of pixels (H, W) or (H, W, C) with so many bytes between rows."""
    pixels = np.asarray(pixels)
    encoding = encoding or {2: "mono8", 3: "rgb8"}[pixels.ndim]
    rows = pixels.reshape(len(pixels), -1)
    padded = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    fields = {
        "header": SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=stamp_ns)),
        "height": pixels.shape[0],
        "width": pixels.shape[1] if encoding != "mono16" else pixels.shape[1] // 2,
        "encoding": encoding,
        "is_bigendian": 0,
        "step": padded.shape[1],
        "data": array.array("B", padded.tobytes()),
    }
    return SimpleNamespace(**{**fields, **changes})


def packed(pixels, stamp_ns=STEP_NS, suffix=".png", data=None):
    content = cv2.imencode(suffix, pixels)[1].tobytes() if data is None else data
    stamp = SimpleNamespace(sec=0, nanosec=stamp_ns)
    header = SimpleNamespace(stamp=stamp)
    return SimpleNamespace(header=header, format="png", data=array.array("B", content))


@pytest.fixture
def camera(table):
    """A table of one camera: camera(type, **image) with 4x4 patches of three frames."""

    def camera(type_=IMAGE, **changes):
        entry = {"size": SIZE, "patch": 4, "stack": 3, **changes}
        return table({"eye": type_}, {"eye.*": {"source": "eye", "image": entry}})

    return camera


def see(table, message):
    """The readings at the tick of a message, in lockstep."""
    stamp = message.header.stamp
    table.store_message("eye", message, stamp.nanosec, stamp.nanosec)
    return table.read(stamp.nanosec, stamp.nanosec)


def newest(readings):
    return join_patches(readings.values[:, -1], (2, 3))


def test_patches_are_the_image_row_by_row_under_ids_that_stay(camera):
    table, pixels = camera(), picture()
    readings = see(table, image(pixels))
    assert readings.ids == ("eye.0.0", "eye.0.1", "eye.0.2", "eye.1.0", "eye.1.1", "eye.1.2")
    assert readings.values.shape == (6, 3, 4, 4) and readings.values.dtype == np.uint8
    assert readings.expected == 6
    np.testing.assert_array_equal(readings.values[5, 2], pixels[4:, 8:])
    np.testing.assert_array_equal(newest(readings), pixels)
    assert see(table, image(pixels, 2 * STEP_NS)).ids is readings.ids


@pytest.mark.parametrize("padding", [0, 1, 13])
def test_every_encoding_is_read_with_its_step(camera, padding):
    colours, gray = picture(1, (8, 12, 3)), picture(2)
    from_colours = cv2.cvtColor(colours, cv2.COLOR_RGB2GRAY)
    alpha = np.full((8, 12, 1), 255, np.uint8)
    wide = np.stack([picture(3), gray], axis=-1)  # little-endian: the high byte is the second
    cases = [
        (gray, "mono8", {}, gray),
        (colours, "rgb8", {}, from_colours),
        (colours[..., ::-1], "bgr8", {}, from_colours),
        (np.concatenate([colours, alpha], 2), "rgba8", {}, from_colours),
        (np.concatenate([colours[..., ::-1], alpha], 2), "bgra8", {}, from_colours),
        (wide.reshape(8, 24), "mono16", {}, gray),
        (wide[..., ::-1].reshape(8, 24), "mono16", {"is_bigendian": 1}, gray),
    ]
    for pixels, encoding, changes, expected in cases:
        message = image(pixels, encoding=encoding, padding=padding, **changes)
        np.testing.assert_array_equal(newest(see(camera(), message)), expected, encoding)


def test_a_compressed_image_is_unpacked(camera):
    colours = picture(1, (8, 12, 3))
    expected = cv2.cvtColor(colours, cv2.COLOR_BGR2GRAY)
    readings = see(camera(COMPRESSED), packed(colours))
    np.testing.assert_array_equal(newest(readings), expected)
    gray = picture(2)
    np.testing.assert_array_equal(newest(see(camera(COMPRESSED), packed(gray))), gray)


def test_an_image_is_cropped_scaled_and_blackened_where_the_wiring_says(camera):
    whole = picture(4, (40, 50))
    table = camera(frame=[40, 50], crop=[5, 10, 16, 24], black=[[0, 0, 2, 12], [7, 11, 1, 1]])
    expected = cv2.resize(whole[5:21, 10:34], (12, 8), interpolation=cv2.INTER_AREA)
    expected[:2] = 0
    expected[7, 11] = 0
    np.testing.assert_array_equal(newest(see(table, image(whole))), expected)


def test_a_rest_that_fills_no_patch_is_cut(camera):
    table, pixels = camera(size=[9, 15]), picture(5, (9, 15))
    np.testing.assert_array_equal(newest(see(table, image(pixels))), pixels[:8, :12])


def test_the_first_frame_fills_the_stack_and_the_newest_comes_last(camera):
    table, frames = camera(), [picture(seed) for seed in range(4)]
    np.testing.assert_array_equal(
        see(table, image(frames[0])).values, cut_patches(np.array(frames[:1] * 3), 4)
    )
    for tick in range(1, 4):
        readings = see(table, image(frames[tick], (tick + 1) * STEP_NS))
    np.testing.assert_array_equal(readings.values, cut_patches(np.array(frames[1:]), 4))
    table.discard_camera_frames()
    readings = see(table, image(frames[0], 9 * STEP_NS))
    np.testing.assert_array_equal(readings.values, cut_patches(np.array(frames[:1] * 3), 4))


def test_a_step_that_is_published_again_is_one_frame(camera):
    table, frames = camera(), [picture(seed) for seed in range(2)]
    see(table, image(frames[0]))
    expected = see(table, image(frames[1], 2 * STEP_NS)).values
    np.testing.assert_array_equal(see(table, image(frames[1], 2 * STEP_NS)).values, expected)


@pytest.mark.parametrize("stamp_ns", [300_000_000, 2 * STEP_NS - 1])
def test_after_a_pause_or_a_clock_set_back_no_change_is_seen(camera, stamp_ns):
    """The wiring lets an image be 0.1 s old."""
    table = camera()
    see(table, image(picture(0), STEP_NS))
    see(table, image(picture(1), 2 * STEP_NS))
    values = see(table, image(picture(2), stamp_ns)).values
    assert (values == values[:, :1]).all()


BAD = {
    "another size": (image(picture(0, (8, 11))), "8 x 11 pixels, not 8 x 12"),
    "another encoding": (
        image(picture(), encoding="yuv422"),
        "encoding 'yuv422' is not one of mono8",
    ),
    "cut short": (image(picture(), data=bytes(95)), "95 bytes, not 8 rows of 12"),
    "too long": (image(picture(), data=bytes(97)), "97 bytes, not 8 rows of 12"),
    "empty": (image(picture(), data=b""), "0 bytes, not 8 rows of 12"),
    "a step too short": (image(picture(), step=11), "a step of 11 bytes for rows of 12"),
    "black": (image(np.full((8, 12), 7, np.uint8)), "a black image"),
}


@pytest.mark.parametrize("bad", list(BAD))
def test_a_frame_that_is_none_is_missing_with_the_reason(camera, bad):
    message, reason = BAD[bad]
    table = camera()
    see(table, image(picture(), STEP_NS))
    message.header.stamp.nanosec = 2 * STEP_NS
    readings = see(table, message)
    assert (readings.ids, readings.values.shape, readings.expected) == ((), (0, 3, 4, 4), 6)
    (notice,) = table.pop_notices()
    assert notice.kind == "lost" and reason in notice.reason
    assert reason in table.list_source_statuses(0)[0].error
    readings = see(table, image(picture(1), 3 * STEP_NS))
    assert len(readings.ids) == 6 and (readings.values == readings.values[:, :1]).all()
    assert [notice.kind for notice in table.pop_notices()] == ["recovered"]


@pytest.mark.parametrize(
    "data", [b"", b"no image", cv2.imencode(".jpg", picture())[1].tobytes()[:60]]
)
def test_a_compressed_image_that_cannot_be_unpacked_is_missing(camera, data):
    table = camera(COMPRESSED)
    assert see(table, packed(None, data=data)).ids == ()
    assert "not an image" in table.list_source_statuses(0)[0].error


BOMB = r"""
import struct, zlib
from types import SimpleNamespace
import numpy as np
from an_control.wiring import ChannelConfig, ImageConfig
from an_control.wiring.camera import CameraReader

def part(kind, data):
    content = kind + data
    return struct.pack(">I", len(data)) + content + struct.pack(">I", zlib.crc32(content))

side = 8192
header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
rows = zlib.compress(bytes((side + 1) * side), 9)
png = b"\x89PNG\r\n\x1a\n" + part(b"IHDR", header) + part(b"IDAT", rows) + part(b"IEND", b"")
stamp = SimpleNamespace(sec=0, nanosec=5)
message = SimpleNamespace(header=SimpleNamespace(stamp=stamp), format="png", data=png)
channel = ChannelConfig("eye.*", "eye", image=ImageConfig((side, side), 64, 2))
try:
    CameraReader(channel, {"format", "data"}, 10**9).read_into_row(message, np.zeros(128 * 128))
except ValueError as error:
    print(error)
"""


def test_a_small_file_that_unpacks_to_a_huge_image_is_refused():
    """In a process of its own, since OpenCV asks how much it may unpack when it is imported."""
    done = subprocess.run([sys.executable, "-c", BOMB], capture_output=True, text=True, timeout=120)
    assert "bytes that are not an image, format 'png'" in done.stdout, done.stderr


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_an_image_larger_than_the_wiring_expects_is_refused_before_it_is_unpacked(
    camera, monkeypatch, suffix
):
    unpack, unpacked = cv2.imdecode, []
    monkeypatch.setattr(cv2, "imdecode", lambda *given: unpacked.append(1) or unpack(*given))
    table = camera(COMPRESSED)
    assert see(table, packed(np.full((16, 6), 99, np.uint8), suffix=suffix)).ids == ()
    assert len(unpacked) == 1  # it has no more pixels than 8 x 12
    assert "16 x 6 pixels, not 8 x 12" in table.list_source_statuses(0)[0].error
    message = packed(np.full((3000, 4000), 99, np.uint8), 2 * STEP_NS, suffix)
    assert see(table, message).ids == ()
    assert "3000 x 4000 pixels, not 8 x 12" in table.list_source_statuses(0)[0].error
    assert len(see(table, packed(picture(), 3 * STEP_NS, suffix)).ids) == 6
    assert len(unpacked) == 2


def test_a_frame_that_does_not_come_is_missing_at_its_step(camera):
    table = camera()
    see(table, image(picture()))
    assert table.read(0, 2 * STEP_NS).ids == ()
    (notice,) = table.pop_notices()
    assert "no message of the step at 0.040000 s" in notice.reason


def test_patches_that_are_transparent_are_missing_and_named(camera):
    alpha = np.full((8, 12, 1), 255, np.uint8)
    alpha[:4, 4:8] = 0
    alpha[4:, :3] = 0  # partly seen
    table, colours = camera(), picture(0, (8, 12, 3))
    readings = see(table, image(np.concatenate([colours, alpha], 2), encoding="rgba8"))
    assert readings.ids == ("eye.0.0", "eye.0.2", "eye.1.0", "eye.1.1", "eye.1.2")
    assert readings.values.shape == (5, 3, 4, 4)
    (notice,) = table.pop_notices()
    assert notice.channels == ("eye.0.1",) and notice.reason == (
        "all pixels of the patch are transparent (alpha 0)"
    )


def test_a_patch_that_was_hidden_begins_with_the_frame_that_shows_it(camera):
    table = camera()
    frames = [picture(seed, (8, 12, 3)) for seed in range(3)]
    for tick, colours in enumerate(frames):
        alpha = np.full((8, 12, 1), 255, np.uint8)
        alpha[:4, :4] = 255 if tick == 2 else 0
        message = image(np.concatenate([colours, alpha], 2), (tick + 1) * STEP_NS, encoding="rgba8")
        values = dict(zip(*reversed(see(table, message)[:2]), strict=True))
    grays = [cv2.cvtColor(colours, cv2.COLOR_RGB2GRAY) for colours in frames]
    np.testing.assert_array_equal(values["eye.0.0"], [grays[2][:4, :4]] * 3)
    np.testing.assert_array_equal(values["eye.1.2"], [gray[4:, 8:] for gray in grays])


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_nothing_that_an_image_may_hold_raises(camera, data):
    """Whatever the fields say, all is present or all is missing."""
    number = st.integers(0, 2**32 - 1) | st.sampled_from([8, 12, 24, 36, 48])
    words = st.sampled_from(["mono8", "rgb8", "bgra8", "mono16", ""]) | st.text(max_size=300)
    message = image(
        picture(),
        height=data.draw(number),
        width=data.draw(number),
        step=data.draw(number),
        encoding=data.draw(words),
        is_bigendian=data.draw(st.integers(0, 255)),
        data=data.draw(st.binary(max_size=400)),
    )
    assert len(see(camera(), message).ids) in (0, 6)


def test_two_cameras_are_read_side_by_side(table):
    entry = {"size": SIZE, "patch": 4, "stack": 3}
    both = table(
        {"eye": IMAGE, "tail": IMAGE},
        {
            f"{name}.*": {"source": name, "image": {**entry, "size": [*SIZE]}}
            for name in ("eye", "tail")
        },
    )
    both.store_message("tail", image(picture(1)), STEP_NS, 0)
    readings = see(both, image(picture(0)))
    assert len(readings.ids) == 12 and readings.ids[6] == "tail.0.0"
    np.testing.assert_array_equal(newest(readings._replace(values=readings.values[6:])), picture(1))


def test_a_camera_that_moves_to_another_topic_keeps_its_frames(camera):
    table = camera()
    for tick in (1, 2):
        see(table, image(picture(tick), tick * STEP_NS))
    moved = table.make_rewired_table(table.wiring.with_changes({"sources.eye.topic": "elsewhere"}))
    last = image(picture(3), 3 * STEP_NS)
    np.testing.assert_array_equal(see(moved, last).values, see(table, last).values)


@pytest.mark.parametrize(
    ("change", "where", "allowed"),
    [
        ({"size": [8]}, "image.size", r"\[height, width\] in pixels"),
        ({"size": [0, 12]}, "image.size", r"\[height, width\]"),
        ({"patch": 9}, "image.patch", "at most the size"),
        ({"patch": 1.5}, "image.patch", "pixels along a patch's edge"),
        ({"size": [4096, 4096], "patch": 2}, "image.patch", "at most 20000 patches"),
        ({"stack": 0}, "image.stack", "1 to 16"),
        ({"crop": [0, 0, 9, 12]}, "image.crop", "within the frame, 8 x 12"),
        ({"black": [0, 0, 1, 1]}, "image.black", r"\[top, left, height, width\]"),
        ({"black": [[0, 10, 1, 3]]}, "image.black", "within the size"),
        ({"colour": True}, "image.colour", "size, patch, stack, frame, crop, black"),
    ],
)
def test_an_image_that_cannot_be_is_refused_by_its_key(camera, change, where, allowed):
    with pytest.raises(WiringError, match=allowed) as error:
        camera(**change)
    assert error.value.key == f"channels.eye.*.{where}"


def test_numbers_beside_images_and_images_of_two_forms_are_refused(load):
    source = {"topic": "eye", "type": IMAGE, "max_age_s": 0.1}
    entry = {"size": SIZE, "patch": 4, "stack": 3}
    eye = {"source": "eye", "image": entry}
    with pytest.raises(WiringError, match="one of them"):
        load(
            sources={"eye": source},
            channels={"eye.*": eye, "h": {"source": "eye", "field": "height"}},
        )
    other = {"source": "eye", "image": {**entry, "size": [*SIZE], "patch": 2}}
    with pytest.raises(WiringError, match="one patch and one stack"):
        load(sources={"eye": source}, channels={"a.*": eye, "b.*": other})
    with pytest.raises(WiringError, match=r"an id with a \*"):
        load(sources={"eye": source}, channels={"eye": eye})


def test_a_source_that_carries_no_images_is_refused(table):
    entry = {"source": "s", "image": {"size": SIZE, "patch": 4, "stack": 3}}
    with pytest.raises(WiringError, match="a source of sensor_msgs/msg/Image"):
        table({"s": "sensor_msgs/msg/JointState"}, {"s.*": entry})
