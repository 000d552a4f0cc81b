"""Call a policy without ROS 2: channels in any order, some of them missing.

python examples/policy_in_python.py
"""

from pathlib import Path

import numpy as np

import an_control

MODEL = Path(__file__).resolve().parent.parent / "models/ant.safetensors"


def main() -> None:
    """Print five actions, and that the order of the channels changes no bit of them."""
    policy, other = an_control.load_policy(MODEL), an_control.load_policy(MODEL)
    rng = np.random.default_rng(0)
    ids = list(policy.nominal_ids)
    for tick in range(5):
        readings = dict(zip(ids, rng.normal(0.0, 0.3, len(ids)), strict=True))
        if tick == 3:
            del readings["roll"]  # a sensor is missing: it is left out, not zero
        action = policy.step(readings)
        shuffled = dict(sorted(readings.items(), key=lambda item: rng.random()))
        assert (action == other.step(shuffled)).all()
        print(np.round(action, 2))


if __name__ == "__main__":
    main()
