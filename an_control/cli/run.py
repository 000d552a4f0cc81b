"""``an-control run --wiring W --model M``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from an_control.cli.common import InputError, need
from an_control.control.controller import Controller
from an_control.policy import Monitor
from an_control.system.interrupts import INTERRUPTED, end_at_once


@dataclass(frozen=True)
class Verb:
    """Run the policy node for a robot; Ctrl-C sends the safe command and ends it."""

    wiring: Path
    """The robot's wiring YAML."""
    model: Path
    """A .safetensors model file."""
    activate: bool = False
    """Act at once. By default the node waits for a lifecycle manager (`ros2 lifecycle set`)."""
    namespace: str = ""
    """The robot's namespace."""
    mode: Literal["rate", "lockstep"] = "rate"
    """rate: tick in real time, at the wiring's rate. lockstep: tick by stamp, for a simulator."""
    trigger: Literal["sources", "timer"] = "sources"
    """In real time: tick when a message of each source has arrived, or by a timer."""
    shadow: bool = False
    """Publish no commands, but on ~/proposed what they would be; until the node's parameter shadow
    is set to false."""
    ramp: float | None = None
    """Seconds over which commands move from the safe command to the policy's, after activation and
    every stop; by default as the model was trained."""
    monitor: Monitor | None = None
    """What to do about unannounced rewiring: off, reset or match (see `evaluate`); by default what
    the model file says."""
    recovery: float | None = None
    """Push a robot that stands still by random actions: where its readings change by less than
    this at a tick in the mean (docs/safety.md); 0: never; by default what the model file says."""
    thread_priority: int = 50
    """In real time: real-time priority of the thread that ticks, 1 to 98, where the system
    allows it; 0: none (docs/real_time.md)."""
    use_sim_time: bool = False
    """Take the time from /clock."""
    check_rate: bool = True
    """Refuse to act at another rate than the model was trained at."""
    ros_args: tyro.conf.Positional[tuple[str, ...]] = ()
    """ROS arguments, after --, such as -r old:=new or --params-file FILE."""

    def run(self) -> int:
        end_at_once(INTERRUPTED)  # until the node handles signals itself
        need("ros", "rclpy")
        controller = Controller(
            str(self.wiring), str(self.model), "numpy", monitor=self.monitor, recovery=self.recovery
        )
        if self.check_rate and (refusal := controller.rate_refusal()):
            raise InputError(refusal)
        from an_control.ros.node import main

        values = {
            "wiring": self.wiring,
            "model": self.model,
            "mode": self.mode,
            "trigger": self.trigger,
            "shadow": self.shadow,
            "ramp_s": -1.0 if self.ramp is None else float(self.ramp),
            "autostart": self.activate,
            "check_rate": self.check_rate,
            "monitor": self.monitor or "model",
            "recovery": -1.0 if self.recovery is None else float(self.recovery),
            "thread_priority": self.thread_priority,
            "use_sim_time": self.use_sim_time,
        }
        arguments = ["--ros-args", *self.ros_args]
        if self.namespace:
            arguments += ["-r", f"__ns:=/{self.namespace.strip('/')}"]
        return main(arguments + parameters(values))


def parameters(values: Mapping[str, object]) -> list[str]:
    """The ROS arguments that set these; quoted, so that a path is one whatever it looks like."""
    yaml = {
        name: json.dumps(str(value) if isinstance(value, Path) else value, ensure_ascii=False)
        for name, value in values.items()
    }
    return [part for name, value in yaml.items() for part in ("-p", f"{name}:={value}")]
