"""Tools for the time before a robot's first run: list topics, draft a wiring, check a wiring."""
