"""The folder of a run, its checkpoints and the card of its model."""
