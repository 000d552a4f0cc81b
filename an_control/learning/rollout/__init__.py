"""Rollouts: episodes of policies in simulated environments."""
