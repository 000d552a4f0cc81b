"""Scripted teachers that read the simulator's state, for students that only see pictures."""
