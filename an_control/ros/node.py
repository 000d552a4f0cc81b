"""The policy node: lifecycle, parameters and services around the control loop (`Loop`).

After deactivation, an error, shutdown or Ctrl-C, the final command that the node sends is the safe
command, which does no harm. So the executable handles signals itself: rclpy's own handler would
close the context before the command is sent.

A new model can replace the policy while the controller runs (`ModelSwap`). The size and the header
of the model file are checked on the executor's thread, between two ticks (control steps). Reading
the rest of the file and building the policy can take seconds, and happens on a thread of its own.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import rclpy
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.exceptions import NameValidationException, ParameterException
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleState, TransitionCallbackReturn
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from rclpy.subscription import Subscription
from std_msgs.msg import Bool
from std_srvs.srv import Trigger

from an_control.control.command_safety import EStop
from an_control.control.controller import Controller
from an_control.control.model_wiring_check import explain_control_rate_mismatch
from an_control.load import (
    EngineName,
    find_model_path,
    make_policy,
    resolve_monitor_setting,
    warm_up_policy,
)
from an_control.monitor.recovery import resolve_stillness_threshold
from an_control.policy import Model, Monitor, Policy, read_header, read_model
from an_control.record.recorder import NodeRecorder
from an_control.ros import parameters
from an_control.ros.control_loop import Loop, log_configuration_and_warm_up
from an_control.ros.distributions import SteadyLifecycleNode, create_events_executor
from an_control.ros.doctor.running_doctor import RunningDoctor
from an_control.ros.graph import QuietNode, suggest_similar_topic
from an_control.ros.parameter_table import Settings
from an_control.ros.parameters import WiringParameters
from an_control.ros.recording import make_recorder
from an_control.ros.tickers import make_steady_clock
from an_control.system.compilation import report_compilations_in_block
from an_control.system.files import make_standard_streams_non_blocking, read_regular_file
from an_control.system.priority import (
    collect_new_garbage,
    exclude_existing_objects_from_gc,
    raise_process_priority,
)
from an_control.wiring import ChannelTable, load_wiring

QUICK_HEADER = 2**16
"""Largest size in bytes of a model file's header that is checked between two ticks, because it
takes less than 2 ms to parse."""


class ModelSwap:
    """A background thread that loads new models and replaces a controller's policy with them.

    Args:
        controller: The controller whose policy is replaced.
        engine: The implementation that computes the policy (see `load_policy`).
        monitor: What to do if sensor signals move to other input slots without announcement: "off",
            "reset" or "match" (see `load_policy`); None: as the model file says.
        on_failure: Called on the background thread, with the reason, if a requested model cannot be
            loaded or does not fit the wiring.
        check_rate: Whether to refuse a model that was trained at another control rate.
        recovery: Random actions start if the readings change by less than this per tick on average
            (see `load_policy`).
        recorder: Records the model files that replace the policy; None: nothing is recorded.
    """

    def __init__(
        self,
        controller: Controller,
        engine: EngineName | None,
        monitor: Monitor | None,
        on_failure: Callable[[str], object],
        *,
        check_rate: bool = True,
        recovery: float | None = None,
        recorder: NodeRecorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._controller, self._engine, self._monitor = controller, engine, monitor
        self._on_failure, self._check_rate = on_failure, check_rate
        self._recovery = recovery
        self._changed = threading.Condition()
        self._newest: str | None = None
        self._closed = False
        self._thread: threading.Thread | None = None

    def explain_model_refusal(self, path: str) -> str:
        """Return why a model cannot replace the policy, or "" if its file's header shows no reason.

        The model is given by its file's path, or by its name if it is shipped.
        A file without a header (ONNX), or with one of more than 64 KiB (`QUICK_HEADER`), is only
        checked later, by the background thread.
        """
        try:
            path = os.fspath(find_model_path(path))
            model = read_header(path, QUICK_HEADER)
            if model is not None:
                self._check_model(path, model)
        except ValueError as error:
            return str(error)
        return ""

    def request_model(self, path: str) -> None:
        """Load a model in the background, and let it replace the policy when it is ready.

        Args:
            path: The model file, or the name of a shipped model.
        """
        path = os.fspath(find_model_path(path))
        with self._changed:
            self._newest = path
            self._controller.acting.new_model = f"checking {path}"
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._load_requested_models, name="swap", daemon=True
                )
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Stop the background thread, and drop a model that is being loaded."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _check_model(self, path: str, model: Model) -> None:
        """Check that a model can replace the policy.

        Args:
            path: The model file, for error texts.
            model: The model, or only its header.

        Raises:
            ValueError: The model cannot replace the policy; the text says why.
        """
        self._controller.check_model_fits_wiring(path, model)
        resolve_monitor_setting(model, self._monitor)
        resolve_stillness_threshold(model, self._recovery)
        if self._check_rate and (
            reason := explain_control_rate_mismatch(self._controller.wiring, model)
        ):
            raise ValueError(reason)

    def _load_requested_models(self) -> None:
        """Load the models that are requested, one after the other, until `close` is called.

        The background thread runs this method. A single thread loads all models, because each new
        thread would occupy RAM of its own.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None or self._closed)
                if self._closed:
                    return
                path, self._newest = self._newest, None
            assert path is not None
            self._replace_policy(path)

    def _replace_policy(self, path: str) -> None:
        """Load a model and replace the policy, unless another model was requested meanwhile.

        Args:
            path: The model file.
        """
        built = self._load_policy_or_explain(path)
        with self._changed:
            if self._newest is not None or self._closed:
                return
            if not isinstance(built, str):
                try:  # the wiring may have changed since the file was read
                    self._check_model(path, built.model)
                except ValueError as error:
                    built = str(error)
            if isinstance(built, str):
                self._controller.acting.new_model = f"refused: {built}"
            else:
                self._controller.acting.start_policy_swap(path, built)
        if isinstance(built, str):
            self._on_failure(built)

    def _load_policy_or_explain(self, path: str) -> Policy | str:
        """Return the policy of a model file, or a text that says why the file cannot be used."""
        try:
            model = read_model(path)
            self._check_model(path, model)
            policy = make_policy(model, self._monitor, engine=self._engine, recovery=self._recovery)
            warm_up_policy(policy)
            if self._recorder is not None:
                self._recorder.read_model_file(path)
        except Exception as error:
            reason = str(error) or repr(error)
            return reason if path in reason else f"{path}: {reason}"
        return policy


