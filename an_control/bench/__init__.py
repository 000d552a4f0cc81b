"""Benchmarks of a tick, a rollout, lockstep and ROS; `an-control bench` runs them."""
