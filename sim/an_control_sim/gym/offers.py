"""What an environment may offer beyond gymnasium, as `--help` says it.

The protocols of `environments` have the signatures. This imports nothing, as help must be quick.
"""

OFFERS = {
    "channels": (
        "ids of the readings, as a wiring has them after its * and pool are expanded: those of"
        " scan.* with 8 numbers are scan.0 to scan.7"
    ),
    "actuators": "names of the actuators",
    "step_s": "seconds a step",
    "teacher": "a teacher that reads the simulator's state",
    "sensors": "physical readings by name",
    "set_physics": "another mass, another friction",
    "starts": "names of other starts",
    "frames": "the camera's pictures",
    "plain": "the name of its own background",
    "show": "another background",
    "batch": "compiled physics of many episodes",
}
"""Attributes of `env.unwrapped`, all of them optional, and what they are."""


def with_offers(text: str | None) -> str:
    """Return a command's help with what the environment may offer."""
    said = "; ".join(f"{name}: {what}" for name, what in OFFERS.items())
    return (
        f"{(text or '').rstrip()}\n\n    An environment of yours may offer, as attributes: {said}."
        ' docs/learning.md says more: "What an environment may be".\n    '
    )
