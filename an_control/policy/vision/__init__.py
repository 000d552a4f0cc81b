"""Policies for image patches: the same attention, on camera images."""
