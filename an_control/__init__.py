"""an_control: controls a robot with an AttentionNeuron policy, its sensors in any order."""

from __future__ import annotations

TYPE_CHECKING = False  # typing is not imported: until `start` has run a signal is Python's
if TYPE_CHECKING:
    from typing import Any

    from an_control.load import load_policy
    from an_control.policy import ModelError

__all__ = ["ModelError", "__version__", "load_policy"]
__version__ = "1.0.0"


def __getattr__(name: str) -> Any:
    """Import the policy on first use, so that `import an_control` alone loads no numpy."""
    if name in ("ModelError", "load_policy"):
        from an_control import load

        return getattr(load, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
