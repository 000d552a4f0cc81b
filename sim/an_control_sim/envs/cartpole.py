"""CartPoleSwingUpHarder: swing a pole up and balance it, from starts with high speeds.

The task is that of Tang & Ha 2021 (section 4.1). The physics is compiled for a batch of episodes.
The environment and the compiled training run the same functions, so an episode has the same bits in
both.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import Any

import cv2
import gymnasium
import numpy as np
from gymnasium.utils import seeding

from an_control.system.compiled_cache import njit
from an_control_sim.envs.tasks import CARTPOLE_TASK
from an_control_sim.gym.environments import EnvironmentBatch

GRAVITY = 9.82
CART_KG = 0.5
POLE_KG = 0.5
POLE_M = 0.6
FRICTION = 0.1
FORCE_N = 10.0
STEP_S = CARTPOLE_TASK.step_s
LIMIT_M = 2.4
TOTAL_KG = CART_KG + POLE_KG
POLE_KG_M = POLE_KG * POLE_M
PICTURE = (240, 480)
"""Rows and columns of the rendered picture."""

CARTPOLE_CHANNELS = CARTPOLE_TASK.channels
CARTPOLE_ACTUATORS = CARTPOLE_TASK.actuators
START_MIDDLE = np.array([0.0, 0.0, np.pi, 0.0])
START_SPREAD = np.array([LIMIT_M, 10.0, np.pi / 2, 10.0])


@njit(inline="always", error_model="numpy")
def _compute_accelerations(cart_velocity, pole_velocity, sin, cos, force):
    """Return the acceleration of the cart (m/s^2) and the angular one of the pole (rad/s^2).

    Args:
        cart_velocity: The velocity of the cart in m/s.
        pole_velocity: The angular velocity of the pole in rad/s.
        sin: The sine of the pole's angle from upright.
        cos: The cosine of that angle.
        force: The force on the cart in N.
    """
    drag = FRICTION * cart_velocity
    cart = (
        -2.0 * POLE_KG_M * (pole_velocity * pole_velocity) * sin
        + 3.0 * POLE_KG * GRAVITY * sin * cos
        + 4.0 * force
        - 4.0 * drag
    ) / (4.0 * TOTAL_KG - 3.0 * POLE_KG * (cos * cos))
    pole = (
        -3.0 * POLE_KG_M * (pole_velocity * pole_velocity) * sin * cos
        + 6.0 * TOTAL_KG * GRAVITY * sin
        + 6.0 * (force - drag) * cos
    ) / (4.0 * POLE_M * TOTAL_KG - 3.0 * POLE_KG_M * (cos * cos))
    return cart, pole


@njit(inline="always", error_model="numpy")
def _compute_sin_cos(angle):
    """Return the sine and the cosine of an angle in rad, with errors only in the last two bits.

    Multiples of pi/2 are subtracted from the angle, then the polynomials of fdlibm's k_sin.c and
    k_cos.c are used. There are no branches, so that the compiler can vectorise the function.
    """
    turns = np.floor(angle * 0.6366197723675814 + 0.5)
    r = (angle - turns * 1.57079632673412561417) - turns * 6.07710050650619224932e-11
    y = r * r
    s = 1.58969099521155010221e-10 * y - 2.50507602534068634195e-08
    s = s * y + 2.75573137070700676789e-06
    s = s * y - 1.98412698298579493134e-04
    s = s * y + 8.33333333332248946124e-03
    s = r + r * y * (s * y - 1.66666666666666324348e-01)
    c = -1.13596475577881948265e-11 * y + 2.08757232129817482790e-09
    c = c * y - 2.75573143513906633035e-07
    c = c * y + 2.48015872894767294178e-05
    c = c * y - 1.38888888888741095749e-03
    c = 1.0 - 0.5 * y + y * y * (c * y + 4.16666666666666019037e-02)
    quadrant = turns - 4.0 * np.floor(turns * 0.25)
    odd = (quadrant == 1.0) | (quadrant == 3.0)
    sin = c if odd else s
    cos = s if odd else c
    sin = -sin if quadrant >= 2.0 else sin
    cos = -cos if (quadrant == 1.0) | (quadrant == 2.0) else cos
    return sin, cos


@njit("void(float64[:,::1], float32[:,::1])", cache=True, error_model="numpy", nogil=True)
def write_observations(states, observations):
    """Compute the observations of B episodes from their states.

    Args:
        states: The states (6, B). The rows are: the cart's position and velocity; the pole's angle,
            angular velocity, sine and cosine.
        observations: The array (5, B) to fill. The rows are: the cart's position and velocity; the
            pole's cosine, sine and angular velocity.
    """
    for b in range(states.shape[1]):
        observations[0, b] = np.float32(states[0, b])
        observations[1, b] = np.float32(states[1, b])
        observations[2, b] = np.float32(states[5, b])
        observations[3, b] = np.float32(states[4, b])
        observations[4, b] = np.float32(states[3, b])


@njit(
    "void(float64[:,::1], float32[:,::1], float64[::1], boolean[::1])",
    cache=True,
    error_model="numpy",
    nogil=True,
)
def advance_episodes(states, actions, rewards, ended):
    """Advance B episodes in place by a step of 0.01 s.

    The positions change by the velocities before the step (explicit Euler).

    Args:
        states: The states (6, B), with rows as in `write_observations`; changed in place.
        actions: The forces on the cart (1, B), in units of 10 N; clipped to [-1, 1].
        rewards: The array (B,) to fill with the rewards.
        ended: The array (B,) to fill: True if the cart has left the track.
    """
    for b in range(states.shape[1]):
        velocity, spin = states[1, b], states[3, b]
        push = np.float64(actions[0, b])
        force = FORCE_N * min(max(push, -1.0), 1.0)
        cart, pole = _compute_accelerations(velocity, spin, states[4, b], states[5, b], force)
        position = states[0, b] + velocity * STEP_S
        angle = states[2, b] + spin * STEP_S
        sin, cos = _compute_sin_cos(angle)
        _, closeness = _compute_sin_cos(position * (0.5 * np.pi / LIMIT_M))
        states[0, b] = position
        states[1, b] = velocity + cart * STEP_S
        states[2, b] = angle
        states[3, b] = spin + pole * STEP_S
        states[4, b] = sin
        states[5, b] = cos
        rewards[b] = 0.5 * (cos + 1.0) * closeness
        ended[b] = (position < -LIMIT_M) | (position > LIMIT_M)


def draw_start_state_of_seed(seed: int) -> np.ndarray:
    """Return the random start state (6,) for a seed, in the order of `write_observations`."""
    return _draw_random_start_state(seeding.np_random(seed)[0])


def _draw_random_start_state(rng: np.random.Generator) -> np.ndarray:
    """Draw a random state (6,) from which an episode starts."""
    state = START_MIDDLE + START_SPREAD * rng.uniform(-1.0, 1.0, 4)
    return np.array([*state, np.sin(state[2]), np.cos(state[2])])


class CartPoleSwingUpHarder(gymnasium.Env[np.ndarray, np.ndarray]):
    """A cart that swings up a pole and balances it near the middle of a track.

    The observation is (5,) float32: the cart's position in m and velocity in m/s; the pole's
    cosine, sine and angular velocity in rad/s. The action (1,) is the force in units of 10 N. The
    reward is (cos(angle) + 1) / 2 * cos(pi/2 * position / 2.4 m) after the step. An episode ends
    when the cart leaves +-2.4 m. From about one start in three no policy has ever solved the task.

    Args:
        render_mode: "rgb_array" or None.
    """

    channels = CARTPOLE_CHANNELS
    actuators = CARTPOLE_ACTUATORS
    step_s = STEP_S
    metadata = {"render_modes": ["rgb_array"], "render_fps": round(1.0 / STEP_S)}  # noqa: RUF012
    batch = EnvironmentBatch(
        draw_start_state_of_seed, write_observations, advance_episodes, states=6, steps=1000
    )

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        bound = np.array([np.inf, np.inf, 1.0, 1.0, np.inf], np.float32)
        self.observation_space = gymnasium.spaces.Box(-bound, bound, dtype=np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._state = np.zeros((6, 1))
        self._observation = np.zeros((5, 1), np.float32)
        self._reward, self._ended = np.zeros(1), np.zeros(1, np.bool_)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode from a state that depends only on the seed."""
        super().reset(seed=seed)
        self._state[:, 0] = _draw_random_start_state(self.np_random)
        return self._make_observation(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make one step of 0.01 s.

        Raises:
            ValueError: The action is not one finite number.
        """
        action = np.asarray(action, np.float32)
        if action.shape != (1,) or not np.isfinite(action[0]):
            raise ValueError(f"action {action!r} is not one finite number")
        advance_episodes(self._state, action.reshape(1, 1), self._reward, self._ended)
        return self._make_observation(), float(self._reward[0]), bool(self._ended[0]), False, {}

    def sensors(self) -> dict[str, list[float]]:
        """Return the positions and velocities of the cart and the pole, by name.

        "joint_position" has the cart's position in m and the pole's angle in rad; "joint_velocity"
        has the cart's velocity in m/s and the pole's in rad/s.
        """
        position, velocity, angle, spin = self._state[:4, 0].tolist()
        return {"joint_position": [position, angle], "joint_velocity": [velocity, spin]}

    def render(self) -> np.ndarray | None:
        """Return a side view of track, cart and pole, uint8 (240, 480, 3) RGB.

        The result is None without a render mode.
        """
        if self.render_mode is None:
            return None
        position, sin, cos = self._state[[0, 4, 5], 0]
        picture = np.full((*PICTURE, 3), 255, np.uint8)
        scale = PICTURE[1] / (2.2 * LIMIT_M)
        x, y = round(PICTURE[1] / 2 + scale * position), round(0.6 * PICTURE[0])
        tip = round(x + scale * POLE_M * sin), round(y - scale * POLE_M * cos)
        ends = [round(PICTURE[1] / 2 + scale * end) for end in (-LIMIT_M, LIMIT_M)]
        cv2.line(picture, (ends[0], y + 8), (ends[1], y + 8), (160, 160, 160), 2, cv2.LINE_AA)
        for end in ends:
            cv2.line(picture, (end, y - 8), (end, y + 24), (160, 160, 160), 2, cv2.LINE_AA)
        cv2.rectangle(picture, (x - 20, y - 8), (x + 20, y + 8), (60, 60, 60), cv2.FILLED)
        cv2.line(picture, (x, y), tip, (200, 90, 40), 8, cv2.LINE_AA)
        return picture

    def _make_observation(self) -> np.ndarray:
        """Return the observation (5,) of the current state."""
        write_observations(self._state, self._observation)
        return self._observation[:, 0].copy()
