"""The node's parameters: their descriptions and ranges in one place, read into one dataclass.

A parameter that shapes the node (which wiring, how it ticks) can be set until the node is
configured, `executor` only when it is started. At any time `model` swaps the policy, `shadow`
switches between proposing and commanding, and those of the wiring (`wiring_parameters`) rewire.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from reprlib import repr as short
from typing import Any, cast

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import ParameterException
from rclpy.node import Node
from rclpy.parameter import Parameter

from an_control.policy import EngineName, Monitor
from an_control.ros.loop import Trigger
from an_control.wiring.errors import without_middle

MODES = ("rate", "lockstep")
MONITORS = ("model", "off", "reset", "match")
ENGINES = ("auto", "numpy", "numba")
EXECUTORS = ("single_threaded", "events")
TRIGGERS = ("sources", "timer")
WHILE_CONFIGURED = ("model", "shadow")


@dataclass(frozen=True)
class Settings:
    """The values of the parameters that shape the node."""

    wiring: str = ""
    model: str = ""
    mode: str = "rate"
    trigger: str = "sources"
    shadow: bool = False
    autostart: bool = False
    check_rate: bool = True
    engine: str = "auto"
    monitor: str = "model"
    recovery: float = -1.0
    executor: str = "single_threaded"
    lockstep_wait_s: float = 0.5
    watchdog_s: float = -1.0
    ramp_s: float = -1.0
    thread_priority: int = 50

    @property
    def policy_engine(self) -> EngineName | None:
        """The engine for `load_policy`."""
        return None if self.engine == "auto" else cast(EngineName, self.engine)

    @property
    def policy_monitor(self) -> Monitor | None:
        """The monitor's setting for `load_policy`."""
        return None if self.monitor == "model" else cast(Monitor, self.monitor)

    @property
    def policy_recovery(self) -> float | None:
        """The recovery for `load_policy`."""
        return None if self.recovery < 0.0 else self.recovery

    @property
    def policy_ramp_s(self) -> float | None:
        """The ramp for `Controller`."""
        return None if self.ramp_s < 0.0 else self.ramp_s

    @property
    def policy_trigger(self) -> Trigger:
        """The trigger for `Loop`."""
        return cast(Trigger, self.trigger)


_DESCRIPTIONS = {
    "wiring": "path of the robot's wiring YAML",
    "model": "path of the policy's model file (.safetensors); set it to swap the policy: its header"
    " is checked at once, its arrays in the background (/diagnostics: new model)",
    "mode": "when to tick: 'rate' (real time, at the wiring's rate_hz) or 'lockstep' (once for each"
    " stamp of a simulator)",
    "trigger": "mode 'rate': tick when the sources' newest set of messages is complete, at about"
    " the wiring's rate_hz ('sources'), or by a timer at that rate ('timer')",
    "shadow": "publish on ~/proposed what the command would be, and command nothing; can be set at"
    " any time",
    "autostart": "configure and activate at once, without a lifecycle manager",
    "check_rate": "refuse to activate when the wiring's rate differs from the model's trained step"
    " by more than 10%",
    "engine": "what computes the policy: 'auto' (numba where installed), 'numpy' or 'numba'",
    "monitor": "what to do about unannounced rewiring: 'off' (nothing), 'reset' (clear the state of"
    " the neurons whose signal moved), 'match' (move that state along with the signal) or 'model'"
    " (what the model file says)",
    "recovery": "push a robot that stands still by random actions: where its readings change by"
    " less than this at a tick in the mean; 0 = never, -1 = what the model file says",
    "executor": "'single_threaded', or 'events' (quicker, experimental in rclpy)",
    "lockstep_wait_s": "lockstep: seconds to wait for the other sources of a stamp; what has not"
    " come by then is missing",
    "watchdog_s": "seconds without a command after which the node sends the safe one; 0 = off,"
    " -1 = 1.75 periods in mode 'rate', off in 'lockstep'",
    "ramp_s": "seconds in which the command changes smoothly from the safe one to the policy's,"
    " after activation and every safe command but the watchdog's; 0 = off, -1 = as the model was"
    " trained",
    "thread_priority": "real-time priority (SCHED_FIFO) of the thread that ticks, 1 to 98, while"
    " the node is active in real time and where the system allows it; the watchdog's is one higher;"
    " 0 = leave them as they are",
}
_CHOICES = {
    "mode": MODES,
    "trigger": TRIGGERS,
    "engine": ENGINES,
    "monitor": MONITORS,
    "executor": EXECUTORS,
}
_RANGES: dict[str, tuple[Any, Any]] = {
    "lockstep_wait_s": (0.001, 60.0),
    "watchdog_s": (-1.0, 3600.0),
    "ramp_s": (-1.0, 3600.0),
    "recovery": (-1.0, 1.0),
    "thread_priority": (0, 98),
}


def declare(node: Node) -> None:
    """Declare the parameters of `Settings` with their descriptions, choices and ranges.

    Raises ValueError naming one that was set to another type or out of its range.
    """
    for field in fields(Settings):
        descriptor = ParameterDescriptor(description=_DESCRIPTIONS[field.name])
        if field.name in _CHOICES:
            descriptor.additional_constraints = f"one of {', '.join(_CHOICES[field.name])}"
        if field.name in _RANGES:
            low, high = _RANGES[field.name]
            if isinstance(field.default, int):
                descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
            else:
                bounds = FloatingPointRange(from_value=low, to_value=high)
                descriptor.floating_point_range = [bounds]
        _declare(node, field.name, field.default, descriptor)


def settings(node: Node) -> Settings:
    """The parameters as they are now; ValueError names one that is not allowed."""
    values = {field.name: node.get_parameter(field.name).value for field in fields(Settings)}
    for name, value in values.items():
        if reason := _choice_refusal(name, value):
            raise ValueError(reason)
    for name in ("wiring", "model"):
        if "\0" in values[name]:
            raise ValueError(f"parameter {name}: {short(values[name])} is not a path")
    return Settings(**values)


def refusal(change: Parameter, *, configured: bool) -> str:
    """Why a parameter cannot be changed like this now, or an empty string."""
    if reason := _choice_refusal(change.name, change.value):
        return reason
    if change.name == "executor":
        return "parameter executor: can be set only when the node is started"
    shapes = change.name in (*_DESCRIPTIONS, "use_sim_time")
    if configured and shapes and change.name not in WHILE_CONFIGURED:
        return f"parameter {change.name}: can be set only while the node is unconfigured"
    return ""


def _declare(node: Node, name: str, default: Any, descriptor: ParameterDescriptor) -> Any:
    """Declare one parameter; its value, which a launch may have set."""
    try:
        return node.declare_parameter(name, default, descriptor).value
    except ParameterException as error:
        reason = without_middle(error).removesuffix(f": {name}")
        raise ValueError(f"parameter {name}: {reason}") from None


def _choice_refusal(name: str, value: Any) -> str:
    choices = _CHOICES.get(name)
    if choices is not None and value not in choices:
        return f"parameter {name}: {short(value)} is not one of {', '.join(choices)}"
    return ""
