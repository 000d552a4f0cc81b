"""The parameters that shape the policy node: one table.

The node, the launch files, `an-control run` and `sim` and the page of the parameters are made from
it. No rclpy, so that the command line can ask it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, cast

from an_control.load import EngineName
from an_control.policy import Monitor

Trigger = Literal["sources", "timer"]
When = Literal["start", "unconfigured", "always"]
UNSET = -1.0
"""The value of a number that says: by default."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of the node.

    Attributes:
        name: as in ROS.
        default: its value, and with that its type.
        text: what it does, in words.
        choices: the values that it may have, each with what it means; empty for any.
        bounds: the lowest and the highest number.
        unset: what holds by default, where the default value is no plain one (`UNSET`, "model").
        when: from when on it is fixed: from the node's start, while configured, or never.
    """

    name: str
    default: Any
    text: str
    choices: Mapping[str, str]
    bounds: tuple[Any, Any] | None
    unset: str
    when: When

    @property
    def description(self) -> str:
        """What it does and what its values mean, as ROS and the launch files say it."""
        if self.choices or not self.unset:
            return self.text + _listed(self.choices)
        return f"{self.text}; {self.default:g} = {self.unset}"

    @property
    def option(self) -> str:
        """The same as of an option of the command line, which need not be given."""
        if not self.unset:
            return self.text + _listed(self.choices)
        plain = {value: one for value, one in self.choices.items() if value != self.default}
        return f"{self.text}{_listed(plain)}; by default {self.unset}"


def _listed(choices: Mapping[str, str]) -> str:
    listed = [f"{value} ({meaning})" for value, meaning in choices.items()]
    return f": {', '.join(listed[:-1])} or {listed[-1]}" if listed else ""


def _parameter(
    default: Any,
    text: str,
    *,
    choices: Mapping[str, str] | None = None,
    bounds: tuple[Any, Any] | None = None,
    unset: str = "",
    when: When = "unconfigured",
) -> Any:
    about = {"text": text, "choices": choices or {}, "bounds": bounds, "unset": unset, "when": when}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Settings:
    """The values of the parameters that shape the node."""

    wiring: str = _parameter("", "path of the robot's wiring YAML")
    model: str = _parameter(
        "",
        "path of the policy's model file (.safetensors); to set it swaps the policy: its header is"
        " checked at once, its arrays in the background (/diagnostics: new model)",
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
        True, "refuse to act at a rate more than 10% off the one that the model was trained at"
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
        "push a robot that stands still by random actions: where its readings change by less than"
        " this at a tick in the mean; 0 = never",
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
        "in lockstep: seconds to wait for the other sources of a stamp; what has not come by then"
        " is missing",
        bounds=(0.001, 60.0),
    )
    watchdog_s: float = _parameter(
        UNSET,
        "seconds without a command after which the safe one goes out; 0 = off",
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
        " leave them as they are",
        bounds=(0, 98),
    )
    record: str = _parameter(
        "",
        "record everything that decides commands into a new folder in this one, as a bag of ROS 2"
        " (an-control replay); empty = do not",
    )
    record_split_s: float = _parameter(
        600.0,
        "seconds after which a recording goes on in another file; 0 = never",
        bounds=(0.0, 1e6),
    )
    record_split_mb: float = _parameter(
        512.0, "MB after which a recording goes on in another file; 0 = never", bounds=(0.0, 1e6)
    )
    record_max_mb: float = _parameter(
        8192.0,
        "MB beyond which a recording's oldest files are deleted; 0 = never",
        bounds=(0.0, 1e9),
    )
    black_box_s: float = _parameter(
        30.0,
        "seconds that are kept in memory while nothing is recorded, 64 MiB at most; they are"
        " written when the robot stops unasked: watchdog, e-stop, failed tick; 0 = none",
        bounds=(0.0, 600.0),
    )
    black_box: str = _parameter(
        "", "the folder for them; empty = black_boxes in the folder of ROS's log files"
    )

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


PARAMETERS: dict[str, Parameter] = {
    one.name: Parameter(one.name, one.default, **one.metadata) for one in fields(Settings)
}
"""By name, those of `Settings`."""
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
"""rclpy's own, which every node has."""


def values_of(**options: Any) -> dict[str, Any]:
    """Return the parameters' values for these options, where None stands for the default.

    KeyError for an option that is no parameter of the node.
    """
    known = {**PARAMETERS, USE_SIM_TIME.name: USE_SIM_TIME}
    values = {}
    for name, value in options.items():
        default = known[name].default
        value = default if value is None else value
        values[name] = float(value) if isinstance(default, float) else value
    return values
