"""Simulated robots as gymnasium environments; no ROS."""
