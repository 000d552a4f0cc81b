"""Recordings of a policy node: written while it acts, read, replayed and turned into arrays."""
