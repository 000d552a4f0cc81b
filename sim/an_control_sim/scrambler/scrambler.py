"""Disturbs a robot's readings between its topics and the policy.

The wiring (the YAML file that connects topics to the policy's channels) converts the robot's
messages to readings. The output is a stamped JointState with the channel ids as names and the
readings as positions (NaN where missing) or, for a camera, an image with its patches moved. The
policy reads it with another wiring (`derive_scrambled_wiring`). Inside the simulator the object
`Scrambler` gets the robot's messages directly. As an executable of its own it gets them by
subscriptions.

The parameter `order` sets which sensor signal each channel carries, and the topic `~/order` reports
it. An entry of the parameter is CHANNEL=SIGNAL: from the next tick on that channel carries the
signal of this other channel, `noise`, or nothing. Channels that are not named keep their signal.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from numpy.typing import NDArray
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.clock import Clock, ClockType
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from std_srvs.srv import Trigger

from an_control.disturbance import (
    DisturbanceSettings,
    Disturber,
    ScheduledChange,
    iterate_scheduled_settings,
)
from an_control.disturbance.signal_routing import NOISE, NOTHING, SignalRouting
from an_control.ros.graph import QuietNode
from an_control.ros.inputs import Inputs
from an_control.ros.lockstep import Lockstep
from an_control.ros.node import print_help_if_asked
from an_control.wiring import ChannelTable, Readings, Wiring, load_wiring
from an_control.wiring.messages import make_stamp_reader
from an_control_sim.parameters import (
    call_when_disturbance_changes,
    declare_disturbance_parameters,
    declare_parameter,
    declare_schedule_parameter,
)
from an_control_sim.process import (
    RELIABLE,
    SLICE_S,
    catch_signals,
    create_node,
    initialise_ros,
    make_events_executor,
)
from an_control_sim.scrambler.messages import make_scrambled_message
from an_control_sim.scrambler.wiring import TOPIC

PARAMETER = "order"
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""A quality of service with which late subscribers get the newest message too."""


def declare_signal_order_parameter(
    node: Node,
    list_channels: Callable[[], Sequence[str]],
    check_order: Callable[[Mapping[str, str]], object],
    change_order: Callable[[Mapping[str, str]], object],
) -> None:
    """Declare the parameter `order`, by which a client chooses the sensor signal of each channel.

    Its value is a list of entries CHANNEL=SIGNAL, such as "a=b": channel a now carries the signal
    of channel b. The functions below get them as a mapping from channel ids to signals.

    Args:
        node: The node.
        list_channels: Returns the channel ids that an entry may name.
        check_order: Called with the mapping before it is accepted; raises ValueError to refuse it.
        change_order: Called with the mapping after it was accepted, to apply it.
    """
    node.declare_parameter(
        PARAMETER,
        Parameter.Type.STRING_ARRAY,
        ParameterDescriptor(
            description="signals that channels carry from now on: another channel's, noise or none",
            additional_constraints="entries CHANNEL=SIGNAL, CHANNEL=noise or CHANNEL=",
        ),
    )
    if node.get_parameter_or(PARAMETER).value:
        node.get_logger().warning(
            f"parameter {PARAMETER}: ignored at the start, when no channel is known: set it again"
        )
    # an unset parameter hides all others from a dump
    node.set_parameters([Parameter(PARAMETER, Parameter.Type.STRING_ARRAY, [])])

    def accept_or_refuse_order(parameters: list[Parameter]) -> SetParametersResult:
        """Check a new value of the parameter `order`, and return whether the node accepts it."""
        try:
            for entries in _find_values_of_order_parameter(parameters):
                check_order(parse_signals_by_channel(entries, list_channels()))
        except ValueError as error:
            return SetParametersResult(successful=False, reason=f"{PARAMETER}: {error}")
        return SetParametersResult(successful=True)

    def apply_order(parameters: list[Parameter]) -> None:
        """Apply a new value of the parameter `order`, after the node has accepted it."""
        for entries in _find_values_of_order_parameter(parameters):
            change_order(parse_signals_by_channel(entries, list_channels()))

    node.add_on_set_parameters_callback(accept_or_refuse_order)
    node.add_post_set_parameters_callback(apply_order)


