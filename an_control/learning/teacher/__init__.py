"""Teachers, which are policies that a student imitates, and their training."""