WIDTH = 100
ROS_ARGUMENTS = """\
ROS arguments, after --ros-args:
  -p NAME:=VALUE      set a parameter
  --params-file FILE  set parameters from a YAML file
  -r FROM:=TO         rename a topic or service; also __ns:=/ROBOT, __node:=NAME
  --log-level LEVEL   debug, info, warn, error or fatal
  --enclave NAME      the node's SROS2 enclave"""


class RecordedDeclarations:
    """A stand-in for a node that records which parameters are declared, for the help text."""

    def __init__(self) -> None:
        self.declared: dict[str, tuple[Any, ParameterDescriptor]] = {}
        self._parameter_overrides: dict[str, Any] = {}  # what rclpy's nodes keep under this name

    def declare_parameter(self, name: str, value: Any, descriptor: ParameterDescriptor) -> Any:
        """Record a parameter, and return what `get_parameter` returns for it."""
        self.declared[name] = value, descriptor
        return self.get_parameter(name)

    def get_parameter(self, name: str) -> Any:
        """Return a stand-in for a recorded parameter: its `name`, and its default as `value`."""
        return SimpleNamespace(name=name, value=self.declared[name][0])

    def format_help_lines(self) -> list[str]:
        """Return the help text of all parameters as lines: default, allowed values, and meaning."""
        lines = []
        for name, (value, descriptor) in self.declared.items():
            ranges = [*descriptor.floating_point_range, *descriptor.integer_range]
            allowed = [f"from {one.from_value:.12g} to {one.to_value:.12g}" for one in ranges]
            shown = repr(value) if isinstance(value, str) else str(value).lower()
            parts = [f"{name}:={shown}", descriptor.additional_constraints, *allowed]
            lines.append(f"  {', '.join(filter(None, parts))}")
            lines += textwrap.wrap(
                descriptor.description, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
            )
        return lines


