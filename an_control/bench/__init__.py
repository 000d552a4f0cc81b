"""Benchmarks of policy, monitor, rollouts, lockstep and ROS; `an-control bench` runs them."""
