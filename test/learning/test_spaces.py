"""Spaces: whatever a policy does is an action of the space, and each bound can be reached."""

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given
from hypothesis import strategies as some

pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control_sim.gym.spaces import make_action_conversion, make_reading_conversion

TYPES = (np.float16, np.float32, np.float64, np.int8, np.int32, np.int64, np.uint8, np.uint16)


@some.composite
def boxes(draw) -> spaces.Box:
    """A Box of any numeric type and shape, with bounds on both sides, on one or on none."""
    kind = np.dtype(draw(some.sampled_from(TYPES)))
    shape = draw(arrays.array_shapes(max_dims=3, max_side=3))
    if kind.kind == "f":
        numbers = some.floats(width=8 * kind.itemsize, allow_nan=False, allow_infinity=False)
    else:
        least, most = np.iinfo(kind).min, np.iinfo(kind).max
        numbers = some.integers(int(least), int(most))
    pair = [draw(arrays.arrays(kind, shape, elements=numbers)) for _ in range(2)]
    low, high = np.minimum(*pair), np.maximum(*pair)
    if kind.kind == "f":
        low = np.where(draw(arrays.arrays(bool, shape)), low, -np.inf).astype(kind)
        high = np.where(draw(arrays.arrays(bool, shape)), high, np.inf).astype(kind)
    return spaces.Box(low, high, shape, kind.type)


def test_the_bounds_of_a_box_of_the_largest_integers_are_exact():
    space = spaces.Box(2**63 - 16896, 2**63 - 600, (1,), np.int64)
    native = make_action_conversion(space).to_action
    assert native(np.full(1, -1.0)) == space.low and native(np.full(1, 1.0)) == space.high


@given(boxes(), some.data())
def test_every_action_is_inside_its_box_and_the_bounds_are_exact(space, data):
    actions, size = make_action_conversion(space), int(np.prod(space.shape))
    units = data.draw(arrays.arrays(np.float32, size, elements=some.floats(-1, 1, width=32)))
    with np.errstate(all="raise", under="ignore"):
        action = actions.to_action(units)
        lowest, highest = (actions.to_action(np.full(size, one, np.float32)) for one in (-1.0, 1.0))
    for one in (action, lowest, highest):
        assert space.contains(one) and one.dtype == space.dtype and np.isfinite(one).all()
    both = space.bounded_below & space.bounded_above
    if np.issubdtype(space.dtype, np.floating):
        largest = np.finfo(space.dtype).max
        both &= (space.low > -largest) & (space.high < largest)
    assert (lowest[both] == space.low[both]).all() and (highest[both] == space.high[both]).all()


@pytest.mark.parametrize(
    ("space", "number", "action"),
    [
        (spaces.Box(-0.1, 0.3, (1,), np.float64), -1.0, -0.1),
        (spaces.Box(0.0, np.inf, (1,), np.float32), -1.0, 0.0),
        (spaces.Box(0.0, np.inf, (1,), np.float32), 1.0, 2.0),
        (spaces.Box(-np.inf, -3.0, (1,), np.float32), 1.0, -3.0),
        (spaces.Box(-3, 3, (1,), np.int64), -0.6, -2),
        (spaces.Box(0, 255, (1,), np.uint8), 1.0, 255),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), 0.5, 0.5),
    ],
)
def test_a_number_stands_for_this_action(space, number, action):
    assert make_action_conversion(space).to_action(
        np.array([number], np.float32)
    ) == space.dtype.type(action)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 1, 3], start=[5, 0, -1]),
        spaces.MultiBinary([2, 2]),
        spaces.Dict({"arm": spaces.Box(-2, 2, (2,)), "grip": spaces.Discrete(2)}),
        spaces.Tuple((spaces.MultiBinary(1), spaces.Tuple((spaces.Discrete(2),)))),
    ],
    ids=str,
)
def test_any_numbers_make_an_action_of_the_space_and_an_action_its_numbers(space):
    actions, rng = make_action_conversion(space), np.random.default_rng(0)
    for _ in range(50):
        action = actions.to_action(rng.uniform(-1, 1, len(actions.names)).astype(np.float32))
        assert space.contains(action)
        again = actions.to_action(actions.to_numbers(action))
        assert data_equivalence(action, again)


def test_ids_of_readings_come_from_the_keys():
    space = spaces.Dict(
        {
            "desired_goal": spaces.Box(-1, 1, (2,)),
            "gear": spaces.Discrete(2, start=1),
            "lamps": spaces.MultiBinary(1),
        }
    )
    readings = make_reading_conversion(space)
    assert readings.ids == ("desired_goal.0", "desired_goal.1", "gear.1", "gear.2", "lamps.0")
    assert readings.scalable.tolist() == [True, True, False, False, False]
    seen = {"desired_goal": np.array([0.5, -0.5]), "gear": 2, "lamps": np.array([1])}
    assert readings.flatten(seen).tolist() == [0.5, -0.5, 0.0, 1.0, 1.0]
    plain = make_reading_conversion(spaces.Box(-1, 1, (2, 2)))
    assert plain.ids == tuple(f"observation.{i}" for i in range(4))


@pytest.mark.parametrize("observation", [np.zeros(3), {"desired_goal": np.zeros(2)}, None])
def test_an_observation_that_is_not_of_its_space_is_refused(observation):
    space = spaces.Dict({"a": spaces.Box(-1, 1, (2,)), "b": spaces.Discrete(2)})
    with pytest.raises((ValueError, KeyError, TypeError)):
        make_reading_conversion(space).flatten(observation)


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Graph(spaces.Box(0, 1, (1,)), None)])
def test_a_space_without_numbers_is_refused_with_those_that_are_allowed(space):
    with pytest.raises(ValueError, match="allowed: Box, Discrete, MultiDiscrete, MultiBinary"):
        make_reading_conversion(space)
