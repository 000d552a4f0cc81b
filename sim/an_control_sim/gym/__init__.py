"""Any gymnasium environment as a robot with named channels and actuators."""
