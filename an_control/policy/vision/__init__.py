"""Policies for image patches: the same attention on what a camera sees."""
