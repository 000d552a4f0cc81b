"""Compiled physics of gymnasium's classic control, for many episodes at once.

The equations are those of gymnasium's `cartpole.py`, `pendulum.py` and `acrobot.py`, in the same
order. An episode agrees with gymnasium's up to rounding: numpy's sine may differ in the last bit.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium.utils import seeding

from an_control.learning.rollout.compiled.loop import ADVANCE, OBSERVE
from an_control.system.compiled_cache import njit
from an_control_sim.gym.environments import EnvironmentBatch

compiled_observe = njit(OBSERVE.signature, cache=True, error_model="numpy", nogil=True)
compiled_advance = njit(ADVANCE.signature, cache=True, error_model="numpy", nogil=True)
TILT = 12 * 2 * math.pi / 360
"""Angle of the pole in rad at which an episode of CartPole ends."""
F32 = np.float32


def find_physics_of_classic_control(env: gymnasium.Env[Any, Any]) -> EnvironmentBatch | None:
    """Return this package's compiled physics of an environment, or None if there is none.

    There is one for CartPole, Pendulum and Acrobot of gymnasium, if the environment was made with
    the default arguments.
    """
    inner, limit = env.unwrapped.spec, env.get_wrapper_attr("spec")
    known = None if inner is None else PHYSICS.get(inner.id)
    if inner is None or known is None:
        return None
    plain = gymnasium.spec(inner.id)
    default = inner.entry_point == plain.entry_point and inner.kwargs.keys() <= {"render_mode"}
    return known if default and limit.max_episode_steps == known.steps else None


def _draw_cartpole_state(seed: int) -> np.ndarray:
    """Draw CartPole's initial state: cart position and velocity, pole angle and rate.

    Args:
        seed: Seed of the episode, as for gymnasium's `reset`.
    """
    return seeding.np_random(seed)[0].uniform(-0.05, 0.05, 4)


@compiled_observe
def _write_cartpole_observation(state, observation):
    """Copy the states (4, B) to `observation` (4, B): CartPole's observations are its states."""
    for b in range(state.shape[1]):
        for i in range(4):
            observation[i, b] = state[i, b]


@compiled_advance
def _advance_cartpole(state, action, reward, ended):
    """Advance B carts with poles by one step of 0.02 s.

    Args:
        state: States (4, B), which this changes.
        action: Actions (2, B) of the policies.
        reward: Output: the rewards (B,) of this step.
        ended: Output: whether each episode has ended (B,).
    """
    for b in range(state.shape[1]):
        force = 10.0 if action[1, b] > action[0, b] else -10.0
        x, velocity, angle, spin = state[0, b], state[1, b], state[2, b], state[3, b]
        cos, sin = math.cos(angle), math.sin(angle)
        push = (force + 0.05 * (spin * spin) * sin) / 1.1
        pole = (9.8 * sin - cos * push) / (0.5 * (4.0 / 3.0 - 0.1 * (cos * cos) / 1.1))
        cart = push - 0.05 * pole * cos / 1.1
        state[0, b] = x + 0.02 * velocity
        state[1, b] = velocity + 0.02 * cart
        state[2, b] = angle + 0.02 * spin
        state[3, b] = spin + 0.02 * pole
        reward[b] = 1.0
        ended[b] = abs(state[0, b]) > 2.4 or abs(state[2, b]) > TILT


def _draw_pendulum_state(seed: int) -> np.ndarray:
    """Draw the pendulum's initial state: angle in rad and rate in rad/s.

    Args:
        seed: Seed of the episode, as for gymnasium's `reset`.
    """
    high = np.array([math.pi, 1.0])
    return seeding.np_random(seed)[0].uniform(-high, high)


@compiled_observe
def _write_pendulum_observation(state, observation):
    """Write the cosine and sine of the angle, and the rate, to `observation` (3, B).

    Args:
        state: Angle in rad and rate in rad/s of each pendulum (2, B).
        observation: Output: the observations (3, B).
    """
    for b in range(state.shape[1]):
        observation[0, b] = math.cos(state[0, b])
        observation[1, b] = math.sin(state[0, b])
        observation[2, b] = state[1, b]


@compiled_advance
def _advance_pendulum(state, action, reward, ended):
    """Advance B pendulums by one step of 0.05 s.

    Args:
        state: States (2, B), which this changes.
        action: Actions (1, B) of the policies.
        reward: Output: the rewards (B,) of this step.
        ended: Output: whether each episode has ended (B,).
    """
    for b in range(state.shape[1]):
        angle, spin = state[0, b], state[1, b]
        torque = F32(2.0) * min(max(action[0, b], F32(-1.0)), F32(1.0))
        wrapped = (angle + math.pi) % (2.0 * math.pi) - math.pi
        effort = F32(0.001) * (torque * torque)
        reward[b] = -(wrapped**2 + 0.1 * spin**2 + effort)
        spin = spin + (15.0 * math.sin(angle) + F32(3.0) * torque) * 0.05
        spin = min(max(spin, -8.0), 8.0)
        state[0, b] = angle + spin * 0.05
        state[1, b] = spin
        ended[b] = False


