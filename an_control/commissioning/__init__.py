"""Tools for before the first run: list what a robot publishes, draft its wiring, check a wiring."""