def print_help_if_asked(
    program: str,
    about: str,
    declare: Callable[[Any], object],
    arguments: Sequence[str] | None = None,
) -> bool:
    """Print the usage of an executable if its arguments ask for help. Return whether they do.

    Args:
        program: The name of the executable.
        about: A description of the executable.
        declare: A function that declares the parameters of the executable's node. It is called with
            a stand-in for the node.
        arguments: The arguments of the executable; None: those of this process.
    """
    if not {"-h", "--help"} & set(sys.argv[1:] if arguments is None else arguments):
        return False
    node = RecordedDeclarations()
    declare(node)
    parts = [
        f"usage: {program} [--ros-args -p NAME:=VALUE ... -r __ns:=/ROBOT ...]",
        textwrap.fill(about, WIDTH),
        "\n".join(["parameters, with their defaults:", *node.format_help_lines()]),
        ROS_ARGUMENTS,
    ]
    try:
        print("\n\n".join(parts), flush=True)
    except BrokenPipeError:  # the reader closed the pipe, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


ABOUT = (
    "The policy node: reads a robot's sensors by its wiring YAML, steps the policy of a model file"
    " and publishes commands. Once it is configured it also has the parameters sources.NAME.topic,"
    " channels.ID.source and channels.ID.field, which rewire it while it runs."
)
POLL_S = 0.1
END_S = 5.0
"""Maximum seconds from a signal that ends the process to its end."""
SWITCH_S = 0.0005
"""Maximum seconds for which the thread that loads a model may keep Python's interpreter lock."""
SHOWN = 8
"""Maximum number of changes of the wiring that one log line lists."""
ESTOP_WATCH_S = 0.5
"""Seconds between two looks for publishers that keep an e-stop for nodes that start later."""
KEPT_ESTOP_S = 0.5
"""Maximum seconds for which the activation waits for an e-stop that a publisher keeps."""
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end the process, after the safe command. SIGHUP comes when a terminal is closed."""


class PolicyNode(QuietNode, SteadyLifecycleNode):
    """The lifecycle node that controls a robot with a policy.

    Its parameters are described in `an_control.ros.parameters` and
    `an_control.ros.parameter_table`.

    Args:
        options: Options of `rclpy.lifecycle.LifecycleNode`, such as `namespace`.
    """

    _loop: Loop | None = None  # of the class: rclpy destroys a node that could not be made
    _swap: ModelSwap | None = None
    _recorder: NodeRecorder | None = None
    _kept_estop: Subscription[Bool] | None = None
    """The subscription to e-stops that a publisher keeps; None until there is such a publisher."""
    _checked: ChannelTable | None = None
    """The channel table with the parameters that are being set, between their check and their
    use."""

    def __init__(self, **options: Any) -> None:
        super().__init__("policy", **options)
        self._wiring_parameters = WiringParameters(self)
        parameters.declare_parameters(self)
        self._estop = EStop()
        self._settings = Settings()
        self.add_pre_set_parameters_callback(parameters.correct_types_of_yaml_values)
        self.add_on_set_parameters_callback(self._check_parameters)
        self.add_post_set_parameters_callback(self._apply_parameters)
        self.create_service(Trigger, "~/reset_state", self._on_reset_state)
        self.create_service(Trigger, "~/reload_wiring", self._on_reload_wiring)
        self.create_service(Trigger, "~/apply_corrections", self._on_apply_corrections)
        self.create_service(Trigger, "~/undo_corrections", self._on_undo_corrections)
        self.create_service(Trigger, "~/estop", self._on_estop)
        self.create_service(Trigger, "~/reset_estop", self._on_reset_estop)
        for reliability in ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT:
            qos = QoSProfile(depth=10, reliability=reliability)  # a publisher matches one of them
            self.create_subscription(Bool, "~/estop", self._set_estop_by_topic, qos)
        self._estop_watch = self.create_timer(
            ESTOP_WATCH_S, self._subscribe_to_kept_estops, clock=make_steady_clock()
        )

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the wiring and the model, and connect to the robot's topics.

        On invalid input log the reason and stay unconfigured.
        """
        try:
            self._settings = parameters.read_settings(self)
            with report_compilations_in_block(self.get_logger().warning):
                self._loop = self._make_loop(self._settings)
        except Exception as error:
            self._disconnect()
            known = isinstance(error, ValueError)
            self.get_logger().error(str(error) if known else f"configure failed: {error!r}")
            return TransitionCallbackReturn.FAILURE
        if unknown := parameters.list_unknown_parameters(self):
            self.get_logger().warning(
                f"this node has no parameter {', '.join(unknown)}: what was set for it is not used"
            )
        log_configuration_and_warm_up(self.get_logger(), self._loop.controller)
        return super().on_configure(state)

    def _make_loop(self, settings: Settings) -> Loop:
        """Load wiring and model as the settings say; return the control loop that uses them.

        Raises:
            ValueError: A setting or a file is invalid; the text says which and why.
        """
        for name in ("wiring", "model"):
            if not getattr(settings, name):
                raise ValueError(f"parameter {name}: is not set; set it to the path of a file")
        # The recorder reads the file too, so a shipped model's name becomes a path here.
        settings = replace(settings, model=os.fspath(find_model_path(settings.model)))
        controller = Controller(
            settings.wiring,
            settings.model,
            settings.policy_engine,
            monitor=settings.policy_monitor,
            recovery=settings.policy_recovery,
            ramp_s=settings.policy_ramp_s,
            estop=self._estop,
        )
        wait_s = settings.lockstep_wait_s if settings.mode == "lockstep" else None
        watchdog_s = None if settings.watchdog_s < 0.0 else settings.watchdog_s
        declared = self._wiring_parameters.declare_and_get_wiring(controller.wiring)
        self._recorder = make_recorder(self, settings, controller)
        if self._recorder is not None:
            self._recorder.record_event(
                "rewire", values=declared.list_changed_settings(controller.wiring)
            )
        controller.switch_wiring(controller.make_rewired_table(declared))
        self._swap = ModelSwap(
            controller,
            settings.policy_engine,
            settings.policy_monitor,
            self._log_refused_model,
            check_rate=settings.check_rate,
            recovery=settings.policy_recovery,
            recorder=self._recorder,
        )
        return Loop(
            self,
            controller,
            wait_s,
            self.trigger_deactivate,
            watchdog_s,
            trigger=settings.policy_trigger,
            shadow=settings.shadow,
            with_message_info=self._callbacks_get_message_info(settings),
            thread_priority=settings.thread_priority,
            recorder=self._recorder,
            corrects=settings.monitor_corrects if settings.doctor else None,
        )

    def _callbacks_get_message_info(self, settings: Settings) -> bool:
        """Return whether subscription callbacks get a MessageInfo (who sent a message, and when).

        rclpy's events executor gives none.
        """
        return settings.executor != "events" and (
            self.executor is None or isinstance(self.executor, Executor)
        )

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start to act; fail if `check_rate` is true and the control rate is wrong.

        It is wrong if it differs by more than 10 % from the rate at which the policy was trained.
        """
        loop = self._get_configured_loop()
        if self._settings.check_rate and (
            refusal := loop.controller.explain_control_rate_mismatch()
        ):
            self.get_logger().error(refusal)
            return TransitionCallbackReturn.FAILURE
        self._receive_kept_estop()
        loop.activate()
        return super().on_activate(state)

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop acting. The safe command is sent as the final command."""
        self._get_configured_loop().deactivate()
        collect_new_garbage()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Disconnect from all topics, and drop wiring and model."""
        self._disconnect()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Send the safe command if the node acts, and disconnect."""
        self._disconnect()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Send the safe command if the node acts, and return to the unconfigured state."""
        self._disconnect()
        return TransitionCallbackReturn.SUCCESS

    @property
    def last_command(self) -> Any:
        """The newest command (A,) on the robot's topics in physical units; None if unknown."""
        return None if self._loop is None else self._loop.last_command

    def _get_configured_loop(self) -> Loop:
        """Return the control loop. Call this only while the node is configured."""
        assert self._loop is not None, "the lifecycle configures before anything else"
        return self._loop

    def destroy_node(self) -> None:
        """Send the safe command if the node still acts, then destroy the node and all its parts."""
        self._disconnect()
        super().destroy_node()

    def _disconnect(self) -> None:
        """Close the loop, which sends the safe command if it acts, and drop wiring and model."""
        if self._swap is not None:
            self._swap.close()
        if self._loop is not None:
            self._loop.close()
        if self._recorder is not None:
            self._recorder.close()
        self._loop = self._swap = self._recorder = None
        self._wiring_parameters.undeclare()

    def _on_reset_state(self, _: Any, response: Any) -> Any:
        """Start a new episode on request of a client.

        The request succeeds only while the node is active.
        """
        if self._loop is not None and self._loop.active:
            self._loop.reset()
            response.success = True
        else:
            response.success, response.message = False, "not active"
        return response

    def _on_apply_corrections(self, _: Any, response: Any) -> Any:
        """Correct the mistakes in the wiring that the doctor has announced, until that is undone.

        Only scales, signs and offsets of sensors can be corrected.
        """
        return self._answer_about_doctor(RunningDoctor.apply_corrections_or_explain, response)

    def _on_undo_corrections(self, _: Any, response: Any) -> Any:
        """Read the corrected channels by the wiring file again."""
        return self._answer_about_doctor(RunningDoctor.undo_corrections_or_explain, response)

    def _answer_about_doctor(self, act: Callable[[RunningDoctor], str], response: Any) -> Any:
        """Let the doctor act on request of a client.

        Args:
            act: Does it, and returns why it could not be done, or "".
            response: The answer to the client, which is returned.
        """
        doctor = None if self._loop is None else self._loop.doctor
        if doctor is None:
            reason = "not configured" if self._loop is None else "parameter doctor is false"
        else:
            reason = act(doctor)
        response.success, response.message = not reason, reason
        return response

    def _receive_kept_estop(self) -> None:
        """Set the e-stop if it was published before this node started and a publisher keeps it.

        The activation calls this before the first tick: the first message of a new subscription
        could come later than that.
        """
        if self._kept_estop is not None:  # its messages come by the executor
            return
        self._subscribe_to_kept_estops()
        if (kept := self._kept_estop) is None:
            return
        until_s, taken = time.monotonic() + KEPT_ESTOP_S, None
        while taken is None and time.monotonic() < until_s:
            with kept.handle:
                taken = kept.handle.take_message(Bool, False)
            if taken is None:
                time.sleep(KEPT_ESTOP_S / 100)
        if taken is not None:
            self._set_estop_by_topic(taken[0])

    def _subscribe_to_kept_estops(self) -> None:
        """Subscribe to e-stops that were published before, once a publisher keeps them.

        Before that, such a subscription would make other publishers log that they do not match it.
        """
        publishers = self.get_publishers_info_by_topic("~/estop")
        kept = DurabilityPolicy.TRANSIENT_LOCAL
        if any(one.qos_profile.durability == kept for one in publishers):
            self._estop_watch.cancel()
            qos = QoSProfile(depth=1, durability=kept)
            self._kept_estop = self.create_subscription(
                Bool, "~/estop", self._set_estop_by_topic, qos
            )

    def _set_estop_by_topic(self, message: Bool) -> None:
        """Set the e-stop if the message holds true; a message with false changes nothing."""
        if message.data:
            self._set_estop("by topic")

    def _on_estop(self, _: Any, response: Any) -> Any:
        """Set the e-stop on request of a client."""
        self._set_estop("by service")
        response.success = True
        return response

    def _set_estop(self, reason: str) -> None:
        """Set the e-stop, send the safe command at once, and log it.

        Args:
            reason: How the e-stop was requested, for the log: "by topic" or "by service".
        """
        if self._estop.latch(f"e-stop {reason}"):
            where = ""
            if self._recorder is not None:
                self._recorder.record_event("estop", reason=self._estop.reason)
            if self._loop is not None:
                self._loop.send_safe_command_now()
                where = (
                    self._loop.record.save_black_box_and_describe_file(self._estop.reason)
                    if self._loop.active
                    else ""
                )
            self.get_logger().error(f"{self._estop.reason}{where}")

    def _on_reset_estop(self, _: Any, response: Any) -> Any:
        """Clear the e-stop on request of a client. It cannot be cleared in any other way.

        The policy keeps its state.
        """
        response.success = True
        if not self._estop.reset():
            response.message = "was not latched"
            return response
        if self._recorder is not None:
            self._recorder.record_event("estop", reason="")
        self.get_logger().warning("e-stop cleared")
        return response

    def _log_refused_model(self, reason: str) -> None:
        """Log the reason why a new model did not replace the policy."""
        self.get_logger().error(f"model not swapped: {reason}")

    def _check_parameters(self, changes: Sequence[Parameter]) -> SetParametersResult:
        """Accept all of these parameter changes, or refuse all of them.

        Accepted changes take effect later, in `_apply_parameters`.
        """
        for change in changes:
            if change.name != "model" and self._changes_nothing(change):
                continue  # the file of an unchanged model parameter may have changed
            reason = parameters.explain_parameter_refusal(change, configured=self._loop is not None)
            if not reason and change.name == "model" and self._swap is not None:
                reason = self._swap.explain_model_refusal(change.value)
            if reason:
                return SetParametersResult(successful=False, reason=reason)
        try:
            self._checked = self._make_rewired_table(changes)
        except ValueError as error:
            return SetParametersResult(successful=False, reason=str(error))
        return SetParametersResult(successful=True)

    def _changes_nothing(self, change: Parameter) -> bool:
        """Return whether the node's parameter already has the value of a requested change."""
        there = self.get_parameter_or(change.name)
        return there.type_ == change.type_ and there.value == change.value

    def _apply_parameters(self, changes: Sequence[Parameter]) -> None:
        """Replace the policy, switch shadow mode or rewire, as the accepted parameter changes say.

        In shadow mode the node computes commands but does not send them to the robot.
        """
        for change in changes:
            if self._recorder is not None:
                self._recorder.record_event("parameter", name=change.name, value=change.value)
            if change.name == "model" and self._swap is not None:
                self._swap.request_model(change.value)
            elif change.name == "shadow" and self._loop is not None:
                self._loop.set_shadow(bool(change.value))
            elif change.name == "monitor_corrects" and self._loop is not None:
                kinds = parameters.read_list_parameter(change.value)
                if self._loop.doctor is not None:
                    self._loop.doctor.set_mistake_kinds_to_correct(kinds)
        table, self._checked = self._checked, None
        if table is not None:
            try:
                self._rewire(table)
            except ValueError as error:
                self.get_logger().error(f"not rewired: {error}")

    def _make_rewired_table(self, changes: Sequence[Parameter]) -> ChannelTable | None:
        """Return the channel table for the present wiring with these parameter changes.

        Returns:
            The table, or None if no change concerns the wiring or the node is not configured.

        Raises:
            ValueError: A new value is not allowed. The text names the parameter.
        """
        if self._loop is None:
            return None
        before = self._loop.controller.wiring
        wiring = self._wiring_parameters.make_changed_wiring(before, changes)
        if wiring is None:
            return None
        if self._loop.doctor is not None:
            wiring = self._loop.doctor.drop_corrections_of_rewired_channels(wiring, before)
        return self._loop.make_rewired_table(wiring)

    def _rewire(self, table: ChannelTable, file_text: str | None = None) -> None:
        """Read sensors by this channel table from now on, and log what has changed.

        Args:
            table: The channel table of the changed wiring, which connects topics to the policy.
            file_text: The text of the wiring file if it was read again, else None.
        """
        loop = self._get_configured_loop()
        before = loop.controller.wiring
        loop.rewire(table, file_text)
        if conversions := table.wiring.list_changed_conversions(before):
            loop.restart_monitor(conversions)
        if loop.doctor is not None:
            loop.doctor.drop_findings_of_rewired_channels(table.wiring, before)
        changes = table.wiring.describe_changes(before)
        more = f" and {len(changes) - SHOWN} more" if len(changes) > SHOWN else ""
        self.get_logger().info(f"rewired: {', '.join(changes[:SHOWN]) or 'nothing new'}{more}")
        read = {one.topic for one in before.sources}
        for topic, type_ in sorted({(one.topic, one.type) for one in table.wiring.sources}):
            if topic not in read and not self.count_publishers(topic):
                near = suggest_similar_topic(self, topic, type_)
                self.get_logger().warning(f"nobody publishes on {topic} yet{near}")

    def _on_reload_wiring(self, _: Any, response: Any) -> Any:
        """Read the wiring file again on request of a client, and use what it says from now on."""
        if self._loop is None:
            response.success, response.message = False, "not configured"
            return response
        before = self._loop.controller.wiring
        try:
            wiring = load_wiring(self._settings.wiring)
        except ValueError as error:
            return self._refuse_rewiring(error, response)
        try:
            table = self._loop.make_rewired_table(
                self._wiring_parameters.declare_and_get_wiring(wiring)
            )
            recorded = self._recorder is not None
            self._rewire(table, read_regular_file(wiring.file).decode() if recorded else None)
            if self._loop.doctor is not None:
                self._loop.doctor.drop_all_findings()
            response.success = True
        except (OSError, ValueError) as error:  # the file may have vanished meanwhile
            self._wiring_parameters.declare_and_get_wiring(before, with_launch_overrides=False)
            return self._refuse_rewiring(error, response)
        return response

    def _refuse_rewiring(self, error: Exception, response: Any) -> Any:
        """Write into the log and the response why the wiring was refused. Return the response."""
        response.success, response.message = False, str(error)
        self.get_logger().error(f"not rewired: {error}")
        return response


