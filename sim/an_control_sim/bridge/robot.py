"""Connects one gymnasium environment to ROS messages and commands; uses no node and no clock."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from an_control.disturbance import DisturbanceSettings
from an_control.wiring.checked_yaml import WiringError
from an_control_sim.bridge.commands import CommandReader, import_message_class_of_topic
from an_control_sim.bridge.publishers import SensorTopic
from an_control_sim.bridge.simulation_file import Simulation
from an_control_sim.gym.environments import HasSensors, open_environment
from an_control_sim.gym.failure import make_broken_environment_error
from an_control_sim.gym.spaces import make_reading_conversion
from an_control_sim.gym.varied_robot import check_robot_settings, vary_robot


class SimulatedRobot:
    """A gymnasium environment with the ROS 2 messages of a robot: readings out, commands in.

    Call `reset` before the first step. To find errors early, the constructor makes an environment,
    resets it and closes it. The episodes are played in another new one, as in an evaluation.

    Args:
        simulation: The content of the simulation YAML: environment, topics and commands.
        camera: Whether the environment must be able to render pictures.
        disturbance: A disturbance, which is only checked and not applied: the environment must
            support its settings of the robot, such as mass. None skips the check.

    Raises:
        WiringError: The simulation YAML does not fit the environment or the message types.
        ValueError: The environment does not support the robot's settings in `disturbance`.
        BrokenEnvironmentError: The environment raised another error; `reset`, `step` and
            `fill_sensor_messages` raise it too.
    """

    def __init__(
        self,
        simulation: Simulation,
        *,
        camera: bool = False,
        disturbance: DisturbanceSettings | None = None,
    ) -> None:
        self.simulation = simulation
        self._steps = 0
        self._make_environment(camera)
        file = simulation.file
        try:
            self.sensor_topics = []
            for topic in simulation.publish:
                cls = import_message_class_of_topic(topic.type, file, f"publish.{topic.topic}")
                self.sensor_topics.append(SensorTopic(topic, cls, file))
            self.commands = CommandReader(simulation, self._environment.action_space)
            if disturbance is not None:
                check_robot_settings(self._environment, disturbance)
            self.reset(0)
            for sensor_topic in self.sensor_topics:
                sensor_topic.check_expressions_fit_fields(self._observation, self._sensors())
        finally:
            self.close()
        self._make_environment(camera)

    def _make_environment(self, camera: bool) -> None:
        """Make the environment, and set the functions that read its observations and sensors."""
        simulation, options = self.simulation, dict(self.simulation.options)
        if camera:
            options["render_mode"] = "rgb_array"
        try:
            self._environment = open_environment(
                simulation.environment, disable_env_checker=True, **options
            )
        except ValueError as error:
            allowed = f"an environment registered with gymnasium, and its options; {error}"
            raise WiringError(
                simulation.file, "environment", simulation.environment, allowed
            ) from None
        inner, space = self._environment.unwrapped, self._environment.observation_space
        self._read: Callable[[Any], Any] = np.asarray
        if not isinstance(space, gymnasium.spaces.Box):
            self._read = make_reading_conversion(space).flatten
        self._sensors: Callable[[], Mapping[str, Any]] = (
            inner.sensors if isinstance(inner, HasSensors) else dict
        )

    def vary_robot(self, settings: DisturbanceSettings) -> None:
        """Change the robot's motor gain, mass, friction and so on, from the next reset on.

        Args:
            settings: A disturbance, of which only the settings of the robot are used.

        Raises:
            ValueError: The environment does not support a setting; see `check_robot_settings`.
        """
        vary_robot(self._environment, settings)

    def reset(self, seed: int) -> None:
        """Reset the environment to the start of an episode, which depends only on the seed."""
        self._steps = 0
        with self._report_failure(f"reset with seed {seed}"):
            observation, self._info = self._environment.reset(seed=seed)
            self._observation = self._read(observation)
        self.reward, self.over, self.terminated = 0.0, False, False

    def step(self, commands: NDArray[np.float64]) -> None:
        """Advance the simulation by one step under a command.

        Args:
            commands: The command (A,) in the unit of the action.
        """
        action = self.commands.make_action(commands)
        self._steps += 1
        with self._report_failure(f"step {self._steps}"):
            result = self._environment.step(action)
            observation, reward, terminated, truncated, self._info = result
            self._observation, reward = self._read(observation), float(reward)
        self.reward = reward
        """The reward of the newest step."""
        self.terminated = bool(terminated)
        """Whether the episode has ended in another way than by a time limit."""
        self.over = bool(terminated or truncated)
        """Whether the episode has ended."""

    @property
    def distance_m(self) -> float | None:
        """The distance in metres covered since the reset; None if the environment has none."""
        distance = self._info.get("distance_m")
        return None if distance is None else float(distance)

    def fill_sensor_messages(self, stamp_ns: int) -> None:
        """Write the current readings and a stamp into the message objects of all sensor topics.

        Args:
            stamp_ns: The time stamp in nanoseconds.
        """
        with self._report_failure(f"sensors after step {self._steps}"):
            sensors = self._sensors()
        for sensor_topic in self.sensor_topics:
            sensor_topic.fill_message(self._observation, sensors, stamp_ns)

    def render(self) -> Any:
        """Return a picture of the robot (H, W, 3) uint8."""
        return self._environment.render()

    def close(self) -> None:
        """Close the environment; an error while it closes is printed but not raised."""
        try:
            self._environment.close()
        except Exception as error:  # the work is done
            name = self.simulation.environment
            print(make_broken_environment_error(name, "closing it", error), file=sys.stderr)

    @contextmanager
    def _report_failure(self, activity: str) -> Iterator[None]:
        """Turn an error of the environment in this block into a BrokenEnvironmentError."""
        try:
            yield
        except Exception as error:
            name = self.simulation.environment
            raise make_broken_environment_error(name, activity, error) from error
