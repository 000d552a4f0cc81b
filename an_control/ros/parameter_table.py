"""The ROS parameters that configure the policy node, in one table.

The node, the launch files, `an-control run` and `sim`, and the reference page of the parameters are
made from it. This module needs no rclpy, so that the command line can use it too.
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
"""The value of a numeric parameter that means "not set"."""


@dataclass(frozen=True)
class Parameter:
    """The description of one parameter of the node.

    Attributes:
        name: The name in ROS.
        default: The default value. Its type is the type of the parameter.
        text: A description of what the parameter does.
        choices: The allowed values, each with its meaning; empty if any value is allowed.
        bounds: The lowest and the highest number that is allowed; None: no bounds.
        unset: A description of what the node does by default, for a parameter whose default value
            (such as `UNSET`) only means "not set"; "" for other parameters.
        when: When the parameter can be set: only when the node is started ("start"), until the node
            is configured ("unconfigured"), or "always".
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
        """The description for ROS and launch files: `text`, and what the allowed values mean."""
        if self.choices or not self.unset:
            return self.text + _format_choices(self.choices)
        return f"{self.text}; {self.default:g} = {self.unset}"

    @property
    def option_help_text(self) -> str:
        """The help text of a command-line option that sets this parameter.

        It tells what happens by default if the default value only means "not set".
        """
        if not self.unset:
            return self.text + _format_choices(self.choices)
        plain = {value: one for value, one in self.choices.items() if value != self.default}
        return f"{self.text}{_format_choices(plain)}; by default {self.unset}"


def _format_choices(choices: Mapping[str, str]) -> str:
    """Format choices and their meanings as text, such as ": a (first) or b (second)"."""
    listed = [f"{value} ({meaning})" for value, meaning in choices.items()]
    return f": {', '.join(listed[:-1])} or {listed[-1]}" if listed else ""


def _make_parameter_field(
    default: Any,
    text: str,
    *,
    choices: Mapping[str, str] | None = None,
    bounds: tuple[Any, Any] | None = None,
    unset: str = "",
    when: SettableWhen = "unconfigured",
) -> Any:
    """Create the dataclass field that describes a parameter of the node.

    Args:
        default: The default value. Its type is the type of the parameter.
        text: What the parameter does.
        choices: The allowed values with their meanings; None: any value.
        bounds: The lowest and the highest number that is allowed; None: no bounds.
        unset: What the node does if the parameter is not set, in words, for a parameter whose
            default value only means "not set"; "" for other parameters.
        when: When the parameter can be set: only when the node is started ("start"), until the node
            is configured ("unconfigured"), or "always".
    """
    about = {"text": text, "choices": choices or {}, "bounds": bounds, "unset": unset, "when": when}
    return field(default=default, metadata=about)


