"""Policies for scalar channels: sensory neurons, attention, memory and head, in two engines."""
