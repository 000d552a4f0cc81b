"""Five channels that swing at speeds of their own, and a monitored policy of theirs."""

from dataclasses import replace

import numpy as np

from an_control.policy import (
    AttentionSizes,
)
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import ForwardSizes, MonitorValidation
from an_control.policy.task import Task

CHANNELS = [f"wave_{i}" for i in range(5)]
SPEEDS = np.array([0.11, 0.17, 0.29, 0.41, 0.53])
SIZES = AttentionSizes(actions=2, neuron=3, queries=4, key=2, inputs=["value"], head=[5])
TASK = Task(name="waves", channels=tuple(CHANNELS), step_s=0.01)
FORWARD = ForwardSizes(hidden=[8], identity=4, binary=[])
STRAIGHT, TURNED = (0, 1, 2, 3, 4), (3, 0, 1, 4, 2)


def monitored_model(sizes=SIZES, **changes):
    """A model whose forward network knows that channel i changes by SPEEDS[i] at every tick."""
    model = make_random_model(sizes, seed=3, task=TASK)
    forward = replace(FORWARD, **changes)
    shapes = forward.list_array_shapes(len(CHANNELS), sizes.actions)
    ours = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    ours["forward.1.bias"][:5] = SPEEDS
    ours["forward.1.bias"][5:] = -5.0
    ours["forward.step"][:] = 1.0
    ours["forward.usual"][:] = -5.0
    ours["identity.units"][:] = 1.0
    return replace(model, arrays=model.arrays | ours, forward=forward)


def imputing_model(estimates, sizes=SIZES):
    """A monitored model that takes every missing channel for these estimates (5,)."""
    model = monitored_model(sizes, imputation=2)
    shapes = model.forward.list_array_shapes(len(CHANNELS), sizes.actions)
    arrays = {
        name: np.zeros(shapes[name], np.float32)
        for name in shapes
        if name.startswith("imputation.")
    }
    arrays["imputation.2.bias"][:] = estimates
    arrays["imputation.typical"][1:] = [[-50.0], [50.0]]
    return replace(model, arrays=model.arrays | arrays)


def telling_apart(model):
    """The model, with an identity classifier that tells channels apart by their last change."""
    size = np.log1p(SPEEDS)  # as the classifier gets it
    arrays = model.arrays
    gain = np.float32(200.0)  # silu hardly bends what is large
    newest_change = arrays["identity.0.weight"].shape[1] - 1
    arrays["identity.0.weight"][0, newest_change] = gain
    arrays["identity.1.weight"][0, 0] = 1.0
    arrays["identity.2.weight"][:, 0] = 2.0 * 4000.0 * size / gain
    arrays["identity.2.bias"][:] = -4000.0 * size**2
    return model


def waves(tick):
    """What the channels read: ramps of different slopes, which start apart."""
    return (np.arange(5) * 3.0 + SPEEDS * tick).astype(np.float32)


def play(policy, orders, ids=tuple(CHANNELS)):
    """Actions and moved signals, where slot i carries signal order[i] at each tick."""
    found = []
    for tick, order in enumerate(orders):
        action = policy.step_array(waves(tick)[list(order)], ids)
        found.append((action, dict(policy.monitor.channel_by_rewired_slot)))
    return found


STRAIGHT, TURNED = (0, 1, 2, 3, 4), (3, 0, 1, 4, 2)


def missing_one(tick, order):
    """The readings by slot, where the signal that slot 2 carries in TURNED is missing."""
    values = waves(tick)
    values[TURNED[2]] = np.nan
    return values[list(order)]


def validated(model, **changes):
    """The model with a validation that it has passed, unless the `changes` say otherwise."""
    passed = MonitorValidation(7.5, 48.0, slow=0, ticks=1000, false_moves_hour=0.0, found=1.0)
    forward = replace(model.forward, validation=replace(passed, **changes))
    return replace(model, forward=forward)
