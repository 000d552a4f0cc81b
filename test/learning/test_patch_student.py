"""The torch student for image patches computes what the policy core computes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_vision import (
    CONVOLUTION,
    CONVOLUTION_ISAB_PMA,
    CONVOLUTION_MEMORY,
    CONVOLUTION_SAB,
)

from an_control.learning.dagger.image_patches.student import VisionStudent
from an_control.load import make_policy
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import PONG_SIZES
from an_control.policy.task import Task

SIZES = {
    "convolution": CONVOLUTION,
    "convolution_memory": CONVOLUTION_MEMORY,
    "convolution_isab_pma": CONVOLUTION_ISAB_PMA,
    "convolution_sab": CONVOLUTION_SAB,
    "pong": PONG_SIZES,
}
EPISODES, TICKS, PATCHES = 3, 6, 20


@pytest.fixture(params=list(SIZES))
def model(request):
    return make_random_model(SIZES[request.param], seed=5, gain=2.0)


def episodes(sizes):
    """Patches (B, T, N, f, p, p) and which of them are present (B, T, N)."""
    rng = np.random.default_rng(0)
    shape = EPISODES, TICKS, PATCHES, sizes.stack, sizes.patch, sizes.patch
    patches = rng.integers(0, 256, shape).astype(np.uint8)
    present = rng.random(shape[:3]) < 0.7
    present[0, 2] = False
    return patches, present


def played(model, patches, present):
    """By the policy core: messages (B, T, M, m), actions and previous actions (B, T, A)."""
    policy = make_policy(model, engine="numpy")
    rows = []
    for episode, there in zip(patches, present, strict=True):
        policy.reset()
        for tick, shown in zip(episode, there, strict=True):
            previous = policy.previous_action
            action = policy.step_array(tick[shown], np.flatnonzero(shown).astype(str).tolist())
            rows.append((policy.attention_message, action, previous))
    parts = (np.array(part) for part in zip(*rows, strict=True))
    return [part.reshape(*present.shape[:2], *part.shape[1:]) for part in parts]


def test_the_student_gives_the_policys_messages_and_actions(model):
    student = VisionStudent(model.sizes)
    student.load_weights(model)
    patches, present = episodes(model.sizes)
    messages, actions, previous = played(model, patches, present)
    given = torch.from_numpy(patches), torch.from_numpy(previous), torch.from_numpy(present)
    with torch.no_grad():
        np.testing.assert_allclose(student.compute_attention_message(*given), messages, atol=2e-5)
        found = student(*given).numpy()
    found = np.eye(model.sizes.actions)[found.argmax(-1)]
    np.testing.assert_allclose(found, actions, atol=1e-5)


def test_what_the_student_exports_is_what_it_loaded(model):
    student = VisionStudent(model.sizes, seed=1)
    student.load_weights(model)
    again = student.make_model(Task(), {})
    again.check_arrays()
    assert again.kind == model.kind
    for name, array in model.arrays.items():
        np.testing.assert_array_equal(again.arrays[name], array)
    with pytest.raises(ValueError, match="sizes are"):
        student.load_weights(make_random_model(replace(model.sizes, hidden=3)))


def test_a_student_begins_as_a_model_without_memory_and_acts_alike():
    model = make_random_model(SIZES["convolution"], seed=5, gain=2.0)
    plain, student = VisionStudent(model.sizes), VisionStudent(SIZES["convolution_memory"], seed=3)
    plain.load_weights(model)
    student.load_start_model(model)
    patches, present = (torch.from_numpy(one) for one in episodes(model.sizes))
    previous = torch.rand(EPISODES, TICKS, model.sizes.actions)
    with torch.no_grad():
        expected = plain(patches, previous, present)
        torch.testing.assert_close(student(patches, previous, present), expected)
    with pytest.raises(ValueError, match="sizes are"):
        student.load_start_model(make_random_model(replace(model.sizes, hidden=3)))


def test_what_the_memory_holds_goes_on_from_piece_to_piece():
    model = make_random_model(SIZES["convolution_memory"], seed=5, gain=2.0)
    student = VisionStudent(model.sizes)
    student.load_weights(model)
    patches, present = (torch.from_numpy(one) for one in episodes(model.sizes))
    previous = torch.rand(EPISODES, TICKS, model.sizes.actions)
    with torch.no_grad():
        expected = student(patches, previous, present)
        units, pieces = torch.zeros(EPISODES, model.sizes.memory), []
        for part in (slice(0, 2), slice(2, TICKS)):
            message = student.compute_attention_message(
                patches[:, part], previous[:, part], present[:, part]
            )
            scores, units = student.run_convolving_head(message, previous[:, part], units)
            pieces.append(scores)
    torch.testing.assert_close(torch.cat(pieces, 1), expected)


def test_every_weight_that_a_gradient_can_reach_gets_one(model):
    student = VisionStudent(model.sizes, seed=1)
    patches, present = (torch.from_numpy(one) for one in episodes(model.sizes))
    previous = torch.rand(EPISODES, TICKS, model.sizes.actions)
    student(patches, previous, present).square().sum().backward()
    assert all(one.grad is not None for one in student.parameters())
