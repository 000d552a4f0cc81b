"""``an-control rewire NODE SOURCE=TOPIC ...``."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass

import tyro

from an_control.cli import InputError


@dataclass(frozen=True)
class Verb:
    """Tell a running policy node to read sources from other topics, all at once or not at all."""

    node: tyro.conf.Positional[str]
    """The node's full name, such as /ant/policy."""
    changes: tyro.conf.Positional[tuple[str, ...]]
    """SOURCE=TOPIC, one or more."""
    timeout_s: float = 5.0
    """How long to wait for the node."""

    def run(self) -> int:
        if importlib.util.find_spec("rclpy") is None:
            raise InputError("needs rclpy: source ROS 2, or pip install 'an_control[ros]'")
        topics = dict(self._parse(change) for change in self.changes)
        if not topics:
            raise InputError("nothing to rewire: give SOURCE=TOPIC")
        if len(topics) < len(self.changes):
            raise InputError("a source is named twice")
        from an_control.ros.rewire import rewire

        try:
            refusal = rewire(self.node, topics, self.timeout_s)
        except ValueError as error:
            raise InputError(str(error)) from error
        if refusal:
            print(f"an-control rewire: {refusal}", file=sys.stderr)
            return 1
        for source, topic in topics.items():
            print(f"{self.node}: source {source} now reads {topic}")
        return 0

    @staticmethod
    def _parse(change: str) -> tuple[str, str]:
        source, separator, topic = change.partition("=")
        if not (source and separator and topic):
            raise InputError(f"{change!r} is not SOURCE=TOPIC")
        return source, topic
