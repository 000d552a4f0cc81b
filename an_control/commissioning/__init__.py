"""Before the first run: what a robot publishes, a draft of its wiring, and whether that fits."""
