"""Training runs: the loop over a trainer's steps, the run's folder, and its model card."""