def make_executor(name: str, context: Any) -> Executor:
    """Create the rclpy executor of this name, to be driven by `spin_once`.

    Args:
        name: "single_threaded" or "events".
        context: The rclpy context.

    Raises:
        ValueError: This version of rclpy has no such executor.
    """
    if name == "single_threaded":
        return SingleThreadedExecutor(context=context)
    if (executor := create_events_executor(context)) is None:
        raise ValueError("parameter executor: this rclpy has no events executor")
    return executor


def spin(node: PolicyNode, stopped: Callable[[], bool]) -> None:
    """Run the node until a stop is requested or rclpy is shut down; then send the safe command.

    Args:
        node: The node.
        stopped: Returns whether a stop is requested.
    """
    executor = make_executor(parameters.read_settings(node).executor, node.context)
    executor.add_node(node)
    try:
        while node.context.ok() and not stopped():
            executor.spin_once(timeout_sec=POLL_S)
    except (ExternalShutdownException, KeyboardInterrupt):
        pass
    finally:
        with suppress(RuntimeError):  # it has been shut down already, by a lifecycle manager
            node.trigger_shutdown()
        executor.remove_node(node)
        executor.shutdown()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the executable and return its exit status.

    Args:
        arguments: ROS arguments; None: those of this process.

    Returns:
        0 after a stop or --help, 2 after invalid input or if the node could not activate itself at
        the start (`autostart`).
    """
    if print_help_if_asked("policy_node", ABOUT, parameters.declare_parameters, arguments):
        return 0
    came: list[int] = []

    def stopped() -> bool:
        """Return whether the process has got a signal to end."""
        return bool(came)

    make_standard_streams_non_blocking()
    _limit_shutdown_time()
    for number in ENDING_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # which nohup does with SIGHUP
            signal.signal(number, lambda signum, frame: came.append(signum))
    sys.setswitchinterval(SWITCH_S)
    raise_process_priority()
    try:
        rclpy.init(
            args=None if arguments is None else list(arguments),
            signal_handler_options=SignalHandlerOptions.NO,
        )
        node = PolicyNode()
    except (ValueError, RuntimeError, NameValidationException, ParameterException) as error:
        print(f"policy_node: cannot start: {error}", file=sys.stderr)
        rclpy.try_shutdown()
        return 2
    try:
        exclude_existing_objects_from_gc()
        if parameters.read_settings(node).autostart and not _configure_and_activate(node, stopped):
            return 2
        spin(node, stopped)
    except ValueError as error:
        node.get_logger().error(str(error))
        return 2
    finally:
        node.destroy_node()
        rclpy.try_shutdown()
        gc.unfreeze()  # uncollected objects keep their shared memory: /dev/shm/fastdds_*
    return 0


def _limit_shutdown_time() -> None:
    """Ensure that the process ends within 5 s (`END_S`) after the first signal, even if it hangs.

    Python runs signal handlers on the main thread, which may hang. So another thread waits for the
    byte that Python writes to a pipe at each signal (`signal.set_wakeup_fd`), and ends the process.
    Until then the watchdog continues to send the safe command.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)

    def end_process_after_signal() -> None:
        """Wait for a signal that should end the process; end the process 5 s (`END_S`) later."""
        while os.read(read, 1)[0] not in ENDING_SIGNALS:
            pass
        time.sleep(END_S)
        os._exit(1)

    threading.Thread(target=end_process_after_signal, name="end", daemon=True).start()


def _configure_and_activate(node: PolicyNode, stopped: Callable[[], bool]) -> bool:
    """Configure and activate the node. Return whether that succeeded.

    Args:
        node: The node.
        stopped: Returns whether a stop is requested; the node is then not activated.
    """
    success = TransitionCallbackReturn.SUCCESS
    steps = (node.trigger_configure, node.trigger_activate)
    return all(stopped() or step() == success for step in steps)


if __name__ == "__main__":
    sys.exit(main())
