"""``an-control run --wiring W --model M``."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from an_control.cli.common import InputError
from an_control.controller import Controller
from an_control.interrupts import INTERRUPTED, end_at_once
from an_control.policy import Monitor


@dataclass(frozen=True)
class Verb:
    """Run the policy node for a robot; Ctrl-C sends the safe command and ends it."""

    wiring: Path
    """The robot's wiring YAML."""
    model: Path
    """A .safetensors model file."""
    activate: bool = False
    """Act at once. Without it the node waits for a lifecycle manager (`ros2 lifecycle set`)."""
    namespace: str = ""
    """The robot's namespace."""
    mode: Literal["rate", "lockstep"] = "rate"
    """Tick in real time, at about the wiring's rate, or by stamp for a simulator."""
    trigger: Literal["sources", "timer"] = "sources"
    """In real time: tick when the sources' newest messages have come, or by a timer."""
    shadow: bool = False
    """Command nothing: publish on ~/proposed what the commands would be. The node's parameter
    shadow, set to false, lets it act."""
    ramp: float | None = None
    """Seconds over which the policy's authority grows from the safe command, after activation and
    every stop; by default what the model was trained with."""
    monitor: Monitor | None = None
    """What watches for contents that moved without a word: off, reset, match; by default what the
    model file says."""
    use_sim_time: bool = False
    """Follow /clock."""
    check_rate: bool = True
    """Refuse to act at a rate that the model was not trained at."""
    ros_args: tyro.conf.Positional[tuple[str, ...]] = ()
    """After --: what goes behind --ros-args, such as -r old:=new or --params-file F."""

    def run(self) -> int:
        end_at_once(INTERRUPTED)  # until the node handles signals itself
        if importlib.util.find_spec("rclpy") is None:
            raise InputError("needs rclpy: source ROS 2, or pip install 'an_control[ros]'")
        controller = Controller(str(self.wiring), str(self.model), "numpy", monitor=self.monitor)
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
