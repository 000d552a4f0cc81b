"""Detection of unannounced rewiring: estimates which sensor feeds which input of the policy.

An `IdentityMonitor` stands between the readings and a policy and estimates the `Assignment`: which
input slot (the position at which a sensor's readings arrive) feeds which channel (a named input of
the model). A `MonitoredPolicy` joins a monitor and a policy. A `RecoveringPolicy` sends random
actions to a robot that stands still. `an_control.load_policy` makes these objects according to a
model file. All tuned numbers are in `MonitorSettings` and `RecoverySettings`.

Example:
    >>> from an_control.monitor import ForwardModel, IdentityMonitor, MonitoredPolicy
    >>> from an_control.load import make_policy
    >>> from an_control.policy import read_model
    >>> from an_control.system.share import find_share_path
    >>> model = read_model(find_share_path("models/cartpole.safetensors"))
    >>> monitor = IdentityMonitor(ForwardModel(model))
    >>> policy = MonitoredPolicy(make_policy(model, "off"), monitor, "match")
    >>> action = policy.step(dict.fromkeys(policy.nominal_ids, 0.0))
    >>> policy.monitor_report.lost  # after one tick no assignment is known yet
    True
"""

from an_control.monitor.assignment import Assignment
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.monitor import IdentityMonitor
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.monitor.recovery import RecoveringPolicy
from an_control.monitor.settings import MONITOR, RECOVERY, MonitorSettings, RecoverySettings

__all__ = [
    "MONITOR",
    "RECOVERY",
    "Assignment",
    "ForwardModel",
    "IdentityMonitor",
    "MonitorSettings",
    "MonitoredPolicy",
    "RecoveringPolicy",
    "RecoverySettings",
]