def _draw_acrobot_state(seed: int) -> np.ndarray:
    """Draw the acrobot's initial state: two joint angles in rad, two joint rates in rad/s.

    Args:
        seed: Seed of the episode, as for gymnasium's `reset`.
    """
    start = seeding.np_random(seed)[0].uniform(-0.1, 0.1, 4)
    return start.astype(np.float32).astype(np.float64)


@compiled_observe
def _write_acrobot_observation(state, observation):
    """Write the cosine and sine of both angles, and both rates, to `observation` (6, B).

    Args:
        state: Two angles in rad and two rates in rad/s of each acrobot (4, B).
        observation: Output: the observations (6, B).
    """
    for b in range(state.shape[1]):
        observation[0, b] = math.cos(state[0, b])
        observation[1, b] = math.sin(state[0, b])
        observation[2, b] = math.cos(state[1, b])
        observation[3, b] = math.sin(state[1, b])
        observation[4, b] = state[2, b]
        observation[5, b] = state[3, b]


@njit(inline="always", error_model="numpy")
def _compute_acrobot_accelerations(angle1, angle2, spin1, spin2, torque):
    """Return the accelerations of both joints in rad/s^2, for links of 1 m and 1 kg.

    The mass of each link is in its middle.

    Args:
        angle1: Angle of the first joint in rad, 0 if the link hangs down.
        angle2: Angle of the second joint in rad, relative to the first link.
        spin1: Rate of the first joint in rad/s.
        spin2: Rate of the second joint in rad/s.
        torque: Torque on the second joint in N m.
    """
    cos, sin = math.cos(angle2), math.sin(angle2)
    d1 = 0.25 + (1.0 + 0.25 + cos) + 2.0
    d2 = (0.25 + 0.5 * cos) + 1.0
    phi2 = 0.5 * 9.8 * math.cos(angle1 + angle2 - math.pi / 2.0)
    phi1 = -0.5 * spin2**2 * sin - spin2 * spin1 * sin
    phi1 = phi1 + 1.5 * 9.8 * math.cos(angle1 - math.pi / 2.0) + phi2
    second = torque + d2 / d1 * phi1 - 0.5 * spin1**2 * sin - phi2
    second = second / (0.25 + 1.0 - d2**2 / d1)
    return -(d2 * second + phi1) / d1, second


@njit(inline="always", error_model="numpy")
def _wrap_angle(angle):
    """Return the angle in rad, moved by whole turns into the range from -pi to pi."""
    while angle > math.pi:
        angle -= 2.0 * math.pi
    while angle < -math.pi:
        angle += 2.0 * math.pi
    return angle


@compiled_advance
def _advance_acrobot(state, action, reward, ended):
    """Advance B acrobots by one step of 0.2 s, by the Runge-Kutta method of fourth order.

    Args:
        state: States (4, B), which this changes.
        action: Actions (3, B) of the policies.
        reward: Output: the rewards (B,) of this step.
        ended: Output: whether each episode has ended (B,).
    """
    step = 0.2
    half, sixth = step / 2.0, step / 6.0
    for b in range(state.shape[1]):
        largest = 1 if action[1, b] > action[0, b] else 0
        if action[2, b] > action[largest, b]:
            largest = 2
        torque = largest - 1.0
        p, q, v, w = state[0, b], state[1, b], state[2, b], state[3, b]
        a1, b1 = _compute_acrobot_accelerations(p, q, v, w, torque)
        v2, w2 = v + half * a1, w + half * b1
        a2, b2 = _compute_acrobot_accelerations(p + half * v, q + half * w, v2, w2, torque)
        v3, w3 = v + half * a2, w + half * b2
        a3, b3 = _compute_acrobot_accelerations(p + half * v2, q + half * w2, v3, w3, torque)
        v4, w4 = v + step * a3, w + step * b3
        a4, b4 = _compute_acrobot_accelerations(p + step * v3, q + step * w3, v4, w4, torque)
        p = _wrap_angle(p + sixth * (v + 2.0 * v2 + 2.0 * v3 + v4))
        q = _wrap_angle(q + sixth * (w + 2.0 * w2 + 2.0 * w3 + w4))
        v = v + sixth * (a1 + 2.0 * a2 + 2.0 * a3 + a4)
        w = w + sixth * (b1 + 2.0 * b2 + 2.0 * b3 + b4)
        v = min(max(v, -4.0 * math.pi), 4.0 * math.pi)
        w = min(max(w, -9.0 * math.pi), 9.0 * math.pi)
        state[0, b], state[1, b], state[2, b], state[3, b] = p, q, v, w
        ended[b] = -math.cos(p) - math.cos(q + p) > 1.0
        reward[b] = 0.0 if ended[b] else -1.0


PHYSICS = {
    "CartPole-v1": EnvironmentBatch(
        _draw_cartpole_state, _write_cartpole_observation, _advance_cartpole, 4, 500
    ),
    "Pendulum-v1": EnvironmentBatch(
        _draw_pendulum_state, _write_pendulum_observation, _advance_pendulum, 2, 200
    ),
    "Acrobot-v1": EnvironmentBatch(
        _draw_acrobot_state, _write_acrobot_observation, _advance_acrobot, 4, 500
    ),
}
"""Physics by gymnasium id."""
