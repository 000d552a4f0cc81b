"""A policy node that sees: bad frames are diagnosed and missing, and what it looks at is shown."""

from __future__ import annotations

from array import array

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from sensor_msgs.msg import CompressedImage, Image, JointState
from stand import stamp_of, tiny_model

from an_control import load_policy
from an_control.policy import write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import TopPatchesSizes
from an_control.ros.outputs import set_stamp
from an_control.wiring.image import cut_patches

cv2 = pytest.importorskip("cv2", reason="needs OpenCV")
SIZES = TopPatchesSizes(
    actions=2, grid=4, message=4, stack=3, patch=4, positions=4, norm_weights=False,
    self_attention=4, top=3, hidden=4,
)  # fmt: skip
SIDE = 16
SAFE = [0.5, -0.25]
WIRING = """
an_control_wiring: 1
robot: seer
rate_hz: 100.0
min_present_share: 0.5
sources:
  camera: {{topic: camera/image_raw, type: sensor_msgs/msg/{type}, max_age_s: 0.05}}
channels:
  "camera.*": {{source: camera, image: {{size: [16, 16], patch: {patch}, stack: 3}}}}
command:
  topic: commands
  type: sensor_msgs/msg/JointState
  field: effort
  actuators:
    left: {{limits: [-1, 1], safe: 0.5}}
    right: {{limits: [-1, 1], safe: -0.25}}
"""


def frame(step: int) -> np.ndarray:
    return np.random.default_rng(step).integers(20, 256, (SIDE, SIDE)).astype(np.uint8)


def image(tick: int, pixels: np.ndarray, **changes) -> Image:
    message = Image(
        height=pixels.shape[0], width=pixels.shape[1], encoding="mono8", step=pixels.shape[1]
    )
    message.data = array("B", pixels.tobytes())
    set_stamp(message.header.stamp, stamp_of(tick))
    for name, value in changes.items():
        setattr(message, name, value)
    return message


class Camera:
    """The stand with a camera in place of its joints."""

    def __init__(self, stand, type_=Image, patch: int = 4) -> None:
        self.stand = stand
        stand.wiring.write_text(WIRING.format(type=type_.__name__, patch=patch))
        write_model(stand.model, make_random_model(SIZES, seed=2, gain=3.0))
        self.publisher = stand.peer.create_publisher(type_, "camera/image_raw", 10)
        self.statuses: dict[str, object] = {}

    def start(self) -> Camera:
        stand = self.stand
        stand.start(activate=False)
        assert stand.node.trigger_configure().to_label() == "transition_success"
        assert stand.node.trigger_activate().to_label() == "transition_success"
        stand.until(lambda: self.publisher.get_subscription_count() == 1, "the camera matched")
        stand.until(lambda: stand.peer.count_publishers("commands") == 1, "commands matched")
        return self

    def step(self, message) -> list[float]:
        stand, before = self.stand, len(self.stand.commands)
        self.publisher.publish(message)
        stand.until(lambda: len(stand.commands) > before, "the command")
        return list(stand.commands[-1].effort)


def expected(model, frames: list[np.ndarray]) -> list[list[float]]:
    policy = load_policy(model, engine="numpy")
    ids = [f"camera.{i}.{j}" for i in range(4) for j in range(4)]
    stack = [frames[0]] * 3
    actions = []
    for one in frames:
        stack = [*stack[1:], one]
        actions.append(
            policy.step_array(cut_patches(np.array(stack), 4), ids).astype(float).tolist()
        )
    return actions


def test_commands_are_those_of_the_policy_on_the_frames_to_the_last_bit(stand):
    camera = Camera(stand).start()
    frames = [frame(step) for step in range(6)]
    found = [camera.step(image(step, one)) for step, one in enumerate(frames)]
    assert found == expected(stand.model, frames)
    assert stand.reset().success  # a new episode: the next frame fills the whole stack
    found = [camera.step(image(step + 6, one)) for step, one in enumerate(frames)]
    assert found == expected(stand.model, frames)


def test_a_compressed_image_is_read_too(stand):
    camera = Camera(stand, CompressedImage).start()
    message = CompressedImage(format="png")
    message.data = array("B", cv2.imencode(".png", frame(0))[1].tobytes())
    set_stamp(message.header.stamp, stamp_of(0))
    assert [camera.step(message)] == expected(stand.model, [frame(0)])


