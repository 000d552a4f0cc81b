"""The verb ``an-control run --wiring W --model M``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from an_control.cli.common import InputError, ModelFile, OutputFolder, require_packages
from an_control.control.controller import Controller
from an_control.policy import Monitor
from an_control.ros.parameter_table import ALL_PARAMETERS, convert_options_to_parameter_values
from an_control.system.interrupts import INTERRUPTED, exit_on_signal


def make_option_for_node_parameter(name: str) -> Any:
    """Make the dataclass field of a command line option that sets a parameter of the policy node.

    The option has the description and the default of the parameter. But its default is None if the
    parameter has a special value that means "not given".

    Args:
        name: Name of the parameter, such as ``ramp_s``.
    """
    one = ALL_PARAMETERS[name]
    text = f"{one.option_help_text[0].upper()}{one.option_help_text[1:]}."
    return field(default=None if one.unset else one.default, metadata={"help": text})


@dataclass(frozen=True)
class RunCommand:
    """Run the policy node for a robot; Ctrl-C sends the safe command and stops it."""

    wiring: Path
    """The robot's wiring YAML."""
    model: ModelFile
    """A .safetensors model file, an .onnx file of another tool, or the name of a shipped model."""
    activate: bool = make_option_for_node_parameter("autostart")
    namespace: str = ""
    """The robot's namespace."""
    mode: Literal["rate", "lockstep"] = make_option_for_node_parameter("mode")
    trigger: Literal["sources", "timer"] = make_option_for_node_parameter("trigger")
    shadow: bool = make_option_for_node_parameter("shadow")
    ramp: float | None = make_option_for_node_parameter("ramp_s")
    monitor: Monitor | None = make_option_for_node_parameter("monitor")
    recovery: float | None = make_option_for_node_parameter("recovery")
    thread_priority: int = make_option_for_node_parameter("thread_priority")
    record: OutputFolder | None = None
    """Record everything that decides commands into a new folder inside this folder; `an-control
    replay` reads the recording."""
    use_sim_time: bool = False
    """Take the time from /clock."""
    check_rate: bool = make_option_for_node_parameter("check_rate")
    ros_args: tyro.conf.Positional[tuple[str, ...]] = ()
    """ROS arguments, after --, such as -r old:=new or --params-file FILE."""

    def run(self) -> int:
        """Run the policy node until it stops, and return the exit status."""
        exit_on_signal(INTERRUPTED)  # until the node handles signals itself
        require_packages("ros", "rclpy")
        if self.record is not None:
            require_packages("record", "mcap")
        controller = Controller(
            str(self.wiring), str(self.model), "numpy", monitor=self.monitor, recovery=self.recovery
        )
        if self.check_rate and (refusal := controller.explain_control_rate_mismatch()):
            raise InputError(refusal)
        from an_control.ros.node import main

        values = convert_options_to_parameter_values(
            wiring=self.wiring,
            model=self.model,
            mode=self.mode,
            trigger=self.trigger,
            shadow=self.shadow,
            ramp_s=self.ramp,
            autostart=self.activate,
            check_rate=self.check_rate,
            monitor=self.monitor,
            recovery=self.recovery,
            thread_priority=self.thread_priority,
            record=None if self.record is None else str(self.record.absolute()),
            use_sim_time=self.use_sim_time,
        )
        arguments = ["--ros-args", *self.ros_args]
        if self.namespace:
            arguments += ["-r", f"__ns:=/{self.namespace.strip('/')}"]
        # The last one counts: an option that was given, but no default, replaces what is after --.
        given = {
            name: value for name, value in values.items() if value != ALL_PARAMETERS[name].default
        }
        return main(arguments + format_parameter_arguments(given))


def format_parameter_arguments(values: Mapping[str, object]) -> list[str]:
    """Return the ROS arguments (``-p NAME:=VALUE``) that set these parameters.

    Each value is quoted, so that a path that looks like a number stays text.

    Args:
        values: Values of the parameters, by name.
    """
    yaml = {
        name: json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
        for name, value in values.items()
    }
    return [part for name, value in yaml.items() for part in ("-p", f"{name}:={value}")]
