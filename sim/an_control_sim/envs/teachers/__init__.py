"""Scripted teachers that read the simulator's state, for policies that only see pictures."""
