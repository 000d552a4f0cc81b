"""The verb ``an-control run --wiring W --model M``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from an_control.cli.common import InputError, OutputFolder, require_packages
from an_control.control.controller import Controller
from an_control.policy import Monitor
from an_control.ros.settings import PARAMETERS, parameter_values
from an_control.system.interrupts import INTERRUPTED, exit_on_signal


def node_option(name: str) -> Any:
    """Return the dataclass field of an option that sets this parameter of the policy node.

    Its default is None if the parameter's default is not a plain value.
    """
    one = PARAMETERS[name]
    text = f"{one.option[0].upper()}{one.option[1:]}."
    return field(default=None if one.unset else one.default, metadata={"help": text})


@dataclass(frozen=True)
class RunCommand:
    """Run the policy node for a robot; Ctrl-C sends the safe command and ends it."""

    wiring: Path
    """The robot's wiring YAML."""
    model: Path
    """A .safetensors model file, or an .onnx file of another tool."""
    activate: bool = node_option("autostart")
    namespace: str = ""
    """The robot's namespace."""
    mode: Literal["rate", "lockstep"] = node_option("mode")
    trigger: Literal["sources", "timer"] = node_option("trigger")
    shadow: bool = node_option("shadow")
    ramp: float | None = node_option("ramp_s")
    monitor: Monitor | None = node_option("monitor")
    recovery: float | None = node_option("recovery")
    thread_priority: int = node_option("thread_priority")
    record: OutputFolder | None = None
    """Record everything that decides commands into a new folder in this one; `an-control replay`
    reads it."""
    use_sim_time: bool = False
    """Take the time from /clock."""
    check_rate: bool = node_option("check_rate")
    ros_args: tyro.conf.Positional[tuple[str, ...]] = ()
    """ROS arguments, after --, such as -r old:=new or --params-file FILE."""

    def run(self) -> int:
        """Run the policy node until it ends, and return the exit status."""
        exit_on_signal(INTERRUPTED)  # until the node handles signals itself
        require_packages("ros", "rclpy")
        if self.record is not None:
            require_packages("record", "mcap")
        controller = Controller(
            str(self.wiring), str(self.model), "numpy", monitor=self.monitor, recovery=self.recovery
        )
        if self.check_rate and (refusal := controller.rate_refusal()):
            raise InputError(refusal)
        from an_control.ros.node import main

        values = parameter_values(
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
        return main(arguments + parameter_arguments(values))


def parameter_arguments(values: Mapping[str, object]) -> list[str]:
    """Return the ROS arguments that set these parameters.

    Values are quoted, so that any path is taken as a text.
    """
    yaml = {
        name: json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
        for name, value in values.items()
    }
    return [part for name, value in yaml.items() for part in ("-p", f"{name}:={value}")]
