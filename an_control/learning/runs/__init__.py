"""Training runs, with the loop over the steps of a trainer, the run's folder and the model card."""
