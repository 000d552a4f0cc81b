"""The one table of the parameters that shape the policy node.

The node, the launch files, `an-control run` and `sim`, and the reference page of the parameters are
made from it. It needs no rclpy, so that the command line can use it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast

from an_control.load import EngineName
from an_control.policy import Monitor

Trigger = Literal["sources", "timer"]
SettableWhen = Literal["start", "unconfigured", "always"]
UNSET = -1.0
"""The value of a numeric parameter that means its default."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the node.

    Attributes:
        name: Name in ROS.
        default: Default value, which also fixes the type.
        text: What the parameter does.
        choices: Allowed values, each with its meaning; empty if any value is allowed.
        bounds: Lowest and highest number.
        unset: What applies by default if the default value is a placeholder (`UNSET`, "model").
        when: When it can be set: only at the node's start, until configured, or always.
    """

    name: str
    default: Any
    text: str
    choices: Mapping[str, str]
    bounds: tuple[Any, Any] | None
    unset: str
    when: SettableWhen

    @property
    def description(self) -> str:
        """Description with the meaning of the values, for ROS and the launch files."""
        if self.choices or not self.unset:
            return self.text + _format_choices(self.choices)
        return f"{self.text}; {self.default:g} = {self.unset}"

    @property
    def option(self) -> str:
        """Description for a command-line option that may be left out."""
        if not self.unset:
            return self.text + _format_choices(self.choices)
        plain = {value: one for value, one in self.choices.items() if value != self.default}
        return f"{self.text}{_format_choices(plain)}; by default {self.unset}"


def _format_choices(choices: Mapping[str, str]) -> str:
    """Return choices and their meanings as text."""
    listed = [f"{value} ({meaning})" for value, meaning in choices.items()]
    return f": {', '.join(listed[:-1])} or {listed[-1]}" if listed else ""


def _parameter(
    default: Any,
    text: str,
    *,
    choices: Mapping[str, str] | None = None,
    bounds: tuple[Any, Any] | None = None,
    unset: str = "",
    when: SettableWhen = "unconfigured",
) -> Any:
    """Return the dataclass field of a parameter."""
    about = {"text": text, "choices": choices or {}, "bounds": bounds, "unset": unset, "when": when}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Settings:
    """The values of the parameters that shape the node."""

    wiring: str = _parameter("", "path of the robot's wiring YAML")
    model: str = _parameter(
        "",
        "path of the policy's model file (.safetensors); setting it later swaps the policy: its"
        " header is checked at once, its arrays in the background (/diagnostics: new model)",
        when="always",
    )
    mode: str = _parameter(
        "rate",
        "when to tick",
        choices={
            "rate": "in real time, at the wiring's rate_hz",
            "lockstep": "once for each stamp of a simulator",
        },
    )
    trigger: str = _parameter(
        "sources",
        "when to tick in real time",
        choices={
            "sources": "when new messages of the sources have arrived, at about rate_hz",
            "timer": "at rate_hz by the clock",
        },
    )
    shadow: bool = _parameter(
        False,
        "publish on ~/proposed what the command would be, and command nothing",
        when="always",
    )
    autostart: bool = _parameter(
        False, "configure and activate at once, without a lifecycle manager"
    )
    check_rate: bool = _parameter(
        True, "refuse to act if the rate differs by more than 10% from the model's training"
    )
    engine: str = _parameter(
        "auto",
        "what computes the policy",
        choices={
            "auto": "numba where it is installed",
            "numpy": "slower",
            "numba": "compiled",
        },
    )
    monitor: str = _parameter(
        "model",
        "what to do about unannounced rewiring",
        choices={
            "off": "nothing",
            "reset": "clear the state of the neurons whose signal moved",
            "match": "move that state along with the signal",
            "model": "what the model file says",
        },
        unset="what the model file says",
    )
    recovery: float = _parameter(
        UNSET,
        "make a robot that stands still move by random actions; it stands still if its readings"
        " change by less than this per tick on average; 0 = never",
        bounds=(UNSET, 1.0),
        unset="what the model file says",
    )
    executor: str = _parameter(
        "single_threaded",
        "what runs the callbacks",
        choices={
            "single_threaded": "rclpy's ordinary executor",
            "events": "faster, experimental in rclpy",
        },
        when="start",
    )
    lockstep_wait_s: float = _parameter(
        0.5,
        "in lockstep: seconds to wait for the other sources of a stamp; sources that have not come"
        " by then are missing",
        bounds=(0.001, 60.0),
    )
    watchdog_s: float = _parameter(
        UNSET,
        "seconds without a command after which the safe command is sent; 0 = off",
        bounds=(UNSET, 3600.0),
        unset="1.75 periods in real time, off in lockstep",
    )
    ramp_s: float = _parameter(
        UNSET,
        "seconds in which commands change smoothly from the safe command to the policy's, after"
        " activation, after shadow and after every safe command but the watchdog's; 0 = off",
        bounds=(UNSET, 3600.0),
        unset="as the model was trained",
    )
    thread_priority: int = _parameter(
        50,
        "real-time priority (SCHED_FIFO) of the thread that ticks, 1 to 98, while the node is"
        " active in real time and where the system allows it; the watchdog's is one higher; 0 ="
        " ordinary priority",
        bounds=(0, 98),
    )

    @property
    def policy_engine(self) -> EngineName | None:
        """Argument `engine` of `load_policy`."""
        return None if self.engine == "auto" else cast(EngineName, self.engine)

    @property
    def policy_monitor(self) -> Monitor | None:
        """Argument `monitor` of `load_policy`."""
        return None if self.monitor == "model" else cast(Monitor, self.monitor)

    @property
    def policy_recovery(self) -> float | None:
        """Argument `recovery` of `load_policy`."""
        return None if self.recovery < 0.0 else self.recovery

    @property
    def policy_ramp_s(self) -> float | None:
        """Argument `ramp_s` of `Controller`."""
        return None if self.ramp_s < 0.0 else self.ramp_s

    @property
    def policy_trigger(self) -> Trigger:
        """Argument `trigger` of `Loop`."""
        return cast(Trigger, self.trigger)


PARAMETERS: dict[str, Parameter] = {
    one.name: Parameter(one.name, one.default, **one.metadata) for one in fields(Settings)
}
"""The parameters of `Settings` by name."""
USE_SIM_TIME = Parameter(
    "use_sim_time",
    False,
    "take the time from /clock: ticks, ages and stamps. The watchdog counts real time: where the"
    " simulation runs at less than half the speed of real time set watchdog_s to 0, or longer",
    {},
    None,
    "",
    "unconfigured",
)
"""The parameter that rclpy declares on every node."""


def parameter_values(**options: Any) -> dict[str, Any]:
    """Return the parameters' values for these options; None stands for the default.

    Raises:
        KeyError: If an option is no parameter of the node.
    """
    known = {**PARAMETERS, USE_SIM_TIME.name: USE_SIM_TIME}
    values = {}
    for name, value in options.items():
        default = known[name].default
        value = default if value is None else value
        values[name] = float(value) if isinstance(default, float) else value
    return values