def parse_signals_by_channel(entries: Sequence[str], channels: Sequence[str]) -> dict[str, str]:
    """Parse entries CHANNEL=SIGNAL to a mapping from channel ids to signals.

    >>> parse_signals_by_channel(["a=b", "b="], ["a", "b"])
    {'a': 'b', 'b': ''}

    Ids may contain "=". An entry is split after the longest known id that it starts with.

    Args:
        entries: The entries.
        channels: The known channel ids.

    Raises:
        ValueError: An entry has no "=", or a channel is named twice.
    """
    order: dict[str, str] = {}
    for entry in entries:
        parts = entry.split("=")
        heads = ["=".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
        channel = next((head for head in heads if head in channels), heads[-1] if heads else "")
        if not channel:
            raise ValueError(f"{entry!r} (allowed: CHANNEL=SIGNAL, CHANNEL=noise or CHANNEL=)")
        if channel in order:
            raise ValueError(f"{channel} is named twice")
        order[channel] = entry[len(channel) + 1 :]
    return order


def _find_values_of_order_parameter(parameters: list[Parameter]) -> list[Sequence[str]]:
    """Return the values of the parameter `order` in a list of parameters that are being set.

    Each value is a list of entries CHANNEL=SIGNAL.
    """
    return [one.value or () for one in parameters if one.name == PARAMETER]


ABOUT = (
    "The scrambler: reads a robot's sensors by its wiring YAML, disturbs the readings (permutes,"
    " removes, copies, freezes or delays them, adds noise) and publishes them on one topic for the"
    " policy node. The parameters of the disturbance may change while it runs; the service"
    " ~/shuffle permutes the signals at once, the parameter order moves single signals, and the"
    " topic ~/order reports all of them. ~/reset starts an episode."
)


LOCKSTEP_WAIT_S = 0.25
"""Seconds that the scrambler executable waits in lockstep for messages with one stamp from all
sources. It is half of the default wait of the policy node, which reads the result."""


class Scrambler:
    """A disturber of a robot's readings, which publishes the result on the topic `scrambled`.

    At run time a client can:

    - change the disturbance by the node's parameters;
    - permute all signals among the channels by the service `~/shuffle`;
    - move single signals to other channels, for all later episodes, by the parameter `order`.

    When a new channel appears, new permutations are chosen at random that include it.

    Args:
        node: The node on which topics, parameters and services are created.
        wiring: The robot's wiring: which topics feed which channels of the policy.
        settings: The disturbance: what is done on purpose to readings and robot.
        seed: The seed of the disturbance.
        schedule: Changes of the disturbance within each episode.
        accept: A further check of settings, which raises ValueError to refuse them; None for none.

    Raises:
        WiringError: The wiring does not fit its message types.
        ValueError: A setting cannot be used here.
    """

    def __init__(
        self,
        node: Node,
        wiring: Wiring,
        settings: DisturbanceSettings,
        seed: int,
        schedule: Sequence[ScheduledChange] = (),
        accept: Callable[[DisturbanceSettings], object] | None = None,
    ) -> None:
        self.table = ChannelTable(wiring)
        """The channel table that stores the robot's messages."""
        self._output = make_scrambled_message(wiring)
        self._accept = accept
        for stage in iterate_scheduled_settings(settings, schedule):
            self._check_settings(stage)
        self._settings, self._seed, self._schedule, self._episode = settings, seed, schedule, 0
        self._disturber = Disturber((), settings, seed, schedule)
        self._routing = SignalRouting((), seed)
        self._sources: dict[str, list[tuple[str, Any]]] = {}
        for source in wiring.sources:
            stamp_of = make_stamp_reader(self.table.message_classes[source.name])
            topic = node.resolve_topic_name(source.topic)
            self._sources.setdefault(topic, []).append((source.name, stamp_of))
        self._node = node
        self._ids: tuple[str, ...] = ()
        self._scalar = not wiring.images
        self._present: tuple[str, ...] = ()
        self._places = np.zeros(0, np.intp)
        self._idle = False
        self._publisher = node.create_publisher(type(self._output.message), TOPIC, RELIABLE)
        self.topic = self._publisher.topic_name
        if not node.has_parameter("shuffle"):
            declare_disturbance_parameters(node, settings)
        call_when_disturbance_changes(node, self.change_settings, self._check_settings)
        declare_signal_order_parameter(
            node,
            lambda: self._routing.ids,
            self._check_signals_can_be_moved,
            self.set_signals_of_channels,
        )
        self._order_publisher = node.create_publisher(DiagnosticStatus, f"~/{PARAMETER}", LATCHED)
        self._published_version: Hashable = None
        node.create_service(Trigger, "~/shuffle", self._on_shuffle)

    @property
    def shuffle_count(self) -> int:
        """The number of times that signals were permuted among the channels in this episode."""
        return self._disturber.shuffle_count

    @property
    def is_message_dropped(self) -> bool:
        """Whether the disturbance drops this step's message, so that it is not published."""
        return not self._disturber.has_message_arrived

    @property
    def settings(self) -> DisturbanceSettings:
        """The settings of the disturbance in the current tick."""
        return self._disturber.settings

    @property
    def is_message_new(self) -> bool:
        """Whether this tick's readings are new; False if the disturbance repeats old ones."""
        return self._disturber.is_message_new

    @property
    def signal_by_channel(self) -> dict[str, str]:
        """The signal that each channel carries now, by channel id.

        A signal is the id of the channel whose sensor it comes from, `noise`, or "" for none.
        """
        carried, disturber = self._routing.signal_by_channel, self._disturber
        return {
            id_: carried[by]
            for id_, by in zip(disturber.ids, disturber.signal_ids_by_slot, strict=True)
        }

    def set_signals_of_channels(self, changes: Mapping[str, str]) -> None:
        """Change the signals that channels carry, from the next tick on.

        Args:
            changes: The new signal of each channel: a channel id, `noise`, or "" for none.

        Raises:
            ValueError: A channel or signal is not known, or the settings forbid the change.
        """
        behind = dict(zip(self._disturber.ids, self._disturber.signal_ids_by_slot, strict=True))
        self._check_signals_can_be_moved(changes)
        self._routing.assign_signals_to_channels(
            {behind[id_]: signal for id_, signal in changes.items()}
        )
        self._publish_order_if_changed()

    def _publish_order_if_changed(self) -> None:
        """Publish which sensor signal each channel carries, if that has changed."""
        version = self._episode, self._disturber.shuffle_count, self._routing.version
        if version != self._published_version:
            self._published_version = version
            values = [KeyValue(key=id_, value=one) for id_, one in self.signal_by_channel.items()]
            self._order_publisher.publish(DiagnosticStatus(name=PARAMETER, values=values))

    def _check_signals_can_be_moved(self, changes: Mapping[str, str]) -> None:
        """Check that signals may be moved to other channels as a client asks.

        Each channel of `changes` gets another channel's signal, `noise`, or none ("").
        """
        self._routing.check_channels_and_signals_are_known(changes)
        if not self._output.accepts_noise and NOISE in changes.values():
            raise ValueError(f"{NOISE}: not for images (allowed: CHANNEL=SIGNAL or CHANNEL=)")
        if self._disturber.settings.announce and any(one != NOTHING for one in changes.values()):
            raise ValueError(
                "while announce is true, channels cannot exchange signals (allowed: CHANNEL=)"
            )

    def disturb(
        self, values: NDArray[np.float32], ids: Sequence[str]
    ) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        """Disturb the readings of a tick.

        Args:
            values: The readings (n,).
            ids: The ids (n,) of their channels.

        Returns:
            The disturbed readings (m,) and the ids (m,) of their channels. Channels may be removed
            or added.
        """
        return self._disturber.disturb(*self._routing.route_readings_to_channels(values, ids))

    def start_episode(self, episode: int) -> None:
        """Start an episode: choose new permutations and missing channels at random.

        Args:
            episode: The index of the episode, which determines the choice.
        """
        self._episode = episode
        self._disturber.start_episode(episode)
        self._output.start_episode()

    def change_settings(self, settings: DisturbanceSettings) -> None:
        """Replace the disturbance from the next tick (control step) on."""
        self._settings = settings
        self._disturber.change_settings(settings)

    def store_message(self, topic: str, message: Any) -> None:
        """Store the newest message of a topic; ignore a topic that the wiring does not read."""
        if topic not in self._sources:
            resolved = self._node.resolve_topic_name(topic)
            self._sources[topic] = self._sources.get(resolved, [])
        for source, stamp_of in self._sources[topic]:
            stamp_ns = stamp_of(message)
            self.table.store_message(source, message, stamp_ns, stamp_ns or 0)

    def disturb_messages_of_step(self, stamp_ns: int, now_ns: int | None = None) -> None:
        """Disturb the readings of one tick (control step), taken from the stored messages.

        Call `publish_disturbed_messages` to publish the result.

        Args:
            stamp_ns: The stamp of the tick.
            now_ns: In lockstep None, to use the messages with exactly this stamp. On a real robot
                the time in nanoseconds, to use the newest messages that are not too old. Then
                nothing is published if no message has arrived since the previous tick.
        """
        if now_ns is None:
            readings = self.table.read(stamp_ns, stamp_ns)
        else:
            readings = self.table.read(now_ns)
            self._idle = not readings.new and readings.ids == self._present
        if not self._idle:
            readings = self._insert_nan_for_missing_channels(readings)
            if readings.ids is not self._ids:
                self._add_new_channels(readings.ids)
            self._output.fill_message(readings, self, stamp_ns)
        self._publish_order_if_changed()

    def publish_disturbed_messages(self) -> None:
        """Publish the result of `disturb_messages_of_step`, unless the disturbance drops it.

        A second call publishes the same message again.
        """
        if not (self.is_message_dropped or self._idle):
            self._publisher.publish(self._output.message)

    def _insert_nan_for_missing_channels(self, readings: Readings) -> Readings:
        """Return the readings with NaN for every number channel that is missing from them.

        Without the NaN, the policy node would keep the previous reading of the channel until that
        is too old.
        """
        ids, present = self.table.ids, readings.ids
        changed, self._present = present is not self._present, present
        if len(present) == len(ids) or not self._scalar:
            return readings
        if changed:
            place = {name: number for number, name in enumerate(ids)}
            self._places = np.array([place[name] for name in present], np.intp)
        values = np.full(len(ids), np.nan, np.float32)
        values[self._places] = readings.values
        return readings._replace(values=values, ids=ids)

    def _check_settings(self, settings: DisturbanceSettings) -> None:
        """Check that a disturbance can be applied to the robot's readings."""
        self._output.check_settings(settings)
        if self._accept is not None:
            self._accept(settings)

    def _add_new_channels(self, present_ids: tuple[str, ...]) -> None:
        """Make the disturbance include channels that have appeared since the previous tick.

        If there are any, the permutations of the episode start again.
        """
        new = [id_ for id_ in present_ids if id_ not in self._disturber.ids]
        if new:
            known = (*self._disturber.ids, *new)
            self._routing.add_channels(new)
            self._disturber = Disturber(known, self._settings, self._seed, self._schedule)
            self._disturber.start_episode(self._episode)
        self._ids = present_ids

    def _on_shuffle(self, request: Any, response: Any) -> Any:
        """Permute the signals among the channels for a client, from the next tick on."""
        self._disturber.shuffle()
        response.success = True
        return response


def _check_settings_need_no_simulator(settings: DisturbanceSettings, *, lockstep: bool) -> None:
    """Check that the scrambler alone can apply all settings, without help of the simulator.

    In lockstep with a simulator it cannot drop messages either.
    """
    for one in settings.non_default_settings:
        if one.target != "readings" or (lockstep and one.name == "lose"):
            value = f"{one.name}: {getattr(settings, one.name)}"
            where = "in lockstep" if one.name == "lose" else "for the scrambler alone"
            raise ValueError(
                f"{value} (allowed {where}: {one.default_as_plain_value}; the simulator does it)"
            )


def declare_scrambler_parameters(
    node: Node,
) -> tuple[str, str, int, DisturbanceSettings, tuple[ScheduledChange, ...]]:
    """Declare the parameters of the executable `scrambler` and return their values.

    Returns:
        The path of the wiring, the mode ("rate" or "lockstep"), the seed, the disturbance, and the
        changes of the disturbance within each episode.

    Raises:
        ValueError: A value is not allowed.
    """
    return (
        declare_parameter(node, "wiring", "", "path of the robot's wiring YAML"),
        declare_parameter(node, "mode", "rate", "'rate' (a robot) or 'lockstep' (a simulator)"),
        declare_parameter(node, "seed", 0, "seed of everything random", (0, 2**31 - 1)),
        declare_disturbance_parameters(node),
        declare_schedule_parameter(node),
    )


class ScramblerNode(QuietNode):
    """The scrambler as a node of its own, between a robot and a policy that reads `scrambled`.

    In lockstep it publishes a message for each step: as soon as all sources have sent a message
    with the step's stamp, or after a short wait with the messages that have arrived. Otherwise it
    publishes at the wiring's control rate, unless no message of the robot has arrived since the
    previous time.

    Args:
        node_options: Options of `rclpy.node.Node`, such as `namespace`.

    Raises:
        WiringError: The wiring is not valid.
        ValueError: A parameter is not valid.
    """

    def __init__(self, **node_options: Any) -> None:
        super().__init__("scrambler", **node_options)
        path, mode, seed, settings, schedule = declare_scrambler_parameters(self)
        if not path:
            raise ValueError("parameter wiring: is not set (allowed: a wiring YAML)")
        wiring = load_wiring(path)
        if mode not in ("rate", "lockstep"):
            raise ValueError(f"parameter mode: {mode!r} (allowed: rate, lockstep)")
        lockstep = mode == "lockstep"
        accept = partial(_check_settings_need_no_simulator, lockstep=lockstep)
        self._scrambler = Scrambler(self, wiring, settings, seed, schedule, accept)
        names = (source.name for source in wiring.sources)
        self._lockstep = Lockstep(names, int(LOCKSTEP_WAIT_S * 1e9))
        self._episode = 0
        self._inputs = Inputs(
            self, self._scrambler.table, time.monotonic_ns,
            self._on_source_message if lockstep else lambda source, stamp_ns: None, RELIABLE.depth,
        )  # fmt: skip
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        if lockstep:
            self.create_timer(LOCKSTEP_WAIT_S / 2, self._send_step_if_overdue, clock=steady)
        else:
            self.create_timer(1.0 / wiring.rate_hz, self._send_newest_messages, clock=steady)
        self.create_service(Trigger, "~/reset", self._on_reset)

    def _on_source_message(self, source: str, stamp_ns: int | None) -> None:
        """Publish a step's disturbed readings once all sources have sent a message of the step.

        If a source repeats a message of a step that is already published, the result is published
        again.
        """
        ready_ns = self._lockstep.record_message_and_find_ready_stamp_ns(
            source, stamp_ns, time.monotonic_ns()
        )
        if ready_ns is not None:
            self._send_readings_of_step(ready_ns)
        elif self._lockstep.is_stamp_repeated(stamp_ns):
            self._scrambler.publish_disturbed_messages()

    def _send_step_if_overdue(self) -> None:
        """Publish a step's disturbed readings if some sources have not sent theirs in time."""
        overdue_ns = self._lockstep.find_overdue_stamp_ns(time.monotonic_ns())
        if overdue_ns is not None:
            self._send_readings_of_step(overdue_ns)

    def _send_readings_of_step(self, stamp_ns: int) -> None:
        """Disturb and publish the readings of a step in lockstep."""
        self._lockstep.mark_stamp_as_acted_on()
        self._scrambler.disturb_messages_of_step(stamp_ns)
        self._scrambler.publish_disturbed_messages()

    def _send_newest_messages(self) -> None:
        """Disturb and publish the newest readings of all sources, without lockstep."""
        stamp_ns = int(self.get_clock().now().nanoseconds)
        self._scrambler.disturb_messages_of_step(stamp_ns, now_ns=time.monotonic_ns())
        self._scrambler.publish_disturbed_messages()

    def _on_reset(self, request: Any, response: Any) -> Any:
        """Start the next episode for a client, with new permutations and missing channels."""
        self._episode += 1
        self._scrambler.start_episode(self._episode)
        self._lockstep.forget_stamps()
        response.success = True
        return response


def main(args: Sequence[str] | None = None) -> int:
    """Run the executable `scrambler` and return its exit status.

    Args:
        args: ROS arguments; None for the arguments of this process.

    Returns:
        0 if it was stopped, 2 for invalid input.
    """
    if print_help_if_asked("scrambler", ABOUT, declare_scrambler_parameters, args):
        return 0
    try:
        with catch_signals() as stopped, initialise_ros(args):
            node = create_node(ScramblerNode)
            executor = make_events_executor(node.context)
            executor.add_node(node)
            while not stopped():
                executor.spin_once(timeout_sec=SLICE_S)
            executor.remove_node(node)
            executor.shutdown()
            node.destroy_node()
    except (ValueError, NameValidationException) as error:
        print(f"scrambler: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
