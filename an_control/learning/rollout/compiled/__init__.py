"""Compiled rollouts: policy and dynamics in one loop, many episodes at once."""
