"""Simulated robots as gymnasium environments, without ROS."""