BAD = {
    "another size": ({"height": 15, "step": 16}, "15 x 16 pixels, not 16 x 16"),
    "another encoding": ({"encoding": "yuv422"}, "encoding 'yuv422' is not one of"),
    "another length": ({"data": array("B", bytes(255))}, "255 bytes, not 16 rows of 16"),
    "black": ({"data": array("B", bytes(256))}, "a black image"),
}


@pytest.mark.parametrize("bad", list(BAD))
def test_a_frame_that_is_none_gives_the_safe_command_and_its_reason_and_then_all_goes_on(
    stand, bad
):
    changes, reason = BAD[bad]
    camera = Camera(stand).start()
    heard: list[DiagnosticArray] = []
    stand.peer.create_subscription(DiagnosticArray, "/diagnostics", heard.append, 10)
    assert camera.step(image(0, frame(0))) != SAFE
    assert camera.step(image(1, frame(1), **changes)) == SAFE
    heard.clear()
    stand.until(
        lambda: any(reason in str(status) for one in heard for status in one.status), "diagnosis"
    )
    assert camera.step(image(2, frame(2))) != SAFE


def test_the_reason_why_frames_are_invalid_stands_beside_a_wrong_rate(stand):
    Camera(stand)
    stand.start(activate=False, mode="rate")
    assert stand.node.trigger_configure().to_label() == "transition_success"
    loop, bad = stand.node._loop, image(0, frame(0), encoding="8UC1")
    begin_ns = loop._clock.now_ns()
    for second in range(6):
        now_ns = begin_ns + second * 10**9
        for number in range(30):
            loop.controller.table.store_message("camera", bad, None, now_ns + number)
        loop.controller.table.read(now_ns)
        statuses = loop.diagnostics.make_message(True, now_ns).status
    (text,) = [one.message for one in statuses if one.name.endswith("source camera")]
    assert text.startswith("unreadable message (encoding '8UC1'")
    assert "; 30 messages a second, but the policy runs at 100 Hz" in text


def test_a_frame_that_does_not_come_is_missing_and_the_safe_command_goes_out(stand):
    """At a rate: nothing newer than 0.05 s, the age that the wiring allows."""
    camera = Camera(stand)
    stand.start(activate=False, mode="rate", check_rate=False)
    assert stand.node.trigger_configure().to_label() == "transition_success"
    assert stand.node.trigger_activate().to_label() == "transition_success"
    stand.until(lambda: camera.publisher.get_subscription_count() == 1, "the camera matched")

    def acts() -> bool:
        camera.publisher.publish(image(0, frame(0)))
        return list(stand.commands[-1].effort) != SAFE if stand.commands else False

    stand.until(acts, "the policy to act")
    stand.until(lambda: list(stand.commands[-1].effort) == SAFE, "the safe command")


def test_attended_shows_the_frame_and_nothing_is_drawn_for_nobody(stand):
    camera = Camera(stand).start()
    camera.step(image(0, frame(0)))
    shown: list[Image] = []
    stand.peer.create_subscription(Image, "policy/attended", shown.append, 10)
    publisher = [one for one in stand.node.publishers if one.topic_name == "/policy/attended"]
    stand.until(publisher[0].get_subscription_count, "attended matched")
    channels: list[JointState] = []
    stand.peer.create_subscription(JointState, "policy/channels", channels.append, 10)
    stand.until(lambda: stand.node.count_subscribers("policy/channels"), "channels matched")
    camera.step(image(1, frame(1)))
    stand.until(lambda: shown and channels, "the picture")
    picture = shown[0]
    assert (picture.height, picture.width, picture.encoding) == (4 * SIDE, 4 * SIDE, "rgb8")
    pixels = np.frombuffer(picture.data, np.uint8).reshape(4 * SIDE, 4 * SIDE, 3)[::4, ::4]
    gray = np.repeat(frame(1)[..., None], 3, axis=2)
    same = (pixels == gray).all(axis=(2)).reshape(4, 4, 4, 4).all(axis=(1, 3))
    assert same.any() and not same.all()
    assert channels[0].position[0] == pytest.approx(frame(1)[:4, :4].mean())


def test_a_model_that_reads_other_patches_or_numbers_is_refused(stand):
    Camera(stand, patch=8)
    stand.start(activate=False)
    assert stand.node.trigger_configure().to_label() == "transition_failure"
    tiny_model(stand.model)
    assert stand.node.trigger_configure().to_label() == "transition_failure"