@dataclass(frozen=True)
class Settings:
    """The values of the ROS parameters that configure the policy node."""

    wiring: str = _make_parameter_field("", "path of the robot's wiring YAML")
    model: str = _make_parameter_field(
        "",
        "path of the policy's model file (.safetensors or .onnx); setting it later swaps the"
        " policy: its header is checked at once, its arrays in the background (/diagnostics: new"
        " model)",
        when="always",
    )
    mode: str = _make_parameter_field(
        "rate",
        "when to tick",
        choices={
            "rate": "in real time, at the wiring's rate_hz",
            "lockstep": "once for each stamp of a simulator",
        },
    )
    trigger: str = _make_parameter_field(
        "sources",
        "when to tick in real time",
        choices={
            "sources": "when new messages of the sources have arrived, at about rate_hz",
            "timer": "at rate_hz by the clock",
        },
    )
    shadow: bool = _make_parameter_field(
        False,
        "publish on ~/proposed what the command would be, and command nothing",
        when="always",
    )
    autostart: bool = _make_parameter_field(
        False, "configure and activate at once, without a lifecycle manager"
    )
    check_rate: bool = _make_parameter_field(
        True, "refuse to act if the rate differs by more than 10% from the model's training"
    )
    engine: str = _make_parameter_field(
        "auto",
        "what computes the policy",
        choices={
            "auto": "numba where it is installed",
            "numpy": "slower",
            "numba": "compiled",
        },
    )
    monitor: str = _make_parameter_field(
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
    recovery: float = _make_parameter_field(
        UNSET,
        "make a robot that stands still move by random actions; it stands still if its readings"
        " change by less than this per tick on average; 0 = never",
        bounds=(UNSET, 1.0),
        unset="what the model file says",
    )
    doctor: bool = _make_parameter_field(
        True,
        "while the monitor finds the readings improbable, look for the wrong line of the wiring, in"
        " a process of its own",
    )
    monitor_corrects: tuple[str, ...] = _make_parameter_field(
        (),
        "what of a sensor the doctor corrects by itself while the node runs, once it is certain; []"
        " undoes it",
        choices={
            "scale": "a wrong factor or unit",
            "sign": "a wrong sign",
            "offset": "a wrong offset",
        },
        when="always",
    )
    executor: str = _make_parameter_field(
        "single_threaded",
        "what runs the callbacks",
        choices={
            "single_threaded": "rclpy's ordinary executor",
            "events": "faster, experimental in rclpy",
        },
        when="start",
    )
    lockstep_wait_s: float = _make_parameter_field(
        0.5,
        "in lockstep: seconds to wait for the other sources of a stamp; sources that have not come"
        " by then are missing",
        bounds=(0.001, 60.0),
    )
    watchdog_s: float = _make_parameter_field(
        UNSET,
        "seconds without a command after which the safe command is sent; 0 = off",
        bounds=(UNSET, 3600.0),
        unset="1.75 periods in real time, off in lockstep",
    )
    ramp_s: float = _make_parameter_field(
        UNSET,
        "seconds in which commands change smoothly from the safe command to the policy's, after"
        " activation, after shadow and after every safe command but the watchdog's; 0 = off",
        bounds=(UNSET, 3600.0),
        unset="as the model was trained",
    )
    thread_priority: int = _make_parameter_field(
        50,
        "real-time priority (SCHED_FIFO) of the thread that ticks, 1 to 98, while the node is"
        " active in real time and where the system allows it; the watchdog's is one higher; 0 ="
        " ordinary priority",
        bounds=(0, 98),
    )
    record: str = _make_parameter_field(
        "",
        "folder in which each run creates a ROS 2 bag of all that determines its commands (for"
        " an-control replay); empty = no recording",
    )
    record_split_s: float = _make_parameter_field(
        600.0,
        "seconds after which a recording continues in another file; 0 = never",
        bounds=(0.0, 1e6),
    )
    record_split_mb: float = _make_parameter_field(
        512.0, "MB after which a recording continues in another file; 0 = never", bounds=(0.0, 1e6)
    )
    record_max_mb: float = _make_parameter_field(
        8192.0,
        "MB beyond which a recording's oldest files are deleted; 0 = never",
        bounds=(0.0, 1e9),
    )
    black_box_s: float = _make_parameter_field(
        30.0,
        "seconds of messages and commands kept in memory while nothing is recorded, at most 64 MiB;"
        " they are written when the robot stops unasked: watchdog, e-stop, failed tick; 0 = none",
        bounds=(0.0, 600.0),
    )
    black_box: str = _make_parameter_field(
        "",
        "folder of the black-box recordings; empty = black_boxes in the folder of ROS's log files",
    )

    @property
    def policy_engine(self) -> EngineName | None:
        """The library that computes the policy, "numpy" or "numba"; None: numba if installed."""
        return None if self.engine == "auto" else cast(EngineName, self.engine)

    @property
    def policy_monitor(self) -> Monitor | None:
        """What to do if sensors are rewired without announcement; None: as the model file says."""
        return None if self.monitor == "model" else cast(Monitor, self.monitor)

    @property
    def policy_recovery(self) -> float | None:
        """The change of the readings per tick below which the robot counts as standing still.

        None: the model's value. 0: the robot never counts as standing still.
        """
        return None if self.recovery < 0.0 else self.recovery

    @property
    def policy_ramp_s(self) -> float | None:
        """The seconds in which commands change from the safe command to the policy's.

        None: the duration that the model was trained with. 0: no gradual change.
        """
        return None if self.ramp_s < 0.0 else self.ramp_s

    @property
    def policy_trigger(self) -> Trigger:
        """What starts a control step in real time: new messages ("sources") or a "timer"."""
        return cast(Trigger, self.trigger)


PARAMETERS: dict[str, Parameter] = {
    one.name: Parameter(one.name, one.default, **one.metadata) for one in fields(Settings)
}
"""The descriptions of the parameters in `Settings`, by name."""
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
"""The description of the parameter that rclpy declares on every node."""
ALL_PARAMETERS = {**PARAMETERS, USE_SIM_TIME.name: USE_SIM_TIME}
"""The descriptions of all parameters of the node, by name."""


def convert_options_to_parameter_values(**options: Any) -> dict[str, Any]:
    """Convert options, for example of a command line, to values of the node's parameters by name.

    Args:
        options: The options, each with the name of its parameter. None becomes the parameter's
            default.

    Raises:
        KeyError: An option is not a parameter of the node.
    """
    values = {}
    for name, value in options.items():
        default = ALL_PARAMETERS[name].default
        value = default if value is None else value
        values[name] = float(value) if isinstance(default, float) else value
    return values
